//! Namespaces.

use serde_json::{Value, json};

use super::{
    Subresource,
    access::{items, keep, object_in, preset, set, text},
};

const NAME_LABEL: &str = "kubernetes.io/metadata.name";
const FINALIZER: &str = "kubernetes";

/// Every namespace can be selected by its name.
pub(super) fn default(object: &mut Value) {
    let name = text(object, "/metadata/name").to_owned();
    if name.is_empty() {
        return;
    }
    if let Some(labels) =
        object_in(object, "metadata").and_then(|metadata| object_in(metadata, "labels"))
    {
        set(labels, NAME_LABEL, name);
    }
}

pub(super) fn prepare_create(object: &mut Value) {
    default(object);
    let held = items(object, "/spec/finalizers").iter().any(|one| one == FINALIZER);
    let Some(spec) = object_in(object, "spec") else { return };
    preset(spec, "finalizers", json!([]));
    if let (false, Some(finalizers)) =
        (held, spec.get_mut("finalizers").and_then(Value::as_array_mut))
    {
        finalizers.push(json!(FINALIZER));
    }
}

/// Only `/finalize` changes what holds the namespace.
pub(super) fn prepare_update(new: &mut Value, old: &Value, part: Option<Subresource>) {
    match part {
        None => keep(new, old, "spec"),
        Some(Subresource::Finalize) => keep(new, old, "status"),
        Some(_) => {}
    }
}
