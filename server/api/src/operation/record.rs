//! What the infrastructure knows of an instance.

use crate::ProviderId;
use crate::Uid;

use super::Failure;
use crate::machine::MachineAddress;

/// What the infrastructure knows of one instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstanceRecord {
    /// Equal to `Node.spec.providerID`.
    pub provider_id: ProviderId,
    /// Name of the Machine that its tags name; empty if they name none.
    pub machine_name: String,
    /// UID of the Machine that its tags name; empty if they name none.
    pub machine_uid: Uid,
    /// The id of this cluster that its tags name, if that is a previous one; else empty.
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

/// What a create or a deletion left behind and belongs to no instance: a disk, a network card, an address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// Its id.
    pub id: ProviderId,
    /// What it is, for people.
    pub kind: String,
    /// The Machine that its tags name.
    pub machine_name: String,
    /// The UID that its tags name; never empty.
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
    /// It is stopped.
    Stopped,
    /// It is being deleted.
    Deleting,
}
