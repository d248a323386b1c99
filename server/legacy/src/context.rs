//! The classes and secrets readable for a legacy driver: for the operation in flight on its own
//! stream. INV-7.

use std::fmt;

use ostler_proto::v1alpha1::ObjectRevision;
use parking_lot::Mutex;

/// The class of the operation that a driver works on.
#[derive(Clone)]
pub(crate) struct OperationContext {
    /// The operation.
    pub(crate) operation_id: String,
    /// The name by which the driver knows the class.
    pub(crate) path: String,
    /// The class, whose name is also the name of the secret.
    pub(crate) class: ObjectRevision,
    /// The class, rendered.
    pub(crate) json: String,
    /// User data, only while the instance is being created.
    pub(crate) user_data: Option<Vec<u8>>,
}

impl fmt::Debug for OperationContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationContext")
            .field("operation_id", &self.operation_id)
            .field("path", &self.path)
            .field("user_data", &self.user_data.as_ref().map(Vec::len))
            .finish_non_exhaustive()
    }
}

/// The data readable for the driver of a stream.
#[derive(Debug, Default)]
pub(crate) struct StreamContext(Mutex<Option<OperationContext>>);

impl StreamContext {
    /// Replaces what the driver may read.
    pub(crate) fn set(&self, context: Option<OperationContext>) {
        *self.0.lock() = context;
    }

    /// The data readable for the driver now.
    pub(crate) fn get(&self) -> Option<OperationContext> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_neither_class_nor_user_data() {
        let context = OperationContext {
            operation_id: "o".into(),
            path: "/p".into(),
            class: ObjectRevision::default(),
            json: "canary".into(),
            user_data: Some(b"canary".to_vec()),
        };
        let shown = format!("{context:?}");
        assert!(shown.contains("Some(6)") && !shown.contains("canary"), "{shown}");
    }
}
