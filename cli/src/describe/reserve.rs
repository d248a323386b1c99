//! A MachineReserve: how many machines are ready, who may take them, and the obstacles.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ostler_api::MachineReserve;
use ostler_api::machine_reserve::MachineReserveStatus;

use super::fleet::named;
use super::read::Subject;
use super::sheet::{Page, condition_lines};

/// The whole page.
pub(super) fn render(subject: &Subject<MachineReserve>, now: Timestamp) -> String {
    let reserve = &subject.object;
    let mut page = Page::wide();
    page.line("MachineReserve", &named(&reserve.metadata, now));
    let target = &reserve.spec.target_ref;
    page.line("Target", &format!("{} {}", target.kind, target.name));
    let none = MachineReserveStatus::default();
    let status = reserve.status.as_ref().unwrap_or(&none);
    let asked = match &reserve.spec.replicas {
        Some(IntOrString::Int(number)) => number.to_string(),
        Some(IntOrString::String(text)) => text.clone(),
        None => "0".to_owned(),
    };
    let MachineReserveStatus { replicas, ready_replicas, updated_replicas, given, .. } = status;
    let numbers = format!(
        "{asked} wanted, {replicas} there, {ready_replicas} ready, {updated_replicas} of the current template"
    );
    page.line("Machines", &numbers);
    page.line("Given", &given.to_string());
    condition_lines(&mut page, &status.conditions);
    subject.end(page, seen(reserve), now)
}

/// Whether a core has looked at its last change.
pub(super) fn seen(reserve: &MachineReserve) -> bool {
    let observed = reserve.status.as_ref().and_then(|status| status.observed_generation);
    observed >= reserve.metadata.generation
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reserve_says_for_whom_it_is_how_many_are_ready_and_why_there_are_fewer() {
        let reserve: MachineReserve = serde_json::from_value(json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineReserve",
            "metadata": { "name": "warm", "namespace": "shop", "generation": 1 },
            "spec": { "targetRef": { "kind": "MachineDeployment", "name": "web" }, "replicas": "20%" },
            "status": {
                "observedGeneration": 1, "replicas": 2, "readyReplicas": 1, "updatedReplicas": 2,
                "given": 7,
                "conditions": [{
                    "type": "Ready", "status": "False", "reason": "MachinesNotReady",
                    "message": "1 of 2 machines are ready",
                    "lastTransitionTime": "2026-01-01T11:00:00Z"
                }]
            }
        }))
        .unwrap();
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        let page = render(&Subject { object: reserve, unserved: None, events: Vec::new() }, now);
        assert_eq!(
            page,
            "\
MachineReserve     shop/warm
Target             MachineDeployment web
Machines           20% wanted, 2 there, 1 ready, 2 of the current template
Given              7
Ready              False (MachinesNotReady: 1 of 2 machines are ready)
"
        );
    }
}
