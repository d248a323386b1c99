//! Updates in place: an agent, here the test, does what the Node is ready for.

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition, Taint},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use ostler_api::{
    driver::OperationKind as Kind,
    machine::{
        FailureReason, MachineOperationType, MachinePhase, MachineState, MachineStep, WaitReason,
    },
    names::{annotation, label, taint},
};
use ostler_lifecycle::{
    outage::{ApiView, Outage},
    plan::{Action, EventReason, Plan},
    snapshot::{NodeView, Observed, PodView},
};

use crate::machine::world::{World, looks_again, pod, seconds};

pub fn edit_node(world: &mut World, edit: impl FnOnce(&mut Node)) {
    let mut node = world.node().clone();
    edit(&mut node);
    world.node = NodeView::Known(Arc::new(node));
}

pub fn set(world: &mut World, key: &str, value: Option<&str>) {
    edit_node(world, |node| {
        let labels = node.metadata.labels.get_or_insert_default();
        match value {
            Some(value) => labels.insert(key.to_owned(), value.to_owned()),
            None => labels.remove(key),
        };
    });
}

/// A MachineSet controls the Machine.
pub fn put_into_a_set(world: &mut World) {
    world.machine_mut().metadata.owner_references = Some(vec![OwnerReference {
        kind: "MachineSet".to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
}

pub fn select(world: &mut World) {
    set(world, label::CANDIDATE_FOR_UPDATE, Some("true"));
    set(world, label::SELECTED_FOR_UPDATE, Some("true"));
}

/// A machine with an empty Node, ready for the update.
pub fn ready() -> World {
    let mut world = World::running();
    select(&mut world);
    world.settle();
    assert_eq!(
        (world.phase(), stage(&world)),
        (MachinePhase::InPlaceUpdating, "ReadyForUpdate".to_owned())
    );
    world
}

/// Puts the Node at a stage.
pub fn at_stage(world: &mut World, reason: &str) {
    let now = world.now;
    edit_node(world, |node| {
        let conditions = node.status.as_mut().unwrap().conditions.as_mut().unwrap();
        conditions.push(NodeCondition {
            type_: "InPlaceUpdate".to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            last_transition_time: Some(now.into()),
            ..NodeCondition::default()
        });
    });
}

fn condition(world: &World) -> Option<NodeCondition> {
    let conditions = world.node().status.as_ref()?.conditions.clone()?;
    conditions.into_iter().find(|one| one.type_ == "InPlaceUpdate")
}

pub fn stage(world: &World) -> String {
    condition(world).and_then(|one| one.reason).unwrap_or_default()
}

pub fn has_label(world: &World, key: &str) -> bool {
    world.node().metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(key))
}

pub fn is_cordoned(world: &World) -> bool {
    world.node().spec.as_ref().unwrap().unschedulable == Some(true)
}

fn said(world: &World) -> (MachineOperationType, MachineState, String) {
    let last = world.status().last_operation.unwrap();
    (last.type_.unwrap(), last.state.unwrap(), last.description.unwrap())
}

pub fn sick(world: &mut World, ready: &str) {
    let now = world.now;
    edit_node(world, |node| {
        let conditions = node.status.as_mut().unwrap().conditions.as_mut().unwrap();
        let found = conditions.iter_mut().find(|one| one.type_ == "Ready").unwrap();
        ready.clone_into(&mut found.status);
        found.last_transition_time = Some(now.into());
    });
}

fn is_tainted(world: &World) -> bool {
    let taints = world.node().spec.as_ref().unwrap().taints.clone().unwrap_or_default();
    taints.iter().any(|one| one.key == taint::CRITICAL_COMPONENTS_NOT_READY)
}

#[test]
fn a_selected_node_is_emptied_and_ready_for_its_update() {
    let mut world = World::running();
    world.pods = Observed::Known(vec![pod("web"), PodView { daemon: true, ..pod("agent") }]);
    set(&mut world, label::CANDIDATE_FOR_UPDATE, Some("true"));
    world.settle();
    assert_eq!(stage(&world), "CandidateForUpdate");
    assert!(!is_cordoned(&world), "it is not its turn");
    set(&mut world, label::SELECTED_FOR_UPDATE, Some("true"));
    world.settle_pods();
    assert_eq!((stage(&world).as_str(), is_cordoned(&world)), ("SelectedForUpdate", true));
    let plan = world.pass();
    assert!(plan.actions.iter().any(|one| matches!(one, Action::Evict(pod) if pod.name == "web")));
    assert_eq!(
        (world.phase(), world.step()),
        (MachinePhase::Running, Some(MachineStep::DrainNode))
    );
    assert_eq!(said(&world).0, MachineOperationType::DrainNode);
    world.pods_end();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdating);
    assert_eq!(world.step(), Some(MachineStep::UpdateNode));
    assert_eq!(world.waits_for(), Some(WaitReason::NodeUpdating));
    assert_eq!(condition(&world).unwrap().message.unwrap(), "Node is ready for in-place update");
    assert_eq!(
        said(&world),
        (
            MachineOperationType::InPlaceUpdate,
            MachineState::Processing,
            "Machine m1 is undergoing an in-place update".to_owned()
        )
    );
    assert!(
        world.happened(EventReason::Drained) && world.happened(EventReason::InPlaceUpdateReady)
    );
}

#[test]
fn a_node_that_was_updated_takes_pods_again_and_can_be_updated_once_more() {
    let mut world = ready();
    set(&mut world, label::UPDATE_RESULT, Some("successful"));
    world.pass();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateSuccessful);
    assert_eq!(stage(&world), "UpdateSuccessful");
    assert!(said(&world).2.contains("successfully updated dependencies"));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert!(!is_cordoned(&world));
    let labels = [label::CANDIDATE_FOR_UPDATE, label::SELECTED_FOR_UPDATE, label::UPDATE_RESULT];
    assert!(!labels.iter().any(|key| has_label(&world, key)), "{:?}", world.node().metadata);
    assert!(world.happened(EventReason::InPlaceUpdated));
    assert_eq!(world.status().drain, None);
    assert!(world.pass().actions.is_empty());
    world.pods = Observed::Known(vec![pod("web")]);
    select(&mut world);
    for _ in 0..5 {
        world.pass();
    }
    assert!(is_cordoned(&world));
    assert_eq!(world.phase(), MachinePhase::Running);
    world.pods_end();
    world.settle();
    assert_eq!(stage(&world), "ReadyForUpdate");
}

