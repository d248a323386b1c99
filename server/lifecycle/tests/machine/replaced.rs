//! What others had on a Node before a template wanted another value there.

use k8s_openapi::api::core::v1::{Node, Taint};
use ostler_api::names::annotation::{LAST_APPLIED_NODE_TEMPLATE, REPLACED_BY_TEMPLATE};
use serde_json::{Value, json};

use crate::machine::world::World;

const HOST: &str = "kubernetes.io/hostname";

/// A Machine whose Node has a label, an annotation and a taint of others.
fn running() -> World {
    let mut world = World::running();
    let mut node = world.node().clone();
    let labels = node.metadata.labels.get_or_insert_default();
    labels.extend([(HOST.to_owned(), "node-1".to_owned()), ("zone".to_owned(), "z".to_owned())]);
    let notes = node.metadata.annotations.get_or_insert_default();
    notes.insert("team".to_owned(), "theirs".to_owned());
    node.spec.get_or_insert_default().taints = Some(vec![taint("theirs")]);
    world.put_node(node);
    world.settle();
    world
}

fn taint(value: &str) -> Taint {
    let (key, effect) = ("dedicated".to_owned(), "NoSchedule".to_owned());
    Taint { key, effect, value: Some(value.to_owned()), ..Taint::default() }
}

fn wants(world: &mut World, template: &Value) {
    world.machine_mut().spec.node_template = serde_json::from_value(template.clone()).unwrap();
    world.settle();
}

fn ours() -> Value {
    json!({
        "metadata": {
            "labels": { HOST: "ours", "zone": "z", "new": "1" }, "annotations": { "team": "ours" },
        },
        "spec": { "taints": [{ "key": "dedicated", "value": "ours", "effect": "NoSchedule" }] },
    })
}

/// The values of [`HOST`], `zone`, `new`, `team`, and of the taint.
fn there(world: &World) -> [Option<String>; 5] {
    let Node { metadata, spec, .. } = world.node().clone();
    let (labels, notes) = (metadata.labels.unwrap(), metadata.annotations.unwrap());
    let taint = spec.unwrap().taints.into_iter().flatten().next().and_then(|one| one.value);
    let label = |key: &str| labels.get(key).cloned();
    [label(HOST), label("zone"), label("new"), notes.get("team").cloned(), taint]
}

fn some(values: [&str; 5]) -> [Option<String>; 5] {
    values.map(|value| Some(value.to_owned()).filter(|value| !value.is_empty()))
}

fn note(world: &World, key: &str) -> Option<String> {
    world.node().metadata.annotations.as_ref()?.get(key).cloned()
}

#[test]
fn what_a_template_replaced_is_put_back_when_it_wants_that_no_more() {
    let mut world = running();
    let before = there(&world);
    wants(&mut world, &ours());
    assert_eq!(there(&world), some(["ours", "z", "1", "ours", "ours"]));
    // What was replaced stays known over further changes.
    let mut other = ours();
    other["metadata"]["labels"][HOST] = json!("other");
    wants(&mut world, &other);
    assert!(world.pass().actions.is_empty(), "it rests there");
    wants(&mut world, &json!(null));
    assert_eq!(there(&world)[0], before[0]);
    // What had the same value, the template may have put there by way of the kubelet: it goes, as upstream has it.
    assert_eq!(there(&world), some(["node-1", "", "", "theirs", "theirs"]));
    assert_eq!(note(&world, REPLACED_BY_TEMPLATE), None);
    assert!(world.pass().actions.is_empty());
}

#[test]
fn a_value_that_somebody_took_away_meanwhile_does_not_come_back() {
    let mut world = running();
    wants(&mut world, &ours());
    let mut node = world.node().clone();
    node.spec.as_mut().unwrap().taints = None;
    world.put_node(node);
    wants(&mut world, &json!(null));
    assert_eq!(there(&world)[4], None);
}

#[test]
fn a_label_of_kubernetes_is_put_back_also_if_an_older_core_replaced_it() {
    let mut world = running();
    wants(&mut world, &ours());
    let mut node = world.node().clone();
    node.metadata.annotations.as_mut().unwrap().remove(REPLACED_BY_TEMPLATE);
    world.put_node(node);
    wants(&mut world, &json!(null));
    assert_eq!(there(&world)[0].as_deref(), Some("node-1"));
    assert_eq!(there(&world)[3], None, "whose it was is not known");
}

#[test]
fn a_note_that_cannot_be_read_makes_nothing_that_of_others() {
    let mut world = running();
    wants(&mut world, &ours());
    let mut node = world.node().clone();
    let notes = node.metadata.annotations.as_mut().unwrap();
    notes.remove(REPLACED_BY_TEMPLATE);
    notes.insert(LAST_APPLIED_NODE_TEMPLATE.to_owned(), "{".to_owned());
    world.put_node(node);
    let mut other = ours();
    other["metadata"]["annotations"]["team"] = json!("other");
    wants(&mut world, &other);
    assert_eq!(note(&world, REPLACED_BY_TEMPLATE), None);
}
