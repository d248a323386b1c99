//! The clusters that the Nodes of Machines join. Machines, classes, class secrets, leases and events
//! are in the control cluster; Nodes, pods and bootstrap tokens in the target.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use ostler_api::Machine;
use ostler_api::machine::WaitReason;
use ostler_lifecycle::snapshot::TargetView;

use crate::watch::Mirror;

/// A cluster that Nodes of Machines join.
pub struct Target {
    /// How it is reached.
    pub(crate) client: Client,
    /// All Nodes.
    pub nodes: Arc<Mirror<Node>>,
    /// All pods, as little of them as a drain needs.
    pub pods: Arc<Mirror<Pod>>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

impl Target {
    /// A target with empty mirrors, filled once the controllers run.
    pub fn new(client: Client) -> Self {
        Self { client, nodes: Arc::default(), pods: Arc::default() }
    }

    /// Waits until every mirror holds its first complete list.
    pub async fn synced(&self) {
        tokio::join!(self.nodes.synced(), self.pods.synced());
    }

    /// Whether every mirror holds its first complete list.
    pub fn is_synced(&self) -> bool {
        self.nodes.is_synced() && self.pods.is_synced()
    }
}

/// Where the Node of a Machine is to be looked for.
#[derive(Debug, Clone)]
pub enum TargetOf {
    /// Nowhere: there is no target cluster.
    None,
    /// There.
    Cluster(Arc<Target>),
    /// There is to be a cluster, and it cannot be looked into.
    Lacking {
        /// Why.
        reason: WaitReason,
        /// For people.
        message: String,
    },
}

impl TargetOf {
    /// What decisions need of it.
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
    /// All Machines join this one.
    One(Arc<Target>),
}

impl Targets {
    /// All Machines join the cluster of this client, which may be the control cluster.
    pub fn one(client: Client) -> Self {
        Self::One(Arc::new(Target::new(client)))
    }

    /// The cluster that the Node of `machine` joins.
    pub fn of(&self, _machine: &Machine) -> TargetOf {
        match self {
            Self::None => TargetOf::None,
            Self::One(target) => TargetOf::Cluster(Arc::clone(target)),
        }
    }

    /// Every cluster that is watched.
    pub fn all(&self) -> Vec<Arc<Target>> {
        match self {
            Self::None => Vec::new(),
            Self::One(target) => vec![Arc::clone(target)],
        }
    }

    /// Waits until the mirrors are complete of every cluster that this process cannot do without.
    pub async fn synced(&self) {
        match self {
            Self::None => {}
            Self::One(target) => target.synced().await,
        }
    }

    /// Whether they are.
    pub fn are_synced(&self) -> bool {
        match self {
            Self::None => true,
            Self::One(target) => target.is_synced(),
        }
    }
}