#[test]
fn an_update_of_which_nobody_speaks_fails_after_its_time_and_may_still_succeed() {
    for (own, limit) in [(None, 1200), (Some("5m"), 300)] {
        let mut world = ready();
        world.machine_mut().spec.in_place_update_timeout = own.map(Into::into);
        let plan = world.pass();
        assert_eq!(looks_again(&world, &plan), Some(limit));
        world.later(limit - 1);
        world.settle();
        assert_eq!(world.phase(), MachinePhase::InPlaceUpdating);
        world.later(1);
        world.settle();
        assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed);
        assert_eq!(world.waits_for(), Some(WaitReason::InPlaceUpdateFailed));
        assert!(world.happened(EventReason::InPlaceUpdateFailed));
        assert_eq!(stage(&world), "ReadyForUpdate", "the updating controller may go on");
        assert!(is_cordoned(&world));
        assert_eq!(said(&world).1, MachineState::Failed);
        set(&mut world, label::UPDATE_RESULT, Some("successful"));
        world.settle();
        assert_eq!(world.phase(), MachinePhase::Running);
        assert!(!is_cordoned(&world));
    }
}

#[test]
fn an_outage_is_added_to_the_time_of_an_update() {
    let mut world = ready();
    let begun = world.now;
    let outage = Outage { from: seconds(begun, 100), to: seconds(begun, 690) };
    world.api = ApiView { outages: [outage].into(), ..ApiView::default() };
    world.later(1799);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdating);
    world.later(1);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed);
}

