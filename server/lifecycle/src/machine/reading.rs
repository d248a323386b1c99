//! The result of a read of the instance.

use crate::operation::{Failure, InstanceRecord};

/// The result of the pass's read.
#[derive(Debug, Clone)]
pub(crate) enum Reading {
    /// The instance.
    Found(InstanceRecord),
    /// An instance that is not initialized and that the driver did not describe.
    Uninitialized,
    /// No instance.
    NotFound,
    /// The driver cannot read.
    CannotRead,
    /// The read failed.
    Failed(Failure),
}
