//! One described object: a page for people, and data for scripts.

use serde::Serialize;
use serde_json::{Value, json};

use crate::output::merged;

/// A page and its data.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) page: String,
    pub(super) data: Value,
}

impl Found {
    /// An object with its waits and the other data of the page.
    pub(super) fn new<K: Serialize>(
        page: String,
        object: &K,
        waits: &[String],
        rest: Value,
    ) -> Self {
        let mut data = json!({ "object": object, "waitsFor": waits });
        if let Some(meta) = data.pointer_mut("/object/metadata").and_then(Value::as_object_mut) {
            meta.remove("managedFields");
        }
        Self { page, data: merged(data, rest) }
    }
}