#[test]
fn an_update_that_failed_says_why_and_stays_so_until_somebody_says_otherwise() {
    let mut world = ready();
    edit_node(&mut world, |node| {
        let notes = node.metadata.annotations.get_or_insert_default();
        notes.insert(annotation::UPDATE_FAILED_REASON.to_owned(), "disk full".to_owned());
    });
    set(&mut world, label::UPDATE_RESULT, Some("failed"));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed);
    assert_eq!(stage(&world), "UpdateFailed");
    assert_eq!(condition(&world).unwrap().message.as_deref(), Some("disk full"));
    assert!(said(&world).2.ends_with("failed to update dependencies: disk full"));
    assert!(is_cordoned(&world));
    world.later(7 * 24 * 3600);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed, "a healthy node is not given up");
    // Once more.
    set(&mut world, label::UPDATE_RESULT, None);
    world.settle();
    assert_eq!(
        (world.phase(), stage(&world)),
        (MachinePhase::InPlaceUpdating, "ReadyForUpdate".to_owned())
    );
    set(&mut world, label::UPDATE_RESULT, Some("failed"));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed);
    // Leave the update as failed.
    set(&mut world, label::UPDATE_RESULT, None);
    set(&mut world, label::SELECTED_FOR_UPDATE, None);
    world.settle();
    assert_eq!(
        (world.phase(), stage(&world)),
        (MachinePhase::Running, "CandidateForUpdate".to_owned())
    );
    assert!(!is_cordoned(&world));
}

#[test]
fn an_update_that_failed_is_tried_again_when_an_annotation_of_the_machine_says_so() {
    let ask = |world: &mut World| {
        let annotations = world.machine_mut().metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::RETRY_UPDATE.to_owned(), String::new());
    };
    let is_begun_anew = |world: &World| {
        assert_eq!(
            (world.phase(), stage(world)),
            (MachinePhase::InPlaceUpdating, "ReadyForUpdate".to_owned())
        );
        assert_eq!(world.machine().annotation(annotation::RETRY_UPDATE), None, "once");
        assert!(!has_label(world, label::UPDATE_RESULT));
    };
    let mut world = ready();
    edit_node(&mut world, |node| {
        let notes = node.metadata.annotations.get_or_insert_default();
        notes.insert(annotation::UPDATE_FAILED_REASON.to_owned(), "disk full".to_owned());
    });
    set(&mut world, label::UPDATE_RESULT, Some("failed"));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed);
    ask(&mut world);
    world.settle();
    is_begun_anew(&world);
    let notes = world.node().metadata.annotations.clone().unwrap_or_default();
    assert!(!notes.contains_key(annotation::UPDATE_FAILED_REASON));
    // An update without any result has its whole time again.
    world.later(7 * 24 * 3600);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed);
    ask(&mut world);
    world.settle();
    is_begun_anew(&world);
}

#[test]
fn the_node_of_a_machine_set_is_left_to_its_deployment_afterwards() {
    let mut world = World::running();
    put_into_a_set(&mut world);
    select(&mut world);
    world.settle();
    set(&mut world, label::UPDATE_RESULT, Some("successful"));
    world.settle();
    assert_eq!(
        (world.phase(), stage(&world)),
        (MachinePhase::Running, "UpdateSuccessful".to_owned())
    );
    assert!(is_cordoned(&world) && has_label(&world, label::UPDATE_RESULT));
    let copied = world.status().conditions.into_iter().find(|one| one.type_ == "InPlaceUpdate");
    assert_eq!(copied.unwrap().reason.as_deref(), Some("UpdateSuccessful"), "it looks there");
    // Afterwards the deployment takes the labels away, and later selects the node again.
    edit_node(&mut world, |node| {
        node.metadata.labels = None;
        node.spec.as_mut().unwrap().unschedulable = None;
    });
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    set(&mut world, label::CANDIDATE_FOR_UPDATE, Some("true"));
    world.settle();
    assert_eq!(stage(&world), "CandidateForUpdate");
}

/// Runs, and its Node joined with the taint or without.
fn joined(with_taint: bool) -> World {
    let mut world = World::new();
    world.settle();
    world.join();
    let key = taint::CRITICAL_COMPONENTS_NOT_READY;
    if with_taint {
        edit_node(&mut world, |node| {
            let (key, effect) = (key.to_owned(), "NoSchedule".to_owned());
            let taints = node.spec.as_mut().unwrap().taints.as_mut().unwrap();
            taints.push(Taint { key, effect, ..Taint::default() });
        });
        world.settle();
        assert_eq!(world.waits_for(), Some(WaitReason::CriticalComponentsNotReady));
        edit_node(&mut world, |node| {
            node.spec.as_mut().unwrap().taints.as_mut().unwrap().retain(|one| one.key != key);
        });
    }
    world.settle();
    world
}

