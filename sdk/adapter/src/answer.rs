//! What a call to the driver ended with, as an error of the stream.

use std::borrow::Cow;
use std::error::Error;
use std::iter::successors;

use ostler_driver_sdk::DriverError;
use ostler_proto::v1alpha1::{MachineErrorCode, OperationError};
use prost::{Message as _, Name as _};
use tonic::{Code, Status};

/// The reason of a call that the driver has not answered: the connection broke, and it may work on.
pub(crate) const CONNECTION_LOST: &str = "CONNECTION_LOST";

/// The error of a failed call, and the checkpoint that came with it. What carries no detail says nothing
/// of what was left behind: gRPC and the libraries of clouds use the same codes for other things.
pub(crate) fn error(status: &Status) -> (DriverError, String) {
    let rich = tonic_types::pb::Status::decode(status.details()).unwrap_or_default();
    if let Some(mut detail) = detail(&rich) {
        let checkpoint = std::mem::take(&mut detail.checkpoint);
        if detail.code() == MachineErrorCode::Unspecified {
            detail.code = MachineErrorCode::Unknown.into();
        }
        return (detail.into(), checkpoint);
    }
    let message = text(status);
    let error = if status.code() == Code::Unimplemented {
        DriverError::unimplemented(message)
    } else {
        // A status that the driver sent has no cause on this side.
        let reason = if status.source().is_some() { CONNECTION_LOST } else { "NO_DETAIL" };
        let types: Vec<&str> = rich.details.iter().map(|any| any.type_url.as_str()).collect();
        let others = match types.as_slice() {
            [] => String::new(),
            types => format!(" (none of its details is an OperationError: {})", types.join(", ")),
        };
        DriverError::unknown(format!("{}: {message}{others}", status.code())).reason(reason)
    };
    (error, String::new())
}

/// What is wrong, for people: of a connection that broke the library says only how that looks from here.
pub(crate) fn text(status: &Status) -> Cow<'_, str> {
    let mut causes = successors(status.source(), |error| (*error).source());
    match causes.find_map(|cause| cause.downcast_ref::<h2::Error>()) {
        Some(broken) if broken.is_io() || broken.is_go_away() => {
            format!("the driver died, or closed its connection, before it answered ({broken})")
                .into()
        }
        Some(_) | None => status.message().into(),
    }
}

fn detail(rich: &tonic_types::pb::Status) -> Option<OperationError> {
    let name = OperationError::full_name();
    let found = rich.details.iter().find(|any| any.type_url.rsplit('/').next() == Some(&name))?;
    OperationError::decode(found.value.as_slice()).ok()
}

#[cfg(test)]
mod tests {
    use ostler_driver_sdk::{Certainty, Code as Ours};
    use ostler_proto::v1alpha1::OutcomeCertainty;

    use super::*;

    fn with(detail: &OperationError) -> Status {
        let any = prost_any(detail);
        let rich = tonic_types::pb::Status { code: 5, message: "x".to_owned(), details: vec![any] };
        Status::with_details(Code::NotFound, "x", rich.encode_to_vec().into())
    }

    fn prost_any(detail: &OperationError) -> prost_types::Any {
        prost_types::Any { type_url: OperationError::type_url(), value: detail.encode_to_vec() }
    }

    #[test]
    fn a_detail_decides_and_a_bare_status_is_unknown_unless_it_is_unimplemented() {
        let known = OperationError {
            code: MachineErrorCode::NotFound.into(),
            certainty: OutcomeCertainty::NotApplied.into(),
            reason: "GONE".to_owned(),
            checkpoint: "step 2".to_owned(),
            ..Default::default()
        };
        let (error, checkpoint) = error(&with(&known));
        assert_eq!((error.code(), error.certainty()), (Ours::NotFound, Certainty::NotApplied));
        assert_eq!((error.reason_word(), checkpoint.as_str()), ("GONE", "step 2"));
        for (code, ours, certainty) in [
            (Code::NotFound, Ours::Unknown, Certainty::Unknown),
            (Code::ResourceExhausted, Ours::Unknown, Certainty::Unknown),
            (Code::Unavailable, Ours::Unknown, Certainty::Unknown),
            (Code::Unimplemented, Ours::Unimplemented, Certainty::NotApplied),
        ] {
            let (error, _) = super::error(&Status::new(code, "project not found"));
            assert_eq!((error.code(), error.certainty()), (ours, certainty), "{code:?}");
            assert!(error.message().contains("project not found"));
        }
    }

    #[test]
    fn a_detail_of_another_type_is_named() {
        let any =
            prost_types::Any { type_url: "a.b/google.rpc.ErrorInfo".to_owned(), value: vec![] };
        let rich = tonic_types::pb::Status { details: vec![any], ..Default::default() };
        let status = Status::with_details(Code::NotFound, "x", rich.encode_to_vec().into());
        let (error, _) = error(&status);
        assert_eq!((error.code(), error.reason_word()), (Ours::Unknown, "NO_DETAIL"));
        assert!(error.message().contains("OperationError: a.b/google.rpc.ErrorInfo"));
    }

    #[test]
    fn a_detail_without_a_code_is_unknown() {
        let (error, _) = error(&with(&OperationError::default()));
        assert_eq!((error.code(), error.certainty()), (Ours::Unknown, Certainty::Unspecified));
    }
}
