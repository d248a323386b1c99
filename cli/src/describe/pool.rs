//! A MachinePool with its group and Machines.

use std::sync::Arc;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use kube::api::{Api, ListParams};
use ostler_api::machine::WaitReason;
use ostler_api::machine_pool::{MachinePoolStatus, PoolConditionType as Type};
use ostler_api::{Machine, MachinePool};
use ostler_lifecycle::autoscaler::group::Group;
use ostler_lifecycle::pool::selector;
use serde_json::json;

use super::autoscaler;
use super::fleet::{beside, is_controlled_by, machines, named, worst_wait};
use super::found::Found;
use super::hints;
use super::read;
use super::sheet::{Page, event_lines};

/// The described pool, as far as it could be read.
#[derive(Debug)]
pub(super) struct Subject {
    found: read::Subject<MachinePool>,
    machines: Vec<Machine>,
}

/// Reads a pool with its Machines.
pub(super) async fn gather(
    client: &Client,
    namespace: &str,
    name: &str,
    now: Timestamp,
) -> anyhow::Result<Subject> {
    let found = read::subject::<MachinePool>(client, namespace, name, now).await?;
    let machines = machines_of_pool(client, &found.object).await?;
    Ok(Subject { found, machines })
}

/// The machines of a pool.
///
/// # Errors
/// They cannot be read.
pub(crate) async fn machines_of_pool(
    client: &Client,
    pool: &MachinePool,
) -> anyhow::Result<Vec<Machine>> {
    let namespace = pool.namespace();
    let api = Api::<Machine>::namespaced(client.clone(), namespace);
    let own = ListParams::default().labels(&selector(pool.name()));
    let list = api.list(&own).await.context("machines cannot be read")?;
    let mut machines = list.items;
    machines.retain(|machine| is_controlled_by(&machine.metadata, pool.uid()));
    Ok(machines)
}

/// The whole page.
pub(super) fn render(subject: &Subject, now: Timestamp) -> String {
    let Subject { found: read::Subject { object: pool, events, .. }, machines: all } = subject;
    let none = MachinePoolStatus::default();
    let status = pool.status.as_ref().unwrap_or(&none);
    let mut page = Page::wide();
    page.line("MachinePool", &named(&pool.metadata, now));
    page.line("Class", &pool.spec.template.spec.class.name);
    page.line("Phase", status.phase.as_ref().map_or("Pending", |phase| phase.as_str()));
    page.line("Group", &group(status));
    page.line(
        "Machines",
        &format!(
            "{} desired, {} current, {} up-to-date, {} ready, {} available",
            pool.replicas(),
            status.replicas,
            status.up_to_date_replicas,
            status.ready_replicas,
            status.available_replicas
        ),
    );
    autoscaler::lines(&mut page, &Group::Pool(Arc::new(pool.clone())));
    beside(&mut page, all.iter());
    for condition in &status.conditions {
        let about = if condition.message.is_empty() {
            condition.reason.clone()
        } else {
            format!("{}: {}", condition.reason, condition.message)
        };
        page.line(&condition.type_, &format!("{} ({about})", condition.status));
    }
    let waits = waits(subject, status);
    if waits.is_empty() {
        page.line("Waits for", "nothing; up to date");
    }
    page.waits(&waits);
    page.chapter("Tree");
    let mark = match status.infrastructure_machine_kind {
        Some(_) => "",
        None => " (machines are shown, and not deleted one by one)",
    };
    page.entry(&format!("machinepool {}{mark}", pool.name()));
    machines(&mut page, "", all, now);
    event_lines(&mut page, events, now);
    page.text()
}

/// The page and its data.
pub(super) fn found(subject: &Subject, now: Timestamp) -> Found {
    let pool = &subject.found.object;
    let status = pool.status.clone().unwrap_or_default();
    let rest = json!({ "machines": subject.machines, "events": subject.found.events });
    Found::new(render(subject, now), pool, &waits(subject, &status), rest)
}

/// The obstacle of the pool, with a hint.
fn waits(subject: &Subject, status: &MachinePoolStatus) -> Vec<String> {
    let blocked = blocked(status).filter(|_| subject.found.unserved.is_none());
    let hint = blocked.and_then(|it| hints::hint(&it.reason.as_str().into()));
    let hint = hint.map(|hint| format!("hint: {hint}"));
    why(subject, status).into_iter().chain(hint).collect()
}

fn group(status: &MachinePoolStatus) -> String {
    let Some(id) = &status.provider_id else { return "none yet".to_owned() };
    let size = status.observed.as_ref();
    let size = size.map(|it| {
        let unnamed = if it.without_machine > 0 {
            let ids: Vec<_> = it.without_machine_ids.iter().map(ToString::to_string).collect();
            format!(", {} without a machine: {}", it.without_machine, ids.join(", "))
        } else {
            String::new()
        };
        format!(", {} of {} instances{unnamed}", it.current, it.desired)
    });
    format!("{id}{}", size.unwrap_or_default())
}

/// The condition that holds up everything else.
fn blocked(status: &MachinePoolStatus) -> Option<&Condition> {
    let first = [Type::Valid, Type::BootstrapReady, Type::InfrastructureReady];
    first.iter().find_map(|type_| {
        let mut all = status.conditions.iter();
        all.find(|it| it.type_ == type_.as_str() && it.status == "False")
    })
}

