//! Objects by name, for requests that do not know UIDs by heart.

use ostler_api::operation::ClassReference;

/// The Machines and pools known to this core.
pub trait Targets: Send + Sync + 'static {
    /// The served namespace.
    fn namespace(&self) -> &str;

    /// The object of this name, by kind: `Machine` or `MachinePool`.
    fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<KnownTarget>;
}

/// The facts about an object for an operation on it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KnownTarget {
    /// Its UID.
    pub uid: String,
    /// The id of its instance or group; empty if it has none.
    pub provider_id: String,
    /// The pool of the instance; empty: none.
    pub pool: String,
    /// Its class, without a revision.
    pub class: ClassReference,
}
