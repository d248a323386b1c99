//! JSON patch (RFC 6902), with the leniencies of kube-apiserver.
//!
//! They are: `test` of `null` passes on a missing path, `replace` of a missing map entry adds it,
//! and a negative index counts from the end of a list. The crate `json-patch`, which applies merge
//! patches here, has none of them, and no bound on how much a patch copies, nests or moves.
//!
//! Nothing here calls itself over the text of a pointer: pointers are walked in loops. What does, over
//! values (`measure`, comparing, cloning), meets none that is deeper than `DEPTH_LIMIT`.

use serde::Deserialize;
use serde_json::Value;

/// A step of a patch, as sent. `op` stays text: the application of the patch refuses an unknown `op`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Operation {
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

/// Parts that one pointer may have: more than twice the depth of any object.
const PARTS_LIMIT: usize = 256;

/// The deepest object that a patch may make: the limit of `serde_json`. The depth of a stored object is checked at the
/// write; this limit protects the steps before the write.
const DEPTH_LIMIT: usize = 127;

/// Steps that one patch may take; a step looks at a part of a pointer or at a value, or moves an item of a
/// list by one. Ten thousand insertions at the front of a list of sixty thousand items are 600 million.
/// So many take a tenth of a second.
const WORK_LIMIT: usize = 50_000_000;

/// Why a patch cannot be applied. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatchError {
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
    /// A pointer has too many parts.
    #[error("operation {operation}: a pointer of {parts} parts; it may have {PARTS_LIMIT}")]
    PointerTooLong {
        /// The operation, counted from 0.
        operation: usize,
        /// How many parts it has.
        parts: usize,
    },
    /// The resulting object is too deep.
    #[error("operation {operation}: it makes the object deeper than {DEPTH_LIMIT} levels")]
    TooDeep {
        /// The operation, counted from 0.
        operation: usize,
    },
    /// It is too much work.
    #[error(
        "operation {operation}: the patch moves too many items of lists; send fewer operations, or replace the list"
    )]
    TooMuchWork {
        /// The operation, counted from 0.
        operation: usize,
    },
}

impl PatchError {
    /// Whether the patch itself is beyond what is done for any client, whatever the object is.
    pub(crate) const fn is_beyond_limits(&self) -> bool {
        !matches!(
            self,
            Self::TestFailed { .. } | Self::NoSuchPath { .. } | Self::UnknownOperation { .. }
        )
    }
}

/// Applies all operations in order, or none of them.
///
/// # Errors
/// The first operation that cannot be applied.
pub(crate) fn apply(document: &mut Value, operations: &[Operation]) -> Result<(), PatchError> {
    let mut result = document.clone();
    let mut budget = Budget { operation: 0, room: COPIES_LIMIT, work: WORK_LIMIT };
    for (at, operation) in operations.iter().enumerate() {
        budget.operation = at;
        step(&mut result, operation, &mut budget)?;
    }
    *document = result;
    Ok(())
}

/// The budget of a patch.
struct Budget {
    /// The operation that is being done.
    operation: usize,
    /// Room for further copies.
    room: usize,
    work: usize,
}

impl Budget {
    fn take(&mut self, steps: usize) -> Result<(), PatchError> {
        let left = self.work.checked_sub(steps);
        self.work = left.ok_or(PatchError::TooMuchWork { operation: self.operation })?;
        Ok(())
    }

    /// The parts of a pointer, unescaped.
    fn parts(&mut self, path: &str) -> Result<Vec<String>, PatchError> {
        if path.is_empty() {
            return Ok(Vec::new());
        }
        let rest = path.strip_prefix('/').ok_or_else(|| missing(path))?;
        let parts = rest.bytes().filter(|byte| *byte == b'/').count() + 1;
        if parts > PARTS_LIMIT {
            return Err(PatchError::PointerTooLong { operation: self.operation, parts });
        }
        self.take(parts)?;
        Ok(rest.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect())
    }

    /// Refuses a value that would stand too deep behind so many parts.
    fn check_depth(&mut self, parts: usize, value: &Value) -> Result<(), PatchError> {
        if parts + self.measure(value)? > DEPTH_LIMIT {
            return Err(PatchError::TooDeep { operation: self.operation });
        }
        Ok(())
    }

