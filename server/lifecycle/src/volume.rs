//! Persistent volumes, as a drain sees them.

use ostler_api::Uid;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PersistentVolume;

/// Persistent volumes concerned by the drain of a Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumesView {
    /// The volume behind each claim of a pod on the Node, by `namespace/name` of the claim. A claim
    /// that does not exist or is not bound has none.
    pub claims: BTreeMap<String, VolumeFacts>,
    /// VolumeAttachments of the Node.
    pub attachments: Vec<AttachmentView>,
    /// Names of followed volumes for which a pod waits elsewhere, and which are not attached there.
    pub moving: BTreeSet<String>,
}

/// The facts about a PersistentVolume for decisions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeFacts {
    /// Name of the PersistentVolume.
    pub name: String,
    /// Its CSI volume handle.
    pub csi_handle: Option<String>,
    /// The spec as JSON, for a driver that knows the infrastructure's name of the volume.
    pub spec_json: String,
}

impl VolumeFacts {
    /// Reads a PersistentVolume.
    pub fn of(volume: &PersistentVolume) -> Self {
        let spec = volume.spec.as_ref();
        let csi = spec.and_then(|spec| spec.csi.as_ref());
        Self {
            name: volume.metadata.name.clone().unwrap_or_default(),
            csi_handle: csi.map(|csi| csi.volume_handle.clone()),
            spec_json: spec.and_then(|spec| serde_json::to_string(spec).ok()).unwrap_or_default(),
        }
    }
}

/// A VolumeAttachment of the Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttachmentView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Uid,
    /// The PersistentVolume; an inline volume has none.
    pub volume: Option<String>,
    /// A user or controller deleted it.
    pub deleting: bool,
}

/// Whether an entry of `node.status.volumesAttached` is the volume with this id. The entry is the
/// id itself, or `<plugin>/<id>`, or `<plugin>/<driver>^<id>`: compared as text, whole parts only.
pub(crate) fn is_volume(attached: &str, id: &str) -> bool {
    if id.is_empty() {
        return false;
    }
    attached == id || attached.strip_suffix(id).is_some_and(|before| before.ends_with(['/', '^']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_recognised_by_its_whole_id_and_not_by_a_pattern() {
        let csi = "kubernetes.io/csi/ebs.csi.aws.com^vol-1";
        assert!(is_volume(csi, "vol-1"));
        assert!(is_volume("kubernetes.io/gce-pd/disk-1", "disk-1"));
        assert!(is_volume("kubernetes.io/aws-ebs/aws://eu-1a/vol-1", "vol-1"));
        assert!(is_volume(
            "kubernetes.io/csi/a^/subscriptions/x/disks/d",
            "/subscriptions/x/disks/d"
        ));
        assert!(!is_volume("kubernetes.io/csi/ebs.csi.aws.com^vol-12", "vol-1"));
        assert!(!is_volume("kubernetes.io/csi/ebs.csi.aws.com^my-vol-1", "vol-1"));
        assert!(!is_volume(csi, "vol.1"), "an id is no pattern");
        assert!(!is_volume(csi, ""), "a volume without an id is none");
    }
}
