//! Objects by the value of a field: who asks for the pods of one Node does not pay for those of all others.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{Key, Prefix};

/// A field that objects are found by.
#[derive(Clone, Copy, Debug)]
struct Field {
    /// What the keys of its objects begin with.
    range: &'static str,
    /// What selectors call it.
    labels: &'static [&'static str],
    /// Its value; of what has none, the empty text.
    value: for<'a> fn(&'a Key, &'a Text) -> &'a str,
}

/// What the core (the pods of a Node, a Machine in any namespace), kubelets (their pods) and kubectl (the events of an
/// object) ask for. A field of an event has two names, since events have two forms.
const FIELDS: [Field; 4] = [
    Field {
        range: "machine.sapcloud.io/machines/",
        labels: &["metadata.name"],
        value: |key, _| key.name(),
    },
    Field { range: "/pods/", labels: &["spec.nodeName"], value: |_, it| &it.spec.node_name },
    Field {
        range: "/events/",
        labels: &["involvedObject.uid", "regarding.uid"],
        value: |_, it| &it.involved_object.uid,
    },
    Field {
        range: "/events/",
        labels: &["involvedObject.name", "regarding.name"],
        value: |_, it| &it.involved_object.name,
    },
];

/// What is read of a stored text.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Text {
    spec: Spec,
    involved_object: Involved,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Involved {
    uid: String,
    name: String,
}

/// Which of the fields, and the value that is wanted.
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
        if !FIELDS.iter().any(|field| key.as_str().starts_with(field.range)) {
            return;
        }
        if let Some(before) = before {
            self.each(key, before, |values, entry| values.remove(&entry));
            self.unreadable.remove(key);
        }
        if let Some(after) = after
            && !self.each(key, after, BTreeSet::insert)
        {
            self.unreadable.insert(key.clone());
        }
    }

    /// Does something with each value of an object; false if it cannot be read.
    fn each(
        &mut self,
        key: &Key,
        text: &[u8],
        act: impl Fn(&mut BTreeSet<(Box<str>, Key)>, (Box<str>, Key)) -> bool,
    ) -> bool {
        let Ok(text) = serde_json::from_slice::<Text>(text) else { return false };
        for (field, values) in FIELDS.iter().zip(&mut self.found) {
            let value = (field.value)(key, &text);
            if key.as_str().starts_with(field.range) && !value.is_empty() {
                act(values, (value.into(), key.clone()));
            }
        }
        true
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
