//! The command line, which environment variables stand in for: a driver sets those when it creates the container.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;

/// The taint of a node that is not ready to be used; the core takes it away.
const NOT_READY: &str = "node.machine.sapcloud.io/instance-not-ready=:NoSchedule";

/// Joins a cluster as a Node and runs the pods bound to it as processes of this container
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "ostler-node", version = crate::version::VERSION.as_str())]
pub struct Options {
    /// Name of the Node; by default the host name
    #[arg(long, env = "OSTLER_NODE_NAME", value_name = "NAME")]
    pub node_name: Option<String>,

    /// What the Node says of its instance, as the driver says it
    #[arg(long, env = "OSTLER_PROVIDER_ID", value_name = "ID")]
    pub provider_id: Option<String>,

    /// User data: a script (#!) or a bootstrap kubeconfig; removed after joining
    #[arg(
        long,
        env = "OSTLER_USER_DATA_FILE",
        value_name = "FILE",
        default_value = "/etc/ostler/user-data"
    )]
    pub user_data_file: PathBuf,

    /// Where a script of the user data leaves the bootstrap kubeconfig
    #[arg(
        long,
        env = "OSTLER_BOOTSTRAP_KUBECONFIG",
        value_name = "FILE",
        default_value = "/etc/ostler/bootstrap-kubeconfig"
    )]
    pub bootstrap_kubeconfig: PathBuf,

    /// Keeps key, certificate and kubeconfig over restarts
    #[arg(long, env = "OSTLER_NODE_STATE", value_name = "DIR", default_value = "/var/lib/ostler")]
    pub state_dir: PathBuf,

    /// What the containers of pods print
    #[arg(long, env = "OSTLER_POD_LOGS", value_name = "DIR", default_value = "/var/log/pods")]
    pub log_dir: PathBuf,

    /// Taints of the Node when it registers: key=value:Effect,…; empty for none
    #[arg(long, env = "OSTLER_NODE_TAINTS", value_name = "TAINTS", default_value = NOT_READY)]
    pub register_with_taints: Taints,

    /// Labels of the Node: key=value,…; those that a node may give itself
    #[arg(long, env = "OSTLER_NODE_LABELS", value_name = "LABELS", default_value = "")]
    pub node_labels: Labels,

    /// Seconds that pods get to end at SIGTERM, if their own grace is not shorter; below the time
    /// after which the engine kills the container
    #[arg(long, env = "OSTLER_SHUTDOWN_GRACE", value_name = "SECONDS", default_value_t = 7)]
    pub shutdown_grace: u64,
}

impl Options {
    /// The grace of pods at SIGTERM.
    pub(crate) fn shutdown_grace(&self) -> Duration {
        Duration::from_secs(self.shutdown_grace)
    }
}

/// The effects of taints.
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// A list of taints: `key=value:Effect,key:Effect`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Taints(pub Vec<Taint>);

/// A list of labels: `key=value,key=value`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(pub BTreeMap<String, String>);

/// A flag that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFlag {
    /// A taint without an effect or a key.
    #[error("taint `{0}` is not key=value:Effect with NoSchedule, PreferNoSchedule or NoExecute")]
    Taint(String),
    /// A label without a key.
    #[error("label `{0}` is not key=value")]
    Label(String),
    /// A label that the cluster refuses from a node.
    #[error(
        "label `{0}` may not be set by a node itself; give it in nodeTemplate of the Machine instead"
    )]
    Restricted(String),
}

impl FromStr for Taints {
    type Err = BadFlag;

    fn from_str(text: &str) -> Result<Self, BadFlag> {
        items(text).map(taint).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Labels {
    type Err = BadFlag;

    fn from_str(text: &str) -> Result<Self, BadFlag> {
        items(text).map(label).collect::<Result<_, _>>().map(Self)
    }
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn taint(item: &str) -> Result<Taint, BadFlag> {
    let bad = || BadFlag::Taint(item.to_owned());
    let (pair, effect) = item.rsplit_once(':').ok_or_else(bad)?;
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    if key.is_empty() || !EFFECTS.contains(&effect) {
        return Err(bad());
    }
    Ok(Taint {
        key: key.to_owned(),
        value: Some(value.to_owned()),
        effect: effect.to_owned(),
        time_added: None,
    })
}

fn label(item: &str) -> Result<(String, String), BadFlag> {
    let (key, value) = item.split_once('=').ok_or_else(|| BadFlag::Label(item.to_owned()))?;
    if key.is_empty() {
        return Err(BadFlag::Label(item.to_owned()));
    }
    if !may_be_own(key) {
        return Err(BadFlag::Restricted(key.to_owned()));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Whether admission (NodeRestriction) lets a node give itself a label of this key.
fn may_be_own(key: &str) -> bool {
    const SINGLE: [&str; 6] = [
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    ];
    let Some((domain, _)) = key.split_once('/') else { return true };
    let under = |parent: &str| {
        domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
    };
    SINGLE.contains(&key)
        || under("kubelet.kubernetes.io")
        || under("node.kubernetes.io")
        || !(under("kubernetes.io") || under("k8s.io"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn taints_are_those_of_the_command_line_and_by_default_the_machine_is_not_ready() {
        let taints = |args: &[&str]| {
            let args = ["ostler-node"].iter().chain(args);
            Options::try_parse_from(args).map(|options| options.register_with_taints.0)
        };
        let given = taints(&["--register-with-taints", "a=b:NoExecute,c:PreferNoSchedule"]);
        let value = |taint: &Taint| taint.value.clone().unwrap();
        let shown: Vec<_> =
            given.unwrap().iter().map(|t| format!("{}={}:{}", t.key, value(t), t.effect)).collect();
        assert_eq!(shown, ["a=b:NoExecute", "c=:PreferNoSchedule"]);
        assert_eq!(taints(&["--register-with-taints="]).unwrap(), []);
        assert_eq!(taints(&[]).unwrap()[0].key, "node.machine.sapcloud.io/instance-not-ready");
        for bad in ["a", "a=b", "a:Never", "=b:NoSchedule", ":NoSchedule"] {
            assert_eq!(bad.parse::<Taints>(), Err(BadFlag::Taint(bad.to_owned())));
        }
    }

    #[test]
    fn a_node_gives_itself_only_the_labels_that_a_cluster_takes_from_it() {
        for good in [
            "pool=x",
            "example.org/pool=x",
            "node.kubernetes.io/instance-type=small",
            "a.node.kubernetes.io/b=",
            "topology.kubernetes.io/zone=z",
        ] {
            assert!(good.parse::<Labels>().is_ok(), "{good}");
        }
        for bad in [
            "node-role.kubernetes.io/control-plane=",
            "node-restriction.kubernetes.io/a=b",
            "kubernetes.io/other=x",
            "k8s.io/x=y",
        ] {
            let (key, _) = bad.split_once('=').unwrap();
            assert_eq!(bad.parse::<Labels>(), Err(BadFlag::Restricted(key.to_owned())));
        }
        for bad in ["a", "=b"] {
            assert_eq!(bad.parse::<Labels>(), Err(BadFlag::Label(bad.to_owned())));
        }
    }
}
