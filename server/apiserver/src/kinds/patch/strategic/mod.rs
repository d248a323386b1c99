//! Strategic merge patch: a merge patch that knows which lists of a built-in kind are merged, and
//! by which key.
//!
//! Directives inside the patch: `$patch` (`replace`, `delete`, `merge`), `$retainKeys`,
//! `$deleteFromPrimitiveList/<list>` and `$setElementOrder/<list>`.

mod keys;
mod lists;

use std::collections::HashSet;

use serde_json::{Map, Value};

pub(crate) use self::keys::{Rule, rule};
use crate::kinds::{BuiltIn, schema::catalogue};

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Why a strategic merge patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StrategicError {
    /// A list item lacks the field that tells items apart. 500 in Kubernetes.
    #[error("map: {item} does not contain declared merge key: {key}")]
    NoMergeKey {
        /// The item, as JSON.
        item: String,
        /// The missing field.
        key: String,
    },
    /// `$patch` holds something else than it may. 500 in Kubernetes.
    #[error("unknown patch type: {0}")]
    UnknownDirective(String),
    /// The patch is no object. 400.
    #[error("Invalid JSON document")]
    NotAnObject,
    /// `$retainKeys` is malformed or does not name all fields of the patch. 400.
    #[error("Invalid patch format of retainKeys directive")]
    RetainKeys,
    /// `$deleteFromPrimitiveList` is malformed. 400.
    #[error("Invalid patch format of primitive list")]
    PrimitiveList,
    /// A list and what is merged into it have more items than are compared. 400.
    #[error(
        "lists with {items} items together are not merged; send a merge patch, which replaces the list"
    )]
    TooManyItems {
        /// How many there are.
        items: usize,
    },
    /// `$setElementOrder` is malformed or does not name all items of the patch. 400.
    #[error("Invalid patch format of setElementOrder list")]
    ElementOrder,
}

impl StrategicError {
    /// Whether the request is to blame (400), or it counts as the server's failure (500).
    pub(crate) const fn is_bad_request(&self) -> bool {
        !matches!(self, Self::NoMergeKey { .. } | Self::UnknownDirective(_))
    }
}

/// Merges `patch` into `object`, an object of a built-in kind.
///
/// # Errors
/// The patch is malformed; `object` may then be half changed.
pub(crate) fn apply(
    kind: BuiltIn,
    object: &mut Value,
    patch: &Value,
) -> Result<(), StrategicError> {
    let (Some(fields), Some(patch)) = (object.as_object_mut(), patch.as_object()) else {
        return Err(StrategicError::NotAnObject);
    };
    merge_map(fields, patch.clone(), Some(&kind.type_name()))
}

/// Merges a patch into a map whose fields are those of `type_name`, if it has a named type. Calls itself once
/// for each level of the patch (again where a `$patch` says `merge`, which is taken out), and those are
/// bounded where it was read; what comes out is as deep as the deeper of the two.
fn merge_map(
    original: &mut Map<String, Value>,
    mut patch: Map<String, Value>,
    type_name: Option<&str>,
) -> Result<(), StrategicError> {
    if let Some(directive) = patch.remove(DIRECTIVE) {
        match directive.as_str() {
            Some("replace") => *original = patch,
            Some("delete") => original.clear(),
            Some("merge") => return merge_map(original, patch, type_name),
            _ => return Err(StrategicError::UnknownDirective(directive.to_string())),
        }
        return Ok(());
    }
    retain_keys(original, &mut patch)?;
    lists::order(original, &mut patch, type_name)?;
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE_FROM) {
            lists::delete_values(original, list, &value)?;
            continue;
        }
        merge_field(original, &name, value, type_name)?;
    }
    Ok(())
}

fn merge_field(
    original: &mut Map<String, Value>,
    name: &str,
    value: Value,
    type_name: Option<&str>,
) -> Result<(), StrategicError> {
    if value.is_null() {
        original.remove(name);
        return Ok(());
    }
    let inner = type_name.and_then(|owner| catalogue::type_of_field(owner, name));
    let rule = type_name.map_or(Rule::ATOMIC, |owner| rule(owner, name));
    match (original.get_mut(name), value) {
        (Some(Value::Object(fields)), Value::Object(patch)) => merge_map(fields, patch, inner),
        (Some(Value::Array(items)), Value::Array(patch)) if rule.merges => {
            *items = lists::merge(items, patch, rule.key, inner)?;
            Ok(())
        }
        (_, value) => {
            original.insert(name.to_owned(), without_directives(value));
            Ok(())
        }
    }
}

/// Drops all fields that `$retainKeys` does not name.
fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), StrategicError> {
    let Some(directive) = patch.remove(RETAIN) else { return Ok(()) };
    let list = directive.as_array().ok_or(StrategicError::RetainKeys)?;
    let list: HashSet<&str> = list.iter().filter_map(Value::as_str).collect();
    let kept = |name: &str| list.contains(name);
    let names_a_list = |name: &str| name.starts_with(DELETE_FROM) || name.starts_with(ORDER);
    if !patch.keys().all(|name| kept(name) || names_a_list(name)) {
        return Err(StrategicError::RetainKeys);
    }
    original.retain(|name, _| kept(name));
    Ok(())
}

/// What of a patch value remains where there was nothing before: no nulls in maps, no directives.
fn without_directives(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(name, value)| !is_directive(name) && !value.is_null())
                .map(|(name, value)| (name, without_directives(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(
            items
                .into_iter()
                .filter(|item| item.get(DIRECTIVE).is_none())
                .map(without_directives)
                .collect(),
        ),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

fn is_directive(name: &str) -> bool {
    matches!(name, DIRECTIVE | RETAIN) || name.starts_with(DELETE_FROM) || name.starts_with(ORDER)
}

#[cfg(test)]
mod tests;
