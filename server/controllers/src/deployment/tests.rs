use std::time::Duration;

use ostler_api::MachineDeployment;
use ostler_api::names::annotation::TRIGGER_DELETION;
use ostler_lifecycle::write::Part;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use super::*;
use crate::bench::{Bench, put};
use crate::client::PATIENCE;
use crate::fleet::Fleet;
use crate::kind::{Kind as _, Passed, reconcile};
use crate::metrics::{Leads, ReconcileMetrics};
use crate::queue::Outcome;
use crate::unseen::{ARRIVES, Effect};

const DEPLOYMENT: &str =
    "/apis/machine.sapcloud.io/v1alpha1/namespaces/default/machinedeployments/d";
const SETS: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default/machinesets";

fn deployment(change: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {
            "name": "d", "namespace": "default", "uid": "u", "resourceVersion": "7",
            "generation": 1, "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
        },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "d" } },
            "strategy": {
                "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 }
            },
            "template": {
                "metadata": { "labels": { "app": "d" } },
                "spec": { "class": { "kind": "MachineClass", "name": "c" } }
            }
        }
    });
    for (key, value) in change.as_object().unwrap() {
        object["metadata"][key] = value.clone();
    }
    object
}

fn controller(bench: &Bench, handover: Handover) -> Fleet<Deployments> {
    Fleet(Arc::new(Deployments { tools: bench.tools(), handover }))
}

async fn reconciled(bench: &Bench) -> Outcome {
    let metrics = ReconcileMetrics::register(&mut Registry::default());
    reconcile(&controller(bench, Handover::over()), &ObjectName::new("default", "d"), &metrics)
        .await
}

#[tokio::test(start_paused = true)]
async fn every_write_is_conditional_on_the_version_that_was_seen() {
    let bench = Bench::new();
    put(&bench.stores.deployments, deployment(&json!({ "finalizers": [] })));
    reconciled(&bench).await;
    let (path, patch) = bench.writes().remove(0);
    assert_eq!(path, format!("PATCH {DEPLOYMENT}"));
    let finalizers = ["machine.sapcloud.io/machine-controller-manager"];
    assert_eq!(patch["metadata"], json!({ "resourceVersion": "7", "finalizers": finalizers }));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_to_sets_while_the_cache_shows_a_deployment_as_it_was() {
    for (what, change) in [
        ("scaled", json!({ "generation": 2, "resourceVersion": "8" })),
        ("another one", json!({ "uid": "v" })),
        ("being deleted", json!({ "deletionTimestamp": "1970-01-01T00:00:00Z" })),
        ("told by an autoscaler", json!({ "annotations": { TRIGGER_DELETION: "m" } })),
    ] {
        let bench = Bench::new().having(deployment(&change));
        put(&bench.stores.deployments, deployment(&json!({})));
        assert_eq!(reconciled(&bench).await, Outcome::Outdated, "{what}");
        assert_eq!(bench.writes(), [], "{what}");
    }
}

fn old_set(owner: Option<&str>) -> Value {
    let owner = owner.map(|uid| {
        json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "name": "d", "uid": uid, "controller": true,
        })
    });
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
        "metadata": {
            "name": "old", "namespace": "default", "uid": "s", "resourceVersion": "5",
            "ownerReferences": Vec::from_iter(owner),
        },
        "spec": { "replicas": 0, "template": {
            "spec": { "class": { "kind": "MachineClass", "name": "c" } }
        } }
    })
}

/// The watch of sets may be behind that of deployments.
#[tokio::test(start_paused = true)]
async fn a_set_that_was_orphaned_stays_though_the_cache_shows_it_owned() {
    for owner in [None, Some("another")] {
        let bench = Bench::new().having(old_set(owner));
        let gone = json!({ "deletionTimestamp": "1970-01-01T00:00:00Z" });
        put(&bench.stores.deployments, deployment(&gone));
        put(&bench.stores.sets, old_set(Some("u")));
        reconciled(&bench).await;
        let writes = bench.writes();
        let deletions = writes.iter().filter(|(path, _)| path.starts_with("DELETE"));
        assert_eq!(deletions.count(), 0, "{owner:?}: {writes:?}");
    }
}

