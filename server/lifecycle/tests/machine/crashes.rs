//! The core or the driver dies at every point: there is never a second instance, and none is lost.

use ostler_api::ProviderId;
use std::time::Duration;

use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind as Kind},
    machine::{MachinePhase, MachineStep, WaitReason},
};
use ostler_lifecycle::operation::{OperationView, Place, Progress};
use ostler_lifecycle::plan::{Action, EventReason, Next};
use ostler_lifecycle::snapshot::Observed;
use ostler_lifecycle::user_data::token_id;

use crate::machine::world::{PROVIDER_ID, UID, World};

/// Where the core dies while an operation of this kind is at work.
#[derive(Debug, Clone, Copy)]
enum Point {
    /// The intent is written, nothing was sent.
    BeforeSending,
    /// Sent and carried out; the result never arrives.
    ResultLost,
    /// Sent, not carried out, and the driver dies too.
    RequestLost,
    /// Carried out; the driver cannot tell.
    DriverCannotTell,
}

const POINTS: [Point; 4] =
    [Point::BeforeSending, Point::ResultLost, Point::RequestLost, Point::DriverCannotTell];

/// Runs until an operation of this kind is in flight, dies there, and goes on.
fn die(world: &mut World, kind: Kind, point: Point) {
    for _ in 0..30 {
        if world.sent.last().is_some_and(|last| last.kind() == kind)
            && matches!(world.operation, OperationView::InFlight(_))
        {
            break;
        }
        if matches!(world.operation, OperationView::InFlight(_)) {
            world.answer();
        }
        world.pods_end();
        world.pass();
    }
    assert_eq!(world.sent.last().unwrap().kind(), kind, "{point:?}");
    match point {
        Point::BeforeSending | Point::RequestLost => {
            world.forget_unwritten();
            world.lose_operation();
        }
        Point::ResultLost => {
            let _lost = world.carry_out();
            world.forget_unwritten();
            world.lose_operation();
        }
        Point::DriverCannotTell => {
            let _lost = world.carry_out();
            world.fail(ErrorCode::Unknown, Certainty::Unknown);
        }
    }
    world.pass();
    world.later(10);
}

#[test]
fn a_crash_during_the_create_leaves_one_instance() {
    for point in POINTS {
        let mut world = World::new();
        die(&mut world, Kind::CreateMachine, point);
        world.settle();
        assert_eq!(world.instances.len(), 1, "{point:?}");
        let carried_out = !matches!(point, Point::BeforeSending | Point::RequestLost);
        assert_eq!(world.creates, 1, "{point:?}");
        assert_eq!(world.count(Kind::CreateMachine), if carried_out { 1 } else { 2 }, "{point:?}");
        assert_eq!(world.step(), Some(MachineStep::JoinNode), "{point:?}");
        assert!(world.instances[0].initialized, "{point:?}");
    }
}

#[test]
fn a_crash_during_the_initialization_is_made_good() {
    for point in POINTS {
        let mut world = World::new();
        die(&mut world, Kind::InitializeMachine, point);
        world.settle();
        world.join();
        world.settle();
        assert_eq!(world.phase(), MachinePhase::Running, "{point:?}");
        assert!(world.instances[0].initialized, "{point:?}");
        assert_eq!(world.creates, 1);
    }
}

