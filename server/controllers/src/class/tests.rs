use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher::Event;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use super::*;
use crate::bench::{Bench, handed_out, put};
use crate::kind::reconcile;
use crate::metrics::ReconcileMetrics;

const CLASS: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default/machineclasses/c";
const COPIES: &str = "/api/v1/namespaces/default/secrets";

fn class(finalizers: &[&str]) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": {
            "name": "c", "namespace": "default", "resourceVersion": "7", "finalizers": finalizers
        },
        "provider": "a.example.com", "providerSpec": {},
        // The class has condition `Valid` already, which other tests are about.
        "status": { "conditions": [{
            "type": "Valid", "status": "Unknown", "reason": "DriverUnavailable",
            "message": "no driver for provider \"a.example.com\" is connected and ready; no other driver is connected",
            "lastTransitionTime": "1970-01-01T00:00:00Z"
        }] }
    })
}

fn machine() -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": { "name": "m", "namespace": "default", "uid": "u" },
        "spec": { "class": { "kind": "MachineClass", "name": "c" } }
    })
}

fn classes_telling(bench: &Bench, recorder: Recorder) -> Classes {
    let clock = Arc::new(|| Timestamp::UNIX_EPOCH);
    Classes::new(bench.writer(), bench.stores.clone(), bench.reviewer(), recorder, clock)
}

fn classes(bench: &Bench) -> Classes {
    classes_telling(bench, bench.recorder())
}

async fn reconciled(classes: &Classes) -> Outcome {
    let metrics = ReconcileMetrics::register(&mut Registry::default());
    reconcile(classes, &ObjectName::new("default", "c"), &metrics).await
}

#[tokio::test(start_paused = true)]
async fn a_class_that_a_machine_uses_gets_the_finalizer_and_is_kept() {
    let bench = Bench::new();
    put(&bench.stores.classes, class(&["other"]));
    put(&bench.stores.machines, machine());
    assert_eq!(reconciled(&classes(&bench)).await, Outcome::Done);
    let [(finalizer, patch), (copy, kept)] = bench.writes().try_into().unwrap();
    assert_eq!(finalizer, format!("PATCH {CLASS}"));
    let all = json!(["other", finalizer::MACHINE]);
    assert_eq!(patch["metadata"], json!({ "resourceVersion": "7", "finalizers": all }));
    assert_eq!(copy, format!("POST {COPIES}"));
    assert_eq!(kept["type"], ostler_lifecycle::last_known::TYPE);
}

#[tokio::test(start_paused = true)]
async fn a_class_that_is_kept_costs_its_next_machine_no_write() {
    let first = Bench::new();
    put(&first.stores.classes, class(&[finalizer::MACHINE]));
    put(&first.stores.machines, machine());
    reconciled(&classes(&first)).await;
    let (_, copy) = first.writes().pop().unwrap();

    let bench = Bench::new();
    put(&bench.stores.classes, class(&[finalizer::MACHINE]));
    put(&bench.stores.secrets, copy);
    for name in ["m", "n"] {
        let mut machine = machine();
        machine["metadata"]["name"] = json!(name);
        put(&bench.stores.machines, machine);
        assert_eq!(reconciled(&classes(&bench)).await, Outcome::Done);
    }
    assert_eq!(bench.writes(), []);
}

