//! A driver says that something happened to the instance. That is a reason to look, at once, and proves
//! nothing: what the look finds decides, as it always does. What the infrastructure announced is shown; for the announced
//! end of its instance a Machine is replaced by its owner.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::{
    driver::OperationKind,
    machine::{InstanceNotice, NoticeReason, WaitReason},
};

use super::{
    State, instance_check, pass::Pass, preconditions, reading::Reading, transition::Outcome,
};
use crate::{
    hint::{HintUse, HintView, News, Notice},
    owner::is_replaced,
    plan::{EventReason, Next},
    snapshot::{ClassView, DriverView},
    time::after,
};

/// Times of an announcement that differ by less are the same: drivers repeat announcements in other words.
const SAME_TIME: jiff::SignedDuration = jiff::SignedDuration::from_mins(1);
/// A look at an instance that is said to be gone is repeated after so long if it fails, then after twice as long.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// So many looks; then the health of the Node has to tell.
const LOOKS: u32 = 5;

/// The consequence of a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// A read of the instance.
    Look,
    /// Nothing.
    Nothing,
}

/// The consequence of a hint in a state.
fn then(state: State) -> Then {
    match state {
        State::Joining | State::Running | State::InPlace => Then::Look,
        // A creation on its way says more, only a healthy Node brings a Failed one back, and a deletion asks until the
        // instance is gone.
        State::Creating
        | State::Initializing
        | State::Failed
        | State::Finding
        | State::Draining
        | State::Detaching
        | State::Deleting
        | State::Finishing => Then::Nothing,
    }
}

/// Follows the hint of the driver, if there is one.
///
/// # Errors
/// The look found no instance, and the Machine is given up.
pub(crate) fn follow(pass: &mut Pass<'_>, state: State) -> Outcome<()> {
    let snap = pass.snap;
    let Some(hint) = &snap.hint else { return Ok(()) };
    match &hint.news {
        Some(News::Over) => pass.status.instance_notice = None,
        Some(News::Announced(notice)) if !pass.machine.is_deleting() => show(pass, notice),
        Some(News::Announced(_)) | None => {}
    }
    let answered = hint.asked && pass.learned.reading.is_some();
    if answered && let Some(at) = looks_again(pass, hint) {
        pass.effects.hint = Some(HintUse::AsksAgain(at));
        return Ok(());
    }
    if answered || then(state) == Then::Nothing || !can_read(pass) {
        pass.effects.hint = Some(HintUse::Done);
    }
    if answered && matches!(state, State::Running | State::InPlace) {
        return instance_check::conclude(pass);
    }
    let known = pass.provider_id().is_some() || pass.has_seen_instance();
    if pass.effects.hint.is_none()
        && hint.not_before.is_none_or(|at| at <= snap.now)
        && pass.is_free()
        && known
        && let Some(class) = preconditions::class_to_read(snap)
    {
        pass.ask_status(class);
    }
    Ok(())
}

/// When to look again for an instance that is said to be gone, since the look failed. An infrastructure busy with the
/// end of an instance may fail to report the end.
fn looks_again(pass: &Pass<'_>, hint: &HintView) -> Option<jiff::Timestamp> {
    let failed = matches!(pass.learned.reading, Some(Reading::Failed(_)));
    let again = failed && hint.gone && hint.failed + 1 < LOOKS;
    again.then(|| after(pass.snap.now, LOOK_AGAIN * 2_u32.pow(hint.failed)))
}

/// The next pass comes when a look is due.
pub(crate) fn wake(pass: &Pass<'_>, next: Next) -> Next {
    let waits = pass.snap.hint.as_ref().and_then(|hint| hint.not_before);
    let due = match pass.effects.hint {
        Some(HintUse::AsksAgain(at) | HintUse::Missed(at)) => Some(at),
        Some(HintUse::Done) => None,
        Some(HintUse::Asks) | None => waits.filter(|at| *at > pass.snap.now),
    };
    match due {
        Some(at) => next.by(WaitReason::DriverRetry, at),
        None => next,
    }
}

fn can_read(pass: &Pass<'_>) -> bool {
    match &pass.snap.driver {
        DriverView::Ready(driver) => driver.has(OperationKind::GetMachineStatus),
        DriverView::Unavailable | DriverView::NotReady(_) => true,
    }
}

