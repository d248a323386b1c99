//! The copy of a template that a set made for a machine: the copy is deleted first, and the machine waits.

use std::sync::Arc;

use ostler_api::{driver::OperationKind, machine::WaitReason, names::annotation::PAUSED};
use ostler_lifecycle::{
    bootstrap::{ConfigFacts, ConfigView},
    plan::EventReason,
};
use serde_json::{Value, json};

use crate::machine::bootstrap::{config_ref, owners, world};
use crate::machine::world::{UID, World, edit_status};

/// A Machine of a set, and the copy of a template that the set made for it.
fn with_copy(finalizers: &[&str]) -> World {
    with_copy_of(finalizers, &json!({ "ready": true, "bootstrapData": "x" }))
}

fn with_copy_of(finalizers: &[&str], status: &Value) -> World {
    let mut world = world(json!({ "configRef": config_ref() }));
    let set = json!([{
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s", "uid": "s",
        "controller": true
    }]);
    world.machine_mut().metadata.owner_references = serde_json::from_value(set).unwrap();
    let metadata = json!({
        "name": "m1", "uid": "c", "resourceVersion": "7", "finalizers": finalizers,
        "annotations": { "cluster.x-k8s.io/cloned-from-name": "workers" },
        "ownerReferences": [{
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s", "uid": "s"
        }]
    });
    let metadata = serde_json::from_value(metadata).unwrap();
    let facts = ConfigFacts::of(&metadata, &json!({ "status": status }));
    world.bootstrap.config = ConfigView::Known(Arc::new(facts));
    world
}

/// Its copy has no data yet, so that no driver was asked for anything; the driver may be gone.
#[test]
fn a_machine_that_never_had_an_instance_waits_for_its_copy_as_well() {
    for away in [false, true] {
        let mut world = with_copy_of(&["bakery.example.com/oven"], &json!({}));
        world.settle();
        assert_eq!(world.waits_for(), Some(WaitReason::BootstrapNotReady));
        assert_eq!(owners(&world), [(UID.to_owned(), true)]);
        if away {
            world.connected = false;
        }
        world.delete();
        for _ in 0..2 {
            world.settle();
            let wait = world.status().waiting_for.clone().unwrap();
            assert_eq!(wait.reason, WaitReason::BootstrapConfigDeleting, "away: {away}");
            assert!(wait.message.unwrap().contains("bakery.example.com/oven"));
        }
        world.bootstrap.config = ConfigView::Absent;
        world.settle();
        assert!(world.machine.is_none() && world.creates == 0, "away: {away}");
        let told = [EventReason::InstanceAbsent, EventReason::InstanceNeverRequested];
        let told = world.events.iter().filter(|it| told.contains(&it.reason)).count();
        assert_eq!(told, 1, "away: {away}");
    }
    // What is no copy for this Machine alone does not hold it.
    let mut world = world(json!({ "configRef": config_ref() }));
    world.settle();
    assert!(!world.machine().has_finalizer());
}

#[test]
fn a_machine_takes_its_copy_over_from_the_set_that_made_it() {
    let mut world = with_copy(&[]);
    world.settle();
    assert_eq!(owners(&world), [(UID.to_owned(), true)]);
    assert_eq!(world.creates, 1);
    // A set as controller, or a set of another name, is another owner.
    let mut world = with_copy(&[]);
    world.machine_mut().metadata.owner_references = None;
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::BootstrapConfigOwned));
}

/// Deleted, and held by what comes after its instance, while cores die; its instance was there or not.
#[test]
fn a_machine_that_waits_for_its_copy_asks_its_driver_to_delete_once_also_after_a_restart() {
    for (there, erases, paused) in
        [(true, false, false), (true, true, false), (true, false, true), (false, false, false)]
    {
        let said = format!("there: {there}, erases: {erases}, paused: {paused}");
        let mut world = with_copy(&["bakery.example.com/oven"]);
        world.settle();
        if !there {
            world.instances.clear();
        }
        world.delete();
        if paused {
            while world.count(OperationKind::DeleteMachine) == 0 {
                world.pass();
                if world.kinds_sent().last() == Some(&OperationKind::GetMachineStatus) {
                    world.answer();
                }
            }
            let annotations = world.machine_mut().metadata.annotations.get_or_insert_default();
            annotations.insert(PAUSED.to_owned(), String::new());
            world.settle_no_node();
            assert_eq!(world.waits_for(), Some(WaitReason::Paused), "{said}");
            world.machine_mut().metadata.annotations.as_mut().unwrap().remove(PAUSED);
        }
        for _ in 0..5 {
            world.settle();
            assert_eq!(world.waits_for(), Some(WaitReason::BootstrapConfigDeleting), "{said}");
            let wait = world.status().waiting_for.clone().unwrap();
            assert!(wait.message.unwrap().contains("bakery.example.com/oven"));
            world.forget_unwritten();
            world.lose_operation();
            world.later(600);
            if erases {
                world.erase_ours();
            }
        }
        world.bootstrap.config = ConfigView::Absent;
        world.settle();
        assert!(world.machine.is_none(), "{said}");
        assert_eq!(world.count(OperationKind::DeleteMachine), 1, "{said}");
        let told = [EventReason::InstanceDeleted, EventReason::InstanceAbsent];
        let told = world.events.iter().filter(|it| told.contains(&it.reason)).count();
        assert_eq!(told, 1, "{said}");
    }
}

#[test]
fn a_machine_that_lives_does_not_believe_that_its_instance_was_deleted() {
    let mut world = World::running();
    let gone = json!([{ "type": "InstanceDeleted", "status": "True", "reason": "Deleted",
        "lastTransitionTime": world.now.to_string() }]);
    let forge = |world: &mut World| {
        edit_status(world, |status| drop(status.insert("conditions".to_owned(), gone.clone())));
    };
    forge(&mut world);
    world.settle();
    assert!(world.status().conditions.iter().all(|it| it.type_ != "InstanceDeleted"));
    // At the moment of the deletion.
    forge(&mut world);
    world.delete();
    world.settle();
    assert!(world.machine.is_none() && world.instances.is_empty());
    assert_eq!(world.count(OperationKind::DeleteMachine), 1);
}
