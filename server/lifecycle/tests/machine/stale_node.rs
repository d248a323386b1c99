//! Nodes that look like a Machine's.

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use ostler_api::{
    ProviderIdComparison,
    machine::{FailureReason, MachinePhase, WaitReason},
};
use ostler_lifecycle::{
    node::{IdComparison, expected_name},
    plan::EventReason,
    snapshot::NodeView,
};

use crate::machine::world::{World, node};

fn joining() -> World {
    let mut world = World::new();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Pending);
    world
}

/// Time passes, and the driver is asked whether the instance is still there.
fn look(world: &mut World, seconds: i64) {
    world.later(seconds);
    world.pass();
    world.answer();
    world.pass();
}

fn of_another_instance(world: &World) -> Node {
    let mut node = node("True", world.now);
    node.spec.as_mut().unwrap().provider_id = Some("fake:///someone-else".to_owned());
    node
}

fn without_id(world: &World, age: i64) -> Node {
    let mut node = node("True", world.now);
    node.spec.as_mut().unwrap().provider_id = None;
    let born = world.machine().metadata.creation_timestamp.as_ref().unwrap().0;
    node.metadata.creation_timestamp =
        Some(Time(born.checked_sub(SignedDuration::from_secs(age)).unwrap()));
    node
}

#[test]
fn a_node_of_another_instance_is_said_and_never_touched() {
    let mut world = joining();
    world.node = NodeView::Known(Arc::new(of_another_instance(&world)));
    let plan = world.pass();
    assert!(plan.actions.is_empty(), "{plan:#?}");
    assert_eq!(world.phase(), MachinePhase::Pending);
    assert_eq!(world.waits_for(), Some(WaitReason::NodeStale));
    let message = world.status().waiting_for.unwrap().message.unwrap();
    assert!(message.contains("fake:///someone-else"), "{message}");
    let said = world.events.iter().filter(|event| event.reason == EventReason::Waiting).count();
    look(&mut world, 61);
    let again = world.events.iter().filter(|event| event.reason == EventReason::Waiting).count();
    assert_eq!((said, again), (1, 1), "once");
}

#[test]
fn a_provider_id_in_another_spelling_is_said_with_both_and_no_machine_is_replaced_for_it() {
    for (said, ready, spelled) in [
        ("FAKE:///I-1", "True", true),
        ("kind://docker/zone/i-1", "True", true),
        ("fake://i-1", "True", true),
        ("other:///i-1", "True", true),
        ("I-1", "True", true),
        ("fake:///I-1", "Unknown", true),
        ("fake:///i-2", "True", false),
        ("fake:///xi-1", "True", false),
    ] {
        let mut world = joining();
        let mut node = node(ready, world.now);
        node.spec.as_mut().unwrap().provider_id = Some(said.to_owned());
        world.node = NodeView::Known(Arc::new(node));
        world.pass();
        let wait = world.status().waiting_for.unwrap();
        let expected = if spelled { WaitReason::ProviderIdMismatch } else { WaitReason::NodeStale };
        assert_eq!(wait.reason, expected, "{said}");
        let message = wait.message.unwrap();
        assert!(message.contains(said), "{message}");
        assert_eq!(message.contains("fake:///i-1,"), spelled, "{message}");
        for _ in 0..4 {
            world.later(600);
            world.settle();
        }
        let waits = spelled && ready == "True";
        assert_eq!(world.phase() == MachinePhase::Pending, waits, "{said} {ready}");
    }
}

/// The Node of the instance, whose kubelet spells the provider id in capitals.
fn in_capitals(world: &World) -> NodeView {
    let mut node = node("True", world.now);
    let id = world.machine().provider_id().unwrap().as_str().to_uppercase();
    node.spec.as_mut().unwrap().provider_id = Some(id);
    node.metadata.uid = Some("u-1".to_owned());
    NodeView::Known(Arc::new(node))
}

#[test]
fn a_node_in_capitals_is_that_of_a_machine_whose_driver_compares_so_and_stays_it() {
    let mut world = joining();
    world.compares.said = Some(ProviderIdComparison::CaseInsensitive);
    world.node = in_capitals(&world);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    // Of the core after this one no driver has said anything yet; another driver says less, or names two instances alike.
    for (said, twin) in [
        (None, None),
        (Some(ProviderIdComparison::Exact), None),
        (Some(ProviderIdComparison::CaseInsensitive), Some("m2".to_owned())),
    ] {
        world.compares = IdComparison { said, twin, undecided: None };
        world.later(3600);
        world.settle();
        assert_eq!(world.phase(), MachinePhase::Running, "{:?}", world.compares);
    }
    world.delete();
    world.pass();
    let cordoned = world.node().spec.as_ref().unwrap().unschedulable;
    assert_eq!(cordoned, Some(true), "INV-4: it is drained");
    world.settle();
    assert!(world.machine.is_none() && world.node == NodeView::Absent);
}

