//! The cached fields of PodDisruptionBudgets and persistent volumes, for drains.

use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::watch::Cached;

/// Indexes of budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BudgetIndex {
    /// Its namespace.
    Namespace,
}

impl Cached for PodDisruptionBudget {
    type Index = BudgetIndex;
    const KIND: &'static str = "PodDisruptionBudget";

    fn indexed(&self) -> Vec<(BudgetIndex, String)> {
        let namespace = self.metadata.namespace.clone().unwrap_or_default();
        vec![(BudgetIndex::Namespace, namespace)]
    }

    fn trim(&mut self) {
        trim(&mut self.metadata);
        if let Some(status) = &mut self.status {
            status.conditions = None;
        }
    }
}

impl Cached for PersistentVolumeClaim {
    type Index = ();
    const KIND: &'static str = "PersistentVolumeClaim";

    fn indexed(&self) -> Vec<((), String)> {
        Vec::new()
    }

    fn trim(&mut self) {
        trim(&mut self.metadata);
        self.status = None;
        self.spec = self.spec.take().map(|spec| PersistentVolumeClaimSpec {
            volume_name: spec.volume_name,
            ..PersistentVolumeClaimSpec::default()
        });
    }
}

impl Cached for PersistentVolume {
    type Index = ();
    const KIND: &'static str = "PersistentVolume";

    fn indexed(&self) -> Vec<((), String)> {
        Vec::new()
    }

    fn trim(&mut self) {
        trim(&mut self.metadata);
        self.status = None;
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

impl Cached for VolumeAttachment {
    type Index = AttachmentIndex;
    const KIND: &'static str = "VolumeAttachment";

    fn indexed(&self) -> Vec<(AttachmentIndex, String)> {
        let volume = self.spec.source.persistent_volume_name.clone();
        let volume = volume.map(|name| (AttachmentIndex::Volume, name));
        let node = (AttachmentIndex::Node, self.spec.node_name.clone());
        std::iter::once(node).chain(volume).collect()
    }

    fn trim(&mut self) {
        trim(&mut self.metadata);
        self.spec.source.inline_volume_spec = None;
        if let Some(status) = &mut self.status {
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
        attachment.trim();
        assert_eq!(attachment.indexed(), [(AttachmentIndex::Node, "n".to_owned())]);
        assert_eq!(attachment.spec.source.inline_volume_spec, None);
    }
}
