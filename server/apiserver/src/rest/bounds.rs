//! How deep, how large and how many-valued an object may be that is stored. Looked at in one place,
//! [`super::stored::encode`], through which every write goes: what is stored can be read again, by this
//! server and by its clients.

use std::fmt::Write as _;

use serde_json::Value;

use crate::kinds::{
    Resource,
    access::text,
    field::{FieldError, Path, SHOWN_PATH, shorten},
    status::{Answer, Status},
};

/// How deep an object may be. `serde_json`, which this server and the clients in Rust read with, stops at
/// 127 levels; a list, a table or a watch event puts up to four levels around an object. No kind comes
/// near: the schema of a definition, the deepest of all, takes two levels for each of what it describes.
pub(super) const DEPTH: usize = 100;

/// How large the text of an object may be, in bytes. etcd takes 1.5 MiB, and so no cluster has a larger
/// one; what it keeps as bytes is base64 here, which is a third longer.
const SIZE: usize = 2 << 20;

/// How many values an object may have: read, each takes some 70 bytes whatever its text is. As many as are
/// read of a YAML body. A definition of a large API has some ten thousand.
const VALUES: usize = 250_000;

/// Levels that the place of what is too much is looked for in.
const LOOKED: usize = 3;

/// How deep an object is.
pub(super) fn depth(object: &Value) -> usize {
    extent(object).depth
}

/// The extent of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Extent {
    depth: usize,
    values: usize,
}

/// Refuses an object that is too much in any way. What is there already, from before there were limits,
/// may stay as it is: else no client could take a finalizer off it. It may not become more.
///
/// # Errors
/// It is too deep or has too many values (422), or is too large (413).
pub(super) fn check(
    resource: &Resource,
    object: &Value,
    size: usize,
    old: Option<&Value>,
) -> Answer<()> {
    let found = extent(object);
    if found.depth <= DEPTH && found.values <= VALUES && size <= SIZE {
        return Ok(());
    }
    let before = old.map(extent).unwrap_or_default();
    let name = text(object, "/metadata/name");
    if found.depth > DEPTH.max(before.depth) {
        let path = too_deep(object, Path::Root(""), DEPTH).unwrap_or_default();
        let path = shorten(path, SHOWN_PATH);
        let detail = format!("the object is nested {} levels deep", found.depth);
        let detail =
            format!("{detail}; it may be {DEPTH}: keep what is deeper as text, or split it");
        let error = FieldError::invalid_shown(path, "", &detail);
        return Err(Status::invalid(resource, name, &[error]));
    }
    if found.values > VALUES.max(before.values) {
        let path = heaviest(object, &|value| extent(value).values);
        let error = FieldError::too_many(path, found.values, VALUES);
        return Err(Status::invalid(resource, name, &[error]));
    }
    let weigh = |value: &Value| value.to_string().len();
    if size > SIZE.max(old.map(weigh).unwrap_or_default()) {
        let mut status = Status::too_large(SIZE);
        let path = heaviest(object, &weigh);
        let _infallible =
            write!(status.message, ", the object has {size} bytes, most of them in {path}");
        return Err(status);
    }
    Ok(())
}

/// How deep an object is and how many values it has; walked in a loop.
fn extent(object: &Value) -> Extent {
    let mut found = Extent::default();
    let mut left = vec![(object, 1)];
    while let Some((value, depth)) = left.pop() {
        found.values += 1;
        match value {
            Value::Object(fields) => left.extend(fields.values().map(|inner| (inner, depth + 1))),
            Value::Array(items) => left.extend(items.iter().map(|inner| (inner, depth + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => continue,
        }
        found.depth = found.depth.max(depth);
    }
    found
}

/// The first value that stands deeper than `left` levels. Calls itself so many times at most.
fn too_deep(value: &Value, path: Path<'_>, left: usize) -> Option<String> {
    let Some(left) = left.checked_sub(1) else {
        return (value.is_object() || value.is_array()).then(|| path.text());
    };
    match value {
        Value::Object(fields) => {
            fields.iter().find_map(|(name, inner)| too_deep(inner, Path::Child(&path, name), left))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, inner)| too_deep(inner, Path::Index(&path, at), left)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// The path of what weighs more than half of the object, a few levels down.
fn heaviest(object: &Value, weigh: &impl Fn(&Value) -> usize) -> String {
    let half = weigh(object) / 2;
    let (mut at, mut path) = (object, String::new());
    for _ in 0..LOOKED {
        let named = match at {
            Value::Object(fields) => fields
                .iter()
                .find(|(_, inner)| weigh(inner) > half)
                .map(|(name, inner)| (crate::kinds::field::child(&path, name), inner)),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .find(|(_, inner)| weigh(inner) > half)
                .map(|(position, inner)| (crate::kinds::field::index(&path, position), inner)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        let Some((inner_path, inner)) = named else { break };
        (path, at) = (inner_path, inner);
    }
    if path.is_empty() { "several fields".to_owned() } else { shorten(path, SHOWN_PATH) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::BuiltIn;

    fn refusal(object: &Value, old: Option<&Value>) -> Option<(u16, String)> {
        let map = BuiltIn::ConfigMap.resource();
        let size = object.to_string().len();
        check(&map, object, size, old).err().map(|status| (status.code, status.message))
    }

    /// An object of so many levels.
    fn deep(levels: usize) -> Value {
        (1..levels).fold(json!({}), |inner, _| json!({ "a": inner }))
    }

    #[test]
    fn an_object_that_is_too_deep_is_refused_with_the_place() {
        assert_eq!(refusal(&deep(DEPTH), None), None);
        let (code, message) = refusal(&deep(DEPTH + 1), None).unwrap();
        assert_eq!(code, 422);
        assert!(message.contains("a.a.a.a") && message.contains("101 levels"), "{message}");
        let lists: Value = (0..DEPTH).fold(json!([]), |inner, _| json!([inner]));
        assert_eq!(refusal(&json!({ "l": lists }), None).unwrap().0, 422);
    }

    #[test]
    fn what_is_stored_can_be_read_inside_whatever_is_put_around_it() {
        let around = json!({"object": {"rows": [{"object": deep(DEPTH)}]}}).to_string();
        assert!(serde_json::from_str::<Value>(&around).is_ok());
    }

    #[test]
    fn an_object_with_too_many_values_or_too_much_text_is_refused_with_the_place() {
        let many = json!({"data": {"a": vec![0; VALUES]}});
        let (code, message) = refusal(&many, None).unwrap();
        assert_eq!(code, 422);
        assert!(message.contains("data.a: Too many: 250003"), "{message}");
        let large = json!({"data": {"small": "", "large": "x".repeat(SIZE)}});
        let (code, message) = refusal(&large, None).unwrap();
        assert_eq!(code, 413);
        assert!(
            message.contains("limit is 2097152") && message.contains("data.large"),
            "{message}"
        );
    }

    #[test]
    fn what_was_stored_before_there_were_limits_may_stay_and_not_grow() {
        let (deeper, deepest) = (deep(DEPTH + 1), deep(DEPTH + 2));
        assert_eq!(refusal(&deeper, Some(&deeper)), None);
        assert!(refusal(&deepest, Some(&deeper)).is_some());
        let large = |size| json!({"data": "x".repeat(size)});
        assert_eq!(refusal(&large(SIZE + 8), Some(&large(SIZE + 9))), None);
        assert!(refusal(&large(SIZE + 9), Some(&large(SIZE + 8))).is_some());
    }
}
