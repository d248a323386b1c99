use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use ostler_api::{
    Machine, MachineSet,
    driver::OperationKind as Kind,
    machine::{MachineConditionType, MachinePhase, MachineStep, WaitReason},
    names::{annotation, label, taint},
};
use ostler_lifecycle::{
    plan::{Action, EventReason},
    set::{NodeWish, Snapshot, decide as plan, owner_reference},
    snapshot::{NodeView, Observed, PodView},
};

use serde_json::json;

use crate::machine::in_place::{is_cordoned, select, set};
use crate::machine::world::{World, looks_again, pod};

fn ask(world: &mut World, value: &str) {
    let notes = world.machine_mut().metadata.annotations.get_or_insert_default();
    notes.insert(annotation::PRESERVE.to_owned(), value.to_owned());
}

fn ask_node(world: &mut World, value: Option<&str>) {
    edit_node(world, |node| {
        let notes = node.metadata.annotations.get_or_insert_default();
        match value {
            Some(value) => notes.insert(annotation::PRESERVE.to_owned(), value.to_owned()),
            None => notes.remove(annotation::PRESERVE),
        };
    });
}

fn edit_node(world: &mut World, edit: impl FnOnce(&mut Node)) {
    let mut node = world.node().clone();
    edit(&mut node);
    world.node = NodeView::Known(Arc::new(node));
}

fn until(world: &World) -> Option<Timestamp> {
    world.status().current_status?.preserve_expiry_time.map(|time| time.0)
}

fn condition(world: &World) -> Option<NodeCondition> {
    let conditions = world.node().status.as_ref()?.conditions.clone()?;
    conditions.into_iter().find(|one| one.type_ == "Preserved")
}

fn is_tainted(world: &World) -> bool {
    let taints = world.node().spec.as_ref().unwrap().taints.clone().unwrap_or_default();
    taints.iter().any(|one| one.key == taint::PRESERVED)
}

fn note<'a>(world: &'a World, key: &str) -> Option<&'a str> {
    world.node().metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn fails(world: &mut World) {
    sick(world, "Unknown");
    world.pass();
    world.later(600);
    world.pass();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
}

/// Changes the health of the Node and nothing else of it.
fn sick(world: &mut World, ready: &str) {
    edit_node(world, |node| {
        let conditions = node.status.as_mut().unwrap().conditions.as_mut().unwrap();
        let found = conditions.iter_mut().find(|one| one.type_ == "Ready").unwrap();
        ready.clone_into(&mut found.status);
    });
}

#[test]
fn a_machine_that_is_to_be_preserved_when_it_fails_is_from_the_moment_it_does() {
    let mut world = World::running();
    ask(&mut world, "when-failed");
    world.settle();
    assert_eq!(until(&world), None);
    sick(&mut world, "Unknown");
    world.pass();
    world.later(600);
    let since = world.now;
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    let days = until(&world).unwrap().duration_since(since).as_hours();
    assert_eq!(days, 96, "in the very write that says Failed");
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::Preserved));
    assert!(is_tainted(&world));
    assert_eq!(note(&world, annotation::SCALE_DOWN_DISABLED), Some("true"));
    assert_eq!(note(&world, annotation::SCALE_DOWN_DISABLED_BY_US), Some("true"));
    let said = condition(&world).unwrap();
    assert_eq!(
        (said.status.as_str(), said.reason.as_deref()),
        ("True", Some("Preserved by user."))
    );
    assert!(world.happened(EventReason::Preserved));
    assert!(world.pass().actions.is_empty());
}

#[test]
fn preservation_ends_by_itself_and_asks_for_nothing_afterwards() {
    let mut world = World::running();
    world.machine_mut().spec.machine_preserve_timeout = Some("1h".into());
    ask(&mut world, "when-failed");
    fails(&mut world);
    let plan = world.pass();
    assert_eq!(looks_again(&world, &plan), Some(3600));
    world.later(3600);
    world.settle();
    assert_eq!(until(&world), None);
    assert_eq!(world.machine().annotation(annotation::PRESERVE), None);
    assert!(!is_tainted(&world));
    assert_eq!(note(&world, annotation::SCALE_DOWN_DISABLED), None);
    assert_eq!(condition(&world).unwrap().reason.as_deref(), Some("Preservation stopped."));
    assert_eq!(world.waits_for(), Some(WaitReason::Failed));
    assert!(world.happened(EventReason::PreservationEnded));
    assert!(world.pass().actions.is_empty());
}

