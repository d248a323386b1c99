//! Several target clusters: each Machine names its own by a label, as in Cluster API, and a secret beside the Machine
//! holds its kubeconfig.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use ostler_api::Machine;
use ostler_api::machine::WaitReason;
use ostler_api::names::label;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::{Connect, Target, TargetOf};
use crate::api_health::ApiHealth;
use crate::indexes::cluster_of;
use crate::watch::ObjectName;

/// Default limit of target clusters that are watched at the same time: each costs two watches and a copy of its Nodes
/// and pods.
pub const MAX_TARGETS: usize = 100;

/// Suffix of the name of a secret with a kubeconfig.
pub(crate) const SECRET_SUFFIX: &str = "-kubeconfig";

/// The secret with the kubeconfig of a cluster.
pub(crate) fn secret_of(cluster: &ObjectName) -> ObjectName {
    ObjectName::new(&cluster.namespace, format!("{}{SECRET_SUFFIX}", cluster.name))
}

/// The cluster of a kubeconfig secret with this name.
pub(crate) fn cluster_by(secret: &ObjectName) -> Option<ObjectName> {
    let name = secret.name.strip_suffix(SECRET_SUFFIX)?;
    Some(ObjectName::new(&secret.namespace, name))
}

/// The target clusters that Machines name.
pub struct Clusters {
    contents: RwLock<Contents>,
    /// Notified when a cluster may have to be opened or closed.
    pub(crate) changed: Notify,
    pub(crate) connect: Connect,
    most: usize,
}

#[derive(Default)]
struct Contents {
    open: BTreeMap<ObjectName, Open>,
    /// The health of the API server of each named cluster, watched or not.
    healths: BTreeMap<ObjectName, Arc<ApiHealth>>,
    /// Clusters that are named but cannot be watched, and why.
    lacking: BTreeMap<ObjectName, (WaitReason, String)>,
}

/// A cluster that is watched. Dropping the cluster ends its watches.
pub(crate) struct Open {
    pub(crate) target: Arc<Target>,
    /// Digest of the kubeconfig.
    pub(crate) digest: String,
    #[expect(dead_code, reason = "kept because the watches end when it is dropped")]
    pub(crate) watches: JoinSet<()>,
}

impl fmt::Debug for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contents = self.read();
        let open: Vec<_> = contents.open.keys().collect();
        f.debug_struct("Clusters").field("open", &open).finish_non_exhaustive()
    }
}

impl Clusters {
    /// No clusters yet. Watches up to `most` at the same time, each through a client from `connect`.
    pub fn new(connect: Connect, most: usize) -> Self {
        Self { contents: RwLock::default(), changed: Notify::new(), connect, most }
    }

    fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.contents.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents.write()
    }

    pub(super) fn of(&self, machine: &Machine) -> TargetOf {
        let Some(cluster) = cluster_of(machine) else {
            let message = format!("the machine has no label {}", label::CLUSTER_NAME);
            return TargetOf::Lacking { reason: WaitReason::TargetUnnamed, message };
        };
        let contents = self.read();
        if let Some(open) = contents.open.get(&cluster).filter(|open| open.target.is_synced()) {
            return TargetOf::Cluster(Arc::clone(&open.target));
        }
        let (reason, message) = contents.lacking.get(&cluster).cloned().unwrap_or_else(|| {
            let cause = contents.healths.get(&cluster).and_then(|health| health.cause());
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            let message = format!("nodes and pods of cluster {cluster} were not listed yet{cause}");
            (WaitReason::TargetNotReached, message)
        });
        TargetOf::Lacking { reason, message }
    }

    pub(super) fn all(&self) -> Vec<Arc<Target>> {
        self.read().open.values().map(|open| Arc::clone(&open.target)).collect()
    }

    /// Closes every cluster that no Machine names any more, and returns them.
    pub(crate) fn close_all_but(&self, wanted: &BTreeSet<ObjectName>) -> Vec<Arc<Target>> {
        let mut contents = self.write();
        contents.lacking.retain(|cluster, _| wanted.contains(cluster));
        contents.healths.retain(|cluster, _| wanted.contains(cluster));
        let unused: Vec<_> =
            contents.open.keys().filter(|name| !wanted.contains(*name)).cloned().collect();
        let closed = unused.iter().filter_map(|cluster| contents.open.remove(cluster));
        closed.map(|open| open.target).collect()
    }

    /// The health of the API server of a named cluster.
    pub(super) fn api_health(&self, cluster: &ObjectName) -> Option<Arc<ApiHealth>> {
        self.read().healths.get(cluster).cloned()
    }

    /// The same; `new` creates it when a Machine names the cluster for the first time. It outlives the watches: time
    /// in which the cluster cannot be watched is lost to its Machines as well.
    pub(crate) fn follow(
        &self,
        cluster: &ObjectName,
        new: impl FnOnce() -> ApiHealth,
    ) -> Arc<ApiHealth> {
        let mut contents = self.write();
        let health = contents.healths.entry(cluster.clone()).or_insert_with(|| Arc::new(new()));
        Arc::clone(health)
    }

    /// Whether a cluster is watched with the kubeconfig of this digest.
    pub(crate) fn is_open(&self, cluster: &ObjectName, digest: &str) -> bool {
        self.read().open.get(cluster).is_some_and(|open| open.digest == digest)
    }

    /// Whether the limit allows this cluster.
    pub(crate) fn has_room(&self, cluster: &ObjectName) -> bool {
        let contents = self.read();
        contents.open.contains_key(cluster) || contents.open.len() < self.most
    }

    /// Stores a cluster that is watched now. A previous one, with another kubeconfig, ends.
    pub(crate) fn opened(&self, cluster: ObjectName, open: Open) {
        let mut contents = self.write();
        contents.lacking.remove(&cluster);
        contents.open.insert(cluster, open);
    }

    /// Stores why the cluster cannot be watched. Returns whether that is new.
    pub(crate) fn lacks(&self, cluster: &ObjectName, why: (WaitReason, String)) -> bool {
        let mut contents = self.write();
        let was_open = contents.open.remove(cluster).is_some();
        if let Some(health) = contents.healths.get(cluster) {
            health.lost();
        }
        let before = contents.lacking.insert(cluster.clone(), why.clone());
        was_open || before != Some(why)
    }
}

