//! Why an operation failed.

use crate::ProviderId;
use std::time::Duration;

use super::Reason;
use crate::driver::{Certainty, ErrorCode};

/// The cause of a failed operation, and the certainty about its effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The code.
    pub code: ErrorCode,
    /// The certainty about the effects; unset on the wire is `Unknown`.
    pub certainty: Certainty,
    /// Stable word; the words with an effect in the core are [`Reason`]s.
    pub reason: String,
    /// For people. No decision depends on the message.
    pub message: String,
    /// Not before this much time has passed; of drivers [`LONGEST_WAIT`] at most.
    pub retry_after: Option<Duration>,
    /// Paths in the provider spec that are wrong, and why.
    pub violations: Vec<(String, String)>,
    /// With [`Reason::NotOurs`]: the instance that is there.
    pub stranger: Option<Box<Stranger>>,
    /// The infrastructure's own words, if the driver has them.
    pub infrastructure: Option<Box<InfrastructureError>>,
}

/// The longest wait that a driver can ask for.
pub const LONGEST_WAIT: Duration = Duration::from_hours(1);

/// The infrastructure's message, verbatim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InfrastructureError {
    /// The infrastructure's own code.
    pub code: String,
    /// The infrastructure's own request id.
    pub request_id: String,
}

/// An existing instance that is not the Machine's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stranger {
    /// The instance's id; empty: the requested instance.
    pub provider_id: ProviderId,
    /// The cluster in the tags; empty if none.
    pub cluster_id: String,
}

impl Stranger {
    /// As a driver names it.
    pub fn new(provider_id: &str, cluster_id: &str) -> Option<Box<Self>> {
        let stranger = Self { provider_id: provider_id.into(), cluster_id: cluster_id.to_owned() };
        (stranger != Self::default()).then(|| Box::new(stranger))
    }
}

impl Failure {
    /// A failure with nothing but code, certainty and text.
    pub fn new(code: ErrorCode, certainty: Certainty, message: &str) -> Self {
        Self {
            code,
            certainty,
            reason: String::new(),
            message: message.to_owned(),
            retry_after: None,
            violations: Vec::new(),
            stranger: None,
            infrastructure: None,
        }
    }

    /// A failure reported by the core itself.
    pub fn by_core(code: ErrorCode, reason: Reason, message: &str, certainty: Certainty) -> Self {
        Self { reason: reason.into(), ..Self::new(code, certainty, message) }
    }

    /// The driver's answer is of another kind than the request.
    pub fn wrong_answer() -> Self {
        let message = "the driver's answer does not match the request";
        let code = ErrorCode::Internal;
        Self::by_core(code, Reason::CoreWrongResult, message, Certainty::Unknown)
    }

    /// There is an instance, and it is not the Machine's: it is neither absent nor touched.
    /// `cluster_id`: the cluster in the instance's tags, if any.
    pub fn not_ours(provider_id: &str, cluster_id: &str) -> Self {
        let text = format!("instance {provider_id} has other tags than this machine's");
        let code = ErrorCode::FailedPrecondition;
        Self {
            stranger: Stranger::new(provider_id, cluster_id),
            ..Self::by_core(code, Reason::NotOurs, &text, Certainty::NotApplied)
        }
    }

    /// Whether the failure says that the instance is not the Machine's.
    pub fn is_not_ours(&self) -> bool {
        let word = Reason::from_word(&self.reason);
        self.code == ErrorCode::FailedPrecondition
            && matches!(word, Some(Reason::NotOurs | Reason::CoreClusterIdChanged))
    }

    /// Whether it says so of the very instance that the Machine had, under another cluster id.
    pub fn is_cluster_id_changed(&self) -> bool {
        self.is_not_ours() && self.reason == Reason::CoreClusterIdChanged
    }

    /// Text for people: the message, then of the violations what the message does not say.
    pub fn text(&self) -> String {
        let mut text = self.message.clone();
        for (path, description) in &self.violations {
            let is_said = !description.is_empty() && self.message.contains(description);
            if is_said && self.message.contains(path) {
                continue;
            }
            if !text.is_empty() {
                text.push_str("; ");
            }
            text.push_str(path);
            if !is_said {
                text.push_str(": ");
                text.push_str(description);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_says_twice_is_told_once() {
        let text = |message: &str, violations: &[(&str, &str)]| {
            let own = |it: &(&str, &str)| (it.0.to_owned(), it.1.to_owned());
            let violations = violations.iter().map(own).collect();
            let new = Failure::new(ErrorCode::InvalidArgument, Certainty::NotApplied, message);
            Failure { violations, ..new }.text()
        };
        assert_eq!(text("no image: a", &[("image", "no image: a")]), "no image: a");
        assert_eq!(text("no such thing", &[("image", "no such thing")]), "no such thing; image");
        let both = [("a", "is required"), ("b", "is required")];
        assert_eq!(text("2 faults", &both), "2 faults; a: is required; b: is required");
        assert_eq!(text("", &[("a", "is required")]), "a: is required");
    }
}
