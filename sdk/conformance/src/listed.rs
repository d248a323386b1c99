//! GetMachineStatus of a driver that has none, or none without a provider id: the suite looks into its list, as the adapter
//! of a unary driver does. The core relies on CreateMachine there, which finds what is there.

use ostler_proto::v1alpha1 as proto;
use proto::operation::Request;
use proto::operation_completed::Outcome as Completed;
use proto::operation_result::Response;
use proto::{
    GetMachineStatusResponse, Hello, MachineErrorCode, MachineErrorReason, MachineRecord,
    Operation, OperationCompleted, OperationError, OperationKind, OperationResult,
    OutcomeCertainty,
};

use crate::answer::Answer;
use crate::machine::{list, title};
use crate::outcome::Outcome;

/// The reason of this answer, and of the adapter's, if the list has no instance of the machine.
pub(crate) const NOT_LISTED: &str = "NOT_LISTED";

/// Whether a driver on the stream can read one instance.
pub(crate) fn reads_one(hello: &Hello) -> bool {
    hello.operation_kinds.contains(&OperationKind::GetMachineStatus.into())
}

/// Whether a driver says that it does not have the status of a machine whose provider id is not known.
pub(crate) fn is_unsaid(asked: &Operation, answer: &Answer) -> bool {
    matches!(&asked.request, Some(Request::GetMachineStatus(it)) if it.provider_id.is_empty())
        && answer.refusal(&[MachineErrorCode::Unimplemented]).is_ok()
}

/// What is sent in place of a status that a driver does not have.
pub(crate) fn in_place_of(asked: &Operation) -> Option<Operation> {
    let reads = matches!(asked.request, Some(Request::GetMachineStatus(_)));
    let class = asked.machine_class.as_ref().filter(|_| reads)?;
    Some(Operation {
        previous_cluster_ids: asked.previous_cluster_ids.clone(),
        adopt_by_name: asked.adopt_by_name,
        fencing_term: asked.fencing_term,
        timeout: asked.timeout,
        ..list(class, &asked.cluster_id)
    })
}

/// The answer to a status from that to the list.
pub(crate) fn answer(asked: &Operation, listed: Answer) -> Outcome<Answer> {
    let outcome = if listed.result().is_ok() {
        Some(find(asked, listed.machines()?))
    } else {
        listed.completed.outcome
    };
    let completed = OperationCompleted { outcome, ..listed.completed };
    Ok(Answer { title: title(asked), completed, pages: Vec::new(), ..listed })
}

fn find(asked: &Operation, listed: Vec<MachineRecord>) -> Completed {
    let target = asked.target.clone().unwrap_or_default();
    let named = if let Some(Request::GetMachineStatus(request)) = &asked.request {
        request.provider_id.as_str()
    } else {
        ""
    };
    let by_id = |record: &MachineRecord| !named.is_empty() && record.provider_id == named;
    let of_name = |record: &MachineRecord| record.machine_name == target.name;
    let is_own = |record: &MachineRecord| {
        let unclaimed = asked.adopt_by_name && record.machine_uid.is_empty();
        record.machine_uid == target.uid || ((by_id(record) || unclaimed) && of_name(record))
    };
    let of_before = |record: &MachineRecord| {
        of_name(record) && asked.previous_cluster_ids.contains(&record.cluster_id)
    };
    let (mut own, others): (Vec<_>, Vec<_>) = listed.into_iter().partition(is_own);
    let error = match (own.pop(), own.len()) {
        (Some(machine), 0) => {
            let response = GetMachineStatusResponse { machine: Some(machine) };
            let response = Some(Response::GetMachineStatus(response));
            return Completed::Result(OperationResult { response });
        }
        (Some(_), _) => refusal(MachineErrorCode::OutOfRange, "several instances are listed"),
        (None, _) => match others.into_iter().find(|it| by_id(it) || of_before(it)) {
            Some(other) => not_ours(asked, other),
            None => OperationError {
                reason: NOT_LISTED.to_owned(),
                ..refusal(MachineErrorCode::NotFound, "no instance of the machine is listed")
            },
        },
    };
    Completed::Error(error)
}

fn not_ours(asked: &Operation, other: MachineRecord) -> OperationError {
    let reason = MachineErrorReason::NotOurs;
    let listed = Some(other.cluster_id).filter(|id| !id.is_empty());
    OperationError {
        reason: reason.word().to_owned(),
        typed_reason: reason.into(),
        provider_id: other.provider_id,
        cluster_id: listed.unwrap_or_else(|| asked.cluster_id.clone()),
        ..refusal(MachineErrorCode::FailedPrecondition, "the instance is not the machine's")
    }
}

fn refusal(code: MachineErrorCode, message: &str) -> OperationError {
    OperationError {
        code: code.into(),
        certainty: OutcomeCertainty::NotApplied.into(),
        message: message.to_owned(),
        ..OperationError::default()
    }
}
