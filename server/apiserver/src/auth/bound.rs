//! Which secrets and config maps the pods of which node refer to: an index over all pods, brought up
//! to date by what changed since it was asked last.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    kinds::access::text,
    store::{Change, Key, Prefix, Store},
};

use super::node::{Bindings, references};

/// Bindings of pods and other objects to nodes, from the store. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    store: Store,
    index: Arc<Mutex<Index>>,
}

/// A secret or config map: its resource, namespace and name.
type Thing = (&'static str, String, String);

/// Holds an entry for each reference of a pod that is bound, and so no more than the pods do.
#[derive(Debug, Default)]
struct Index {
    /// The revision up to which all is in it; none before it is first asked.
    reached: Option<u64>,
    pods: HashMap<Key, (Arc<str>, Vec<Thing>)>,
    /// How many pods of each node refer to a thing.
    users: HashMap<Thing, HashMap<Arc<str>, usize>>,
    /// Number of pods that were parsed, as a measure of work.
    parsed: u64,
}

/// Of a pod only this is read.
#[derive(Deserialize)]
struct Pod {
    #[serde(default)]
    spec: Value,
}

impl Bound {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, index: Arc::default() }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        let mut index = self.index.lock();
        index.catch_up(&self.store);
        index
    }
}

impl Index {
    fn catch_up(&mut self, store: &Store) {
        let pods = Prefix::resource("", "pods");
        let recent = self.reached.and_then(|reached| store.recent(&pods, reached));
        let Some((events, reached)) = recent else {
            let page = store.list(&pods, None, None);
            *self = Self { parsed: self.parsed, ..Self::default() };
            for record in &page.records {
                self.put(&record.key, &record.value);
            }
            self.reached = Some(page.revision);
            return;
        };
        // of a pod that changed often only the last state counts
        let last: HashMap<&Key, &Change> =
            events.iter().map(|event| (&event.key, &event.change)).collect();
        for (key, change) in last {
            match change {
                Change::Put(value) => self.put(key, value),
                Change::Delete(_) => self.remove(key),
            }
        }
        self.reached = Some(reached);
    }

    fn put(&mut self, key: &Key, value: &[u8]) {
        self.remove(key);
        self.parsed += 1;
        let Ok(Pod { spec }) = serde_json::from_slice(value) else {
            tracing::error!(%key, "a stored pod cannot be read: its node gets nothing by it");
            return;
        };
        let node: Arc<str> = text(&spec, "/nodeName").into();
        if node.is_empty() {
            return;
        }
        let things: BTreeSet<Thing> = ["secrets", "configmaps"]
            .into_iter()
            .flat_map(|resource| {
                references(&spec, resource).into_iter().map(move |name| (resource, name))
            })
            .map(|(resource, name)| (resource, key.namespace().to_owned(), name.to_owned()))
            .collect();
        for thing in &things {
            *self.users.entry(thing.clone()).or_default().entry(Arc::clone(&node)).or_default() +=
                1;
        }
        if !things.is_empty() {
            self.pods.insert(key.clone(), (node, things.into_iter().collect()));
        }
    }

    fn remove(&mut self, key: &Key) {
        let Some((node, things)) = self.pods.remove(key) else { return };
        for thing in things {
            let Some(nodes) = self.users.get_mut(&thing) else { continue };
            if let Some(count) = nodes.get_mut(&node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&node);
                }
            }
            if nodes.is_empty() {
                self.users.remove(&thing);
            }
        }
    }
}

impl Bindings for Bound {
    fn node_of_pod(&self, namespace: &str, pod: &str) -> Option<String> {
        let object = self.store.get(&Key::new("", "pods", namespace, pod))?.readable()?;
        let node = text(&object, "/spec/nodeName");
        (!node.is_empty()).then(|| node.to_owned())
    }

    fn is_used(&self, node: &str, namespace: &str, resource: &str, name: &str) -> bool {
        let resource = if resource == "secrets" { "secrets" } else { "configmaps" };
        let thing = (resource, namespace.to_owned(), name.to_owned());
        !namespace.is_empty()
            && self.index().users.get(&thing).is_some_and(|nodes| nodes.contains_key(node))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::{Expect, StoreOptions};

    async fn put(store: &Store, name: &str, node: &str, secret: &str) {
        let key = Key::new("", "pods", "default", name);
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node, "volumes": [
            {"name": "v", "secret": {"secretName": secret}}]}});
        let expect =
            store.get(&key).map_or(Expect::Absent, |record| Expect::Revision(record.revision));
        store.write(key, expect, Change::Put(pod.to_string().into())).await.unwrap();
    }

    async fn delete(store: &Store, name: &str) {
        let key = Key::new("", "pods", "default", name);
        let record = store.get(&key).unwrap();
        let expect = Expect::Revision(record.revision);
        store.write(key, expect, Change::Delete(record.value)).await.unwrap();
    }

    #[tokio::test]
    async fn each_pod_is_read_once_however_often_is_asked() {
        let store = Store::open(StoreOptions::memory()).await.unwrap();
        for number in 0..4000 {
            put(&store, &format!("p{number}"), &format!("n{}", number % 40), "key").await;
        }
        let bound = Bound::new(store.clone());
        for _ in 0..1000 {
            assert!(bound.is_used("n7", "default", "secrets", "key"));
            assert!(!bound.is_used("n7", "default", "secrets", "other"));
        }
        assert_eq!(bound.index().parsed, 4000);
        put(&store, "p1", "n1", "other").await;
        assert!(bound.is_used("n1", "default", "secrets", "other"));
        assert_eq!(bound.index().parsed, 4001);
    }

    #[tokio::test]
    async fn a_reference_lasts_as_long_as_one_pod_of_the_node_has_it() {
        let store = Store::open(StoreOptions::memory()).await.unwrap();
        let bound = Bound::new(store.clone());
        let used = |node: &str, secret: &str| bound.is_used(node, "default", "secrets", secret);
        assert!(!used("n1", "key"));
        put(&store, "a", "n1", "key").await;
        put(&store, "b", "n1", "key").await;
        put(&store, "free", "", "loose").await;
        assert!(used("n1", "key") && !used("n2", "key") && !used("", "loose"));
        assert!(!bound.is_used("n1", "other", "secrets", "key"));
        assert!(!bound.is_used("n1", "default", "configmaps", "key"));
        delete(&store, "a").await;
        assert!(used("n1", "key"), "b has it yet");
        put(&store, "b", "n2", "key").await;
        assert!(!used("n1", "key") && used("n2", "key"));
        delete(&store, "b").await;
        assert!(!used("n2", "key"));
        assert!(bound.index().users.is_empty() && bound.index().pods.is_empty());
    }

    #[tokio::test]
    async fn an_index_that_was_not_asked_for_long_begins_anew() {
        let store = Store::open(StoreOptions::memory()).await.unwrap();
        put(&store, "a", "n1", "key").await;
        let bound = Bound::new(store.clone());
        assert!(bound.is_used("n1", "default", "secrets", "key"));
        delete(&store, "a").await;
        for _ in 0..9000 {
            put(&store, "b", "n1", "other").await;
        }
        assert!(!bound.is_used("n1", "default", "secrets", "key"));
        assert!(bound.is_used("n1", "default", "secrets", "other"));
        assert_eq!(bound.index().parsed, 2, "not once for each change");
    }
}
