//! One operation by hand, from the request to the driver's verdict.

use ostler_api::driver::OperationKind;
use ostler_proto::v1alpha1::{
    InvokeRequest, InvokeResponse, Operation, OperationError, OperationResult, invoke_response,
    operation,
};
use tokio::time::Instant;
use tonic::{Code, Status};

use super::frame::json_name;
use super::request::{Prepared, prepare};
use super::{Caller, Debug};
use crate::audit;
use crate::service::status;
use crate::session::frames;
use crate::{Dispatch, OperationFailure, Outcome, SessionEvent, SubmitError, reasons};

pub(super) async fn invoke(
    debug: &Debug,
    caller: &Caller,
    request: InvokeRequest,
) -> Result<InvokeResponse, Status> {
    let shell = &debug.sessions.shell;
    let dry_run = request.dry_run;
    let Prepared { dispatch, session } = prepare(shell, debug.targets.as_ref(), request)?;
    let sent = shell.with(|hub, _| hub.request_of(&dispatch));
    let mut response = InvokeResponse {
        core: Some(debug.core()),
        sent: Some(without_user_data(sent)),
        session_id: session.map(|session| session.id).unwrap_or_default(),
        took: None,
        outcome: None,
    };
    if dry_run {
        return Ok(response);
    }
    let audit = Audit::begin(debug, caller, &dispatch);
    let began = Instant::now();
    let outcome = debug.sessions.try_call(dispatch).await;
    let outcome = match outcome {
        Ok(Outcome::Result(result)) => {
            Ok(invoke_response::Outcome::Result(OperationResult { response: Some(result) }))
        }
        Ok(Outcome::Error(failure)) => verdict(failure),
        Err(refused) => Err(refusal(&refused)),
    };
    audit.end(&outcome);
    response.outcome = Some(outcome?);
    response.took = Some(frames::duration(began.elapsed()));
    Ok(response)
}

/// What may be shown of an operation.
fn without_user_data(mut sent: Operation) -> Operation {
    if let Some(operation::Request::CreateMachine(create)) = &mut sent.request
        && let Some(bootstrap) = &mut create.bootstrap
    {
        bootstrap.user_data.clear();
    }
    sent
}

/// The driver's own failure is an answer; one that the core speaks of is trouble on the way.
fn verdict(failure: OperationFailure) -> Result<invoke_response::Outcome, Status> {
    let code = match failure.reason.as_str() {
        reasons::NO_SESSION | reasons::SESSION_LOST => Code::Unavailable,
        reasons::TIMEOUT | reasons::ACCEPT_TIMEOUT => Code::DeadlineExceeded,
        reasons::QUEUE_FULL => Code::ResourceExhausted,
        reasons::FRAME_TOO_LARGE => Code::InvalidArgument,
        reasons::TARGET_BUSY => Code::Aborted,
        reasons::KIND_UNSUPPORTED => Code::Unimplemented,
        reasons::CANCELED => Code::Cancelled,
        reasons::WRONG_RESULT | reasons::LIST_TOO_LONG => Code::Internal,
        by_core if by_core.starts_with("CORE_") => Code::Unavailable,
        _ => return Ok(invoke_response::Outcome::Error(error(failure))),
    };
    let message = format!("{} (certainty: {})", failure.message, failure.certainty);
    Err(status(code, &failure.reason, message))
}

fn error(failure: OperationFailure) -> OperationError {
    OperationError {
        code: failure.code.number(),
        reason: failure.reason,
        message: failure.message,
        retry_after: failure.retry_after.map(frames::duration),
        certainty: failure.certainty.number(),
        violations: failure.violations,
        provider_code: failure.provider_code,
        provider_request_id: failure.provider_request_id,
        provider_id: failure.provider_id,
        cluster_id: failure.cluster_id,
    }
}

fn refusal(refused: &SubmitError) -> Status {
    match verdict(refused.failure()) {
        Err(status) => status,
        Ok(_) => Status::internal(refused.to_string()),
    }
}

/// Writes down who did what, whatever becomes of it: also a call that was given up.
struct Audit<'a> {
    debug: &'a Debug,
    caller: &'a Caller,
    kind: OperationKind,
    provider: String,
    operation_id: String,
    target: String,
    uid: String,
    ended: bool,
}

impl<'a> Audit<'a> {
    fn begin(debug: &'a Debug, caller: &'a Caller, dispatch: &Dispatch) -> Self {
        let target = &dispatch.target;
        let audit = Self {
            debug,
            caller,
            kind: dispatch.kind(),
            provider: dispatch.provider.clone(),
            operation_id: dispatch.operation_id.clone(),
            target: format!("{} {}/{}", target.kind, target.namespace, target.name),
            uid: target.uid.clone(),
            ended: false,
        };
        audit.say("asked for");
        audit
    }

    fn end(mut self, outcome: &Result<invoke_response::Outcome, Status>) {
        let result = match outcome {
            Ok(invoke_response::Outcome::Result(_)) => "OK".to_owned(),
            Ok(invoke_response::Outcome::Error(error)) => error.code().as_str_name().to_owned(),
            Err(status) => format!("{:?}", status.code()),
        };
        self.record(&result);
    }

    fn record(&mut self, result: &str) {
        self.ended = true;
        let shell = &self.debug.sessions.shell;
        shell.metrics.invoked(&self.provider, self.kind, result);
        if self.kind.is_mutation() {
            // A controller may have waited for the target, and should look at it again.
            let (target_uid, operation_id) = (self.uid.clone(), self.operation_id.clone());
            drop(shell.events.send(SessionEvent::OutcomeReady { target_uid, operation_id }));
        }
        self.say(result);
    }

    /// Mutations are loud: `ostler up` shows warnings.
    fn say(&self, result: &str) {
        let Self { caller, kind, provider, operation_id, target, uid, .. } = self;
        let (caller, operation) = (&caller.0, json_name(*kind));
        audit::by_hand(caller, &operation, target, provider, result);
        if kind.is_mutation() {
            tracing::warn!(
                caller,
                operation,
                provider,
                target,
                uid,
                operation_id,
                result,
                "mutation by hand"
            );
        } else {
            tracing::info!(
                caller,
                operation,
                provider,
                target,
                uid,
                operation_id,
                result,
                "read by hand"
            );
        }
    }
}

impl Drop for Audit<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.record("abandoned");
        }
    }
}
