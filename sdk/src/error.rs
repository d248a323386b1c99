//! What a verb answers when it fails: a closed code, and what the failure left behind.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::MachineErrorReason as Reason;

/// The kind of a failure; decides what the core does next.
pub use ostler_proto::v1alpha1::MachineErrorCode as Code;
/// How far a failed mutation took effect.
pub use ostler_proto::v1alpha1::OutcomeCertainty as Certainty;

/// A failed operation.
///
/// There is one constructor for each code. Every error says that its outcome is *unknown* until the
/// driver says better with [`not_applied`](Self::not_applied) or [`partial`](Self::partial): the
/// core then reads before it decides, which is slower and never wrong.
///
/// The message is for people. Keep it deterministic (the same failure, the same words), free of
/// secrets and of request ids; the latter have [`provider`](Self::provider).
///
/// ```
/// use ostler_driver_sdk::DriverError;
///
/// let error = DriverError::resource_exhausted("no m5.large left in eu-west-1a")
///     .reason("CAPACITY")
///     .not_applied()
///     .retry_after(std::time::Duration::from_secs(300));
/// assert_eq!(error.to_string(), "RESOURCE_EXHAUSTED: no m5.large left in eu-west-1a");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use = "an error does nothing until it is returned"]
pub struct DriverError {
    // Boxed, since every verb returns it by value.
    details: Box<Details>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Details {
    code: Code,
    certainty: Certainty,
    reason: String,
    /// As on the wire: a reason that this process does not know is passed on unchanged.
    typed_reason: i32,
    message: String,
    retry_after: Option<Duration>,
    violations: Vec<Violation>,
    provider_code: String,
    provider_request_id: String,
    provider_id: String,
    cluster_id: String,
}

/// One wrong field of a provider spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// From the root of the provider spec, e.g. `volumes[0].size`.
    pub path: String,
    /// The fault, and a valid value.
    pub description: String,
}

impl Violation {
    /// A violation at `path`.
    pub fn new(path: impl Into<String>, description: impl Into<String>) -> Self {
        Self { path: path.into(), description: description.into() }
    }
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $code:ident;)*) => {
        impl DriverError {
            $($(#[$doc])*
            pub fn $name(message: impl Into<String>) -> Self {
                Self::new(Code::$code, message)
            })*
        }
    };
}

constructors! {
    /// The operation was stopped because the core cancelled it.
    canceled => Canceled;
    /// Something failed that fits nowhere else. The core reads, then tries again.
    unknown => Unknown;
    /// The class is wrong: nothing is tried again until it changes. Add [`violation`](Self::violation)s.
    invalid_argument => InvalidArgument;
    /// It took too long. The core reads, then tries again.
    deadline_exceeded => DeadlineExceeded;
    /// There is no such instance. The answer of `get_machine_status` for an absent one.
    not_found => NotFound;
    /// An instance of this identity exists that does not fit the class.
    already_exists => AlreadyExists;
    /// The credentials do not allow it. Tried again slowly, and immediately when the secret changes.
    permission_denied => PermissionDenied;
    /// Out of quota or capacity. Say [`retry_after`](Self::retry_after) if you know.
    resource_exhausted => ResourceExhausted;
    /// A person has to do something first.
    failed_precondition => FailedPrecondition;
    /// Another change is under way; tried again soon and not counted as a failure.
    aborted => Aborted;
    /// Several instances carry this identity.
    out_of_range => OutOfRange;
    /// A defect of the driver.
    internal => Internal;
    /// The infrastructure does not answer. The core reads, then tries again.
    unavailable => Unavailable;
    /// The instance is damaged beyond repair.
    data_loss => DataLoss;
    /// The credentials are not accepted. As [`permission_denied`](Self::permission_denied).
    unauthenticated => Unauthenticated;
    /// `initialize_machine` is not done yet; it is called again.
    uninitialized => Uninitialized;
}

impl DriverError {
    /// The change of the class cannot reach a running instance, because of these paths. Nothing was
    /// applied: the instance stays as it is until class or driver change.
    pub fn not_hot_updatable<P: Into<String>>(paths: impl IntoIterator<Item = P>) -> Self {
        let paths: Vec<String> = paths.into_iter().map(Into::into).collect();
        let message = format!(
            "{} cannot be changed on a running instance: make a new class, or change it back",
            paths.join(", ")
        );
        let refused =
            Self::failed_precondition(message).reason(Reason::NotHotUpdatable.word()).not_applied();
        let fixed = "is fixed when an instance is made";
        paths.into_iter().fold(refused, |error, path| error.violation(path, fixed))
    }

    /// An instance exists that is not this machine's, so it is neither absent nor touched: the core
    /// keeps the machine until the instance is adopted, gone, or abandoned by the operator. For
    /// `delete_machine` there is [`Deletion::NotOurs`](crate::Deletion::NotOurs).
    pub fn not_ours(provider_id: impl Into<String>) -> Self {
        let provider_id = provider_id.into();
        let message = format!("instance {provider_id} has other tags than this machine's");
        let mut error =
            Self::failed_precondition(message).reason(Reason::NotOurs.word()).not_applied();
        error.details.provider_id = provider_id;
        error
    }

