//! How the items of lists are told apart.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// How the items of a list are told apart.
#[derive(Clone, Debug)]
pub(crate) enum Items {
    /// The list is one value.
    Atomic,
    /// By their value.
    Set,
    /// By the values of these fields.
    Keyed(Vec<Key>),
}

/// A key of list items, and its default.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(super) name: String,
    pub(super) default: Option<Value>,
}

/// The step of a path that leads to an item of a list.
pub(super) fn step(items: &Items, item: &Value) -> Result<String, String> {
    let Items::Keyed(keys) = items else {
        return match item {
            Value::Array(_) | Value::Object(_) | Value::Null => {
                Err("items of a set must be plain values".to_owned())
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(format!("v:{item}")),
        };
    };
    let mut found = Map::new();
    for key in keys {
        let value = item.get(&key.name).map(Cow::Borrowed);
        let value = value.or_else(|| key.default.as_ref().map(Cow::Borrowed));
        if let Some(value) = value.filter(|value| !value.is_null()) {
            found.insert(key.name.clone(), value.into_owned());
        }
    }
    if found.is_empty() {
        let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
        let names = names.join(" ");
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{names}] (and doesn't have default values for any key fields)"
        ));
    }
    Ok(format!("k:{}", Value::Object(found)))
}
