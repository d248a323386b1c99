//! Whole passes: actions of a user and their effects.

use std::collections::BTreeMap;

use ostler_api::names::{annotation, label, taint};
use ostler_lifecycle::deployment::{decide as plan, status};
use serde_json::{Value, json};

use crate::deployment::world::{World, deployment, with_phase};

fn wanted(of: &[(&str, i32)]) -> BTreeMap<String, i32> {
    of.iter().map(|(class, replicas)| ((*class).to_owned(), *replicas)).collect()
}

fn rolling_over() -> (String, String) {
    ("True".to_owned(), "NewMachineSetAvailable".to_owned())
}

#[test]
fn a_new_deployment_gets_one_set_and_exactly_two_conditions_when_it_is_healthy() {
    let mut world = World::of(deployment(3));
    world.passes();
    assert_eq!(world.sets.len(), 1);
    assert_eq!(world.progressing().1, "NewMachineSetCreated");
    world.settle();
    let status = world.status();
    let numbers = [status.replicas, status.updated_replicas, status.ready_replicas];
    assert_eq!((numbers, status.available_replicas, status.unavailable_replicas), ([3; 3], 3, 0));
    assert_eq!(status.selector.as_deref(), Some("app=d"));
    let all: Vec<_> = status.conditions.iter().map(|it| it.type_.to_string()).collect();
    assert_eq!(all, ["Available", "Progressing"]);
    assert_eq!(world.progressing(), rolling_over());
    assert_eq!(world.condition("Available").unwrap().reason.unwrap(), "MinimumReplicasAvailable");
}

/// The set was deleted and created again and again.
#[test]
fn a_deployment_of_none_has_a_set_all_the_same_and_keeps_it_197() {
    for replicas in [0, 2] {
        let mut world = World::running(replicas);
        world.edit(&json!({ "spec": { "replicas": 0, "revisionHistoryLimit": 0 } }));
        world.settle();
        let name = world.set("one").name().to_owned();
        for _ in 0..5 {
            let plan = world.pass();
            assert!(plan.create.is_none() && plan.delete.is_empty());
        }
        assert_eq!(world.wanted(), wanted(&[("one", 0)]));
        assert_eq!(world.set("one").name(), name);
        assert_eq!(world.progressing(), rolling_over());
    }
}

#[test]
fn the_set_is_one_that_machine_controller_manager_would_have_made() {
    let mut world = World::of(deployment(3));
    world.edit(&json!({ "metadata": { "annotations": {
        "mine": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}"
    }}}));
    world.passes();
    let set = world.set("one");
    let name = set.name().strip_prefix("d-").unwrap();
    assert!(name.len() == 5 && name.chars().all(|it| "bcdfghjklmnpqrstvwxz2456789".contains(it)));
    let hash = set.label(label::TEMPLATE_HASH).unwrap();
    assert!(hash.parse::<u32>().is_ok());
    let selector = set.spec.selector.as_ref().unwrap().match_labels.as_ref().unwrap();
    assert_eq!((selector.len(), selector[label::TEMPLATE_HASH].as_str()), (2, hash));
    let template = set.spec.template.metadata.as_ref().unwrap().labels.as_ref().unwrap();
    assert_eq!(template[label::TEMPLATE_HASH], hash);
    let owner = serde_json::to_value(&set.metadata.owner_references).unwrap();
    let expected = json!([{
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "name": "d",
        "uid": "d-uid", "controller": true, "blockOwnerDeletion": true
    }]);
    assert_eq!(owner, expected);
    let annotations = [
        ("mine", Some("x")),
        (annotation::LAST_APPLIED_CONFIGURATION, None),
        (annotation::REVISION, Some("1")),
        (annotation::CLUSTER_API_REVISION, Some("1")),
        (annotation::DESIRED_REPLICAS, Some("3")),
        (annotation::MAX_REPLICAS, Some("4")),
    ];
    for (key, value) in annotations {
        assert_eq!(set.annotation(key), value, "{key}");
    }
    assert_eq!(set.label(label::CLUSTER_API_DEPLOYMENT), Some("d"));
    for revision in [annotation::REVISION, annotation::CLUSTER_API_REVISION] {
        assert_eq!(world.deployment.annotation(revision), Some("1"), "{revision}");
    }
}

