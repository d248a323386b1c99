//! Tables of custom resources: the columns of their definition.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, json_path};
use crate::kinds::{CustomVersion, custom::Column};

/// The name, then the definition's columns, or the age if it has none.
pub(super) fn columns(version: &CustomVersion) -> Vec<Value> {
    let mut columns = vec![json!({
        "name": "Name",
        "type": "string",
        "format": "name",
        "description": "Name must be unique within a namespace.",
        "priority": 0,
    })];
    if version.columns.is_empty() {
        columns.push(json!({
            "name": "Age",
            "type": "date",
            "format": "",
            "description": "When the object was created.",
            "priority": 0,
        }));
    }
    columns.extend(version.columns.iter().map(definition));
    columns
}

fn definition(column: &Column) -> Value {
    let description = if column.description.is_empty() {
        format!("Custom resource definition column (in JSONPath format): {}", column.json_path)
    } else {
        column.description.clone()
    };
    json!({
        "name": column.name,
        "type": column.kind,
        "format": column.format,
        "description": description,
        "priority": column.priority,
    })
}

pub(super) fn cells(version: &CustomVersion, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = object.pointer("/metadata/name").cloned().unwrap_or_default();
    let mut cells = vec![name];
    if version.columns.is_empty() {
        cells.push(age::of(object, now));
    }
    cells.extend(version.columns.iter().map(|column| cell(column, object, now)));
    cells
}

/// A value as its column's type; null if there is none or it is of another type.
fn cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    let found = json_path::find(object, &column.json_path);
    let Some(value) = found.first().filter(|value| !value.is_null()) else { return Value::Null };
    match column.kind.as_str() {
        "integer" => whole(value),
        "number" => kept(value, Value::is_number),
        "boolean" => kept(value, Value::is_boolean),
        "date" => value.as_str().map_or(Value::Null, |time| age::since(time, now)),
        _ if value.is_string() => (*value).clone(),
        _ => Value::from(value.to_string()),
    }
}

fn kept(value: &Value, fits: impl Fn(&Value) -> bool) -> Value {
    if fits(value) { value.clone() } else { Value::Null }
}

fn whole(value: &Value) -> Value {
    match value.as_i64() {
        Some(number) => Value::from(number),
        #[expect(clippy::cast_possible_truncation, reason = "a column of integers drops fractions")]
        None => value.as_f64().map_or(Value::Null, |number| Value::from(number as i64)),
    }
}
