//! Defaults of built-in kinds, and the statuses of new objects: `defaults.yaml` has them, and says how it is read.

use std::{collections::HashMap, sync::LazyLock};

use serde::Deserialize;
use serde_json::Value;

use super::access::{items_mut, preset, set};

#[derive(Default, Deserialize)]
struct Table {
    defaults: HashMap<String, Value>,
    statuses: HashMap<String, Value>,
}

static TABLE: LazyLock<Table> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("defaults.yaml")).unwrap_or_default());

/// Fills in what the table has for a kind.
pub(super) fn fill(kind: &str, object: &mut Value) {
    if let Some(defaults) = TABLE.defaults.get(kind) {
        fill_in(object, defaults);
    }
}

/// Gives a new object the status that the table has for its kind.
pub(super) fn begin(kind: &str, object: &mut Value) {
    if let Some(status) = TABLE.statuses.get(kind) {
        set(object, "status", status.clone());
    }
}

/// Calls itself once for each level of the table.
fn fill_in(object: &mut Value, defaults: &Value) {
    for (name, default) in defaults.as_object().into_iter().flatten() {
        if let Some(list) = name.strip_suffix("[]") {
            items_mut(object, &format!("/{list}")).for_each(|item| fill_in(item, default));
        } else if default.is_object() && !name.ends_with('=') {
            object.get_mut(name).into_iter().for_each(|field| fill_in(field, default));
        } else {
            preset(object, name.trim_end_matches('='), default.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::BuiltIn;

    #[test]
    fn the_table_is_read_and_names_built_in_kinds() {
        let known: Vec<&str> = BuiltIn::ALL.iter().map(|kind| kind.kind()).collect();
        assert!(!TABLE.defaults.is_empty() && !TABLE.statuses.is_empty());
        for kind in TABLE.defaults.keys().chain(TABLE.statuses.keys()) {
            assert!(known.contains(&kind.as_str()), "{kind}");
        }
    }
}