#[test]
fn a_rollout_with_one_more_and_none_less_never_loses_an_available_machine() {
    let mut world = World::running(3);
    world.roll_to("two");
    assert_eq!(world.settle(), 3);
    assert_eq!(world.wanted(), wanted(&[("one", 0), ("two", 3)]));
    assert_eq!(world.progressing(), rolling_over());
    assert_eq!(world.set("two").annotation(annotation::REVISION), Some("2"));
    assert_eq!(world.deployment.annotation(annotation::REVISION), Some("2"));
}

/// The issue asks for changes on Nodes of old sets as well; as upstream, old Nodes stay unchanged until replacement.
#[test]
fn what_needs_no_rollout_goes_to_the_new_set_alone_754() {
    let mut world = World::running(1);
    world.roll_to("two");
    world.settle();
    world.edit(&json!({ "spec": { "template": { "spec": {
        "drainTimeout": "5m", "nodeTemplate": { "metadata": { "labels": { "a": "b" } } }
    }}}}));
    world.settle();
    assert_eq!(world.wanted(), wanted(&[("one", 0), ("two", 1)]));
    let spec = |class| world.set(class).spec.template.spec.clone();
    assert!(spec("two").drain_timeout.is_some() && spec("two").node_template.is_some());
    assert!(spec("one").drain_timeout.is_none());
    world.edit(&json!({ "spec": { "template": { "spec": { "nodeTemplate": { "metadata": { "labels": null } } } } } }));
    world.passes();
    let labels = world.set("two").spec.template.spec.node_template.clone().unwrap().metadata;
    assert!(labels.unwrap().labels.is_none(), "what is removed is removed");
}

#[test]
fn an_annotation_that_is_removed_from_the_deployment_is_removed_from_its_set() {
    let mut world = World::running(1);
    world.edit(&json!({ "metadata": { "annotations": { "mine": "x" } } }));
    world.passes();
    let set = world.set("one").name().to_owned();
    let theirs = ("theirs".to_owned(), "y".to_owned());
    world.sets.get_mut(&set).unwrap().metadata.annotations.get_or_insert_default().extend([theirs]);
    assert_eq!(world.set("one").annotation("mine"), Some("x"));
    world.edit(&json!({ "metadata": { "annotations": { "mine": null } } }));
    world.passes();
    let set = world.set("one");
    assert_eq!((set.annotation("mine"), set.annotation("theirs")), (None, Some("y")));
    assert_eq!(set.annotation(annotation::REVISION_HISTORY), None, "no new revision");
}

#[test]
fn a_set_of_another_controller_is_found_by_its_template_and_not_by_its_hash() {
    let mut world = World::running(2);
    let mut set = world.sets.pop_first().unwrap().1;
    let labels = set.spec.template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(label::TEMPLATE_HASH.to_owned(), "4711".to_owned());
    world.sets.insert(set.name().to_owned(), set);
    world.settle();
    assert_eq!(world.wanted(), wanted(&[("one", 2)]));
}

#[test]
fn a_set_without_a_controller_is_adopted_and_one_that_drifted_is_released() {
    let mut world = World::running(1);
    let name = world.sets.keys().next().unwrap().clone();
    let other = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x" }]);
    let set = world.sets.get_mut(&name).unwrap();
    set.metadata.owner_references = None;
    world.passes();
    assert_eq!(world.sets.len(), 1);
    let owners = world.sets[&name].metadata.owner_references.clone().unwrap();
    assert_eq!(owners[0].uid, "d-uid", "the controller comes first");
    assert!(world.reasons().contains(&"AdoptedMachineSet"), "{other}");
    let labels = world.sets.get_mut(&name).unwrap().metadata.labels.as_mut().unwrap();
    labels.insert("app".to_owned(), "other".to_owned());
    world.pass();
    assert_eq!(world.sets[&name].metadata.owner_references, None);
    assert!(world.reasons().contains(&"ReleasedMachineSet"));
}

#[test]
fn scaling_in_the_middle_of_a_rollout_makes_progress_with_both_816() {
    for replicas in [1, 2, 5, 9] {
        let mut world = World::running(4);
        world.roll_to("two");
        world.passes();
        world.sets_work();
        world.machines_start();
        world.passes();
        world.edit(&json!({ "spec": { "replicas": replicas } }));
        world.passes();
        let total: i32 = world.wanted().values().sum();
        assert!(total <= replicas + 1 && total >= replicas, "{replicas}: {:?}", world.wanted());
        world.settle();
        assert_eq!(world.wanted(), wanted(&[("one", 0), ("two", replicas)]));
        assert_eq!(world.progressing(), rolling_over());
    }
}

