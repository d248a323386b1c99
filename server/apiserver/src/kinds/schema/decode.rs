//! Fields of a sent object that its kind does not have.

use std::fmt;

use crate::kinds::field::{Path, SHOWN_PATH, quote, shorten};

/// A field of the sent object that the schema does not know; it is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownField {
    /// Its path, `spec.nope`.
    pub(crate) path: String,
}

/// Unknown fields of one object that are told, as many as Kubernetes tells.
const MOST_UNKNOWN: usize = 100;

impl UnknownField {
    /// Notes an unknown field, unless enough are. Long paths are shortened: a body may be one.
    pub(crate) fn note(unknown: &mut Vec<Self>, path: Path<'_>) {
        if unknown.len() < MOST_UNKNOWN {
            let path = shorten(path.text(), SHOWN_PATH);
            unknown.push(Self { path });
        }
    }
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown field {}", quote(&self.path))
    }
}

/// A field of the sent object has a type that the kind cannot hold: 400, not 422.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("json: cannot unmarshal {found} into field {path} of type {wanted}")]
pub(crate) struct DecodeError {
    /// The field's path, beginning with the kind.
    pub(crate) path: String,
    /// The JSON type that was sent.
    pub(crate) found: &'static str,
    /// The expected value.
    pub(crate) wanted: String,
}
