//! The driver protocol of the first proposal, for drivers that nobody rebuilds any more.
//!
//! Each of their streams becomes a session of the hub: [`session`] speaks to the hub as a driver
//! does ([`link`]) and to the driver as the first core did. The hub knows nothing of it. What the
//! old protocol lacks is made up for here: [`job`] turns one operation into several questions,
//! [`settling`] waits where an answer cannot be trusted yet, and [`desk`] is all that a driver can
//! read, which is the class and the secret of the operation it works on. `docs/legacy.md` has the
//! rules.

mod connection;
mod desk;
mod fault;
mod job;
mod link;
mod metrics;
mod render;
mod serve;
mod service;
mod session;
mod settling;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use self::fault::reasons as legacy_reasons;
pub(crate) use self::metrics::LegacyMetrics;

/// How drivers of the first proposal are served.
#[derive(Debug, Clone)]
pub struct LegacyOptions {
    /// Which provider a driver serves, by what it registers as. Others are turned away.
    pub drivers: BTreeMap<LegacyKind, String>,
    /// For how long an infrastructure may not list what was just made in it. After a create whose
    /// outcome is unknown none is sent again before, and a machine that is not listed counts as
    /// gone only when it is not listed twice, that far apart.
    pub settle: Duration,
    /// From the first word of the core to the driver's registration.
    pub register: Duration,
}

impl LegacyOptions {
    /// Serves these drivers, with the timers that production uses.
    pub fn new(drivers: BTreeMap<LegacyKind, String>) -> Self {
        Self { drivers, settle: Duration::from_mins(1), register: Duration::from_secs(10) }
    }
}

/// What a driver of the first proposal registers as: the type of the machine classes it reads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LegacyKind {
    /// API group, e.g. `machine.sapcloud.io`.
    pub group: String,
    /// API version, e.g. `v1alpha1`.
    pub version: String,
    /// Kind, e.g. `AWSMachineClass`.
    pub kind: String,
}

/// The text is not the type of a machine class.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not GROUP/VERSION/KIND, e.g. machine.sapcloud.io/v1alpha1/AWSMachineClass")]
pub struct NotALegacyKind(String);

impl FromStr for LegacyKind {
    type Err = NotALegacyKind;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            [group, version, kind] if parts.iter().all(|part| !part.is_empty()) => Ok(Self {
                group: (*group).to_owned(),
                version: (*version).to_owned(),
                kind: (*kind).to_owned(),
            }),
            _ => Err(NotALegacyKind(text.to_owned())),
        }
    }
}

impl fmt::Display for LegacyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.group, self.version, self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_as_it_is_written_and_nothing_else_is_one() {
        let text = "machine.sapcloud.io/v1alpha1/AWSMachineClass";
        assert_eq!(text.parse::<LegacyKind>().unwrap().to_string(), text);
        for broken in ["", "AWSMachineClass", "v1/AWS", "a//b", "/v1/AWS", "a/b/c/d"] {
            assert!(broken.parse::<LegacyKind>().is_err(), "{broken}");
        }
    }
}

/// Answers an operation until it is done; for the fuzz target.
/// A class with this provider spec, as such a driver gets it.
#[cfg(fuzzing)]
pub(crate) fn fuzz_class(text: &str) {
    let content = crate::ClassContent {
        revision: String::new(),
        provider: String::new(),
        format: String::new(),
        provider_spec_json: text.to_owned(),
        secret_revision: None,
        labels: BTreeMap::new(),
        shape: None,
    };
    let Some(spec) = render::spec(&content) else { return };
    render::missing_tag(&spec);
    let Ok(kind) = "machine.sapcloud.io/v1alpha1/AWSMachineClass".parse() else { return };
    let rendered =
        render::class(&kind, &ostler_proto::v1alpha1::ObjectRevision::default(), true, spec);
    assert!(
        serde_json::from_str::<serde_json::Value>(&rendered).is_ok(),
        "it cannot be read again"
    );
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(
    operation: &ostler_proto::v1alpha1::Operation,
    answers: Vec<Option<ostler_proto::legacy::infra::driver_side::Response>>,
) {
    let now = tokio::time::Instant::now();
    let mut settling = settling::Settling::new(now, Duration::from_mins(1));
    let Ok(mut job) = job::Job::begin(operation, 100) else { return };
    for answer in answers {
        if let job::Turn::Done(outcome) = job.answered(now, &mut settling, answer) {
            drop(outcome);
            return;
        }
    }
}