#[test]
fn a_paused_deployment_scales_and_does_not_roll() {
    let mut world = World::running(2);
    world.edit(&json!({ "spec": { "paused": true } }));
    world.roll_to("two");
    world.settle();
    assert_eq!(world.wanted(), wanted(&[("one", 2)]));
    assert_eq!(world.progressing(), ("Unknown".to_owned(), "DeploymentPaused".to_owned()));
    world.edit(&json!({ "spec": { "replicas": 4 } }));
    world.settle();
    assert_eq!(world.wanted(), wanted(&[("one", 4)]));
    world.edit(&json!({ "spec": { "paused": null, "progressDeadlineSeconds": 600 } }));
    world.now += jiff::SignedDuration::from_hours(10);
    world.pass();
    assert_eq!(world.progressing().1, "NewMachineSetCreated", "the pause does not count");
    world.settle();
    assert_eq!(world.wanted(), wanted(&[("one", 0), ("two", 4)]));
}

#[test]
fn a_paused_deployment_of_none_scales_up_though_no_set_has_its_template() {
    let mut world = World::running(2);
    world.edit(&json!({ "spec": { "replicas": 0 } }));
    world.settle();
    world.edit(&json!({ "spec": { "paused": true } }));
    world.roll_to("two");
    world.edit(&json!({ "spec": { "replicas": 3 } }));
    world.settle();
    assert_eq!(world.wanted(), wanted(&[("one", 3)]));
}

#[test]
fn a_rollback_takes_the_template_of_the_revision_before() {
    let mut world = World::running(2);
    world.roll_to("two");
    world.settle();
    world.edit(&json!({ "spec": { "rollbackTo": { "revision": 0 } } }));
    world.pass();
    assert_eq!(world.deployment.spec.rollback_to, None);
    assert_eq!(world.deployment.spec.template.spec.class.name, "one");
    assert!(world.reasons().contains(&"DeploymentRollback"));
    assert_eq!(world.settle(), 2);
    assert_eq!(world.wanted(), wanted(&[("one", 2), ("two", 0)]));
    let set = world.set("one");
    assert_eq!(set.annotation(annotation::REVISION), Some("3"));
    assert_eq!(set.annotation(annotation::REVISION_HISTORY), Some("1"));
    assert_eq!(taints(&world), Vec::<String>::new());
    for (revision, reason) in
        [(77, "DeploymentRollbackRevisionNotFound"), (3, "DeploymentRollbackTemplateUnchanged")]
    {
        world.edit(&json!({ "spec": { "rollbackTo": { "revision": revision } } }));
        world.passes();
        assert_eq!(world.deployment.spec.rollback_to, None);
        assert!(world.reasons().contains(&reason));
    }
}

fn taints(world: &World) -> Vec<String> {
    let specs = world.nodes.values().filter_map(|node| node.spec.clone());
    specs.flat_map(|spec| spec.taints.unwrap_or_default()).map(|taint| taint.key).collect()
}

#[test]
fn a_template_that_is_changed_or_rolled_back_in_mid_rollout_reuses_its_set_without_taints_989() {
    for back in [json!({ "rollbackTo": { "revision": 0 } }), Value::Null] {
        let mut world = World::running(3);
        world.roll_to("two");
        world.passes();
        world.sets_work();
        world.machines_start();
        world.passes();
        assert_eq!(taints(&world), vec![annotation::PREFER_NO_SCHEDULE; 3]);
        assert!(world.set("one").annotation(annotation::PREFER_NO_SCHEDULE).is_some());
        if back.is_null() {
            world.roll_to("one");
        } else {
            world.edit(&json!({ "spec": back }));
            world.pass();
        }
        world.pass();
        let old: Vec<_> = taints(&world);
        assert_eq!(old.len(), 1, "only the node of the other set: {old:?}");
        assert_eq!(world.settle(), 3);
        assert_eq!(world.wanted(), wanted(&[("one", 3), ("two", 0)]));
        assert!(world.set("one").annotation(annotation::PREFER_NO_SCHEDULE).is_none());
        assert_eq!(taints(&world), Vec::<String>::new());
    }
    assert_ne!(annotation::PREFER_NO_SCHEDULE, taint::PRESERVED);
}

