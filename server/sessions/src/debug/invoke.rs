//! One operation by hand, from the request to the driver's verdict.

use ostler_api::driver::OperationKind;
use ostler_api::operation::{Failure, Reason};
use ostler_proto::v1alpha1::{
    InvokeRequest, InvokeResponse, Operation, OperationResult, invoke_response, operation,
};
use tokio::time::Instant;
use tonic::{Code, Status};

use super::request::{Prepared, prepare};
use super::{Caller, Debug};
use crate::operation::Order;
use crate::service::status;
use crate::session::frames;
use crate::tail::json_name;
use crate::{SessionEvent, SubmitError, audit, convert};

pub(super) async fn invoke(
    debug: &Debug,
    caller: &Caller,
    request: InvokeRequest,
) -> Result<InvokeResponse, Status> {
    let shell = &debug.sessions.shell;
    let dry_run = request.dry_run;
    let Prepared { order, session } = prepare(shell, debug.targets.as_ref(), request)?;
    let sent = shell.with(|hub, _| hub.stamped(order.operation.clone()));
    let mut response = InvokeResponse {
        core: Some(debug.core()),
        sent: Some(without_user_data(*sent)),
        session_id: session.map(|session| session.id).unwrap_or_default(),
        took: None,
        outcome: None,
    };
    if dry_run {
        return Ok(response);
    }
    let audit = Audit::begin(debug, caller, &order);
    let began = Instant::now();
    let outcome = debug.sessions.try_call(order).await;
    let outcome = match outcome.map(|answer| *answer) {
        Ok(Ok(result)) => {
            Ok(invoke_response::Outcome::Result(OperationResult { response: Some(result) }))
        }
        Ok(Err(failure)) => verdict(failure),
        Err(refused) => Err(refusal(&refused)),
    };
    audit.end(&outcome);
    response.outcome = Some(outcome?);
    response.took = Some(frames::duration(began.elapsed()));
    Ok(response)
}

/// The parts of an operation that may be shown.
fn without_user_data(mut sent: Operation) -> Operation {
    use operation::Request::{CreateMachine, CreatePool, InitializeMachine, UpdatePool};
    let bootstrap = match &mut sent.request {
        Some(CreateMachine(create)) => create.bootstrap.as_mut(),
        Some(InitializeMachine(initialize)) => initialize.bootstrap.as_mut(),
        Some(CreatePool(create)) => create.model.as_mut().and_then(|it| it.bootstrap.as_mut()),
        Some(UpdatePool(update)) => update.model.as_mut().and_then(|it| it.bootstrap.as_mut()),
        _ => None,
    };
    if let Some(bootstrap) = bootstrap {
        bootstrap.user_data.clear();
    }
    sent
}

/// The driver's own failure is an answer; a failure from the core is trouble on the way.
fn verdict(failure: Failure) -> Result<invoke_response::Outcome, Status> {
    let Some(code) = Reason::from_word(&failure.reason).and_then(on_the_way) else {
        return Ok(invoke_response::Outcome::Error(convert::error(failure)));
    };
    let message = format!("{} (certainty: {})", failure.message, failure.certainty);
    Err(status(code, &failure.reason, message))
}

/// The status for a reason of the core.
const fn on_the_way(reason: Reason) -> Option<Code> {
    Some(match reason {
        Reason::CoreNoSession
        | Reason::CoreSessionLost
        | Reason::CoreOperationLost
        | Reason::CoreLooksOnly
        | Reason::CoreClusterIdChanged
        | Reason::CoreLost => Code::Unavailable,
        Reason::CoreTimeout | Reason::CoreAcceptTimeout => Code::DeadlineExceeded,
        Reason::CoreQueueFull => Code::ResourceExhausted,
        Reason::CoreFrameTooLarge => Code::InvalidArgument,
        Reason::CoreTargetBusy => Code::Aborted,
        Reason::CoreKindUnsupported => Code::Unimplemented,
        Reason::CoreCanceled => Code::Cancelled,
        Reason::CoreWrongResult | Reason::CoreListTooLong => Code::Internal,
        Reason::NotHotUpdatable
        | Reason::NotOurs
        | Reason::Throttled
        | Reason::DriverDraining
        | Reason::ForeignProvider
        | Reason::Reserved => return None,
    })
}

fn refusal(refused: &SubmitError) -> Status {
    match verdict(refused.failure()) {
        Err(status) => status,
        Ok(_) => Status::internal(refused.to_string()),
    }
}

/// Writes the audit entry of a call, whatever its end: even for a call given up.
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
    fn begin(debug: &'a Debug, caller: &'a Caller, order: &Order) -> Self {
        let operation = &order.operation;
        let target = operation.target.clone().unwrap_or_default();
        let audit = Self {
            debug,
            caller,
            kind: order.kind,
            provider: order.provider.clone().into(),
            operation_id: operation.operation_id.clone(),
            target: format!("{} {}/{}", target.kind, target.namespace, target.name),
            uid: target.uid,
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
            let (target_uid, operation_id) = (self.uid.clone(), self.operation_id.as_str().into());
            drop(
                shell.events.send(SessionEvent::OutcomeReady {
                    target_uid: target_uid.into(),
                    operation_id,
                }),
            );
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
                provider = provider.as_str(),
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
                provider = provider.as_str(),
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
