//! Walks over values and their types: collects fields, compares, merges and removes.
//!
//! Each calls itself once for each level of the values, which are bounded where they were read.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    items::{Items, step},
    set::{FieldSet, show},
    types::{Fields, Form, Scalar, Type},
};

/// The items of a list by the step that leads to them; of several with one step, the first. What has no step
/// is left out: only what is applied is checked for that.
fn steps<'a>(items: &Items, list: Option<&'a Value>) -> Vec<(String, &'a Value)> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    let mut seen = BTreeSet::new();
    let found = list.filter_map(|item| Some((step(items, item).ok()?, item)));
    found.filter(|(step, _)| seen.insert(step.clone())).collect()
}

fn field_step(name: &str) -> String {
    format!("f:{name}")
}

/// Whether there is nothing in a list or map.
fn is_blank(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => false,
    }
}

/// The fields that a value has.
pub(super) fn collect(of: &Type, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    match of.form(value) {
        Form::Leaf => set.member = true,
        Form::List(items, inner) => {
            for (step, item) in steps(items, Some(value)) {
                let below = FieldSet { member: true, ..collect(inner, item) };
                set.children.insert(step, below);
            }
        }
        Form::Fields(fields) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                let (inner, known) = fields.field(name);
                let mut below = collect(inner, value);
                below.member |= !known
                    || matches!(value, Value::Null | Value::Object(_)) && is_blank(Some(value));
                if !below.is_empty() {
                    set.children.insert(field_step(name), below);
                }
            }
        }
    }
    set
}

/// The differences between two values.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// The fields that are new or have another value.
    pub(super) set: FieldSet,
    /// The fields that are gone.
    pub(super) removed: FieldSet,
}

impl Changes {
    fn note(&mut self, path: &[String], old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (Some(_), None) => self.removed.insert(path),
            (old, new) if old != new => self.set.insert(path),
            _ => {}
        }
    }
}

/// Compares two values of a type.
pub(super) fn compare(of: &Type, old: Option<&Value>, new: Option<&Value>) -> Changes {
    let mut changes = Changes::default();
    compare_at(of, old, new, &mut Vec::new(), &mut changes);
    changes
}

fn compare_at(
    of: &Type,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<String>,
    changes: &mut Changes,
) {
    // what is equal is not walked: most of an object is
    if old == new {
        return;
    }
    let form = |value: Option<&Value>| value.map(|value| of.form(value));
    match (form(old), form(new)) {
        (Some(Form::Leaf), _) | (_, Some(Form::Leaf)) | (None, None) => {
            return changes.note(path, old, new);
        }
        _ if is_blank(old) && is_blank(new) => return changes.note(path, old, new),
        (_, Some(Form::List(items, inner))) | (Some(Form::List(items, inner)), None) => {
            let olds = steps(items, old);
            let mut before: BTreeMap<&str, &Value> =
                olds.iter().map(|(step, item)| (step.as_str(), *item)).collect();
            for (step, item) in steps(items, new) {
                let known = before.remove(step.as_str());
                descend(inner, step, known, Some(item), path, changes);
            }
            for (step, item) in before {
                descend(inner, step.to_owned(), Some(item), None, path, changes);
            }
        }
        (_, Some(Form::Fields(fields))) | (Some(Form::Fields(fields)), None) => {
            compare_fields(fields, old, new, path, changes);
        }
    }
    if !path.is_empty() && (old.is_none() || new.is_none()) {
        changes.note(path, old, new);
    }
}

fn descend(
    of: &Type,
    step: String,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<String>,
    changes: &mut Changes,
) {
    if old == new {
        return;
    }
    path.push(step);
    compare_at(of, old, new, path, changes);
    path.pop();
}

fn compare_fields(
    fields: &Fields,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<String>,
    changes: &mut Changes,
) {
    let empty = Value::Object(Map::new());
    let none = Map::new();
    let olds = old.and_then(Value::as_object).unwrap_or(&none);
    let news = new.and_then(Value::as_object).unwrap_or(&none);
    let only_old = olds.keys().filter(|name| !news.contains_key(*name));
    for name in news.keys().chain(only_old) {
        let fixed = fields.fixed.contains(&name.as_str());
        let value = |whole: Option<&'_ Value>| whole.is_some() && fixed;
        let before = olds.get(name).or_else(|| value(old).then_some(&empty));
        let after = news.get(name).or_else(|| value(new).then_some(&empty));
        descend(fields.field(name).0, field_step(name), before, after, path, changes);
    }
}