#[test]
fn autoscalers_keep_away_from_all_nodes_until_the_rollout_is_over() {
    let mut world = World::running(2);
    let own = world.names()[0].clone();
    let user = (annotation::SCALE_DOWN_DISABLED.to_owned(), "true".to_owned());
    world.nodes.get_mut(&own).unwrap().metadata.annotations = Some([user].into());
    world.roll_to("two");
    world.passes();
    let marked = |world: &World, key: &str| {
        let has = |node: &&k8s_openapi::api::core::v1::Node| {
            node.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key))
        };
        world.nodes.values().filter(has).count()
    };
    assert_eq!(marked(&world, annotation::SCALE_DOWN_DISABLED), 2);
    assert_eq!(marked(&world, annotation::SCALE_DOWN_DISABLED_BY_US), 1, "not the user's own");
    world.settle();
    assert_eq!(marked(&world, annotation::SCALE_DOWN_DISABLED), 0);
}

#[test]
fn recreate_creates_nothing_before_the_last_old_machine_is_gone() {
    let mut recreate = deployment(2);
    recreate["spec"]["strategy"] = json!({ "type": "Recreate" });
    let mut world = World::of(recreate);
    world.settle();
    world.roll_to("two");
    world.passes();
    world.sets_work();
    world.passes();
    assert_eq!(world.wanted(), wanted(&[("one", 0)]));
    assert_eq!(taints(&world), Vec::<String>::new());
    world.machines_go();
    world.passes();
    assert_eq!(world.wanted(), wanted(&[("one", 0), ("two", 2)]));
    world.settle();
    world.edit(&json!({ "spec": { "replicas": 5 } }));
    world.settle();
    assert_eq!(world.wanted(), wanted(&[("one", 0), ("two", 5)]));
    assert_eq!(world.progressing(), rolling_over());
}

/// #82: a large scale-in froze it, and then it was left as it was.
#[test]
fn a_deployment_that_is_frozen_is_scaled_in_all_the_same() {
    let mut world = World::running(3);
    world.edit(
        &json!({ "metadata": { "labels": { label::FREEZE: "True" } }, "spec": { "replicas": 1 } }),
    );
    world.settle();
    assert_eq!((world.wanted(), world.living().len()), (wanted(&[("one", 1)]), 1));
}

#[test]
fn the_deadline_counts_from_the_last_progress_and_never_while_frozen() {
    let mut world = World::running(1);
    world.edit(&json!({ "spec": { "progressDeadlineSeconds": 600 } }));
    world.settle();
    world.roll_to("broken");
    world.passes();
    world.sets_work();
    world.passes();
    let plan = world.pass();
    let due = world.now + jiff::SignedDuration::from_mins(10);
    assert_eq!(plan.next, Some(due));
    world.now = due;
    let frozen = json!({ "metadata": { "labels": { label::FREEZE: "True" } } });
    world.edit(&frozen);
    world.passes();
    assert_ne!(world.progressing().1, "ProgressDeadlineExceeded");
    world.edit(&json!({ "metadata": { "labels": { label::FREEZE: null } } }));
    world.now += jiff::SignedDuration::from_mins(10);
    world.passes();
    assert_eq!(world.progressing(), ("False".to_owned(), "ProgressDeadlineExceeded".to_owned()));
    world.settle();
    assert_eq!(world.progressing(), rolling_over(), "it got on after all");
}

/// Each try made both times of the condition new, and the deadline never passed.
#[test]
fn a_set_that_is_refused_again_and_again_is_one_failure_whose_deadline_passes() {
    let (why, minute) = ("refused by a webhook", jiff::SignedDuration::from_mins(1));
    for replicas in [0, 3] {
        let mut world = World::running(replicas);
        world.edit(&json!({ "spec": { "progressDeadlineSeconds": 600 } }));
        world.settle();
        world.now += minute;
        world.roll_to("refused");
        world.pass_refused("no quota");
        let mut first = world.condition("Progressing").unwrap();
        first.message = first.message.map(|said| said.replace("no quota", why));
        assert_eq!(world.progressing(), ("False".to_owned(), "MachineSetCreateError".to_owned()));
        for _ in 1..10 {
            world.now += minute;
            world.pass_refused(why);
            assert_eq!(world.condition("Progressing").unwrap(), first, "{replicas} replicas");
        }
        world.now += minute;
        for _ in 0..2 {
            world.pass_refused(why);
            let shown = world.condition("Progressing").unwrap();
            assert_eq!(shown.reason.as_deref(), Some("ProgressDeadlineExceeded"));
            assert_eq!(shown.last_update_time.unwrap().0, world.now);
            assert!(shown.message.unwrap().ends_with(why));
        }
        let before = world.deployment.clone();
        world.now += minute;
        world.pass_refused(why);
        assert_eq!(world.deployment, before, "nothing is written any more");
        world.pass();
        assert_eq!(world.progressing(), ("True".to_owned(), "NewMachineSetCreated".to_owned()));
        world.settle();
        assert_eq!(world.progressing(), rolling_over());
    }
}