#[cfg(test)]
mod tests {
    use kube::Client;
    use prometheus_client::registry::Registry;
    use serde_json::json;

    use super::super::Unusable;
    use super::*;
    use crate::api_health::ApiCheck;

    fn machine(labels: &serde_json::Value) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m", "namespace": "a", "labels": labels }, "spec": {}
        }))
        .unwrap()
    }

    fn clusters(most: usize) -> Clusters {
        Clusters::new(Arc::new(|_| Box::pin(async { Err(Unusable::Malformed) })), most)
    }

    fn open(name: &str) -> (ObjectName, Open) {
        let unused = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other(
                "the client must not be used",
            ))
        });
        let cluster = ObjectName::new("a", name);
        let client = Client::new(unused, "default");
        let target = Arc::new(Target::of_cluster(client, cluster.clone()));
        (cluster, Open { target, digest: "1".to_owned(), watches: JoinSet::new() })
    }

    fn reason(of: TargetOf) -> Option<WaitReason> {
        match of {
            TargetOf::Lacking { reason, .. } => Some(reason),
            TargetOf::None | TargetOf::Cluster(_) => None,
        }
    }

    #[tokio::test]
    async fn every_way_not_to_have_a_cluster_has_its_reason() {
        let clusters = clusters(1);
        let of = |labels| reason(clusters.of(&machine(&labels)));
        assert_eq!(of(json!({})), Some(WaitReason::TargetUnnamed));
        let named = json!({ "cluster.x-k8s.io/cluster-name": "c" });
        assert_eq!(of(named.clone()), Some(WaitReason::TargetNotReached));
        let (cluster, opened) = open("c");
        let why = (WaitReason::TargetSecretMissing, "gone".to_owned());
        assert!(clusters.lacks(&cluster, why.clone()) && !clusters.lacks(&cluster, why));
        assert_eq!(of(named.clone()), Some(WaitReason::TargetSecretMissing));
        clusters.opened(cluster, opened);
        assert_eq!(of(named), Some(WaitReason::TargetNotReached), "not listed yet");
    }

    #[test]
    fn a_cluster_that_was_not_listed_says_what_its_api_server_said() {
        let (clusters, now) = (clusters(1), jiff::Timestamp::UNIX_EPOCH);
        let clock: crate::clock::Clock = Arc::new(move || now);
        let all = ApiHealth::new(ApiCheck::default(), clock, &mut Registry::default());
        let health = clusters.follow(&ObjectName::new("a", "c"), || all);
        health.record_answer(&Err("Unauthorized".to_owned()), now, now);
        let of = clusters.of(&machine(&json!({ "cluster.x-k8s.io/cluster-name": "c" })));
        let TargetOf::Lacking { message, .. } = of else { panic!("{of:?}") };
        assert_eq!(message, "nodes and pods of cluster a/c were not listed yet: Unauthorized");
    }

    #[tokio::test]
    async fn clusters_are_bounded_and_end_when_no_machine_names_them() {
        let clusters = clusters(1);
        let (cluster, opened) = open("c");
        clusters.opened(cluster.clone(), opened);
        assert!(clusters.has_room(&cluster) && !clusters.has_room(&ObjectName::new("a", "d")));
        assert!(clusters.close_all_but(&[cluster.clone()].into()).is_empty());
        assert_eq!(clusters.close_all_but(&BTreeSet::new()).len(), 1);
        assert!(clusters.has_room(&ObjectName::new("a", "d")));
        assert!(!clusters.is_open(&cluster, "1"));
    }
}
