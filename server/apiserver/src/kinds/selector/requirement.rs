//! One requirement of a label selector.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{SelectorError, allocated, allocated_texts};
use crate::kinds::{
    field::{self, FieldError},
    names,
};

/// How a requirement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or there is none.
    NotIn,
    /// There is such a label.
    Exists,
    /// There is no such label.
    DoesNotExist,
    /// The label is a larger integer.
    GreaterThan,
    /// The label is a smaller integer.
    LessThan,
}

/// A requirement for one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    key: Box<str>,
    operator: Operator,
    /// In order.
    values: Box<[Box<str>]>,
}

impl Requirement {
    /// A requirement, if labels can have the key and the values.
    pub(super) fn new(
        key: &str,
        operator: Operator,
        values: BTreeSet<String>,
    ) -> Result<Self, SelectorError> {
        let mut errors = Vec::new();
        let problems = names::qualified(key);
        if !problems.is_empty() {
            errors.push(FieldError::invalid_text("", key, &problems.join("; ")));
        }
        for (at, value) in values.iter().enumerate() {
            let path = field::index("values", at);
            let ordered = matches!(operator, Operator::GreaterThan | Operator::LessThan);
            if ordered && value.parse::<i64>().is_err() {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(FieldError::invalid_text(path.clone(), value, detail));
            }
            let problems = names::label_value(value);
            if !problems.is_empty() {
                let path = field::key(&path, key);
                errors.push(FieldError::invalid_text(path, value, &problems.join("; ")));
            }
        }
        if errors.is_empty() {
            let values = values.into_iter().map(String::into_boxed_str).collect();
            return Ok(Self { key: key.into(), operator, values });
        }
        Err(SelectorError(field::summary(&errors)))
    }

    /// Bytes of memory of the texts and the list.
    pub(super) fn bytes(&self) -> usize {
        let texts = self.values.iter().map(|value| &**value).chain([&*self.key]);
        allocated(size_of_val(&*self.values)) + allocated_texts(texts)
    }

    /// Whether labels meet it.
    pub(super) fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        let value = labels.and_then(|labels| labels.get(&*self.key)).and_then(Value::as_str);
        let listed = value
            .is_some_and(|value| self.values.binary_search_by(|one| (**one).cmp(value)).is_ok());
        match self.operator {
            Operator::In => listed,
            Operator::NotIn => !listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => {
                self.compare(value).is_some_and(|(label, bound)| label > bound)
            }
            Operator::LessThan => self.compare(value).is_some_and(|(label, bound)| label < bound),
        }
    }

    fn compare(&self, value: Option<&str>) -> Option<(i64, i64)> {
        Some((value?.parse().ok()?, self.values.first()?.parse().ok()?))
    }
}
