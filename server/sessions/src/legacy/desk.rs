//! All that a driver can read: what lies on the desk of its own stream, while it works on it. INV-7.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ostler_proto::v1alpha1::ObjectRevision;

/// The class of the operation that a driver works on.
#[derive(Clone)]
pub(super) struct Paper {
    /// The operation.
    pub(super) operation_id: String,
    /// The name by which the driver knows the class.
    pub(super) path: String,
    /// Which class it is; also the name of the secret.
    pub(super) class: ObjectRevision,
    /// The class, rendered.
    pub(super) json: String,
    /// User data, only while the instance is being created.
    pub(super) user_data: Option<Vec<u8>>,
}

impl fmt::Debug for Paper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paper")
            .field("operation_id", &self.operation_id)
            .field("path", &self.path)
            .field("user_data", &self.user_data.as_ref().map(Vec::len))
            .finish_non_exhaustive()
    }
}

/// The desk of one stream.
#[derive(Debug, Default)]
pub(super) struct Desk(Mutex<Option<Paper>>);

impl Desk {
    /// Puts the only paper there, or takes it away.
    pub(super) fn put(&self, paper: Option<Paper>) {
        *self.lock() = paper;
    }

    /// What the driver may read now.
    pub(super) fn paper(&self) -> Option<Paper> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Paper>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_neither_class_nor_user_data() {
        let paper = Paper {
            operation_id: "o".into(),
            path: "/p".into(),
            class: ObjectRevision::default(),
            json: "canary".into(),
            user_data: Some(b"canary".to_vec()),
        };
        let shown = format!("{paper:?}");
        assert!(shown.contains("Some(6)") && !shown.contains("canary"), "{shown}");
    }
}
