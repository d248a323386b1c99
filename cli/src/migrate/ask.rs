//! What drivers are asked: reads alone, as the core would ask them.

use std::time::Duration;

use ostler_api::driver::{ErrorCode, OperationKind, reason};
use ostler_api::{Machine, MachineClass, names};
use ostler_lifecycle::snapshot::{AdoptByName, ClassFacts};
use ostler_proto::v1alpha1::{
    GetMachineStatusRequest, ListMachinesRequest, MachineRecord, ObjectRevision, Target,
    ValidateClassRequest, operation, operation_result,
};
use ostler_sessions::{Dispatch, Lane, OperationFailure, Outcome, Sessions};

use super::verdict::{Answer, Answers};

/// How long a list may take; one of a large account takes minutes.
const LIST: Duration = Duration::from_mins(5);
/// How long the others may take.
const READ: Duration = Duration::from_mins(1);

/// Asks about one Machine as the core would; where nothing is found that way, once more by name.
pub(super) async fn machine(
    sessions: &Sessions,
    machine: &Machine,
    class: &ClassFacts,
    allowed: AdoptByName,
) -> Answers {
    let by_name = allowed == AdoptByName::Allowed;
    let as_it_is = status(sessions, machine, class, by_name).await;
    let nothing = matches!(as_it_is, Answer::Absent | Answer::NotOurs { .. });
    let by_name =
        if nothing && !by_name { Some(status(sessions, machine, class, true).await) } else { None };
    Answers { as_it_is, by_name }
}

async fn status(
    sessions: &Sessions,
    machine: &Machine,
    class: &ClassFacts,
    adopt_by_name: bool,
) -> Answer {
    let target = Target {
        kind: names::MACHINE.to_owned(),
        namespace: machine.metadata.namespace.clone().unwrap_or_default(),
        name: machine.name().to_owned(),
        uid: machine.uid().to_owned(),
    };
    let provider_id = machine.provider_id().unwrap_or_default().to_owned();
    let request = operation::Request::GetMachineStatus(GetMachineStatusRequest { provider_id });
    let kind = OperationKind::GetMachineStatus;
    let dispatch = Dispatch { adopt_by_name, ..dispatch(class, target, kind, request, READ) };
    match sessions.call(dispatch).await {
        Outcome::Result(operation_result::Response::GetMachineStatus(answer)) => {
            answer.machine.map_or_else(
                || Answer::Silent("the driver's answer is empty".to_owned()),
                |it| Answer::Instance {
                    provider_id: it.provider_id,
                    machine_uid: it.machine_uid,
                    moved: !it.cluster_id.is_empty(),
                },
            )
        }
        Outcome::Result(_) => Answer::Silent("the driver answered another question".to_owned()),
        Outcome::Error(failure) => no_instance(failure),
    }
}

fn no_instance(failure: OperationFailure) -> Answer {
    if failure.code == ErrorCode::NotFound {
        return Answer::Absent;
    }
    if failure.code == ErrorCode::FailedPrecondition && failure.reason == reason::NOT_OURS {
        let OperationFailure { provider_id, cluster_id, .. } = failure;
        return Answer::NotOurs { provider_id, cluster_id };
    }
    Answer::Silent(told(&failure))
}

/// All instances of the cluster that the driver sees with the credentials of this class.
pub(super) async fn list(
    sessions: &Sessions,
    class: &MachineClass,
) -> Result<Vec<MachineRecord>, String> {
    let request = operation::Request::ListMachines(ListMachinesRequest {});
    let kind = OperationKind::ListMachines;
    let facts = ClassFacts::of(class);
    match sessions.call(dispatch(&facts, target(class), kind, request, LIST)).await {
        Outcome::Result(operation_result::Response::ListMachines(list)) => Ok(list.machines),
        Outcome::Result(_) => Err("the driver answered another question".to_owned()),
        Outcome::Error(failure) => Err(told(&failure)),
    }
}

