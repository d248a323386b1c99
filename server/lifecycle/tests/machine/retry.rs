//! Every row of the retry table, seen in what a machine does.

use std::time::Duration;

use ostler_api::driver::{Certainty, ErrorCode, OperationKind as Kind};
use ostler_api::machine::{MachinePhase, MachineStep};
use ostler_api::operation::Reason;
use ostler_lifecycle::machine::{First, Move, rule};
use ostler_lifecycle::operation::{Failure, OperationView};

use crate::world::World;

const VERBS: [Kind; 5] = [
    Kind::CreateMachine,
    Kind::InitializeMachine,
    Kind::UpdateMachine,
    Kind::DeleteMachine,
    Kind::GetMachineStatus,
];
const CERTAINTIES: [Certainty; 3] = [Certainty::NotApplied, Certainty::Partial, Certainty::Unknown];

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
fn waits(world: &mut World, kind: Kind, first: Duration, then: First, case: &str) {
    assert_eq!(sent_after(world, Duration::ZERO), None, "{case}");
    assert_eq!(sent_after(world, first.saturating_sub(Duration::from_secs(1))), None, "{case}");
    // A create is never sent without a look at what is there.
    let looks = then == First::Read || kind == Kind::CreateMachine;
    let next = if looks { Kind::GetMachineStatus } else { kind };
    assert_eq!(sent_after(world, Duration::from_secs(1)), Some(next), "{case}");
}

fn follow(kind: Kind, failure: &Failure) {
    let case = format!("{kind} {failure:?}");
    let rule = rule(kind, failure.code, &failure.reason, failure.certainty);
    let mut world = in_flight(kind);
    world.reply(Err(failure.clone()));
    world.pass();
    let status = world.machine.as_ref().map(|_| world.status()).unwrap_or_default();
    if let Some(retry) = &status.retry {
        assert_eq!(
            (&retry.reason, retry.code.as_str()),
            (&rule.reason, failure.code.name()),
            "{case}"
        );
    }
    match rule.then {
        Move::Backoff { first, .. } | Move::OnSecretChange { first, .. } => {
            waits(&mut world, kind, first, rule.first, &case);
        }
        Move::WhenThereIsRoom => {
            waits(&mut world, kind, Duration::from_mins(10), rule.first, &case);
        }
        Move::OnClassChange => {
            assert_eq!(sent_after(&mut world, Duration::from_mins(15)), None, "{case}");
            world.edit_class(serde_json::json!({ "size": 2 }));
            assert!(sent_after(&mut world, Duration::ZERO).is_some(), "{case}");
        }
        Move::GiveUp(reason) => {
            assert_eq!(
                (world.phase(), status.failure_reason),
                (MachinePhase::Failed, Some(reason))
            );
            assert_eq!(sent_after(&mut world, Duration::from_hours(1)), None, "{case}");
        }
        Move::Accept if kind == Kind::DeleteMachine => assert!(world.machine.is_none(), "{case}"),
        Move::Accept => assert_eq!(status.step, Some(MachineStep::JoinNode), "{case}"),
        Move::Refuse(state) => {
            assert_eq!(status.hot_update.map(|update| update.state), Some(state), "{case}");
            assert_eq!(world.phase(), MachinePhase::Running, "{case}");
            assert_eq!(sent_after(&mut world, Duration::from_hours(1)), None, "{case}");
        }
        Move::LookAgain { first, .. } => {
            assert_eq!(sent_after(&mut world, first / 2), None, "{case}");
            assert_eq!(sent_after(&mut world, first), Some(Kind::GetMachineStatus), "{case}");
        }
        Move::Absent | Move::GoOn => {
            assert_eq!(flying(&world), Some(Kind::CreateMachine), "{case}");
        }
        Move::NotInitialized => {
            assert_eq!(flying(&world), Some(Kind::InitializeMachine), "{case}");
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
        waits(&mut world, Kind::DeleteMachine, hour, First::Nothing, code.name());
    }
}

/// Some rows by hand, so that table and machine cannot be wrong together.
#[test]
fn the_table_keeps_its_promises() {
    let then = |kind, code| rule(kind, code, "", Certainty::NotApplied).then;
    for code in ErrorCode::ALL {
        let accepted = then(Kind::DeleteMachine, code) == Move::Accept;
        assert_eq!(accepted, code == ErrorCode::NotFound, "{code}");
        for kind in VERBS {
            if matches!(then(kind, code), Move::GiveUp(_)) {
                assert!(
                    matches!(kind, Kind::CreateMachine | Kind::InitializeMachine),
                    "{kind} {code}"
                );
            }
            if kind.is_mutation() && matches!(then(kind, code), Move::Backoff { .. }) {
                let unknown = rule(kind, code, "", Certainty::Unknown);
                assert_eq!(unknown.first, First::Read, "{kind} {code}");
            }
        }
    }
    assert_eq!(then(Kind::InitializeMachine, ErrorCode::Unimplemented), Move::Accept);
    assert_eq!(then(Kind::CreateMachine, ErrorCode::InvalidArgument), Move::OnClassChange);
    assert_eq!(then(Kind::GetMachineStatus, ErrorCode::NotFound), Move::Absent);
    let internal = then(Kind::GetMachineStatus, ErrorCode::Internal);
    assert!(matches!(internal, Move::Backoff { .. }), "a failure to look is not an absence");
}