/// The set found the Machine Failed, preserved without effect, and preserved it again.
#[test]
fn a_failed_machine_whose_time_is_over_is_replaced_by_its_set_whichever_write_that_sees() {
    for (value, on_node) in
        [("auto-preserved", false), ("when-failed", false), ("now", false), ("now", true)]
    {
        let mut world = World::running();
        let machine = world.machine_mut();
        machine.spec.machine_preserve_timeout = Some("1h".into());
        machine.metadata.labels.get_or_insert_default().insert("app".into(), "a".into());
        let set: MachineSet = serde_json::from_value(json!({
            "metadata": {
                "name": "s", "uid": "s", "finalizers": ["machine.sapcloud.io/machine-controller-manager"]
            },
            "spec": {
                "replicas": 1, "autoPreserveFailedMachineMax": 1,
                "selector": { "matchLabels": { "app": "a" } },
                "template": {
                    "metadata": { "labels": { "app": "a" } },
                    "spec": {
                        "class": { "kind": "MachineClass", "name": "c" },
                        "machinePreserveTimeout": "1h"
                    }
                }
            }
        }))
        .unwrap();
        machine.metadata.owner_references = Some(vec![owner_reference(&set)]);
        // One that had run for a while is replaced without a pause.
        let joined = crate::machine::world::seconds(world.now, -3600);
        world.machine_mut().status.as_mut().unwrap().joined_at = Some(joined.into());
        fails(&mut world);
        if on_node {
            ask_node(&mut world, Some(value));
        } else {
            ask(&mut world, value);
        }
        world.settle();
        assert!(until(&world).is_some(), "{value}");
        let before = world.machine().clone();
        world.later(3600);
        world.settle();
        let after = world.machine().clone();
        assert_eq!((until(&world), note(&world, annotation::PRESERVE)), (None, None), "{value}");
        assert_eq!(after.annotation(annotation::PRESERVE), Some("false"), "{value}");
        for status in [before.status, after.status.clone()] {
            let machine = Arc::new(Machine { status, ..after.clone() });
            let plan = plan(&Snapshot {
                set: Arc::new(set.clone()),
                class: None,
                wishes: [(after.uid().to_owned(), NodeWish::Known(None))].into(),
                machines: vec![machine],
                others: Vec::new(),
                unanswered: Vec::new(),
                blind: None,
                foreign: None,
                seed: 0,
                spares: Vec::new(),
                taking: Vec::new(),
                zones: Vec::new(),
                copies: None,
                freeze_due: false,
                runs_machines: true,
                again: Duration::ZERO,
                now: world.now,
            });
            assert_eq!((plan.delete.len(), plan.patches.len()), (1, 0), "{value}");
        }
    }
}

#[test]
fn a_preserved_machine_whose_node_is_healthy_again_runs_on() {
    let mut world = World::running();
    fails(&mut world);
    ask(&mut world, "auto-preserved");
    world.settle();
    assert_eq!(condition(&world).unwrap().reason.as_deref(), Some("Preserved by MCM."));
    sick(&mut world, "True");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert_eq!(until(&world), None);
    assert!(!is_tainted(&world));
    assert_eq!(world.machine().annotation(annotation::PRESERVE), None, "a MachineSet asks anew");
}

#[test]
fn one_that_is_preserved_when_failed_is_preserved_the_next_time_as_well() {
    let mut world = World::running();
    ask(&mut world, "when-failed");
    fails(&mut world);
    sick(&mut world, "True");
    world.settle();
    assert_eq!((world.phase(), until(&world)), (MachinePhase::Running, None));
    assert_eq!(world.machine().annotation(annotation::PRESERVE), Some("when-failed"));
    fails(&mut world);
    assert!(until(&world).is_some());
}

#[test]
fn a_healthy_machine_is_preserved_on_demand_without_a_taint_and_without_moving_its_timers() {
    let mut world = World::running();
    let since = world.status().current_status.unwrap().last_update_time;
    world.later(60);
    ask(&mut world, "now");
    world.settle();
    assert!(until(&world).is_some());
    assert_eq!(world.status().current_status.unwrap().last_update_time, since);
    assert!(!is_tainted(&world));
    let plan = world.pass();
    assert_eq!(looks_again(&world, &plan), Some(96 * 3600));
    ask(&mut world, "false");
    world.settle();
    assert_eq!(until(&world), None);
    assert_eq!(note(&world, annotation::SCALE_DOWN_DISABLED), None);
}

