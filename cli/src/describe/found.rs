//! One object that is described: its page for people, and the same for scripts.

use serde::Serialize;
use serde_json::{Value, json};

use crate::output::merged;

/// A page, and what it tells of.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) page: String,
    pub(super) data: Value,
}

impl Found {
    /// An object with what it waits for, and with what else the page tells.
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
