//! The origin of an instance, from its tags.

use super::Listed;
use crate::digest;
use ostler_api::ProviderId;
use ostler_api::ProviderName;
use ostler_api::Uid;

/// Where an instance comes from, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum OrphanKind {
    /// The instance has the tags of this cluster.
    #[default]
    Ours,
    /// The instance has the tags of a previous id of this cluster: the core there may still live.
    Previous,
    /// The instance has the tags of machine-controller-manager, and no UID. The tags name no namespace: the instance
    /// may belong to a namespace that is not served.
    Untagged,
}

/// The identity of an instance from scan to scan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OrphanIdentity {
    /// The UID in its tags. Several instances with the same UID are one orphan.
    Uid(Uid),
    /// The provider id, since the tags name no UID.
    Instance(ProviderId),
}

impl Listed {
    /// The origin of the instance.
    pub fn kind(&self) -> OrphanKind {
        match (self.machine_uid.is_empty(), self.cluster_id.is_empty()) {
            (_, false) => OrphanKind::Previous,
            (false, true) => OrphanKind::Ours,
            (true, true) => OrphanKind::Untagged,
        }
    }

    /// The identity under which the watchlist remembers the instance.
    pub fn identity(&self) -> OrphanIdentity {
        if self.machine_uid.is_empty() {
            return OrphanIdentity::Instance(self.provider_id.clone());
        }
        OrphanIdentity::Uid(self.machine_uid.clone())
    }
}

impl OrphanIdentity {
    /// The target UID of operations on the instance. An instance without a UID gets a constant UID that no Machine has.
    pub fn target_uid(&self, provider: &ProviderName) -> Uid {
        match self {
            Self::Uid(uid) => uid.clone(),
            Self::Instance(id) => {
                format!("untagged-{}", digest::of_text(&format!("{provider} {id}"))).into()
            }
        }
    }
}
