//! The frames that the core sends.

use std::time::Duration;

use ostler_proto::v1alpha1::{
    CacheInvalidation, Heartbeat, ObjectRevision, Operation, OperationCancel, OperationResultAck,
    RoleKind, SessionRole, register_response,
};

use crate::Term;

/// A frame of the core.
pub(crate) type Frame = register_response::Frame;

/// Hard limit of every frame, both ways, in bytes.
pub(crate) const FRAME_BYTES: u32 = 1 << 20;

pub(crate) fn operation(operation: Box<Operation>) -> Frame {
    Frame::Operation(operation)
}

pub(crate) fn cancel(operation_id: &str, reason: &str) -> Frame {
    Frame::Cancel(OperationCancel {
        operation_id: operation_id.to_owned(),
        reason: reason.to_owned(),
    })
}

pub(crate) fn result_ack(operation_id: impl Into<String>) -> Frame {
    Frame::ResultAck(OperationResultAck { operation_ids: vec![operation_id.into()] })
}

pub(crate) fn role(role: RoleKind, term: Term) -> Frame {
    Frame::Role(SessionRole { role: role.into(), fencing_term: term.0.into() })
}

pub(crate) fn heartbeat() -> Frame {
    Frame::Heartbeat(Heartbeat::default())
}

pub(crate) fn invalidate(stale: ObjectRevision) -> Frame {
    Frame::Invalidate(CacheInvalidation { stale: vec![stale] })
}

/// A part between 0 and 1 that is another for every session: the id of a session is random.
pub(crate) fn part_of(session_id: &str) -> f64 {
    let random = uuid::Uuid::try_parse(session_id).map_or(0, |id| id.as_fields().0);
    f64::from(random) / f64::from(u32::MAX)
}

/// A duration on the wire.
pub(crate) fn duration(of: Duration) -> prost_types::Duration {
    // Only durations of hundreds of billions of years do not fit.
    of.try_into().unwrap_or_default()
}
