//! Which changes of a spec reach a running instance.

use super::ProviderSpec;

/// Paths whose change needs a new instance. Tags and kubelet are applied to running instances, and
/// the knobs of the simulation (latency, capacity, faults, initialize) are no part of an instance.
pub fn fixed_paths_changed(old: &ProviderSpec, new: &ProviderSpec) -> Vec<&'static str> {
    [
        ("region", old.region == new.region),
        ("image", old.image == new.image),
        ("machineType", old.machine_type == new.machine_type),
        ("nodeCapacity", old.node_capacity == new.node_capacity),
    ]
    .into_iter()
    .filter_map(|(path, same)| (!same).then_some(path))
    .collect()
}

/// Whether the change can be applied to a running instance.
pub fn is_hot_updatable(old: &ProviderSpec, new: &ProviderSpec) -> bool {
    fixed_paths_changed(old, new).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &serde_json::Value) -> ProviderSpec {
        serde_json::from_value(json.clone()).unwrap()
    }

    #[test]
    fn tags_and_kubelet_are_hot_and_what_the_instance_is_made_of_is_not() {
        let base = serde_json::json!({"region": "r", "image": "i"});
        let cases = [
            ("tags", serde_json::json!({"vm": {"a": "b"}}), true),
            ("kubelet", serde_json::json!({"pods": "stuck"}), true),
            ("latency", serde_json::json!({"boot": "1s"}), true),
            ("initialize", serde_json::json!(true), true),
            ("region", serde_json::json!("s"), false),
            ("image", serde_json::json!("j"), false),
            ("machineType", serde_json::json!("large"), false),
            ("nodeCapacity", serde_json::json!({"cpu": "8"}), false),
        ];
        for (path, value, hot) in cases {
            let mut changed = base.clone();
            changed[path] = value;
            let (old, new) = (spec(&base), spec(&changed));
            assert_eq!(is_hot_updatable(&old, &new), hot, "{path}");
            if !hot {
                assert_eq!(fixed_paths_changed(&old, &new), [path]);
            }
        }
    }
}
