//! The recorded operation of a target: a driver's claim to hold an operation is compared with the
//! record.

use ostler_api::OperationId;
use ostler_api::ProviderName;
use std::fmt;

use ostler_api::driver::OperationKind;
use ostler_api::operation::{ClassReference, Target};

use crate::Term;

/// The mutation that was written down for a target before it was sent.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedOperation {
    /// Its id.
    pub operation_id: OperationId,
    /// The verb.
    pub kind: OperationKind,
    /// The key of the intent.
    pub idempotency_key: String,
    /// Term of the core that made the decision.
    pub term: Term,
    /// The object, as the API has it.
    pub target: Target,
    /// The class as in the API, at the revision of the sent operation.
    pub class: ClassReference,
    /// Provider of that class, as written there.
    pub provider: ProviderName,
}

/// Looks up the record for the target with a UID.
pub(crate) struct Records(Box<Find>);

type Find = dyn Fn(&str) -> Option<RecordedOperation> + Send + Sync;

impl Records {
    /// Asks `find`, which must answer immediately.
    pub(crate) fn new(
        find: impl Fn(&str) -> Option<RecordedOperation> + Send + Sync + 'static,
    ) -> Self {
        Self(Box::new(find))
    }

    /// The record for this target.
    pub(crate) fn find(&self, target_uid: &str) -> Option<RecordedOperation> {
        (self.0)(target_uid)
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}
