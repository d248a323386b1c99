//! Our finalizer on an object: it stays, or changes.

/// What to do with the finalizer of an object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FinalizerChange {
    /// No change.
    #[default]
    Keep,
    /// Put our finalizer on it.
    Add,
    /// Take our finalizer from it.
    Remove,
}
