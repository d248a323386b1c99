//! Operations between the words of decisions and the words of sessions.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use ostler_api::Machine;
use ostler_api::driver::{Certainty, ErrorCode};
use ostler_api::machine::MachineAddress;
use ostler_api::names::{self, tag};
use ostler_lifecycle::operation::{
    Dispatch, Failure, Finished, InFlight, InstanceRecord, OperationView, Request, Stranger,
    Success,
};
use ostler_proto::v1alpha1::{
    BootstrapData, CreateMachineRequest, DeleteMachineRequest, DeleteMachineResponse,
    DeletionOutcome, GetMachineStatusRequest, GetVolumeIdsRequest, InitializeMachineRequest,
    MachineRecord, ObjectRevision, OperationError, Target, UpdateMachineRequest, operation,
    operation_result,
};
use ostler_sessions::{Lane, OperationFailure, Outcome, Sessions, SubmitError, TargetView};

use crate::memory::Memory;

/// What the sessions know of the operation of the machine with this UID, whose class is of this
/// provider, if it is known. What a driver of another provider says is not heard: it may not even
/// know this infrastructure.
pub(super) fn view(
    sessions: &Sessions,
    memory: &Memory,
    uid: &str,
    provider: Option<&str>,
    now: Timestamp,
) -> OperationView {
    heard(sessions.view(uid), memory, uid, provider, now)
}

fn heard(
    mut view: TargetView,
    memory: &Memory,
    uid: &str,
    provider: Option<&str>,
    now: Timestamp,
) -> OperationView {
    let is_foreign = |of: &str| provider.is_some_and(|provider| provider != of);
    if let TargetView::InFlight(flight) = &mut view
        && is_foreign(&flight.provider)
    {
        flight.progress = None;
    }
    match view {
        TargetView::Idle => {
            memory.refused(uid).map_or(OperationView::Idle, OperationView::Finished)
        }
        TargetView::InFlight(flight) => OperationView::InFlight(InFlight {
            cancelled: memory.was_cancelled(uid, &flight.operation_id),
            id: flight.operation_id,
            kind: flight.kind,
            idempotency_key: flight.idempotency_key,
            since: SignedDuration::try_from(flight.age)
                .ok()
                .and_then(|age| now.checked_sub(age).ok())
                .unwrap_or(now),
            stalled: flight.stalled,
            checkpoint: flight
                .progress
                .as_ref()
                .map(|it| it.checkpoint.clone())
                .unwrap_or_default(),
            progress: flight.progress.map(|progress| match progress.message.as_str() {
                "" => progress.stage,
                message => format!("{}: {message}", progress.stage),
            }),
        }),
        TargetView::Finished(finished) => {
            let foreign = is_foreign(&finished.provider);
            OperationView::Finished(Finished {
                id: finished.operation_id,
                kind: finished.kind,
                idempotency_key: finished.idempotency_key,
                outcome: if foreign {
                    Err(not_heard(&finished.provider))
                } else {
                    outcome(&finished.outcome, || memory.asked_volumes(uid))
                },
                checkpoint: Some(finished.checkpoint).filter(|_| !foreign),
            })
        }
    }
}

/// What becomes of an answer from a driver of another provider than that of the class: nobody knows
/// what was done, so a read comes first.
fn not_heard(provider: &str) -> Failure {
    let text = format!("the answer came from a driver of {provider}, which the class is not of");
    let reason = "FOREIGN_PROVIDER".to_owned();
    Failure { reason, ..Failure::new(ErrorCode::Internal, Certainty::Unknown, &text) }
}

/// `asked`: names of the volumes that a driver was asked for.
fn outcome(outcome: &Outcome, asked: impl Fn() -> Vec<String>) -> Result<Success, Failure> {
    use operation_result::Response;
    let response = match outcome {
        Outcome::Error(failure) => return Err(refused(failure)),
        Outcome::Result(response) => response,
    };
    match response {
        Response::CreateMachine(answer) => {
            Ok(Success::Created(answer.machine.as_ref().map(record).unwrap_or_default()))
        }
        Response::InitializeMachine(answer) => {
            Ok(Success::Initialized(answer.machine.as_ref().map(record)))
        }
        Response::UpdateMachine(answer) => {
            Ok(Success::Updated { applied_paths: answer.applied_paths.clone() })
        }
        Response::DeleteMachine(answer) => deleted(answer),
        Response::GetMachineStatus(answer) => {
            Ok(Success::Read(answer.machine.as_ref().map(record).unwrap_or_default()))
        }
        Response::GetVolumeIds(answer) => volume_ids(asked(), &answer.volume_ids),
        Response::ListMachines(_) | Response::ValidateClass(_) => {
            let text = "the driver answered with the result of another verb";
            Err(Failure::new(ErrorCode::Internal, Certainty::Unknown, text))
        }
    }
}