    /// How deep a value is; one without anything inside is not.
    fn measure(&mut self, value: &Value) -> Result<usize, PatchError> {
        self.take(1)?;
        let mut deepest = 0;
        match value {
            Value::Object(fields) => {
                for inner in fields.values() {
                    deepest = deepest.max(self.measure(inner)?);
                }
            }
            Value::Array(items) => {
                for inner in items {
                    deepest = deepest.max(self.measure(inner)?);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(0),
        }
        Ok(deepest + 1)
    }
}

fn step(
    document: &mut Value,
    operation: &Operation,
    budget: &mut Budget,
) -> Result<(), PatchError> {
    let path = operation.path.as_str();
    let from = operation.from.as_deref().unwrap_or_default();
    match operation.op.as_str() {
        "add" => add(document, path, operation.value.clone(), budget),
        "remove" => remove(document, path, budget).map(drop),
        "replace" => replace(document, path, operation.value.clone(), budget),
        "move" => {
            let value = remove(document, from, budget)?;
            add(document, path, value, budget)
        }
        "copy" => {
            let parts = budget.parts(from)?;
            let value = find(document, &parts).cloned().ok_or_else(|| missing(from))?;
            let size = value.to_string().len();
            budget.room = budget.room.checked_sub(size).ok_or(PatchError::CopiesTooLarge)?;
            add(document, path, value, budget)
        }
        "test" => test(document, path, &operation.value, budget),
        other => Err(PatchError::UnknownOperation { op: other.to_owned() }),
    }
}

fn missing(path: &str) -> PatchError {
    PatchError::NoSuchPath { path: path.to_owned() }
}

fn find<'a>(document: &'a mut Value, parts: &[String]) -> Option<&'a mut Value> {
    parts.iter().try_fold(document, |value, part| match value {
        Value::Object(fields) => fields.get_mut(part),
        Value::Array(items) => {
            let at = position(part, items.len())?;
            items.get_mut(at)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// The index a token names in a list of `length` items; not checked against the end.
fn position(token: &str, length: usize) -> Option<usize> {
    match token.strip_prefix('-') {
        Some(back) => length.checked_sub(back.parse().ok()?),
        None => token.parse().ok(),
    }
}

fn add(
    document: &mut Value,
    path: &str,
    value: Value,
    budget: &mut Budget,
) -> Result<(), PatchError> {
    let parts = budget.parts(path)?;
    budget.check_depth(parts.len(), &value)?;
    let Some((last, parent)) = parts.split_last() else {
        *document = value;
        return Ok(());
    };
    match find(document, parent) {
        Some(Value::Object(fields)) => {
            fields.insert(last.clone(), value);
            Ok(())
        }
        Some(Value::Array(items)) => {
            let length = items.len();
            let at = if last == "-" { Some(length) } else { position(last, length) };
            let at = at.filter(|at| *at <= length).ok_or_else(|| missing(path))?;
            budget.take(length - at)?;
            items.insert(at, value);
            Ok(())
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => {
            Err(missing(path))
        }
    }
}

fn remove(document: &mut Value, path: &str, budget: &mut Budget) -> Result<Value, PatchError> {
    let parts = budget.parts(path)?;
    let (last, parent) = parts.split_last().ok_or_else(|| missing(path))?;
    let removed = match find(document, parent) {
        Some(Value::Object(fields)) => fields.remove(last),
        Some(Value::Array(items)) => {
            match position(last, items.len()).filter(|at| *at < items.len()) {
                Some(at) => {
                    budget.take(items.len() - at)?;
                    Some(items.remove(at))
                }
                None => None,
            }
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => None,
    };
    removed.ok_or_else(|| missing(path))
}

fn replace(
    document: &mut Value,
    path: &str,
    value: Value,
    budget: &mut Budget,
) -> Result<(), PatchError> {
    let parts = budget.parts(path)?;
    budget.check_depth(parts.len(), &value)?;
    if let Some(place) = find(document, &parts) {
        *place = value;
        return Ok(());
    }
    let (last, parent) = parts.split_last().ok_or_else(|| missing(path))?;
    match find(document, parent) {
        Some(Value::Object(fields)) => {
            fields.insert(last.clone(), value);
            Ok(())
        }
        Some(_) | None => Err(missing(path)),
    }
}

fn test(
    document: &mut Value,
    path: &str,
    expected: &Value,
    budget: &mut Budget,
) -> Result<(), PatchError> {
    // A path that begins with no slash leads nowhere.
    let found = match budget.parts(path) {
        Ok(parts) => find(document, &parts),
        Err(PatchError::NoSuchPath { .. }) => None,
        Err(error) => return Err(error),
    };
    if found.map_or(&Value::Null, |found| found) == expected {
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

    fn refusal(start: &Value, operations: &Value) -> PatchError {
        let mut document = start.clone();
        let operations: Vec<Operation> = serde_json::from_value(operations.clone()).unwrap();
        let error = apply(&mut document, &operations).unwrap_err();
        assert_eq!(document, *start);
        error
    }

    /// So many levels of maps around a number.
    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }))
    }

    #[test]
    fn a_pointer_of_a_million_parts_is_refused_and_not_walked_by_calls() {
        let long = "/a".repeat(1_000_000);
        for operation in ["test", "add", "remove", "replace"] {
            let error = refusal(&json!({}), &json!([{"op": operation, "path": long, "value": 1}]));
            let expected = PatchError::PointerTooLong { operation: 0, parts: 1_000_000 };
            assert_eq!(error, expected, "{operation}");
        }
        for operation in ["move", "copy"] {
            let patch = json!([{"op": operation, "from": long, "path": "/b"}]);
            let expected = PatchError::PointerTooLong { operation: 0, parts: 1_000_000 };
            assert_eq!(refusal(&json!({}), &patch), expected, "{operation}");
        }
    }

    #[test]
    fn a_pointer_as_long_as_objects_are_deep_is_walked() {
        let start = nested(120);
        let operations = json!([
            {"op": "test", "path": "/a".repeat(120), "value": 1},
            {"op": "replace", "path": "/a".repeat(120), "value": 2}]);
        assert!(run(&start, &operations).is_some());
        let beyond = json!([{"op": "test", "path": "/a".repeat(PARTS_LIMIT), "value": null}]);
        assert!(run(&start, &beyond).is_some(), "nothing is there, and that was asked");
    }

    #[test]
    fn no_sequence_of_operations_makes_an_object_deeper_than_is_read() {
        let too_deep = [
            json!([{"op": "add", "path": "/x", "value": nested(100)},
                {"op": "add", "path": format!("/x{}", "/a".repeat(100)), "value": nested(100)}]),
            json!([{"op": "add", "path": "/x", "value": nested(100)},
                {"op": "replace", "path": format!("/x{}", "/a".repeat(100)), "value": nested(100)}]),
            json!([{"op": "add", "path": "/x", "value": nested(90)},
                {"op": "copy", "from": "/x", "path": format!("/x{}", "/a".repeat(90))}]),
            json!([{"op": "add", "path": "/x", "value": nested(90)},
                {"op": "add", "path": "/y", "value": nested(90)},
                {"op": "move", "from": "/x", "path": format!("/y{}", "/a".repeat(90))}]),
        ];
        for operations in too_deep {
            let last = operations.as_array().unwrap().len() - 1;
            let expected = PatchError::TooDeep { operation: last };
            assert_eq!(refusal(&json!({}), &operations), expected);
        }
    }

    #[test]
    fn ten_thousand_moves_in_a_list_of_sixty_thousand_are_too_much_work() {
        let start = json!({ "l": vec![0; 60_000] });
        let moves: Vec<Value> =
            (0..10_000).map(|_| json!({"op": "move", "from": "/l/0", "path": "/l/0"})).collect();
        let error = refusal(&start, &Value::Array(moves));
        assert!(matches!(error, PatchError::TooMuchWork { .. }), "{error}");
        let removals: Vec<Value> =
            (0..500).map(|_| json!({"op": "remove", "path": "/l/0"})).collect();
        assert!(run(&start, &Value::Array(removals)).is_some());
    }
}