#[test]
fn a_crash_during_an_update_ends_with_the_current_spec() {
    for point in POINTS {
        let mut world = World::running();
        world.edit_class(serde_json::json!({ "size": 1, "tags": { "b": "1" } }));
        die(&mut world, Kind::UpdateMachine, point);
        world.settle();
        assert_eq!(world.instances[0].spec, r#"{"size":1,"tags":{"b":"1"}}"#, "{point:?}");
        assert_eq!(world.applied().unwrap(), world.instances[0].spec, "{point:?}");
        assert_eq!(world.status().hot_update, None, "{point:?}");
    }
}

#[test]
fn a_crash_during_the_deletion_leaves_no_instance_and_no_machine() {
    for point in POINTS {
        let mut world = World::running();
        world.delete();
        die(&mut world, Kind::DeleteMachine, point);
        world.settle();
        assert!(world.machine.is_none(), "{point:?}");
        assert!(world.instances.is_empty(), "{point:?}");
    }
}

#[test]
fn a_machine_deleted_after_a_crash_in_its_create_leaves_no_instance() {
    for point in POINTS {
        let mut world = World::new();
        die(&mut world, Kind::CreateMachine, point);
        world.delete();
        world.settle();
        // Whether the request was sent is unknown.
        world.later(61);
        world.settle();
        assert!(world.machine.is_none(), "{point:?}");
        assert!(world.instances.is_empty(), "{point:?}");
    }
}

#[test]
fn a_create_whose_result_is_delivered_twice_is_one_create() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    let outcome = world.carry_out();
    world.reply(outcome);
    let again = world.operation.clone();
    world.pass();
    world.operation = again;
    world.settle();
    assert_eq!(world.count(Kind::CreateMachine), 1);
    assert_eq!(world.step(), Some(MachineStep::JoinNode));
}

#[test]
fn the_result_of_an_earlier_delivery_counts_for_the_intent() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    let outcome = world.carry_out();
    let OperationView::InFlight(flight) = &mut world.operation else { panic!() };
    flight.id = "from before the restart".into();
    world.reply(outcome);
    world.pass();
    assert_eq!(
        world.machine().provider_id().map(ProviderId::as_str),
        Some(crate::machine::world::PROVIDER_ID)
    );
    assert_eq!(world.count(Kind::CreateMachine), 1);
}

#[test]
fn a_checkpoint_of_a_running_create_is_kept_and_comes_with_the_next_one_after_a_crash() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    let OperationView::InFlight(flight) = &mut world.operation else { panic!("nothing in flight") };
    assert_eq!(flight.kind, Kind::CreateMachine);
    flight.progress = Some(Progress { checkpoint: "disk-1".to_owned(), ..<_>::default() });
    world.pass();
    assert_eq!(world.status().last_known_state.as_deref(), Some("disk-1"));
    world.lose_operation();
    world.pass();
    world.refuse(ErrorCode::NotFound);
    world.pass();
    let again = world.sent.last().unwrap();
    assert_eq!((again.kind(), again.checkpoint.as_str()), (Kind::CreateMachine, "disk-1"));
}

#[test]
fn a_driver_that_has_said_nothing_for_long_is_named_as_what_is_waited_for() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world.later(120);
    for stalled in [true, false] {
        let OperationView::InFlight(flight) = &mut world.operation else { panic!() };
        flight.stalled = stalled;
        flight.progress = Some(Progress { stage: "Boot".to_owned(), ..<_>::default() });
        world.pass();
        let waits = world.status().waiting_for.unwrap();
        assert_eq!(waits.reason == WaitReason::DriverStalled, stalled);
        assert_eq!(waits.message.unwrap().contains("Boot"), stalled);
    }
}

#[test]
fn an_operation_that_the_driver_does_not_have_yet_says_that_it_waits_in_the_core_and_why() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world.later(120);
    let pause = Duration::from_mins(1);
    let end = world.now + jiff::SignedDuration::from_secs(60);
    for (place, reason, why) in [
        (
            Place::Queued,
            WaitReason::OperationQueued,
            "the driver or --provider-rate is at its limit".to_owned(),
        ),
        (Place::Paused(pause), WaitReason::OperationQueued, format!("paused until {end}")),
        (Place::Unserved, WaitReason::DriverUnavailable, "no driver for provider".to_owned()),
    ] {
        let OperationView::InFlight(flight) = &mut world.operation else { panic!() };
        flight.place = place;
        let plan = world.pass();
        let waits = world.status().waiting_for.unwrap();
        assert_eq!(waits.reason, reason);
        let text = waits.message.unwrap();
        let said = text.starts_with("CreateMachine is queued in the core: ") && text.contains(&why);
        assert!(said, "{text}");
        assert_eq!(matches!(plan.next, Next::Wait { .. }), place == Place::Paused(pause));
    }
}

