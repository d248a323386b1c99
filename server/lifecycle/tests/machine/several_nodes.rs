//! A VM that came back under another name: the Nodes of a Machine are all Nodes of its provider id.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};
use ostler_api::{
    driver::OperationKind as Kind,
    machine::{MachineConditionType, MachinePhase, NodeTemplate, WaitReason},
    names::{annotation, finalizer, label, taint},
};
use ostler_lifecycle::{
    plan::{Action, EventReason},
    snapshot::{NodeView, Observed, PodView},
};
use serde_json::json;

use crate::machine::{
    pods::pod,
    world::{NODE, World, node},
};

const OTHER: &str = "host-2";

/// A Machine that runs, and another Node of its instance; whether each is ready.
fn two(ready: &str, other: &str) -> World {
    let mut world = World::running();
    world.node_is(ready);
    appear(&mut world, other);
    world
}

fn other_node(world: &World, ready: &str) -> Arc<Node> {
    let mut other = node(ready, world.now);
    other.metadata.name = Some(OTHER.to_owned());
    other.metadata.uid = Some("other-uid".to_owned());
    other.metadata.creation_timestamp = Some(Time(world.now));
    Arc::new(other)
}

fn appear(world: &mut World, ready: &str) {
    let main = Arc::new(world.node().clone());
    world.node = NodeView::Several(main, vec![other_node(world, ready)]);
}

fn on(node: &str, name: &str) -> PodView {
    PodView { node: node.to_owned(), ..pod(name) }
}

fn is_cordoned(world: &World, name: &str) -> bool {
    world.node_of(name).spec.unwrap().unschedulable == Some(true)
}

fn has_taint(world: &World, name: &str, key: &str) -> bool {
    world.node_of(name).spec.unwrap().taints.iter().flatten().any(|one| one.key == key)
}

/// What the condition says of the Nodes.
fn told(world: &World) -> Option<String> {
    let all = world.status().conditions;
    let type_ = MachineConditionType::NodeAmbiguous;
    all.into_iter().find(|one| one.type_ == type_.as_str())?.message
}

#[test]
fn a_machine_is_as_healthy_as_the_best_of_its_nodes() {
    for (main, other, phase, waits) in [
        ("True", "True", MachinePhase::Running, WaitReason::NodeAmbiguous),
        ("Unknown", "True", MachinePhase::Running, WaitReason::NodeAmbiguous),
        ("True", "Unknown", MachinePhase::Running, WaitReason::NodeAmbiguous),
        ("Unknown", "False", MachinePhase::Failed, WaitReason::Failed),
    ] {
        let mut world = two(main, other);
        world.settle();
        assert!(told(&world).unwrap().contains("node-1, host-2"), "{main} {other}");
        assert!(world.happened(EventReason::NodeAmbiguous));
        world.later(700);
        world.settle();
        assert_eq!((world.phase(), world.waits_for()), (phase.clone(), Some(waits)));
        let status = world.status();
        let ready = status.conditions.iter().find(|one| one.type_ == "Ready").unwrap();
        let lives = phase == MachinePhase::Running;
        assert_eq!(ready.status == "True", lives, "{main} {other}: {ready:?}");
        assert_eq!(status.node_ref.unwrap().name, NODE, "it joined as that one");
    }
}

#[test]
fn a_failed_machine_runs_again_when_its_vm_comes_back_under_another_name() {
    let mut world = World::running();
    world.node_is("Unknown");
    world.settle();
    world.later(700);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
    appear(&mut world, "True");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    world.remove_node(OTHER);
    world.node_is("True");
    world.settle();
    assert_eq!((told(&world), world.waits_for()), (None, None));
}

#[test]
fn a_deletion_cordons_drains_and_deletes_every_node_of_the_instance() {
    let mut world = two("Unknown", "True");
    world.settle();
    world.pods = Observed::Known(vec![on(NODE, "left"), on(OTHER, "web")]);
    world.protected.insert("web".to_owned());
    // Longer than a Node may be silent.
    world.later(400);
    world.settle();
    world.delete();
    for _ in 0..6 {
        world.pass();
    }
    assert!(is_cordoned(&world, NODE) && is_cordoned(&world, OTHER));
    assert_eq!(world.count(Kind::DeleteMachine), 0, "INV-4");
    assert!(told(&world).unwrap().contains("node-1, host-2"));
    let Observed::Known(pods) = &world.pods else { unreachable!() };
    let left: Vec<_> = pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(left, ["web"], "no kubelet ends the pods of the silent one");
    world.protected.clear();
    world.later(60);
    world.pass();
    world.pods_end();
    world.settle();
    assert!(world.machine.is_none());
    assert_eq!(world.node, NodeView::Absent, "both are gone");
    assert!(!world.happened(EventReason::DrainForced));
}

