//! The cached fields of PodDisruptionBudgets and persistent volumes, for drains.

use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::watch::CacheIndex;

/// Indexes of budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BudgetIndex {
    /// Its namespace.
    Namespace,
}

impl CacheIndex for BudgetIndex {
    type Object = PodDisruptionBudget;
    const KIND: &'static str = "PodDisruptionBudget";

    fn of(budget: &PodDisruptionBudget) -> Vec<(Self, String)> {
        let namespace = budget.metadata.namespace.clone().unwrap_or_default();
        vec![(Self::Namespace, namespace)]
    }

    fn trim(budget: &mut PodDisruptionBudget) {
        trim(&mut budget.metadata);
        if let Some(status) = &mut budget.status {
            status.conditions = None;
        }
    }
}

/// Claims are found by name alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClaimIndex {}

impl CacheIndex for ClaimIndex {
    type Object = PersistentVolumeClaim;
    const KIND: &'static str = "PersistentVolumeClaim";

    fn trim(claim: &mut PersistentVolumeClaim) {
        trim(&mut claim.metadata);
        claim.status = None;
        claim.spec = claim.spec.take().map(|spec| PersistentVolumeClaimSpec {
            volume_name: spec.volume_name,
            ..PersistentVolumeClaimSpec::default()
        });
    }
}

/// Persistent volumes are found by name alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VolumeIndex {}

impl CacheIndex for VolumeIndex {
    type Object = PersistentVolume;
    const KIND: &'static str = "PersistentVolume";

    fn trim(volume: &mut PersistentVolume) {
        trim(&mut volume.metadata);
        volume.status = None;
    }
}

/// Indexes of VolumeAttachments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttachmentIndex {
    /// Name of the Node.
    Node,
    /// Name of the PersistentVolume.
    Volume,
}

impl CacheIndex for AttachmentIndex {
    type Object = VolumeAttachment;
    const KIND: &'static str = "VolumeAttachment";

    fn of(attachment: &VolumeAttachment) -> Vec<(Self, String)> {
        let volume = attachment.spec.source.persistent_volume_name.clone();
        let volume = volume.map(|name| (Self::Volume, name));
        let node = (Self::Node, attachment.spec.node_name.clone());
        std::iter::once(node).chain(volume).collect()
    }

    fn trim(attachment: &mut VolumeAttachment) {
        trim(&mut attachment.metadata);
        attachment.spec.source.inline_volume_spec = None;
        if let Some(status) = &mut attachment.status {
            status.attachment_metadata = None;
        }
    }
}

fn trim(meta: &mut ObjectMeta) {
    meta.labels = None;
    meta.annotations = None;
    meta.owner_references = None;
    meta.finalizers = None;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_attachment_of_an_inline_volume_is_found_by_its_node_only() {
        let mut attachment: VolumeAttachment = serde_json::from_value(json!({
            "metadata": { "name": "csi-1" },
            "spec": {
                "attacher": "x", "nodeName": "n",
                "source": { "inlineVolumeSpec": { "capacity": { "storage": "1Gi" } } }
            }
        }))
        .unwrap();
        AttachmentIndex::trim(&mut attachment);
        assert_eq!(AttachmentIndex::of(&attachment), [(AttachmentIndex::Node, "n".to_owned())]);
        assert_eq!(attachment.spec.source.inline_volume_spec, None);
    }
}
