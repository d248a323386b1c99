//! Rules for a class, beside its schema: upstream's rules for `nodeTemplate`.

use ostler_api::{MachineClass, machine::ClassRef};
use serde_json::Value;

/// Resources that `nodeTemplate.capacity` must name.
const CAPACITY: [&str; 3] = ["cpu", "gpu", "memory"];
/// Fields of `nodeTemplate` that must not be empty.
const TEXTS: [&str; 3] = ["instanceType", "region", "zone"];

/// The rules that a class breaks, for people; empty if it breaks none.
pub fn broken(class: &MachineClass) -> Vec<String> {
    let Some(template) = class.spec.node_template.as_ref().filter(|it| !it.is_null()) else {
        return Vec::new();
    };
    let capacity = template.get("capacity");
    let lacks = |resource: &&str| capacity.and_then(|all| all.get(*resource)).is_none();
    let capacity = CAPACITY
        .into_iter()
        .filter(lacks)
        .map(|resource| format!("nodeTemplate.capacity has no {resource}, set it, if only to 0"));
    let is_empty = |field: &&str| {
        let text = template.get(*field).and_then(Value::as_str).unwrap_or_default();
        text.is_empty()
    };
    let texts = TEXTS
        .into_iter()
        .filter(is_empty)
        .map(|field| format!("nodeTemplate.{field} is empty, set it"));
    capacity.chain(texts).collect()
}

/// What a template lacks of the name of its class, for people.
pub(crate) fn unnamed(class: &ClassRef) -> impl Iterator<Item = String> {
    let missing = [("kind", class.kind.is_empty()), ("name", class.name.is_empty())];
    let missing = missing.into_iter().filter(|(_, is_empty)| *is_empty);
    missing.map(|(field, _)| format!("spec.template.spec.class.{field} is missing"))
}

#[cfg(test)]
mod tests {
    use ostler_api::names;
    use serde_json::json;

    use super::*;

    fn broken_by(template: &Value) -> Vec<String> {
        let class = json!({
            "apiVersion": names::API_VERSION, "kind": "MachineClass",
            "metadata": { "name": "c" }, "providerSpec": {}, "nodeTemplate": template
        });
        broken(&serde_json::from_value(class).unwrap())
    }

    #[test]
    fn a_node_template_names_its_capacity_and_where_it_is() {
        let whole = json!({
            "capacity": { "cpu": 4, "gpu": 0, "memory": "8Gi" },
            "instanceType": "m", "region": "r", "zone": "z"
        });
        assert_eq!(broken_by(&Value::Null), Vec::<String>::new());
        assert_eq!(broken_by(&whole), Vec::<String>::new());
        for field in TEXTS {
            let mut without = whole.clone();
            without[field] = json!("");
            let expected = format!("nodeTemplate.{field} is empty, set it");
            assert_eq!(broken_by(&without), [expected]);
        }
        for resource in CAPACITY {
            let mut without = whole.clone();
            without["capacity"].as_object_mut().unwrap().remove(resource);
            let broken = broken_by(&without);
            assert!(broken[0].contains(&format!("has no {resource}")), "{broken:?}");
        }
        assert_eq!(broken_by(&json!({})).len(), 6);
    }
}
