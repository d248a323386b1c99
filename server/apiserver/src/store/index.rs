//! Objects by the value of a field: who asks for the pods of one Node does not pay for those of all others.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{Key, Prefix};

/// A field that objects are found by.
#[derive(Clone, Copy, Debug)]
struct Field {
    /// The prefix of the keys.
    range: &'static str,
    /// The names of the field in selectors.
    labels: &'static [&'static str],
    value: Value,
}

/// Where the value of a field is; of what has none, it is the empty text.
#[derive(Clone, Copy, Debug)]
enum Value {
    /// In the key: it never changes.
    Key(for<'a> fn(&'a Key) -> &'a str),
    Text(for<'a> fn(&'a Text) -> &'a str),
}

/// What the core (the pods of a Node, a Machine in any namespace), kubelets (their pods) and kubectl (the events of an
/// object) ask for. A field of an event has two names, since events have two forms.
const FIELDS: [Field; 4] = [
    Field {
        range: "machine.sapcloud.io/machines/",
        labels: &["metadata.name"],
        value: Value::Key(Key::name),
    },
    Field {
        range: "/pods/",
        labels: &["spec.nodeName"],
        value: Value::Text(|it| &it.spec.node_name),
    },
    Field {
        range: "/events/",
        labels: &["involvedObject.uid", "regarding.uid"],
        value: Value::Text(|it| &it.involved_object.uid),
    },
    Field {
        range: "/events/",
        labels: &["involvedObject.name", "regarding.name"],
        value: Value::Text(|it| &it.involved_object.name),
    },
];

/// The fields of a stored text that the index reads.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Text {
    spec: Spec,
    involved_object: Involved,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: String,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Involved {
    uid: String,
    name: String,
}

/// The field, and the wanted value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    field: usize,
    value: &'a str,
}

impl<'a> Wanted<'a> {
    /// None if there is no index for this, or not for objects without a value.
    pub(super) fn of(prefix: &Prefix, label: &str, value: &'a str) -> Option<Self> {
        let is_it = |field: &Field| {
            prefix.as_str().starts_with(field.range) && field.labels.contains(&label)
        };
        let field = FIELDS.iter().position(is_it).filter(|_| !value.is_empty())?;
        Some(Self { field, value })
    }
}

/// Holds an entry for each value of each object, and so no more than the objects do.
#[derive(Debug, Default)]
pub(super) struct Index {
    found: [BTreeSet<(Box<str>, Key)>; FIELDS.len()],
    /// What cannot be read may be anything, and is among what is found by any value.
    unreadable: BTreeSet<Key>,
}

impl Index {
    /// Follows a change of an object.
    pub(super) fn change(&mut self, key: &Key, before: Option<&[u8]>, after: Option<&[u8]>) {
        let is_in = |field: &&Field| key.as_str().starts_with(field.range);
        let in_text = |field: &Field| matches!(field.value, Value::Text(_));
        if !FIELDS.iter().any(|field| is_in(&field) && in_text(field)) {
            // No text is read where no value is in it.
            if before.is_some() != after.is_some() {
                self.each(key, &Text::default(), after.is_some());
            }
            return;
        }
        let [old, new] = [before, after].map(|text| text.map(serde_json::from_slice::<Text>));
        if let (Some(Ok(old)), Some(Ok(new))) = (&old, &new)
            && old == new
        {
            return;
        }
        if let Some(old) = old {
            self.unreadable.remove(key);
            self.each(key, &old.unwrap_or_default(), false);
        }
        match new {
            Some(Ok(new)) => self.each(key, &new, true),
            Some(Err(_)) => {
                self.unreadable.insert(key.clone());
            }
            None => {}
        }
    }

    /// Adds or removes each value of an object.
    fn each(&mut self, key: &Key, text: &Text, is_there: bool) {
        for (field, values) in FIELDS.iter().zip(&mut self.found) {
            let value = match field.value {
                Value::Key(of) => of(key),
                Value::Text(of) => of(text),
            };
            if !key.as_str().starts_with(field.range) || value.is_empty() {
                continue;
            }
            let entry = (value.into(), key.clone());
            if is_there {
                values.insert(entry)
            } else {
                values.remove(&entry)
            };
        }
    }

    /// The objects of a range after a key that may have the value, in the order of their keys.
    pub(super) fn find<'a>(
        &'a self,
        wanted: Wanted<'_>,
        prefix: &Prefix,
        after: Option<&Key>,
    ) -> Vec<&'a Key> {
        let is_after = |key: &&Key| after.is_none_or(|after| *key > after);
        let first = (Box::from(wanted.value), Key::from_text(prefix.as_str()));
        let found = self.found.get(wanted.field).into_iter().flat_map(|it| it.range(&first..));
        let found = found
            .take_while(|(value, key)| **value == *wanted.value && prefix.contains(key))
            .map(|(_, key)| key);
        let unreadable = self.unreadable.iter().filter(|key| prefix.contains(key));
        let mut keys: Vec<&Key> = found.chain(unreadable).filter(is_after).collect();
        keys.sort_unstable();
        keys
    }
}