/// Shows what the infrastructure announced, once.
fn show(pass: &mut Pass<'_>, notice: &Notice) {
    let (replaces, then) = follows(pass, &notice.reason);
    let says_as_much =
        |shown: &InstanceNotice| says_as_much(shown, notice) && shown.replaces >= replaces;
    if pass.status.instance_notice.as_ref().is_some_and(says_as_much) {
        return;
    }
    let (event, what) = match notice.reason {
        NoticeReason::TerminationNotice => {
            (EventReason::TerminationNotice, "the infrastructure will end the instance")
        }
        NoticeReason::MaintenanceNotice | NoticeReason::Other(_) => {
            (EventReason::MaintenanceNotice, "the infrastructure will work on the instance")
        }
    };
    let when = match notice.at {
        Some(at) => format!(" at {}", seconds(at)),
        None => String::new(),
    };
    let why =
        if notice.message.is_empty() { String::new() } else { format!(": {}", notice.message) };
    pass.effects.event(true, event, format!("{what}{when}{why}{then}"));
    pass.status.instance_notice = Some(InstanceNotice {
        reason: notice.reason.clone(),
        effective_at: notice.at.map(|at| Time(seconds(at))),
        noted_at: Some(pass.now()),
        message: Some(notice.message.clone()).filter(|text| !text.is_empty()),
        replaces,
    });
}

/// Whether the owner replaces the Machine for an announcement, and for people what follows from it.
fn follows(pass: &Pass<'_>, reason: &NoticeReason) -> (bool, &'static str) {
    use ClassView::{Known, LastKnown, Missing, NamespaceDenied, NotHeld, Unknown};
    let wanted = match &pass.snap.class {
        Known(class) | LastKnown(class) => class.drain_on_notice,
        // The hint stays until the class is known.
        Unknown | Missing | NamespaceDenied | NotHeld(_) => false,
    };
    match reason {
        NoticeReason::MaintenanceNotice | NoticeReason::Other(_) => (false, ""),
        NoticeReason::TerminationNotice if !is_replaced(&pass.machine.metadata) => {
            (false, "; it has no owner that would replace it: delete it to drain its node before")
        }
        NoticeReason::TerminationNotice if wanted => (true, "; its owner replaces it"),
        NoticeReason::TerminationNotice => {
            (false, "; it stays until then, as drainOnNotice of its class says")
        }
    }
}

/// Whether the announcement that is shown says as much as the new one. The end of an instance is not hidden
/// by work on it.
fn says_as_much(shown: &InstanceNotice, new: &Notice) -> bool {
    if shown.reason != new.reason {
        return shown.reason == NoticeReason::TerminationNotice;
    }
    match (&shown.effective_at, new.at) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(shown), Some(new)) => shown.0.duration_since(new).abs() < SAME_TIME,
    }
}

fn seconds(at: jiff::Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_second(at.as_second()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_hint_makes_the_core_look_where_nothing_else_asks_the_driver() {
        let looks = |state| then(state) == Then::Look;
        for state in [State::Joining, State::Running, State::InPlace] {
            assert!(looks(state), "{state:?}");
        }
        let other = [
            State::Creating,
            State::Initializing,
            State::Failed,
            State::Finding,
            State::Draining,
            State::Detaching,
            State::Deleting,
            State::Finishing,
        ];
        for state in other {
            assert!(!looks(state), "{state:?}");
        }
    }

    #[test]
    fn a_notice_that_says_the_same_again_changes_nothing() {
        use NoticeReason::{MaintenanceNotice, TerminationNotice};
        let shown = |reason: NoticeReason, second: Option<i64>| InstanceNotice {
            reason,
            effective_at: second.map(|second| Time(at(second))),
            noted_at: None,
            message: None,
            replaces: false,
        };
        let new = |reason: NoticeReason, second: Option<i64>| Notice {
            reason,
            at: second.map(at),
            message: "other words".to_owned(),
        };
        let cases = [
            ("the same", TerminationNotice, Some(100), TerminationNotice, Some(130), true),
            ("another time", TerminationNotice, Some(100), TerminationNotice, Some(200), false),
            ("now with a time", TerminationNotice, None, TerminationNotice, Some(100), false),
            ("now without", TerminationNotice, Some(100), TerminationNotice, None, true),
            ("worse", MaintenanceNotice, Some(100), TerminationNotice, Some(100), false),
            ("not so bad", TerminationNotice, Some(100), MaintenanceNotice, Some(100), true),
        ];
        for (name, old, old_at, reason, new_at, wanted) in cases {
            let said = says_as_much(&shown(old, old_at), &new(reason, new_at));
            assert_eq!(said, wanted, "{name}");
        }
    }
}
