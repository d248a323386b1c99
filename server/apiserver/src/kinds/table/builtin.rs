//! Tables of built-in kinds.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, cluster, or, pod, stored, workload};
use crate::kinds::{
    BuiltIn,
    access::{entries, items, number, text},
    event,
};

/// The columns of a kind. In its row they stand in a short notation: `+` marks those of wide output,
/// `#` those of whole numbers, `?` those of flags, `@` those of times.
pub(super) fn columns(kind: BuiltIn) -> Vec<Value> {
    kind.columns().split(',').map(column).collect()
}

fn column(text: &str) -> Value {
    let (priority, text) = text.strip_prefix('+').map_or((0, text), |rest| (1, rest));
    let (kind, name) = if let Some(rest) = text.strip_prefix('#') {
        ("integer", rest)
    } else if let Some(rest) = text.strip_prefix('?') {
        ("boolean", rest)
    } else if let Some(rest) = text.strip_prefix('@') {
        ("date", rest)
    } else {
        ("string", text)
    };
    let format = if matches!(name, "Name" | "Attacher") { "name" } else { "" };
    json!({
        "name": name,
        "type": kind,
        "format": format,
        "description": format!("The column {name}."),
        "priority": priority,
    })
}

/// The cells of an object, and the conditions of its row.
pub(super) fn cells(kind: BuiltIn, object: &Value, now: Timestamp) -> (Vec<Value>, Option<Value>) {
    if kind == BuiltIn::Pod {
        return pod::cells(object, now);
    }
    (plain_cells(kind, object, now), None)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds begin with their name")]
fn plain_cells(kind: BuiltIn, object: &Value, now: Timestamp) -> Vec<Value> {
    match kind {
        BuiltIn::Node => return cluster::node(object, now),
        BuiltIn::CoreEvent => return cluster::event(object, now),
        BuiltIn::Event => return cluster::event(&event::as_core(object), now),
        BuiltIn::Service => return cluster::service(object, now),
        BuiltIn::CertificateSigningRequest => return cluster::signing_request(object, now),
        BuiltIn::CustomResourceDefinition | BuiltIn::ClusterRole | BuiltIn::Role => {
            let created = object.pointer("/metadata/creationTimestamp").cloned();
            return vec![json!(text(object, "/metadata/name")), created.unwrap_or_default()];
        }
        _ => {}
    }
    let mut cells = vec![json!(text(object, "/metadata/name"))];
    cells.extend(middle_cells(kind, object));
    cells.extend(stored::cells(kind, object, now));
    cells.push(age::of(object, now));
    if kind == BuiltIn::PriorityClass {
        cells.push(json!(text(object, "/preemptionPolicy")));
    } else if stored::has_template(kind) {
        cells.extend(stored::template(kind, object));
    } else if matches!(kind, BuiltIn::DaemonSet | BuiltIn::Deployment | BuiltIn::ReplicaSet) {
        cells.extend(workload::template(object));
    } else if kind == BuiltIn::StatefulSet {
        cells.extend(workload::template(object).into_iter().take(2));
    } else if matches!(kind, BuiltIn::ClusterRoleBinding | BuiltIn::RoleBinding) {
        cells.extend(["User", "Group", "ServiceAccount"].map(|kind| subjects(object, kind)));
    } else if matches!(kind, BuiltIn::PersistentVolume | BuiltIn::PersistentVolumeClaim) {
        cells.push(or(text(object, "/spec/volumeMode"), "<unset>"));
    }
    cells
}

/// The cells between name and age.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds have none")]
fn middle_cells(kind: BuiltIn, object: &Value) -> Vec<Value> {
    let of = |pointer: &str| json!(text(object, pointer));
    let count = |pointer: &str| entries(object, pointer).count();
    match kind {
        BuiltIn::ConfigMap => vec![json!(count("/data") + count("/binaryData"))],
        BuiltIn::Secret => vec![of("/type"), json!(count("/data"))],
        BuiltIn::Namespace => vec![of("/status/phase")],
        BuiltIn::ServiceAccount => vec![json!(items(object, "/secrets").len())],
        BuiltIn::Lease => vec![of("/spec/holderIdentity")],
        BuiltIn::PodDisruptionBudget => vec![
            amount(object, "/spec/minAvailable"),
            amount(object, "/spec/maxUnavailable"),
            json!(number(object, "/status/disruptionsAllowed").unwrap_or(0)),
        ],
        BuiltIn::Deployment => workload::deployment(object),
        BuiltIn::ReplicaSet => workload::replica_set(object),
        BuiltIn::StatefulSet => workload::stateful_set(object),
        BuiltIn::DaemonSet => workload::daemon_set(object),
        BuiltIn::PersistentVolume => workload::volume(object),
        BuiltIn::PersistentVolumeClaim => workload::volume_claim(object),
        BuiltIn::VolumeAttachment => workload::attachment(object),
        BuiltIn::ClusterRoleBinding | BuiltIn::RoleBinding => {
            let (kind, name) = (text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
            vec![json!(format!("{kind}/{name}"))]
        }
        BuiltIn::CsiNode => vec![json!(items(object, "/spec/drivers").len())],
        _ => Vec::new(),
    }
}

/// The names of those of a kind that a role is bound to.
fn subjects(object: &Value, kind: &str) -> Value {
    let all = items(object, "/subjects").iter().filter(|one| text(one, "/kind") == kind);
    let name = |one: &Value| match text(one, "/namespace") {
        "" => text(one, "/name").to_owned(),
        namespace => format!("{namespace}/{}", text(one, "/name")),
    };
    json!(all.map(name).collect::<Vec<_>>().join(", "))
}

fn amount(object: &Value, pointer: &str) -> Value {
    match object.pointer(pointer) {
        Some(Value::String(text)) => json!(text),
        Some(number) => json!(number.to_string()),
        None => json!("N/A"),
    }
}