#[test]
fn critical_components_have_to_come_back_unless_the_node_is_known_to_have_none() {
    let nothing: fn(&mut World) = |_| {};
    let by_another: fn(&mut World) = |world| {
        edit_node(world, |node| {
            drop(
                node.metadata.annotations.as_mut().unwrap().remove(annotation::CRITICAL_COMPONENTS),
            );
        });
    };
    for (what, with_taint, meanwhile, comes_back) in [
        ("it joined with the taint", true, nothing, true),
        ("it joined without: nothing would ever take the taint away", false, nothing, false),
        ("with, and a client erased our fields", true, World::erase_ours, true),
        ("without, and a client erased our fields", false, World::erase_ours, false),
        ("another controller saw it join", false, by_another, true),
    ] {
        let mut world = joined(with_taint);
        meanwhile(&mut world);
        world.settle();
        select(&mut world);
        world.settle();
        assert!(!is_tainted(&world), "{what}");
        set(&mut world, label::UPDATE_RESULT, Some("successful"));
        world.settle();
        assert_eq!(world.phase(), MachinePhase::Running, "{what}");
        assert_eq!((is_tainted(&world), is_cordoned(&world)), (comes_back, false), "{what}");
    }
}

#[test]
fn a_taint_that_comes_later_is_noted_as_well() {
    let mut world = joined(false);
    let noted = |world: &World| {
        world.node().metadata.annotations.clone().unwrap().remove(annotation::CRITICAL_COMPONENTS)
    };
    assert_eq!(noted(&world).as_deref(), Some("false"));
    edit_node(&mut world, |node| {
        let key = taint::CRITICAL_COMPONENTS_NOT_READY.to_owned();
        node.spec.as_mut().unwrap().taints = Some(vec![Taint { key, ..Taint::default() }]);
    });
    world.settle();
    assert_eq!(noted(&world).as_deref(), Some("true"));
}

#[test]
fn a_node_that_is_not_selected_any_more_takes_pods_again_unless_somebody_else_cordoned_it() {
    for cordoned_before in [false, true] {
        let mut world = World::running();
        edit_node(&mut world, |node| {
            node.spec.as_mut().unwrap().unschedulable = cordoned_before.then_some(true);
        });
        world.pods = Observed::Known(vec![pod("web")]);
        world.protected.insert("web".to_owned());
        select(&mut world);
        for _ in 0..6 {
            world.pass();
        }
        assert_eq!(world.waits_for(), Some(WaitReason::PodDisruptionBudget));
        set(&mut world, label::SELECTED_FOR_UPDATE, None);
        world.settle();
        assert_eq!(is_cordoned(&world), cordoned_before);
        assert_eq!(stage(&world), "CandidateForUpdate");
        assert_eq!((world.status().drain, world.step()), (None, None));
        assert!(world.pass().actions.is_empty());
    }
}

#[test]
fn a_kubelet_may_be_silent_while_its_node_is_updated_but_the_instance_has_to_be_there() {
    let mut world = ready();
    sick(&mut world, "Unknown");
    world.settle();
    world.later(900);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdating, "the health timeout is another one");
    sick(&mut world, "True");
    set(&mut world, label::UPDATE_RESULT, Some("successful"));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    let mut world = ready();
    world.later(300);
    world.instances.clear();
    sick(&mut world, "Unknown");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdating);
    world.later(60);
    world.settle();
    assert_eq!(world.status().failure_reason, Some(FailureReason::InstanceMissing));
}

#[test]
fn a_node_that_is_updated_and_not_healthy_has_the_time_of_any_other() {
    let mut world = ready();
    sick(&mut world, "False");
    set(&mut world, label::UPDATE_RESULT, Some("successful"));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    world.later(600);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
}

#[test]
fn a_node_whose_update_failed_is_given_up_for_its_health_only() {
    let mut world = ready();
    set(&mut world, label::UPDATE_RESULT, Some("failed"));
    world.settle();
    world.later(24 * 3600);
    sick(&mut world, "False");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    world.later(300);
    sick(&mut world, "True");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed, "it did not get better for that");
    sick(&mut world, "False");
    world.settle();
    world.later(600);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
}

