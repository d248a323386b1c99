//! Machines chosen by an autoscaler: exactly those are deleted.

use ostler_api::names::annotation::{
    MARKED_FOR_DELETION, PRIORITY, REPLICAS_CHANGED_BY_SCALER, TRIGGER_DELETION,
};
use serde_json::{Value, json};

use crate::deployment::world::World;

const EARLY: &str = "2026-01-01T00:00:00Z";
const LATE: &str = "2026-01-01T01:00:00Z";

fn mark(list: &str, changed: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": {
        TRIGGER_DELETION: list, REPLICAS_CHANGED_BY_SCALER: changed
    }}})
}

#[test]
fn marks_and_replicas_in_one_write_delete_exactly_the_chosen_965() {
    let mut world = World::running(4);
    let victims = [world.names()[1].clone(), world.names()[3].clone()];
    world.edit(&mark(&format!("{}~{EARLY},{}~{EARLY}", victims[0], victims[1]), Some(EARLY)));
    world.edit(&json!({ "spec": { "replicas": 2 } }));
    world.passes();
    for name in &victims {
        let machine = &world.machines[name];
        assert_eq!(machine.annotation(PRIORITY), Some("1"));
        assert_eq!(machine.annotation(MARKED_FOR_DELETION), Some(EARLY));
    }
    assert_eq!(world.set("one").annotation(REPLICAS_CHANGED_BY_SCALER), Some(EARLY));
    world.settle();
    assert!(victims.iter().all(|name| !world.machines.contains_key(name)), "{:?}", world.names());
    assert_eq!(world.machines.len(), 2);
    assert_eq!(world.deployment.annotation(TRIGGER_DELETION), None);
}

#[test]
fn marks_that_come_before_the_replicas_wait_for_them_1087() {
    let mut world = World::running(3);
    let victim = world.names()[2].clone();
    world.edit(&mark(&format!("{victim}~{LATE}"), Some(EARLY)));
    world.settle();
    assert_eq!(world.machines.len(), 3);
    world.edit(&mark(&format!("{victim}~{LATE}"), Some(LATE)));
    world.edit(&json!({ "spec": { "replicas": 2 } }));
    world.settle();
    assert!(!world.machines.contains_key(&victim));
    assert_eq!(world.machines.len(), 2);
}

#[test]
fn in_the_middle_of_a_rollout_the_set_of_the_chosen_machine_shrinks_1078() {
    let mut world = World::running(4);
    world.roll_to("two");
    for _ in 0..2 {
        world.passes();
        world.sets_work();
        world.machines_start();
        world.machines_go();
    }
    world.passes();
    let old = world.set("one").name().to_owned();
    let victim = world.names().into_iter().find(|name| name.starts_with(&old)).unwrap();
    let before = world.wanted();
    world.edit(&mark(&format!("{victim}~{EARLY}"), Some(EARLY)));
    world.edit(&json!({ "spec": { "replicas": 3 } }));
    world.pass();
    let after = world.wanted();
    assert_eq!(after["two"], before["two"], "{before:?} {after:?}");
    assert!(after["one"] < before["one"]);
    assert_eq!(world.set("one").annotation(REPLICAS_CHANGED_BY_SCALER), Some(EARLY));
    world.sets_work();
    assert!(world.machines[&victim].is_deleting());
    world.settle();
    assert_eq!(world.wanted()["two"], 3);
}

#[test]
fn entries_that_mean_nothing_are_dropped_and_those_that_cannot_be_read_are_reported() {
    let mut world = World::running(2);
    let (one, failed) = (world.names()[0].clone(), world.names()[1].clone());
    world.edit_machine(&failed, &json!({ "status": { "currentStatus": { "phase": "Failed" } } }));
    let list = format!("gone~{EARLY},{failed}~{EARLY},{one}~yesterday,a b, ,{one}~{LATE}");
    world.edit(&mark(&list, Some(EARLY)));
    world.passes();
    let left = format!("{one}~{LATE}");
    assert_eq!(world.deployment.annotation(TRIGGER_DELETION), Some(left.as_str()));
    let told = world.reasons().iter().filter(|it| **it == "MarkMalformed").count();
    assert_eq!(told, 2);
}

#[test]
fn the_old_form_without_a_time_gets_that_of_the_last_change() {
    let mut world = World::running(2);
    let victim = world.names()[0].clone();
    world.edit(&mark(&victim, None));
    let now = format!("{:.0}", world.now);
    world.passes();
    let list = format!("{victim}~{now}");
    assert_eq!(world.deployment.annotation(TRIGGER_DELETION), Some(list.as_str()));
    assert_eq!(world.deployment.annotation(REPLICAS_CHANGED_BY_SCALER), Some(now.as_str()));
}

#[test]
fn a_machine_that_is_taken_off_the_list_gets_its_priority_back() {
    let mut world = World::running(2);
    let spared = world.names()[0].clone();
    world.edit(&mark(&format!("{spared}~{LATE}"), Some(EARLY)));
    world.passes();
    assert_eq!(world.machines[&spared].annotation(PRIORITY), Some("1"));
    world.edit(&json!({ "metadata": { "annotations": { TRIGGER_DELETION: null } } }));
    world.passes();
    assert_eq!(world.machines[&spared].annotation(PRIORITY), Some("3"));
    assert_eq!(world.machines[&spared].annotation(MARKED_FOR_DELETION), None);
}
