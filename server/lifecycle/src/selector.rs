//! Label selectors of MachineSets and MachineDeployments.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use ostler_api::machine_set::MachineTemplateSpec;

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Whether it selects nothing in particular: such a selector would claim everything.
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// Whether an object with these labels is selected. An empty selector selects nothing, and so does a selector with an
/// unknown operator.
pub fn matches(selector: &LabelSelector, labels: Option<&Labels>) -> bool {
    let none = Labels::new();
    let labels = labels.unwrap_or(&none);
    let mut exact = selector.match_labels.iter().flatten();
    let mut rules = selector.match_expressions.iter().flatten();
    !is_empty(selector)
        && exact.all(|(key, value)| labels.get(key) == Some(value))
        && rules.all(|rule| holds(rule, labels.get(&rule.key)))
}

/// Whether either selector matches the template of the other.
pub fn overlap(
    (one, template): (Option<&LabelSelector>, &MachineTemplateSpec),
    (other, its_template): (Option<&LabelSelector>, &MachineTemplateSpec),
) -> bool {
    let selects = |selector: Option<&LabelSelector>, template: &MachineTemplateSpec| {
        let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
        selector.is_some_and(|selector| matches(selector, labels))
    };
    selects(one, its_template) || selects(other, template)
}

fn holds(rule: &LabelSelectorRequirement, value: Option<&String>) -> bool {
    let listed = value.is_some_and(|value| rule.values.iter().flatten().any(|one| one == value));
    match rule.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

/// The selector as the API takes it in a query, and as `status.selector` shows it.
pub fn text(selector: &LabelSelector) -> String {
    let exact = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let rules = selector.match_expressions.iter().flatten().map(|rule| {
        let (key, values) = (&rule.key, rule.values.as_deref().unwrap_or_default().join(","));
        match rule.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        }
    });
    exact.chain(rules).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selector(value: Value) -> LabelSelector {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_selector_selects_what_all_its_rules_hold_for() {
        let labels: Labels = [("a", "1"), ("b", "2")].map(|(k, v)| (k.into(), v.into())).into();
        let table = [
            (json!({ "matchLabels": { "a": "1" } }), true, "a=1"),
            (json!({ "matchLabels": { "a": "1", "b": "3" } }), false, "a=1,b=3"),
            (json!({}), false, ""),
            (
                json!({ "matchExpressions": [{ "key": "a", "operator": "In", "values": ["0", "1"] }] }),
                true,
                "a in (0,1)",
            ),
            (
                json!({ "matchExpressions": [{ "key": "a", "operator": "NotIn", "values": ["1"] }] }),
                false,
                "a notin (1)",
            ),
            (
                json!({ "matchExpressions": [{ "key": "c", "operator": "NotIn", "values": ["1"] }] }),
                true,
                "c notin (1)",
            ),
            (json!({ "matchExpressions": [{ "key": "b", "operator": "Exists" }] }), true, "b"),
            (
                json!({ "matchExpressions": [{ "key": "b", "operator": "DoesNotExist" }] }),
                false,
                "!b",
            ),
            (json!({ "matchExpressions": [{ "key": "b", "operator": "Sounds" }] }), false, "b"),
        ];
        for (value, expected, shown) in table {
            let selector = selector(value);
            assert_eq!(matches(&selector, Some(&labels)), expected, "{shown}");
            assert_eq!(text(&selector), shown);
        }
        assert!(!matches(&selector(json!({ "matchLabels": { "a": "1" } })), None));
    }
}
