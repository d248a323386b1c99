//! Drivers that know instances by name only.

use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind as Kind},
    machine::{MachinePhase, WaitReason},
    names,
};
use serde_json::json;

use crate::machine::world::{Instance, NODE, PROVIDER_ID, World};

/// A driver that reads no tags, and a class with this annotation.
fn with_annotation(value: Option<&str>) -> World {
    let mut world = World::new();
    world.by_name = true;
    annotate(&mut world, value);
    world
}

fn annotate(world: &mut World, value: Option<&str>) {
    let key = names::annotation::ADOPT_BY_NAME.to_owned();
    let all = value.map(|value| [(key, value.to_owned())].into());
    world.class.as_mut().unwrap().metadata.annotations = all;
}

/// A Machine of another controller that runs.
fn taken_over() -> World {
    let mut world = with_annotation(Some("true"));
    world.instances.push(Instance { initialized: true, ..Instance::default() });
    let machine = world.machine_mut();
    machine.spec.provider_id = Some(PROVIDER_ID.into());
    machine.metadata.labels = Some([(names::label::NODE.to_owned(), NODE.to_owned())].into());
    machine.metadata.finalizers = Some(vec![names::finalizer::MACHINE.to_owned()]);
    machine.status =
        serde_json::from_value(json!({ "currentStatus": { "phase": "Running" } })).unwrap();
    world.join();
    world.settle();
    assert_eq!(world.creates, 1, "it was adopted");
    world
}

#[test]
fn its_classes_have_to_allow_adoption_by_name() {
    for (value, creates) in [(None, 0), (Some("false"), 0), (Some("true"), 1)] {
        let mut world = with_annotation(value);
        world.settle();
        assert_eq!(world.creates, creates, "{value:?}");
        let undecided = world.waits_for() == Some(WaitReason::AdoptionUndecided);
        assert_eq!(undecided, creates == 0, "{value:?}");
    }
}

#[test]
fn nothing_of_its_name_is_deleted_before_the_class_allows_it() {
    let mut world = taken_over();
    annotate(&mut world, None);
    world.delete();
    world.settle();
    assert_eq!((world.count(Kind::DeleteMachine), world.instances.len()), (0, 1));
    assert_eq!(world.waits_for(), Some(WaitReason::AdoptionUndecided));
    annotate(&mut world, Some("true"));
    world.settle();
    assert!(world.machine.is_none() && world.instances.is_empty());
}

#[test]
fn that_it_finds_no_instance_right_after_it_made_it_is_no_proof() {
    for (seconds, goes) in [(10, false), (121, true)] {
        let mut world = with_annotation(Some("true"));
        world.settle();
        assert_eq!(world.instances.len(), 1);
        world.later(seconds);
        world.instances.clear();
        world.delete();
        world.settle();
        assert_eq!(world.machine.is_none(), goes, "{seconds} s after the create");
        world.later(61);
        world.settle();
        assert!(world.machine.is_none());
    }
}

#[test]
fn that_it_finds_no_instance_after_a_create_without_an_answer_is_no_proof() {
    let mut world = with_annotation(Some("true"));
    world.pass();
    world.answer();
    world.pass();
    assert_eq!(world.kinds_sent().last(), Some(&Kind::CreateMachine));
    world.delete();
    world.pass();
    world.fail(ErrorCode::Internal, Certainty::Unknown);
    world.settle();
    assert!(world.machine.is_some(), "lists may not show it yet");
    world.later(61);
    world.settle();
    assert!(world.machine.is_none());
    assert_eq!(world.count(Kind::DeleteMachine), 2);
}

#[test]
fn that_it_finds_no_instance_proves_nothing_of_one_that_it_did_not_make() {
    let mut world = taken_over();
    world.instances.clear();
    world.node_is("False");
    world.settle();
    assert_ne!(world.phase(), MachinePhase::Failed, "wrong account, or another name?");
    world.delete();
    world.settle();
    assert!(world.machine.is_some(), "it is asked once more");
    world.later(61);
    world.settle();
    assert!(world.machine.is_none());
    assert_eq!(world.count(Kind::DeleteMachine), 2);
}

#[test]
fn that_it_finds_no_instance_is_an_absence_of_what_the_core_had_it_make() {
    let mut world = with_annotation(Some("true"));
    world.settle();
    world.join();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    world.later(3600);
    world.instances.clear();
    world.node_is("False");
    world.settle();
    world.later(60);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
    world.delete();
    world.settle();
    assert!(world.machine.is_none());
}
