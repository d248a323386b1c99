//! What an instance says of where it comes from.

use super::Listed;
use crate::digest;
use ostler_api::ProviderId;
use ostler_api::ProviderName;
use ostler_api::Uid;

/// Where an instance comes from, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Kind {
    /// It has the tags of this cluster.
    #[default]
    Ours,
    /// It has those of a previous id of this cluster: the core there may still live.
    Previous,
    /// It has the tags that machine-controller-manager gives, and no UID. They name no namespace: it may be
    /// of one that is not served.
    Untagged,
}

/// What an instance is remembered by from scan to scan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// The UID in its tags. Several instances with the same one are one orphan.
    Uid(Uid),
    /// Its own id, since its tags name no UID.
    Instance(ProviderId),
}

impl Listed {
    /// Where it comes from.
    pub fn kind(&self) -> Kind {
        match (self.machine_uid.is_empty(), self.cluster_id.is_empty()) {
            (_, false) => Kind::Previous,
            (false, true) => Kind::Ours,
            (true, true) => Kind::Untagged,
        }
    }

    /// What it is remembered by.
    pub fn identity(&self) -> Identity {
        if self.machine_uid.is_empty() {
            return Identity::Instance(self.provider_id.clone());
        }
        Identity::Uid(self.machine_uid.clone())
    }
}

impl Identity {
    /// The UID that operations on it are for. An instance without one gets one that is always the same,
    /// and that no Machine has.
    pub fn target_uid(&self, provider: &ProviderName) -> Uid {
        match self {
            Self::Uid(uid) => uid.clone(),
            Self::Instance(id) => {
                format!("untagged-{}", digest::of_text(&format!("{provider} {id}"))).into()
            }
        }
    }
}
