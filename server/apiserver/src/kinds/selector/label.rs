//! Label selectors.

use std::{collections::BTreeSet, str::FromStr};

use serde_json::{Map, Value};

use super::{
    SelectorError, parser,
    requirement::{Operator, Requirement},
};
use crate::kinds::field;

/// Requirements that must all hold. The empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    requirements: Box<[Requirement]>,
}

impl LabelSelector {
    /// Whether it matches everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Bytes of memory of the selector.
    pub(crate) fn bytes(&self) -> usize {
        super::allocated(size_of_val(&*self.requirements))
            + self.requirements.iter().map(Requirement::bytes).sum::<usize>()
    }

    /// Whether an object with these labels (`metadata.labels`) is selected.
    pub(crate) fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }

    /// Whether this object is selected.
    pub(crate) fn selects(&self, object: &Value) -> bool {
        self.matches(object.pointer("/metadata/labels").and_then(Value::as_object))
    }

    /// Reads a `LabelSelector` object with `matchLabels` and `matchExpressions`. An empty object
    /// selects everything; what no selector at all means depends on where it is missing.
    ///
    /// # Errors
    /// An expression has an unknown operator, or a key or value that no label can have.
    pub(crate) fn from_object(selector: &Value) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        let labels = selector.get("matchLabels").and_then(Value::as_object);
        for (key, value) in labels.into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement::new(key, Operator::In, BTreeSet::from([value]))?);
        }
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            requirements.push(from_expression(expression)?);
        }
        Ok(Self { requirements: requirements.into() })
    }
}

fn from_expression(expression: &Value) -> Result<Requirement, SelectorError> {
    let text = |name| expression.get(name).and_then(Value::as_str).unwrap_or_default();
    let operator = match text("operator") {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => {
            let shown = field::quote(other);
            return Err(SelectorError(format!("{shown} is not a valid label selector operator")));
        }
    };
    let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
    let values = values.filter_map(Value::as_str).map(ToOwned::to_owned).collect();
    Requirement::new(text("key"), operator, values)
}

impl FromStr for LabelSelector {
    type Err = SelectorError;

    /// Reads a selector as it stands in a query string.
    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Ok(Self { requirements: parser::parse(text)?.into() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(selector: &str, labels: &Value) -> bool {
        selector.parse::<LabelSelector>().unwrap().matches(labels.as_object())
    }

    #[test]
    fn a_selector_selects_by_its_requirements() {
        let labels = json!({"app": "web", "tier": "back", "n": "5"});
        let cases = [
            ("", true),
            ("app=web", true),
            ("app==web", true),
            ("  app = web ", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("app in (web,db)", true),
            ("app in (db)", false),
            ("app in ()", false),
            ("app notin (web)", false),
            ("other notin (x)", true),
            ("app=web,tier=back", true),
            ("app=web,tier=front", false),
            ("app=", false),
            ("n>3", true),
            ("n<3", false),
            ("app>3", false),
            ("in=x", false),
        ];
        for (selector, expected) in cases {
            assert_eq!(selects(selector, &labels), expected, "{selector}");
        }
        assert!(selects("in in (in)", &json!({"in": "in"})));
        assert!(selects("a in (,b)", &json!({"a": ""})));
        assert!(selects("a in (b,)", &json!({"a": ""})));
    }

    #[test]
    fn a_selector_takes_few_bytes_for_each_of_its_terms() {
        let terms = |term: fn(usize) -> String| (0..100).map(term).collect::<Vec<_>>().join(",");
        let selectors = [
            (terms(|at| format!("!k{at}")), 100),
            (terms(|at| format!("k{at}=v")), 200),
            (format!("k in ({})", terms(|at| format!("v{at}"))), 60),
        ];
        for (text, most) in selectors {
            let bytes = text.parse::<LabelSelector>().unwrap().bytes();
            assert!(bytes / 100 <= most, "{} bytes a term: {text}", bytes / 100);
        }
        assert_eq!(LabelSelector::default().bytes(), 0);
    }

    #[test]
    fn a_selector_that_cannot_be_read_says_where() {
        let cases = [
            ("app in web", "unable to parse requirement: found 'web' expected: '('"),
            ("app in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            ("=x", "found '=', expected: !, identifier, or 'end of string'"),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            ("app=web,", "found '', expected: identifier after ','"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("x in", "unable to parse requirement: found '' expected: '('"),
            (
                "app>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ];
        for (selector, text) in cases {
            assert_eq!(selector.parse::<LabelSelector>().unwrap_err().to_string(), text);
        }
        let error = "-a=b".parse::<LabelSelector>().unwrap_err().to_string();
        assert!(error.starts_with("unable to parse requirement: <nil>: Invalid value: \"-a\": "));
        let error = "app=a/b".parse::<LabelSelector>().unwrap_err().to_string();
        assert!(error.starts_with(
            "unable to parse requirement: values[0][app]: Invalid value: \"a/b\": a valid label"
        ));
    }

    #[test]
    fn a_selector_object_means_the_same() {
        let selector = json!({"matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["d"]}]});
        let selector = LabelSelector::from_object(&selector).unwrap();
        assert!(selector.selects(&json!({"metadata": {"labels": {"a": "b"}}})));
        assert!(!selector.selects(&json!({"metadata": {"labels": {"a": "b", "c": "d"}}})));
        assert!(!selector.selects(&json!({"metadata": {}})));
        assert!(LabelSelector::from_object(&json!({})).unwrap().is_empty());
    }
}