#[test]
fn each_name_that_is_taken_leads_to_another_one_and_after_five_to_a_longer_one() {
    let mut world = World::of(deployment(1));
    let finalizers = ["machine.sapcloud.io/machine-controller-manager"];
    world.edit(&json!({ "metadata": { "finalizers": finalizers } }));
    let mut names = Vec::new();
    for collisions in 0..7 {
        let mut plan = plan(&world.snapshot());
        let set = plan.create.unwrap();
        let hash = set.label(label::TEMPLATE_HASH).unwrap();
        let suffix = set.name().strip_prefix("d-").unwrap();
        let letters = if collisions < 5 { 5 } else { hash.len() };
        assert_eq!((suffix.len(), hash.len() > 5), (letters, true), "{collisions}: {hash}");
        names.push(set.name().to_owned());
        status::name_is_taken(&mut plan.status);
        assert_eq!(plan.status.collision_count, Some(collisions + 1));
        world.deployment.status = Some(plan.status);
    }
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "{names:?}");
}

#[test]
fn old_sets_beyond_the_limit_go_when_nothing_is_left_of_them() {
    let mut world = World::running(1);
    world.edit(&json!({ "spec": { "revisionHistoryLimit": 1 } }));
    for class in ["two", "three", "four"] {
        world.roll_to(class);
        world.settle();
    }
    assert_eq!(world.wanted(), wanted(&[("four", 1), ("three", 0)]));
}

#[test]
fn an_invalid_deployment_changes_nothing_and_says_why_once_for_each_generation() {
    let cases: [(Value, &str); 9] = [
        (json!({ "replicas": -1 }), "spec.replicas is -1"),
        (json!({ "selector": null }), "selector is missing"),
        (json!({ "selector": { "matchLabels": { "app": "x" } } }), "does not select"),
        (json!({ "strategy": { "type": "Big" } }), "spec.strategy.type is \"Big\""),
        (json!({ "strategy": { "rollingUpdate": null } }), "rollingUpdate is missing"),
        (json!({ "strategy": { "rollingUpdate": { "maxSurge": "x%" } } }), "maxSurge is \"x%\""),
        (
            json!({ "strategy": { "rollingUpdate": { "maxUnavailable": -1 } } }),
            "maxUnavailable is -1",
        ),
        (
            json!({ "strategy": { "type": "InPlaceUpdate", "inPlaceUpdate": {
            "maxSurge": 0, "maxUnavailable": 1, "orchestrationType": "Random" } } }),
            "orchestrationType",
        ),
        (json!({ "template": { "spec": { "class": { "name": "" } } } }), "class.name"),
    ];
    for (change, why) in cases {
        let mut world = World::running(1);
        let sets = world.sets.clone();
        world.edit(&json!({ "spec": change }));
        world.passes();
        world.passes();
        let valid = world.condition("Valid").unwrap_or_else(|| panic!("{why}: accepted"));
        assert!(valid.message.clone().unwrap().contains(why), "{why}: {valid:?}");
        assert_eq!(world.sets, sets, "{why}");
        let told = world.reasons().iter().filter(|it| **it == "ValidationFailed").count();
        assert_eq!(told, 1, "{why}");
        world.edit(&json!({ "spec": { "minReadySeconds": 5 } }));
        world.passes();
        let told = world.reasons().iter().filter(|it| **it == "ValidationFailed").count();
        assert_eq!(told, 2, "{why}: of the next generation as well, though it is the same");
    }
    let mut world = World::running(1);
    world.edit(&json!({ "spec": { "replicas": -1 } }));
    world.passes();
    world.edit(&json!({ "spec": { "replicas": 1 } }));
    world.passes();
    assert_eq!(world.condition("Valid"), None);
}

#[test]
fn all_that_is_wrong_with_a_strategy_is_said_at_once() {
    let block = json!({ "maxSurge": "x", "maxUnavailable": null, "orchestrationType": "Random" });
    for (strategy, all) in [
        (
            json!({ "type": "Big", "rollingUpdate": null, "inPlaceUpdate": block }),
            &["type is \"Big\"", "maxSurge is", "maxUnavailable is missing", "Auto or Manual"][..],
        ),
        (
            json!({ "type": "InPlaceUpdate", "rollingUpdate": null, "inPlaceUpdate": block }),
            &["maxSurge is", "maxUnavailable is missing", "Auto or Manual"],
        ),
        (json!({ "type": "InPlaceUpdate" }), &["inPlaceUpdate is missing", "Auto or Manual"]),
    ] {
        let mut world = World::running(1);
        world.edit(&json!({ "spec": { "strategy": strategy } }));
        world.passes();
        let said = world.condition("Valid").unwrap().message.clone().unwrap();
        for part in all {
            assert!(said.contains(part), "{part} is not in {said}");
        }
    }
}

