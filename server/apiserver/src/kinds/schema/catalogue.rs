//! The types of the built-in kinds, made from the schemas that come with the API types.
//!
//! A type is a set of fields with a shape each. Decoding walks value and type together: it checks
//! JSON types, drops unknown fields, brings times and quantities to their canonical form, and drops
//! or adds empty fields just as a server does that keeps typed structures.

mod empty;
mod leaf;

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use serde_json::{Map, Value};

use self::leaf::Leaf;
use crate::kinds::{
    BuiltIn,
    builtin_types::{OBJECT_META, definitions, reference},
    field::Path,
    schema::decode::{DecodeError, UnknownField},
};

/// The shape of a field's values.
#[derive(Clone, Debug)]
enum Shape {
    /// A named type of the catalogue.
    Named(String),
    Map(Box<Self>),
    List(Box<Self>),
    Leaf(Leaf),
    /// Any JSON, stored unchanged.
    Any,
}

/// A structure with fields, some of them required.
#[derive(Debug, Default)]
struct Structure {
    fields: BTreeMap<String, Shape>,
    required: Vec<String>,
    /// Fields that are shown with empty values when unset.
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
            Shape::Leaf(_) | Shape::Any => return None,
        }
    }
}

/// Decodes a whole object of a built-in kind in place.
pub(crate) fn decode(kind: BuiltIn, object: &mut Value) -> Result<Vec<UnknownField>, DecodeError> {
    decode_type(&kind.type_name(), object)
}

/// Decodes a value of a named type in place: unknown fields are dropped and returned.
///
/// # Errors
/// A value has the wrong type.
pub(crate) fn decode_type(name: &str, value: &mut Value) -> Result<Vec<UnknownField>, DecodeError> {
    let mut unknown = Vec::new();
    walk(&Shape::Named(name.to_owned()), value, Path::Root(""), &mut unknown)?;
    Ok(unknown)
}

/// Decodes `metadata` in place.
pub(super) fn object_meta(
    metadata: &mut Value,
    path: Path<'_>,
    unknown: &mut Vec<UnknownField>,
) -> Result<(), DecodeError> {
    walk(&Shape::Named(OBJECT_META.to_owned()), metadata, path, unknown)
}

/// Calls itself once for each level of the value, which are bounded where it was read or patched.
fn walk(
    shape: &Shape,
    value: &mut Value,
    path: Path<'_>,
    unknown: &mut Vec<UnknownField>,
) -> Result<(), DecodeError> {
    if value.is_null() {
        return Ok(());
    }
    match (shape, value) {
        (Shape::Any, _) => Ok(()),
        (Shape::Named(name), value) => match (STRUCTURES.get(name), value.as_object_mut()) {
            (None, _) => Ok(()),
            (Some(structure), Some(fields)) => walk_structure(structure, fields, path, unknown),
            (Some(_), None) => Err(mismatch(path, value, name)),
        },
        (Shape::Map(inner), Value::Object(fields)) => {
            let values = fields.iter_mut().map(|(name, value)| (Path::Child(&path, name), value));
            walk_all(inner, values, unknown)
        }
        (Shape::List(inner), Value::Array(items)) => {
            let values =
                items.iter_mut().enumerate().map(|(at, item)| (Path::Index(&path, at), item));
            walk_all(inner, values, unknown)
        }
        (Shape::Map(_), value) => Err(mismatch(path, value, "map")),
        (Shape::List(_), value) => Err(mismatch(path, value, "list")),
        (Shape::Leaf(leaf), value) => {
            let fits = leaf.accept(value);
            if fits { Ok(()) } else { Err(mismatch(path, value, leaf.name())) }
        }
    }
}

/// Walks the values of a list or a map, where a null is an empty value.
fn walk_all<'a>(
    shape: &Shape,
    values: impl Iterator<Item = (Path<'a>, &'a mut Value)>,
    unknown: &mut Vec<UnknownField>,
) -> Result<(), DecodeError> {
    for (path, value) in values {
        walk(shape, value, path, unknown)?;
        if value.is_null() {
            *value = zero(shape);
        }
    }
    Ok(())
}

fn walk_structure(
    structure: &Structure,
    fields: &mut Map<String, Value>,
    path: Path<'_>,
    unknown: &mut Vec<UnknownField>,
) -> Result<(), DecodeError> {
    let mut dropped = Vec::new();
    for (name, value) in fields.iter_mut() {
        let Some(shape) = structure.fields.get(name) else {
            UnknownField::note(unknown, Path::Child(&path, name));
            dropped.push(name.clone());
            continue;
        };
        walk(shape, value, Path::Child(&path, name), unknown)?;
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

/// The value of a null in a list or a map.
fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::Leaf(leaf) => leaf.zero(),
        Shape::Named(_) => Value::Object(Map::new()),
        Shape::Map(_) | Shape::List(_) | Shape::Any => Value::Null,
    }
}

fn mismatch(path: Path<'_>, value: &Value, wanted: &str) -> DecodeError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    DecodeError { path: path.text(), found, wanted: wanted.to_owned() }
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
    if let Some(target) = reference(field) {
        return match target.rsplit('.').next().unwrap_or_default() {
            "Time" => Shape::Leaf(Leaf::Time),
            "MicroTime" => Shape::Leaf(Leaf::MicroTime),
            "Quantity" => Shape::Leaf(Leaf::Quantity),
            "IntOrString" => Shape::Leaf(Leaf::IntOrString),
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
        Some("string") if format == Some("byte") => Shape::Leaf(Leaf::Bytes),
        Some("string") => Shape::Leaf(Leaf::Text),
        Some("boolean") => Shape::Leaf(Leaf::Bool),
        Some("number") => Shape::Leaf(Leaf::Float),
        Some("integer") if format == Some("int32") => Shape::Leaf(Leaf::Int32),
        Some("integer") => Shape::Leaf(Leaf::Int64),
        Some("array") => Shape::List(Box::new(field.get("items").map_or(Shape::Any, shape))),
        Some("object") => match field.get("additionalProperties") {
            Some(inner) => Shape::Map(Box::new(shape(inner))),
            None => Shape::Any,
        },
        _ => Shape::Any,
    }
}
