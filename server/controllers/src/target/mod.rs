//! The clusters that the Nodes of Machines join. Machines, classes, class secrets, leases and events
//! are in the control cluster; Nodes with their events, pods and bootstrap tokens in the target.

mod clusters;
mod kubeconfig;

pub(crate) use crate::indexes::cluster_of;
pub use clusters::{Clusters, MAX_TARGETS};
pub(crate) use clusters::{Open, SECRET_SUFFIX, cluster_by, secret_of};
pub use kubeconfig::{Connect, Unusable, configure, connect};

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::Client;
use ostler_api::Machine;
use ostler_api::machine::WaitReason;
use ostler_api::names::BOUND_TOKENS;
use ostler_lifecycle::outage::ApiView;
use ostler_lifecycle::snapshot::TargetView;
use tokio::sync::OnceCell;

use crate::api_health::ApiHealth;
use crate::indexes::{AttachmentIndex, BudgetIndex, ClaimIndex, NodeIndex, PodIndex, VolumeIndex};
use crate::watch::{Cache, ObjectName, OnDemand};

/// A cluster that Nodes of Machines join.
pub struct Target {
    /// The client of the cluster.
    pub(crate) client: Client,
    /// The name among several clusters; `None` if there is only one.
    pub(crate) cluster: Option<ObjectName>,
    /// All Nodes.
    pub(crate) nodes: Arc<Cache<NodeIndex>>,
    /// All pods, reduced to the fields that a drain needs.
    pub(crate) pods: Arc<Cache<PodIndex>>,
    /// All PodDisruptionBudgets, while one refuses an eviction.
    pub(crate) budgets: Arc<OnDemand<BudgetIndex>>,
    /// All claims, while pods with volumes are drained.
    pub(crate) claims: Arc<OnDemand<ClaimIndex>>,
    /// All persistent volumes, while pods with volumes are drained.
    pub(crate) volumes: Arc<OnDemand<VolumeIndex>>,
    /// All VolumeAttachments, while a Node with volumes is drained.
    pub(crate) attachments: Arc<OnDemand<AttachmentIndex>>,
    /// The abilities of the API server; set by the first answer.
    pub(crate) abilities: OnceCell<Abilities>,
}

/// The abilities of an API server, from its discovery. A silent API server counts as able to do everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Abilities {
    /// The API server evicts pods.
    pub(crate) evicts: bool,
    /// It looks at the Node that is named on a bootstrap token.
    pub(crate) binds_tokens: bool,
}

impl Abilities {
    pub(crate) const ALL: Self = Self { evicts: true, binds_tokens: true };

    /// From the served resources of the core group.
    pub(crate) fn of(resources: &[APIResource]) -> Self {
        let binds = |one: &APIResource| {
            let mut categories = one.categories.iter().flatten();
            one.name == "secrets" && categories.any(|category| category == BOUND_TOKENS)
        };
        let evicts = |one: &APIResource| one.name == "pods/eviction" && one.kind == "Eviction";
        Self { evicts: resources.iter().any(evicts), binds_tokens: resources.iter().any(binds) }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

impl Target {
    /// A target with empty caches, filled once the controllers run.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            cluster: None,
            nodes: Arc::default(),
            pods: Arc::default(),
            budgets: Arc::default(),
            claims: Arc::default(),
            volumes: Arc::default(),
            attachments: Arc::default(),
            abilities: OnceCell::new(),
        }
    }

    /// Like [`Self::new`], for one of several clusters.
    pub(crate) fn of_cluster(client: Client, cluster: ObjectName) -> Self {
        Self { cluster: Some(cluster), ..Self::new(client) }
    }

    /// Whether the Node of `machine` belongs to this cluster.
    pub(crate) fn is_of(&self, machine: &Machine) -> bool {
        self.cluster.is_none() || self.cluster == cluster_of(machine)
    }

    /// Waits until every cache holds its first complete list.
    pub(crate) async fn synced(&self) {
        tokio::join!(self.nodes.synced(), self.pods.synced());
    }

    /// Whether every cache holds its first complete list.
    pub(crate) fn is_synced(&self) -> bool {
        self.nodes.is_synced() && self.pods.is_synced()
    }
}

