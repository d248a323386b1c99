//! Operations as decisions see them.

use std::fmt;

pub use ostler_api::operation::{
    ClassReference, Dispatch, Failure, Finished, InFlight, InstanceRecord, Lane, MachineMetadata,
    OperationView, Outcome, Part, Place, PoolInstance, Power, Progress, Reason, Request, Stranger,
    Success, Target, UserData,
};

/// A text that is a credential: never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// Wraps the text.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The plain text, for the code writing it to its destination.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(redacted)")
    }
}
