//! Metrics by the names of machine-controller-manager, and our own.

#![expect(clippy::indexing_slicing, reason = "tests")]

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use kube::runtime::wait::await_condition;
use ostler_api::machine::{Machine, MachinePhase};
use ostler_api::{MachineClass, MachineDeployment};
use ostler_tests::objects::{class, delete, gone, in_phase, machine};
use ostler_tests::world::{Setup, World};
use serde_json::json;

/// Name, and the labels that dashboards ask for.
const KNOWN: [(&str, &[&str]); 22] = [
    ("mcm_machine_controller_frozen", &[]),
    ("mcm_machine_items_total", &[]),
    ("mcm_misc_scrape_failure_total", &["kind", "binary"]),
    ("mcm_machine_current_status_phase", &["name", "namespace"]),
    (
        "mcm_machine_info",
        &[
            "name",
            "namespace",
            "createdAt",
            "spec_provider_id",
            "spec_class_api_group",
            "spec_class_kind",
            "spec_class_name",
            "node_name",
        ],
    ),
    ("mcm_machine_status_condition", &["name", "namespace", "condition"]),
    ("mcm_machine_create_duration_seconds", FOUR),
    ("mcm_machine_initialize_duration_seconds", FOUR),
    ("mcm_machine_join_duration_seconds", FOUR),
    ("mcm_machine_delete_duration_seconds", FOUR),
    ("mcm_cloud_api_driver_request_duration_seconds_bucket", &["provider", "operation"]),
    ("mcm_cloud_api_driver_requests_failed_total", &["provider", "operation", "error_code"]),
    ("mcm_workqueue_adds_total", &["name"]),
    ("mcm_workqueue_depth", &["name"]),
    ("mcm_workqueue_retries_total", &["name"]),
    ("mcm_workqueue_queue_duration_seconds_bucket", &["name"]),
    ("mcm_workqueue_work_duration_seconds_bucket", &["name"]),
    ("ostler_machine_step_seconds_bucket", &["step"]),
    ("ostler_machines", &["phase"]),
    ("ostler_machine_instances", &["state"]),
    ("ostler_machines_waiting", &["reason"]),
    ("ostler_driver_operations_total", &["provider", "kind", "code"]),
];

/// Of MachineSets and MachineDeployments. `failed_machines` of both and `info_spec_rollback_to_revision` have no series
/// here: unit tests read those.
const OF_FLEETS: [(&str, &[&str]); 26] = [
    ("ostler_unseen_writes", &[]),
    ("mcm_machine_stale_machines_total", &[]),
    ("mcm_machine_set_items_total", &[]),
    (
        "mcm_machine_set_info",
        &[
            "name",
            "namespace",
            "createdAt",
            "spec_machine_class_api_group",
            "spec_machine_class_kind",
            "spec_machine_class_name",
        ],
    ),
    ("mcm_machine_set_info_spec_replicas", TWO),
    ("mcm_machine_set_info_spec_min_ready_seconds", TWO),
    ("mcm_machine_set_status_available_replicas", TWO),
    ("mcm_machine_set_status_fully_labelled_replicas", TWO),
    ("mcm_machine_set_status_ready_replicas", TWO),
    ("mcm_machine_set_status_replicas", TWO),
    ("mcm_machine_deployment_items_total", &[]),
    ("mcm_machine_deployment_info", &["name", "namespace", "createdAt", "spec_strategy_type"]),
    ("mcm_machine_deployment_info_spec_paused", TWO),
    ("mcm_machine_deployment_info_spec_replicas", TWO),
    ("mcm_machine_deployment_info_spec_min_ready_seconds", TWO),
    ("mcm_machine_deployment_info_spec_rolling_update_max_surge", TWO),
    ("mcm_machine_deployment_info_spec_rolling_update_max_unavailable", TWO),
    ("mcm_machine_deployment_info_spec_revision_history_limit", TWO),
    ("mcm_machine_deployment_info_spec_progress_deadline_seconds", TWO),
    ("mcm_machine_deployment_status_condition", &["name", "namespace", "condition"]),
    ("mcm_machine_deployment_status_available_replicas", TWO),
    ("mcm_machine_deployment_status_unavailable_replicas", TWO),
    ("mcm_machine_deployment_status_ready_replicas", TWO),
    ("mcm_machine_deployment_status_updated_replicas", TWO),
    ("mcm_machine_deployment_status_collision_count", TWO),
    ("mcm_machine_deployment_status_replicas", TWO),
];

