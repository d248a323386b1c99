//! Questions to drivers: reads alone, as the core would send them.

use std::time::Duration;

use ostler_api::driver::ErrorCode;
use ostler_api::operation::{
    Dispatch, Failure, InstanceRecord, Reason, Request, Stranger, Success, Target,
};
use ostler_api::{Machine, MachineClass};
use ostler_lifecycle::snapshot::{AdoptByName, ClassFacts};
use ostler_sessions::Sessions;

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
    let provider_id = machine.provider_id().cloned().unwrap_or_default();
    let request = Request::Status { provider_id };
    let dispatch = dispatch(class, Target::of_machine(machine), request, READ);
    match sessions.call(Dispatch { adopt_by_name, ..dispatch }).await {
        Ok(Success::Read(it)) if it == InstanceRecord::default() => {
            Answer::Silent("the driver's answer is empty".to_owned())
        }
        Ok(Success::Read(it)) => Answer::Instance {
            provider_id: it.provider_id,
            machine_uid: it.machine_uid,
            moved: !it.cluster_id.is_empty(),
        },
        Ok(_) => Answer::Silent("the driver answered another question".to_owned()),
        Err(failure) => no_instance(&failure),
    }
}

fn no_instance(failure: &Failure) -> Answer {
    if failure.code == ErrorCode::NotFound {
        return Answer::Absent;
    }
    if failure.code == ErrorCode::FailedPrecondition && failure.reason == Reason::NotOurs {
        let Stranger { provider_id, cluster_id } =
            failure.stranger.as_deref().cloned().unwrap_or_default();
        return Answer::NotOurs { provider_id, cluster_id };
    }
    Answer::Silent(told(failure))
}

/// All instances of the cluster that the driver sees with the credentials of this class.
pub(super) async fn list(
    sessions: &Sessions,
    class: &MachineClass,
) -> Result<Vec<InstanceRecord>, String> {
    let (facts, target) = (ClassFacts::of(class), Target::of_class(class));
    match sessions.call(dispatch(&facts, target, Request::List, LIST)).await {
        Ok(Success::Listed { instances, .. }) => Ok(instances),
        Ok(_) => Err("the driver answered another question".to_owned()),
        Err(failure) => Err(told(&failure)),
    }
}

/// A driver's review of a class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Review {
    /// Faults in the spec of the class.
    pub(super) wrong: Vec<String>,
    /// Remarks that hold up nothing.
    pub(super) remarks: Vec<String>,
}

/// Asks the driver to review the spec of a class.
pub(super) async fn review(sessions: &Sessions, class: &MachineClass) -> Review {
    let (facts, target) = (ClassFacts::of(class), Target::of_class(class));
    let spec_json = facts.provider_spec.clone();
    let request = Request::Validate { spec_json, old_spec_json: String::new() };
    let remark = |text: &str| Review { remarks: vec![text.to_owned()], ..Review::default() };
    match sessions.call(dispatch(&facts, target, request, READ)).await {
        Ok(Success::Reviewed(answer)) => {
            let wrong = answer.violations.iter();
            let wrong = wrong.map(|(path, why)| format!("{path}: {why}")).collect();
            Review { wrong, remarks: answer.warnings }
        }
        Ok(_) => remark("the driver answered another question"),
        Err(failure) if failure.code == ErrorCode::Unimplemented => {
            remark("the driver does not check specs: a wrong one shows with the first machine")
        }
        Err(failure) => Review { wrong: vec![told(&failure)], ..Review::default() },
    }
}

fn told(failure: &Failure) -> String {
    let Failure { code, reason, message, .. } = failure;
    match reason.as_str() {
        "" => format!("{}: {message}", code.name()),
        reason => format!("{} {reason}: {message}", code.name()),
    }
}

fn dispatch(class: &ClassFacts, target: Target, request: Request, time: Duration) -> Dispatch {
    class.dispatch(uuid::Uuid::new_v4().to_string().into(), target, request, time)
}

#[cfg(test)]
mod tests {
    use ostler_api::driver::Certainty;

    use super::*;

    #[test]
    fn only_what_says_so_is_absent_or_not_ours_and_all_else_is_no_answer() {
        let failure = |code, reason: &str| Failure {
            reason: reason.to_owned(),
            stranger: Stranger::new("id", "c"),
            ..Failure::new(code, Certainty::NotApplied, "text")
        };
        let of = |code, reason| no_instance(&failure(code, reason));
        assert_eq!(of(ErrorCode::NotFound, ""), Answer::Absent);
        let (provider_id, cluster_id) = ("id".to_owned(), "c".to_owned());
        let not_ours = Answer::NotOurs { provider_id: provider_id.into(), cluster_id };
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