#[test]
fn pods_have_their_time_on_both_nodes_while_neither_is_lost() {
    let mut world = two("Unknown", "True");
    world.pods = Observed::Known(vec![on(NODE, "left"), on(OTHER, "web")]);
    world.delete();
    let mut evicted = Vec::new();
    for _ in 0..5 {
        let plan = world.pass();
        evicted.extend(plan.actions.iter().filter_map(|action| match action {
            Action::Evict(pod) => Some(pod.name.clone()),
            Action::DeletePod(pod) => panic!("without grace: {pod:?}"),
            _ => None,
        }));
    }
    assert_eq!(evicted, ["left", "web"]);
}

#[test]
fn a_node_that_appears_in_the_middle_of_a_deletion_is_drained_before_the_instance_goes() {
    for passes in 1..8 {
        let mut world = World::running();
        world.pods = Observed::Known(vec![on(NODE, "first")]);
        world.volumes = Observed::Known(vec!["volume".to_owned()]);
        world.delete();
        for _ in 0..passes {
            world.pass();
            world.pods_end();
        }
        assert_eq!(world.count(Kind::DeleteMachine), 0, "a volume is attached");
        appear(&mut world, "True");
        world.pods = Observed::Known(vec![on(OTHER, "late")]);
        world.protected.insert("late".to_owned());
        world.volumes = Observed::Known(Vec::new());
        for _ in 0..6 {
            world.pass();
        }
        assert!(is_cordoned(&world, OTHER), "after {passes} passes");
        assert_eq!(world.count(Kind::DeleteMachine), 0, "INV-4, after {passes} passes");
        world.pods = Observed::Known(Vec::new());
        world.settle();
        assert!(world.machine.is_none() && world.node == NodeView::Absent);
    }
}

#[test]
fn two_nodes_of_which_neither_is_known_to_be_the_one_are_drained_and_deleted_as_well() {
    for forced in [false, true] {
        let mut world = World::running();
        let main = Arc::new(world.node().clone());
        world.node = NodeView::Ambiguous(vec![main, other_node(&world, "True")]);
        world.pods = Observed::Known(vec![on(NODE, "a"), on(OTHER, "b")]);
        world.protected.extend(["a".to_owned(), "b".to_owned()]);
        world.delete();
        for _ in 0..5 {
            world.pass();
        }
        assert_eq!(world.count(Kind::DeleteMachine), 0, "INV-4");
        assert_eq!(world.waits_for(), Some(WaitReason::PodDisruptionBudget));
        assert!(told(&world).is_some());
        if forced {
            let labels = world.machine_mut().metadata.labels.get_or_insert_default();
            labels.insert(label::FORCE_DELETION.to_owned(), "True".to_owned());
        } else {
            world.protected.clear();
            world.later(60);
            world.pass();
            world.pods_end();
        }
        world.settle();
        assert!(world.machine.is_none() && world.node == NodeView::Absent);
    }
}

#[test]
fn who_deletes_the_silent_one_of_two_nodes_tidies_up_and_who_deletes_the_one_that_runs_wants_the_machine_gone()
 {
    for (main, other, lives) in
        [("Unknown", "True", true), ("True", "True", false), ("Unknown", "Unknown", false)]
    {
        let mut world = two(main, other);
        world.settle();
        let mut deleted = world.node().clone();
        deleted.metadata.deletion_timestamp = Some(Time(world.now));
        world.put_node(deleted);
        world.pass();
        assert_eq!(!world.machine().is_deleting(), lives, "{main} {other}");
        if lives {
            let held = world.node_of(NODE).metadata.finalizers.unwrap_or_default();
            assert!(!held.contains(&finalizer::NODE.to_owned()));
            world.remove_node(NODE);
            world.settle();
            assert_eq!(world.phase(), MachinePhase::Running);
            assert_eq!(world.machine().node_name(), Some(OTHER));
            assert_eq!(world.status().node_ref.unwrap().name, OTHER);
            assert_eq!((told(&world), world.waits_for()), (None, None));
        }
    }
}

