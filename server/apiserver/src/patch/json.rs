//! JSON patch (RFC 6902), with the leniencies of kube-apiserver.
//!
//! They are: `test` of `null` passes on a missing path, `replace` of a missing map entry adds it,
//! and a negative index counts from the end of a list.

use serde::Deserialize;
use serde_json::Value;

/// One step of a patch, as it is sent. `op` stays text: an unknown one is found when it is applied.
#[derive(Clone, Debug, Deserialize)]
pub struct Operation {
    op: String,
    path: String,
    #[serde(default)]
    from: Option<String>,
    #[serde(default)]
    value: Value,
}

/// What all copies of one patch may hold together, in bytes of JSON text: a few operations that
/// copy what was copied could otherwise fill the memory.
const COPIES_LIMIT: usize = 3 << 20;

/// Why a patch cannot be applied. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// A `test` did not hold.
    #[error("testing path {path} failed")]
    TestFailed {
        /// Where.
        path: String,
    },
    /// The path leads nowhere.
    #[error("the path {path} does not exist")]
    NoSuchPath {
        /// The path.
        path: String,
    },
    /// The copies hold too much.
    #[error("all copies of a patch may hold {COPIES_LIMIT} bytes together")]
    CopiesTooLarge,
    /// There is no such operation.
    #[error("unexpected kind of operation: {op}")]
    UnknownOperation {
        /// Its name.
        op: String,
    },
}

/// Applies all operations in order, or none of them.
///
/// # Errors
/// The first operation that cannot be applied.
pub fn apply(document: &mut Value, operations: &[Operation]) -> Result<(), PatchError> {
    let mut result = document.clone();
    let mut room = COPIES_LIMIT;
    for operation in operations {
        step(&mut result, operation, &mut room)?;
    }
    *document = result;
    Ok(())
}

/// Does one operation; `room` is what copies may still hold.
fn step(document: &mut Value, operation: &Operation, room: &mut usize) -> Result<(), PatchError> {
    let path = operation.path.as_str();
    let from = operation.from.as_deref().unwrap_or_default();
    match operation.op.as_str() {
        "add" => add(document, path, operation.value.clone()),
        "remove" => remove(document, path).map(drop),
        "replace" => replace(document, path, operation.value.clone()),
        "move" => {
            let value = remove(document, from)?;
            add(document, path, value)
        }
        "copy" => {
            let value = read(document, from).cloned().ok_or_else(|| missing(from))?;
            let size = value.to_string().len();
            *room = room.checked_sub(size).ok_or(PatchError::CopiesTooLarge)?;
            add(document, path, value)
        }
        "test" => test(document, path, &operation.value),
        other => Err(PatchError::UnknownOperation { op: other.to_owned() }),
    }
}

fn missing(path: &str) -> PatchError {
    PatchError::NoSuchPath { path: path.to_owned() }
}

