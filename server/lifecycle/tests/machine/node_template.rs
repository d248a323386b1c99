use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time},
};
use ostler_api::{
    machine::{MachineConditionType, MachinePhase},
    names::{annotation, label, taint},
};
use ostler_lifecycle::{
    plan::{Action, EventReason},
    snapshot::NodeView,
};
use serde_json::{Value, json};

use crate::machine::world::World;

fn template(world: &mut World, template: &Value) {
    let template = serde_json::from_value(template.clone()).unwrap();
    world.machine_mut().spec.node_template = Some(template);
}

fn running_with(wanted: &Value) -> World {
    let mut world = World::new();
    template(&mut world, wanted);
    world.settle();
    world.join();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    world
}

fn edit_node(world: &mut World, edit: impl FnOnce(&mut Node)) {
    let mut node = world.node().clone();
    edit(&mut node);
    world.node = NodeView::Known(Arc::new(node));
}

fn note<'a>(world: &'a World, key: &str) -> Option<&'a str> {
    world.node().metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn label_of<'a>(world: &'a World, key: &str) -> Option<&'a str> {
    world.node().metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn taints(world: &World) -> Vec<String> {
    let taints = world.node().spec.as_ref().unwrap().taints.clone().unwrap_or_default();
    let text = |one: &Taint| format!("{}={}", one.key, one.value.clone().unwrap_or_default());
    taints.iter().map(text).collect()
}

fn pool() -> Value {
    json!({
        "metadata": { "labels": { "pool": "a" }, "annotations": { "team": "x" } },
        "spec": { "taints": [{ "key": "dedicated", "value": "db", "effect": "NoSchedule" }] }
    })
}

#[test]
fn a_template_reaches_the_node_when_it_joins_and_rests_there() {
    let mut world = running_with(&pool());
    assert_eq!(label_of(&world, "pool"), Some("a"));
    assert_eq!(note(&world, "team"), Some("x"));
    assert_eq!(taints(&world), ["dedicated=db"]);
    let noted: Value =
        serde_json::from_str(note(&world, annotation::LAST_APPLIED_NODE_TEMPLATE).unwrap())
            .unwrap();
    assert_eq!(noted, pool());
    assert!(world.pass().actions.is_empty());
}

#[test]
fn what_leaves_the_template_leaves_the_node_and_what_others_put_there_stays() {
    let mut world = running_with(&pool());
    edit_node(&mut world, |node| {
        node.metadata.labels.as_mut().unwrap().insert("zone".into(), "z".into());
        let foreign = Taint {
            key: "foreign".into(),
            effect: "NoExecute".into(),
            time_added: Some(Time(jiff::Timestamp::UNIX_EPOCH)),
            ..Taint::default()
        };
        node.spec.as_mut().unwrap().taints.as_mut().unwrap().insert(0, foreign);
    });
    template(&mut world, &json!({ "metadata": { "labels": { "pool": "b", "tier": "1" } } }));
    world.settle();
    assert_eq!(label_of(&world, "pool"), Some("b"));
    assert_eq!(label_of(&world, "tier"), Some("1"));
    assert_eq!(label_of(&world, "zone"), Some("z"));
    assert_eq!(label_of(&world, label::MACHINE_NAME), Some("m1"));
    assert_eq!(note(&world, "team"), None);
    assert_eq!(taints(&world), ["foreign="]);
    world.machine_mut().spec.node_template = None;
    world.settle();
    assert_eq!(label_of(&world, "pool"), None);
    assert_eq!(note(&world, annotation::LAST_APPLIED_NODE_TEMPLATE), None);
}

#[test]
fn a_taint_that_somebody_took_away_comes_back_only_when_the_template_changes_it() {
    let mut world = running_with(&pool());
    edit_node(&mut world, |node| node.spec.as_mut().unwrap().taints = None);
    let plan = world.pass();
    assert!(plan.actions.is_empty(), "{plan:#?}");
    let mut changed = pool();
    changed["metadata"]["labels"]["pool"] = json!("b");
    template(&mut world, &changed);
    world.settle();
    assert_eq!(taints(&world), Vec::<String>::new(), "another part of the template changed");
    changed["spec"]["taints"][0]["value"] = json!("cache");
    template(&mut world, &changed);
    world.settle();
    assert_eq!(taints(&world), ["dedicated=cache"]);
}

#[test]
fn a_label_that_somebody_changed_is_put_right() {
    let mut world = running_with(&pool());
    edit_node(&mut world, |node| {
        node.metadata.labels.as_mut().unwrap().insert("pool".into(), "other".into());
    });
    world.settle();
    assert_eq!(label_of(&world, "pool"), Some("a"));
}

