//! Matches Machines with instances.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_api::machine::InstanceState;
use ostler_api::names::{annotation, annotation::INSTANCE_GONE, label};
use ostler_api::operation::Request;
use ostler_lifecycle::pool::{Cause, label_value, model_hash, patches, selector};
use serde_json::json;

use crate::pool::world::{World, request, victims};

fn names(world: &World) -> Vec<String> {
    world.plan().create.iter().map(|machine| machine.name().to_owned()).collect()
}

#[test]
fn every_instance_gets_a_machine_of_its_name_that_the_pool_owns() {
    let mut world = World::running(0, json!({ "clusterName": "k" }));
    world.group.as_mut().unwrap().desired = 2;
    world.pool.spec.replicas = Some(2);
    world.boot();
    world.boot();
    assert_eq!(names(&world), ["p-1", "p-2"]);
    let made = world.plan().create.remove(0);
    assert_eq!(made.provider_id().unwrap(), "fake:///i-1");
    assert_eq!(made.label(label::POOL_NAME), Some("p"));
    assert_eq!(made.label(label::CLUSTER_NAME), Some("k"));
    assert_eq!(made.label("role"), Some("worker"));
    assert_eq!(made.label(label::NODE), Some("node-1"));
    assert!(made.has_pool() && made.has_finalizer());
    let owner = &made.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("MachinePool", "pool-uid"));
    let bootstrap = made.spec.bootstrap.as_ref().unwrap();
    assert_eq!(bootstrap.data_secret_name.as_deref(), Some(""), "the step is left out");
}

/// A driver may list 100,000 instances, of other groups or of none.
#[test]
fn instances_beyond_what_the_pool_and_its_group_want_get_no_machine_and_the_pool_says_so() {
    let said = |replicas: i32, desired: usize, listed: usize| {
        let mut world = World::running(replicas, json!({}));
        world.group.as_mut().unwrap().desired = desired;
        let before = world.machines.len();
        (before..listed).for_each(|_| world.boot());
        let mut made = 0;
        loop {
            let plan = world.plan();
            made += plan.create.len();
            if plan.create.is_empty() {
                let all = plan.status.conditions.into_iter();
                let mut one = all.filter(|it| it.type_ == "InfrastructureReady");
                break (before + made, one.next().unwrap().reason);
            }
            // The cache does not show them yet.
            world.created.extend(plan.create.iter().filter_map(|it| it.provider_id().cloned()));
        }
    };
    for (replicas, desired, listed, machines, reason) in [
        (2, 2, 12, 12, "Ready"),
        (2, 2, 13, 12, "TooManyInstances"),
        (2, 2, 300, 12, "TooManyInstances"),
        (200, 200, 300, 220, "TooManyInstances"),
        (2, 250, 300, 275, "TooManyInstances"),
        (2, 250, 275, 275, "Ready"),
        (2, 1_000_000, 11_500, 11_000, "TooManyInstances"),
    ] {
        let reason = reason.to_owned();
        assert_eq!(said(replicas, desired, listed), (machines, reason), "{replicas} {desired}");
    }
}

#[test]
fn an_instance_that_is_on_its_way_out_gets_no_machine() {
    let mut world = World::running(1, json!({}));
    world.boot();
    world.group.as_mut().unwrap().instances[1].state = InstanceState::Deleting;
    assert_eq!(names(&world), Vec::<String>::new());
}

#[test]
fn what_writes_the_label_is_what_lists_by_it_for_names_of_253_characters_with_dots() {
    let mut world = World::running(1, json!({}));
    let name = format!("{}.{}", "a".repeat(126), "b".repeat(126));
    world.pool.metadata.name = Some(name.clone());
    world.machines.clear();
    let plan = world.plan();
    let value = plan.create[0].label(label::POOL_NAME).unwrap();
    assert_eq!(value, label_value(&name));
    assert_eq!(plan.status.selector.unwrap(), selector(&name));
    assert!(plan.create[0].name().len() <= 63);
}

