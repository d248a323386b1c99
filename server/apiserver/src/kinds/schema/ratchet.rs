//! Errors that an update did not make: what was wrong before may stay as it is.

use serde_json::Value;

use crate::kinds::field::{FieldError, FieldErrorKind};

/// Drops errors about values that are the same in `old`.
pub(super) fn keep_new(errors: &mut Vec<FieldError>, new: &Value, old: &Value) {
    errors.retain(|error| {
        let path = steps(&error.path);
        // a missing field is the fault of the object that should have it, and a second one that of the list
        let upto = match error.kind {
            FieldErrorKind::Required | FieldErrorKind::Duplicate => path.len().saturating_sub(1),
            FieldErrorKind::NotFound
            | FieldErrorKind::Invalid
            | FieldErrorKind::NotSupported
            | FieldErrorKind::Forbidden
            | FieldErrorKind::TooLong
            | FieldErrorKind::TooMany
            | FieldErrorKind::TypeInvalid => path.len(),
        };
        let path = path.get(..upto).unwrap_or_default();
        if error.path.is_empty() {
            return true;
        }
        match (follow(new, path), follow(old, path)) {
            (Some(new), Some(old)) => new != old,
            _ => true,
        }
    });
}

/// One step of an error's path.
#[derive(Debug, PartialEq)]
enum Step<'a> {
    Field(&'a str),
    Item(usize),
}

fn steps(path: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    for part in path.split('.') {
        let mut pieces = part.split('[');
        if let Some(name) = pieces.next().filter(|name| !name.is_empty()) {
            steps.push(Step::Field(name));
        }
        for piece in pieces {
            if let Ok(position) = piece.trim_end_matches(']').parse() {
                steps.push(Step::Item(position));
            }
        }
    }
    steps
}

fn follow<'a>(value: &'a Value, path: &[Step<'_>]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Field(name) => value.get(name),
        Step::Item(position) => value.get(position),
    })
}
