//! What "there is none" proves after a create whose outcome is not known.

use std::time::Duration;

use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind as Kind},
    machine::WaitReason,
};
use ostler_lifecycle::{
    operation::{OperationView, Request, Success},
    plan::EventReason,
};

use crate::machine::world::{PROVIDER_ID, World, seconds};

/// A create in flight while its Machine is deleted.
fn deleted_while_created(lag: Option<u64>) -> World {
    let mut world = World::new();
    world.list_lag = lag.map(Duration::from_secs);
    world.pass();
    world.answer();
    world.pass();
    assert_eq!(world.kinds_sent().last(), Some(&Kind::CreateMachine));
    world.delete();
    world.pass();
    world
}

/// The driver finds nothing, whatever is there, until the Machine rests.
fn settle_unseen(world: &mut World) {
    let hidden = std::mem::take(&mut world.instances);
    world.settle();
    world.instances.extend(hidden);
}

const UNCERTAIN: [(ErrorCode, Certainty); 4] = [
    (ErrorCode::Canceled, Certainty::Partial),
    (ErrorCode::Canceled, Certainty::Unknown),
    (ErrorCode::Unavailable, Certainty::Partial),
    (ErrorCode::Internal, Certainty::Unknown),
];

#[test]
fn an_instance_that_lists_show_late_is_deleted_and_its_machine_stays_until_then() {
    for (code, certainty) in UNCERTAIN {
        for (lag, seconds) in [(Some(20), 20), (None, 60)] {
            let mut world = deleted_while_created(lag);
            world.carry_out().unwrap();
            world.fail(code, certainty);
            settle_unseen(&mut world);
            assert_eq!(world.waits_for(), Some(WaitReason::AbsenceUnconfirmed), "{code}");
            let until = world.status().retry.unwrap().not_before.unwrap().0;
            let said = world.status().waiting_for.unwrap().message.unwrap();
            assert!(said.contains(&until.to_string()), "{said}");
            assert_eq!(until, self::seconds(world.now, seconds + 1), "{code} {certainty:?}");
            world.later(seconds - 1);
            settle_unseen(&mut world);
            assert!(world.machine.is_some(), "{code}: too early");
            world.later(2);
            world.settle();
            assert!(world.machine.is_none() && world.instances.is_empty(), "{code}");
            assert_eq!(world.count(Kind::DeleteMachine), 2, "{code} {certainty:?}");
            assert!(world.happened(EventReason::InstanceDeleted), "{code}");
        }
    }
}

#[test]
fn a_node_that_joined_while_its_instance_was_not_shown_is_drained_before_that_goes() {
    let mut world = deleted_while_created(Some(20));
    world.carry_out().unwrap();
    world.fail(ErrorCode::Internal, Certainty::Unknown);
    settle_unseen(&mut world);
    world.join();
    world.later(22);
    while world.count(Kind::DeleteMachine) < 2 {
        let reads = world.count(Kind::GetMachineStatus);
        world.pass();
        if world.count(Kind::GetMachineStatus) > reads {
            world.answer();
        }
    }
    assert!(world.status().drain.unwrap().finished);
}

#[test]
fn where_there_was_none_the_event_says_so() {
    let mut world = deleted_while_created(None);
    world.fail(ErrorCode::Internal, Certainty::Unknown);
    world.settle();
    world.later(61);
    world.settle();
    assert!(world.machine.is_none());
    assert!(!world.happened(EventReason::InstanceDeleted));
    let said = world.events.iter().find(|it| it.reason == EventReason::InstanceAbsent).unwrap();
    assert_eq!(said.message, "there was no instance to delete");
    let mut gone = World::running();
    gone.instances.clear();
    gone.delete();
    gone.settle();
    let said = gone.events.iter().find(|it| it.reason == EventReason::InstanceAbsent).unwrap();
    assert_eq!(said.message, format!("there was no instance {PROVIDER_ID} to delete"));
}

#[test]
fn a_create_with_a_known_outcome_or_none_costs_the_deletion_no_wait() {
    for code in [ErrorCode::Canceled, ErrorCode::ResourceExhausted] {
        let mut world = deleted_while_created(None);
        world.refuse(code);
        world.settle();
        assert!(world.machine.is_none(), "{code}");
        assert_eq!(world.count(Kind::DeleteMachine), 1, "{code}");
    }
    let mut made = deleted_while_created(None);
    made.answer();
    made.settle();
    assert!(made.machine.is_none());
    let mut exact = deleted_while_created(Some(0));
    exact.fail(ErrorCode::Internal, Certainty::Unknown);
    exact.settle();
    exact.later(1);
    exact.settle();
    assert!(exact.machine.is_none(), "the infrastructure shows everything at once");
}

