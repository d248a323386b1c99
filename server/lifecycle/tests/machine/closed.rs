//! A Machine waits for nothing only if its Node takes pods.

use k8s_openapi::api::core::v1::Taint;
use ostler_api::{
    machine::{MachinePhase, WaitReason},
    names::annotation::JOINED_TAINTS,
};
use serde_json::json;

use crate::machine::world::World;

fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() }
}

/// A running Machine with a Node that joined with `taints`.
fn joined_with(taints: &[Taint]) -> World {
    let mut world = World::new();
    world.settle();
    world.join();
    let mut node = world.node().clone();
    node.spec.as_mut().unwrap().taints.get_or_insert_default().extend(taints.to_vec());
    world.put_node(node);
    world.settle();
    world
}

fn closed(world: &mut World, cordoned: bool, taints: &[Taint]) -> Option<String> {
    let mut node = world.node().clone();
    let spec = node.spec.get_or_insert_default();
    spec.unschedulable = cordoned.then_some(true);
    spec.taints.get_or_insert_default().extend(taints.to_vec());
    world.put_node(node);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    let waits = world.status().waiting_for?;
    assert_eq!(waits.reason, WaitReason::NodeUnschedulable);
    waits.message
}

#[test]
fn a_cordon_and_a_taint_of_somebody_are_said_and_what_the_node_joined_with_is_not() {
    let of_kubelet = taint("gpu", "NoSchedule");
    for (cordoned, taints, said) in [
        (false, vec![], None),
        (true, vec![], Some("node node-1 is cordoned")),
        (
            true,
            vec![taint("node.kubernetes.io/unschedulable", "NoSchedule")],
            Some("node node-1 is cordoned"),
        ),
        (false, vec![taint("mine", "NoExecute")], Some("node node-1 has taint mine:NoExecute")),
        (false, vec![taint("mine", "PreferNoSchedule")], None),
        (false, vec![taint("node.kubernetes.io/not-ready", "NoSchedule")], None),
        (
            true,
            vec![taint("ToBeDeletedByClusterAutoscaler", "NoSchedule")],
            Some("node node-1 is cordoned and has taint ToBeDeletedByClusterAutoscaler:NoSchedule"),
        ),
    ] {
        let mut world = joined_with(std::slice::from_ref(&of_kubelet));
        assert_eq!(closed(&mut world, cordoned, &taints).as_deref(), said);
        let mut node = world.node().clone();
        node.spec.as_mut().unwrap().unschedulable = None;
        node.spec.as_mut().unwrap().taints = Some(vec![of_kubelet.clone()]);
        world.put_node(node);
        world.settle();
        assert_eq!(world.waits_for(), None, "{said:?}");
    }
}

#[test]
fn a_taint_of_the_template_is_wanted() {
    let mut world = joined_with(&[]);
    let template = json!({ "spec": { "taints": [{ "key": "db", "effect": "NoSchedule" }] } });
    world.machine_mut().spec.node_template = Some(serde_json::from_value(template).unwrap());
    assert_eq!(closed(&mut world, false, &[]), None);
}

#[test]
fn of_a_node_that_an_older_core_saw_join_only_what_controllers_take_away_is_said() {
    for (key, said) in [("mine", false), ("node.kubernetes.io/disk-pressure", true)] {
        let mut world = joined_with(&[]);
        let mut node = world.node().clone();
        node.metadata.annotations.as_mut().unwrap().remove(JOINED_TAINTS);
        world.put_node(node);
        assert_eq!(closed(&mut world, false, &[taint(key, "NoSchedule")]).is_some(), said, "{key}");
    }
}