#[test]
fn what_somebody_else_told_the_autoscaler_stays() {
    let mut world = World::running();
    edit_node(&mut world, |node| {
        let notes = node.metadata.annotations.get_or_insert_default();
        notes.insert(annotation::SCALE_DOWN_DISABLED.to_owned(), "true".to_owned());
    });
    ask(&mut world, "now");
    world.settle();
    assert_eq!(note(&world, annotation::SCALE_DOWN_DISABLED_BY_US), None);
    ask(&mut world, "false");
    world.settle();
    assert_eq!(note(&world, annotation::SCALE_DOWN_DISABLED), Some("true"));
}

#[test]
fn the_value_of_the_node_wins_and_its_removal_ends_what_it_began() {
    let mut world = World::running();
    ask(&mut world, "false");
    ask_node(&mut world, Some("now"));
    world.settle();
    assert!(until(&world).is_some());
    assert_eq!(world.machine().annotation(annotation::PRESERVE), None);
    assert_eq!(world.machine().annotation(annotation::LAST_NODE_PRESERVE), Some("now"));
    ask_node(&mut world, None);
    world.settle();
    assert_eq!(until(&world), None);
    assert_eq!(world.machine().annotation(annotation::LAST_NODE_PRESERVE), None);
}

#[test]
fn the_value_of_a_node_goes_when_its_time_is_over() {
    let mut world = World::running();
    ask_node(&mut world, Some("now"));
    world.settle();
    world.later(96 * 3600);
    world.settle();
    assert_eq!(until(&world), None);
    assert_eq!(note(&world, annotation::PRESERVE), None);
    assert_eq!(world.machine().annotation(annotation::LAST_NODE_PRESERVE), None);
    assert!(world.pass().actions.is_empty());
}

#[test]
fn a_value_without_meaning_is_said_and_changes_nothing() {
    let mut world = World::running();
    ask(&mut world, "now");
    world.settle();
    ask_node(&mut world, Some("sometimes"));
    world.settle();
    assert!(until(&world).is_some(), "what is kept stays");
    let invalid = MachineConditionType::PreserveValueInvalid;
    let told =
        |world: &World| world.status().conditions.iter().any(|one| one.type_ == invalid.as_str());
    assert!(told(&world));
    assert!(world.happened(EventReason::PreserveValueInvalid));
    ask_node(&mut world, None);
    world.settle();
    assert!(!told(&world));
}

#[test]
fn a_machine_without_a_node_is_preserved_as_well() {
    let mut world = World::new();
    ask(&mut world, "when-failed");
    world.settle();
    world.later(1200);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert!(until(&world).is_some());
    assert_eq!(world.waits_for(), Some(WaitReason::Preserved));
}

