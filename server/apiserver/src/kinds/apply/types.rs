//! The types of fields, as far as ownership needs them: which lists are merged, and by which keys.

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use serde_json::{Map, Value};

use super::{
    builtin,
    items::{Items, Key},
};
use crate::kinds::builtin_types::{OBJECT_META, definitions, reference};

/// The type of a value.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    /// One value.
    Scalar(Scalar),
    /// The value decides: maps are granular, lists atomic.
    Deduced,
    /// A list.
    List(Items, Box<Self>),
    /// A structure or a map.
    Fields(Fields),
    /// A type of the catalogue of built-in kinds.
    Named(String),
}

/// The JSON type of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Text,
    Number,
    Flag,
    Any,
}

/// The fields of a structure, and the entries of a map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    pub(super) known: BTreeMap<String, Type>,
    /// The type of the entries that are not known; without it there are none.
    pub(super) other: Option<Box<Type>>,
    /// The whole is one value.
    pub(super) atomic: bool,
    /// Structures that are always present, even if empty.
    pub(super) fixed: &'static [&'static str],
}

/// The form of a value for a walk.
#[derive(Clone, Copy)]
pub(super) enum Form<'a> {
    Leaf,
    List(&'a Items, &'a Type),
    Fields(&'a Fields),
}

static TYPES: LazyLock<HashMap<&'static str, Type>> = LazyLock::new(|| {
    let named = definitions().iter();
    named.map(|(name, document)| (name.as_str(), of_document(document, Some(name)))).collect()
});

static DEDUCED: Type = Type::Deduced;
static ANY_ENTRY: LazyLock<Fields> =
    LazyLock::new(|| Fields { other: Some(Box::new(Type::Deduced)), ..Fields::default() });

impl Fields {
    /// The type of a field, and whether the structure names it.
    pub(super) fn field(&self, name: &str) -> (&Type, bool) {
        match self.known.get(name) {
            Some(known) => (known, true),
            None => (self.other.as_deref().unwrap_or(&DEDUCED), false),
        }
    }
}

impl Type {
    /// The type of the objects of a built-in kind.
    pub(crate) const fn named(name: String) -> Self {
        Self::Named(name)
    }

    /// The type of the objects that a definition's schema describes.
    pub(crate) fn of_schema(document: &Value) -> Self {
        let mut root = match of_document(document, None) {
            Self::Fields(fields) => fields,
            Self::Scalar(_) | Self::Deduced | Self::List(..) | Self::Named(_) => ANY_ENTRY.clone(),
        };
        envelope(&mut root);
        Self::Fields(root)
    }

    pub(super) fn resolved(&self) -> &Self {
        match self {
            Self::Named(name) => TYPES.get(name.as_str()).unwrap_or(&DEDUCED),
            Self::Scalar(_) | Self::Deduced | Self::List(..) | Self::Fields(_) => self,
        }
    }

    pub(super) fn form(&self, value: &Value) -> Form<'_> {
        match (self.resolved(), value) {
            (Self::Deduced, Value::Object(_)) => Form::Fields(&ANY_ENTRY),
            (
                Self::List(items @ (Items::Set | Items::Keyed(_)), inner),
                Value::Array(_) | Value::Null,
            ) => Form::List(items, inner),
            (Self::Fields(fields), Value::Object(_) | Value::Null) if !fields.atomic => {
                Form::Fields(fields)
            }
            _ => Form::Leaf,
        }
    }
}

/// Adds the fields of every object, whatever its schema says.
fn envelope(fields: &mut Fields) {
    for name in ["apiVersion", "kind"] {
        fields.known.insert(name.to_owned(), Type::Scalar(Scalar::Text));
    }
    fields.known.insert("metadata".to_owned(), Type::Named(OBJECT_META.to_owned()));
}

/// Reads the type of a schema document; `owner` is the name of the built-in type whose it is. Calls itself once
/// for each level of the document, which are bounded where it was stored.
fn of_document(document: &Value, owner: Option<&str>) -> Type {
    let text = |name: &str| document.get(name).and_then(Value::as_str);
    let flag = |name: &str| document.get(name).and_then(Value::as_bool) == Some(true);
    if flag("x-kubernetes-int-or-string") || document.get("oneOf").is_some() && owner.is_some() {
        return Type::Scalar(Scalar::Any);
    }
    match text("type") {
        Some("string") => Type::Scalar(Scalar::Text),
        Some("integer" | "number") => Type::Scalar(Scalar::Number),
        Some("boolean") => Type::Scalar(Scalar::Flag),
        Some("array") => {
            let inner = document.get("items").map_or(Type::Deduced, |it| field(it, None));
            let keys = document.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let keys = keys.into_iter().flatten().filter_map(Value::as_str);
            let keyed = |key: &str| Key {
                name: key.to_owned(),
                default: document.pointer(&format!("/items/properties/{key}/default")).cloned(),
            };
            let items = match text("x-kubernetes-list-type") {
                Some("set") => Items::Set,
                Some("map") => Items::Keyed(keys.map(keyed).collect()),
                _ => Items::Atomic,
            };
            Type::List(items, Box::new(inner))
        }
        Some("object") => Type::Fields(fields(document, owner)),
        _ => Type::Deduced,
    }
}

fn fields(document: &Value, owner: Option<&str>) -> Fields {
    let flag = |name: &str| document.get(name).and_then(Value::as_bool) == Some(true);
    let properties = document.get("properties").and_then(Value::as_object);
    let empty = Map::new();
    let known = properties.unwrap_or(&empty).iter().map(|(name, inner)| {
        (name.clone(), field(inner, owner.map(|owner| (owner, name.as_str()))))
    });
    let other = match document.get("additionalProperties") {
        Some(inner @ Value::Object(_)) => Some(field(inner, None)),
        Some(Value::Bool(true)) => Some(Type::Deduced),
        _ if flag("x-kubernetes-preserve-unknown-fields") || properties.is_none() => {
            Some(Type::Deduced)
        }
        _ => None,
    };
    let atomic = document.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
    let mut fields = Fields {
        known: known.collect(),
        other: other.map(Box::new),
        atomic: atomic || owner.is_some_and(builtin::is_atomic),
        fixed: owner.map_or(&[], |_| builtin::FIXED),
    };
    if flag("x-kubernetes-embedded-resource") {
        envelope(&mut fields);
    }
    fields
}

/// The type of a field; of built-in types, which do not say how their lists are merged, `place` says whose it is.
fn field(document: &Value, place: Option<(&str, &str)>) -> Type {
    if let Some(name) = reference(document) {
        return Type::Named(name.to_owned());
    }
    let of = of_document(document, None);
    let Some((owner, name)) = place else { return of };
    match of {
        Type::List(_, inner) => Type::List(builtin::items(owner, name), inner),
        Type::Fields(fields) => {
            let atomic = builtin::is_atomic_map(owner, name);
            Type::Fields(Fields { atomic, ..fields })
        }
        plain @ (Type::Scalar(_) | Type::Deduced | Type::Named(_)) => plain,
    }
}
