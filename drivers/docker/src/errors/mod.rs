//! Errors of the engine, in terms of the contract.
//!
//! The engine has no codes but the status of HTTP; its words narrow that down. Words that are not
//! known fall back on the status, so that another engine is less clear and never wrong.

mod rules;

use std::time::Duration;

use ostler_driver_sdk::{Certainty, Code, DriverError, Violation};

use self::rules::{RULES, network_of, pull_of};
use crate::engine::{Call, EngineError, Failure};

/// The effect of an operation before its failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing.
    Nothing,
    /// Something, that the same operation finishes.
    Something,
}

/// In terms of the contract. `left` is what the calls before changed.
pub(crate) fn driver_error(error: &EngineError, left: Left) -> DriverError {
    let told = told(error);
    match certainty(error, left) {
        Certainty::NotApplied => told.not_applied(),
        Certainty::Partial => told.partial(),
        Certainty::Unknown | Certainty::Unspecified => told,
    }
}

/// Whether the failed call and earlier calls changed something.
fn certainty(error: &EngineError, left: Left) -> Certainty {
    let heard = match &error.failure {
        Failure::Away(_) | Failure::Forbidden(_) | Failure::Refused { .. } => false,
        Failure::Lost(_) | Failure::Late | Failure::Garbled(_) => error.call.changes(),
    };
    match (heard, left) {
        (true, _) => Certainty::Unknown,
        (false, Left::Something) => Certainty::Partial,
        (false, Left::Nothing) => Certainty::NotApplied,
    }
}

fn told(error: &EngineError) -> DriverError {
    let text = without_ids(&error.to_string());
    match &error.failure {
        Failure::Away(_) => {
            DriverError::unavailable(format!("{text}; start it, or set --docker-host"))
                .reason("ENGINE_AWAY")
        }
        Failure::Forbidden(_) => DriverError::permission_denied(format!(
            "{text}; run the driver as root or as a member of the group that owns the socket"
        ))
        .reason("ENGINE_FORBIDDEN"),
        Failure::Lost(_) => DriverError::unavailable(text).reason("ENGINE_LOST"),
        Failure::Late => DriverError::deadline_exceeded(text).reason("ENGINE_SLOW"),
        Failure::Garbled(_) => DriverError::internal(text).reason("ENGINE_GARBLED"),
        Failure::Refused { status, message } => refused(error.call, *status, message, &text),
    }
}

fn refused(call: Call, status: u16, message: &str, text: &str) -> DriverError {
    let words = message.to_lowercase();
    let known = RULES
        .iter()
        .find(|rule| words.contains(rule.says))
        .or_else(|| if call == Call::Pull { Some(pull_of(&words)) } else { network_of(&words) });
    let Some(rule) = known else { return by_status(status, text) };
    let error = DriverError::new(rule.code, format!("{text}; {}", rule.hint)).reason(rule.reason);
    let error = error.provider(status.to_string(), "");
    if rule.code == Code::InvalidArgument && !rule.field.is_empty() {
        return error.violation(rule.field, format!("{}; {}", without_ids(message), rule.hint));
    }
    if rule.code == Code::ResourceExhausted {
        return error.retry_after(Duration::from_secs(30));
    }
    error
}

fn by_status(status: u16, text: &str) -> DriverError {
    let error = match status {
        400 => DriverError::invalid_argument(text).violation("", text),
        401 => DriverError::unauthenticated(text),
        403 => DriverError::permission_denied(text),
        404 => DriverError::failed_precondition(text).reason("ENGINE_LACKS"),
        409 => DriverError::aborted(text).reason("ENGINE_CONFLICT"),
        503 => DriverError::unavailable(text).reason("ENGINE_BUSY"),
        _ => DriverError::unknown(text).reason("ENGINE_FAILED"),
    };
    error.provider(status.to_string(), "")
}

/// The same failure has the same text: ids of endpoints and containers go.
fn without_ids(text: &str) -> String {
    const LONG: usize = 32;
    let is_id = |word: &str| word.len() >= LONG && word.chars().all(|c| c.is_ascii_hexdigit());
    let words = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
    words
        .map(|word| {
            let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            if is_id(bare) { word.replacen(bare, "<id>", 1) } else { word.to_owned() }
        })
        .collect()
}

