//! Which Machines a set takes from a reserve before it makes any.

use std::sync::Arc;

use ostler_api::Machine;
use ostler_lifecycle::set::{Blocker, Snapshot, Spare, decide, plan};
use ostler_lifecycle::template_identity::digest;
use ostler_lifecycle::write::{Only, Part, Then, Verb};
use serde_json::{Value, json};

use crate::set::objects::{deleting, machine, names, running, set, snapshot};

/// A Machine in reserve, made from the template of the set, changed by JSON.
fn spare(name: &str, zone: Option<&str>, change: Value) -> Spare {
    let template = digest(&set(1, json!({})).spec.template);
    let mut all = json!({
        "metadata": {
            "labels": { "app": null, "ostler.dev/reserve": "r" },
            "annotations": { "ostler.dev/reserve-template": template },
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other" },
                {
                    "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineReserve", "name": "r",
                    "uid": "reserve-uid", "controller": true, "blockOwnerDeletion": true
                }
            ]
        },
        "spec": { "nodeTemplate": {
            "metadata": { "annotations": { "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true" } },
            "spec": { "taints": [{ "key": "ostler.dev/reserve", "effect": "NoSchedule" }] }
        } }
    });
    json_patch::merge(&mut all, &change);
    Spare { machine: machine(name, all), zone: zone.map(str::to_owned) }
}

fn with(replicas: i32, machines: Vec<Arc<Machine>>, spares: Vec<Spare>) -> Snapshot {
    Snapshot { spares, ..snapshot(set(replicas, json!({})), machines) }
}

fn born(at: &str) -> Value {
    json!({ "metadata": { "creationTimestamp": format!("2026-01-01T01:{at}:00Z") } })
}

#[test]
fn a_set_takes_what_is_ready_the_oldest_first_and_makes_the_rest() {
    let spares = || vec![spare("new", None, born("30")), spare("old", None, born("10"))];
    for (replicas, taken, made) in [
        (2, vec![], 0),
        (3, vec!["old"], 0),
        (4, vec!["old", "new"], 0),
        (6, vec!["old", "new"], 2),
    ] {
        let decision = decide(&with(replicas, running(2), spares()));
        assert_eq!((names(&decision.take), decision.create), (taken, made), "{replicas}");
    }
}

#[test]
fn a_set_takes_none_that_is_not_ready_or_of_another_template_or_wanted_gone() {
    for change in [
        json!({ "status": { "currentStatus": { "phase": "Pending" } } }),
        json!({ "status": { "currentStatus": { "phase": "Failed" } } }),
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:00:00Z" } }),
        json!({ "metadata": { "annotations": { "ostler.dev/reserve-template": "another" } } }),
        json!({ "metadata": { "annotations": { "machine.sapcloud.io/delete-machine": "" } } }),
        json!({ "metadata": { "annotations": {
            "machine.sapcloud.io/marked-for-deletion-time": "2026-01-01T11:00:00Z"
        } } }),
        json!({ "metadata": { "ownerReferences": [{
            "apiVersion": "v1", "kind": "MachineSet", "name": "x", "uid": "x", "controller": true
        }] } }),
    ] {
        let decision = decide(&with(1, Vec::new(), vec![spare("m", None, change.clone())]));
        assert_eq!((decision.take.len(), decision.create), (0, 1), "{change}");
    }
}

#[test]
fn one_in_the_zone_of_the_machine_that_goes_comes_before_older_ones() {
    let spares =
        vec![spare("a", Some("zone-a"), born("10")), spare("b", Some("zone-b"), born("20"))];
    let snapshot = Snapshot {
        zones: vec!["zone-b".to_owned()],
        ..with(2, vec![deleting("gone"), running(1).remove(0)], spares)
    };
    assert_eq!(names(&decide(&snapshot).take), ["b"]);
    let none = Snapshot { zones: vec!["zone-c".to_owned()], ..snapshot };
    assert_eq!(names(&decide(&none).take), ["a"], "another zone is better than none");
}

#[test]
fn the_zone_of_the_template_comes_first() {
    let template = json!({ "spec": { "template": { "spec": { "nodeTemplate": {
        "metadata": { "labels": { "topology.kubernetes.io/zone": "zone-b" } }
    } } } } });
    let spares =
        vec![spare("a", Some("zone-a"), born("10")), spare("b", Some("zone-b"), born("20"))];
    let snapshot = Snapshot { spares, ..snapshot(set(1, template), Vec::new()) };
    assert_eq!(names(&decide(&snapshot).take), ["b"]);
}

#[test]
fn one_that_may_be_taken_already_is_taken_again_before_any_other() {
    let spares = vec![spare("old", None, born("10")), spare("new", None, born("20"))];
    let snapshot = Snapshot { taking: vec!["new".to_owned()], ..with(1, Vec::new(), spares) };
    assert_eq!(names(&decide(&snapshot).take), ["new"]);
}

#[test]
fn a_set_that_may_create_nothing_takes_nothing() {
    let frozen = json!({ "metadata": { "labels": { "freeze": "True" } } });
    let spares = vec![spare("m", None, json!({}))];
    let snapshot = Snapshot { spares, ..snapshot(set(1, frozen), Vec::new()) };
    let decision = decide(&snapshot);
    assert_eq!((decision.take.len(), decision.blocker), (0, Some(Blocker::Frozen)));
}

/// Controller, labels and Node template; other owners stay.
#[test]
fn one_write_on_condition_of_the_version_makes_a_machine_the_sets_own() {
    let snapshot = with(1, Vec::new(), vec![spare("m", None, json!({}))]);
    let plan = plan(&snapshot);
    let batch = plan.writes.iter().find(|it| it.part == Part::Take).unwrap();
    let [write] = &batch.writes[..] else { panic!("{:?}", batch.writes) };
    let Verb::Patch(patch) = &write.verb else { panic!("{:?}", write.verb) };
    let owners = patch["metadata"]["ownerReferences"].as_array().unwrap();
    let owners: Vec<_> = owners.iter().map(|it| it["uid"].as_str().unwrap()).collect();
    assert_eq!(owners, ["set-uid", "other"]);
    let labels = json!({ "app": "a", "ostler.dev/reserve": null });
    assert_eq!(patch["metadata"]["labels"], labels);
    assert_eq!(patch["spec"], json!({ "nodeTemplate": null }));
    assert_eq!(write.only, Only::Seen);
    // One that another set took is followed by another pass at once.
    assert_eq!((batch.answers.conflict, batch.answers.missing), (Then::Repeat, Then::Repeat));
}