#[test]
fn a_preserved_machine_that_is_deleted_goes() {
    let mut world = World::running();
    ask(&mut world, "when-failed");
    fails(&mut world);
    assert!(until(&world).is_some());
    world.delete();
    world.pass();
    assert_eq!((world.phase(), until(&world)), (MachinePhase::Terminating, None));
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn pods_that_refuse_to_leave_a_preserved_node_are_said_on_it_and_so_is_that_they_left() {
    let mut world = World::running();
    ask(&mut world, "when-failed");
    world.pods = Observed::Known(vec![pod("web")]);
    world.protected.insert("web".to_owned());
    world.machine_mut().spec.health_timeout = Some("1m".into());
    sick(&mut world, "False");
    world.pass();
    world.later(60);
    for _ in 0..5 {
        world.pass();
    }
    let said = condition(&world).unwrap();
    assert_eq!(
        (said.status.as_str(), said.reason.as_deref()),
        ("False", Some("Preserved by user."))
    );
    let message = said.message.unwrap();
    assert!(message.starts_with("Preserved node could not be drained. Machine pres"), "{message}");
    let mut stopped = world.clone();
    ask(&mut stopped, "false");
    stopped.settle();
    assert_eq!(
        note(&stopped, annotation::SCALE_DOWN_DISABLED),
        None,
        "it was preserved all the same"
    );
    assert_eq!(condition(&stopped).unwrap().reason.as_deref(), Some("Preservation stopped."));
    world.protected.clear();
    world.later(60);
    world.pass();
    world.pods_end();
    world.settle();
    let said = condition(&world).unwrap();
    assert_eq!(said.status, "True");
    assert!(said.message.unwrap().starts_with("Preserved node drained successfully."));
}

#[test]
fn the_pods_of_a_preserved_failed_machine_leave_it_once_and_whoever_examines_it_may_put_some_there()
{
    let mut world = World::running();
    ask(&mut world, "when-failed");
    world.pods = Observed::Known(vec![pod("web"), PodView { daemon: true, ..pod("agent") }]);
    sick(&mut world, "False");
    world.pass();
    world.later(240);
    world.machine_mut().spec.health_timeout = Some("1m".into());
    for _ in 0..4 {
        world.pass();
    }
    assert_eq!(world.phase(), MachinePhase::Failed);
    let waiting = world.status().waiting_for.unwrap();
    assert_eq!(waiting.message.as_deref(), Some("1 pod is terminating"));
    assert_eq!(world.node().spec.as_ref().unwrap().unschedulable, None, "the taint is enough");
    world.pods_end();
    world.settle();
    let said = condition(&world).unwrap().message.unwrap();
    assert!(said.starts_with("Preserved node drained successfully."), "{said}");
    world.pods = Observed::Known(vec![pod("debugger")]);
    assert!(world.pass().actions.is_empty());
}

#[test]
fn a_preserved_node_is_emptied_by_force_at_the_drain_timeout_or_when_asked_to() {
    for by_label in [true, false] {
        let mut world = World::running();
        ask(&mut world, "when-failed");
        world.pods = Observed::Known(vec![pod("web")]);
        world.protected.insert("web".to_owned());
        world.machine_mut().spec.health_timeout = Some("1m".into());
        sick(&mut world, "False");
        world.pass();
        world.later(60);
        // Young enough not to be lost.
        edit_node(&mut world, |node| {
            let conditions = node.status.as_mut().unwrap().conditions.as_mut().unwrap();
            conditions[0].last_transition_time = None;
        });
        world.settle_pods();
        assert_eq!(world.pods, Observed::Known(vec![refused(&world)]));
        if by_label {
            let labels = world.machine_mut().metadata.labels.get_or_insert_default();
            labels.insert(label::FORCE_DRAIN.to_owned(), "True".to_owned());
        } else {
            world.later(2 * 3600);
        }
        world.settle_pods();
        assert_eq!(world.pods, Observed::Known(Vec::new()), "by label: {by_label}");
    }
}

/// The pod after a failed eviction.
fn refused(world: &World) -> PodView {
    let Observed::Known(pods) = &world.pods else { panic!("no pods") };
    let pod = pods.first().unwrap();
    assert!(pod.refused.is_some() && !pod.terminating);
    pod.clone()
}

#[test]
fn the_drain_of_a_preserved_node_orders_volumes_and_ends_pods_where_there_is_no_eviction() {
    let mut world = World::running();
    world.kinds.remove(&Kind::GetVolumeIds);
    world.can_evict = false;
    ask(&mut world, "when-failed");
    world.add_pod_with_volume("low", 0, "v-low");
    world.add_pod_with_volume("high", 10, "v-high");
    world.machine_mut().spec.health_timeout = Some("1m".into());
    sick(&mut world, "False");
    world.pass();
    world.later(60);
    let mut ended = Vec::new();
    for _ in 0..4 {
        let actions = world.pass().actions;
        assert!(!actions.iter().any(|one| matches!(one, Action::Evict(_) | Action::DeletePod(_))));
        ended.extend(actions.into_iter().filter_map(|one| match one {
            Action::EndPod(pod) => Some(pod.name),
            _ => None,
        }));
    }
    assert_eq!(ended, ["high"]);
    assert_eq!(world.phase(), MachinePhase::Failed);
    world.pods_end();
    world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::VolumesAttached));
    world.detach("v-high");
    world.pass();
    world.pods_end();
    world.pass();
    assert_eq!(world.step(), Some(MachineStep::DetachVolumes));
    world.detach("v-low");
    world.settle();
    assert_eq!((world.waits_for(), world.step()), (Some(WaitReason::Preserved), None));
    assert!(condition(&world).unwrap().message.unwrap().starts_with("Preserved node drained"));
}

