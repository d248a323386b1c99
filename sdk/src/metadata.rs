//! A Machine's metadata for verbs.

use std::collections::BTreeMap;

use ostler_proto::v1alpha1 as proto;

/// Labels, annotations and template of a Machine when the operation was sent, as `MachineMetadata` in the contract
/// says. Use them to name, tag and place instances; find instances by their identity alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineMetadata {
    /// Labels of the Machine.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Machine, without the core's and without copies of what was applied last.
    pub annotations: BTreeMap<String, String>,
    /// `spec.nodeTemplate` as JSON; empty: there is none.
    pub node_template_json: String,
    /// `spec.version`; may be empty.
    pub version: String,
    /// The zone by label of the Machine or of its node template; empty: see [`Shape::zone`](crate::Shape::zone).
    pub zone: String,
    /// Something was too large and left out.
    pub incomplete: bool,
}

impl From<proto::MachineMetadata> for MachineMetadata {
    fn from(it: proto::MachineMetadata) -> Self {
        Self {
            labels: it.labels.into_iter().collect(),
            annotations: it.annotations.into_iter().collect(),
            node_template_json: it.node_template_json,
            version: it.version,
            zone: it.zone,
            incomplete: it.incomplete,
        }
    }
}

impl From<MachineMetadata> for proto::MachineMetadata {
    fn from(it: MachineMetadata) -> Self {
        Self {
            labels: it.labels.into_iter().collect(),
            annotations: it.annotations.into_iter().collect(),
            node_template_json: it.node_template_json,
            version: it.version,
            zone: it.zone,
            incomplete: it.incomplete,
        }
    }
}
