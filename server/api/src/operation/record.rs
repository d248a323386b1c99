//! An instance as the infrastructure knows it.

use crate::ProviderId;
use crate::Uid;

use super::Failure;
use crate::machine::MachineAddress;

/// An instance as the infrastructure knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstanceRecord {
    /// Equal to `Node.spec.providerID`.
    pub provider_id: ProviderId,
    /// Name of the Machine in the tags; empty if none.
    pub machine_name: String,
    /// UID of the Machine in the tags; empty if none.
    pub machine_uid: Uid,
    /// The previous id of this cluster in the tags; else empty.
    pub cluster_id: String,
    /// Name of the Node it becomes; may be empty.
    pub node_name: String,
    /// `None`: the driver has no such notion.
    pub initialized: Option<bool>,
    /// Whether it runs, as the driver says.
    pub power: Power,
    /// Addresses.
    pub addresses: Vec<MachineAddress>,
    /// Set when the infrastructure reports the instance as broken.
    pub fault: Option<Box<Failure>>,
}

/// A remnant of a create or a deletion without an instance: a disk, a network card, an address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// Its id.
    pub id: ProviderId,
    /// The kind of part, for people.
    pub kind: String,
    /// The Machine in the tags.
    pub machine_name: String,
    /// The UID in the tags; never empty.
    pub machine_uid: Uid,
    /// As of an instance.
    pub cluster_id: String,
}

/// Whether an instance runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Power {
    /// It runs or is about to, or the driver does not say.
    #[default]
    On,
    /// The instance is stopped.
    Stopped,
    /// The instance is being deleted.
    Deleting,
}
