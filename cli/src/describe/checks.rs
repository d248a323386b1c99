//! The verdicts of MachineHealthChecks on a Machine, and their deadlines.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::{Api, ListParams};
use ostler_api::machine_health_check::HealthCheckConditionType;
use ostler_api::{Machine, MachineHealthCheck, ProviderIdComparison};
use ostler_lifecycle::health_check::{
    CheckTarget, Exempt, HealthVerdict, exempt, selects, verdict,
};
use ostler_lifecycle::outage::ApiView;
use ostler_lifecycle::owner::controller;
use ostler_lifecycle::snapshot::{NodeView, TargetView};

use super::sheet::clock;

/// One line for each check that selects a machine, as far as they can be read.
pub(super) async fn lines(
    client: &Client,
    namespace: &str,
    machine: &Machine,
    nodes: &[Node],
    now: Timestamp,
) -> Vec<String> {
    let api = Api::<MachineHealthCheck>::namespaced(client.clone(), namespace);
    let mut all = api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
    all.retain(|check| selects(check, machine));
    let line = |check| {
        format!("{}: {}", MachineHealthCheck::name(check), said(check, machine, nodes, now))
    };
    all.iter().map(line).collect()
}

fn said(check: &MachineHealthCheck, machine: &Machine, nodes: &[Node], now: Timestamp) -> String {
    match exempt(machine, now) {
        Some(Exempt::Paused) => return "does not look at it: it is paused".to_owned(),
        Some(Exempt::Skipped) => return "does not look at it: an annotation says so".to_owned(),
        Some(Exempt::Preserved) => return "does not look at it: it is preserved".to_owned(),
        None => {}
    }
    let mark = machine.unhealthy_mark().filter(|mark| mark.check == check.name());
    if let Some(mark) = mark {
        return format!("unhealthy since {}: {}", clock(&mark.since, now), mark.message);
    }
    let all: Vec<_> = nodes.iter().cloned().map(Arc::new).collect();
    let node = match all.split_first() {
        Some((node, [])) => NodeView::Known(Arc::clone(node)),
        Some((node, others)) => NodeView::Several(Arc::clone(node), others.to_vec()),
        // It may only not be readable.
        None if machine.node_name().is_some() => NodeView::Unknown,
        None => NodeView::Absent,
    };
    // Outages are added by the core, which knows of them, and of how its driver compares ids.
    let (cluster, api) = (TargetView::Watched, ApiView::default());
    let ids = ProviderIdComparison::Exact;
    let target = CheckTarget { machine: Arc::new(machine.clone()), node, ids, cluster, api };
    match verdict(check, &target, now) {
        HealthVerdict::Healthy => "healthy".to_owned(),
        HealthVerdict::Pending { until: Some(until) } => {
            format!("not healthy; it waits until {}", clock(&Time(until), now))
        }
        HealthVerdict::Pending { until: None } => "not healthy yet".to_owned(),
        HealthVerdict::Unknown { .. } => "not known".to_owned(),
        HealthVerdict::Failed => "given up already".to_owned(),
        HealthVerdict::Unhealthy(mark) => {
            format!("unhealthy: {}{}", mark.message, held(check, machine))
        }
    }
}

/// Why an unhealthy machine has no mark. The condition Replaceable concerns only machines without a controller.
fn held(check: &MachineHealthCheck, machine: &Machine) -> String {
    let controlled = controller(&machine.metadata).is_some();
    let mut all = check.status.iter().flat_map(|status| &status.conditions);
    let found = all.find(|it| {
        it.status == "False"
            && !(controlled && it.type_ == HealthCheckConditionType::Replaceable.as_str())
    });
    found.map_or_else(String::new, |it| format!("; not replaced: {}: {}", it.reason, it.message))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(status: &str, since: &str, meta: &Value, conditions: &Value) -> String {
        let check = json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineHealthCheck",
            "metadata": { "name": "web" },
            "spec": {
                "selector": { "matchLabels": { "a": "b" } },
                "unhealthyConditions": [{ "type": "Ready", "status": "Unknown", "timeout": "5m" }]
            },
            "status": { "conditions": conditions }
        });
        let mut machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m", "labels": { "node": "n" } },
            "spec": {}, "status": { "currentStatus": { "phase": "Running" } }
        });
        let all = machine["metadata"].as_object_mut().unwrap();
        all.extend(meta.as_object().unwrap().clone());
        let node = json!({ "status": { "conditions": [
            { "type": "Ready", "status": status, "lastTransitionTime": since }
        ] } });
        let machine = serde_json::from_value(machine).unwrap();
        let node: Node = serde_json::from_value(node).unwrap();
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        said(&serde_json::from_value(check).unwrap(), &machine, std::slice::from_ref(&node), now)
    }

    #[test]
    fn a_check_says_until_when_it_waits_and_why_it_does_nothing() {
        let (none, allowed) = (json!({}), json!([]));
        let no = |type_: &str, reason: &str, message: &str| {
            json!([{
                "type": type_, "status": "False", "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T11:00:00Z"
            }])
        };
        let restricted = no("RemediationAllowed", "TooManyUnhealthy", "2 of 2");
        let others = no("Replaceable", "NoController", "no set or pool controls them: x");
        let skipped = json!({ "annotations": { "cluster.x-k8s.io/skip-remediation": "" } });
        let owned = json!({ "ownerReferences": [{
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s", "uid": "s",
            "controller": true
        }] });
        let (recent, past) = ("2026-01-01T11:58:00Z", "2026-01-01T11:50:00Z");
        for (status, since, meta, conditions, part) in [
            ("True", past, &none, &allowed, "healthy"),
            ("Unknown", recent, &none, &allowed, "it waits until "),
            (
                "Unknown",
                past,
                &none,
                &allowed,
                "unhealthy: Ready of its node has been Unknown for 5m",
            ),
            ("Unknown", past, &none, &restricted, "not replaced: TooManyUnhealthy: 2 of 2"),
            ("Unknown", past, &owned, &restricted, "not replaced: TooManyUnhealthy: 2 of 2"),
            ("Unknown", past, &none, &others, "not replaced: NoController"),
            ("Unknown", past, &skipped, &allowed, "does not look at it"),
        ] {
            let text = shown(status, since, meta, conditions);
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = shown("Unknown", past, &owned, &others);
        assert!(!text.contains("not replaced"), "that is about another machine: {text}");
    }
}