#[test]
fn a_preserved_machine_that_fails_again_is_emptied_again() {
    let mut world = World::running();
    ask(&mut world, "now");
    fails(&mut world);
    sick(&mut world, "True");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    world.pods = Observed::Known(vec![pod("web")]);
    world.machine_mut().spec.health_timeout = Some("1m".into());
    sick(&mut world, "False");
    world.pass();
    world.later(60);
    for _ in 0..4 {
        world.pass();
    }
    assert_eq!(world.phase(), MachinePhase::Failed);
    world.pods_end();
    assert_eq!(world.pods, Observed::Known(Vec::new()));
}

#[test]
fn a_node_that_was_cordoned_for_an_update_takes_pods_again_after_it_was_preserved() {
    let mut world = World::running();
    world.pods = Observed::Known(vec![pod("web")]);
    world.protected.insert("web".to_owned());
    select(&mut world);
    world.settle_pods();
    world.pass();
    assert!(is_cordoned(&world));
    ask(&mut world, "now");
    sick(&mut world, "False");
    world.settle_pods();
    world.later(601);
    world.settle_pods();
    assert_eq!(world.phase(), MachinePhase::Failed);
    world.pods = Observed::Known(Vec::new());
    world.node_is("True");
    for key in [label::CANDIDATE_FOR_UPDATE, label::SELECTED_FOR_UPDATE] {
        set(&mut world, key, None);
    }
    world.settle();
    assert_eq!((world.phase(), is_cordoned(&world)), (MachinePhase::Running, false));
}

#[test]
fn preservation_ends_in_time_though_its_value_has_no_meaning_any_more() {
    let mut world = World::running();
    ask_node(&mut world, Some("now"));
    world.settle();
    ask_node(&mut world, Some("later"));
    world.settle();
    assert!(until(&world).is_some(), "what is kept stays");
    world.later(96 * 3600);
    world.settle();
    assert_eq!(until(&world), None);
    assert!(world.happened(EventReason::PreservationEnded));
}

#[test]
fn preservation_that_cannot_be_ended_now_is_not_looked_at_without_pause() {
    let mut paused = World::running();
    ask(&mut paused, "now");
    paused.settle();
    let mut unseen = paused.clone();
    unseen.node = NodeView::Unknown;
    ask_to_pause(&mut paused);
    for world in [&mut paused, &mut unseen] {
        world.later(96 * 3600 + 1);
        // The world refuses a wait that ends in the past.
        world.pass();
        assert!(until(world).is_some());
    }
}

fn ask_to_pause(world: &mut World) {
    let notes = world.machine_mut().metadata.annotations.get_or_insert_default();
    notes.insert(annotation::PAUSED.to_owned(), "true".to_owned());
}

#[test]
fn a_template_that_allows_scale_down_does_not_while_the_machine_is_preserved() {
    let mut world = World::running();
    let key = annotation::SCALE_DOWN_DISABLED;
    let template = serde_json::json!({ "metadata": { "annotations": { key: "false" } } });
    world.machine_mut().spec.node_template = Some(serde_json::from_value(template).unwrap());
    world.settle();
    assert_eq!(note(&world, key), Some("false"));
    ask(&mut world, "now");
    world.settle();
    assert_eq!(note(&world, key), Some("true"));
    assert!(world.pass().actions.is_empty());
    ask(&mut world, "false");
    world.settle();
    assert_eq!(note(&world, key), Some("false"));
    world.machine_mut().spec.node_template = None;
    world.settle();
    assert_eq!(note(&world, key), None, "it is still known whose it is");
}

#[test]
fn a_template_that_is_dropped_while_the_machine_is_preserved_leaves_nothing_on_the_node() {
    let mut world = World::running();
    let key = annotation::SCALE_DOWN_DISABLED;
    let template = serde_json::json!({ "metadata": { "annotations": { key: "true" } } });
    world.machine_mut().spec.node_template = Some(serde_json::from_value(template).unwrap());
    world.settle();
    ask(&mut world, "now");
    world.settle();
    world.machine_mut().spec.node_template = None;
    world.settle();
    assert_eq!(note(&world, key), Some("true"), "it is preserved");
    ask(&mut world, "false");
    world.settle();
    assert_eq!(note(&world, key), None);
}