/// The most important obstacle of the pool.
fn why(subject: &Subject, status: &MachinePoolStatus) -> Option<String> {
    let Subject { found: read::Subject { object: pool, unserved, .. }, machines } = subject;
    if let Some(unserved) = unserved {
        return Some(unserved.clone());
    }
    if pool.metadata.generation > status.observed_generation {
        return Some("the last change was not looked at yet".to_owned());
    }
    if let Some(found) = blocked(status) {
        return Some(format!("{}: {}", found.reason, found.message));
    }
    if let Some(operation) = &status.operation {
        return Some(format!("the driver: {}", operation.intent.kind));
    }
    let waits = |machine: &&Machine| {
        let status = machine.status.as_ref();
        let wait = status.and_then(|status| status.waiting_for.as_ref());
        wait.is_some_and(|wait| wait.reason != WaitReason::PoolDeletion)
    };
    if let Some(wait) = worst_wait(|| machines.iter().filter(waits)) {
        return Some(wait);
    }
    let deleting = machines.iter().filter(|machine| machine.is_deleting()).count();
    if deleting > 0 {
        return Some(format!("{deleting} of its machines to be deleted"));
    }
    let mut all = status.conditions.iter();
    let old = all.find(|it| it.type_ == Type::MachinesUpToDate.as_str() && it.status == "False");
    if let Some(old) = old.filter(|_| !pool.is_paused()) {
        let since = old.last_transition_time.0;
        return Some(format!("{}: {}, since {since:.0}", old.reason, old.message));
    }
    let holds = pool.is_paused() && status.up_to_date_replicas != status.replicas;
    holds.then(|| "paused: instances of an old model stay; scaling goes on".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn pool(status: &Value) -> MachinePool {
        serde_json::from_value(json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
            "metadata": { "name": "web", "namespace": "default", "uid": "p" },
            "spec": {
                "replicas": 12,
                "template": { "spec": { "class": { "kind": "MachineClass", "name": "big" } } }
            },
            "status": status
        }))
        .unwrap()
    }

    fn machine(name: &str, status: &Value) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": name }, "spec": {}, "status": status
        }))
        .unwrap()
    }

    fn running(name: &str) -> Machine {
        machine(name, &json!({ "currentStatus": { "phase": "Running" } }))
    }

    fn page(status: &Value, machines: Vec<Machine>) -> String {
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        let pool = pool(status);
        let found = read::Subject { object: pool, unserved: None, events: Vec::new() };
        render(&Subject { found, machines }, now)
    }

    #[test]
    fn a_pool_is_a_tree_of_its_machines_and_of_many_alike_ten_are_shown() {
        let status = json!({
            "phase": "ScalingUp", "providerID": "fake:///g", "infrastructureMachineKind": "Machine",
            "observed": { "desired": 13, "current": 13 },
            "replicas": 13, "readyReplicas": 12, "availableReplicas": 12, "upToDateReplicas": 1,
            "conditions": [{
                "type": "Ready", "status": "False", "reason": "NotReady", "message": "",
                "lastTransitionTime": "2026-01-01T12:00:00Z"
            }]
        });
        let mut machines: Vec<_> = (0..12).map(|at| running(&format!("web-{at:02}"))).collect();
        machines.push(machine(
            "web-new",
            &json!({
                "currentStatus": { "phase": "Pending" }, "step": "JoinNode",
                "waitingFor": { "reason": "NodeNotJoined", "message": "no node yet" },
                "instance": { "provisioningState": "Succeeded", "latestModelApplied": false }
            }),
        ));
        let page = page(&status, machines);
        assert_eq!(
            page,
            "\
MachinePool        default/web
Class              big
Phase              ScalingUp
Group              fake:///g, 13 of 13 instances
Machines           12 desired, 13 current, 1 up-to-date, 12 ready, 12 available
Ready              False (NotReady)
Waits for          machine web-new waits for NodeNotJoined: no node yet

Tree
  machinepool web
  ├─ web-new  Pending, JoinNode, waits for NodeNotJoined: no node yet, old model
  ├─ web-00  Running
  ├─ web-01  Running
  ├─ web-02  Running
  ├─ web-03  Running
  ├─ web-04  Running
  ├─ web-05  Running
  ├─ web-06  Running
  ├─ web-07  Running
  ├─ web-08  Running
  ├─ web-09  Running
  └─ … and 2 more like these
"
        );
    }

    #[test]
    fn what_only_a_user_can_end_comes_first() {
        let condition = |type_: &str, reason: &str| {
            json!({
                "type": type_, "status": "False", "reason": reason, "message": "why",
                "lastTransitionTime": "2026-01-01T12:00:00Z"
            })
        };
        let status = json!({ "conditions": [
            condition("InfrastructureReady", "CreatePoolFailed"), condition("Valid", "ValidationFailed")
        ] });
        assert!(page(&status, Vec::new()).contains("Waits for          ValidationFailed: why"));
        let status =
            json!({ "conditions": [condition("InfrastructureReady", "DriverUnavailable")] });
        let away = page(&status, Vec::new());
        assert!(
            away.contains(
                "DriverUnavailable: why\n                   hint: see `ostler drivers ls`"
            ),
            "{away}"
        );
        let status =
            json!({ "conditions": [condition("MachinesUpToDate", "WaitingForInstances")] });
        let old = page(&status, Vec::new());
        assert!(old.contains("WaitingForInstances: why, since 2026-01-01T12:00:00Z"), "{old}");
        let page = page(&json!({}), Vec::new());
        assert!(page.contains("not deleted one by one") && page.contains("none yet"), "{page}");
    }
}
