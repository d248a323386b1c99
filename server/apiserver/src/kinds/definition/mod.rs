//! CustomResourceDefinitions.

mod validation;

use serde_json::{Map, Value, json};

use super::{
    Subresource,
    access::{flag, items, object_in, set, text},
    conditions::{self, Condition},
};

pub(super) use self::validation::{validate, validate_update};

/// The group of definitions.
pub(crate) const GROUP: &str = "apiextensions.k8s.io";
/// Their resource.
pub(crate) const PLURAL: &str = "customresourcedefinitions";
/// Holds a definition until its objects are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Names follow from the kind.
pub(super) fn default(object: &mut Value) {
    let Some(spec) = object_in(object, "spec") else { return };
    let Some(names) = object_in(spec, "names") else { return };
    let kind = text(names, "/kind").to_owned();
    if kind.is_empty() {
        return;
    }
    if text(names, "/singular").is_empty() {
        set(names, "singular", kind.to_lowercase());
    }
    if text(names, "/listKind").is_empty() {
        set(names, "listKind", format!("{kind}List"));
    }
}

/// The status before the names are accepted: only the stored versions are known.
pub(super) fn prepare_create(object: &mut Value) {
    let stored: Vec<&str> = storage_version(object).into_iter().collect();
    let stored = if stored.is_empty() { Value::Null } else { json!(stored) };
    let status = json!({
        "conditions": null,
        "acceptedNames": { "plural": "", "kind": "" },
        "storedVersions": stored,
    });
    set(object, "status", status);
}

/// A version that becomes the storage version has been stored from then on.
pub(super) fn prepare_update(new: &mut Value, part: Option<Subresource>) {
    if part.is_some() {
        return;
    }
    let Some(version) = storage_version(new).map(str::to_owned) else { return };
    let Some(status) = object_in(new, "status") else { return };
    if status.get("storedVersions").is_none_or(Value::is_null) {
        set(status, "storedVersions", json!([]));
    }
    if let Some(stored) = status.get_mut("storedVersions").and_then(Value::as_array_mut)
        && !stored.iter().any(|one| *one == version)
    {
        stored.push(json!(version));
    }
}

fn storage_version(object: &Value) -> Option<&str> {
    let versions = items(object, "/spec/versions");
    let version = versions.iter().find(|version| flag(version, "/storage"))?;
    Some(text(version, "/name"))
}

/// A definition as its deletion begins: held until its objects are gone.
pub(crate) fn begin_deletion(definition: &Value, now: jiff::Timestamp) -> Value {
    let mut begun = definition.clone();
    let mut finalizers = items(&begun, "/metadata/finalizers").to_vec();
    if !finalizers.iter().any(|one| one == FINALIZER) {
        finalizers.push(FINALIZER.into());
    }
    if let Some(metadata) = begun.get_mut("metadata") {
        set(metadata, "finalizers", finalizers);
    }
    if let Some(status) = status_mut(&mut begun) {
        let message =
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        let pending = Condition {
            kind: "Terminating",
            status: true,
            reason: "InstanceDeletionPending",
            message: message.to_owned(),
        };
        conditions::set(status, &pending, &conditions::stamp(now));
    }
    begun
}

/// The status of a definition that may be stored without its type.
pub(crate) fn status_mut(definition: &mut Value) -> Option<&mut Map<String, Value>> {
    set(definition, "apiVersion", format!("{GROUP}/v1"));
    set(definition, "kind", "CustomResourceDefinition");
    object_in(definition, "status")?.as_object_mut()
}
