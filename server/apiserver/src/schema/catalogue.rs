//! The types of the built-in kinds, made from the schemas that come with the API types.
//!
//! A type is a set of fields with [`Shape`]s. Decoding walks value and type together: it checks
//! JSON types, drops unknown fields, brings times and quantities to their canonical form, and drops
//! or adds empty fields just as a server does that keeps typed structures.

mod documents;
mod empty;

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use serde_json::{Map, Value};

pub use self::documents::{definitions, name_of};
use crate::{
    field::{child, index},
    kinds::{BuiltIn, DecodeError, UnknownField, quantity},
    schema::formats,
};

/// What a field can hold.
#[derive(Clone, Debug)]
enum Shape {
    /// A named type of the catalogue.
    Named(String),
    Map(Box<Shape>),
    List(Box<Shape>),
    Text,
    Bytes,
    Time,
    MicroTime,
    Int32,
    Int64,
    Float,
    Bool,
    IntOrString,
    Quantity,
    /// Any JSON: it is kept as it is.
    Any,
}

/// A structure: its fields, and which of them are never left out.
#[derive(Debug, Default)]
struct Structure {
    fields: BTreeMap<String, Shape>,
    required: Vec<String>,
    /// Fields that are shown although nobody set them, with their empty values.
    shown: &'static [(&'static str, &'static str)],
    pointers: &'static [&'static str],
}

static STRUCTURES: LazyLock<HashMap<String, Structure>> = LazyLock::new(|| {
    definitions()
        .iter()
        .filter_map(|(name, document)| Some((name.clone(), structure(name, document)?)))
        .collect()
});

/// The named type of a field, or of the items or values in it.
pub(crate) fn type_of_field(type_name: &str, field: &str) -> Option<&'static str> {
    let mut shape = STRUCTURES.get(type_name)?.fields.get(field)?;
    loop {
        match shape {
            Shape::List(inner) | Shape::Map(inner) => shape = inner,
            Shape::Named(name) => return Some(name),
            _ => return None,
        }
    }
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Decodes a whole object of a built-in kind in place.
pub(crate) fn decode(kind: BuiltIn, object: &mut Value) -> Result<Vec<UnknownField>, DecodeError> {
    decode_type(name_of(kind), object)
}

/// Decodes a value of a named type in place: unknown fields are dropped and returned.
///
/// # Errors
/// A value has the wrong type.
pub fn decode_type(name: &str, value: &mut Value) -> Result<Vec<UnknownField>, DecodeError> {
    let mut unknown = Vec::new();
    walk(&Shape::Named(name.to_owned()), value, "", &mut unknown)?;
    Ok(unknown)
}

/// Decodes `metadata` in place.
pub(super) fn object_meta(
    metadata: &mut Value,
    path: &str,
    unknown: &mut Vec<UnknownField>,
) -> Result<(), DecodeError> {
    walk(&Shape::Named(META.to_owned()), metadata, path, unknown)
}

fn walk(
    shape: &Shape,
    value: &mut Value,
    path: &str,
    unknown: &mut Vec<UnknownField>,
) -> Result<(), DecodeError> {
    if value.is_null() {
        return Ok(());
    }
    match shape {
        Shape::Named(name) => match (STRUCTURES.get(name), value) {
            (None, _) => Ok(()),
            (Some(structure), Value::Object(fields)) => {
                walk_structure(structure, fields, path, unknown)
            }
            (Some(_), other) => Err(mismatch(path, other, name)),
        },
        Shape::Map(inner) => match value {
            Value::Object(fields) => {
                for (name, value) in fields.iter_mut() {
                    walk(inner, value, &child(path, name), unknown)?;
                    if value.is_null() {
                        *value = zero(inner);
                    }
                }
                Ok(())
            }
            other => Err(mismatch(path, other, "map")),
        },
        Shape::List(inner) => match value {
            Value::Array(items) => {
                for (position, item) in items.iter_mut().enumerate() {
                    walk(inner, item, &index(path, position), unknown)?;
                    if item.is_null() {
                        *item = zero(inner);
                    }
                }
                Ok(())
            }
            other => Err(mismatch(path, other, "list")),
        },
        Shape::Any => Ok(()),
        leaf => walk_leaf(leaf, value, path),
    }
}

fn walk_structure(
    structure: &Structure,
    fields: &mut Map<String, Value>,
    path: &str,
    unknown: &mut Vec<UnknownField>,
) -> Result<(), DecodeError> {
    let mut dropped = Vec::new();
    for (name, value) in fields.iter_mut() {
        let Some(shape) = structure.fields.get(name) else {
            unknown.push(UnknownField { path: child(path, name) });
            dropped.push(name.clone());
            continue;
        };
        walk(shape, value, &child(path, name), unknown)?;
        let required = structure.required.contains(name);
        if empty::is_left_out(shape, name, value, required, structure.pointers) {
            dropped.push(name.clone());
        }
    }
    for name in dropped {
        fields.remove(&name);
    }
    for (name, blank) in structure.shown {
        if !fields.contains_key(*name) {
            fields.insert((*name).to_owned(), serde_json::from_str(blank).unwrap_or_default());
        }
    }
    Ok(())
}