#[test]
fn taints_keep_their_order_and_when_they_were_added_is_no_difference() {
    let mut world = running_with(&pool());
    let time = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    edit_node(&mut world, |node| {
        node.spec.as_mut().unwrap().taints.as_mut().unwrap()[0].time_added.clone_from(&time);
    });
    let mut stamped = pool();
    stamped["spec"]["taints"][0]["timeAdded"] = json!("2026-01-01T00:00:00Z");
    template(&mut world, &stamped);
    assert!(world.pass().actions.is_empty());
    let taints_wanted = json!([
        { "key": "z", "effect": "NoSchedule" },
        { "key": "dedicated", "value": "db", "effect": "NoSchedule" },
        { "key": "a", "effect": "NoSchedule" }
    ]);
    stamped["spec"]["taints"] = taints_wanted;
    template(&mut world, &stamped);
    world.settle();
    assert_eq!(taints(&world), ["dedicated=db", "z=", "a="]);
}

#[test]
fn a_note_that_nobody_can_read_is_written_anew_once() {
    let mut world = running_with(&pool());
    edit_node(&mut world, |node| {
        let notes = node.metadata.annotations.as_mut().unwrap();
        notes.insert(annotation::LAST_APPLIED_NODE_TEMPLATE.into(), "{ no".into());
    });
    world.settle();
    assert_eq!(taints(&world), ["dedicated=db"]);
    assert!(world.pass().actions.is_empty());
}

#[test]
fn the_note_of_machine_controller_manager_is_understood() {
    let mut world = World::running();
    let upstream = r#"{"metadata":{"creationTimestamp":null,"labels":{"old":"1","pool":"a"},"annotations":{"team":"x"}},"spec":{"taints":[{"key":"dedicated","value":"db","effect":"NoSchedule"}]}}"#;
    edit_node(&mut world, |node| {
        let labels = node.metadata.labels.as_mut().unwrap();
        labels.insert("old".into(), "1".into());
        labels.insert("pool".into(), "a".into());
        let notes = node.metadata.annotations.get_or_insert_default();
        notes.insert("team".into(), "x".into());
        notes.insert(annotation::LAST_APPLIED_NODE_TEMPLATE.into(), upstream.into());
    });
    template(&mut world, &pool());
    world.settle();
    assert_eq!(label_of(&world, "old"), None);
    assert_eq!(taints(&world), Vec::<String>::new(), "it was there once, and a user removed it");
}

#[test]
fn malformed_parts_are_named_and_keep_nothing_else_from_the_node() {
    let mut wanted = pool();
    wanted["metadata"]["labels"]["bad"] = json!("no spaces!");
    wanted["spec"]["taints"][0]["effect"] = json!("Sometimes");
    let mut world = running_with(&wanted);
    assert_eq!(label_of(&world, "pool"), Some("a"));
    assert_eq!(label_of(&world, "bad"), None);
    let message = refusal(&world).unwrap();
    assert!(message.contains("label bad") && message.contains("taint dedicated"), "{message}");
    assert!(world.happened(EventReason::NodeTemplateRefused));
    wanted = pool();
    for kind in ["labels", "annotations"] {
        wanted["metadata"][kind]["Example.com/Owner"] = json!("me");
    }
    template(&mut world, &wanted);
    world.settle();
    let message = refusal(&world).unwrap();
    assert!(message.ends_with(": label Example.com/Owner"), "{message}");
    assert_eq!(note(&world, "Example.com/Owner"), Some("me"), "of annotations, case counts not");
    template(&mut world, &pool());
    world.settle();
    assert_eq!(refusal(&world), None);
}

#[test]
fn a_template_cannot_take_over_what_the_core_writes() {
    let world = running_with(&json!({
        "metadata": {
            "labels": { (label::MACHINE_NAME): "other" },
            "annotations": { (annotation::LAST_APPLIED_NODE_TEMPLATE): "x" }
        },
        "spec": { "taints": [{ "key": taint::INSTANCE_NOT_READY, "effect": "NoSchedule" }] }
    }));
    assert_eq!(label_of(&world, label::MACHINE_NAME), Some("m1"));
    assert_ne!(note(&world, annotation::LAST_APPLIED_NODE_TEMPLATE), Some("x"));
    assert_eq!(taints(&world), Vec::<String>::new());
}

fn capacity(world: &World, key: &str) -> Option<String> {
    let capacity = world.node().status.as_ref()?.capacity.as_ref()?;
    capacity.get(key).map(|Quantity(text)| text.clone())
}

fn virtual_capacity(world: &mut World, capacity: &Value) {
    let template = json!({
        "capacity": {}, "virtualCapacity": capacity,
        "instanceType": "small", "region": "r", "zone": "z"
    });
    world.class.as_mut().unwrap().spec.node_template = Some(template);
}

