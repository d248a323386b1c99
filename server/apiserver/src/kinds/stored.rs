//! Jobs, classes, policies: stored with their defaults, and nothing here acts on them.

use serde_json::{Value, json};

use super::{
    BuiltIn,
    access::{flag, object_in, preset, set, text},
};

/// Defaults that follow from other fields.
pub(super) fn default(kind: BuiltIn, object: &mut Value) {
    let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    let has = |name: &str| spec.get(name).is_some();
    if kind == BuiltIn::NetworkPolicy {
        let both = ["Ingress", "Egress"];
        let types = if has("egress") { &both[..] } else { &both[..1] };
        preset(spec, "policyTypes", types.to_vec());
    } else if kind == BuiltIn::Job && !has("completions") && !has("parallelism") {
        preset(spec, "completions", 1);
    } else if kind == BuiltIn::ReplicationController && !has("selector") {
        // It selects by the labels of its template.
        if let Some(labels) = spec.pointer("/template/metadata/labels").cloned() {
            preset(spec, "selector", labels);
        }
        label_as_pods(object);
    }
}

/// Gives the pods of a job unique labels, and the job a selector for them.
pub(super) fn prepare_job(object: &mut Value) {
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
    label_as_pods(object);
}

/// A job or controller without labels has those of its pods.
fn label_as_pods(object: &mut Value) {
    let labels = object.pointer("/spec/template/metadata/labels").cloned();
    if let (Some(labels), Some(metadata)) = (labels, object_in(object, "metadata")) {
        preset(metadata, "labels", labels);
    }
}
