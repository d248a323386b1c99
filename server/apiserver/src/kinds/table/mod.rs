//! Tables: what `kubectl get` shows.

mod age;
mod builtin;
mod computed;
mod custom;
pub(crate) mod json_path;
mod pod;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::kinds::{Resource, Strategy, access::set};

/// The object in a row besides the cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Include {
    /// The object's metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
    /// Nothing.
    None,
}

impl Include {
    /// Reads the `includeObject` query parameter.
    ///
    /// # Errors
    /// The value is none of those known; the text says so as Kubernetes does (400).
    pub(crate) fn parse(value: &str) -> Result<Self, String> {
        match value {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::None),
            other => Err(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must \
                 be 'Metadata', 'Object', 'None', or empty",
                crate::kinds::field::quote(other)
            )),
        }
    }
}

/// How a table is rendered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rendering {
    /// `meta.k8s.io/v1` or `meta.k8s.io/v1beta1`.
    pub(crate) api_version: &'static str,
    /// What rows carry.
    pub(crate) include: Include,
    /// Whether the columns are defined: in a watch, only in the first event.
    pub(crate) columns: bool,
    /// The time that ages are counted from.
    pub(crate) now: Timestamp,
}

/// A table of `objects`. `metadata` is that of the list, or of the one object: its
/// `resourceVersion`, and for lists `continue` and `remainingItemCount`.
pub(crate) fn table(
    resource: &Resource,
    objects: &[Value],
    metadata: Value,
    how: Rendering,
) -> Value {
    let columns = if how.columns { Value::Array(columns(resource)) } else { Value::Null };
    let rows: Vec<Value> = objects.iter().map(|object| row(resource, object, how)).collect();
    let mut table = json!({
        "kind": "Table",
        "apiVersion": how.api_version,
        "columnDefinitions": columns,
        "rows": rows,
    });
    set(&mut table, "metadata", metadata);
    table
}

/// A table without rows, as a watch sends it for a bookmark.
pub(crate) fn bookmark(resource_version: &str, how: Rendering) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": how.api_version,
        "metadata": { "resourceVersion": resource_version },
        "columnDefinitions": null,
        "rows": null,
    })
}

fn columns(resource: &Resource) -> Vec<Value> {
    match &resource.strategy {
        Strategy::BuiltIn(kind) => builtin::columns(*kind),
        Strategy::Custom(version) => custom::columns(version),
    }
}

fn row(resource: &Resource, object: &Value, how: Rendering) -> Value {
    let (cells, conditions) = match &resource.strategy {
        Strategy::BuiltIn(kind) => builtin::cells(*kind, object, how.now),
        Strategy::Custom(version) => (custom::cells(version, object, how.now), None),
    };
    let carried = match how.include {
        Include::None => Value::Null,
        Include::Object => object.clone(),
        Include::Metadata => json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": how.api_version,
            "metadata": object.get("metadata").cloned().unwrap_or_default(),
        }),
    };
    let mut row = Map::new();
    row.insert("cells".to_owned(), Value::Array(cells));
    if let Some(conditions) = conditions {
        row.insert("conditions".to_owned(), conditions);
    }
    row.insert("object".to_owned(), carried);
    Value::Object(row)
}

/// A text, or a word for its absence.
fn or(text: &str, absent: &str) -> Value {
    Value::from(if text.is_empty() { absent } else { text })
}

#[cfg(test)]
mod tests;

/// The values at a path of a printer column: for the fuzz target.
#[cfg(any(feature = "fuzz", test))]
pub(crate) fn fuzz<'a>(object: &'a serde_json::Value, path: &str) -> Vec<&'a serde_json::Value> {
    json_path::find(object, path)
}
