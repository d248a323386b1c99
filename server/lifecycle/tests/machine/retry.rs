//! Every row of the retry table, seen in what a machine does.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::driver::{Certainty, ErrorCode, OperationKind as Kind};
use ostler_api::machine::{FailureReason, HotUpdateState, MachinePhase, MachineStep, WaitReason};
use ostler_api::operation::Reason;
use ostler_lifecycle::operation::{Failure, OperationView};
use ostler_lifecycle::retry::{Precondition, RetryAction, rule};

use crate::machine::world::World;

const VERBS: [Kind; 5] = [
    Kind::CreateMachine,
    Kind::InitializeMachine,
    Kind::UpdateMachine,
    Kind::DeleteMachine,
    Kind::GetMachineStatus,
];
const CERTAINTIES: [Certainty; 3] = [Certainty::NotApplied, Certainty::Partial, Certainty::Unknown];

/// What a Machine does after a failure, and what the wait is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The same again after so many seconds, then twice as long each time, up to so many.
    Retry(u64, u64, &'static str),
    /// As `Retry`, but only another secret helps.
    NewSecret(u64, u64, &'static str),
    /// As `Retry`, and the instance is looked for first.
    LookAgain(u64, u64, &'static str),
    /// Nothing until the class changes.
    NewClass(&'static str),
    /// After the time that is set for exhausted resources.
    Room(&'static str),
    /// The Machine fails.
    Fails(&'static str),
    /// The hot update ends in this state.
    Refused(&'static str),
    /// As good as success.
    Success,
    /// The read says: there is no instance.
    Absent,
    /// The read says: there is one, not initialized.
    NotInitialized,
    /// The driver cannot say.
    GoOn,
}

const fn soon(wait: &'static str) -> Then {
    Then::Retry(5, 180, wait)
}

const fn later(wait: &'static str) -> Then {
    Then::Retry(60, 600, wait)
}

const INIT: Then = soon("InstanceNotInitialized");
const SOON: Then = soon("DriverRetry");
const LATER: Then = later("DriverRetry");
const LACKS: Then = later("DriverLacksVerb");
const BAD_SPEC: Then = Then::NewClass("InvalidSpec");
const WAITS_SPEC: Then = later("InvalidSpec");
const ROOM: Then = Then::Room("CapacityExhausted");
const BUSY: Then = Then::Room("DriverRetry");
const SECRET: Then = Then::NewSecret(180, 1800, "CredentialsRefused");
const ACTION: Then = Then::Retry(30, 600, "ActionNeeded");
const AWAY: Then = Then::Retry(5, 120, "DriverRetry");
const AGAIN: Then = Then::Retry(5, 15, "DriverRetry");
const LOST: Then = Then::Fails("DataLoss");
const FOREIGN: Then = Then::Fails("InstanceConflict");
const LOOK: Then = Then::LookAgain(5, 180, "InstanceNotInitialized");
const NO_VERB: Then = Then::Refused("Unsupported");
const SEVERAL: Then = later("SeveralInstances");
const MISSING: Then = later("InstanceMissing");

/// What each code means to each of [`VERBS`]. Written by hand, so that the product's table is compared with an
/// independent one.
#[rustfmt::skip]
const BY_HAND: [(ErrorCode, [Then; 5]); 17] = [
    //                               create    initialize     update    delete         read
    (ErrorCode::Canceled,           [SOON,     INIT,          SOON,     SOON,          SOON]),
    (ErrorCode::Unknown,            [SOON,     INIT,          SOON,     SOON,          SOON]),
    (ErrorCode::InvalidArgument,    [BAD_SPEC, INIT,          BAD_SPEC, WAITS_SPEC,    WAITS_SPEC]),
    (ErrorCode::DeadlineExceeded,   [SOON,     INIT,          SOON,     SOON,          SOON]),
    (ErrorCode::NotFound,           [LATER,    LOOK,          MISSING,  Then::Success, Then::Absent]),
    (ErrorCode::AlreadyExists,      [FOREIGN,  INIT,          LATER,    LATER,         LATER]),
    (ErrorCode::PermissionDenied,   [SECRET,   INIT,          SECRET,   SECRET,        SECRET]),
    (ErrorCode::ResourceExhausted,  [ROOM,     ROOM,          ROOM,     BUSY,          BUSY]),
    (ErrorCode::FailedPrecondition, [ACTION,   INIT,          ACTION,   ACTION,        ACTION]),
    (ErrorCode::Aborted,            [AGAIN,    INIT,          AGAIN,    AGAIN,         AGAIN]),
    (ErrorCode::OutOfRange,         [BAD_SPEC, INIT,          LATER,    LATER,         SEVERAL]),
    (ErrorCode::Unimplemented,      [LACKS,    Then::Success, NO_VERB,  LACKS,         Then::GoOn]),
    (ErrorCode::Internal,           [LATER,    INIT,          LATER,    LATER,         LATER]),
    (ErrorCode::Unavailable,        [AWAY,     INIT,          AWAY,     AWAY,          AWAY]),
    (ErrorCode::DataLoss,           [LOST,     LOST,          LATER,    LATER,         LATER]),
    (ErrorCode::Unauthenticated,    [SECRET,   INIT,          SECRET,   SECRET,        SECRET]),
    (ErrorCode::Uninitialized,      [SOON,     INIT,          SOON,     SOON,          Then::NotInitialized]),
];

/// The reasons with an effect, their only code, and their meaning for every verb.
const REASONS: [(&str, ErrorCode, Then); 5] = [
    ("THROTTLED", ErrorCode::ResourceExhausted, Then::Room("DriverRetry")),
    ("CORE_NO_SESSION", ErrorCode::Unavailable, Then::Retry(1, 60, "DriverRetry")),
    ("CORE_SESSION_LOST", ErrorCode::Unavailable, Then::Retry(1, 60, "DriverRetry")),
    ("NOT_OURS", ErrorCode::FailedPrecondition, later("InstanceNotOurs")),
    ("CORE_CLUSTER_ID_CHANGED", ErrorCode::FailedPrecondition, later("ClusterIdChanged")),
];

/// What follows from a failure, by hand.
pub(crate) fn expected(kind: Kind, code: ErrorCode, reason: &str) -> Then {
    let decides = |row: &&(&str, ErrorCode, Then)| (row.0, row.1) == (reason, code);
    if let Some((_, _, then)) = REASONS.iter().find(decides) {
        return *then;
    }
    if (kind, code, reason)
        == (Kind::UpdateMachine, ErrorCode::FailedPrecondition, "NOT_HOT_UPDATABLE")
    {
        return Then::Refused("Refused");
    }
    let verb = VERBS.iter().position(|verb| *verb == kind).unwrap();
    let (_, row) = BY_HAND.iter().find(|(of, _)| *of == code).unwrap();
    *row.get(verb).unwrap()
}

/// The step before the next attempt of such a failed mutation, by hand.
fn expected_first(kind: Kind, certainty: Certainty) -> Precondition {
    match (kind, certainty) {
        (Kind::GetMachineStatus, _) | (_, Certainty::NotApplied) => Precondition::Nothing,
        (_, Certainty::Partial) => Precondition::Checkpoint,
        (_, Certainty::Unknown) => Precondition::Read,
    }
}

/// A world in which `kind` is in flight.
fn in_flight(kind: Kind) -> World {
    let mut world = match kind {
        Kind::UpdateMachine | Kind::DeleteMachine => World::running(),
        _ => World::new(),
    };
    match kind {
        Kind::UpdateMachine => world.edit_class(serde_json::json!({ "size": 1, "tags": {} })),
        Kind::DeleteMachine => world.delete(),
        _ => {}
    }
    for _ in 0..20 {
        if flying(&world) == Some(kind) {
            return world;
        }
        if flying(&world).is_some() {
            world.answer();
        }
        world.pass();
    }
    panic!("{kind} is never sent");
}

fn flying(world: &World) -> Option<Kind> {
    match &world.operation {
        OperationView::InFlight(flight) => Some(flight.kind),
        _ => None,
    }
}

/// What is sent after `wait`; a wait of zero is one more pass.
fn sent_after(world: &mut World, wait: Duration) -> Option<Kind> {
    world.later(i64::try_from(wait.as_secs()).unwrap());
    for _ in 0..3 {
        world.pass();
    }
    flying(world)
}

/// Nothing is sent before `first` has passed; then a read, or the same again.
fn waits(world: &mut World, kind: Kind, first: Duration, then: Precondition, case: &str) {
    assert_eq!(sent_after(world, Duration::ZERO), None, "{case}");
    assert_eq!(sent_after(world, first.saturating_sub(Duration::from_secs(1))), None, "{case}");
    // A create is never sent without a look at what is there.
    let looks = then == Precondition::Read || kind == Kind::CreateMachine;
    let next = if looks { Kind::GetMachineStatus } else { kind };
    assert_eq!(sent_after(world, Duration::from_secs(1)), Some(next), "{case}");
}

fn follow(kind: Kind, failure: &Failure) {
    let case = format!("{kind} {failure:?}");
    let then = expected(kind, failure.code, &failure.reason);
    let first = expected_first(kind, failure.certainty);
    let mut world = in_flight(kind);
    world.reply(Err(failure.clone()));
    world.pass();
    let status = world.machine.as_ref().map(|_| world.status()).unwrap_or_default();
    if let Some(retry) = &status.retry {
        assert_eq!(Some(retry.reason.as_str()), wait_of(then), "{case}");
        assert_eq!(retry.code, failure.code.name(), "{case}");
    }
    match then {
        Then::Retry(wait, ..) | Then::NewSecret(wait, ..) => {
            waits(&mut world, kind, Duration::from_secs(wait), first, &case);
        }
        Then::Room(_) => waits(&mut world, kind, Duration::from_mins(10), first, &case),
        Then::NewClass(_) => {
            assert_eq!(sent_after(&mut world, Duration::from_mins(15)), None, "{case}");
            world.edit_class(serde_json::json!({ "size": 2 }));
            assert!(sent_after(&mut world, Duration::ZERO).is_some(), "{case}");
        }
        Then::Fails(reason) => {
            assert_eq!(world.phase(), MachinePhase::Failed, "{case}");
            assert_eq!(status.failure_reason.unwrap().as_str(), reason, "{case}");
            assert_eq!(sent_after(&mut world, Duration::from_hours(1)), None, "{case}");
        }
        Then::Success if kind == Kind::DeleteMachine => assert!(world.machine.is_none(), "{case}"),
        Then::Success => assert_eq!(status.step, Some(MachineStep::JoinNode), "{case}"),
        Then::Refused(state) => {
            assert_eq!(format!("{:?}", status.hot_update.unwrap().state), state, "{case}");
            assert_eq!(world.phase(), MachinePhase::Running, "{case}");
            assert_eq!(sent_after(&mut world, Duration::from_hours(1)), None, "{case}");
        }
        Then::LookAgain(wait, ..) => {
            let wait = Duration::from_secs(wait);
            assert_eq!(sent_after(&mut world, wait / 2), None, "{case}");
            assert_eq!(sent_after(&mut world, wait), Some(Kind::GetMachineStatus), "{case}");
        }
        Then::Absent | Then::GoOn => {
            assert_eq!(flying(&world), Some(Kind::CreateMachine), "{case}");
        }
        Then::NotInitialized => {
            assert_eq!(flying(&world), Some(Kind::InitializeMachine), "{case}");
        }
    }
}

/// The name of the wait, if any.
fn wait_of(then: Then) -> Option<&'static str> {
    match then {
        Then::Retry(_, _, wait)
        | Then::NewSecret(_, _, wait)
        | Then::LookAgain(_, _, wait)
        | Then::NewClass(wait)
        | Then::Room(wait) => Some(wait),
        _ => None,
    }
}

/// The product's table in the hand-written form.
fn said(kind: Kind, code: ErrorCode, reason: &str) -> Then {
    let rule = rule(kind, code, reason, Certainty::NotApplied);
    let words = WaitReason::WORDS.iter();
    let wait = words.copied().find(|word| *word == rule.reason.as_str()).unwrap();
    match rule.then {
        RetryAction::Backoff { first, max } => Then::Retry(first.as_secs(), max.as_secs(), wait),
        RetryAction::OnSecretChange { first, max } => {
            Then::NewSecret(first.as_secs(), max.as_secs(), wait)
        }
        RetryAction::LookAgain { first, max } => {
            Then::LookAgain(first.as_secs(), max.as_secs(), wait)
        }
        RetryAction::OnClassChange => Then::NewClass(wait),
        RetryAction::WhenThereIsRoom => Then::Room(wait),
        RetryAction::GiveUp(FailureReason::DataLoss) => LOST,
        RetryAction::GiveUp(FailureReason::InstanceConflict) => FOREIGN,
        RetryAction::Refuse(HotUpdateState::Unsupported) => NO_VERB,
        RetryAction::Refuse(HotUpdateState::Refused) => Then::Refused("Refused"),
        RetryAction::Accept => Then::Success,
        RetryAction::Absent => Then::Absent,
        RetryAction::NotInitialized => Then::NotInitialized,
        RetryAction::GoOn => Then::GoOn,
        other => panic!("{kind} {code}: {other:?}"),
    }
}

#[test]
fn the_table_is_the_one_written_by_hand_up_to_its_longest_waits() {
    let words = REASONS.iter().map(|row| row.0).chain(["", "NOT_HOT_UPDATABLE", "ANYTHING"]);
    for word in words {
        for kind in VERBS {
            for code in ErrorCode::ALL {
                let expected = expected(kind, code, word);
                assert_eq!(said(kind, code, word), expected, "{kind} {code} {word}");
            }
        }
    }
}

#[test]
fn every_row_of_the_table_is_what_a_machine_does() {
    for kind in VERBS {
        for code in ErrorCode::ALL {
            for certainty in CERTAINTIES {
                follow(kind, &Failure::new(code, certainty, "no"));
            }
        }
    }
}

#[test]
fn the_reasons_that_decide_something_do() {
    for kind in VERBS {
        for word in [Reason::CoreNoSession, Reason::CoreSessionLost] {
            for certainty in CERTAINTIES {
                let failure = Failure::new(ErrorCode::Unavailable, certainty, "gone");
                follow(kind, &Failure { reason: word.into(), ..failure });
            }
        }
    }
    let failure = Failure::new(ErrorCode::FailedPrecondition, Certainty::NotApplied, "size");
    let reason = Reason::NotHotUpdatable.into();
    follow(Kind::UpdateMachine, &Failure { reason, ..failure });
}

#[test]
fn the_time_that_a_driver_names_replaces_the_table_s() {
    let hour = Duration::from_hours(1);
    for code in [ErrorCode::ResourceExhausted, ErrorCode::Unavailable, ErrorCode::Aborted] {
        let mut world = in_flight(Kind::DeleteMachine);
        let failure = Failure::new(code, Certainty::NotApplied, "full");
        world.reply(Err(Failure { retry_after: Some(hour), ..failure }));
        world.pass();
        waits(&mut world, Kind::DeleteMachine, hour, Precondition::Nothing, code.name());
    }
}

/// Some rows by hand, so that table and machine cannot be wrong together.
#[test]
fn a_wait_lasts_since_its_first_failure_whatever_attempts_come_between() {
    let mut world = in_flight(Kind::CreateMachine);
    world.machine_mut().spec.creation_timeout = Some("3h".into());
    let begun = Some(Time(world.now));
    for _attempt in 1..3 {
        world.refuse(ErrorCode::ResourceExhausted);
        world.pass();
        let wait = world.status().waiting_for.unwrap();
        assert_eq!((wait.reason, wait.since), (WaitReason::CapacityExhausted, begun.clone()));
        world.later(600);
        let again = sent_after(&mut world, Duration::ZERO);
        assert_eq!(again, Some(Kind::GetMachineStatus));
        world.answer();
        world.pass();
        assert_eq!((flying(&world), world.waits_for()), (Some(Kind::CreateMachine), None));
    }
    let other = world.now;
    world.refuse(ErrorCode::Unavailable);
    world.pass();
    assert_eq!(world.status().waiting_for.unwrap().since, Some(Time(other)), "another reason");
}

#[test]
fn a_wait_that_no_driver_can_ask_for_is_over() {
    for (days, sent) in [(25 * 365, true), (0, false)] {
        let mut world = in_flight(Kind::CreateMachine);
        world.fail(ErrorCode::Unavailable, Certainty::NotApplied);
        world.pass();
        let until = world.now + Duration::from_secs(days * 86400 + 60);
        let retry = world.machine_mut().status.as_mut().unwrap().retry.as_mut().unwrap();
        retry.not_before = Some(Time(until));
        world.pass();
        assert_eq!(flying(&world).is_some(), sent, "{days} days");
    }
}

#[test]
fn the_table_keeps_its_promises() {
    let then = |kind, code| rule(kind, code, "", Certainty::NotApplied).then;
    for code in ErrorCode::ALL {
        let accepted = then(Kind::DeleteMachine, code) == RetryAction::Accept;
        assert_eq!(accepted, code == ErrorCode::NotFound, "{code}");
        for kind in VERBS {
            if matches!(then(kind, code), RetryAction::GiveUp(_)) {
                assert!(
                    matches!(kind, Kind::CreateMachine | Kind::InitializeMachine),
                    "{kind} {code}"
                );
            }
            if kind.is_mutation() && matches!(then(kind, code), RetryAction::Backoff { .. }) {
                let unknown = rule(kind, code, "", Certainty::Unknown);
                assert_eq!(unknown.first, Precondition::Read, "{kind} {code}");
            }
        }
    }
    assert_eq!(then(Kind::InitializeMachine, ErrorCode::Unimplemented), RetryAction::Accept);
    assert_eq!(then(Kind::CreateMachine, ErrorCode::InvalidArgument), RetryAction::OnClassChange);
    assert_eq!(then(Kind::GetMachineStatus, ErrorCode::NotFound), RetryAction::Absent);
    let internal = then(Kind::GetMachineStatus, ErrorCode::Internal);
    assert!(matches!(internal, RetryAction::Backoff { .. }), "a failure to look is not an absence");
}

/// The author may have fixed the fault. Another failure waits as if from the same process.
#[test]
fn after_a_fault_of_the_driver_another_process_of_it_is_asked_at_once_and_only_once() {
    for (code, at_once) in [
        (ErrorCode::Internal, true),
        (ErrorCode::Unimplemented, true),
        (ErrorCode::Unavailable, false),
        (ErrorCode::ResourceExhausted, false),
        (ErrorCode::InvalidArgument, false),
    ] {
        let mut world = World::new();
        world.kinds.remove(&Kind::GetMachineStatus);
        world.pass();
        world.refuse(code);
        world.pass();
        let sent = world.sent.len();
        world.pass();
        assert_eq!(world.sent.len(), sent, "{code:?}: it waits");
        world.driver_process = "p2";
        world.pass();
        assert_eq!(world.sent.len() > sent, at_once, "{code:?}");
        if at_once {
            world.refuse(code);
            world.pass();
            let retry = world.status().retry.unwrap();
            assert_eq!(retry.failures, 2, "{code:?}");
            let sent = world.sent.len();
            world.pass();
            assert_eq!(world.sent.len(), sent, "{code:?}: once for each process");
        }
    }
}
