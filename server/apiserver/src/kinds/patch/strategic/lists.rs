//! Merging lists: items by key or by value, and the order in which they end up.
//!
//! The order is that of the patch for what the patch names, that of the server for the rest; where
//! nothing relates the two, items of the patch come first.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{DIRECTIVE, ORDER, StrategicError, keys::rule, merge_map, without_directives};
use crate::kinds::schema::catalogue;

/// Items that a list and what is merged into it may have together: each is compared with each. No list that is
/// merged has more than some hundreds.
const MOST_ITEMS: usize = 4000;

fn check_count(lists: &[&[Value]]) -> Result<(), StrategicError> {
    let items = lists.iter().map(|list| list.len()).sum();
    if items > MOST_ITEMS { Err(StrategicError::TooManyItems { items }) } else { Ok(()) }
}

/// Merges the items of a patch into a list.
pub(super) fn merge(
    original: &[Value],
    patch: Vec<Value>,
    key: &str,
    type_name: Option<&str>,
) -> Result<Vec<Value>, StrategicError> {
    check_count(&[original, &patch])?;
    if key.is_empty() {
        let mut merged: Vec<Value> = Vec::new();
        for value in original.iter().chain(&patch) {
            if !merged.contains(value) {
                merged.push(value.clone());
            }
        }
        return Ok(arranged(merged, &patch, original, key));
    }
    let mut kept = original.to_vec();
    let (plain, replaces) = apply_item_directives(&mut kept, patch, key)?;
    if replaces {
        return Ok(plain.into_iter().map(without_directives).collect());
    }
    let server = kept.clone();
    for item in &plain {
        let id = id_of(item, key)?;
        match kept.iter_mut().find(|one| one.get(key) == Some(&id)) {
            Some(Value::Object(fields)) => {
                merge_map(fields, item.as_object().cloned().unwrap_or_default(), type_name)?;
            }
            Some(_) | None => kept.push(without_directives(item.clone())),
        }
    }
    Ok(arranged(kept, &plain, &server, key))
}

fn id_of(item: &Value, key: &str) -> Result<Value, StrategicError> {
    item.get(key)
        .cloned()
        .ok_or_else(|| StrategicError::NoMergeKey { item: item.to_string(), key: key.to_owned() })
}

/// Carries out `$patch` of single items; returns the other items, and whether they replace all.
fn apply_item_directives(
    kept: &mut Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, bool), StrategicError> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut replaces = false;
    for item in patch {
        let Some(directive) = item.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let id = id_of(&item, key)?;
                kept.retain(|one| one.get(key) != Some(&id));
            }
            Some("replace") => replaces = true,
            _ => return Err(StrategicError::UnknownDirective(directive.to_string())),
        }
    }
    Ok((plain, replaces))
}

/// Carries out `$setElementOrder` together with the patch of the same list, which is taken out.
pub(super) fn order(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    type_name: Option<&str>,
) -> Result<(), StrategicError> {
    let names: Vec<String> =
        patch.keys().filter_map(|name| name.strip_prefix(ORDER)).map(str::to_owned).collect();
    for name in names {
        let Some(Value::Array(wanted)) = patch.remove(&format!("{ORDER}{name}")) else {
            return Err(StrategicError::ElementOrder);
        };
        let rule = type_name.map_or(super::Rule::ATOMIC, |owner| rule(owner, &name));
        let inner = type_name.and_then(|owner| catalogue::type_of_field(owner, &name));
        let change = match patch.remove(&name) {
            Some(Value::Array(items)) => Some(items),
            Some(Value::Null) => {
                original.remove(&name);
                continue;
            }
            Some(_) => return Err(StrategicError::ElementOrder),
            None => None,
        };
        let server = original.get(&name).and_then(Value::as_array).cloned();
        let (here, sent) = (server.as_deref(), change.as_deref());
        check_count(&[&wanted, here.unwrap_or_default(), sent.unwrap_or_default()])?;
        if let Some(items) = &change {
            all_ordered(items, &wanted, rule.key)?;
        }
        let merged = match (&server, change) {
            (Some(server), None) => server.clone(),
            (Some(server), Some(items)) if rule.merges => merge(server, items, rule.key, inner)?,
            (_, Some(items)) => items.into_iter().map(without_directives).collect(),
            (None, None) => continue,
        };
        let server = server.unwrap_or_default();
        original.insert(name, Value::Array(arranged(merged, &wanted, &server, rule.key)));
    }
    Ok(())
}

/// An order must name all items of the patch that it goes with.
fn all_ordered(items: &[Value], wanted: &[Value], key: &str) -> Result<(), StrategicError> {
    let plain = items.iter().filter(|item| item.get(DIRECTIVE).is_none());
    for item in plain {
        if position(wanted, item, key).is_none() {
            return Err(StrategicError::ElementOrder);
        }
    }
    Ok(())
}

/// Removes values from a list of plain values.
pub(super) fn delete_values(
    original: &mut Map<String, Value>,
    list: &str,
    values: &Value,
) -> Result<(), StrategicError> {
    let values = values.as_array().ok_or(StrategicError::PrimitiveList)?;
    if let Some(items) = original.get_mut(list).and_then(Value::as_array_mut) {
        let values: HashSet<String> = values.iter().map(Value::to_string).collect();
        items.retain(|item| !values.contains(&item.to_string()));
    }
    Ok(())
}

fn same(a: &Value, b: &Value, key: &str) -> bool {
    if key.is_empty() { a == b } else { a.get(key).is_some() && a.get(key) == b.get(key) }
}

fn position(list: &[Value], item: &Value, key: &str) -> Option<usize> {
    list.iter().position(|one| same(one, item, key))
}

/// Puts `items` into the order of the patch and, for what the patch does not name, of the server.
fn arranged(items: Vec<Value>, patch: &[Value], server: &[Value], key: &str) -> Vec<Value> {
    let (mut named, mut rest): (Vec<Value>, Vec<Value>) =
        items.into_iter().partition(|item| position(patch, item, key).is_some());
    named.sort_by_cached_key(|item| position(patch, item, key));
    rest.sort_by_cached_key(|item| position(server, item, key));
    let mut named = named.into_iter().peekable();
    let mut all = Vec::new();
    for item in rest {
        let own = position(server, &item, key);
        let precedes = |other: &Value| match (own, position(server, other, key)) {
            (Some(own), Some(other)) => own < other,
            _ => false,
        };
        while let Some(other) = named.next_if(|other| !precedes(other)) {
            all.push(other);
        }
        all.push(item);
    }
    all.extend(named);
    all
}
