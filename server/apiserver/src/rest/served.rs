//! The kinds that are served now.

use std::{collections::BTreeMap, fmt, sync::Arc};

use parking_lot::Mutex;

use crate::{
    kinds::{
        Registry, Resource,
        definition::{GROUP, PLURAL},
    },
    store::{Key, Prefix, Record, Store},
};

/// Keeps a [`Registry`] in step with the definitions in the store.
///
/// Asked after the write of a definition, it has read the definition: a client that sees a kind as established finds
/// the kind served. The price is a look at the definitions' revisions after any write, and a parse of each changed
/// definition.
#[derive(Clone)]
pub(crate) struct Served {
    store: Store,
    known: Arc<Mutex<Known>>,
}

struct Known {
    /// The store's revision when the definitions were last looked at.
    checked: u64,
    /// All definitions then.
    definitions: BTreeMap<Key, Definition>,
    registry: Registry,
}

/// The resources of a definition at a revision.
struct Definition {
    revision: u64,
    resources: Vec<Arc<Resource>>,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").finish_non_exhaustive()
    }
}

impl Served {
    /// Serves the built-in kinds and those defined in the store.
    pub(crate) fn new(store: Store) -> Self {
        let known =
            Known { checked: 0, definitions: BTreeMap::new(), registry: Registry::built_in() };
        Self { store, known: Arc::new(Mutex::new(known)) }
    }

    /// The kinds that are served now.
    pub(crate) fn registry(&self) -> Registry {
        let now = self.store.revision();
        let mut known = self.known.lock();
        if known.checked >= now {
            return known.registry.clone();
        }
        let page = self.store.list(&Prefix::resource(GROUP, PLURAL), None, None);
        known.take(page.records);
        known.checked = page.revision;
        known.registry.clone()
    }
}

impl Known {
    /// Follows the definitions. Only what changed is read: many may be installed one after the other.
    fn take(&mut self, records: Vec<Record>) {
        let same = |record: &Record| {
            let known = self.definitions.get(&record.key);
            known.is_some_and(|known| known.revision == record.revision)
        };
        if records.len() == self.definitions.len() && records.iter().all(same) {
            return;
        }
        let mut before = std::mem::take(&mut self.definitions);
        for record in records {
            let known = before.remove(&record.key).filter(|it| it.revision == record.revision);
            let read = || Definition {
                revision: record.revision,
                resources: Registry::defined_by(&record.readable().unwrap_or_default()),
            };
            let definition = known.unwrap_or_else(read);
            self.definitions.insert(record.key, definition);
        }
        let custom = self.definitions.values().flat_map(|it| it.resources.iter().cloned());
        self.registry = Registry::with_custom(custom);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::{Change, Expect, StoreOptions};

    async fn define(store: &Store, plural: &str, expect: Expect) -> u64 {
        let definition = json!({
            "metadata": { "name": format!("{plural}.example.com") },
            "spec": {
                "group": "example.com", "scope": "Cluster",
                "names": { "plural": plural, "kind": plural },
                "versions": [{ "name": "v1", "served": true, "storage": true }],
            },
            "status": {
                "acceptedNames": { "plural": plural, "kind": plural },
                "conditions": [{ "type": "Established", "status": "True" }],
            },
        });
        let key = Key::new(GROUP, PLURAL, "", &format!("{plural}.example.com"));
        let text = serde_json::to_vec(&definition).unwrap();
        store.write(key, expect, Change::Put(text.into())).await.unwrap()
    }

    #[tokio::test]
    async fn only_a_definition_that_changed_is_read_again() {
        let store = Store::open(StoreOptions::memory()).await.unwrap();
        let served = Served::new(store.clone());
        let of = |plural: &str| served.registry().lookup("example.com", "v1", plural).cloned();
        let revision = define(&store, "apples", Expect::Absent).await;
        let apples = of("apples").unwrap();
        define(&store, "pears", Expect::Absent).await;
        let pears = of("pears").unwrap();
        assert!(Arc::ptr_eq(&of("apples").unwrap(), &apples));

        define(&store, "apples", Expect::Revision(revision)).await;
        assert!(!Arc::ptr_eq(&of("apples").unwrap(), &apples));
        assert!(Arc::ptr_eq(&of("pears").unwrap(), &pears));

        let key = Key::new(GROUP, PLURAL, "", "apples.example.com");
        let now = store.get(&key).unwrap();
        store.write(key, Expect::Revision(now.revision), Change::Delete(now.value)).await.unwrap();
        assert!(of("apples").is_none());
        assert!(Arc::ptr_eq(&of("pears").unwrap(), &pears));
    }
}
