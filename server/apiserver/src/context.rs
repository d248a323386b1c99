//! The parts that the whole server shares.

use crate::{clock::Clock, store::Store};

/// The store and the clock: all that a request handler or a controller stands on. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// The revision log and the objects in it.
    pub store: Store,
    /// Stamps `creationTimestamp`, `deletionTimestamp`, token expiry and every other time.
    pub clock: Clock,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("store", &self.store).finish_non_exhaustive()
    }
}