/// "Gone" is only what says so.
fn deleted(answer: &DeleteMachineResponse) -> Result<Success, Failure> {
    match answer.outcome() {
        DeletionOutcome::Deleted => Ok(Success::Deleted { was_absent: false }),
        DeletionOutcome::WasAbsent => Ok(Success::Deleted { was_absent: true }),
        DeletionOutcome::NotOurs => Err(Failure::not_ours(&answer.provider_id, &answer.cluster_id)),
        DeletionOutcome::Unspecified => {
            let text = "the driver does not say whether the instance is gone";
            Err(Failure::new(ErrorCode::Internal, Certainty::Unknown, text))
        }
    }
}

/// One id for each name, in order; anything else says nothing.
fn volume_ids(asked: Vec<String>, ids: &[String]) -> Result<Success, Failure> {
    if asked.len() != ids.len() {
        let text = format!("the driver answered {} ids for {} volumes", ids.len(), asked.len());
        return Err(Failure::new(ErrorCode::Internal, Certainty::NotApplied, &text));
    }
    Ok(Success::VolumeIds(asked.into_iter().zip(ids.iter().cloned()).collect()))
}

/// An operation that the sessions did not take, as one that failed; `None`: it may be taken later.
pub(super) fn never_sent(dispatch: &Dispatch, refused: &SubmitError) -> Option<Finished> {
    match refused {
        SubmitError::FrameTooLarge { .. } | SubmitError::KindUnsupported { .. } => Some(Finished {
            id: dispatch.id.clone(),
            kind: dispatch.kind(),
            idempotency_key: dispatch.idempotency_key.clone(),
            outcome: Err(self::refused(&refused.failure())),
            checkpoint: Some(dispatch.checkpoint.clone()),
        }),
        SubmitError::NoDriver { .. }
        | SubmitError::LooksOnly { .. }
        | SubmitError::TargetBusy { .. }
        | SubmitError::QueueFull { .. } => None,
    }
}

/// A failure in the words of decisions.
pub(crate) fn refused(failure: &OperationFailure) -> Failure {
    let violations = failure.violations.iter();
    Failure {
        code: failure.code,
        certainty: failure.certainty,
        reason: failure.reason.clone(),
        message: failure.message.clone(),
        retry_after: failure.retry_after,
        violations: violations.map(|one| (one.path.clone(), one.description.clone())).collect(),
        stranger: Stranger::new(&failure.provider_id, &failure.cluster_id),
    }
}

fn record(record: &MachineRecord) -> InstanceRecord {
    let addresses = record.addresses.iter();
    let address = |one: &ostler_proto::v1alpha1::Address| MachineAddress {
        type_: one.r#type.clone(),
        address: one.address.clone(),
    };
    InstanceRecord {
        provider_id: record.provider_id.clone(),
        machine_uid: record.machine_uid.clone(),
        cluster_id: record.cluster_id.clone(),
        node_name: record.node_name.clone(),
        initialized: record.initialized,
        addresses: addresses.map(address).collect(),
        fault: record.fault.as_ref().map(|it| Box::new(fault(it))),
    }
}

fn fault(error: &OperationError) -> Failure {
    let violations = error.violations.iter();
    Failure {
        code: ErrorCode::from_number(error.code),
        certainty: Certainty::from_number(error.certainty),
        reason: error.reason.clone(),
        message: error.message.clone(),
        retry_after: error.retry_after.and_then(|after| after.try_into().ok()),
        violations: violations.map(|one| (one.path.clone(), one.description.clone())).collect(),
        stranger: Stranger::new(&error.provider_id, &error.cluster_id),
    }
}

/// The instance that a finished operation reports.
pub(super) fn reported(view: &mut OperationView) -> Option<&mut InstanceRecord> {
    let OperationView::Finished(finished) = view else { return None };
    match finished.outcome.as_mut().ok()? {
        Success::Created(record) | Success::Read(record) | Success::Initialized(Some(record)) => {
            Some(record)
        }
        Success::Initialized(None)
        | Success::Updated { .. }
        | Success::Deleted { .. }
        | Success::VolumeIds(_) => None,
    }
}

/// An operation for the driver of the class of `machine`, in the cluster with this id.
pub(super) fn submission(
    machine: &Machine,
    dispatch: &Dispatch,
    cluster_id: &str,
) -> ostler_sessions::Dispatch {
    let namespace = machine.metadata.namespace.clone().unwrap_or_default();
    ostler_sessions::Dispatch {
        provider: dispatch.provider.clone(),
        operation_id: dispatch.id.clone(),
        idempotency_key: dispatch.idempotency_key.clone(),
        target: Target {
            kind: names::MACHINE.to_owned(),
            namespace: namespace.clone(),
            name: machine.name().to_owned(),
            uid: machine.uid().to_owned(),
        },
        class: Some(ObjectRevision {
            namespace,
            name: dispatch.class_name.clone(),
            revision: dispatch.class_revision.clone(),
        }),
        request: request(&dispatch.request, identity_tags(machine, cluster_id)),
        timeout: dispatch.timeout,
        checkpoint: dispatch.checkpoint.clone(),
        adopt_by_name: dispatch.adopt_by_name,
        lane: Lane::User,
    }
}