#[test]
fn a_machine_goes_when_two_reads_did_not_name_its_instance_and_says_so_first() {
    let mut world = World::running(2, json!({}));
    world.group.as_mut().unwrap().instances.remove(0);
    let (none, uid) = (BTreeMap::new(), world.machines[0].uid().to_owned());
    let machines = world.machines.clone();
    let machines: Vec<_> = machines.iter().collect();
    let once = world.group.clone().unwrap().counted(&none, &machines);
    assert_eq!(once.absent, BTreeMap::from([(uid, 1)]));
    world.group = Some(once.clone());
    assert!(world.plan().gone.is_empty(), "one look is not enough");
    world.group = Some(once.clone().counted(&once.absent, &machines));
    let plan = world.plan();
    assert_eq!(plan.gone.len(), 1);
    assert_eq!(victims(&plan), ["p-1"]);
    assert_eq!(plan.delete[0].cause, Cause::InstanceGone);
    let marks = [(INSTANCE_GONE.to_owned(), "fake:///i-1".to_owned())].into();
    world.machines[0].metadata.annotations = Some(marks);
    let plan = world.plan();
    assert!(plan.gone.is_empty(), "it says so");
    assert_eq!(victims(&plan), ["p-1"]);
}

/// The group is read twice, and each read counts.
fn read_twice(world: &mut World) {
    for _ in 0..2 {
        let reading = world.group.clone().unwrap();
        let before = reading.absent.clone();
        let machines: Vec<_> = world.machines.iter().collect();
        world.group = Some(reading.counted(&before, &machines));
    }
}

/// The Machine was deleted without a drain, and its live Node, too.
#[test]
fn a_machine_whose_provider_id_a_user_erases_or_changes_keeps_its_instance_and_gets_its_id_back() {
    for id in [None, Some(""), Some("fake:///none"), Some("fake:///i-2")] {
        let mut world = World::running(2, json!({}));
        world.pass();
        world.named("p-1").spec.provider_id = id.map(Into::into);
        read_twice(&mut world);
        let plan = world.plan();
        assert!(plan.create.is_empty() && plan.gone.is_empty(), "{id:?}");
        assert!(plan.delete.is_empty() && plan.dispatch.is_none(), "{id:?}");
        let [(machine, patch)] = &plan.patches[..] else { panic!("{id:?}: {:?}", plan.patches) };
        let back = json!({ "providerID": "fake:///i-1" });
        assert_eq!((machine.name(), &patch["spec"]), ("p-1", &back), "{id:?}");
        world.drain("p-1");
        let plan = world.plan();
        let Some(Request::DeletePoolMachines { instances, .. }) = request(&plan) else { panic!() };
        assert_eq!(instances[..], ["fake:///i-1"], "{id:?}");
        world.group.as_mut().unwrap().instances.remove(0);
        read_twice(&mut world);
        assert_eq!(world.plan().gone[0].name(), "p-1", "{id:?}");
        let marks = [(INSTANCE_GONE.to_owned(), "fake:///i-1".to_owned())].into();
        world.named("p-1").metadata.annotations = Some(marks);
        assert!(world.plan().gone.is_empty(), "{id:?}: it says so");
    }
}

#[test]
fn a_machine_without_any_provider_id_is_drained_before_it_counts_as_gone() {
    let mut world = World::running(1, json!({}));
    world.machines[0].spec.provider_id = None;
    // As written by a core that took the instance for gone.
    let marks = [(INSTANCE_GONE.to_owned(), String::new())].into();
    for marks in [None, Some(marks)] {
        world.machines[0].metadata.annotations = marks;
        read_twice(&mut world);
        let plan = world.plan();
        assert!(plan.gone.is_empty() && plan.delete.is_empty());
    }
    world.machines[0].metadata.annotations = None;
    world.drain("p-1");
    read_twice(&mut world);
    assert_eq!(world.plan().gone.len(), 1);
}