const TWO: &[&str] = &["name", "namespace"];
const FOUR: &[&str] = &["namespace", "machine_deployment", "instance_type", "zone"];

fn of_deployment(name: &str, class: &str) -> serde_json::Value {
    let mut machine = machine(name, class);
    machine["metadata"]["labels"] = json!({ "name": "workers" });
    machine
}

fn has(text: &str, name: &str, labels: &[&str]) -> bool {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.any(|line| {
        let (found, rest) = line.split_once(['{', ' ']).unwrap_or((line, ""));
        found == name && labels.iter().all(|label| rest.contains(&format!("{label}=\"")))
    })
}

#[tokio::test(start_paused = true)]
async fn dashboards_of_machine_controller_manager_find_their_metrics() {
    let world = World::start().await;
    let slow = json!({
        "region": "local", "image": "fake-1.0", "initialize": true, "latency": { "join": "3s" },
    });
    world.apply::<MachineClass>(class("slow", &slow)).await;
    world.apply::<Machine>(of_deployment("a", "slow")).await;
    world.apply::<Machine>(of_deployment("b", "fake")).await;
    world.apply::<Machine>(of_deployment("c", "nowhere")).await;
    for name in ["a", "b"] {
        world.until(name, "Running", in_phase(MachinePhase::Running)).await;
    }
    delete(&world, "a").await;
    world.until("a", "gone", gone).await;
    // On a paused clock: what is on its way to the core has arrived.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let text = world.metrics();
    let missing: Vec<_> = KNOWN.iter().filter(|(name, labels)| !has(&text, name, labels)).collect();
    assert!(missing.is_empty(), "{missing:?} in\n{text}");
    assert!(text.contains(r#"ostler_machines_waiting{reason="ClassMissing"} 1"#), "{text}");
    assert!(
        !text.contains(r#"name="a",namespace"#),
        "a machine that is gone leaves nothing behind"
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn dashboards_find_the_metrics_of_sets_and_deployments_and_users_their_events() {
    let world = World::start_with(Setup::tuned(|options| {
        options.settings.controllers = "*".parse().expect("all controllers");
    }))
    .await;
    world
        .apply::<MachineDeployment>(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": { "name": "d", "namespace": "default" },
            "spec": {
                "replicas": 1, "revisionHistoryLimit": 2, "progressDeadlineSeconds": 600,
                "selector": { "matchLabels": { "app": "d" } },
                "strategy": {
                    "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 }
                },
                "template": {
                    "metadata": { "labels": { "app": "d" } },
                    "spec": { "class": { "kind": "MachineClass", "name": "fake" } }
                }
            }
        }))
        .await;
    let api = Api::<MachineDeployment>::default_namespaced(world.client());
    let available = |it: Option<&MachineDeployment>| {
        it.and_then(|it| it.status.as_ref()).is_some_and(|status| status.available_replicas == 1)
    };
    await_condition(api, "d", available).await.expect("it comes up");
    // On a paused clock: what is on its way to the core has arrived.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let text = world.metrics();
    let known = OF_FLEETS.iter();
    let missing: Vec<_> = known.filter(|(name, labels)| !has(&text, name, labels)).collect();
    assert!(missing.is_empty(), "{missing:?} in\n{text}");
    for family in ["machine_set_failed_machines", "machine_deployment_failed_machines"] {
        assert!(text.contains(&format!("# TYPE mcm_{family} gauge")), "{text}");
    }
    let events = Api::<Event>::default_namespaced(world.client());
    let events = events.list(&ListParams::default()).await.expect("events are listed").items;
    for reason in ["SuccessfulCreate", "ScalingMachineSet"] {
        let found = events.iter().find(|it| it.reason.as_deref() == Some(reason));
        let by = found.and_then(|it| it.reporting_controller.as_deref());
        assert_eq!(by, Some("ostler.dev/machine-controller"), "{reason}");
    }
    world.stop().await;
}
