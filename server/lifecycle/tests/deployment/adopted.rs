//! Sets that another controller or a user made, and deployments beside others.

use std::collections::BTreeSet;
use std::sync::Arc;

use ostler_api::MachineDeployment;
use ostler_api::names::annotation::{CLUSTER_API_REVISION, REVISION};
use ostler_api::names::label::{CLUSTER_API_DEPLOYMENT, TEMPLATE_HASH};
use ostler_lifecycle::deployment::decide as plan;
use serde_json::{Value, json};

use crate::deployment::world::{World, deployment};

/// A deployment of three, and a set of its template that has no hash and no controller, with its machines.
fn with_a_plain_set() -> World {
    let mut world = World::of(deployment(3));
    let set = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
        "metadata": {
            "name": "plain", "namespace": "default", "uid": "plain-uid", "labels": { "app": "d" },
            "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
        },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app": "d" } },
            "template": deployment(3)["spec"]["template"]
        }
    });
    world.pass();
    assert!(world.deployment.has_finalizer());
    world.sets.insert("plain".to_owned(), serde_json::from_value(set).unwrap());
    world.sets_work();
    world.machines_start();
    world
}

fn names(world: &World) -> BTreeSet<String> {
    world.machines.keys().cloned().collect()
}

fn selector(world: &World) -> Value {
    json!(world.sets["plain"].spec.selector.as_ref().unwrap().match_labels)
}

#[test]
fn an_adopted_set_gets_the_hash_in_template_machines_and_selector_in_this_order() {
    let mut world = with_a_plain_set();
    let before = names(&world);
    let labelled = |world: &World| {
        let all = world.machines.values();
        all.filter(|machine| machine.label(TEMPLATE_HASH).is_some()).count()
    };
    let in_template = |world: &World| {
        let labels = &world.sets["plain"].spec.template.metadata.as_ref().unwrap().labels;
        labels.as_ref().unwrap().get(TEMPLATE_HASH).cloned()
    };
    world.pass();
    assert_eq!((in_template(&world), labelled(&world)), (None, 0), "it is adopted first");
    world.pass();
    assert!(in_template(&world).is_some() && labelled(&world) == 0);
    world.pass();
    assert_eq!((labelled(&world), selector(&world)), (3, json!({ "app": "d" })));
    world.settle();
    let tag = in_template(&world).unwrap();
    assert_eq!(selector(&world), json!({ "app": "d", TEMPLATE_HASH: tag }));
    assert_eq!(world.sets["plain"].label(TEMPLATE_HASH), Some(tag.as_str()));
    assert_eq!((names(&world), world.sets.len()), (before.clone(), 1), "no machine is new");
    world.roll_to("two");
    world.settle();
    assert!(names(&world).is_disjoint(&before) && world.available() == 3);
}

/// Cluster API's autoscaler compares the revisions of sets that it finds by the label.
#[test]
fn sets_of_machine_controller_manager_get_revision_and_label_of_cluster_api_in_the_middle_of_a_rollout()
 {
    let mut world = World::running(3);
    world.roll_to("two");
    world.passes();
    let ours = [CLUSTER_API_REVISION.to_owned()];
    world.deployment.metadata.annotations.as_mut().unwrap().retain(|key, _| !ours.contains(key));
    for set in world.sets.values_mut() {
        set.metadata.annotations.as_mut().unwrap().retain(|key, _| !ours.contains(key));
        set.metadata.labels.as_mut().unwrap().remove(CLUSTER_API_DEPLOYMENT);
    }
    // A set that was never counted has no revision.
    let mut uncounted = world.set("one").clone();
    uncounted.metadata.name = Some("d-none".to_owned());
    uncounted.metadata.annotations = None;
    uncounted.spec.template.spec.class.name = "none".to_owned();
    uncounted.spec.replicas = Some(0);
    world.sets.insert("d-none".to_owned(), uncounted);
    world.passes();
    for (class, revision) in [("one", Some("1")), ("two", Some("2")), ("none", None)] {
        let set = world.set(class);
        assert_eq!(set.annotation(REVISION), revision, "{class}");
        assert_eq!(set.annotation(CLUSTER_API_REVISION), revision, "{class}");
        assert_eq!(set.label(CLUSTER_API_DEPLOYMENT), Some("d"), "{class}");
    }
    assert_eq!(world.deployment.annotation(CLUSTER_API_REVISION), Some("2"));
    assert!(world.pass().sets.is_empty(), "it is written once");
}

#[test]
fn the_selector_waits_until_the_set_knows_its_template_and_lacks_no_machine() {
    let mut world = with_a_plain_set();
    let one = world.machines.pop_first().unwrap();
    world.passes();
    assert_eq!(selector(&world), json!({ "app": "d" }), "one may be on its way without the label");
    world.machines.insert(one.0, one.1);
    let set = world.sets.get_mut("plain").unwrap();
    set.metadata.generation = Some(2);
    world.passes();
    assert_eq!(selector(&world), json!({ "app": "d" }), "the set did not look at its template yet");
    let set = world.sets.get_mut("plain").unwrap();
    set.status.as_mut().unwrap().observed_generation = Some(2);
    world.passes();
    assert_ne!(selector(&world), json!({ "app": "d" }));
    assert!(world.machines.values().all(|machine| machine.label(TEMPLATE_HASH).is_some()));
}