/// A provider spec that reads well and cannot be meant.
pub(crate) fn bad_spec(violations: &[Violation]) -> DriverError {
    let texts: Vec<_> = violations
        .iter()
        .map(|it| format!("providerSpec.{}: {}", it.path, it.description))
        .collect();
    violations
        .iter()
        .fold(DriverError::invalid_argument(texts.join("; ")), |error, it| {
            error.violation(it.path.clone(), it.description.clone())
        })
        .reason("INVALID_PROVIDER_SPEC")
        .not_applied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused_with(call: Call, status: u16, message: &str, left: Left) -> DriverError {
        let failure = Failure::Refused { status, message: message.to_owned() };
        driver_error(&EngineError { call, failure }, left)
    }

    /// As engines of several versions say it.
    const TOLD: [(u16, &str, Code, &str, &str); 27] = [
        (500, "id already in use", Code::Aborted, "START_STUCK", ""),
        (
            500,
            "task 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef: already exists",
            Code::Aborted,
            "START_STUCK",
            "",
        ),
        (
            500,
            "Get \"http://localhost:1/v2/\": dial tcp 127.0.0.1:1: connect: connection refused",
            Code::Unavailable,
            "REGISTRY_AWAY",
            "",
        ),
        (404, "No such image: nobody:1", Code::InvalidArgument, "IMAGE_UNKNOWN", "image"),
        (
            404,
            "pull access denied for nobody, repository does not exist or may require 'docker login'",
            Code::InvalidArgument,
            "IMAGE_UNKNOWN",
            "image",
        ),
        (
            404,
            "manifest for node:9 not found: manifest unknown: manifest unknown",
            Code::InvalidArgument,
            "IMAGE_UNKNOWN",
            "image",
        ),
        (
            400,
            "invalid reference format: repository name must be lowercase",
            Code::InvalidArgument,
            "IMAGE_NAME",
            "image",
        ),
        (400, "No command specified", Code::InvalidArgument, "COMMAND_MISSING", "command"),
        (
            400,
            "OCI runtime create failed: container_linux.go:380: starting container process caused: exec: \"nope\": executable file not found in $PATH: unknown",
            Code::InvalidArgument,
            "COMMAND_NOT_FOUND",
            "command",
        ),
        (
            400,
            "failed to create task for container: exec: \"/nope\": stat /nope: no such file or directory: unknown",
            Code::InvalidArgument,
            "COMMAND_NOT_FOUND",
            "command",
        ),
        (
            400,
            "Minimum memory limit allowed is 6MB",
            Code::InvalidArgument,
            "LIMIT_TOO_LOW",
            "memory",
        ),
        (
            400,
            "Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available",
            Code::InvalidArgument,
            "CPU_LIMIT",
            "cpu",
        ),
        (
            500,
            "mkdir /var/lib/docker/volumes/x: file name too long",
            Code::InvalidArgument,
            "NAME_TOO_LONG",
            "",
        ),
        (
            500,
            "driver failed programming external connectivity on endpoint m-1 (0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef): Bind for 0.0.0.0:8080 failed: port is already allocated",
            Code::FailedPrecondition,
            "PORT_TAKEN",
            "",
        ),
        (
            500,
            "driver failed programming external connectivity on endpoint m-1: listen tcp4 0.0.0.0:80: bind: address already in use",
            Code::FailedPrecondition,
            "PORT_TAKEN",
            "",
        ),
        (
            500,
            "write /var/lib/docker/overlay2/l: no space left on device",
            Code::ResourceExhausted,
            "DISK_FULL",
            "",
        ),
        (
            404,
            "could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network",
            Code::ResourceExhausted,
            "ADDRESSES_USED_UP",
            "",
        ),
        (
            500,
            "failed to write \"6291456\" to memory.limit_in_bytes: device or resource busy",
            Code::FailedPrecondition,
            "MEMORY_IN_USE",
            "",
        ),
        (
            403,
            "error while removing network: network n id 1 has active endpoints",
            Code::FailedPrecondition,
            "NETWORK_IN_USE",
            "",
        ),
        (409, "remove v: volume is in use - [1]", Code::FailedPrecondition, "VOLUME_IN_USE", ""),
        (
            409,
            "removal of container m-1 is already in progress",
            Code::Aborted,
            "REMOVAL_IN_PROGRESS",
            "",
        ),
        (
            409,
            "Conflict. The container name \"/m-1\" is already in use by container \"1\"",
            Code::AlreadyExists,
            "NAME_TAKEN",
            "",
        ),
        (404, "No such container: m-1", Code::NotFound, "NOT_FOUND", ""),
        (404, "network nowhere not found", Code::InvalidArgument, "NETWORK_UNKNOWN", "networks"),
        (
            400,
            "invalid mount config for type \"volume\"",
            Code::InvalidArgument,
            "INVALID_ARGUMENT",
            "",
        ),
        (503, "this node is shutting down", Code::Unavailable, "ENGINE_BUSY", ""),
        (500, "words of an engine that is not made yet", Code::Unknown, "ENGINE_FAILED", ""),
    ];

    #[test]
    fn every_refusal_has_its_code_its_reason_and_the_words_of_the_engine() {
        for (status, message, code, reason, path) in TOLD {
            let error = refused_with(Call::MakeContainer, status, message, Left::Nothing);
            assert_eq!((error.code(), error.reason_word()), (code, reason), "{message}");
            assert_eq!(error.certainty(), Certainty::NotApplied, "{message}");
            let begin: String = without_ids(message).chars().take(20).collect();
            assert!(error.message().contains(&begin), "{error}");
            if !path.is_empty() {
                assert_eq!(error.violations()[0].path, path, "{message}");
            }
        }
    }

    #[test]
    fn a_registry_that_has_trouble_of_its_own_says_nothing_about_the_image() {
        let absent = (Code::InvalidArgument, "IMAGE_UNKNOWN");
        let failed = (Code::Unavailable, "PULL_FAILED");
        for (status, message, told) in [
            (500, "manifest unknown: manifest unknown", absent),
            (404, "pull access denied for nobody, repository does not exist", absent),
            (404, "failed to resolve reference \"r/network:1\": r/network:1: not found", absent),
            (500, "name unknown: the repository does not exist", absent),
            (500, "received unexpected HTTP status: 503 Service Unavailable", failed),
            (500, "unexpected EOF", failed),
            (500, "Get \"https://r/v2/\": context deadline exceeded", failed),
            (500, "read tcp 10.0.0.1:2->10.0.0.2:443: read: connection reset by peer", failed),
            (500, "unauthorized: authentication required", failed),
            (
                500,
                "toomanyrequests: You have reached your pull rate limit",
                (Code::ResourceExhausted, "THROTTLED"),
            ),
        ] {
            let error = refused_with(Call::Pull, status, message, Left::Nothing);
            assert_eq!((error.code(), error.reason_word()), told, "{message}");
            assert_eq!(error.certainty(), Certainty::NotApplied, "{message}");
        }
    }

    #[test]
    fn every_rule_says_what_to_do_and_none_hides_another() {
        for (index, rule) in RULES.iter().enumerate() {
            assert!(
                !rule.hint.is_empty() && rule.says == rule.says.to_lowercase(),
                "{}",
                rule.says
            );
            let first = RULES.iter().position(|other| rule.says.contains(other.says));
            assert_eq!(first, Some(index), "{} is never reached", rule.says);
        }
    }

    #[test]
    fn a_missing_engine_is_not_a_missing_machine() {
        let cases = [
            (Failure::Away("connection refused".to_owned()), Code::Unavailable, "ENGINE_AWAY"),
            (
                Failure::Forbidden("permission denied".to_owned()),
                Code::PermissionDenied,
                "ENGINE_FORBIDDEN",
            ),
            (Failure::Lost("broken pipe".to_owned()), Code::Unavailable, "ENGINE_LOST"),
            (Failure::Late, Code::DeadlineExceeded, "ENGINE_SLOW"),
            (Failure::Garbled("no JSON".to_owned()), Code::Internal, "ENGINE_GARBLED"),
        ];
        for (failure, code, reason) in cases {
            let error = EngineError { call: Call::Look, failure };
            let told = driver_error(&error, Left::Nothing);
            assert_eq!((told.code(), told.reason_word()), (code, reason), "{error}");
            assert_eq!(told.certainty(), Certainty::NotApplied, "who looks changes nothing");
        }
    }

    #[test]
    fn certainty_is_what_the_call_and_those_before_it_left_behind() {
        let lost = || Failure::Lost("broken pipe".to_owned());
        let away = || Failure::Away("no socket".to_owned());
        for (call, failure, left, certainty) in [
            (Call::MakeContainer, lost(), Left::Nothing, Certainty::Unknown),
            (Call::Remove, Failure::Late, Left::Something, Certainty::Unknown),
            (Call::Look, lost(), Left::Something, Certainty::Partial),
            (Call::Pull, lost(), Left::Nothing, Certainty::NotApplied),
            (Call::Start, away(), Left::Something, Certainty::Partial),
            (Call::MakeContainer, away(), Left::Nothing, Certainty::NotApplied),
        ] {
            let error = EngineError { call, failure };
            assert_eq!(driver_error(&error, left).certainty(), certainty, "{error}, {left:?}");
        }
        let refused = refused_with(Call::Start, 500, "x", Left::Something);
        assert_eq!(refused.certainty(), Certainty::Partial);
    }

    #[test]
    fn texts_have_no_ids_that_change() {
        let id = "0123456789abcdef".repeat(4);
        let text = format!("endpoint m-1 ({id}): port 8080, deadbeef");
        assert_eq!(without_ids(&text), "endpoint m-1 (<id>): port 8080, deadbeef");
    }
}