/// What the instance is found by, from its first moment.
fn identity_tags(machine: &Machine, cluster_id: &str) -> HashMap<String, String> {
    let tags = [
        (tag::CLUSTER_ID, cluster_id),
        (tag::MACHINE_NAME, machine.name()),
        (tag::MACHINE_UID, machine.uid()),
    ];
    tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn request(request: &Request, tags: HashMap<String, String>) -> operation::Request {
    match request.clone() {
        Request::Create { user_data, provider_id } => {
            operation::Request::CreateMachine(CreateMachineRequest {
                bootstrap: user_data.map(|data| BootstrapData {
                    format: data.format().to_owned(),
                    user_data: data.into_bytes(),
                }),
                provider_id,
                tags,
            })
        }
        Request::Initialize { provider_id } => {
            operation::Request::InitializeMachine(InitializeMachineRequest { provider_id })
        }
        Request::Update { provider_id, last_applied_spec_json } => {
            let update = UpdateMachineRequest { provider_id, last_applied_spec_json };
            operation::Request::UpdateMachine(update)
        }
        Request::Delete { provider_id } => {
            operation::Request::DeleteMachine(DeleteMachineRequest { provider_id })
        }
        Request::VolumeIds { specs } => operation::Request::GetVolumeIds(GetVolumeIdsRequest {
            pv_specs_json: specs.into_values().collect(),
        }),
        Request::Status { provider_id } => {
            operation::Request::GetMachineStatus(GetMachineStatusRequest { provider_id })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ostler_api::driver::OperationKind;
    use ostler_proto::v1alpha1::{CreateMachineResponse, DeleteMachineResponse};
    use ostler_sessions::Progress;

    use super::*;

    fn finished(response: operation_result::Response, kind: OperationKind) -> TargetView {
        TargetView::Finished(ostler_sessions::Finished {
            operation_id: "op-1".into(),
            provider: "a.example.com".into(),
            kind,
            idempotency_key: "u:x".into(),
            outcome: Arc::new(Outcome::Result(response)),
            checkpoint: "of a".into(),
        })
    }

    fn of(provider: Option<&str>, view: TargetView) -> OperationView {
        heard(view, &Memory::default(), "u", provider, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn an_answer_of_another_provider_says_nothing_and_is_followed_by_a_read() {
        let gone = operation_result::Response::DeleteMachine(DeleteMachineResponse {
            outcome: DeletionOutcome::Deleted.into(),
            ..<_>::default()
        });
        let machine = Some(MachineRecord { provider_id: "a:///vm".into(), ..<_>::default() });
        let made = operation_result::Response::CreateMachine(CreateMachineResponse { machine });
        for (response, kind) in
            [(gone, OperationKind::DeleteMachine), (made, OperationKind::CreateMachine)]
        {
            let view = || finished(response.clone(), kind);
            let OperationView::Finished(heard) = of(Some("b.example.com"), view()) else {
                panic!()
            };
            let failure = heard.outcome.unwrap_err();
            assert_eq!(failure.certainty, Certainty::Unknown);
            assert_eq!((heard.checkpoint, heard.kind), (None, kind));
            for provider in [Some("a.example.com"), None] {
                let OperationView::Finished(heard) = of(provider, view()) else { panic!() };
                assert!(heard.outcome.is_ok(), "{provider:?}");
                assert_eq!(heard.checkpoint.as_deref(), Some("of a"));
            }
        }
    }

    #[test]
    fn what_a_driver_of_another_provider_says_of_its_progress_is_not_kept() {
        let progress = Progress {
            stage: "Boot".into(),
            message: String::new(),
            percent: 7,
            checkpoint: "of a".into(),
        };
        let view = TargetView::InFlight(ostler_sessions::InFlight {
            operation_id: "op-1".into(),
            provider: "a.example.com".into(),
            kind: OperationKind::CreateMachine,
            idempotency_key: "u:c".into(),
            age: Duration::ZERO,
            progress: Some(progress),
            stalled: false,
        });
        let OperationView::InFlight(flight) = of(Some("b.example.com"), view.clone()) else {
            panic!()
        };
        assert_eq!((flight.progress, flight.checkpoint.as_str()), (None, ""));
        let OperationView::InFlight(flight) = of(Some("a.example.com"), view) else { panic!() };
        assert_eq!(
            (flight.progress.as_deref(), flight.checkpoint.as_str()),
            (Some("Boot"), "of a")
        );
    }
}
