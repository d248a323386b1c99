//! Which empty fields are left out, and which are shown though they are not set.
//!
//! A real server keeps objects as typed structures and writes them out again: optional fields with
//! empty values vanish, unless the structure can tell "empty" from "not given"; some structures are
//! always written. The published schemas do not say which is which, so it is written down here.

use serde_json::Value;

use super::{Leaf, Shape};

/// Optional flags that are left out when false.
const PLAIN_FLAGS: &[&str] = &[
    "globalDefault",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "unschedulable",
    "readOnly",
    "stdin",
    "stdinOnce",
    "tty",
    "paused",
    "nullable",
    "uniqueItems",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "deprecated",
    "preserveUnknownFields",
    "publishNotReadyAddresses",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
];

/// Optional numbers that are left out when zero.
const PLAIN_NUMBERS: &[&str] = &[
    "active",
    "availableReplicas",
    "count",
    "currentReplicas",
    "deprecatedCount",
    "failed",
    "failureThreshold",
    "fullyLabeledReplicas",
    "generation",
    "healthCheckNodePort",
    "hostPort",
    "initialDelaySeconds",
    "minReadySeconds",
    "nodePort",
    "numberAvailable",
    "numberUnavailable",
    "observedGeneration",
    "periodSeconds",
    "readyReplicas",
    "remainingItemCount",
    "signal",
    "sizeBytes",
    "succeeded",
    "successThreshold",
    "unavailableReplicas",
    "updatedNumberScheduled",
    "updatedReplicas",
];

/// Optional texts that are kept when empty.
const KEPT_TEXTS: &[&str] = &[
    "appProtocol",
    "deprecationWarning",
    "holderIdentity",
    "preferredHolder",
    "storageClassName",
    "volumeAttributesClassName",
];

/// Whether a field with this value is not stored.
pub(super) fn is_left_out(
    shape: &Shape,
    name: &str,
    value: &Value,
    required: bool,
    pointers: &[&str],
) -> bool {
    if value.is_null() {
        return true;
    }
    if required || pointers.contains(&name) {
        return false;
    }
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && matches!(shape, Shape::Map(_)),
        Value::String(text) => {
            text.is_empty()
                && matches!(shape, Shape::Leaf(Leaf::Text))
                && !KEPT_TEXTS.contains(&name)
        }
        Value::Bool(flag) => !flag && PLAIN_FLAGS.contains(&name),
        Value::Number(number) => number.as_i64() == Some(0) && PLAIN_NUMBERS.contains(&name),
        Value::Null => true,
    }
}

/// Fields with the JSON that stands for "not given".
type Shown = &'static [(&'static str, &'static str)];

const NODE_INFO: &str = r#"{"machineID":"","systemUUID":"","bootID":"","kernelVersion":"",
"osImage":"","containerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"",
"operatingSystem":"","architecture":""}"#;

/// Fields that types always show.
const SHOWN: &[(&[&str], Shown)] = &[
    (
        &[
            "core.v1.Pod",
            "core.v1.Namespace",
            "core.v1.PersistentVolumeClaim",
            "core.v1.PersistentVolume",
            "policy.v1.PodDisruptionBudget",
            "apps.v1.DaemonSet",
            "apps.v1.Deployment",
            "apps.v1.ReplicaSet",
            "apps.v1.StatefulSet",
            "core.v1.Node",
            "coordination.v1.Lease",
            "core.v1.ReplicationController",
            "core.v1.ResourceQuota",
            "networking.v1.NetworkPolicy",
            "batch.v1.Job",
            "batch.v1.CronJob",
        ],
        &[("spec", "{}")],
    ),
    (&["certificates.v1.CertificateSigningRequest"], &[("spec", "{}"), ("status", "{}")]),
    (&["core.v1.Service"], &[("spec", "{}"), ("status", r#"{"loadBalancer":{}}"#)]),
    (
        &["core.v1.NodeStatus"],
        &[("daemonEndpoints", r#"{"kubeletEndpoint":{"Port":0}}"#), ("nodeInfo", NODE_INFO)],
    ),
    (&["batch.v1.JobTemplateSpec"], &[("metadata", "{}")]),
    (&["apps.v1.StatefulSetSpec"], &[("serviceName", r#""""#)]),
    (&["networking.v1.NetworkPolicySpec"], &[("podSelector", "{}")]),
    (&["core.v1.NodeDaemonEndpoints"], &[("kubeletEndpoint", r#"{"Port":0}"#)]),
    (&["core.v1.NodeCondition"], &[("lastHeartbeatTime", "null"), ("lastTransitionTime", "null")]),
    (&["core.v1.PodCondition"], &[("lastProbeTime", "null"), ("lastTransitionTime", "null")]),
    (&["core.v1.NamespaceCondition"], &[("lastTransitionTime", "null")]),
    (&["core.v1.ContainerStatus"], &[("lastState", "{}")]),
    (&["core.v1.ContainerStateRunning"], &[("startedAt", "null")]),
    (&["core.v1.ContainerStateTerminated"], &[("startedAt", "null"), ("finishedAt", "null")]),
    (
        &["core.v1.Event"],
        &[
            ("source", "{}"),
            ("firstTimestamp", "null"),
            ("lastTimestamp", "null"),
            ("eventTime", "null"),
            ("reportingComponent", r#""""#),
            ("reportingInstance", r#""""#),
        ],
    ),
    (
        &["events.v1.Event"],
        &[
            ("eventTime", "null"),
            ("regarding", "{}"),
            ("deprecatedSource", "{}"),
            ("deprecatedFirstTimestamp", "null"),
            ("deprecatedLastTimestamp", "null"),
        ],
    ),
    (
        &["policy.v1.PodDisruptionBudgetStatus"],
        &[
            ("disruptionsAllowed", "0"),
            ("currentHealthy", "0"),
            ("desiredHealthy", "0"),
            ("expectedPods", "0"),
        ],
    ),
    (
        &["core.v1.Container", "core.v1.EphemeralContainer", "core.v1.PersistentVolumeClaimSpec"],
        &[("resources", "{}")],
    ),
];

/// The optional fields of types that tell "empty" from "not given".
const POINTERS: &[(&str, &[&str])] = &[
    ("core.v1.ContainerStatus", &["started"]),
    ("core.v1.HostPathVolumeSource", &["type"]),
    ("core.v1.CSIVolumeSource", &["readOnly"]),
    ("core.v1.Event", &["reportingComponent", "reportingInstance"]),
];

/// What a type always shows, and which of its optional fields tell "empty" from "not given".
pub(super) fn rules(type_name: &str) -> (Shown, &'static [&'static str]) {
    let name = type_name.strip_prefix("io.k8s.api.").unwrap_or(type_name);
    let shown = SHOWN.iter().find(|(types, _)| types.contains(&name));
    let pointers = POINTERS.iter().find(|(of, _)| *of == name);
    (shown.map_or(&[], |(_, shown)| *shown), pointers.map_or(&[], |(_, fields)| *fields))
}
