//! The clusters of the core, and the access to them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context as _;
use clap::Args;
use kube::Client;
use kube::config::Kubeconfig;
use ostler_controllers::MAX_TARGETS;
use ostler_dial::cluster;
use ostler_sessions::Rate;

use crate::core::TargetCluster;
use crate::throttle::Throttle;

/// How a cluster is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Access {
    /// By the credentials that Kubernetes gives to a pod.
    InCluster,
    /// By a kubeconfig.
    File(PathBuf),
}

/// The word for [`Access::InCluster`] on the command line, as upstream.
const IN_CLUSTER: &str = "inClusterConfig";

impl FromStr for Access {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Upstream takes an empty value for the credentials of the pod.
        Ok(match text {
            "" | IN_CLUSTER => Self::InCluster,
            path => Self::File(PathBuf::from(path)),
        })
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InCluster => f.write_str(IN_CLUSTER),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// The cluster that Nodes join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// None.
    None,
    /// For each Machine the cluster in its label.
    BySecret,
    /// The given cluster.
    Cluster(Access),
}

impl FromStr for Wanted {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "secret" => Ok(Self::BySecret),
            other => other.parse().map(Self::Cluster),
        }
    }
}

/// The options about clusters.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClusterArgs {
    /// The cluster with Machines, classes, their secrets, leases and events
    ///
    /// A kubeconfig, or inClusterConfig for the credentials of the pod. The target cluster by default, and
    /// inClusterConfig if that is not given either.
    #[arg(long, visible_alias = "kubeconfig", value_name = "FILE")]
    control_kubeconfig: Option<Access>,
    /// The cluster that Nodes join: Nodes and their events, pods, volumes, bootstrap tokens
    ///
    /// A kubeconfig, or inClusterConfig for the credentials of the pod. The control cluster by default. With none,
    /// machines join no cluster: they are Available once their instances are initialized. With secret, each machine
    /// names its cluster by label cluster.x-k8s.io/cluster-name, and key value of secret CLUSTER-kubeconfig in the
    /// namespace of the machine is the kubeconfig.
    #[arg(long, value_name = "FILE|none|secret")]
    target_kubeconfig: Option<Wanted>,
    /// How many clusters are watched at the same time with --target-kubeconfig=secret
    #[arg(long, value_name = "COUNT", default_value_t = MAX_TARGETS)]
    max_target_clusters: usize,
}

impl ClusterArgs {
    /// Clients of the control and of the target cluster.
    ///
    /// # Errors
    /// A kubeconfig cannot be used, or this is no pod.
    pub(crate) async fn connect(
        &self,
        rate: Option<Rate>,
    ) -> anyhow::Result<(Client, TargetCluster)> {
        let control = client(&self.control(), "--control-kubeconfig", rate).await?;
        let target = match &self.target_kubeconfig {
            None => TargetCluster::Control,
            Some(Wanted::None) => TargetCluster::None,
            Some(Wanted::BySecret) => TargetCluster::BySecret {
                connect: ostler_controllers::connect(),
                most: self.max_target_clusters,
            },
            Some(Wanted::Cluster(access)) if *access == self.control() => TargetCluster::Control,
            Some(Wanted::Cluster(access)) => {
                TargetCluster::Other(client(access, "--target-kubeconfig", rate).await?)
            }
        };
        Ok((control, target))
    }

    fn control(&self) -> Access {
        match (&self.control_kubeconfig, &self.target_kubeconfig) {
            (Some(control), _) => control.clone(),
            (None, Some(Wanted::Cluster(target))) => target.clone(),
            (None, Some(Wanted::None | Wanted::BySecret) | None) => Access::InCluster,
        }
    }
}

async fn client(access: &Access, flag: &str, rate: Option<Rate>) -> anyhow::Result<Client> {
    let unusable = || format!("{flag} {access} cannot be used");
    let mut config = match access {
        Access::File(path) => {
            let kubeconfig = Kubeconfig::read_from(path).with_context(unusable)?;
            cluster::config(kubeconfig).await.with_context(unusable)?
        }
        Access::InCluster => cluster::of_pod()
            .with_context(|| format!("there are no in-cluster credentials here; give {flag}"))?,
    };
    ostler_controllers::configure(&mut config);
    let client = cluster::builder(config).with_context(unusable)?;
    Ok(match rate {
        Some(rate) => client.with_layer(&Throttle::new(rate)).build(),
        None => client.build(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use tokio::time::Instant;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        clusters: ClusterArgs,
    }

    fn clusters(args: &[&str]) -> ClusterArgs {
        let line = [&["x"], args].concat();
        Line::try_parse_from(line).unwrap().clusters
    }

    #[test]
    fn the_control_cluster_is_the_target_cluster_unless_it_is_given() {
        let file = |path: &str| Access::File(PathBuf::from(path));
        assert_eq!(clusters(&[]).control(), Access::InCluster);
        assert_eq!(clusters(&["--kubeconfig", "a"]).control(), file("a"));
        assert_eq!(clusters(&["--target-kubeconfig", "b"]).control(), file("b"));
        let both = clusters(&["--control-kubeconfig=inClusterConfig", "--target-kubeconfig=b"]);
        assert_eq!(both.control(), Access::InCluster);
        assert_eq!(both.target_kubeconfig, Some(Wanted::Cluster(file("b"))));
    }

    #[test]
    fn none_is_no_file_of_that_name() {
        let none = clusters(&["--target-kubeconfig=none", "--control-kubeconfig=a"]);
        assert_eq!(none.target_kubeconfig, Some(Wanted::None));
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_named_with_its_flag() {
        let error = clusters(&["--control-kubeconfig=/nowhere"]).connect(None).await.err().unwrap();
        assert_eq!(error.to_string(), "--control-kubeconfig /nowhere cannot be used");
    }

    /// Nothing listens there, and nothing else takes an hour of the paused clock.
    #[tokio::test(start_paused = true)]
    async fn requests_of_a_client_with_a_rate_wait_for_their_turns() {
        let directory = tempfile::tempdir().unwrap();
        let access = Access::File(directory.path().join("kubeconfig"));
        let kubeconfig = serde_json::json!({
            "clusters": [{ "name": "c", "cluster": { "server": "http://127.0.0.1:1" } }],
            "users": [{ "name": "u", "user": {} }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "c",
        });
        std::fs::write(access.to_string(), kubeconfig.to_string()).unwrap();
        let hourly = Rate::every(Duration::from_hours(1), 1);
        for (rate, waited) in [(None, false), (Some(hourly), true)] {
            let client = client(&access, "--control-kubeconfig", rate).await.unwrap();
            let began = Instant::now();
            for _ in 0..2 {
                client.apiserver_version().await.unwrap_err();
            }
            assert_eq!(began.elapsed() >= Duration::from_hours(1), waited);
        }
    }
}