/// What `old` becomes when `new` is applied to it; nothing if neither is there.
pub(super) fn merge(of: &Type, old: &Value, new: &Value) -> Value {
    match of.form(new) {
        _ if is_blank(Some(old)) || matches!(of.form(old), Form::Leaf) => new.clone(),
        Form::Leaf => new.clone(),
        Form::List(items, inner) => Value::Array(merge_lists(items, inner, old, new)),
        Form::Fields(fields) => {
            let mut merged = old.as_object().cloned().unwrap_or_default();
            for (name, value) in new.as_object().into_iter().flatten() {
                let value = match merged.get(name) {
                    Some(old) => merge(fields.field(name).0, old, value),
                    None => value.clone(),
                };
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
    }
}

/// Merges two lists. Items of both stand in the order of the new one; others keep their place among them.
fn merge_lists(items: &Items, inner: &Type, old: &Value, new: &Value) -> Vec<Value> {
    let (olds, news) = (steps(items, Some(old)), steps(items, Some(new)));
    let before: BTreeMap<&str, &Value> =
        olds.iter().map(|(step, item)| (step.as_str(), *item)).collect();
    let wanted: BTreeSet<&str> = news.iter().map(|(step, _)| step.as_str()).collect();
    let mut shared =
        news.iter().map(|(step, _)| step).filter(|it| before.contains_key(it.as_str()));
    let mut next_shared = shared.next();
    let mut placed = BTreeSet::new();
    let mut merged = Vec::with_capacity(olds.len() + news.len());
    let (mut at_old, mut at_new) = (0, 0);
    while at_old < olds.len() || at_new < news.len() {
        let (left, right) = (olds.get(at_old), news.get(at_new));
        if let Some((step, item)) = left {
            let is_next = right.is_some_and(|(other, _)| other == step);
            if !wanted.contains(step.as_str()) {
                merged.push((*item).clone());
                at_old += 1;
                continue;
            }
            let later = right.is_some() && next_shared.is_some_and(|next| next != step);
            if !is_next && (later || placed.contains(step.as_str())) {
                at_old += 1;
                continue;
            }
            at_old += usize::from(is_next);
        }
        let Some((step, item)) = right else { break };
        merged.push(match before.get(step.as_str()) {
            Some(old) => merge(inner, old, item),
            None => (*item).clone(),
        });
        placed.insert(step.as_str());
        at_new += 1;
        if next_shared == Some(step) {
            next_shared = shared.next();
        }
    }
    merged
}

/// The value without the fields of a set; nothing if nothing is left.
pub(super) fn remove(of: &Type, value: &Value, gone: &FieldSet) -> Option<Value> {
    let kept = |inner: &Type, value: &Value, step: &str| match gone.children.get(step) {
        None => Some(value.clone()),
        Some(below) if below.member => None,
        Some(below) => remove(inner, value, below),
    };
    match of.form(value) {
        Form::Leaf => Some(value.clone()),
        Form::List(items, inner) => {
            let list = value.as_array().into_iter().flatten();
            let left: Vec<Value> = list
                .filter_map(|item| match step(items, item) {
                    Ok(step) => kept(inner, item, &step),
                    Err(_) => Some(item.clone()),
                })
                .collect();
            (!left.is_empty()).then_some(Value::Array(left))
        }
        Form::Fields(fields) => {
            let all = value.as_object().into_iter().flatten();
            let left: Map<String, Value> = all
                .filter_map(|(name, value)| {
                    let value = kept(fields.field(name).0, value, &field_step(name))?;
                    Some((name.clone(), value))
                })
                .collect();
            (!left.is_empty()).then_some(Value::Object(left))
        }
    }
}

/// The set, with every structure that has a field in the set.
pub(super) fn with_structures(of: &Type, set: &FieldSet) -> FieldSet {
    let children = set.children.iter().map(|(step, below)| {
        let name = step.strip_prefix("f:");
        let (inner, known) = match (of.resolved(), name) {
            (Type::Fields(fields), Some(name)) => fields.field(name),
            (Type::List(_, inner), None) => (&**inner, false),
            _ => (&Type::Deduced, false),
        };
        let mut below = with_structures(inner, below);
        below.member |= known;
        (step.clone(), below)
    });
    FieldSet { member: set.member, children: children.collect() }
}

/// The set in the types of now: what is one value today is owned as a whole by who owned a part of it.
pub(super) fn settle(of: &Type, set: &mut FieldSet) {
    if set.children.is_empty() {
        return;
    }
    match of.resolved() {
        Type::List(Items::Atomic, _) => *set = FieldSet { member: true, ..FieldSet::default() },
        Type::Fields(fields) if fields.atomic => {
            *set = FieldSet { member: true, ..FieldSet::default() };
        }
        Type::Fields(fields) => {
            for (step, below) in &mut set.children {
                settle(fields.field(step.strip_prefix("f:").unwrap_or_default()).0, below);
            }
        }
        Type::List(_, inner) => set.children.values_mut().for_each(|below| settle(inner, below)),
        Type::Scalar(_) | Type::Deduced | Type::Named(_) => {}
    }
}

/// The type errors of an applied value, with their paths.
pub(super) fn check(of: &Type, value: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    check_at(of, value, &mut String::new(), &mut errors);
    errors
}

/// Errors that are told: Kubernetes tells as many.
const MOST_ERRORS: usize = 10;

fn note(errors: &mut Vec<String>, path: &str, what: &str) {
    if errors.len() < MOST_ERRORS {
        errors.push(if path.is_empty() { what.to_owned() } else { format!("{path}: {what}") });
    }
}

fn check_at(of: &Type, value: &Value, path: &mut String, errors: &mut Vec<String>) {
    match (of.resolved(), value) {
        (_, Value::Null) | (Type::Deduced | Type::Named(_), _) => {}
        (Type::Scalar(scalar), value) => {
            let (fits, name) = match scalar {
                Scalar::Text => (value.is_string(), "string"),
                Scalar::Number => (value.is_number(), "numeric (int or float)"),
                Scalar::Flag => (value.is_boolean(), "boolean"),
                Scalar::Any => (!value.is_object() && !value.is_array(), "scalar"),
            };
            if !fits {
                let found = match scalar {
                    Scalar::Number => go_type(value).to_owned(),
                    Scalar::Text => format!("&value.valueUnstructured{{Value:{}}}", go(value)),
                    Scalar::Flag | Scalar::Any => value.to_string(),
                };
                note(errors, path, &format!("expected {name}, got {found}"));
            }
        }
        (Type::List(items, inner), Value::Array(list)) => {
            check_list(items, inner, list, path, errors);
        }
        (Type::Fields(fields), Value::Object(all)) => {
            for (name, value) in all {
                let before = path.len();
                show(&field_step(name), path);
                match fields.field(name) {
                    (_, false) if fields.other.is_none() => {
                        note(errors, path, "field not declared in schema");
                    }
                    (inner, _) => check_at(inner, value, path, errors),
                }
                path.truncate(before);
            }
        }
        (Type::List(..), value) => note(errors, path, &format!("expected list, got {value}")),
        (Type::Fields(_), value) => note(errors, path, &format!("expected map, got {value}")),
    }
}

/// The name of a value's type in Go.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value in the syntax of Go. Calls itself once for each level of the value.
fn go(value: &Value) -> String {
    let parts: Vec<String> = match value {
        Value::Array(items) => items.iter().map(go).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{name:?}:{}", go(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return value.to_string();
        }
    };
    format!("{}{{{}}}", go_type(value), parts.join(", "))
}

fn check_list(
    items: &Items,
    inner: &Type,
    list: &[Value],
    path: &mut String,
    errors: &mut Vec<String>,
) {
    let mut seen = BTreeSet::new();
    for (at, item) in list.iter().enumerate() {
        let next = match items {
            Items::Atomic => format!("i:{at}"),
            Items::Set | Items::Keyed(_) => match step(items, item) {
                Ok(next) => next,
                Err(why) => return note(errors, path, &format!("element {at}: {why}")),
            },
        };
        let before = path.len();
        show(&next, path);
        if seen.insert(next) {
            check_at(inner, item, path, errors);
        } else {
            let twice = path.split_off(before);
            return note(errors, path, &format!("duplicate entries for key {twice}"));
        }
        path.truncate(before);
    }
}
