//! Jobs, classes, autoscalers: stored with their defaults, and nothing here acts on them.

use serde_json::{Value, json};

use super::{
    BuiltIn,
    access::{flag, object_in, preset, set, text},
    pod,
};

#[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds have no defaults")]
pub(super) fn default(kind: BuiltIn, object: &mut Value) {
    match kind {
        BuiltIn::StorageClass => {
            preset(object, "reclaimPolicy", "Delete");
            preset(object, "volumeBindingMode", "Immediate");
            return;
        }
        BuiltIn::PriorityClass => {
            return preset(object, "preemptionPolicy", "PreemptLowerPriority");
        }
        _ => {}
    }
    let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    match kind {
        BuiltIn::NetworkPolicy => default_policy(spec),
        BuiltIn::Job => default_job(spec),
        BuiltIn::CronJob => {
            preset(spec, "concurrencyPolicy", "Allow");
            preset(spec, "suspend", false);
            preset(spec, "successfulJobsHistoryLimit", 3);
            preset(spec, "failedJobsHistoryLimit", 1);
            if let Some(template) = spec.pointer_mut("/jobTemplate/spec/template") {
                pod::default_template(template);
            }
        }
        BuiltIn::ReplicationController => default_replication(spec),
        BuiltIn::HorizontalPodAutoscaler => {
            preset(spec, "minReplicas", 1);
            let target = json!({ "type": "Utilization", "averageUtilization": 80 });
            let cpu =
                json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
            preset(spec, "metrics", json!([cpu]));
        }
        BuiltIn::CsiDriver => {
            preset(spec, "attachRequired", true);
            preset(spec, "podInfoOnMount", false);
            preset(spec, "storageCapacity", false);
            preset(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
            preset(spec, "volumeLifecycleModes", json!(["Persistent"]));
            preset(spec, "requiresRepublish", false);
            preset(spec, "seLinuxMount", false);
        }
        _ => {}
    }
}

fn default_policy(spec: &mut Value) {
    let out = spec.get("egress").is_some();
    preset(
        spec,
        "policyTypes",
        if out { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) },
    );
    for rules in ["ingress", "egress"] {
        let rules = spec.get_mut(rules).and_then(Value::as_array_mut);
        let ports = rules.into_iter().flatten().filter_map(|rule| rule.get_mut("ports"));
        for port in ports.filter_map(Value::as_array_mut).flatten() {
            preset(port, "protocol", "TCP");
        }
    }
}

fn default_job(spec: &mut Value) {
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        preset(spec, "completions", 1);
    }
    preset(spec, "parallelism", 1);
    preset(spec, "backoffLimit", 6);
    preset(spec, "completionMode", "NonIndexed");
    preset(spec, "suspend", false);
    preset(spec, "podReplacementPolicy", "TerminatingOrFailed");
    if let Some(template) = spec.get_mut("template") {
        pod::default_template(template);
    }
}

/// Its pods have labels that no others have, by which it finds them.
pub(super) fn prepare_job(object: &mut Value) {
    set(object, "status", json!({}));
    let (name, uid) = (text(object, "/metadata/name"), text(object, "/metadata/uid"));
    let uid =
        ["batch.kubernetes.io/controller-uid", "controller-uid"].map(|key| (key, uid.to_owned()));
    let name = ["batch.kubernetes.io/job-name", "job-name"].map(|key| (key, name.to_owned()));
    if flag(object, "/spec/manualSelector") {
        return;
    }
    let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    let [(key, value), _] = &uid;
    set(spec, "selector", json!({ "matchLabels": { *key: value } }));
    let labels = object_in(spec, "template").and_then(|template| object_in(template, "metadata"));
    let Some(labels) = labels.and_then(|metadata| object_in(metadata, "labels")) else { return };
    for (key, value) in uid.into_iter().chain(name) {
        preset(labels, key, value);
    }
}

/// It selects by the labels of its template unless it says otherwise.
fn default_replication(spec: &mut Value) {
    preset(spec, "replicas", 1);
    let labels = spec.pointer("/template/metadata/labels").cloned();
    if let Some(labels) = labels.filter(|_| spec.get("selector").is_none())
        && let Some(selector) = object_in(spec, "selector")
    {
        *selector = labels;
    }
    if let Some(template) = spec.get_mut("template") {
        pod::default_template(template);
    }
}
