//! A deployment without `spec.replicas`, and a deployment whose template names an object that cannot be shared.

use ostler_lifecycle::plan::EventReason;
use serde_json::json;

use crate::deployment::world::{World, deployment};

const MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
const MIN_OF_GROUP: &str = "machine.sapcloud.io/cluster-api-autoscaler-node-group-min-size";

/// The passes up to the first that changes anything but the number.
fn filled(world: &mut World) -> (Option<i32>, String) {
    let sets = world.sets.clone();
    world.edit(&json!({ "spec": { "replicas": null } }));
    let plan = world.pass();
    assert!(plan.sets.is_empty() && plan.create.is_none(), "first it is said: {plan:?}");
    assert_eq!(world.sets, sets);
    let event = plan.events.into_iter().next().unwrap();
    assert_eq!(event.reason, EventReason::ReplicasAbsent);
    (world.deployment.spec.replicas, event.message)
}

#[test]
fn an_absent_number_is_0_and_that_is_said_before_the_first_machine_goes() {
    let mut world = World::running(3);
    let (replicas, note) = filled(&mut world);
    assert_eq!(replicas, Some(0));
    assert!(note.contains("counts as 0, so 3 Machines are deleted"), "{note}");
    world.settle();
    assert_eq!(world.living().len(), 0);
}

#[test]
fn an_absent_number_keeps_what_is_there_where_an_autoscaler_has_a_minimum_also_in_a_rollout() {
    for key in [MIN, MIN_OF_GROUP] {
        let mut world = World::running(3);
        world.edit(&json!({ "metadata": { "annotations": { (key): "1" } } }));
        world.settle();
        let (replicas, note) = filled(&mut world);
        assert_eq!(replicas, Some(3), "{note}");
        world.settle();
        assert_eq!(world.living().len(), 3);
        world.roll_to("two");
        world.passes();
        let all: i32 = world.wanted().values().sum();
        assert_eq!(all, 4, "one more while it rolls");
        assert_eq!(filled(&mut world).0, Some(3), "and not that one");
        world.settle();
        assert_eq!(world.living().len(), 3);
    }
}

#[test]
fn a_new_deployment_without_a_number_has_the_minimum_of_its_autoscaler_or_none() {
    for (annotations, expected) in [(json!({}), 0), (json!({ (MIN): "2" }), 2)] {
        let mut new = deployment(0);
        new["spec"].as_object_mut().unwrap().remove("replicas");
        new["metadata"]["annotations"] = annotations;
        let mut world = World::of(new);
        world.settle();
        assert_eq!(world.living().len(), expected);
        assert_eq!(world.reasons().iter().filter(|it| **it == "ReplicasAbsent").count(), 1);
    }
}

#[test]
fn a_template_that_names_a_bootstrap_object_is_refused_and_nothing_is_torn_down() {
    let mut world = World::running(2);
    let sets = world.sets.clone();
    let config = json!({ "apiVersion": "a.example/v1", "kind": "Recipe", "name": "shared" });
    let template = json!({ "spec": { "bootstrap": { "configRef": config } } });
    world.edit(&json!({ "spec": { "template": template, "replicas": 1 } }));
    world.settle();
    let valid = world.condition("Valid").unwrap();
    assert!(valid.message.unwrap().contains("configRef names Recipe shared"));
    assert_eq!((world.sets.clone(), world.living().len()), (sets, 2));
    assert!(world.reasons().contains(&"ValidationFailed"));
    world.edit(
        &json!({ "spec": { "template": { "spec": { "bootstrap": { "configRef": null } } } } }),
    );
    world.settle();
    assert_eq!(world.living().len(), 1, "corrected, it goes on");
}
