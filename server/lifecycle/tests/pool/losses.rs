//! A group that is gone again and again, and instances of a pool that fail one after the other.

use jiff::SignedDuration;
use ostler_api::{
    driver::OperationKind as Kind,
    machine::{LastOperation, MachineOperationType, MachinePhase, MachineState},
};
use ostler_lifecycle::operation::{OperationView, Request};
use serde_json::json;

use crate::pool::world::{World, changed, request, set_phase, victims};

fn later(world: &mut World, seconds: i64) {
    world.now = world.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
}

/// The group is gone; after how many seconds it is made again.
fn lose_group(world: &mut World) -> i64 {
    let group = world.group.take();
    world.absent_looks = 2;
    let begun = world.now;
    for _ in 0..5 {
        let plan = world.pass();
        if let Some(Request::CreatePool { .. }) = request(&plan) {
            let took = world.now.duration_since(begun).as_secs();
            world.answer(Kind::CreatePool, changed());
            world.pass();
            world.operation = OperationView::Idle;
            world.group = group;
            world.pass();
            return took;
        }
        world.now = plan.retry_at.unwrap();
    }
    panic!("it is never made again");
}

#[test]
fn a_group_that_is_gone_is_made_again_at_once_and_then_after_growing_pauses() {
    let mut world = World::running(2, json!({}));
    let pauses: Vec<_> = (0..8).map(|_| lose_group(&mut world)).collect();
    assert_eq!(pauses, [0, 60, 120, 240, 480, 900, 900, 900]);
    let retry = world.pool.status.as_ref().unwrap().group_retry.clone().unwrap();
    assert_eq!((retry.failures, retry.code.as_str()), (8, "NotFound"));
}

#[test]
fn while_a_group_is_not_made_again_the_pool_says_why_and_it_is_read_as_seldom_as_at_rest() {
    let mut world = World::running(2, json!({}));
    lose_group(&mut world);
    world.group = None;
    let plan = world.pass();
    assert_eq!((request(&plan), plan.unsettled), (None, false));
    let all = plan.status.conditions;
    let said = all.iter().find(|it| it.type_ == "InfrastructureReady").unwrap();
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("False", "GroupMissing"));
    assert!(said.message.contains("made again 1 time before, and is at"), "{}", said.message);
}

#[test]
fn earlier_losses_of_a_group_that_was_there_for_a_while_are_forgotten() {
    let mut world = World::running(2, json!({}));
    for _ in 0..3 {
        lose_group(&mut world);
    }
    // The pause, and ten minutes.
    later(&mut world, 240 + 600);
    world.pass();
    assert_eq!(world.pool.status.as_ref().unwrap().group_retry, None);
    assert_eq!(lose_group(&mut world), 0);
}

/// The newest Machine of a pool never gets a Node; after how many seconds it goes.
fn fail_newest(world: &mut World) -> i64 {
    let now = world.now;
    let machine = world.machines.last_mut().unwrap();
    machine.metadata.creation_timestamp = Some(now.into());
    set_phase(machine, MachinePhase::Failed);
    let status = machine.status.as_mut().unwrap();
    status.current_status.as_mut().unwrap().last_update_time = Some(now.into());
    machine.status.as_mut().unwrap().last_operation = Some(LastOperation {
        type_: Some(MachineOperationType::Create),
        state: Some(MachineState::Failed),
        ..LastOperation::default()
    });
    let name = machine.name().to_owned();
    for _ in 0..5 {
        let plan = world.pass();
        if !plan.delete.is_empty() {
            assert_eq!(victims(&plan), [name.as_str()]);
            return world.now.duration_since(now).as_secs();
        }
        if !plan.more {
            world.now = plan.retry_at.unwrap();
        }
    }
    panic!("it never goes");
}

#[test]
fn instances_that_never_join_are_replaced_after_growing_pauses() {
    let mut world = World::running(2, json!({}));
    let mut pauses = Vec::new();
    for _ in 0..5 {
        pauses.push(fail_newest(&mut world));
        let gone = world.machines.pop().unwrap();
        let group = world.group.as_mut().unwrap();
        group.instances.retain(|it| Some(&it.provider_id) != gone.provider_id());
        world.boot();
        later(&mut world, 2);
        world.adopt();
        let newest = world.machines.last_mut().unwrap();
        newest.metadata.creation_timestamp = None;
    }
    assert_eq!(pauses, [0, 60, 120, 240, 480]);
    assert_eq!(world.pool.status.unwrap().replacement_retry.unwrap().failures, 5);
}
