//! Tables of built-in kinds.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Heading, age, cluster, or, pod, shown, wide};
use crate::kinds::{
    BuiltIn,
    access::{entries, items, number, text},
    event,
};

const NAME: Heading = shown("Name");
const AGE: Heading = shown("Age");

/// The columns of a kind.
pub(super) fn columns(kind: BuiltIn) -> Vec<Heading> {
    let containers = [wide("Containers"), wide("Images"), wide("Selector")];
    match kind {
        BuiltIn::Pod => vec![
            NAME,
            shown("Ready"),
            shown("Status"),
            shown("Restarts"),
            AGE,
            wide("IP"),
            wide("Node"),
            wide("Nominated Node"),
            wide("Readiness Gates"),
        ],
        BuiltIn::Node => vec![
            NAME,
            shown("Status"),
            shown("Roles"),
            AGE,
            shown("Version"),
            wide("Internal-IP"),
            wide("External-IP"),
            wide("OS-Image"),
            wide("Kernel-Version"),
            wide("Container-Runtime"),
        ],
        BuiltIn::CoreEvent | BuiltIn::Event => vec![
            shown("Last Seen"),
            shown("Type"),
            shown("Reason"),
            shown("Object"),
            wide("Subobject"),
            wide("Source"),
            shown("Message"),
            wide("First Seen"),
            Heading { name: "Count", kind: "integer", priority: 1 },
            wide("Name"),
        ],
        BuiltIn::ConfigMap => vec![NAME, shown("Data"), AGE],
        BuiltIn::Secret => {
            vec![NAME, shown("Type"), Heading { name: "Data", kind: "integer", priority: 0 }, AGE]
        }
        BuiltIn::Namespace => vec![NAME, shown("Status"), AGE],
        BuiltIn::ServiceAccount => vec![NAME, shown("Secrets"), AGE],
        BuiltIn::Lease => vec![NAME, shown("Holder"), AGE],
        BuiltIn::PodDisruptionBudget => vec![
            NAME,
            shown("Min Available"),
            shown("Max Unavailable"),
            Heading { name: "Allowed Disruptions", kind: "integer", priority: 0 },
            AGE,
        ],
        BuiltIn::Service => vec![
            NAME,
            shown("Type"),
            shown("Cluster-IP"),
            shown("External-IP"),
            shown("Port(s)"),
            AGE,
            wide("Selector"),
        ],
        BuiltIn::Deployment => {
            with(&[NAME, shown("Ready"), shown("Up-to-date"), shown("Available"), AGE], &containers)
        }
        BuiltIn::ReplicaSet => {
            with(&[NAME, shown("Desired"), shown("Current"), shown("Ready"), AGE], &containers)
        }
        BuiltIn::StatefulSet => {
            with(&[NAME, shown("Ready"), AGE], &[wide("Containers"), wide("Images")])
        }
        BuiltIn::DaemonSet => with(
            &[
                NAME,
                shown("Desired"),
                shown("Current"),
                shown("Ready"),
                shown("Up-to-date"),
                shown("Available"),
                shown("Node Selector"),
                AGE,
            ],
            &containers,
        ),
        BuiltIn::PersistentVolume => vec![
            NAME,
            shown("Capacity"),
            shown("Reclaim Policy"),
            shown("Status"),
            shown("Claim"),
            shown("StorageClass"),
            AGE,
        ],
        BuiltIn::PersistentVolumeClaim => vec![
            NAME,
            shown("Status"),
            shown("Volume"),
            shown("Capacity"),
            shown("StorageClass"),
            AGE,
        ],
        BuiltIn::VolumeAttachment => {
            vec![NAME, shown("Attacher"), shown("PV"), shown("Node"), shown("Attached"), AGE]
        }
        BuiltIn::CsiNode => vec![NAME, shown("Drivers"), AGE],
        BuiltIn::CustomResourceDefinition => {
            vec![NAME, Heading { name: "Created At", kind: "date", priority: 0 }]
        }
    }
}

fn with(first: &[Heading], then: &[Heading]) -> Vec<Heading> {
    [first, then].concat()
}

/// The cells of an object, and the conditions of its row.
pub(super) fn cells(kind: BuiltIn, object: &Value, now: Timestamp) -> (Vec<Value>, Option<Value>) {
    if kind == BuiltIn::Pod {
        return pod::cells(object, now);
    }
    (plain_cells(kind, object, now), None)
}

