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
        let data = json!({ "object": object, "waitsFor": waits });
        let mut data = merged(data, rest);
        hide_managers(&mut data);
        Self { page, data }
    }
}

/// Removes `metadata.managedFields` of every object, as kubectl does.
fn hide_managers(data: &mut Value) {
    match data {
        Value::Array(all) => all.iter_mut().for_each(hide_managers),
        Value::Object(fields) => {
            if let Some(meta) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                meta.remove("managedFields");
            }
            fields.values_mut().for_each(hide_managers);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_object_of_the_data_says_who_manages_its_fields() {
        let object = json!({ "metadata": { "name": "m", "managedFields": [1] } });
        let found = Found::new(String::new(), &object, &[], json!({ "events": [object] }));
        let without = json!({ "metadata": { "name": "m" } });
        assert_eq!(found.data, json!({ "object": without, "waitsFor": [], "events": [without] }));
    }
}