/// The target cluster of a Machine.
#[derive(Debug, Clone)]
pub(crate) enum TargetOf {
    /// There is no target cluster.
    None,
    /// The given cluster.
    Cluster(Arc<Target>),
    /// A cluster is configured, but cannot be watched.
    Lacking {
        /// Why.
        reason: WaitReason,
        /// The message for people.
        message: String,
    },
}

impl TargetOf {
    /// The view for decisions.
    pub(crate) fn view(&self) -> TargetView {
        match self {
            Self::None => TargetView::None,
            Self::Cluster(_) => TargetView::Watched,
            Self::Lacking { reason, message } => {
                TargetView::Lacking { reason: reason.clone(), message: message.clone() }
            }
        }
    }
}

/// All target clusters. Cheap to clone; every clone is the same.
#[derive(Debug, Clone, Default)]
pub enum Targets {
    /// Machines join no cluster.
    #[default]
    None,
    /// All Machines join the same cluster.
    One(Arc<Target>),
    /// Each Machine names its own.
    Several(Arc<Clusters>),
}

impl Targets {
    /// All Machines join the cluster of this client, which may be the control cluster.
    pub fn one(client: Client) -> Self {
        Self::One(Arc::new(Target::new(client)))
    }

    /// The cluster that the Node of `machine` joins.
    pub(crate) fn of(&self, machine: &Machine) -> TargetOf {
        match self {
            Self::None => TargetOf::None,
            Self::One(target) => TargetOf::Cluster(Arc::clone(target)),
            Self::Several(clusters) => clusters.of(machine),
        }
    }

    /// Every cluster that is watched.
    pub(crate) fn all(&self) -> Vec<Arc<Target>> {
        match self {
            Self::None => Vec::new(),
            Self::One(target) => vec![Arc::clone(target)],
            Self::Several(clusters) => clusters.all(),
        }
    }

    /// The cluster that all Machines join.
    pub(crate) fn only(&self) -> Option<&Arc<Target>> {
        match self {
            Self::One(target) => Some(target),
            Self::None | Self::Several(_) => None,
        }
    }

    /// The health of the API server of the machine's own cluster.
    fn api_health(&self, machine: &Machine) -> Option<Arc<ApiHealth>> {
        match self {
            Self::Several(clusters) => clusters.api_health(&cluster_of(machine)?),
            Self::None | Self::One(_) => None,
        }
    }

    /// The state of the API servers on which a machine's health depends. `control`: the state of the control cluster,
    /// and of a single target cluster.
    pub(crate) fn api_view(
        &self,
        control: &ApiHealth,
        machine: &Machine,
        now: Timestamp,
    ) -> ApiView {
        match self.api_health(machine) {
            Some(target) => control.view(now).and(&target.view(now)),
            None => control.view(now),
        }
    }

    /// Machines or secrets changed so that a cluster may have to be opened or closed.
    pub(crate) fn check_again(&self) {
        if let Self::Several(clusters) = self {
            clusters.changed.notify_one();
        }
    }

    /// Waits for the caches of every cluster that this process cannot run without.
    pub(crate) async fn synced(&self) {
        match self {
            // An unreachable cluster must not block the machines of other clusters.
            Self::None | Self::Several(_) => {}
            Self::One(target) => target.synced().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_api_server_can_do_is_what_its_discovery_says_and_not_whose_it_is() {
        for (categories, served, evicts, binds) in [
            (json!(["node-bound-tokens"]), "pods/eviction", true, true),
            (json!(["all"]), "pods/binding", false, false),
            (json!(null), "pods/eviction", true, false),
        ] {
            let resources: Vec<APIResource> = serde_json::from_value(json!([
                { "name": "secrets", "singularName": "", "namespaced": true, "kind": "Secret", "verbs": [], "categories": categories },
                { "name": served, "singularName": "", "namespaced": true, "kind": "Eviction", "verbs": [] },
            ]))
            .unwrap();
            let found = Abilities::of(&resources);
            assert_eq!(
                (found.evicts, found.binds_tokens),
                (evicts, binds),
                "{categories} {served}"
            );
        }
    }
}