#[test]
fn a_machine_whose_id_counts_as_that_of_another_takes_no_node_by_it_and_names_the_other() {
    let mut world = joining();
    world.compares = IdComparison {
        said: Some(ProviderIdComparison::CaseInsensitive),
        twin: Some("m2".to_owned()),
        undecided: None,
    };
    world.node = in_capitals(&world);
    world.later(1300);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Pending, "the next one would be the same");
    let wait = world.status().waiting_for.unwrap();
    assert_eq!(wait.reason, WaitReason::ProviderIdMismatch);
    let message = wait.message.unwrap();
    assert!(message.contains("machine m2 has a provider id"), "{message}");
}

#[test]
fn a_machine_that_has_no_node_yet_names_the_other_one_whose_id_counts_as_its_own() {
    let mut world = joining();
    world.compares.twin = Some("m2".to_owned());
    world.later(1);
    world.settle();
    let message = world.status().waiting_for.unwrap().message.unwrap();
    assert!(message.contains("machine m2 has a provider id"), "{message}");
}

#[test]
fn a_machine_whose_node_depends_on_what_its_driver_will_say_waits_and_is_not_given_up() {
    let mut world = joining();
    let NodeView::Known(node) = in_capitals(&world) else { unreachable!() };
    world.compares = IdComparison { said: None, twin: None, undecided: Some(node) };
    world.node = NodeView::Unknown;
    world.connected = false;
    world.later(3600);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Pending);
    let wait = world.status().waiting_for.unwrap();
    assert_eq!(wait.reason, WaitReason::DriverUnavailable);
    assert!(wait.message.as_ref().unwrap().contains("FAKE:///I-1"), "{wait:?}");
    world.delete();
    world.connected = true;
    world.settle();
    assert!(!world.instances.is_empty(), "INV-4: it may have pods");
    world.compares.said = Some(ProviderIdComparison::Exact);
    world.compares.undecided = None;
    world.node = NodeView::Absent;
    world.later(1);
    world.settle();
    assert!(world.machine.is_none() && world.instances.is_empty());
}

#[test]
fn a_name_that_no_label_can_carry_stands_in_the_status_and_the_node_is_found() {
    let long = format!("{}.example", "n".repeat(70));
    let mut world = joining();
    let mut node = node("True", world.now);
    node.metadata.name = Some(long.clone());
    world.node = NodeView::Known(Arc::new(node));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert_eq!(world.machine().node_name(), Some(long.as_str()));
    assert_eq!(expected_name(world.machine()), Some(long.as_str()));
    assert_eq!(world.status().node_name, Some(long));
    assert!(world.pass().actions.is_empty());
}

#[test]
fn of_several_nodes_that_claim_to_be_it_none_is_taken() {
    let mut world = joining();
    let labelled = |name: &str| {
        let mut node = without_id(&world, 1);
        node.metadata.name = Some(name.to_owned());
        Arc::new(node)
    };
    world.node = NodeView::Ambiguous(vec![labelled("a"), labelled("b")]);
    let plan = world.pass();
    assert!(plan.actions.is_empty(), "{plan:#?}");
    let waits = (world.phase(), world.waits_for());
    assert_eq!(waits, (MachinePhase::Pending, Some(WaitReason::NodeAmbiguous)));
    let message = world.status().waiting_for.unwrap().message.unwrap();
    assert!(message.contains("a, b"), "{message}");
}

