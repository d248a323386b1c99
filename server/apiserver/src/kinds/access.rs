//! Reading and writing fields of JSON objects by pointer.

use serde_json::{Map, Value};

/// The text at a JSON pointer, or the empty text.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The whole number at a JSON pointer.
pub(crate) fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// The flag at a JSON pointer, or false.
pub(crate) fn flag(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
}

/// The items of the list at a JSON pointer, or none.
pub(crate) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Whether an object has a condition of this type that is true.
pub(crate) fn is_true(object: &Value, kind: &str) -> bool {
    let is = |one: &Value| text(one, "/type") == kind && text(one, "/status") == "True";
    items(object, "/status/conditions").iter().any(is)
}

/// The items of the list at a JSON pointer, to be changed.
pub(crate) fn items_mut<'a>(
    object: &'a mut Value,
    pointer: &str,
) -> impl Iterator<Item = &'a mut Value> {
    object.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The entries of the map at a JSON pointer, or none.
pub(crate) fn entries<'a>(
    object: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.pointer(pointer).and_then(Value::as_object).into_iter().flatten()
}

/// Sets a field that is absent.
pub(crate) fn preset(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(fields) = object.as_object_mut()
        && !fields.contains_key(name)
    {
        fields.insert(name.to_owned(), value.into());
    }
}

/// Sets a field.
pub(crate) fn set(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(name.to_owned(), value.into());
    }
}

/// The object in a field, made if it is absent.
pub(crate) fn object_in<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let fields = object.as_object_mut()?;
    Some(fields.entry(name).or_insert_with(|| Value::Object(Map::new())))
}

/// Drops a top-level field.
pub(crate) fn remove(object: &mut Value, name: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(name);
    }
}

/// Gives `new` the top-level field of `old`, or none if `old` has none.
pub(crate) fn keep(new: &mut Value, old: &Value, name: &str) {
    let Some(fields) = new.as_object_mut() else { return };
    match old.get(name) {
        Some(value) => fields.insert(name.to_owned(), value.clone()),
        None => fields.remove(name),
    };
}
