//! The Nodes of a machine, and whether they take pods.

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Client;
use kube::api::{Api, ListParams};
use ostler_api::Machine;
use ostler_api::machine::MachineConditionType;
use ostler_lifecycle::node::provider_id;

/// Every Node of the machine's instance, the Node that the machine joined as first, as far as the Nodes can be read.
pub(super) async fn of(client: &Client, machine: &Machine) -> Vec<Node> {
    let api = Api::<Node>::all(client.clone());
    let mut all = Vec::new();
    if let Some(name) = machine.node_name() {
        all.extend(api.get_opt(name).await.ok().flatten());
    }
    let conditions = machine.status.iter().flat_map(|status| &status.conditions);
    let several = conditions.into_iter().any(|one| {
        one.type_ == MachineConditionType::NodeAmbiguous.as_str() && one.status == "True"
    });
    if several && let Ok(listed) = api.list(&ListParams::default()).await {
        let same = |node: &Node| {
            provider_id(node).is_some_and(|id| {
                machine.instance_id().is_some_and(|own| own == id)
                    || all.first().and_then(provider_id) == Some(id)
            })
        };
        let others: Vec<_> = listed.items.into_iter().filter(same).collect();
        let main = all.first().and_then(|node| node.metadata.uid.clone());
        all.extend(others.into_iter().filter(|node| main.is_none() || node.metadata.uid != main));
    }
    all
}

/// How it is, for the page.
pub(super) fn state(node: &Node) -> String {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True");
    let ready = if ready { "Ready" } else { "NotReady" };
    let closed = closed(node).map(|why| format!(", {why}")).unwrap_or_default();
    format!(" ({ready}{closed})")
}

/// What keeps pods from a Node, and who set it, as far as the API server knows; `None`: nothing.
pub(super) fn closed(node: &Node) -> Option<String> {
    let spec = node.spec.as_ref()?;
    let by = |field: &str| setter(node, field).map(|who| format!(" by {who}")).unwrap_or_default();
    let cordoned =
        (spec.unschedulable == Some(true)).then(|| format!("cordoned{}", by("f:unschedulable")));
    let keeps_away = |one: &&Taint| {
        ["NoSchedule", "NoExecute"].contains(&one.effect.as_str())
            && one.key != "node.kubernetes.io/unschedulable"
    };
    let taints: Vec<_> = spec.taints.iter().flatten().filter(keeps_away).map(describe).collect();
    let tainted =
        (!taints.is_empty()).then(|| format!("tainted{}: {}", by("f:taints"), taints.join(", ")));
    let all: Vec<_> = cordoned.into_iter().chain(tainted).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn describe(taint: &Taint) -> String {
    let value = taint.value.as_deref().filter(|value| !value.is_empty());
    let value = value.map(|value| format!("={value}")).unwrap_or_default();
    format!("{}{value}:{}", taint.key, taint.effect)
}

/// The manager that last set a field of the spec.
fn setter<'a>(node: &'a Node, field: &str) -> Option<&'a str> {
    let managers = node.metadata.managed_fields.iter().flatten();
    let sets = managers.filter(|one| {
        one.fields_v1.as_ref().is_some_and(|fields| {
            fields.0.get("f:spec").is_some_and(|spec| spec.get(field).is_some())
        })
    });
    sets.max_by_key(|one| one.time.as_ref().map(|time| time.0))?.manager.as_deref()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_that_takes_no_pods_says_why_and_who_set_that() {
        let fields = |manager: &str, time: &str, field: &str| {
            json!({
                "manager": manager, "operation": "Update", "time": time,
                "fieldsV1": { "f:spec": { field: {} } },
            })
        };
        let managers = json!([
            fields("kubelet", "2026-01-01T00:00:00Z", "f:taints"),
            fields("kubectl-taint", "2026-01-02T00:00:00Z", "f:taints"),
            fields("kubectl-cordon", "2026-01-02T00:00:00Z", "f:unschedulable"),
        ]);
        let taint = json!({ "key": "mine", "value": "1", "effect": "NoSchedule" });
        let of_cordon =
            json!({ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" });
        for (spec, managers, said) in [
            (json!({}), json!([]), " (Ready)"),
            (
                json!({ "unschedulable": true, "taints": [of_cordon] }),
                json!([]),
                " (Ready, cordoned)",
            ),
            (
                json!({ "unschedulable": true, "taints": [taint] }),
                managers,
                " (Ready, cordoned by kubectl-cordon; tainted by kubectl-taint: mine=1:NoSchedule)",
            ),
        ] {
            let node: Node = serde_json::from_value(json!({
                "metadata": { "name": "n", "managedFields": managers }, "spec": spec,
                "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
            }))
            .unwrap();
            assert_eq!(state(&node), said);
        }
    }
}