/// With its class and its copy, the group of a pool whose deletion runs could not be deleted any more.
#[tokio::test(start_paused = true)]
async fn a_class_is_not_let_go_for_pools_that_are_not_listed_yet() {
    let deleted = || {
        let mut class = class(&[finalizer::MACHINE]);
        class["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        class
    };
    let lists = |class: &str| {
        json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePoolList", "metadata": {},
            "items": [{
                "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
                "metadata": { "name": "p", "namespace": "default", "uid": "u" },
                "spec": { "template": { "spec": {
                    "class": { "kind": "MachineClass", "name": class }
                } } }
            }]
        })
    };
    for (named, goes) in [("c", false), ("another", true)] {
        let bench = Bench::new().having(lists(named));
        put(&bench.stores.classes, deleted());
        reconciled(&classes(&bench)).await;
        let patched = bench.writes().iter().any(|(to, _)| *to == format!("PATCH {CLASS}"));
        assert_eq!(patched, goes, "{named}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pass_over_a_class_does_not_look_at_all_its_machines() {
    let bench = Bench::new();
    put(&bench.stores.classes, class(&[]));
    for number in 0..100 {
        let mut machine = machine();
        machine["metadata"]["name"] = json!(format!("m{number}"));
        put(&bench.stores.machines, machine);
    }
    handed_out();
    assert_eq!(reconciled(&classes(&bench)).await, Outcome::Done);
    assert_eq!(handed_out(), 0);
}

/// A Machine of machine-controller-manager may name a class of another kind.
#[tokio::test(start_paused = true)]
async fn a_class_of_another_kind_is_not_used_by_a_machine_that_names_it() {
    let bench = Bench::new();
    put(&bench.stores.classes, class(&[]));
    let mut other = machine();
    other["spec"]["class"]["kind"] = json!("AWSMachineClass");
    put(&bench.stores.machines, other);
    assert_eq!(reconciled(&classes(&bench)).await, Outcome::Done);
    assert_eq!(bench.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn a_class_that_no_machine_uses_loses_its_finalizer_some_time_after_the_last_one() {
    let bench = Bench::new();
    let classes = classes(&bench);
    put(&bench.stores.classes, class(&["other", finalizer::MACHINE]));
    assert_eq!(reconciled(&classes).await, Outcome::Again(LINGER));
    tokio::time::advance(LINGER / 2).await;
    put(&bench.stores.machines, machine());
    reconciled(&classes).await;
    let gone = serde_json::from_value(machine()).unwrap();
    bench.stores.machines.apply(Event::Delete(gone));
    assert_eq!(reconciled(&classes).await, Outcome::Again(LINGER), "a user came meanwhile");
    assert!(bench.writes().iter().all(|(request, _)| !request.starts_with("PATCH")));

    tokio::time::advance(LINGER).await;
    assert_eq!(reconciled(&classes).await, Outcome::Done);
    let (finalizer, patch) = bench.writes().pop().unwrap();
    assert_eq!(finalizer, format!("PATCH {CLASS}"));
    assert_eq!(patch["metadata"]["finalizers"], json!(["other"]));
}

#[tokio::test(start_paused = true)]
async fn a_class_that_is_deleted_and_that_no_machine_uses_loses_its_finalizer_immediately() {
    let bench = Bench::new();
    let mut deleted = class(&["other", finalizer::MACHINE]);
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    put(&bench.stores.classes, deleted);
    assert_eq!(reconciled(&classes(&bench)).await, Outcome::Done);
    let [(finalizer, patch)] = bench.writes().try_into().unwrap();
    assert_eq!(finalizer, format!("PATCH {CLASS}"));
    assert_eq!(patch["metadata"]["finalizers"], json!(["other"]));
}

#[tokio::test(start_paused = true)]
async fn a_class_that_is_deleted_says_once_what_uses_it() {
    let bench = Bench::new();
    let (recorder, events) = bench.recorder_and_writer();
    let classes = classes_telling(&bench, recorder);
    let mut deleted = class(&[finalizer::MACHINE]);
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    put(&bench.stores.classes, deleted);
    put(&bench.stores.machines, machine());
    let template = json!({ "spec": machine()["spec"] });
    put(
        &bench.stores.deployments,
        json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": { "name": "d", "namespace": "default", "uid": "d" },
            "spec": { "template": template }
        }),
    );
    reconciled(&classes).await;
    reconciled(&classes).await;
    assert_eq!(bench.told(events).await, ["ClassInUse"]);
    let (_, event) = bench.writes().pop().unwrap();
    assert_eq!(
        event["note"],
        "cannot be deleted while in use by: 1 machinedeployment (d), 1 machine (m)"
    );
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_deleted_says_once_which_classes_name_it_and_nothing_secret() {
    let bench = Bench::new();
    let (recorder, events) = bench.recorder_and_writer();
    let secrets = Secrets::new(bench.writer(), bench.stores.clone(), recorder);
    let metrics = ReconcileMetrics::register(&mut Registry::default());
    let name = ObjectName::new("default", "s");
    let put_secret = |uid: &str| {
        let secret = json!({
            "metadata": {
                "name": "s", "namespace": "default", "uid": uid,
                "finalizers": [finalizer::SECRET], "deletionTimestamp": "2026-01-01T00:00:00Z"
            },
            "stringData": { "token": "canary" }, "data": { "token": "Y2FuYXJ5" }
        });
        put(&bench.stores.secrets, secret);
    };
    for class_name in ["a", "b", "c", "d"] {
        let mut class = class(&[]);
        class["metadata"]["name"] = json!(class_name);
        class["secretRef"] = json!({ "name": "s", "namespace": "default" });
        put(&bench.stores.classes, class);
    }
    for uid in ["1", "1", "2"] {
        put_secret(uid);
        reconcile(&secrets, &name, &metrics).await;
    }
    assert_eq!(bench.told(events).await, ["SecretInUse", "SecretInUse"], "once for each secret");
    for (_, event) in bench.writes() {
        let text = event["note"].as_str().unwrap();
        assert_eq!(text, "its deletion waits for what names it: 4 machineclasses (a, b, c, …)");
        assert!(!event.to_string().contains("canary") && !event.to_string().contains("Y2FuYXJ5"));
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_machine_cannot_be_read_no_class_loses_its_finalizer() {
    let bench = Bench::new();
    put(&bench.stores.classes, class(&[finalizer::MACHINE]));
    bench.a_machine_cannot_be_read();
    assert_eq!(reconciled(&classes(&bench)).await, Outcome::Again(UNSURE));
    assert_eq!(bench.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_the_api_server_refuses_is_a_failure_that_machines_can_show() {
    let bench = Bench::new().refusing(403);
    put(&bench.stores.classes, class(&[]));
    put(&bench.stores.machines, machine());
    assert_eq!(reconciled(&classes(&bench)).await, Outcome::Failed);
    let why = bench.stores.unheld.why(&ObjectName::new("default", "c"));
    assert!(why.is_some_and(|why| why.contains("refused by the test")));
}

#[test]
fn finalizers_of_others_stay_and_nothing_is_written_when_all_is_well() {
    let secret = |finalizers: &[&str]| -> Secret {
        serde_json::from_value(json!({ "metadata": {
            "name": "s", "namespace": "default", "resourceVersion": "7",
            "finalizers": finalizers
        }}))
        .unwrap()
    };
    let expected = |finalizers: &[&str]| {
        Some(json!({ "metadata": { "resourceVersion": "7", "finalizers": finalizers } }))
    };
    let added = finalizer_patch(&secret(&["other"]).metadata, "ours", FinalizerChange::Add);
    assert_eq!(added, expected(&["other", "ours"]));
    let removed =
        finalizer_patch(&secret(&["ours", "other"]).metadata, "ours", FinalizerChange::Remove);
    assert_eq!(removed, expected(&["other"]));
    assert_eq!(finalizer_patch(&secret(&["ours"]).metadata, "ours", FinalizerChange::Keep), None);
}