#[test]
fn a_driver_that_lost_its_session_is_waited_for_by_that_name_and_until_when() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world.later(120);
    for left in [Some(60), None] {
        let OperationView::InFlight(flight) = &mut world.operation else { panic!() };
        flight.place = left.map_or(Place::Sent, |left| Place::Lost(Duration::from_secs(left)));
        let plan = world.pass();
        let waits = world.status().waiting_for.unwrap();
        assert_eq!(waits.reason == WaitReason::DriverLost, left.is_some(), "{waits:?}");
        let Some(left) = left else { return };
        let until = world.now + jiff::SignedDuration::from_secs(i64::try_from(left).unwrap());
        assert!(waits.message.unwrap().contains(&until.to_string()));
        assert_eq!(plan.next, Next::Wait { reason: WaitReason::DriverLost, until });
    }
}

#[test]
fn a_driver_of_the_previous_leader_is_waited_for_by_that_name_and_until_when() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world.operation = OperationView::Expected(Duration::from_secs(30));
    world.pass();
    let waits = world.status().waiting_for.unwrap();
    assert_eq!(waits.reason, WaitReason::DriverLost, "{waits:?}");
}

#[test]
fn a_checkpoint_is_kept_over_every_failure_and_goes_with_a_success_that_brings_none() {
    for code in ErrorCode::ALL.into_iter().map(Some).chain([None]) {
        let mut world = World::new();
        world.pass();
        world.answer();
        world.pass();
        assert_eq!(world.sent.last().unwrap().kind(), Kind::CreateMachine);
        world.machine_mut().status.as_mut().unwrap().last_known_state = Some("disk-1".to_owned());
        match code {
            Some(code) => world.refuse(code),
            None => world.answer(),
        }
        let OperationView::Finished(finished) = &mut world.operation else { panic!("no answer") };
        finished.checkpoint = Some(String::new());
        world.pass();
        let kept = world.status().last_known_state;
        assert_eq!(kept.as_deref(), code.map(|_| "disk-1"), "{code:?}");
    }
}

#[test]
fn a_create_that_was_lost_before_another_one_failed_still_counts_for_what_is_applied() {
    let mut world = World::new();
    let creates =
        |world: &World| world.sent.last().is_some_and(|it| it.kind() == Kind::CreateMachine);
    while !creates(&world) {
        world.pass();
        if !creates(&world) && !world.sent.is_empty() {
            world.answer();
        }
    }
    let _outcome = world.carry_out();
    world.lose_operation();
    world.edit_class(serde_json::json!({ "size": 1, "tags": { "a": "2" } }));
    world.later(1);
    world.pass();
    world.fail(ErrorCode::Unimplemented, Certainty::NotApplied);
    world.pass();
    assert!(creates(&world), "the driver cannot read");
    world.fail(ErrorCode::Unavailable, Certainty::NotApplied);
    world.pass();
    world.later(60);
    world.pass();
    world.fail(ErrorCode::Unimplemented, Certainty::NotApplied);
    world.pass();
    world.answer();
    world.pass();
    assert_eq!(world.applied(), None, "the instance may have the spec of the first create");
}

#[test]
fn a_create_that_did_happen_is_told_as_one_once_it_is_found() {
    for certainty in [Certainty::Unknown, Certainty::Partial] {
        let mut world = World::new();
        world.pass();
        world.answer();
        world.pass();
        let _lost = world.carry_out();
        world.fail(ErrorCode::Unavailable, certainty);
        world.pass();
        assert!(world.happened(EventReason::InstanceCreateFailed));
        assert!(!world.happened(EventReason::InstanceCreated));
        for _ in 0..3 {
            world.later(120);
            world.settle();
        }
        let told = world.events.iter().filter(|it| it.reason == EventReason::InstanceCreated);
        let told: Vec<_> = told.map(|it| it.message.as_str()).collect();
        assert_eq!(told, [PROVIDER_ID], "{certainty:?}");
        let shown = world.status().conditions;
        let shown = shown.iter().find(|it| it.type_ == "InstanceCreated").unwrap();
        assert_eq!((shown.status.as_str(), shown.reason.as_deref()), ("True", Some("Created")));
    }
}

