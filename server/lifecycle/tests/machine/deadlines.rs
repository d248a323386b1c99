//! Whatever a Machine waits for, and for however long: it is looked at when its time is over.

use jiff::SignedDuration;
use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind as Kind},
    machine::{FailureReason, MachinePhase, WaitReason},
};
use ostler_lifecycle::{
    operation::OperationView, outage::Outage, plan::Next, snapshot::SecretView,
};

use crate::machine::world::{World, looks_again};

/// A machine that may take so long, until this verb is in flight.
fn with_timeout(timeout: &str, kind: Kind) -> World {
    let mut world = World::new();
    world.machine_mut().spec.creation_timeout = Some(timeout.into());
    for _ in 0..8 {
        world.pass();
        let OperationView::InFlight(flight) = &world.operation else { continue };
        if flight.kind == kind {
            return world;
        }
        world.answer();
    }
    panic!("{kind} is never sent");
}

/// Sleeps for as long as the plans say, until the machine has failed; how long that took. The given verb fails each
/// time.
fn until_failed(world: &mut World, kind: Kind, code: ErrorCode) -> i64 {
    let begun = world.now;
    for _ in 0..200 {
        if let OperationView::InFlight(flight) = &world.operation {
            if flight.kind == kind { world.refuse(code) } else { world.answer() }
        }
        world.pass();
        if world.phase() == MachinePhase::Failed {
            return world.now.duration_since(begun).as_secs();
        }
        // A driver that is asked answers at once.
        let asked = matches!(world.operation, OperationView::InFlight(_));
        if let Next::Wait { until, .. } = &world.next
            && !asked
        {
            world.now = *until;
        }
    }
    panic!("it does not fail: {:#?}", world.status());
}

#[test]
fn a_creation_whose_attempts_fail_ends_at_its_deadline_and_not_with_the_next_attempt() {
    for timeout in [20, 60, 1200] {
        for (kind, reason) in [
            (Kind::GetMachineStatus, FailureReason::CreationTimeout),
            (Kind::CreateMachine, FailureReason::CreationTimeout),
            (Kind::InitializeMachine, FailureReason::InitializationTimeout),
        ] {
            for code in [
                ErrorCode::Uninitialized,
                ErrorCode::Internal,
                ErrorCode::PermissionDenied,
                ErrorCode::ResourceExhausted,
            ] {
                if kind == Kind::GetMachineStatus && code == ErrorCode::Uninitialized {
                    continue;
                }
                let mut world = with_timeout(&format!("{timeout}s"), kind);
                assert_eq!(until_failed(&mut world, kind, code), timeout, "{kind} {code}");
                assert_eq!(world.status().failure_reason, Some(reason.clone()), "{kind} {code}");
            }
        }
    }
}

#[test]
fn a_creation_that_only_another_class_could_mend_ends_at_its_deadline_too() {
    let mut world = with_timeout("2m", Kind::CreateMachine);
    let (kind, code) = (Kind::CreateMachine, ErrorCode::InvalidArgument);
    assert_eq!(until_failed(&mut world, kind, code), 120);
}

#[test]
fn a_creation_that_began_and_now_lacks_its_class_or_secret_ends_at_its_deadline() {
    for class in [true, false] {
        for kind in [Kind::CreateMachine, Kind::InitializeMachine] {
            let mut world = with_timeout("2m", kind);
            world.refuse(ErrorCode::Unavailable);
            world.pass();
            if class {
                world.class = None;
            } else {
                world.secret = SecretView::Missing(vec!["default/s".to_owned()]);
            }
            let code = ErrorCode::Unavailable;
            assert_eq!(until_failed(&mut world, kind, code), 120, "class {class} {kind}");
        }
    }
}

/// Kubelets have ten seconds to report again after an outage. A Machine that did not run yet has nothing to repeat.
#[test]
fn an_outage_that_was_over_when_a_creation_began_gives_it_no_more_time() {
    for (ended_before, lost) in [(5, 0), (-5, 5 + 10)] {
        let mut world = World::new();
        world.machine_mut().spec.creation_timeout = Some("100s".into());
        let to = world.now.checked_sub(SignedDuration::from_secs(ended_before)).unwrap();
        let from = to.checked_sub(SignedDuration::from_secs(60)).unwrap();
        world.api.outages = [Outage { from, to }].into();
        world.settle();
        let began = world.status().creation_started_at.unwrap().0;
        let mut late = began;
        while world.phase() != MachinePhase::Failed {
            world.later(1);
            world.settle();
            late = world.now;
        }
        assert_eq!(late.duration_since(began).as_secs(), 100 + lost, "{ended_before}");
    }
}

#[test]
fn no_creation_fails_because_no_driver_is_there() {
    for kind in [Kind::CreateMachine, Kind::InitializeMachine] {
        let mut world = with_timeout("2m", kind);
        world.refuse(ErrorCode::Unavailable);
        world.connected = false;
        world.pass();
        world.later(7200);
        world.pass();
        assert_eq!(world.waits_for(), Some(WaitReason::DriverUnavailable), "{kind}");
        world.connected = true;
        world.pass();
        assert_eq!(world.phase(), MachinePhase::Failed, "{kind}: its time is over");
    }
}

#[test]
fn the_answer_of_a_driver_that_works_is_waited_for_and_no_pass_is_made_meanwhile() {
    let mut world = with_timeout("20s", Kind::CreateMachine);
    world.later(2);
    world.pass();
    assert_eq!(world.next, Next::OnChange);
    world.later(60);
    world.fail(ErrorCode::Internal, Certainty::NotApplied);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
}

#[test]
fn the_health_timeout_ends_every_wait_of_an_unhealthy_node() {
    let mut world = World::running();
    world.node_is("Unknown");
    world.pass();
    world.settle();
    let plan = world.pass();
    assert!(looks_again(&world, &plan).unwrap() <= 600);
}