#[test]
fn a_stale_node_that_goes_in_time_makes_room_for_the_right_one() {
    let mut world = joining();
    world.node = NodeView::Known(Arc::new(of_another_instance(&world)));
    world.settle();
    look(&mut world, 4 * 60);
    assert_eq!(world.phase(), MachinePhase::Pending);
    world.join();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn a_stale_node_that_stays_fails_the_machine_whose_deletion_does_not_touch_it() {
    let mut world = joining();
    let stale = Arc::new(of_another_instance(&world));
    world.node = NodeView::Known(Arc::clone(&stale));
    world.settle();
    world.later(5 * 60);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert_eq!(world.status().failure_reason, Some(FailureReason::StaleNode));
    world.delete();
    world.settle();
    assert!(world.machine.is_none() && world.instances.is_empty());
    assert!(matches!(&world.node, NodeView::Known(node) if *node == stale));
}

#[test]
fn a_node_without_provider_id_is_taken_unless_it_is_older_than_the_machine() {
    let mut world = joining();
    world.node = NodeView::Known(Arc::new(without_id(&world, 1)));
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::NodeStale));
    world.node = NodeView::Known(Arc::new(without_id(&world, -1)));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn a_node_that_is_older_than_a_machine_that_adopted_its_instance_is_taken() {
    let mut world = World::new();
    world
        .instances
        .push(crate::machine::world::Instance { initialized: true, ..Default::default() });
    world.settle();
    assert_eq!(world.creates, 0);
    world.node = NodeView::Known(Arc::new(without_id(&world, 3600)));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn an_instance_that_vanished_is_made_again_although_a_stale_node_is_there() {
    let mut world = joining();
    world.node = NodeView::Known(Arc::new(of_another_instance(&world)));
    world.instances.clear();
    look(&mut world, 61);
    look(&mut world, 61);
    world.answer();
    world.pass();
    assert_eq!(world.creates, 2);
}

/// The Node of an unknown instance of this very machine, whose kubelet is silent.
fn remnant(world: &World, ready: &str) -> NodeView {
    let mut node = node(ready, world.now);
    node.metadata.creation_timestamp = without_id(world, -1).metadata.creation_timestamp;
    node.spec.as_mut().unwrap().provider_id = Some("fake:///of-a-lost-answer".to_owned());
    node.metadata.name = expected_name(world.machine()).map(str::to_owned);
    node.metadata.uid = Some("of-the-remnant".to_owned());
    NodeView::Known(Arc::new(node))
}

#[test]
fn what_an_unknown_instance_of_the_machine_left_behind_goes_once_its_kubelet_is_silent_for_long() {
    let mut world = joining();
    world.node = remnant(&world, "True");
    world.later(i64::try_from(world.settings.unreachable_after.as_secs()).unwrap() - 30);
    world.settle();
    assert!(matches!(world.node, NodeView::Known(_)), "something is behind it");
    let mut world = joining();
    world.node = remnant(&world, "Unknown");
    world.settle();
    assert!(matches!(world.node, NodeView::Known(_)), "it may come back");
    world.later(i64::try_from(world.settings.unreachable_after.as_secs()).unwrap() + 1);
    world.pass();
    assert!(matches!(world.node, NodeView::Absent), "{:?}", world.node);
}

#[test]
fn what_an_unknown_instance_of_the_machine_left_behind_goes_with_the_machine() {
    let mut world = joining();
    world.node = remnant(&world, "True");
    world.delete();
    world.settle();
    assert!(world.machine.is_none() && world.instances.is_empty());
    assert!(matches!(world.node, NodeView::Absent), "{:?}", world.node);
}

#[test]
fn a_node_that_came_after_the_one_the_machine_joined_as_is_no_remnant_of_it() {
    let mut world = World::running();
    let NodeView::Known(taken_over) = remnant(&world, "True") else { unreachable!() };
    world.node = NodeView::Known(Arc::clone(&taken_over));
    world.delete();
    world.settle();
    assert!(world.machine.is_none() && world.instances.is_empty());
    assert_eq!(
        world.node,
        NodeView::Known(taken_over),
        "an instance that reuses the name joined as it"
    );
}

#[test]
fn what_an_unknown_instance_left_behind_and_never_goes_fails_the_machine() {
    let mut world = joining();
    let NodeView::Known(mut held) = remnant(&world, "Unknown") else { unreachable!() };
    let node = Arc::make_mut(&mut held);
    node.metadata.finalizers = Some(vec!["example.com/holds".to_owned()]);
    node.metadata.deletion_timestamp = Some(Time(world.now));
    world.node = NodeView::Known(Arc::clone(&held));
    world.settle();
    world.later(i64::try_from(world.settings.unreachable_after.as_secs()).unwrap() + 1);
    world.settle();
    assert_eq!(world.status().failure_reason, Some(FailureReason::StaleNode));
    assert_eq!(world.node, NodeView::Known(held), "it was deleted already");
}

#[test]
fn a_machine_whose_node_cannot_be_looked_up_is_not_given_up_for_it() {
    let mut world = joining();
    world.node = NodeView::Unknown;
    world.later(20 * 60 + 1);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Pending);
    world.node = NodeView::Absent;
    world.settle();
    assert_eq!(world.status().failure_reason, Some(FailureReason::JoinTimeout));
}