#[test]
fn a_core_that_dies_with_the_status_of_a_create_unwritten_looks_before_it_creates() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    assert_eq!(world.sent.last().unwrap().kind(), Kind::CreateMachine);
    assert!(world.unwritten.is_some(), "the annotation has the create");
    let _lost = world.carry_out();
    world.forget_unwritten();
    world.lose_operation();
    assert_eq!(world.machine().status, None);
    assert_eq!(world.machine().intent().unwrap().operation_kind(), Some(Kind::CreateMachine));
    world.pass();
    assert_eq!(world.sent.last().unwrap().kind(), Kind::GetMachineStatus);
    world.settle();
    assert_eq!(world.creates, 1);
}

#[test]
fn the_status_of_a_slow_create_is_written_after_two_seconds() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    assert!(world.unwritten.is_some());
    let due = world.now + Duration::from_secs(2);
    assert!(matches!(world.next, Next::Wait { until, .. } if until == due), "{:?}", world.next);
    world.later(1);
    world.pass();
    assert!(world.unwritten.is_some());
    world.later(1);
    world.pass();
    assert!(world.unwritten.is_none());
    assert!(world.status().operation.is_some());
}

#[test]
fn a_status_does_not_wait_as_long_as_the_clock_was_set_back() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    assert!(world.unwritten.is_some());
    world.later(-100_000);
    world.pass();
    assert!(world.unwritten.is_none());
    assert!(world.status().operation.is_some());
}

#[test]
fn the_failure_of_a_first_create_is_written() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world.fail(ErrorCode::Internal, Certainty::Unknown);
    world.pass();
    assert!(world.unwritten.is_none(), "a failure is written");
}

#[test]
fn a_core_that_dies_with_the_result_of_a_create_unwritten_knows_the_instance_and_its_deadline() {
    let mut world = World::new();
    world.kinds.remove(&Kind::InitializeMachine);
    world.pass();
    world.answer();
    world.pass();
    let began = world.now;
    world.answer();
    world.pass();
    assert_eq!(world.operation, OperationView::Idle, "the result is acknowledged");
    assert!(world.unwritten.is_some());
    assert!(!world.happened(EventReason::InstanceCreated), "told with the status");
    world.forget_unwritten();
    assert_eq!(world.machine().status, None);
    assert_eq!(world.machine().provider_id().map(ProviderId::as_str), Some(PROVIDER_ID));
    world.later(60);
    let made = std::mem::take(&mut world.instances);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::DriverRetry), "the driver lists it late");
    world.instances = made;
    world.later(15);
    world.settle();
    assert_eq!((world.creates, world.step()), (1, Some(MachineStep::JoinNode)));
    assert_eq!(world.status().creation_started_at.unwrap().0, began);
}

#[test]
fn a_checkpoint_that_comes_with_the_result_of_a_create_is_written_before_that_is_acknowledged() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world.answer();
    let OperationView::Finished(finished) = &mut world.operation else { panic!("no result") };
    assert_eq!(finished.kind, Kind::CreateMachine);
    finished.checkpoint = Some("disk-1".to_owned());
    let plan = world.pass();
    assert!(plan.acknowledge.is_some());
    assert!(world.unwritten.is_none(), "nothing in the metadata has it");
    assert_eq!(world.status().last_known_state.as_deref(), Some("disk-1"));
}

/// A world in which the instance was made, by a driver that initializes none, and the status says nothing of it.
fn made_unwritten() -> World {
    let mut world = World::new();
    world.kinds.remove(&Kind::InitializeMachine);
    world.pass();
    world.answer();
    world.pass();
    world.answer();
    world.pass();
    world
}

