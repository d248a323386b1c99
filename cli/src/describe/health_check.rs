//! A MachineHealthCheck: its findings, and whether a core carries it out.

use jiff::Timestamp;
use ostler_api::MachineHealthCheck;
use ostler_api::machine_health_check::MachineHealthCheckStatus;
use ostler_lifecycle::selector;

use super::fleet::named;
use super::read::Subject;
use super::sheet::{Page, condition_lines};

/// The whole page.
pub(super) fn render(subject: &Subject<MachineHealthCheck>, now: Timestamp) -> String {
    let check = &subject.object;
    let mut page = Page::wide();
    page.line("MachineHealthCheck", &named(&check.metadata, now));
    let selects = check.spec.selector.as_ref().map(selector::text);
    page.line("Selects", &selects.unwrap_or_else(|| "nothing".to_owned()));
    let none = MachineHealthCheckStatus::default();
    let status = check.status.as_ref().unwrap_or(&none);
    let (all, healthy) = (status.expected_machines, status.current_healthy);
    page.line("Machines", &format!("{healthy} of {all} healthy"));
    condition_lines(&mut page, &status.conditions);
    subject.end(page, seen(check), now)
}

/// Whether a core has looked at its last change.
pub(super) fn seen(check: &MachineHealthCheck) -> bool {
    let observed = check.status.as_ref().and_then(|status| status.observed_generation);
    observed >= check.metadata.generation
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_check_says_what_it_found_and_that_nobody_carries_it_out() {
        let check: MachineHealthCheck = serde_json::from_value(json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineHealthCheck",
            "metadata": { "name": "web", "namespace": "shop", "generation": 1 },
            "spec": { "selector": { "matchLabels": { "a": "b" } } },
            "status": {
                "observedGeneration": 1, "expectedMachines": 3, "currentHealthy": 2,
                "remediationsAllowed": 1,
                "conditions": [{
                    "type": "RemediationAllowed", "status": "True", "reason": "WithinLimit", "message": "",
                    "lastTransitionTime": "2026-01-01T11:00:00Z"
                }]
            }
        }))
        .unwrap();
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        let page = |unserved: Option<&str>, check: &MachineHealthCheck| {
            let (check, unserved) = (check.clone(), unserved.map(str::to_owned));
            render(&Subject { object: check, unserved, events: Vec::new() }, now)
        };
        let served = page(None, &check);
        assert_eq!(
            served,
            "\
MachineHealthCheck shop/web
Selects            a=b
Machines           2 of 3 healthy
RemediationAllowed True (WithinLimit)
"
        );
        let unserved = page(Some("no core serves namespace shop"), &check);
        assert_eq!(unserved, served + "Waits for          no core serves namespace shop\n");
        let unseen = page(None, &MachineHealthCheck { status: None, ..check });
        assert!(unseen.contains("not looked at yet"), "{unseen}");
    }
}