/// Splits `/a/b` into the parent's path and the last token, unescaped.
fn split(path: &str) -> Option<(&str, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn read<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    if path.is_empty() {
        return Some(document);
    }
    let (parent, last) = split(path)?;
    match read(document, parent)? {
        Value::Object(fields) => fields.get(&last),
        Value::Array(items) => items.get(position(&last, items.len())?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn find<'a>(document: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    if path.is_empty() {
        return Some(document);
    }
    let (parent, last) = split(path)?;
    match find(document, parent)? {
        Value::Object(fields) => fields.get_mut(&last),
        Value::Array(items) => {
            let at = position(&last, items.len())?;
            items.get_mut(at)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// The index a token names in a list of `length` items; not checked against the end.
fn position(token: &str, length: usize) -> Option<usize> {
    match token.strip_prefix('-') {
        Some(back) => length.checked_sub(back.parse().ok()?),
        None => token.parse().ok(),
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    if path.is_empty() {
        *document = value;
        return Ok(());
    }
    let (parent, last) = split(path).ok_or_else(|| missing(path))?;
    match find(document, parent) {
        Some(Value::Object(fields)) => {
            fields.insert(last, value);
            Ok(())
        }
        Some(Value::Array(items)) => {
            let length = items.len();
            let at = if last == "-" { Some(length) } else { position(&last, length) };
            let at = at.filter(|at| *at <= length).ok_or_else(|| missing(path))?;
            items.insert(at, value);
            Ok(())
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => {
            Err(missing(path))
        }
    }
}

fn remove(document: &mut Value, path: &str) -> Result<Value, PatchError> {
    let (parent, last) = split(path).ok_or_else(|| missing(path))?;
    let removed = match find(document, parent) {
        Some(Value::Object(fields)) => fields.remove(&last),
        Some(Value::Array(items)) => {
            let at = position(&last, items.len()).filter(|at| *at < items.len());
            at.map(|at| items.remove(at))
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => None,
    };
    removed.ok_or_else(|| missing(path))
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    if let Some(place) = find(document, path) {
        *place = value;
        return Ok(());
    }
    let (parent, last) = split(path).ok_or_else(|| missing(path))?;
    match find(document, parent) {
        Some(Value::Object(fields)) => {
            fields.insert(last, value);
            Ok(())
        }
        Some(_) | None => Err(missing(path)),
    }
}

fn test(document: &Value, path: &str, expected: &Value) -> Result<(), PatchError> {
    let found = read(document, path).unwrap_or(&Value::Null);
    if found == expected {
        return Ok(());
    }
    Err(PatchError::TestFailed { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The patched document; none if the patch was refused, which must leave it as it was.
    fn run(start: &Value, operations: &Value) -> Option<Value> {
        let mut document = start.clone();
        let operations: Vec<Operation> = serde_json::from_value(operations.clone()).unwrap();
        let applied = apply(&mut document, &operations).is_ok();
        assert!(applied || document == *start);
        applied.then_some(document)
    }

    #[test]
    fn each_operation_does_what_it_says() {
        let start = json!({"a": {"b": 1}, "l": [1, 2]});
        let cases = [
            (
                json!([{"op": "add", "path": "/a/c", "value": 2}]),
                json!({"a": {"b": 1, "c": 2}, "l": [1, 2]}),
            ),
            (
                json!([{"op": "add", "path": "/l/-", "value": 3}]),
                json!({"a": {"b": 1}, "l": [1, 2, 3]}),
            ),
            (
                json!([{"op": "add", "path": "/l/0", "value": 0}]),
                json!({"a": {"b": 1}, "l": [0, 1, 2]}),
            ),
            (json!([{"op": "remove", "path": "/l/0"}]), json!({"a": {"b": 1}, "l": [2]})),
            (json!([{"op": "remove", "path": "/l/-1"}]), json!({"a": {"b": 1}, "l": [1]})),
            (json!([{"op": "replace", "path": "/a", "value": 5}]), json!({"a": 5, "l": [1, 2]})),
            (
                json!([{"op": "replace", "path": "/n", "value": 5}]),
                json!({"a": {"b": 1}, "l": [1, 2], "n": 5}),
            ),
            (
                json!([{"op": "move", "from": "/a/b", "path": "/m"}]),
                json!({"a": {}, "l": [1, 2], "m": 1}),
            ),
            (
                json!([{"op": "copy", "from": "/a/b", "path": "/m"}]),
                json!({"a": {"b": 1}, "l": [1, 2], "m": 1}),
            ),
            (
                json!([{"op": "add", "path": "/a/x~1y~0", "value": 1}]),
                json!({"a": {"b": 1, "x/y~": 1}, "l": [1, 2]}),
            ),
        ];
        for (operations, result) in cases {
            assert_eq!(run(&start, &operations).unwrap(), result, "{operations}");
        }
    }

    #[test]
    fn a_test_for_null_passes_where_nothing_is() {
        let start = json!({"metadata": {}});
        let operations = json!([
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": ["f"]}]);
        assert_eq!(run(&start, &operations).unwrap(), json!({"metadata": {"finalizers": ["f"]}}));
        assert!(run(&json!({"metadata": {"finalizers": ["f"]}}), &operations).is_none());
    }

    #[test]
    fn copies_of_copies_are_stopped_before_they_fill_the_memory() {
        let start = json!({"l": ["0123456789".repeat(100)]});
        let copies: Vec<Value> =
            (0..40).map(|_| json!({"op": "copy", "from": "/l", "path": "/l/-"})).collect();
        assert!(run(&start, &Value::Array(copies)).is_none());
    }

    #[test]
    fn what_cannot_be_applied_is_refused_whole() {
        let start = json!({"a": {"b": 1}, "l": [1]});
        for operations in [
            json!([{"op": "remove", "path": "/nope"}]),
            json!([{"op": "add", "path": "/no/pe", "value": 1}]),
            json!([{"op": "add", "path": "/l/5", "value": 1}]),
            json!([{"op": "frob", "path": "/a"}]),
            json!([{"op": "test", "path": "/a/b", "value": 2}]),
            json!([{"op": "copy", "from": "/nope", "path": "/a"}]),
        ] {
            assert!(run(&start, &operations).is_none(), "{operations}");
        }
    }
}