/// What a driver says of a class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Review {
    /// What is wrong with its spec.
    pub(super) wrong: Vec<String>,
    /// What is worth a word.
    pub(super) remarks: Vec<String>,
}

/// What the driver says of the spec of a class.
pub(super) async fn review(sessions: &Sessions, class: &MachineClass) -> Review {
    let facts = ClassFacts::of(class);
    let request = operation::Request::ValidateClass(ValidateClassRequest {
        provider_spec_json: facts.provider_spec.clone(),
        old_provider_spec_json: String::new(),
    });
    let kind = OperationKind::ValidateClass;
    let remark = |text: &str| Review { remarks: vec![text.to_owned()], ..Review::default() };
    match sessions.call(dispatch(&facts, target(class), kind, request, READ)).await {
        Outcome::Result(operation_result::Response::ValidateClass(answer)) => {
            let wrong = answer.violations.iter();
            let wrong = wrong.map(|it| format!("{}: {}", it.path, it.description)).collect();
            Review { wrong, remarks: answer.warnings }
        }
        Outcome::Result(_) => remark("the driver answered another question"),
        Outcome::Error(failure) if failure.code == ErrorCode::Unimplemented => {
            remark("the driver does not check specs: a wrong one shows with the first machine")
        }
        Outcome::Error(failure) => Review { wrong: vec![told(&failure)], ..Review::default() },
    }
}

fn told(failure: &OperationFailure) -> String {
    let OperationFailure { code, reason, message, .. } = failure;
    match reason.as_str() {
        "" => format!("{}: {message}", code.name()),
        reason => format!("{} {reason}: {message}", code.name()),
    }
}

fn target(class: &MachineClass) -> Target {
    Target {
        kind: names::MACHINE_CLASS.to_owned(),
        namespace: class.metadata.namespace.clone().unwrap_or_default(),
        name: class.metadata.name.clone().unwrap_or_default(),
        uid: class.metadata.uid.clone().unwrap_or_default(),
    }
}

fn dispatch(
    class: &ClassFacts,
    target: Target,
    kind: OperationKind,
    request: operation::Request,
    timeout: Duration,
) -> Dispatch {
    let reference = ObjectRevision {
        namespace: target.namespace.clone(),
        name: class.name.clone(),
        revision: class.revision.clone(),
    };
    Dispatch {
        provider: class.provider.clone(),
        operation_id: uuid::Uuid::new_v4().to_string(),
        idempotency_key: format!("{}:{}", target.uid, kind.letter()),
        target,
        class: Some(reference),
        request,
        timeout,
        checkpoint: String::new(),
        adopt_by_name: false,
        lane: Lane::Background,
    }
}

#[cfg(test)]
mod tests {
    use ostler_api::driver::Certainty;

    use super::*;

    #[test]
    fn only_what_says_so_is_absent_or_not_ours_and_all_else_is_no_answer() {
        let failure = |code, reason: &str| OperationFailure {
            code,
            reason: reason.to_owned(),
            message: "text".to_owned(),
            certainty: Certainty::NotApplied,
            retry_after: None,
            violations: Vec::new(),
            provider_code: String::new(),
            provider_request_id: String::new(),
            provider_id: "id".to_owned(),
            cluster_id: "c".to_owned(),
        };
        let of = |code, reason| no_instance(failure(code, reason));
        assert_eq!(of(ErrorCode::NotFound, ""), Answer::Absent);
        let (provider_id, cluster_id) = ("id".to_owned(), "c".to_owned());
        let not_ours = Answer::NotOurs { provider_id, cluster_id };
        assert_eq!(of(ErrorCode::FailedPrecondition, "NOT_OURS"), not_ours);
        for (code, reason) in [
            (ErrorCode::FailedPrecondition, "STALE_TERM"),
            (ErrorCode::Unavailable, "CORE_NO_SESSION"),
            (ErrorCode::Unimplemented, ""),
        ] {
            let Answer::Silent(why) = of(code, reason) else { panic!("{code:?} {reason}") };
            assert!(why.contains(code.name()) && why.contains(reason), "{why}");
        }
    }
}