fn walk_leaf(shape: &Shape, value: &mut Value, path: &str) -> Result<(), DecodeError> {
    let (fits, wanted) = match shape {
        Shape::Text => (value.is_string(), "string"),
        Shape::Bytes => {
            (value.as_str().is_some_and(|text| formats::matches("byte", text)), "base64")
        }
        Shape::Time => (canonical_time(value, 0), "RFC 3339 time"),
        Shape::MicroTime => (canonical_time(value, 6), "RFC 3339 time"),
        Shape::Int32 => {
            (as_i64(value).is_some_and(|number| i32::try_from(number).is_ok()), "int32")
        }
        Shape::Int64 => (as_i64(value).is_some(), "int64"),
        Shape::Float => (value.is_number(), "float64"),
        Shape::Bool => (value.is_boolean(), "bool"),
        Shape::IntOrString => (value.is_string() || as_i64(value).is_some(), "int or string"),
        Shape::Quantity => (canonical_quantity(value), "quantity"),
        Shape::Any | Shape::Named(_) | Shape::Map(_) | Shape::List(_) => (true, ""),
    };
    if fits { Ok(()) } else { Err(mismatch(path, value, wanted)) }
}

fn as_i64(value: &Value) -> Option<i64> {
    value.as_i64()
}

/// Brings a time to UTC with `digits` fractional digits.
fn canonical_time(value: &mut Value, digits: usize) -> bool {
    let Some(text) = value.as_str() else { return false };
    if !formats::is_date_time(text) {
        return false;
    }
    let Ok(time) = text.parse::<jiff::Timestamp>() else { return false };
    let whole = time.strftime("%Y-%m-%dT%H:%M:%S");
    *value = Value::String(if digits == 0 {
        format!("{whole}Z")
    } else {
        format!("{whole}.{:06}Z", time.subsec_nanosecond().unsigned_abs() / 1000)
    });
    true
}

fn canonical_quantity(value: &mut Value) -> bool {
    let text = match &*value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return false,
    };
    match quantity::Quantity::parse(&text) {
        Some(parsed) => {
            *value = Value::String(parsed.to_string());
            true
        }
        None => false,
    }
}

fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::Text | Shape::Bytes => Value::String(String::new()),
        Shape::Int32 | Shape::Int64 | Shape::IntOrString => Value::from(0),
        Shape::Bool => Value::Bool(false),
        Shape::Named(_) => Value::Object(Map::new()),
        Shape::Quantity => Value::String("0".to_owned()),
        Shape::Map(_)
        | Shape::List(_)
        | Shape::Time
        | Shape::MicroTime
        | Shape::Float
        | Shape::Any => Value::Null,
    }
}

fn mismatch(path: &str, value: &Value, wanted: &str) -> DecodeError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    DecodeError { path: path.to_owned(), found, wanted: wanted.to_owned() }
}

fn structure(name: &str, document: &Value) -> Option<Structure> {
    let fields = document.get("properties")?.as_object()?;
    let required = document.get("required").and_then(Value::as_array);
    let (shown, pointers) = empty::rules(name);
    Some(Structure {
        fields: fields.iter().map(|(name, field)| (name.clone(), shape(field))).collect(),
        required: required
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        shown,
        pointers,
    })
}

fn shape(field: &Value) -> Shape {
    if let Some(target) = documents::reference(field) {
        return match target.rsplit('.').next().unwrap_or_default() {
            "Time" => Shape::Time,
            "MicroTime" => Shape::MicroTime,
            "Quantity" => Shape::Quantity,
            "IntOrString" => Shape::IntOrString,
            "JSON"
            | "JSONSchemaPropsOrBool"
            | "JSONSchemaPropsOrArray"
            | "RawExtension"
            | "FieldsV1"
            | "JSONSchemaPropsOrStringArray" => Shape::Any,
            _ => Shape::Named(target.to_owned()),
        };
    }
    let format = field.get("format").and_then(Value::as_str);
    match field.get("type").and_then(Value::as_str) {
        Some("string") if format == Some("byte") => Shape::Bytes,
        Some("string") => Shape::Text,
        Some("boolean") => Shape::Bool,
        Some("number") => Shape::Float,
        Some("integer") if format == Some("int32") => Shape::Int32,
        Some("integer") => Shape::Int64,
        Some("array") => Shape::List(Box::new(field.get("items").map_or(Shape::Any, shape))),
        Some("object") => match field.get("additionalProperties") {
            Some(inner) => Shape::Map(Box::new(shape(inner))),
            None => Shape::Any,
        },
        _ => Shape::Any,
    }
}
