//! Opens a target cluster when a Machine or pool names it, and closes it when none names it any more.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use ostler_api::machine::WaitReason;
use ostler_api::{Machine, MachinePool};
use ostler_lifecycle::digest;
use ostler_lifecycle::pool::of_template;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::Watches;
use crate::api_health::Probes;
use crate::stores::{MachineIndex, Stores};
use crate::target::{Clusters, Open, SECRET_SUFFIX, Target, Unusable, cluster_of, secret_of};
use crate::triggers::Triggers;
use crate::watch::{Change, ObjectName};

/// Key of the kubeconfig in its secret.
const KEY: &str = "value";

/// Opens and closes target clusters as Machines and secrets require.
pub(crate) struct TargetController {
    pub(crate) clusters: Arc<Clusters>,
    pub(crate) watches: Watches,
}

impl TargetController {
    /// Reconciles all target clusters whenever something changed that may matter.
    pub(crate) async fn run(self) {
        let stores = &self.watches.stores;
        // Wait for the first lists: otherwise an existing secret would count as missing.
        tokio::join!(stores.machines.synced(), stores.secrets.synced());
        loop {
            self.reconcile().await;
            self.clusters.changed.notified().await;
        }
    }

    async fn reconcile(&self) {
        let named = self.watches.stores.machines.values(MachineIndex::Cluster);
        let by_machines = named.iter().filter_map(|value| name(value));
        // A pool without instances has its bootstrap token there.
        let pools = self.watches.stores.pools.all();
        let by_pools = pools.iter().filter_map(|pool| cluster_of(&of_template(pool)));
        let wanted: BTreeSet<ObjectName> = by_machines.chain(by_pools).collect();
        for closed in self.clusters.close_all_but(&wanted) {
            self.forget(&closed);
        }
        for cluster in wanted {
            let _known_from_now_on =
                self.clusters.follow(&cluster, || self.watches.api_health.of_target(&cluster));
            if let Err((reason, message)) = self.keep(&cluster).await
                && self.clusters.lacks(&cluster, (reason, message.clone()))
            {
                warn!(%cluster, message, "a target cluster cannot be watched");
                self.watches.all.tell(|it| it.cluster(&cluster));
            }
        }
    }

    /// Watches the cluster; starts the watch again if its kubeconfig changed.
    async fn keep(&self, cluster: &ObjectName) -> Result<(), (WaitReason, String)> {
        let name = secret_of(cluster);
        let secret = self.watches.stores.secrets.get(&name);
        let secret = secret.ok_or_else(|| {
            let message =
                format!("secret {name} with the kubeconfig of the cluster does not exist");
            (WaitReason::TargetSecretMissing, message)
        })?;
        let invalid = |why: Unusable| {
            (WaitReason::TargetSecretInvalid, format!("key {KEY} of secret {name}: {why}"))
        };
        let text = kubeconfig(&secret).ok_or(Unusable::Malformed).map_err(invalid)?;
        let digest = digest::of_text(&text);
        if self.clusters.is_open(cluster, &digest) {
            return Ok(());
        }
        if !self.clusters.has_room(cluster) {
            let message = "the limit of watched target clusters is reached".to_owned();
            return Err((WaitReason::TooManyTargets, message));
        }
        let client = (self.clusters.connect)(text).await.map_err(invalid)?;
        self.open(cluster, client, digest);
        Ok(())
    }

    fn open(&self, cluster: &ObjectName, client: Client, digest: String) {
        let health = self.clusters.follow(cluster, || self.watches.api_health.of_target(cluster));
        let probes = Probes { control: None, targets: vec![Api::all(client.clone())] };
        let target = Arc::new(Target::of_cluster(client, cluster.clone()));
        let mut watches = JoinSet::new();
        let of_target = Watches { api_health: Arc::clone(&health), ..self.watches.clone() };
        of_target.target(&mut watches, &target);
        let (all, name) = (self.watches.all.clone(), cluster.clone());
        let checked = Arc::clone(&target);
        watches.spawn(health.ask(probes, move |_| {
            // Machines that wait for the cluster's first lists show why the lists do not come.
            if checked.is_synced() {
                all.tell(|it| it.health(Some(&name)));
            } else {
                all.tell(|it| it.cluster(&name));
            }
        }));
        let (all, name, listed) = (self.watches.all.clone(), cluster.clone(), Arc::clone(&target));
        watches.spawn(async move {
            listed.synced().await;
            info!(cluster = %name, nodes = listed.nodes.len(), "watching a target cluster");
            all.tell(|it| it.cluster(&name));
        });
        self.clusters.opened(cluster.clone(), Open { target, digest, watches });
    }

    fn forget(&self, target: &Target) {
        info!(cluster = ?target.cluster, "stopped watching a target cluster");
        self.watches.all.tell(|it| it.closed(target));
    }
}

/// Has the clusters looked at that may have to be opened or closed.
pub(crate) struct TargetTriggers(pub(crate) Stores);

impl Triggers for TargetTriggers {
    fn machine(&self, change: &Change<Machine>) {
        let cluster = |machine: &Option<Arc<Machine>>| machine.as_deref().and_then(cluster_of);
        if cluster(&change.old) != cluster(&change.new) {
            self.0.targets.check_again();
        }
    }

    fn pool(&self, change: &Change<MachinePool>) {
        let cluster = |pool: &Option<Arc<MachinePool>>| {
            pool.as_deref().and_then(|pool| cluster_of(&of_template(pool)))
        };
        if cluster(&change.old) != cluster(&change.new) {
            self.0.targets.check_again();
        }
    }

    fn secret(&self, change: &Change<Secret>) {
        let name = change.latest().and_then(|secret| secret.metadata.name.as_deref());
        if name.is_some_and(|name| name.ends_with(SECRET_SUFFIX)) {
            self.0.targets.check_again();
        }
    }
}

/// The name that an index value stands for.
fn name(value: &str) -> Option<ObjectName> {
    let (namespace, name) = value.split_once('/')?;
    Some(ObjectName::new(namespace, name))
}

fn kubeconfig(secret: &Secret) -> Option<String> {
    String::from_utf8(secret.data.as_ref()?.get(KEY)?.0.clone()).ok()
}