    /// The cluster id in the tags of the instance that [`not_ours`](Self::not_ours) is about, if it has
    /// one: the operator may know that it is an earlier id of this cluster.
    pub fn of_cluster(mut self, cluster_id: impl Into<String>) -> Self {
        self.details.cluster_id = cluster_id.into();
        self
    }

    /// An error of this code, with unknown certainty and the code's name as its reason.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let details = Details {
            code,
            certainty: Certainty::Unknown,
            reason: code_name(code).to_owned(),
            message: message.into(),
            ..Details::default()
        };
        Self { details: Box::new(details) }
    }

    /// An error with this code; `error` and all of its sources are the message.
    pub fn from_error(code: Code, error: &(dyn Error + 'static)) -> Self {
        Self::new(code, chain(error))
    }

    /// The verb is not offered; nothing was changed.
    pub fn unimplemented(message: impl Into<String>) -> Self {
        Self::new(Code::Unimplemented, message).not_applied()
    }

    /// The infrastructure limits the rate of calls: the core sends no creates to this provider for
    /// [`retry_after`](Self::retry_after), or 30 s, so that not every machine has to find out. Add
    /// [`not_applied`](Self::not_applied) if the very first call was refused.
    pub fn throttled(message: impl Into<String>) -> Self {
        Self::new(Code::ResourceExhausted, message).reason(Reason::Throttled.word())
    }

    /// Nothing was changed. Say so only if you are sure.
    pub fn not_applied(mut self) -> Self {
        self.details.certainty = Certainty::NotApplied;
        self
    }

    /// Something was changed; the same call again finishes it.
    pub fn partial(mut self) -> Self {
        self.details.certainty = Certainty::Partial;
        self
    }

    /// A stable UPPER_SNAKE word for people and metrics, e.g. `QUOTA_VCPU`. The name of a
    /// `MachineErrorReason`, such as `THROTTLED`, is that reason, on which the core acts. Words that
    /// begin with `CORE_` belong to the core.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.details.reason = reason.into();
        self.details.typed_reason = Reason::of_word(&self.details.reason).into();
        self
    }

    /// Do not try again before `delay` has passed.
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.details.retry_after = Some(delay);
        self
    }

    /// Names one wrong field of the provider spec.
    pub fn violation(mut self, path: impl Into<String>, description: impl Into<String>) -> Self {
        self.details.violations.push(Violation::new(path, description));
        self
    }

    /// The infrastructure's own code and request id, verbatim.
    pub fn provider(mut self, code: impl Into<String>, request_id: impl Into<String>) -> Self {
        self.details.provider_code = code.into();
        self.details.provider_request_id = request_id.into();
        self
    }

    /// Turns CANCELED into DEADLINE_EXCEEDED: a verb cannot tell the end of its time from a cancellation.
    pub(crate) fn out_of_time(mut self) -> Self {
        if self.details.code == Code::Canceled {
            self.details.code = Code::DeadlineExceeded;
            if self.details.reason == code_name(Code::Canceled) {
                code_name(Code::DeadlineExceeded).clone_into(&mut self.details.reason);
            }
        }
        self
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.details.code
    }

    /// How far the failed operation took effect.
    pub fn certainty(&self) -> Certainty {
        self.details.certainty
    }

    /// The stable word.
    pub fn reason_word(&self) -> &str {
        &self.details.reason
    }

    /// The instance that [`not_ours`](Self::not_ours) is about; empty for all other errors.
    pub fn provider_id(&self) -> &str {
        &self.details.provider_id
    }

    /// The cluster id in the tags of that instance; empty if it has none.
    pub fn cluster_id(&self) -> &str {
        &self.details.cluster_id
    }

    /// The text for people.
    pub fn message(&self) -> &str {
        &self.details.message
    }

    /// The wrong fields.
    pub fn violations(&self) -> &[Violation] {
        &self.details.violations
    }

    pub(crate) fn map_texts(mut self, map: impl Fn(&str) -> String) -> Self {
        let details = &mut *self.details;
        for text in [
            &mut details.message,
            &mut details.reason,
            &mut details.provider_code,
            &mut details.provider_request_id,
        ] {
            *text = map(text);
        }
        for violation in &mut self.details.violations {
            violation.description = map(&violation.description);
        }
        self
    }
}

pub(crate) fn code_name(code: Code) -> &'static str {
    code.as_str_name().trim_start_matches("MACHINE_ERROR_CODE_")
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", code_name(self.details.code), self.details.message)
    }
}

impl Error for DriverError {}

/// Unanswered or refused connections are `UNAVAILABLE`, time-outs `DEADLINE_EXCEEDED`, all else
/// `INTERNAL`; always of unknown certainty.
impl From<std::io::Error> for DriverError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        #[expect(clippy::wildcard_enum_match_arm, reason = "foreign, non-exhaustive enum")]
        let code = match error.kind() {
            ErrorKind::TimedOut => Code::DeadlineExceeded,
            ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable => Code::Unavailable,
            _ => Code::Internal,
        };
        Self::from_error(code, &error)
    }
}