#[test]
fn virtual_capacity_follows_the_class_while_the_machine_runs() {
    let mut world = World::running();
    virtual_capacity(&mut world, &json!({ "example.com/licence": 3, "example.com/port": "1000m" }));
    let first = world.pass();
    assert!(first.actions.iter().any(|action| matches!(action, Action::PatchNodeStatus(_))));
    world.settle();
    assert_eq!(capacity(&world, "example.com/licence").as_deref(), Some("3"));
    let noted = note(&world, annotation::LAST_APPLIED_VIRTUAL_CAPACITY).unwrap();
    assert_eq!(noted, r#"{"example.com/licence":"3","example.com/port":"1000m"}"#);
    // The API server rewrites the value.
    edit_node(&mut world, |node| {
        let capacity = node.status.as_mut().unwrap().capacity.as_mut().unwrap();
        capacity.insert("example.com/port".into(), Quantity("1".into()));
        capacity.insert("cpu".into(), Quantity("4".into()));
    });
    assert!(world.pass().actions.is_empty());
    virtual_capacity(&mut world, &json!({ "example.com/port": "2" }));
    world.settle();
    assert_eq!(capacity(&world, "example.com/licence"), None);
    assert_eq!(capacity(&world, "example.com/port").as_deref(), Some("2"));
    virtual_capacity(&mut world, &json!({}));
    world.settle();
    assert_eq!(capacity(&world, "example.com/port"), None);
    assert_eq!(capacity(&world, "cpu").as_deref(), Some("4"), "the kubelet's own");
    assert_eq!(note(&world, annotation::LAST_APPLIED_VIRTUAL_CAPACITY), None);
}

#[test]
fn virtual_capacity_that_is_no_quantity_or_an_unreadable_note_of_it_does_no_harm() {
    let mut world = World::running();
    virtual_capacity(&mut world, &json!({ "example.com/licence": "many", "a b": "1" }));
    edit_node(&mut world, |node| {
        let notes = node.metadata.annotations.get_or_insert_default();
        notes.insert(annotation::LAST_APPLIED_VIRTUAL_CAPACITY.into(), "[]".into());
    });
    world.settle();
    assert_eq!(note(&world, annotation::LAST_APPLIED_VIRTUAL_CAPACITY), None);
    assert!(world.pass().actions.is_empty());
}

#[test]
fn virtual_capacity_that_no_api_server_takes_is_named_and_keeps_no_condition_from_the_node() {
    let mut world = World::running();
    let wanted = json!({
        "example.com/half": "500m", "example.com/debt": "-1", "example.com/many": "many", "pods": "1.5",
        "example.com/port": "1000m", "cpu": "500m", "requests.example.com/x": "0.5",
    });
    virtual_capacity(&mut world, &wanted);
    world.settle();
    let refused = ["example.com/half", "example.com/debt", "example.com/many", "pods"];
    let message = refusal(&world).unwrap();
    for key in refused {
        assert!(message.contains(&format!("virtual capacity {key}")), "{message}");
        assert_eq!(capacity(&world, key), None);
    }
    for key in ["example.com/port", "cpu", "requests.example.com/x"] {
        assert!(!message.contains(key) && capacity(&world, key).is_some(), "{key}");
    }
    virtual_capacity(&mut world, &json!({}));
    world.settle();
    assert_eq!(refusal(&world), None);
}

/// The refused part of the Machine's Node template.
fn refusal(world: &World) -> Option<String> {
    let refused = MachineConditionType::NodeTemplateRefused;
    let conditions = world.status().conditions;
    conditions.into_iter().find(|one| one.type_ == refused.as_str())?.message
}

#[test]
fn a_priority_is_given_to_a_machine_that_has_none_and_never_changed() {
    let mut world = World::running();
    world.machine_mut().metadata.annotations = None;
    world.settle();
    assert_eq!(world.machine().annotation(annotation::PRIORITY), Some("3"));
    let notes = world.machine_mut().metadata.annotations.as_mut().unwrap();
    notes.insert(annotation::PRIORITY.to_owned(), "1".to_owned());
    world.settle();
    assert_eq!(world.machine().annotation(annotation::PRIORITY), Some("1"));
}

fn in_reserve() -> Value {
    json!({
        "metadata": { "annotations": { annotation::SCALE_DOWN_DISABLED: "true" } },
        "spec": { "taints": [{ "key": taint::RESERVE, "effect": "NoSchedule" }] }
    })
}

/// No pod slips in between.
#[test]
fn a_node_in_reserve_is_closed_by_the_write_that_opens_it_at_the_latest() {
    let mut world = World::new();
    template(&mut world, &in_reserve());
    world.settle();
    world.join();
    let mut opened = false;
    for _ in 0..20 {
        let actions = world.pass().actions.clone();
        for action in &actions {
            let Action::PatchNode(patch) = action else { continue };
            opened |= patch.remove_not_ready_taint;
            let there = taints(&world).iter().any(|it| it.starts_with(taint::RESERVE));
            let put = patch.taints.iter().flatten().any(|it| it.key == taint::RESERVE);
            assert!(!patch.remove_not_ready_taint || there || put, "{patch:?}");
        }
        world.settle();
    }
    assert!(opened && world.phase() == MachinePhase::Running);
    assert!(taints(&world).iter().any(|it| it.starts_with(taint::RESERVE)));
}

#[test]
fn a_node_stays_closed_while_its_machine_is_in_reserve_and_opens_when_a_set_takes_that() {
    let mut world = running_with(&in_reserve());
    edit_node(&mut world, |node| node.spec.as_mut().unwrap().taints = None);
    world.settle();
    assert_eq!(taints(&world), [format!("{}=", taint::RESERVE)]);
    world.machine_mut().spec.node_template = None;
    world.settle();
    assert_eq!(taints(&world), Vec::<String>::new());
    assert_eq!(note(&world, annotation::SCALE_DOWN_DISABLED), None);
}