#[test]
fn a_machine_that_is_deleted_during_its_update_is_drained_of_what_came_since() {
    let mut world = ready();
    world.pods = Observed::Known(vec![pod("late")]);
    world.delete();
    let evicts = |plan: Plan| plan.actions.iter().any(|one| matches!(one, Action::Evict(_)));
    assert!(!evicts(world.pass()), "its deadline is written first");
    assert!(evicts(world.pass()));
    assert_eq!(world.count(Kind::DeleteMachine), 0);
    world.pods_end();
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn the_drain_ends_by_force_at_its_timeout_or_when_asked_to() {
    for by_label in [true, false] {
        let mut world = World::running();
        world.pods = Observed::Known(vec![pod("web")]);
        world.protected.insert("web".to_owned());
        select(&mut world);
        for _ in 0..6 {
            world.pass();
        }
        let labels = world.machine_mut().metadata.labels.get_or_insert_default();
        labels.insert(label::FORCE_DELETION.to_owned(), "True".to_owned());
        world.pass();
        assert_eq!(world.phase(), MachinePhase::Running, "that is for deletions");
        if by_label {
            let labels = world.machine_mut().metadata.labels.get_or_insert_default();
            labels.insert(label::FORCE_DRAIN.to_owned(), "True".to_owned());
        } else {
            world.later(2 * 3600);
        }
        for _ in 0..4 {
            world.pass();
        }
        assert_eq!(world.pods, Observed::Known(Vec::new()), "by label: {by_label}");
        assert_eq!(world.phase(), MachinePhase::InPlaceUpdating);
        assert!(world.happened(EventReason::DrainForced));
    }
}

#[test]
fn volumes_leave_before_the_update_and_none_is_taken_from_a_node_that_lives_on() {
    let mut world = World::running();
    world.kinds.remove(&Kind::GetVolumeIds);
    world.add_pod_with_volume("db", 10, "v-db");
    world.add_pod_with_volume("low", 0, "v-low");
    select(&mut world);
    for _ in 0..5 {
        world.pass();
    }
    assert_eq!(world.status().drain.unwrap().queued, 1, "by priority, as in a deletion");
    world.pods_end();
    world.detach("v-db");
    for _ in 0..2 {
        world.pass();
    }
    world.pods_end();
    world.pass();
    assert_eq!(world.step(), Some(MachineStep::DetachVolumes));
    assert_eq!(world.waits_for(), Some(WaitReason::VolumesAttached));
    assert_eq!(world.phase(), MachinePhase::Running);
    world.later(60);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Running);
    world.later(60);
    let plan = world.pass();
    let taken = |one: &Action| matches!(one, Action::DeleteAttachment { .. });
    assert!(!plan.actions.iter().any(taken), "{:?}", plan.actions);
    assert!(world.happened(EventReason::VolumesNotDetached));
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdating);
}

#[test]
fn an_update_of_the_instance_is_finished_first() {
    let mut world = World::running();
    world.edit_class(serde_json::json!({ "size": 1, "tags": { "a": "2" } }));
    for _ in 0..3 {
        world.pass();
    }
    assert_eq!(world.count(Kind::UpdateMachine), 1);
    select(&mut world);
    for _ in 0..3 {
        world.pass();
    }
    assert!(!is_cordoned(&world));
    world.answer();
    world.settle();
    assert_eq!(stage(&world), "ReadyForUpdate");
}

#[test]
fn a_node_whose_pods_nobody_looked_at_is_not_empty_even_by_force() {
    let mut world = World::running();
    world.pods = Observed::Unknown;
    let labels = world.machine_mut().metadata.labels.get_or_insert_default();
    labels.insert(label::FORCE_DRAIN.to_owned(), "True".to_owned());
    select(&mut world);
    for _ in 0..5 {
        world.pass();
    }
    assert_eq!(world.waits_for(), Some(WaitReason::NotObserved));
    let plan = world.pass();
    assert_eq!(looks_again(&world, &plan), Some(5));
    world.later(3 * 3600);
    let plan = world.pass();
    assert_eq!(looks_again(&world, &plan), Some(5), "no hot loop");
    world.pods = Observed::Known(vec![pod("web")]);
    for _ in 0..3 {
        world.pass();
    }
    assert_eq!(world.pods, Observed::Known(Vec::new()));
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdating);
}

#[test]
fn the_time_of_the_drain_counts_from_the_selection() {
    let mut world = World::running();
    world.pods = Observed::Known(vec![pod("web")]);
    world.protected.insert("web".to_owned());
    select(&mut world);
    world.pass();
    world.pass();
    let selected_at = condition(&world).unwrap().last_transition_time.unwrap().0;
    world.later(30);
    world.pass();
    world.pass();
    let deadline = world.status().drain.unwrap().deadline.unwrap().0;
    assert_eq!(deadline.duration_since(selected_at), SignedDuration::from_hours(2));
}
