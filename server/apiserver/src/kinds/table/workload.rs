//! The rows of workloads and volumes: the cells between name and age, and those after it.

use serde_json::{Value, json};

use super::{cluster, or};
use crate::kinds::access::{items, number, text};

fn status(object: &Value, field: &str) -> i64 {
    number(object, &format!("/status/{field}")).unwrap_or(0)
}

fn wanted(object: &Value) -> i64 {
    number(object, "/spec/replicas").unwrap_or(0)
}

fn ready(object: &Value) -> String {
    format!("{}/{}", status(object, "readyReplicas"), wanted(object))
}

/// A workload's containers, their images, and what it selects.
pub(super) fn template(object: &Value) -> [Value; 3] {
    let containers = items(object, "/spec/template/spec/containers");
    let of = |field: &str| {
        let all: Vec<&str> = containers.iter().map(|one| text(one, field)).collect();
        json!(all.join(","))
    };
    let selector = cluster::labels(object, "/spec/selector/matchLabels");
    [of("/name"), of("/image"), json!(selector)]
}

pub(super) fn deployment(object: &Value) -> Vec<Value> {
    let of = |field: &str| json!(status(object, field));
    vec![json!(ready(object)), of("updatedReplicas"), of("availableReplicas")]
}

pub(super) fn replica_set(object: &Value) -> Vec<Value> {
    let of = |field: &str| json!(status(object, field));
    vec![json!(wanted(object)), of("replicas"), of("readyReplicas")]
}

pub(super) fn stateful_set(object: &Value) -> Vec<Value> {
    vec![json!(ready(object))]
}

pub(super) fn daemon_set(object: &Value) -> Vec<Value> {
    let counts = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    ];
    let mut cells: Vec<Value> = counts.iter().map(|name| json!(status(object, name))).collect();
    cells.push(or(&cluster::labels(object, "/spec/template/spec/nodeSelector"), "<none>"));
    cells
}

/// `RWO,RWX`: access modes in the short form that people know.
fn access_modes(object: &Value, pointer: &str) -> Value {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => Some("RWO"),
        Some("ReadOnlyMany") => Some("ROX"),
        Some("ReadWriteMany") => Some("RWX"),
        Some("ReadWriteOncePod") => Some("RWOP"),
        _ => None,
    };
    let modes: Vec<&str> = items(object, pointer).iter().filter_map(short).collect();
    json!(modes.join(","))
}

pub(super) fn volume(object: &Value) -> Vec<Value> {
    let of = |pointer: &str| json!(text(object, pointer));
    let claim = match text(object, "/spec/claimRef/name") {
        "" => String::new(),
        claim => format!("{}/{claim}", text(object, "/spec/claimRef/namespace")),
    };
    vec![
        of("/spec/capacity/storage"),
        access_modes(object, "/spec/accessModes"),
        of("/spec/persistentVolumeReclaimPolicy"),
        of("/status/phase"),
        json!(claim),
        of("/spec/storageClassName"),
        or(text(object, "/spec/volumeAttributesClassName"), "<unset>"),
        of("/status/reason"),
    ]
}

pub(super) fn volume_claim(object: &Value) -> Vec<Value> {
    let of = |pointer: &str| json!(text(object, pointer));
    vec![
        of("/status/phase"),
        of("/spec/volumeName"),
        of("/status/capacity/storage"),
        access_modes(object, "/status/accessModes"),
        of("/spec/storageClassName"),
        or(text(object, "/spec/volumeAttributesClassName"), "<unset>"),
    ]
}

pub(super) fn attachment(object: &Value) -> Vec<Value> {
    let of = |pointer: &str| json!(text(object, pointer));
    let attached = object.pointer("/status/attached").and_then(Value::as_bool).unwrap_or(false);
    vec![
        of("/spec/attacher"),
        of("/spec/source/persistentVolumeName"),
        of("/spec/nodeName"),
        json!(attached),
    ]
}