#[test]
fn an_answer_without_instances_deletes_nothing_however_often_it_comes() {
    let mut world = World::running(3, json!({}));
    world.group.as_mut().unwrap().instances.clear();
    let machines = world.machines.clone();
    let machines: Vec<_> = machines.iter().collect();
    for _ in 0..5 {
        let reading = world.group.clone().unwrap();
        let before = reading.absent.clone();
        world.group = Some(reading.counted(&before, &machines));
        let plan = world.plan();
        assert!(plan.gone.is_empty() && plan.delete.is_empty() && plan.dispatch.is_none());
    }
}

#[test]
fn an_instance_that_the_next_read_names_again_starts_the_count_anew() {
    let mut world = World::running(2, json!({}));
    let full = world.group.clone().unwrap();
    let machines = world.machines.clone();
    let machines: Vec<_> = machines.iter().collect();
    let mut lacking = full.clone();
    lacking.instances.remove(0);
    let once = lacking.clone().counted(&BTreeMap::new(), &machines);
    let again = full.counted(&once.absent, &machines);
    assert!(again.absent.is_empty());
    world.group = Some(lacking.counted(&again.absent, &machines));
    assert!(world.plan().gone.is_empty());
}

#[test]
fn a_drained_machine_whose_instance_is_not_named_any_more_says_so_after_one_read() {
    let mut world = World::running(2, json!({}));
    world.drain("p-1");
    world.group.as_mut().unwrap().instances.remove(0);
    let machines = world.machines.clone();
    let machines: Vec<_> = machines.iter().collect();
    let reading = world.group.clone().unwrap();
    world.group = Some(reading.counted(&BTreeMap::new(), &machines));
    let plan = world.plan();
    assert_eq!(plan.gone.len(), 1);
    assert!(plan.delete.is_empty(), "its deletion was asked for already");
}

#[test]
fn the_template_reaches_existing_machines_and_those_that_are_being_deleted() {
    let mut world = World::running(2, json!({}));
    world.drain("p-1");
    let expected = json!({
        "nodeTemplate": { "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }] } },
        "drainTimeout": "5m", "healthTimeout": "2m", "creationTimeout": "3m",
        "inPlaceUpdateTimeout": "4m", "machinePreserveTimeout": "5m",
        "disableHealthTimeout": true, "maxEvictRetries": 3, "nodeConditions": "KernelDeadlock"
    });
    let template = &mut world.pool.spec.template.spec;
    let mut whole = serde_json::to_value(&template).unwrap();
    json_patch::merge(&mut whole, &expected);
    *template = serde_json::from_value(whole).unwrap();
    world.boot();
    let plan = world.plan();
    let patched: Vec<_> = plan.patches.iter().map(|(machine, _)| machine.name()).collect();
    assert_eq!(patched, ["p-1", "p-2"]);
    for (_, patch) in &plan.patches {
        assert_eq!(patch["spec"], expected);
    }
    let new = serde_json::to_value(&plan.create[0].spec).unwrap();
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(new[field], *value, "and new ones");
    }
}

#[test]
fn a_machine_that_lost_the_label_of_its_pool_stays_its_own_and_gets_it_back() {
    let mut world = World::running(2, json!({}));
    world.machines[0].metadata.labels = None;
    let plan = world.plan();
    assert!(plan.create.is_empty() && plan.delete.is_empty() && plan.dispatch.is_none());
    let (machine, patch) = &plan.patches[0];
    assert_eq!(
        (machine.name(), &patch["metadata"]["labels"][label::POOL_NAME]),
        ("p-1", &json!("p"))
    );
}

#[test]
fn a_machine_says_what_the_infrastructure_says_of_its_instance() {
    let mut world = World::running(1, json!({}));
    world.group.as_mut().unwrap().instances[0].state = InstanceState::Updating;
    let plan = world.pass();
    let said = &plan.instances[0].1;
    assert_eq!(said.provisioning_state, InstanceState::Updating);
    assert!(said.latest_model_applied);
    assert_eq!((said.id.as_deref(), said.name.as_deref()), (Some("1"), Some("vm-1")));
    assert!(world.plan().instances.is_empty(), "it is written once");
    world.group.as_mut().unwrap().instances[0].model_hash = "old".into();
    assert!(!world.plan().instances[0].1.latest_model_applied);
}

