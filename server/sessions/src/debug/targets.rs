//! Machines by name, for requests that do not know UIDs by heart.

use ostler_api::operation::ClassReference;

/// The Machines that this core knows.
pub trait Targets: Send + Sync + 'static {
    /// The namespace that this core serves.
    fn namespace(&self) -> &str;

    /// The Machine of this name.
    fn machine(&self, namespace: &str, name: &str) -> Option<KnownMachine>;
}

/// What an operation on a Machine needs to know of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KnownMachine {
    /// Its UID.
    pub uid: String,
    /// `spec.providerID`; empty if it has none.
    pub provider_id: String,
    /// Its class, without a revision.
    pub class: ClassReference,
}