/// It had no Machines when it was seen, and may have been scaled up since.
#[tokio::test(start_paused = true)]
async fn an_old_set_that_is_not_kept_is_deleted_only_as_it_was_seen() {
    let gone = json!({ "deletionTimestamp": "1970-01-01T00:00:00Z" });
    for (change, version) in [(json!({}), json!("5")), (gone, Value::Null)] {
        let bench = Bench::new().having(old_set(Some("u")));
        let mut paused = deployment(&change);
        for (field, value) in [("paused", json!(true)), ("revisionHistoryLimit", json!(0))] {
            paused["spec"][field] = value;
        }
        put(&bench.stores.deployments, paused);
        let mut set = old_set(Some("u"));
        set["metadata"]["labels"] = json!({ "app": "d" });
        set["spec"]["template"]["metadata"] = json!({ "labels": { "app": "d" } });
        set["spec"]["template"]["spec"]["class"]["name"] = json!("older");
        set["status"] = json!({ "replicas": 0 });
        put(&bench.stores.sets, set);
        let deployments = controller(&bench, Handover::over());
        let name = ObjectName::new("default", "d");
        let snapshot = deployments.observe(&name).await.unwrap().unwrap();
        let mut plan = Deployments::plan(&snapshot);
        plan.writes.retain(|batch| batch.part == Part::Delete);
        deployments.execute(&snapshot, &plan).await.unwrap();
        let deleted =
            bench.writes().into_iter().find(|(path, _)| *path == format!("DELETE {SETS}/old"));
        let only = &deleted.unwrap().1["preconditions"];
        // Objects of a deleted deployment are deleted with its Machines, however busy they are.
        assert_eq!((&only["uid"], &only["resourceVersion"]), (&json!("s"), &version));
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_is_created_under_the_same_name_however_often_it_is_tried() {
    let bench = Bench::new();
    put(&bench.stores.deployments, deployment(&json!({})));
    reconciled(&bench).await;
    let create = |bench: &Bench| {
        let writes = bench.writes();
        writes.into_iter().find(|(path, _)| *path == format!("POST {SETS}")).unwrap().1
    };
    let first = create(&bench);
    let again = Bench::new();
    put(&again.stores.deployments, deployment(&json!({})));
    reconciled(&again).await;
    assert_eq!(create(&again)["metadata"]["name"], first["metadata"]["name"]);
    assert_eq!(first["spec"]["replicas"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_writes_nothing_while_requests_of_the_one_before_may_arrive() {
    let bench = Bench::new();
    put(&bench.stores.deployments, deployment(&json!({})));
    let metrics = ReconcileMetrics::register(&mut Registry::default());
    let new = controller(&bench, Handover::new(PATIENCE));
    let name = ObjectName::new("default", "d");
    assert_eq!(reconcile(&new, &name, &metrics).await, Outcome::Again(PATIENCE));
    tokio::time::advance(PATIENCE).await;
    // The new leader lists the sets now, which fails here.
    assert_eq!(reconcile(&new, &name, &metrics).await, Outcome::Failed);
    assert_eq!(bench.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn a_template_that_changed_waits_until_the_set_of_the_one_before_is_seen() {
    let bench = Bench::new();
    put(&bench.stores.deployments, deployment(&json!({})));
    let metrics = ReconcileMetrics::register(&mut Registry::default());
    let deployments = controller(&bench, Handover::over());
    let name = ObjectName::new("default", "d");
    let created = |bench: &Bench| {
        let writes = bench.writes();
        let sets = writes.into_iter().filter(|(path, _)| *path == format!("POST {SETS}"));
        let names = sets.map(|(_, set)| set["metadata"]["name"].as_str().unwrap().to_owned());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    reconcile(&deployments, &name, &metrics).await;
    let first = created(&bench);
    assert_eq!(first.len(), 1);
    let mut changed = deployment(&json!({ "generation": 2, "resourceVersion": "9" }));
    changed["spec"]["template"]["spec"]["class"]["name"] = json!("other");
    put(&bench.stores.deployments, changed);
    reconcile(&deployments, &name, &metrics).await;
    assert_eq!(created(&bench), first, "the one before is on its way, with all machines");
    // The API server of the bench has no set: it is gone.
    reconcile(&deployments, &name, &metrics).await;
    assert_eq!(created(&bench).len(), 2);
}

/// The status in each write.
fn statuses(bench: &Bench) -> Vec<Value> {
    let writes = bench.writes();
    let statuses =
        writes.into_iter().filter(|(path, _)| *path == format!("PATCH {DEPLOYMENT}/status"));
    statuses.map(|(_, patch)| patch["status"].clone()).collect()
}

/// The end of one pass, and the reasons of its events.
async fn one_pass(bench: &Bench) -> (Result<Passed, PassError>, Vec<String>) {
    let (recorder, events) = bench.recorder_and_writer();
    let tools = Tools { recorder, ..bench.tools() };
    let deployments = Fleet(Arc::new(Deployments { tools, handover: Handover::over() }));
    let name = ObjectName::new("default", "d");
    let snapshot = deployments.observe(&name).await.unwrap().unwrap();
    let plan = Deployments::plan(&snapshot);
    let done = deployments.execute(&snapshot, &plan).await.unwrap();
    (deployments.record(snapshot, plan, done).await, bench.told(events).await)
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_refused_is_shown_as_a_failure() {
    let bench = Bench::new().refusing(403);
    put(&bench.stores.deployments, deployment(&json!({})));
    let (passed, told) = one_pass(&bench).await;
    assert!(passed.is_err(), "this API server refuses the status as well");
    assert_eq!(told, ["MachineSetCreateError"]);
    let status = statuses(&bench).remove(0);
    let conditions = status["conditions"].as_array().unwrap();
    let shown = conditions.iter().find(|it| it["type"] == "Progressing").unwrap();
    assert_eq!((&shown["status"], &shown["reason"]), (&json!("False"), &json!(told[0])));
    assert!(shown["message"].as_str().unwrap().contains("refused by the test"));
}

/// The answer to a creation may be lost, and then the set is there at the second try.
#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_is_its_own_set_or_leads_to_another_name_at_once() {
    let deleted = "1970-01-01T00:00:00Z";
    for (owner, class, deleted, taken) in [
        ("u", "c", None, false),
        ("u", "c", Some(deleted), true),
        ("u", "d", None, true),
        ("x", "c", None, true),
    ] {
        let bench = Bench::new().having_already(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
            "metadata": {
                "name": "d-x", "namespace": "default", "uid": "s", "deletionTimestamp": deleted,
                "ownerReferences": [{
                    "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
                    "name": "d", "uid": owner, "controller": true,
                }],
            },
            "spec": { "template": {
                "metadata": { "labels": { "app": "d", "machine-template-hash": "1" } },
                "spec": { "class": { "kind": "MachineClass", "name": class } }
            } }
        }));
        put(&bench.stores.deployments, deployment(&json!({})));
        let (passed, told) = one_pass(&bench).await;
        let collisions = statuses(&bench).remove(0)["collisionCount"].as_i64();
        assert_eq!(collisions, taken.then_some(1), "{owner} {class} {deleted:?}");
        assert_eq!(passed.unwrap() == Passed::Changed, taken);
        assert_eq!(told.is_empty(), taken, "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_meanwhile_ends_the_pass() {
    let bench = Bench::new().refusing(409);
    put(&bench.stores.deployments, deployment(&json!({ "finalizers": [] })));
    assert_eq!(reconciled(&bench).await, Outcome::Outdated);
    assert_eq!(bench.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_metrics_have_upstreams_names_and_series_end_with_their_object() {
    let bench = Bench::new();
    let mut registry = Registry::default();
    let leads = Leads::default();
    register_deployments(&mut registry, &bench.stores, &leads);
    let _leading = leads.begin();
    let mut object = deployment(&json!({}));
    object["spec"]["rollbackTo"] = json!({ "revision": 7 });
    object["status"] = json!({
        "replicas": 2, "updatedReplicas": 1, "readyReplicas": 2, "availableReplicas": 2,
        "preservedFailedReplicas": 0, "unavailableReplicas": 1,
        "conditions": [{ "type": "Available", "status": "False" }],
        "failedMachines": [{
            "name": "m", "providerID": "fake:///m", "ownerRef": "s",
            "lastOperation": { "state": "Failed", "type": "Create" }
        }]
    });
    put(&bench.stores.deployments, object.clone());
    let scrape = || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    };
    let text = scrape();
    for line in [
        "mcm_machine_deployment_items_total 1",
        r#"mcm_machine_deployment_info_spec_replicas{name="d",namespace="default"} 2"#,
        r#"mcm_machine_deployment_status_updated_replicas{name="d",namespace="default"} 1"#,
        r#"mcm_machine_deployment_info_spec_rolling_update_max_surge{name="d",namespace="default"} 1"#,
        r#"mcm_machine_deployment_status_condition{name="d",namespace="default",condition="Available"} 0"#,
        r#"mcm_machine_deployment_info_spec_rollback_to_revision{name="d",namespace="default"} 7"#,
        concat!(
            r#"mcm_machine_deployment_failed_machines{name="d",namespace="default","#,
            r#"failed_machine_name="m",failed_machine_provider_id="fake:///m","#,
            r#"failed_machine_owner_ref="s",failed_machine_last_operation_state="Failed","#,
            r#"failed_machine_last_operation_machine_operation_type="Create"} 1"#,
        ),
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    let gone = serde_json::from_value(object).unwrap();
    bench.stores.deployments.apply(kube::runtime::watcher::Event::Delete(gone));
    assert!(!scrape().contains(r#"name="d""#));
}

#[tokio::test(start_paused = true)]
async fn a_changed_deployment_waits_until_a_request_without_an_answer_can_arrive_no_more() {
    let bench = Bench::new();
    let deployments = controller(&bench, Handover::over());
    let of = |generation: i64| -> MachineDeployment {
        serde_json::from_value(deployment(&json!({ "generation": generation }))).unwrap()
    };
    let wait = async |generation| deployments.0.unsure(&of(generation)).await.unwrap();
    bench.stores.unseen.sent("u", Some(1), (Effect::Changed, "d-1"));
    assert_eq!(wait(1).await, None, "it is repeated");
    assert_eq!(wait(2).await, Some(ARRIVES));
    tokio::time::advance(ARRIVES).await;
    assert_eq!(wait(2).await, None);
    bench.stores.unseen.sent("u", Some(2), (Effect::Created, "d-2"));
    bench.stores.unseen.answered("u", (Effect::Created, "d-2"), Ok(()));
    assert_eq!(wait(2).await, None, "it would create the same one");
    let soon = Some(Duration::from_secs(1));
    assert_eq!((wait(3).await, wait(3).await), (soon, None), "the API server has it no more");
}