#[test]
fn labels_and_annotations_of_the_template_reach_machines_that_are_there_and_none_is_taken_away() {
    let mut world = World::running(3, json!({}));
    world.drain("p-1");
    let metadata = json!({
        "labels": { "tier": "gold", "node": "other", "cluster.x-k8s.io/pool-name": "other" },
        "annotations": { "note": "x", "ostler.dev/update-instance": "" }
    });
    world.pool.spec.template.metadata = Some(serde_json::from_value(metadata).unwrap());
    let kept = world.named("p-2").clone();
    let patches = world.plan().patches;
    assert_eq!(patches.len(), 3, "the one that is being deleted, too");
    for (machine, patch) in patches {
        assert_eq!(patch["metadata"]["labels"], json!({ "tier": "gold" }), "{}", machine.name());
        assert_eq!(patch["metadata"]["annotations"], json!({ "note": "x" }), "{}", machine.name());
    }
    assert_eq!(kept.metadata.labels.unwrap()["role"], "worker", "which the template had before");
    for machine in &mut world.machines {
        let labels = machine.metadata.labels.get_or_insert_default();
        labels.insert("tier".to_owned(), "gold".to_owned());
        machine.metadata.annotations = Some([("note".to_owned(), "x".to_owned())].into());
    }
    assert!(world.plan().patches.is_empty(), "once");
}

/// The end of a preservation takes its annotation away: the pool put it there again, and so it went on without end.
#[test]
fn what_others_change_on_a_machine_it_has_from_the_template_only_when_it_is_made() {
    let mut world = World::running(1, json!({}));
    let all = json!({
        "node.machine.sapcloud.io/preserve": "when-failed",
        "node.machine.sapcloud.io/last-applied-node-preserve-value": "now",
        "machinepriority.machine.sapcloud.io": "1",
        "machine.sapcloud.io/delete-machine": "",
        "cluster.x-k8s.io/delete-machine": ""
    });
    let template = json!({ "annotations": all });
    world.pool.spec.template.metadata = Some(serde_json::from_value(template).unwrap());
    assert!(world.plan().patches.is_empty());
    world.boot();
    assert_eq!(json!(world.plan().create[0].metadata.annotations), all);
}

#[test]
fn a_machine_whose_instance_got_the_model_in_its_place_is_of_its_class_and_version() {
    let mut world = World::running(3, json!({}));
    world.pool.spec.template.spec.class.name = "c2".to_owned();
    world.pool.spec.template.spec.version = Some("v2".to_owned());
    let model = model_hash(&world.pool, &world.class);
    world.group.as_mut().unwrap().model_hash = model.clone();
    assert!(world.plan().patches.is_empty(), "the old model is of the old class");
    world.group.as_mut().unwrap().instances[0].model_hash = model;
    world.pass();
    let patches = world.plan().patches;
    let [(machine, patch)] = &patches[..] else { panic!("{patches:?}") };
    assert_eq!(machine.name(), "p-1");
    assert_eq!(patch["spec"], json!({ "class": { "name": "c2" }, "version": "v2" }));
    let spec = &mut world.named("p-1").spec;
    (spec.class.name, spec.version) = ("c2".to_owned(), Some("v2".to_owned()));
    assert!(world.plan().patches.is_empty(), "once");
}

#[test]
fn a_restart_is_another_model_and_no_annotation_of_machines_that_are_there() {
    let mut world = World::running(1, json!({}));
    let mut models = vec![model_hash(&world.pool, &world.class)];
    for at in ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"] {
        let metadata = world.pool.spec.template.metadata.get_or_insert_default();
        metadata.annotations = Some([(annotation::RESTARTED_AT.to_owned(), at.to_owned())].into());
        models.push(model_hash(&world.pool, &world.class));
    }
    models.dedup();
    assert_eq!(models.len(), 3, "each is another model: {models:?}");
    let machines: Vec<_> = world.machines.iter().cloned().map(Arc::new).collect();
    assert_eq!(patches(&world.pool, &machines), []);
}
