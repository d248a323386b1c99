//! What is read from the store, and what is asked of it.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::Key;

/// One object at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it lives.
    pub key: Key,
    /// The revision that wrote it; clients see it as `metadata.resourceVersion`.
    pub revision: u64,
    /// The object as JSON text, without `metadata.resourceVersion`.
    pub value: Bytes,
}

impl Record {
    /// The object parsed, with `metadata.resourceVersion` set to [`Record::revision`].
    /// `Value::Null` if the stored text is no JSON, which no writer of this crate stores.
    pub fn object(&self) -> Value {
        object_at(&self.value, self.revision)
    }
}

/// Parses stored JSON text and puts `revision` in as `metadata.resourceVersion`.
pub fn object_at(value: &[u8], revision: u64) -> Value {
    let mut object: Value = serde_json::from_slice(value).unwrap_or_default();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
    }
    object
}

/// What must hold of a key for a write to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// There is no such object.
    Absent,
    /// The object was last written at this revision.
    Revision(u64),
}

/// What a write does. The text is the object as JSON without `metadata.resourceVersion`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Creates or replaces the object.
    Put(Bytes),
    /// Removes the object; the text is its last state, which watchers are told.
    Delete(Bytes),
}

impl Change {
    /// The object's state after the change, or its last state if it was deleted.
    pub fn value(&self) -> &Bytes {
        match self {
            Self::Put(value) | Self::Delete(value) => value,
        }
    }
}

/// One entry of the revision log, as watchers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its place in the one order of all changes. Revisions are dense: each change is the
    /// previous revision plus one.
    pub revision: u64,
    /// The object that changed.
    pub key: Key,
    /// What happened to it.
    pub change: Change,
    /// The object before, if there was one: a selector watch needs it to tell an object that
    /// starts or stops to match.
    pub previous: Option<Record>,
}

impl Event {
    /// The object's state after the event, at the event's revision.
    pub fn object(&self) -> Value {
        object_at(self.change.value(), self.revision)
    }

    /// Bytes held by this event, for the bounds of what is kept in memory.
    pub(super) fn size(&self) -> usize {
        const OVERHEAD: usize = 160;
        let previous = self.previous.as_ref().map_or(0, |record| record.value.len());
        OVERHEAD + self.key.as_str().len() + self.change.value().len() + previous
    }
}

/// Part of a list, consistent at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The records, in key order.
    pub records: Vec<Record>,
    /// The revision at which the list is true.
    pub revision: u64,
    /// How many records of the range follow after the last one of this page.
    pub remaining: usize,
}

/// An [`Event`] is shared between all the watches that deliver it.
pub type SharedEvent = Arc<Event>;