#[test]
fn a_core_that_dies_with_the_status_of_a_create_unwritten_knows_the_token_and_deletes_it() {
    // Without a read, the next core does not know what the one before made.
    let made = |known: bool| {
        let mut world = made_unwritten();
        assert!(world.unwritten.is_some() && world.token.known().is_some());
        world.forget_unwritten();
        if !known {
            world.token = Observed::Unknown;
        }
        world
    };
    let mut joins = made(true);
    joins.settle();
    assert_eq!(joins.status().bootstrap_token_id, Some(token_id(UID)));
    joins.node_is("True");
    joins.settle();
    assert_eq!(joins.phase(), MachinePhase::Running);
    assert_eq!(joins.token, Observed::Absent);

    for known in [true, false] {
        let mut goes = made(known);
        goes.delete();
        let plan = goes.pass();
        assert!(
            plan.actions.iter().any(|it| matches!(it, Action::DeleteBootstrapToken { .. })),
            "INV-4: {known} {:?}",
            plan.actions
        );
        assert_eq!(goes.count(Kind::DeleteMachine), 0, "the node is looked for after that");
        goes.settle();
        assert!(goes.machine.is_none());
    }
}

#[test]
fn a_node_that_joins_within_moments_is_told_and_the_creation_before_it_is_not() {
    let mut world = made_unwritten();
    world.node_is("True");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert!(world.unwritten.is_none());
    assert!(world.happened(EventReason::NodeJoined));
    assert!(!world.happened(EventReason::InstanceCreated));
}

/// A world in which the instance was made and is being initialized, and the status says nothing of either.
fn initializing_unwritten() -> World {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world.answer();
    world.pass();
    assert_eq!(world.sent.last().unwrap().kind(), Kind::InitializeMachine);
    assert!(world.unwritten.is_some(), "the metadata have the instance and the intent");
    world
}

#[test]
fn a_core_that_dies_with_the_status_of_an_initialization_unwritten_looks_and_does_it_again() {
    for (carried_out, minutes) in [(true, 0), (false, 0), (true, 60), (false, 60)] {
        let mut world = initializing_unwritten();
        if carried_out {
            let _lost = world.carry_out();
        }
        world.forget_unwritten();
        world.lose_operation();
        assert_eq!(world.machine().status, None);
        let intent = world.machine().intent().unwrap();
        assert_eq!(intent.operation_kind(), Some(Kind::InitializeMachine));
        world.later(minutes * 60);
        world.settle();
        let said = format!("carried out: {carried_out}, {minutes} minutes later");
        let looked = world.kinds_sent().get(3) == Some(&Kind::GetMachineStatus);
        assert_eq!(looked, minutes == 0, "{said}");
        assert_eq!(world.creates, 1, "{said}");
        let again = usize::from(!carried_out && minutes == 0);
        assert_eq!(world.count(Kind::InitializeMachine), 1 + again, "{said}");
        if minutes == 0 {
            assert_eq!(world.step(), Some(MachineStep::JoinNode), "{said}");
        } else {
            assert_eq!(world.phase(), MachinePhase::Failed, "{said}: the creation has a limit");
        }
    }
}

#[test]
fn an_initialization_that_a_driver_brings_to_the_next_core_is_waited_for() {
    let mut world = initializing_unwritten();
    let brought = world.operation.clone();
    world.forget_unwritten();
    world.operation = OperationView::Expected(Duration::from_secs(30));
    let plan = world.pass();
    assert_eq!(plan.dispatch, None);
    world.operation = brought;
    world.answer();
    world.pass();
    assert_eq!(world.step(), Some(MachineStep::JoinNode));
    assert_eq!(world.count(Kind::InitializeMachine), 1);
}

#[test]
fn the_result_of_an_initialization_is_written_before_it_is_acknowledged() {
    let mut world = initializing_unwritten();
    world.answer();
    let plan = world.pass();
    assert!(plan.acknowledge.is_some());
    assert!(world.unwritten.is_none(), "nothing in the metadata says that it was done");
    world.forget_unwritten();
    world.lose_operation();
    world.settle();
    assert_eq!(world.count(Kind::InitializeMachine), 1);
}