fn plain_cells(kind: BuiltIn, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = json!(text(object, "/metadata/name"));
    let age = age::of(object, now);
    let count = |pointer: &str| json!(entries(object, pointer).count());
    match kind {
        BuiltIn::Node => cluster::node(object, now),
        BuiltIn::CoreEvent => cluster::event(object, now),
        BuiltIn::Event => cluster::event(&event::as_core(object), now),
        BuiltIn::Service => cluster::service(object, now),
        BuiltIn::ConfigMap => {
            let keys = entries(object, "/data").count() + entries(object, "/binaryData").count();
            vec![name, json!(keys), age]
        }
        BuiltIn::Secret => vec![name, json!(text(object, "/type")), count("/data"), age],
        BuiltIn::Namespace => vec![name, json!(text(object, "/status/phase")), age],
        BuiltIn::ServiceAccount => vec![name, json!(items(object, "/secrets").len()), age],
        BuiltIn::Lease => vec![name, json!(text(object, "/spec/holderIdentity")), age],
        BuiltIn::PodDisruptionBudget => vec![
            name,
            amount(object, "/spec/minAvailable"),
            amount(object, "/spec/maxUnavailable"),
            json!(number(object, "/status/disruptionsAllowed").unwrap_or(0)),
            age,
        ],
        BuiltIn::Deployment | BuiltIn::ReplicaSet | BuiltIn::StatefulSet | BuiltIn::DaemonSet => {
            workload(kind, object, name, age)
        }
        BuiltIn::PersistentVolume
        | BuiltIn::PersistentVolumeClaim
        | BuiltIn::VolumeAttachment
        | BuiltIn::CsiNode => storage(kind, object, name, age),
        BuiltIn::CustomResourceDefinition | BuiltIn::Pod => {
            let created = object.pointer("/metadata/creationTimestamp");
            vec![name, created.cloned().unwrap_or_default()]
        }
    }
}

fn amount(object: &Value, pointer: &str) -> Value {
    match object.pointer(pointer) {
        Some(Value::String(text)) => json!(text),
        Some(number) => json!(number.to_string()),
        None => json!("N/A"),
    }
}

fn workload(kind: BuiltIn, object: &Value, name: Value, age: Value) -> Vec<Value> {
    let status = |field: &str| number(object, &format!("/status/{field}")).unwrap_or(0);
    let wanted = number(object, "/spec/replicas").unwrap_or(0);
    let containers = items(object, "/spec/template/spec/containers");
    let of = |field: &str| {
        let all: Vec<&str> = containers.iter().map(|one| text(one, field)).collect();
        json!(all.join(","))
    };
    let (names, images) = (of("/name"), of("/image"));
    let selector = json!(cluster::labels(object, "/spec/selector/matchLabels"));
    let ready = json!(format!("{}/{wanted}", status("readyReplicas")));
    match kind {
        BuiltIn::Deployment => vec![
            name,
            ready,
            json!(status("updatedReplicas")),
            json!(status("availableReplicas")),
            age,
            names,
            images,
            selector,
        ],
        BuiltIn::ReplicaSet => vec![
            name,
            json!(wanted),
            json!(status("replicas")),
            json!(status("readyReplicas")),
            age,
            names,
            images,
            selector,
        ],
        BuiltIn::StatefulSet => vec![name, ready, age, names, images],
        _ => {
            let node_selector = cluster::labels(object, "/spec/template/spec/nodeSelector");
            vec![
                name,
                json!(status("desiredNumberScheduled")),
                json!(status("currentNumberScheduled")),
                json!(status("numberReady")),
                json!(status("updatedNumberScheduled")),
                json!(status("numberAvailable")),
                or(&node_selector, "<none>"),
                age,
                names,
                images,
                selector,
            ]
        }
    }
}

fn storage(kind: BuiltIn, object: &Value, name: Value, age: Value) -> Vec<Value> {
    let of = |pointer: &str| json!(text(object, pointer));
    match kind {
        BuiltIn::PersistentVolume => {
            let claim = match text(object, "/spec/claimRef/name") {
                "" => String::new(),
                claim => format!("{}/{claim}", text(object, "/spec/claimRef/namespace")),
            };
            vec![
                name,
                of("/spec/capacity/storage"),
                of("/spec/persistentVolumeReclaimPolicy"),
                of("/status/phase"),
                json!(claim),
                of("/spec/storageClassName"),
                age,
            ]
        }
        BuiltIn::PersistentVolumeClaim => vec![
            name,
            of("/status/phase"),
            of("/spec/volumeName"),
            of("/status/capacity/storage"),
            of("/spec/storageClassName"),
            age,
        ],
        BuiltIn::VolumeAttachment => {
            let attached = object.pointer("/status/attached").and_then(Value::as_bool);
            vec![
                name,
                of("/spec/attacher"),
                of("/spec/source/persistentVolumeName"),
                of("/spec/nodeName"),
                json!(attached.unwrap_or(false)),
                age,
            ]
        }
        _ => vec![name, json!(items(object, "/spec/drivers").len()), age],
    }
}