#[test]
fn an_empty_selector_is_refused_with_an_event_of_its_own() {
    let mut all = deployment(1);
    all["spec"]["selector"] = json!({});
    let mut world = World::of(all);
    world.pass();
    assert_eq!((world.reasons(), world.sets.len()), (vec!["SelectingAll"], 0));
}

#[test]
fn a_deployment_that_is_deleted_goes_after_its_sets() {
    let mut world = World::running(1);
    world.edit(&json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
    world.pass();
    assert!(world.sets.is_empty() && world.deployment.has_finalizer());
    world.pass();
    assert!(!world.deployment.has_finalizer());
}

#[test]
fn a_deployment_that_is_deleted_and_orphans_its_sets_deletes_none() {
    let mut world = World::running(1);
    let ours = "machine.sapcloud.io/machine-controller-manager";
    world.edit(&json!({ "metadata": {
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [ours, "orphan"]
    }}));
    world.passes();
    assert_eq!(world.sets.len(), 1);
    for set in world.sets.values_mut() {
        set.metadata.owner_references = None;
    }
    world.edit(&json!({ "metadata": { "finalizers": [ours] } }));
    world.passes();
    assert_eq!(world.sets.len(), 1);
    assert!(!world.deployment.has_finalizer());
}

#[test]
fn machines_that_fail_are_shown_and_no_rollout() {
    let mut world = World::running(2);
    let name = world.names()[0].clone();
    let failed = with_phase(&world.machines[&name], "Failed");
    world.machines.insert(name, failed);
    world.count();
    world.pass();
    let available = world.condition("Available").unwrap();
    assert_eq!(available.reason.unwrap(), "MinimumReplicasUnavailable");
    assert_eq!(world.progressing(), rolling_over(), "autoscalers read this as a rollout otherwise");
}

#[test]
fn a_mass_failure_is_a_third_condition_with_an_event_for_its_begin_and_its_end() {
    let mut world = World::running(4);
    let names = world.names();
    for name in &names[..2] {
        let lost = with_phase(&world.machines[name], "Unknown");
        world.machines.insert(name.clone(), lost);
    }
    world.count();
    world.passes();
    let shown = world.condition("MassFailure").unwrap();
    assert_eq!((shown.status.as_str(), shown.reason.unwrap().as_str()), ("True", "HalfUnhealthy"));
    assert!(shown.message.unwrap().starts_with("2 of 4 machines are unhealthy"));
    for name in names {
        let well = with_phase(&world.machines[&name], "Running");
        world.machines.insert(name, well);
    }
    world.count();
    world.passes();
    assert_eq!(world.condition("MassFailure"), None);
    assert_eq!(
        world.status().conditions.len(),
        2,
        "a healthy deployment has exactly two conditions"
    );
    let told: Vec<_> =
        world.reasons().into_iter().filter(|it| it.starts_with("MassFailure")).collect();
    assert_eq!(told, ["MassFailure", "MassFailureEnded"]);
}

#[test]
fn a_rollout_that_waits_for_a_preserved_machine_says_so() {
    let mut world = World::running(2);
    world.roll_to("two");
    world.passes();
    world.sets_work();
    world.machines_start();
    world.passes();
    let new = world.machines.values().find(|it| it.spec.class.name == "two").unwrap().clone();
    let status = json!({ "status": { "currentStatus": {
        "phase": "Failed", "preserveExpiryTime": "2036-01-01T00:00:00Z"
    } } });
    world.edit_machine(new.name(), &status);
    world.passes();
    let message = world.condition("Progressing").unwrap().message.unwrap();
    let expected = format!("machine {} of the new set is failed and preserved", new.name());
    assert!(message.contains(&expected), "{message}");
    let gone = json!({ "status": { "currentStatus": { "preserveExpiryTime": null } } });
    world.edit_machine(new.name(), &gone);
    world.passes();
    let message = world.condition("Progressing").unwrap().message.unwrap();
    assert!(!message.contains("preserved"), "{message}");
}
