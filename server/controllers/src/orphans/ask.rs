//! What drivers are asked on behalf of a class.

use std::time::Duration;

use ostler_api::driver::{Certainty, ErrorCode, OperationKind, reason};
use ostler_api::{MachineClass, names};
use ostler_lifecycle::orphans::{Identity, Listed, Orphan};
use ostler_lifecycle::snapshot::ClassFacts;
use ostler_proto::v1alpha1::{
    DeleteMachineRequest, DeleteMachineResponse, DeletionOutcome, ListMachinesRequest,
    MachineRecord, ObjectRevision, Target, operation, operation_result,
};
use ostler_sessions::{Dispatch, Lane, OperationFailure, Outcome, Sessions};

/// How long a list may take.
const LIST: Duration = Duration::from_mins(5);
/// How long a deletion may take; it is asked for again later.
const DELETE: Duration = Duration::from_mins(10);

/// Every instance that the driver sees with the credentials of this class.
pub(super) async fn list(
    sessions: &Sessions,
    class: &MachineClass,
) -> Result<Vec<Listed>, OperationFailure> {
    let meta = &class.metadata;
    let target = Target {
        kind: names::MACHINE_CLASS.to_owned(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
    };
    let request = operation::Request::ListMachines(ListMachinesRequest {});
    let kind = OperationKind::ListMachines;
    match sessions.call(dispatch(class, target, kind, request, LIST)).await {
        Outcome::Result(operation_result::Response::ListMachines(list)) => {
            Ok(list.machines.into_iter().map(listed).collect())
        }
        Outcome::Result(_) => Err(wrong_answer()),
        Outcome::Error(failure) => Err(failure),
    }
}

/// Deletes what has the identity of an orphan. Without a provider id: the driver finds it by
/// cluster and UID, and touches nothing else. One without a UID is that very instance, if it has no
/// tag of ours and the name that it had (INV-5).
pub(super) async fn delete(
    sessions: &Sessions,
    provider: &str,
    class: &MachineClass,
    orphan: &Orphan,
) -> Result<(), OperationFailure> {
    let target = Target {
        kind: names::MACHINE.to_owned(),
        namespace: class.metadata.namespace.clone().unwrap_or_default(),
        name: orphan.machine_name.clone(),
        uid: orphan.identity.target_uid(provider),
    };
    let provider_id = match &orphan.identity {
        Identity::Uid(_) => String::new(),
        Identity::Instance(id) => id.clone(),
    };
    let adopt_by_name = !provider_id.is_empty();
    let request = operation::Request::DeleteMachine(DeleteMachineRequest { provider_id });
    let kind = OperationKind::DeleteMachine;
    let dispatch = Dispatch { adopt_by_name, ..dispatch(class, target, kind, request, DELETE) };
    match sessions.call(dispatch).await {
        Outcome::Result(operation_result::Response::DeleteMachine(answer)) => {
            not_gone(&answer).map_or(Ok(()), Err)
        }
        Outcome::Result(_) => Err(wrong_answer()),
        Outcome::Error(failure) if failure.code == ErrorCode::NotFound => Ok(()),
        Outcome::Error(failure) => Err(failure),
    }
}

/// Why an answer is none that the instance is gone: that is only what says so.
fn not_gone(answer: &DeleteMachineResponse) -> Option<OperationFailure> {
    match answer.outcome() {
        DeletionOutcome::Deleted | DeletionOutcome::WasAbsent => None,
        DeletionOutcome::NotOurs => {
            let message = format!("instance {} is not ours", answer.provider_id);
            let (code, certainty) = (ErrorCode::FailedPrecondition, Certainty::Unknown);
            Some(OperationFailure::by_core(code, reason::NOT_OURS, message, certainty))
        }
        DeletionOutcome::Unspecified => Some(wrong_answer()),
    }
}

fn dispatch(
    class: &MachineClass,
    target: Target,
    kind: OperationKind,
    request: operation::Request,
    timeout: Duration,
) -> Dispatch {
    let facts = ClassFacts::of(class);
    let namespace = class.metadata.namespace.clone().unwrap_or_default();
    Dispatch {
        provider: facts.provider,
        operation_id: uuid::Uuid::new_v4().to_string(),
        idempotency_key: format!("{}:{}", target.uid, kind.letter()),
        target,
        class: Some(ObjectRevision { namespace, name: facts.name, revision: facts.revision }),
        request,
        timeout,
        checkpoint: String::new(),
        adopt_by_name: false,
        lane: Lane::Background,
    }
}

fn listed(record: MachineRecord) -> Listed {
    Listed {
        provider_id: record.provider_id,
        machine_name: record.machine_name,
        machine_uid: record.machine_uid,
        cluster_id: record.cluster_id,
    }
}

fn wrong_answer() -> OperationFailure {
    let message = "the driver did not answer what it was asked";
    OperationFailure::by_core(ErrorCode::Internal, "WRONG_RESULT", message, Certainty::Unknown)
}
