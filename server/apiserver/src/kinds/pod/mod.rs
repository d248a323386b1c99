//! Pods.

mod defaults;
mod quality;
mod spec;
mod update;
mod volumes;

use serde_json::{Value, json};

use super::{
    Subresource,
    access::{object_in, preset, remove, set, text},
};
use crate::kinds::field::FieldError;

pub(super) use self::{
    defaults::complete,
    spec::validate_spec,
    update::{validate_status_update, validate_update},
};

pub(super) const FIELD_LABELS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];

pub(super) fn default(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec") {
        defaults::bare_pod_spec(spec);
    }
    sync_addresses(object);
}

/// Keeps `podIP` equal to the first of `podIPs`.
fn sync_addresses(object: &mut Value) {
    let Some(status) = object.get_mut("status") else { return };
    let address = text(status, "/podIP").to_owned();
    let first = text(status, "/podIPs/0/ip").to_owned();
    match (address.is_empty(), first.is_empty()) {
        (true, false) => set(status, "podIP", first),
        (false, true) => set(status, "podIPs", json!([{ "ip": address }])),
        (false, false) if address != first => set(status, "podIPs", json!([{ "ip": address }])),
        _ => {}
    }
}

/// What admission adds for every pod: a service account, the priority of pods without a class, tolerations of short outages.
pub(super) fn prepare_create(object: &mut Value) {
    let quality = quality::class(object.pointer("/spec").unwrap_or(&Value::Null));
    set(object, "status", json!({ "phase": "Pending", "qosClass": quality }));
    let Some(spec) = object_in(object, "spec") else { return };
    preset(spec, "serviceAccountName", "default");
    let account = text(spec, "/serviceAccountName").to_owned();
    set(spec, "serviceAccount", account);
    preset(spec, "priority", 0);
    preset(spec, "preemptionPolicy", "PreemptLowerPriority");
    defaults::tolerations(spec);
}

/// `/status` leaves the owners as they are, as Kubernetes has it: a kubelet that reports on a pod must not
/// decide when it is collected.
pub(super) fn prepare_update(new: &mut Value, old: &Value, part: Option<Subresource>) {
    match part {
        None => {
            if let Some(spec) = new.get_mut("spec") {
                defaults::tolerations(spec);
            }
        }
        Some(Subresource::Status) => {
            let owners = old.pointer("/metadata/ownerReferences");
            match (owners, object_in(new, "metadata")) {
                (Some(owners), Some(metadata)) => set(metadata, "ownerReferences", owners.clone()),
                (None, Some(metadata)) => remove(metadata, "ownerReferences"),
                (_, None) => {}
            }
            sync_addresses(new);
        }
        Some(_) => {}
    }
}

pub(super) fn validate(object: &Value) -> Vec<FieldError> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let mut errors = validate_spec(spec, "spec");
    if spec.get("ephemeralContainers").is_some() {
        errors.push(FieldError::forbidden("spec.ephemeralContainers", "cannot be set on create"));
    }
    errors
}

#[cfg(test)]
mod tests;
