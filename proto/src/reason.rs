//! The words of [`OperationError::reason`](crate::v1alpha1::OperationError::reason) that the core
//! acts on.

/// With FAILED_PRECONDITION from an update: the change cannot reach a running instance.
pub const NOT_HOT_UPDATABLE: &str = "NOT_HOT_UPDATABLE";
/// With FAILED_PRECONDITION: there is an instance, and it is not this machine's.
pub const NOT_OURS: &str = "NOT_OURS";
/// With RESOURCE_EXHAUSTED or UNAVAILABLE: the infrastructure limits the rate of calls.
pub const THROTTLED: &str = "THROTTLED";
/// With UNAVAILABLE from a driver that drains: it did not begin the operation.
pub const DRIVER_DRAINING: &str = "DRIVER_DRAINING";

/// All of them.
pub const ALL: [&str; 4] = [NOT_HOT_UPDATABLE, NOT_OURS, THROTTLED, DRIVER_DRAINING];
