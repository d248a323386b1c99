//! What of a definition is stored and published, and not done: its author is warned.

use serde_json::Value;

use super::is;
use crate::{
    field::{Path, SHOWN_PATH, shorten},
    kinds::{BuiltIn, Resource, access::text},
};

const RULES: &str = "x-kubernetes-validations";

const UNCALLED: &str = "spec.conversion: the webhook is stored and not called: objects can be written in their storage version alone, and are read in every version as they are stored, without the fields that the version does not have";

/// Places that are named; a large definition has hundreds.
const NAMED: usize = 5;

/// A warning for a webhook, and for each place with rules in CEL, up to a few.
pub(super) fn warnings(resource: &Resource, object: &Value) -> Vec<String> {
    if !is(resource, BuiltIn::CustomResourceDefinition) {
        return Vec::new();
    }
    let mut places = Vec::new();
    let versions = object.pointer("/spec/versions").and_then(Value::as_array);
    for (at, version) in versions.into_iter().flatten().enumerate() {
        let root = Path::Root("spec.versions");
        let path = Path::Index(&root, at);
        let path = Path::Child(&path, "schema");
        let path = Path::Child(&path, "openAPIV3Schema");
        if let Some(schema) = version.pointer("/schema/openAPIV3Schema") {
            find(schema, path, &mut places);
        }
    }
    let more = places.len().saturating_sub(NAMED);
    let mut warnings: Vec<String> = places
        .into_iter()
        .take(NAMED)
        .map(|path| {
            format!("{path}: the rule is stored and not evaluated: this server does not read CEL")
        })
        .collect();
    if more > 0 {
        warnings.push(format!("{RULES}: {more} more places have rules that are not evaluated"));
    }
    if text(object, "/spec/conversion/strategy") == "Webhook" {
        warnings.push(UNCALLED.to_owned());
    }
    warnings
}

/// Calls itself once for each level of the definition, which are bounded.
fn find(schema: &Value, path: Path<'_>, places: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            for (name, inner) in fields {
                let path = Path::Child(&path, name);
                let rules = inner.as_array().map_or(0, Vec::len);
                // A property may have this name as well, and is no list then.
                if name == RULES && rules > 0 {
                    places.push(shorten(path.text(), SHOWN_PATH));
                } else if !matches!(name.as_str(), "default" | "enum" | "example") {
                    find(inner, path, places);
                }
            }
        }
        Value::Array(items) => {
            for (at, inner) in items.iter().enumerate() {
                find(inner, Path::Index(&path, at), places);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_in_cel_are_named_with_their_places_and_nothing_else_is() {
        let rule = json!([{"rule": "self.a > 1"}]);
        let with = |schema: Value| {
            json!({"spec": {"versions": [
            {"name": "v1", "schema": {"openAPIV3Schema": schema}}]}})
        };
        let definition = BuiltIn::CustomResourceDefinition.resource();
        let object = with(json!({"type": "object", RULES: rule, "properties": {
            "a": {"items": {RULES: rule}}, "b": {RULES: []}, "c": {"default": {RULES: rule}}}}));
        let found = warnings(&definition, &object);
        let schema = "spec.versions[0].schema.openAPIV3Schema";
        assert_eq!(found.len(), 2, "{found:?}");
        let [first, second] = [&found[0], &found[1]];
        assert!(first.starts_with(&format!("{schema}.properties.a.items.{RULES}: ")), "{first}");
        assert!(
            second.starts_with(&format!("{schema}.{RULES}: ")) && second.contains("not evaluated")
        );
        assert!(warnings(&BuiltIn::ConfigMap.resource(), &object).is_empty());
        let many: serde_json::Map<String, Value> =
            (0..20).map(|at| (format!("p{at}"), json!({RULES: rule}))).collect();
        let found = warnings(&definition, &with(json!({"properties": many})));
        assert_eq!(found.len(), NAMED + 1);
        assert!(found[NAMED].contains("15 more"), "{found:?}");
        let webhook = json!({"spec": {"conversion": {"strategy": "Webhook"}}});
        assert_eq!(warnings(&definition, &webhook), [UNCALLED]);
    }
}
