//! Metrics by the names of machine-controller-manager, and our own.

#![expect(clippy::indexing_slicing, reason = "tests")]

use ostler_api::MachineClass;
use ostler_api::machine::{Machine, MachinePhase};
use ostler_tests::objects::{class, delete, gone, in_phase, machine};
use ostler_tests::world::World;
use serde_json::json;

/// Name, and the labels that dashboards ask for.
const KNOWN: [(&str, &[&str]); 21] = [
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
    ("ostler_machines_waiting", &["reason"]),
    ("ostler_driver_operations_total", &["provider", "kind", "code"]),
];

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