#[test]
fn a_create_whose_core_or_driver_died_is_one_of_unknown_outcome() {
    for erased in [false, true] {
        let mut world = deleted_while_created(None);
        world.lose_operation();
        if erased {
            world.erase_ours();
        }
        settle_unseen(&mut world);
        assert_eq!(world.waits_for(), Some(WaitReason::AbsenceUnconfirmed), "{erased}");
        world.later(61);
        world.settle();
        assert!(world.machine.is_none(), "{erased}");
    }
}

#[test]
fn a_driver_that_cannot_read_is_asked_twice_as_well() {
    let mut world = World::new();
    world.kinds.remove(&Kind::GetMachineStatus);
    world.pass();
    assert_eq!(world.kinds_sent().last(), Some(&Kind::CreateMachine));
    world.delete();
    world.lose_operation();
    settle_unseen(&mut world);
    assert_eq!(world.waits_for(), Some(WaitReason::AbsenceUnconfirmed));
    world.later(61);
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn the_time_counts_from_the_last_create_and_one_long_ago_costs_nothing() {
    let mut world = deleted_while_created(None);
    world.fail(ErrorCode::Internal, Certainty::Unknown);
    world.later(3600);
    world.settle();
    // The outcome came now, so the time begins now.
    assert!(world.machine.is_some());
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world.fail(ErrorCode::InvalidArgument, Certainty::Partial);
    world.pass();
    world.later(3600);
    world.delete();
    world.settle();
    assert!(world.machine.is_none());
    assert_eq!(world.count(Kind::DeleteMachine), 1);
}

#[test]
fn the_second_look_has_the_checkpoint_of_the_create() {
    let mut world = deleted_while_created(None);
    world.fail(ErrorCode::Canceled, Certainty::Partial);
    let OperationView::Finished(finished) = &mut world.operation else { panic!() };
    finished.checkpoint = Some("disk-7".to_owned());
    for look in 0..2 {
        while world.sent.last().unwrap().kind() != Kind::DeleteMachine
            || look > 0 && world.count(Kind::DeleteMachine) < 2
        {
            world.pass();
            if world.sent.last().unwrap().kind() == Kind::GetMachineStatus {
                world.answer();
            }
        }
        let sent = world.sent.last().unwrap();
        assert_eq!((sent.kind(), sent.checkpoint.as_str()), (Kind::DeleteMachine, "disk-7"));
        world.reply(Ok(Success::Deleted { was_absent: true }));
        let OperationView::Finished(finished) = &mut world.operation else { panic!() };
        finished.checkpoint = Some(String::new());
        world.pass();
        world.later(61);
    }
    assert!(world.machine.is_none());
}

#[test]
fn a_driver_that_says_that_its_lists_lag_makes_no_second_instance_before_that() {
    let mut world = World::new();
    world.list_lag = Some(Duration::from_secs(20));
    world.pass();
    world.answer();
    world.pass();
    world.carry_out().unwrap();
    world.lose_operation();
    settle_unseen(&mut world);
    assert_eq!(world.waits_for(), Some(WaitReason::DriverRetry));
    assert_eq!(world.count(Kind::CreateMachine), 1);
    world.later(15);
    world.settle();
    assert_eq!(world.count(Kind::CreateMachine), 1, "it was found");
    assert_eq!(world.status().creation_unconfirmed_since, None);
    let mut none = World::new();
    none.list_lag = Some(Duration::from_secs(20));
    none.pass();
    none.answer();
    none.pass();
    none.lose_operation();
    none.settle();
    none.later(15);
    none.settle();
    assert_eq!(none.count(Kind::CreateMachine), 1);
    none.later(6);
    none.settle();
    assert_eq!(none.count(Kind::CreateMachine), 2);
}

#[test]
fn an_instance_that_was_found_is_deleted_like_any_other() {
    let mut world = deleted_while_created(None);
    world.carry_out().unwrap();
    world.fail(ErrorCode::Internal, Certainty::Unknown);
    world.settle();
    assert!(world.machine.is_none() && world.instances.is_empty());
    assert_eq!(world.count(Kind::DeleteMachine), 1);
    let named =
        |it: &Request| matches!(it, Request::Delete { provider_id } if *provider_id == PROVIDER_ID);
    assert!(world.sent.iter().any(|it| named(&it.request)));
}
