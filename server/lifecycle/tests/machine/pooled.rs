//! Machines of a pool: the pool makes and deletes the instance, everything between is as for any Machine.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use ostler_api::{
    driver::OperationKind,
    machine::{MachinePhase, MachineStep, WaitReason},
    names::{self, annotation::INSTANCE_GONE},
};
use ostler_lifecycle::plan::Action;

use crate::world::{PROVIDER_ID, World};

/// A Machine that its pool just made for an instance.
fn pooled() -> World {
    let mut world = World::new();
    world.hold();
    let machine = world.machine_mut();
    machine.spec.provider_id = Some(PROVIDER_ID.into());
    machine.metadata.owner_references = Some(vec![OwnerReference {
        api_version: names::OWN_API_VERSION.to_owned(),
        kind: names::MACHINE_POOL.to_owned(),
        name: "p".to_owned(),
        uid: "pool-uid".to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    let of_machines = |kind: &OperationKind| !kind.is_of_pools();
    let kinds: Vec<_> = world.kinds.iter().copied().filter(of_machines).collect();
    // As `DriverView::of_pooled` leaves it.
    for kind in kinds {
        world.kinds.remove(&kind);
    }
    world
}

fn running() -> World {
    let mut world = pooled();
    world.settle();
    world.join();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    world
}

fn told_gone(world: &mut World) {
    let marks = world.machine_mut().metadata.annotations.get_or_insert_default();
    marks.insert(INSTANCE_GONE.to_owned(), PROVIDER_ID.to_owned());
}

#[test]
fn it_waits_for_its_node_and_no_driver_is_asked_for_anything() {
    let mut world = pooled();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::NodeNotJoined));
    world.join();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert!(world.sent.is_empty(), "{:?}", world.sent);
}

#[test]
fn its_deletion_drains_and_then_waits_until_the_pool_says_that_the_instance_is_gone() {
    let mut world = running();
    world.delete();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::PoolDeletion));
    let status = world.machine().status.clone().unwrap();
    assert_eq!(status.step, Some(MachineStep::DeleteInstance));
    assert!(status.drain.is_none_or(|drain| drain.finished));
    told_gone(&mut world);
    world.settle();
    assert!(world.machine.is_none(), "it is gone, and its Node with it");
    assert!(world.sent.is_empty(), "{:?}", world.sent);
}

#[test]
fn one_whose_instance_is_gone_goes_without_a_drain() {
    let mut world = running();
    told_gone(&mut world);
    world.delete();
    let plan = world.pass();
    assert!(plan.actions.contains(&Action::RemoveFinalizer), "{:?}", plan.actions);
    assert!(world.sent.is_empty());
}

#[test]
fn another_instance_that_is_gone_is_not_its_own() {
    let mut world = running();
    let marks = world.machine_mut().metadata.annotations.get_or_insert_default();
    marks.insert(INSTANCE_GONE.to_owned(), "fake:///another".to_owned());
    world.delete();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::PoolDeletion));
}

#[test]
fn where_no_driver_can_delete_one_instance_the_machine_stays_and_nothing_is_drained() {
    let mut world = running();
    world.kinds.remove(&OperationKind::DeletePoolMachines);
    world.delete();
    let plan = world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::DriverLacksVerb));
    assert!(plan.actions.iter().all(|action| !matches!(action, Action::PatchNode(_))));
    told_gone(&mut world);
    world.settle();
    assert!(world.machine.is_none(), "until its instance goes with the size of the group");
}

#[test]
fn another_class_spec_is_a_matter_of_the_group_and_not_of_a_hot_update() {
    let mut world = running();
    world.class.as_mut().unwrap().spec.provider_spec = serde_json::json!({ "size": 2 });
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert_eq!(world.waits_for(), None);
    assert!(world.sent.is_empty());
}