#[test]
fn a_node_that_only_says_that_it_is_of_the_instance_gets_the_taints_of_the_template_and_no_labels()
{
    let mut world = two("True", "True");
    let template: NodeTemplate = serde_json::from_value(json!({
        "metadata": { "labels": { "pool": "trusted" }, "annotations": { "a": "1" } },
        "spec": { "taints": [{ "key": "dedicated", "value": "db", "effect": "NoSchedule" }] },
    }))
    .unwrap();
    world.machine_mut().spec.node_template = Some(template);
    world.settle();
    let labels = |world: &World, name| world.node_of(name).metadata.labels.unwrap_or_default();
    assert!(labels(&world, NODE).contains_key("pool"));
    assert!(labels(&world, OTHER).is_empty(), "{:?}", labels(&world, OTHER));
    assert!(has_taint(&world, NODE, "dedicated") && has_taint(&world, OTHER, "dedicated"));
    assert!(!has_taint(&world, OTHER, taint::INSTANCE_NOT_READY), "it takes pods");
    world.machine_mut().spec.node_template = None;
    world.settle();
    assert!(!has_taint(&world, OTHER, "dedicated"));
}

#[test]
fn a_preserved_machine_stays_so_when_its_vm_comes_back_and_all_its_nodes_are_tainted() {
    let mut world = two("Unknown", "Unknown");
    let mut main = world.node().clone();
    let notes = main.metadata.annotations.get_or_insert_default();
    notes.insert(annotation::PRESERVE.to_owned(), "now".to_owned());
    world.put_node(main);
    world.settle();
    world.later(700);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert!(
        has_taint(&world, NODE, taint::PRESERVED) && has_taint(&world, OTHER, taint::PRESERVED)
    );
}

#[test]
fn an_update_in_place_drains_both_nodes_and_gives_back_what_it_cordoned() {
    let mut world = two("True", "True");
    let mut other = world.node_of(OTHER);
    other.spec.as_mut().unwrap().unschedulable = Some(true);
    other.spec.as_mut().unwrap().taints = Some(vec![Taint::default()]);
    world.put_node(other);
    let mut main = world.node().clone();
    let labels = main.metadata.labels.get_or_insert_default();
    for key in [label::CANDIDATE_FOR_UPDATE, label::SELECTED_FOR_UPDATE] {
        labels.insert(key.to_owned(), "true".to_owned());
    }
    world.put_node(main);
    world.pods = Observed::Known(vec![on(OTHER, "web")]);
    world.protected.insert("web".to_owned());
    for _ in 0..8 {
        world.pass();
    }
    assert!(is_cordoned(&world, NODE));
    assert_eq!(world.phase(), MachinePhase::Running, "a pod of the other node is left");
    world.pods = Observed::Known(Vec::new());
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdating);
    // The VM comes back under the other name, and its agent says so there.
    world.node_is_of(NODE, "Unknown");
    let mut other = world.node_of(OTHER);
    let labels = other.metadata.labels.get_or_insert_default();
    labels.insert(label::UPDATE_RESULT.to_owned(), "successful".to_owned());
    world.put_node(other);
    world.settle();
    world.later(2);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert!(!is_cordoned(&world, NODE) && is_cordoned(&world, OTHER), "a user cordoned it");
}

#[test]
fn a_machine_of_two_nodes_joins_as_the_one_with_its_name_and_is_not_given_up_while_any_is_ready() {
    for (ready, phase) in [("True", MachinePhase::Pending), ("Unknown", MachinePhase::Failed)] {
        let mut world = World::new();
        world.settle();
        let (one, mut two) = (other_node(&world, "Unknown"), (*other_node(&world, ready)).clone());
        two.metadata.name = Some("host-3".to_owned());
        world.node = NodeView::Ambiguous(vec![one, Arc::new(two)]);
        world.settle();
        assert_eq!(world.waits_for(), Some(WaitReason::NodeAmbiguous));
        world.later(1300);
        world.settle();
        assert_eq!(world.phase(), phase, "{ready}");
    }
}
