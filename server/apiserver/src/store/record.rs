//! Requests to the store, and their results.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Key;

/// An object at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it lives.
    pub key: Key,
    /// The revision of the last write; clients see it as `metadata.resourceVersion`.
    pub revision: u64,
    /// The object as JSON text, without `metadata.resourceVersion`.
    pub value: Bytes,
}

/// A stored text is no object that can be read: the file was damaged, or it was written before objects
/// were checked when they are written. It is there all the same, and must not be taken for absent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored object {key} of revision {revision} cannot be read ({why}); deleting it works")]
pub struct Unreadable {
    /// Where it lives.
    pub key: Key,
    /// The revision of the last write.
    pub revision: u64,
    /// The reader's error.
    pub why: String,
}

/// Objects that were told to be unreadable, by key and revision: each is told once. More than so many are
/// a damaged disk, and its operator knows.
const TOLD: usize = 64;
static TOLD_OF: Mutex<BTreeSet<(Key, u64)>> = Mutex::new(BTreeSet::new());

impl Record {
    /// The object parsed, with `metadata.resourceVersion` set to [`Record::revision`].
    ///
    /// # Errors
    /// The stored text cannot be read.
    pub fn object(&self) -> Result<Value, Unreadable> {
        object_at(&self.key, &self.value, self.revision)
    }

    /// As [`Self::object`], for callers that can only skip an unreadable object. The log reports each such object once.
    pub fn readable(&self) -> Option<Value> {
        self.object().inspect_err(Unreadable::tell).ok()
    }
}

impl Unreadable {
    /// Logs the error, unless logged before.
    pub fn tell(&self) {
        let mut told = TOLD_OF.lock();
        if told.len() < TOLD && told.insert((self.key.clone(), self.revision)) {
            tracing::warn!("{self}");
        }
    }
}

/// Parses stored JSON text and puts `revision` in as `metadata.resourceVersion`.
///
/// # Errors
/// The text cannot be read as an object.
pub fn object_at(key: &Key, value: &[u8], revision: u64) -> Result<Value, Unreadable> {
    let unreadable = |why: String| Unreadable { key: key.clone(), revision, why };
    let mut object: Value =
        serde_json::from_slice(value).map_err(|error| unreadable(error.to_string()))?;
    let Some(fields) = object.as_object_mut() else {
        return Err(unreadable("it is no object".to_owned()));
    };
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
    }
    Ok(object)
}

/// The known part of an object, even if unreadable: enough to report its deletion. Of a text that is too deep,
/// `metadata` is read; the rest is skipped without recursion.
pub fn remains(key: &Key, value: &[u8], revision: u64) -> Value {
    #[derive(Default, Deserialize)]
    struct Head {
        #[serde(default)]
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    struct Metadata {
        #[serde(default)]
        uid: String,
    }
    let head: Head = serde_json::from_slice(value).unwrap_or_default();
    let mut metadata = serde_json::Map::new();
    let fields =
        [("name", key.name()), ("namespace", key.namespace()), ("uid", &head.metadata.uid)];
    for (name, text) in fields.into_iter().filter(|(_, text)| !text.is_empty()) {
        metadata.insert(name.to_owned(), text.into());
    }
    metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
    json!({ "metadata": metadata })
}

/// The precondition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// There is no such object.
    Absent,
    /// The object was last written at this revision.
    Revision(u64),
}

/// The effect of a write. The text is the object as JSON without `metadata.resourceVersion`.
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
    /// The position in the order of all changes. Revisions are dense: each change is the previous revision plus one.
    pub revision: u64,
    /// The object that changed.
    pub key: Key,
    /// The change of the object.
    pub change: Change,
    /// The object before, if there was one: a selector watch needs it to tell an object that
    /// starts or stops to match.
    pub previous: Option<Record>,
}

impl Event {
    /// The object's state after the event, at the event's revision.
    ///
    /// # Errors
    /// The stored text cannot be read.
    pub fn object(&self) -> Result<Value, Unreadable> {
        object_at(&self.key, self.change.value(), self.revision)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &str) -> Record {
        let key = Key::new("", "configmaps", "default", "a");
        Record { key, revision: 7, value: Bytes::copy_from_slice(text.as_bytes()) }
    }

    #[test]
    fn what_cannot_be_read_is_an_error_with_its_key_and_never_null() {
        let deep =
            format!(r#"{{"metadata":{{"uid":"u"}},"a":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
        for text in ["", "null", "[]", "7", "{", &deep] {
            let error = record(text).object().unwrap_err();
            assert!(error.to_string().contains("/configmaps/default/a of revision 7"), "{error}");
            assert_eq!(record(text).readable(), None);
        }
    }

    #[test]
    fn of_an_object_that_is_too_deep_its_metadata_remains() {
        let many = 100_000;
        let text =
            format!(r#"{{"a":{}{},"metadata":{{"uid":"u"}}}}"#, "[".repeat(many), "]".repeat(many));
        let found = record(&text);
        let expected = json!({"metadata":
            {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "7"}});
        assert_eq!(remains(&found.key, &found.value, 7), expected);
        let nothing = remains(&found.key, b"garbage", 7);
        assert_eq!(nothing["metadata"]["name"], "a");
    }
}
