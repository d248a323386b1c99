//! Who owns whom.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Deserialize;

use crate::store::{Key, Record};

pub(super) use super::super::Owner;

/// The uid of an object.
pub(super) type Uid = String;

/// The part of an object that garbage collection needs.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) key: Key,
    /// `<group>/<version>`, or the version alone in the core group.
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) owners: Vec<Owner>,
    pub(super) deleting: bool,
    pub(super) finalizers: Vec<String>,
}

impl Node {
    pub(super) fn holds(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|found| found == finalizer)
    }
}

/// An object as it is stored, as far as it matters here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: Uid,
    #[serde(default)]
    owner_references: Vec<Owner>,
    deletion_timestamp: Option<String>,
    #[serde(default)]
    finalizers: Vec<String>,
}

/// All objects and their references. As large as the number of objects, a few words each.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
    uids: BTreeMap<Key, Uid>,
    /// Owner to dependents, also for owners that are not there. By key, not by uid: uids are
    /// random, and what happens must not depend on them.
    dependents: HashMap<Uid, BTreeSet<(Key, Uid)>>,
    /// Objects that are there and cannot be read.
    unreadable: BTreeSet<Key>,
}

impl Graph {
    pub(super) fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The objects that refer to an owner, whether it is there or not.
    pub(super) fn dependents(&self, owner: &str) -> impl Iterator<Item = &Uid> {
        self.dependents.get(owner).into_iter().flatten().map(|(_, uid)| uid)
    }

    /// Starts over with `records`; every object is concerned.
    pub(super) fn reset(&mut self, records: &[Record]) -> Vec<Uid> {
        *self = Self::default();
        for record in records {
            self.put(&record.key, &record.value);
        }
        self.uids.values().cloned().collect()
    }

    /// Takes in the new state of an object and returns concerned objects: itself, its dependents if it is being
    /// deleted, its owners, which may wait for the change, and objects that waited for unreadable ones.
    pub(super) fn put(&mut self, key: &Key, value: &[u8]) -> Vec<Uid> {
        // Fields beside the metadata are skipped, however deep they nest.
        let Ok(Stored { api_version, kind, metadata }) = serde_json::from_slice(value) else {
            let concerned = self.remove(key);
            self.unreadable.insert(key.clone());
            return concerned;
        };
        let mut concerned = self.read_again(key);
        let uid = metadata.uid;
        concerned.extend(match self.uids.get(key) {
            Some(before) if *before == uid => self.disconnect(&uid),
            Some(_) => self.remove(key),
            None => Vec::new(),
        });
        for owner in &metadata.owner_references {
            let dependents = self.dependents.entry(owner.uid.clone()).or_default();
            dependents.insert((key.clone(), uid.clone()));
            concerned.push(owner.uid.clone());
        }
        let deleting = metadata.deletion_timestamp.is_some();
        if deleting {
            concerned.extend(self.dependents(&uid).cloned());
        }
        let node = Node {
            key: key.clone(),
            api_version,
            kind,
            owners: metadata.owner_references,
            deleting,
            finalizers: metadata.finalizers,
        };
        self.nodes.insert(uid.clone(), node);
        self.uids.insert(key.clone(), uid.clone());
        concerned.push(uid);
        concerned
    }

    /// Whether some object cannot be read: it may be any owner.
    pub(super) fn has_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }

    /// An object is not unreadable any more: all that have owners are concerned if it was the last one.
    fn read_again(&mut self, key: &Key) -> Vec<Uid> {
        if !self.unreadable.remove(key) || self.has_unreadable() {
            return Vec::new();
        }
        self.dependents.values().flatten().map(|(_, uid)| uid.clone()).collect()
    }

    /// Forgets an object and returns concerned objects: its dependents, its owners, and objects that waited for
    /// unreadable ones.
    pub(super) fn remove(&mut self, key: &Key) -> Vec<Uid> {
        let mut concerned = self.read_again(key);
        let Some(uid) = self.uids.remove(key) else { return concerned };
        concerned.extend(self.disconnect(&uid));
        self.nodes.remove(&uid);
        concerned.extend(self.dependents(&uid).cloned());
        concerned
    }

    /// Takes an object's references out and returns its owners.
    fn disconnect(&mut self, uid: &Uid) -> Vec<Uid> {
        let Some(node) = self.nodes.get(uid) else { return Vec::new() };
        let dependent = (node.key.clone(), uid.clone());
        let owners: Vec<Uid> = node.owners.iter().map(|owner| owner.uid.clone()).collect();
        for owner in &owners {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(&dependent);
                if dependents.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        owners
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn when_all_can_be_read_again_what_waited_for_that_is_looked_at_again() {
        let key = |name: &str| Key::new("", "configmaps", "ns", name);
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "o"});
        let owned = json!({"metadata": {"uid": "d", "ownerReferences": [owner]}}).to_string();
        let free = json!({"metadata": {"uid": "b"}}).to_string();
        let mut graph = Graph::default();
        graph.put(&key("d"), owned.as_bytes());
        for bad in ["b", "c"] {
            graph.put(&key(bad), b"damaged");
        }
        assert!(graph.remove(&key("c")).is_empty(), "one is left");
        assert_eq!(graph.put(&key("b"), free.as_bytes()), ["d", "b"]);
        graph.put(&key("c"), b"damaged");
        assert_eq!(graph.remove(&key("c")), ["d"]);
    }
}
