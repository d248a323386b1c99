//! The author of a change.

use kube::Resource;

use super::ObjectName;

/// The author of a write: a controller of this process, in a pass over one of its objects. That pass knows of the
/// write; every other pass has to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    by: &'static str,
    object: ObjectName,
}

impl Author {
    /// A pass of the controller of that name over `object`.
    pub fn new<K: Resource>(by: &'static str, object: &K) -> Self {
        Self { by, object: ObjectName::of(object) }
    }

    /// Whether it is the pass of `by` over the object of that name.
    pub(super) fn is(&self, by: &'static str, object: &ObjectName) -> bool {
        self.by == by && self.object == *object
    }
}
