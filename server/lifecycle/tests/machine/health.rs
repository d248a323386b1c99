use ostler_api::machine::{FailureReason, LifecyclePhase, MachinePhase, MachineState, WaitReason};
use ostler_lifecycle::{plan::EventReason, snapshot::NodeView};

use crate::world::{World, looks_again};

#[test]
fn a_machine_whose_node_is_lost_is_unknown_and_then_failed() {
    let mut world = World::running();
    world.node_is("Unknown");
    let plan = world.pass();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    assert_eq!(world.waits_for(), Some(WaitReason::NodeUnhealthy));
    assert_eq!(world.status().phase, Some(LifecyclePhase::Running));
    assert_eq!(looks_again(&world, &plan), Some(600));
    assert!(world.happened(EventReason::NodeUnhealthy));
    world.later(599);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    world.later(1);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert_eq!(world.status().failure_reason, Some(FailureReason::HealthTimeout));
    world.node_is("True");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed, "failed machines stay failed");
}

#[test]
fn a_node_that_recovers_in_time_is_running_again() {
    let mut world = World::running();
    world.node_is("False");
    world.pass();
    world.later(300);
    world.node_is("True");
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert_eq!(world.last_state(), Some(MachineState::Successful));
    assert_eq!(world.waits_for(), None);
}

#[test]
fn the_health_timeout_of_the_machine_wins_and_can_be_switched_off() {
    let mut world = World::running();
    world.machine_mut().spec.health_timeout = Some("1m".into());
    world.node_is("False");
    let plan = world.pass();
    assert_eq!(looks_again(&world, &plan), Some(60));
    world.machine_mut().spec.disable_health_timeout = Some(true);
    world.later(100_000);
    let plan = world.pass();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    assert_eq!(looks_again(&world, &plan), None);
}

#[test]
fn a_node_object_that_vanished_makes_its_machine_unknown() {
    let mut world = World::running();
    world.node = NodeView::Absent;
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    assert_eq!(world.waits_for(), Some(WaitReason::NodeMissing));
    world.join();
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn a_node_that_was_not_looked_up_yet_is_not_gone() {
    let mut world = World::running();
    world.node = NodeView::Unknown;
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn the_conditions_of_the_node_stand_beside_ours() {
    let world = World::running();
    let status = world.status();
    let types: Vec<_> = status.conditions.iter().map(|one| one.type_.as_str()).collect();
    assert_eq!(types, ["Ready", "InstanceCreated", "InstanceInitialized"]);
}

#[test]
fn a_taint_that_comes_back_is_taken_away_again() {
    let mut world = World::running();
    world.join();
    world.settle();
    assert_eq!(world.node().spec.as_ref().unwrap().taints, None);
}