impl From<tokio::time::error::Elapsed> for DriverError {
    fn from(error: tokio::time::error::Elapsed) -> Self {
        Self::from_error(Code::DeadlineExceeded, &error)
    }
}

impl From<Violation> for proto::FieldViolation {
    fn from(violation: Violation) -> Self {
        Self { path: violation.path, description: violation.description }
    }
}

impl From<DriverError> for proto::OperationError {
    fn from(error: DriverError) -> Self {
        let error = *error.details;
        Self {
            code: error.code.into(),
            reason: error.reason,
            typed_reason: error.typed_reason,
            message: error.message,
            retry_after: error.retry_after.and_then(|delay| delay.try_into().ok()),
            certainty: error.certainty.into(),
            violations: error.violations.into_iter().map(Into::into).collect(),
            provider_code: error.provider_code,
            provider_request_id: error.provider_request_id,
            provider_id: error.provider_id,
            cluster_id: error.cluster_id,
            checkpoint: String::new(),
        }
    }
}

/// An error as it was sent; its checkpoint is left behind.
impl From<proto::OperationError> for DriverError {
    fn from(error: proto::OperationError) -> Self {
        let violation = |it: proto::FieldViolation| Violation::new(it.path, it.description);
        let details = Details {
            code: Code::try_from(error.code).unwrap_or(Code::Unknown),
            certainty: Certainty::try_from(error.certainty).unwrap_or(Certainty::Unknown),
            reason: error.reason,
            typed_reason: error.typed_reason,
            message: error.message,
            retry_after: error.retry_after.and_then(|delay| delay.try_into().ok()),
            violations: error.violations.into_iter().map(violation).collect(),
            provider_code: error.provider_code,
            provider_request_id: error.provider_request_id,
            provider_id: error.provider_id,
            cluster_id: error.cluster_id,
        };
        Self { details: Box::new(details) }
    }
}

/// An error and its chain of sources, on one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let sources = std::iter::successors(error.source(), |cause| (*cause).source());
    sources.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_of_unknown_certainty_until_the_driver_says_better() {
        let error = DriverError::internal("x");
        assert_eq!(error.certainty(), Certainty::Unknown);
        assert_eq!(error.clone().not_applied().certainty(), Certainty::NotApplied);
        assert_eq!(error.partial().certainty(), Certainty::Partial);
        assert_eq!(DriverError::unimplemented("x").certainty(), Certainty::NotApplied);
    }

    #[test]
    fn the_reason_is_the_name_of_the_code_until_the_driver_says_better() {
        assert_eq!(DriverError::not_found("x").reason_word(), "NOT_FOUND");
        assert_eq!(DriverError::not_found("x").reason("GONE").reason_word(), "GONE");
    }

    #[test]
    fn from_error_shows_the_whole_chain() {
        let inner = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "refused");
        let error = DriverError::from(inner);
        assert_eq!(error.code(), Code::Unavailable);
        assert_eq!(error.message(), "refused");
    }

    #[test]
    fn every_field_reaches_the_wire() {
        let sent: proto::OperationError = DriverError::invalid_argument("no")
            .reason("BAD")
            .not_applied()
            .retry_after(Duration::from_secs(3))
            .violation("volumes[0].size", "must be positive")
            .provider("InvalidParameter", "req-1")
            .into();
        assert_eq!(sent.code(), Code::InvalidArgument);
        assert_eq!(sent.certainty(), Certainty::NotApplied);
        assert_eq!((sent.reason.as_str(), sent.message.as_str()), ("BAD", "no"));
        assert_eq!(sent.retry_after.map(|d| d.seconds), Some(3));
        assert_eq!(sent.violations[0].path, "volumes[0].size");
        assert_eq!(sent.provider_code, "InvalidParameter");
        assert_eq!(sent.provider_request_id, "req-1");
        assert_eq!(sent.typed_reason(), Reason::Unspecified);
        let sent: proto::OperationError = DriverError::not_ours("vm-1").of_cluster("before").into();
        assert_eq!((sent.provider_id.as_str(), sent.cluster_id.as_str()), ("vm-1", "before"));
        assert_eq!((sent.reason.as_str(), sent.typed_reason()), ("NOT_OURS", Reason::NotOurs));
    }

    #[test]
    fn the_name_of_a_reason_that_the_core_acts_on_is_that_reason_and_a_later_word_takes_it_back() {
        let sent = |error: DriverError| proto::OperationError::from(error).typed_reason();
        assert_eq!(sent(DriverError::throttled("x")), Reason::Throttled);
        assert_eq!(sent(DriverError::unavailable("x").reason("THROTTLED")), Reason::Throttled);
        assert_eq!(sent(DriverError::throttled("x").reason("QUOTA")), Reason::Unspecified);
    }

    #[test]
    fn a_reason_that_is_not_known_here_goes_on_as_it_came() {
        let sent = proto::OperationError { typed_reason: 99, ..Default::default() };
        assert_eq!(proto::OperationError::from(DriverError::from(sent)).typed_reason, 99);
    }
}
