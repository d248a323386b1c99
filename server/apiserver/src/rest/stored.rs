//! Between the store's records and the objects that are served.
//!
//! What is stored is the object as JSON without `metadata.resourceVersion`, in the face of the
//! resource that owns the storage. What is served has the version of the address, and the
//! defaults of the schema of today.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::bounds;
use crate::{
    kinds::{
        Resource,
        access::set,
        status::{Answer, Status},
    },
    store::{self, Key, Prefix, Record, object_at},
};

/// The key of one object.
pub(crate) fn key(resource: &Resource, namespace: &str, name: &str) -> Key {
    Key::new(&resource.storage.group, &resource.storage.plural, namespace, name)
}

/// The range of a collection; an empty namespace means all of them.
pub(crate) fn prefix(resource: &Resource, namespace: &str) -> Prefix {
    Prefix::namespace(&resource.storage.group, &resource.storage.plural, namespace)
}

/// A stored object as it is served.
///
/// # Errors
/// The object is unreadable (500, with its key).
pub(crate) fn load(resource: &Resource, record: &Record) -> Answer<Value> {
    load_at(resource, &record.key, &record.value, record.revision)
}

/// The same from its text and revision.
///
/// # Errors
/// The object is unreadable (500, with its key).
pub(crate) fn load_at(resource: &Resource, key: &Key, text: &[u8], revision: u64) -> Answer<Value> {
    let mut object = object_at(key, text, revision).map_err(|error| {
        error.tell();
        Status::internal(error.to_string())
    })?;
    resource.from_stored(&mut object);
    Ok(object)
}

/// The served form of an unreadable object at its deletion.
pub(crate) fn remains(resource: &Resource, record: &Record) -> Value {
    let mut object = store::remains(&record.key, &record.value, record.revision);
    stamp(resource, &mut object);
    object
}

/// Gives an object the apiVersion and kind of the address.
pub(crate) fn stamp(resource: &Resource, object: &mut Value) {
    set(object, "apiVersion", resource.api_version());
    set(object, "kind", resource.kind.as_str());
}

/// A served object in its stored form, in place of `old` if there is one. `metadata.resourceVersion` is removed: the
/// following write sets it anew. Every write encodes its object here.
///
/// # Errors
/// It is deeper, larger or more than is stored (422 or 413). Or a webhook would have to convert it (500).
pub(crate) fn encode(
    resource: &Resource,
    object: &mut Value,
    old: Option<&Value>,
) -> Answer<Bytes> {
    let text = text_of(resource, object)?;
    bounds::check(resource, object, text.len(), old)?;
    Ok(text)
}

/// The same for an object that is only marked as being deleted: that is never refused.
pub(crate) fn encode_marked(resource: &Resource, object: &mut Value) -> Answer<Bytes> {
    text_of(resource, object)
}

fn text_of(resource: &Resource, object: &mut Value) -> Answer<Bytes> {
    if let Some(metadata) = metadata_mut(object) {
        metadata.remove("resourceVersion");
    }
    let text = if resource.is_stored_version() {
        // spares a copy of almost every object
        serde_json::to_vec(object)
    } else {
        check_convertible(resource)?;
        let mut stored = object.clone();
        resource.to_stored(&mut stored);
        serde_json::to_vec(&stored)
    };
    text.map(Bytes::from).map_err(|error| Status::internal(error.to_string()))
}

/// What only a webhook can convert would lose every field that this version does not have.
fn check_convertible(resource: &Resource) -> Answer<()> {
    let Some(version) = resource.custom().filter(|version| version.needs_webhook) else {
        return Ok(());
    };
    Err(Status::internal(format!(
        "conversion webhook for {}, Kind={} failed: this server calls no webhooks; write the object as {}",
        resource.api_version(),
        resource.kind,
        version.stored_api_version
    )))
}

/// The metadata of an object.
pub(crate) fn metadata(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata").and_then(Value::as_object)
}

/// The metadata of an object, to be changed.
pub(crate) fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata").and_then(Value::as_object_mut)
}

/// A text field of the metadata, or the empty text.
pub(crate) fn meta_text<'a>(object: &'a Value, name: &str) -> &'a str {
    let value = metadata(object).and_then(|metadata| metadata.get(name));
    value.and_then(Value::as_str).unwrap_or_default()
}

/// A list of texts in the metadata.
pub(crate) fn meta_texts<'a>(object: &'a Value, name: &str) -> Vec<&'a str> {
    let value = metadata(object).and_then(|metadata| metadata.get(name));
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).collect()
}

/// A number in the metadata.
pub(crate) fn meta_number(object: &Value, name: &str) -> Option<i64> {
    metadata(object)?.get(name)?.as_i64()
}

/// Sets a field of the metadata.
pub(crate) fn set_meta(object: &mut Value, name: &str, value: Value) {
    if let Some(metadata) = metadata_mut(object) {
        metadata.insert(name.to_owned(), value);
    }
}