#[test]
fn a_selector_that_loses_a_set_is_refused_until_it_is_put_back() {
    let exists = json!([{ "key": "tier", "operator": "Exists" }]);
    for (what, labels, exact, rules) in [
        ("another value", json!({ "app": "x" }), json!({ "app": "x" }), Value::Null),
        ("another key", json!({ "tier": "x" }), json!({ "tier": "x" }), Value::Null),
        ("an expression", json!({ "tier": "x" }), json!({}), exists),
    ] {
        let select = |labels: &Value, exact: &Value, rules: &Value| {
            let template = json!({ "metadata": { "labels": labels } });
            let selector = json!({ "matchLabels": exact, "matchExpressions": rules });
            json!({ "spec": { "selector": selector, "template": template } })
        };
        let mut world = World::running(3);
        let sets = world.sets.clone();
        world.edit(&select(&labels, &exact, &rules));
        world.settle();
        assert_eq!((&world.sets, world.machines.len()), (&sets, 3), "{what}");
        let said = world.condition("Valid").unwrap().message.clone().unwrap();
        assert!(said.contains("spec.selector was changed"), "{what}: {said}");
        let before = json!({ "app": "d", "tier": null });
        world.edit(&select(&before, &before, &Value::Null));
        world.settle();
        let found = (world.condition("Valid"), world.sets.len(), world.machines.len());
        assert_eq!(found, (None, 1, 3), "{what}");
    }
}

#[test]
fn a_selector_that_has_another_key_and_still_selects_the_sets_is_taken() {
    let mut world = World::running(3);
    world.edit(&json!({ "spec": { "selector": { "matchLabels": { "name": "d" } } } }));
    world.settle();
    assert_eq!((world.condition("Valid"), world.sets.len()), (None, 1));
    assert_eq!(world.status().selector.as_deref(), Some("app=d,name=d"));
}

#[test]
fn a_set_with_the_labels_of_a_deployment_that_makes_other_machines_is_not_adopted() {
    for (selector, labels, adopted) in [
        (json!({ "app": "x" }), json!({ "app": "x" }), false),
        (json!({ "of": "x" }), json!({ "of": "x" }), false),
        (json!({ "of": "x" }), json!({ "of": "x", "app": "d" }), true),
    ] {
        let mut world = with_a_plain_set();
        let set = world.sets.get_mut("plain").unwrap();
        set.spec.selector = serde_json::from_value(json!({ "matchLabels": selector })).unwrap();
        let template = set.spec.template.metadata.as_mut().unwrap();
        template.labels = serde_json::from_value(labels.clone()).unwrap();
        world.settle();
        let set = &world.sets["plain"];
        assert_eq!(set.metadata.owner_references.is_some(), adopted, "{labels}");
        assert_eq!(set.spec.replicas(), if adopted { 0 } else { 3 }, "{labels}");
        assert_eq!((world.condition("Valid"), world.sets.len()), (None, 2), "{labels}");
    }
}

#[test]
fn a_selector_that_overlaps_with_that_of_another_deployment_is_told_once_for_each_generation() {
    let other = |name: &str, selector: Value, labels: Value| {
        let mut other = deployment(1);
        other["metadata"]["name"] = json!(name);
        other["metadata"]["uid"] = json!(name);
        other["spec"]["selector"] = json!({ "matchLabels": selector });
        other["spec"]["template"]["metadata"]["labels"] = labels;
        Arc::new(serde_json::from_value::<MachineDeployment>(other).unwrap())
    };
    let told = |world: &World| {
        let mut snapshot = world.snapshot();
        snapshot.others = vec![
            Arc::clone(&snapshot.deployment),
            other("apart", json!({ "app": "x" }), json!({ "app": "x" })),
            other("selects", json!({ "name": "d" }), json!({ "name": "d" })),
            other("selected", json!({ "app": "y" }), json!({ "app": "d" })),
        ];
        let events = plan(&snapshot).events;
        let overlaps = events.into_iter().filter(|event| event.reason.name() == "SelectorOverlap");
        overlaps.map(|event| event.message).collect::<Vec<_>>()
    };
    let mut world = World::running(2);
    assert_eq!(told(&world), [""; 0], "it was told");
    world.edit(&json!({ "spec": { "replicas": 3 } }));
    let notes = told(&world);
    assert_eq!(notes.len(), 2, "{notes:?}");
    for (note, name) in notes.iter().zip(["selects", "selected"]) {
        assert!(note.contains(&format!("machine deployment {name}:")), "{note}");
    }
}
