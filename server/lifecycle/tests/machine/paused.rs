//! `ostler.dev/paused`: nothing is changed, and nothing that a driver did is forgotten.

use ostler_api::ProviderId;
use ostler_api::{
    driver::OperationKind,
    machine::{MachinePhase, MachineStep, WaitReason},
    names::annotation::PAUSED,
};
use ostler_lifecycle::operation::{InstanceRecord, OperationView, Success};

use crate::machine::world::{PROVIDER_ID, World, pod};

fn pause(world: &mut World, value: &str) {
    let annotations = world.machine_mut().metadata.annotations.get_or_insert_default();
    annotations.insert(PAUSED.to_owned(), value.to_owned());
}

fn resume(world: &mut World) {
    world.machine_mut().metadata.annotations = None;
    if let Some(class) = &mut world.class {
        class.metadata.annotations = None;
    }
}

fn pause_class(world: &mut World) {
    let class = world.class.as_mut().unwrap();
    class.metadata.annotations = Some([(PAUSED.to_owned(), "true".to_owned())].into());
}

#[test]
fn nothing_begins_for_a_paused_machine_and_all_of_it_once_it_is_not() {
    for pause in [|world: &mut World| pause(world, ""), pause_class] {
        let mut world = World::new();
        pause(&mut world);
        world.settle();
        assert_eq!(world.waits_for(), Some(WaitReason::Paused));
        assert!(world.sent.is_empty() && world.machine().metadata.finalizers.is_none());
        resume(&mut world);
        world.settle();
        assert_eq!(world.waits_for(), Some(WaitReason::NodeNotJoined));
        assert_eq!(world.creates, 1);
    }
}

#[test]
fn the_value_false_pauses_nothing() {
    let mut world = World::new();
    pause(&mut world, "false");
    world.settle();
    assert_eq!(world.creates, 1);
}

#[test]
fn the_answer_to_a_create_is_written_down_while_the_machine_is_paused() {
    let mut world = World::new();
    while world.creates == 0 {
        world.pass();
        if matches!(world.operation, OperationView::InFlight(_)) {
            world.answer();
        }
    }
    pause(&mut world, "true");
    world.settle();
    assert_eq!(world.machine().provider_id().map(ProviderId::as_str), Some(PROVIDER_ID));
    assert_eq!(world.status().operation, None, "INV-8: recorded");
    assert_eq!(world.waits_for(), Some(WaitReason::Paused));
    assert_eq!(world.count(OperationKind::InitializeMachine), 0);
    // The driver does not report initialization by itself, so the step must not be forgotten.
    assert_eq!(world.step(), Some(MachineStep::InitializeInstance));
    resume(&mut world);
    world.settle();
    assert_eq!(world.count(OperationKind::InitializeMachine), 1);
    assert_eq!(world.creates, 1, "INV-1");
}

#[test]
fn a_paused_machine_that_is_deleted_keeps_its_pods_its_node_and_its_instance() {
    let mut world = World::running();
    let before = world.node().clone();
    let sent = world.sent.len();
    pause(&mut world, "true");
    world.pods = ostler_lifecycle::snapshot::Observed::Known(vec![pod("a")]);
    world.delete();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Terminating);
    assert_eq!(world.waits_for(), Some(WaitReason::Paused));
    assert_eq!(world.node(), &before);
    assert_eq!(world.sent.len(), sent);
    resume(&mut world);
    world.settle_pods();
    assert_eq!(world.waits_for(), Some(WaitReason::PodsTerminating), "the drain has begun");
    world.pods_end();
    world.settle();
    assert!(world.machine.is_none() && world.instances.is_empty());
}

#[test]
fn a_paused_machine_stays_running_whatever_its_node_says_and_its_class_becomes() {
    let mut world = World::running();
    let sent = world.sent.len();
    pause(&mut world, "true");
    world.node_is("False");
    world.edit_class(serde_json::json!({ "size": 2 }));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert_eq!(world.sent.len(), sent);
    resume(&mut world);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Unknown);
}

#[test]
fn the_result_of_a_deletion_that_comes_while_paused_lets_the_machine_go_afterwards() {
    let mut world = World::running();
    world.delete();
    while !world.kinds_sent().contains(&OperationKind::DeleteMachine) {
        world.pass();
        if world.sent.last().map(ostler_lifecycle::operation::Dispatch::kind)
            == Some(OperationKind::GetMachineStatus)
            && matches!(world.operation, OperationView::InFlight(_))
        {
            world.answer();
        }
    }
    pause(&mut world, "true");
    world.settle_no_node();
    assert!(world.machine.is_some(), "its Node would go with it");
    resume(&mut world);
    world.settle();
    assert!(world.machine.is_none());
    assert_eq!(world.count(OperationKind::DeleteMachine), 1);
}

#[test]
fn a_read_that_ends_while_paused_adopts_what_it_found() {
    let mut world = World::new();
    world.pass();
    while !matches!(world.operation, OperationView::InFlight(_)) {
        world.pass();
    }
    pause(&mut world, "true");
    let record = InstanceRecord { initialized: Some(true), ..world.record() };
    world.reply(Ok(Success::Read(record)));
    world.settle();
    assert_eq!(world.machine().provider_id().map(ProviderId::as_str), Some(PROVIDER_ID), "INV-2");
    assert_eq!(world.waits_for(), Some(WaitReason::Paused));
}
