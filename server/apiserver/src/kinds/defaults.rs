//! Defaults of built-in kinds, and the statuses of new objects: `defaults.yaml` has them, and says how it is read.

use std::{collections::HashMap, sync::LazyLock};

use serde::Deserialize;
use serde_json::Value;

use super::access::{items_mut, object_in, preset, set, text};

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
        let (name, only) = name.split_once('?').unwrap_or((name, ""));
        let holds = |field: &&mut Value| {
            only.split_once('=')
                .is_none_or(|(name, value)| text(field, &format!("/{name}")) == value)
        };
        if let Some(list) = name.strip_suffix("[]") {
            items_mut(object, &format!("/{list}"))
                .filter(holds)
                .for_each(|item| fill_in(item, default));
        } else if let Some(made) = name.strip_suffix('+') {
            object_in(object, made)
                .filter(holds)
                .into_iter()
                .for_each(|field| fill_in(field, default));
        } else if default.is_object() && !name.ends_with('=') {
            object
                .get_mut(name)
                .filter(holds)
                .into_iter()
                .for_each(|field| fill_in(field, default));
        } else {
            preset(object, name.trim_end_matches('='), default.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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

    /// Typed clients send structures of which they set nothing.
    #[test]
    fn an_empty_structure_has_the_defaults_of_an_absent_one() {
        for (kind, sent, wanted) in [
            (
                "Deployment",
                json!({"strategy": {}}),
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}),
            ),
            (
                "Deployment",
                json!({"strategy": {"rollingUpdate": {"maxSurge": 1}}}),
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": 1}}),
            ),
            ("Deployment", json!({"strategy": {"type": "Recreate"}}), json!({"type": "Recreate"})),
            (
                "DaemonSet",
                json!({"updateStrategy": {}}),
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}),
            ),
            (
                "StatefulSet",
                json!({"updateStrategy": {}}),
                json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
            ),
            (
                "StatefulSet",
                json!({"updateStrategy": {"type": "RollingUpdate"}}),
                json!({"type": "RollingUpdate"}),
            ),
        ] {
            let mut object = json!({ "spec": sent });
            fill(kind, &mut object);
            let field = if kind == "Deployment" { "strategy" } else { "updateStrategy" };
            assert_eq!(object["spec"][field], wanted, "{kind} {sent}");
        }
        let mut binding = json!({"roleRef": {"kind": "Role"}, "subjects":
            [{"kind": "User"}, {"kind": "ServiceAccount"}]});
        fill("RoleBinding", &mut binding);
        let group = "rbac.authorization.k8s.io";
        assert_eq!(binding["roleRef"]["apiGroup"], group);
        let given = json!([{"kind": "User", "apiGroup": group}, {"kind": "ServiceAccount"}]);
        assert_eq!(binding["subjects"], given);
    }
}
