//! A group's deviations from the autoscaler's flags: annotations, as Cluster API's provider reads them.

use std::time::Duration;

use ostler_api::timeout::Timeout;

use super::group::Group;

/// Prefixes of the keys, in the API group of the machine kinds and in Cluster API's.
const PREFIXES: [&str; 2] =
    ["machine.sapcloud.io/autoscaling-options-", "cluster.x-k8s.io/autoscaling-options-"];

/// The options of a group; the autoscaler's flags set the absent ones.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Options {
    /// Below it, a Node is unneeded.
    pub utilization: Option<f64>,
    /// The same, of a Node with graphics cards.
    pub gpu_utilization: Option<f64>,
    /// For how long a Node is unneeded before it goes.
    pub unneeded: Option<Duration>,
    /// The same, of a Node that is not ready.
    pub unready: Option<Duration>,
    /// How long a Node may take to come.
    pub provision: Option<Duration>,
}

impl Options {
    /// The options of the group; `None`: no options. An unreadable value counts as absent.
    pub fn of(group: &Group) -> Option<Self> {
        let text = |name: &str| {
            PREFIXES.iter().find_map(|prefix| group.annotation(&format!("{prefix}{name}")))
        };
        let number = |name: &str| {
            let number: f64 = text(name)?.parse().ok()?;
            number.is_finite().then_some(number)
        };
        let time = |name: &str| Timeout::from(text(name)?).duration();
        let options = Self {
            utilization: number("scaledownutilizationthreshold"),
            gpu_utilization: number("scaledowngpuutilizationthreshold"),
            unneeded: time("scaledownunneededtime"),
            unready: time("scaledownunreadytime"),
            provision: time("maxnodeprovisiontime"),
        };
        (options != Self::default()).then_some(options)
    }
}
