//! Objects of the shared watches, by reader.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Values by reader and id. Holds what exists in the cluster and no more, as a watch cache does.
#[derive(Debug)]
pub(super) struct KeyedCache<V> {
    inner: Mutex<Inner<V>>,
}

#[derive(Debug)]
struct Inner<V> {
    entries: HashMap<String, BTreeMap<String, V>>,
    readers: HashMap<String, Vec<Arc<Notify>>>,
}

impl<V: Clone> KeyedCache<V> {
    pub(super) fn new() -> Self {
        let inner = Inner { entries: HashMap::new(), readers: HashMap::new() };
        Self { inner: Mutex::new(inner) }
    }

    /// Reads what is for `key` from now on.
    pub(super) fn subscribe(self: &Arc<Self>, key: &str) -> Subscription<V> {
        let notify = Arc::new(Notify::new());
        self.inner.lock().readers.entry(key.to_owned()).or_default().push(Arc::clone(&notify));
        Subscription { cache: Arc::clone(self), key: key.to_owned(), notify }
    }

    pub(super) fn set(&self, key: &str, id: &str, value: V) {
        let mut inner = self.inner.lock();
        inner.entries.entry(key.to_owned()).or_default().insert(id.to_owned(), value);
        inner.wake(key);
    }

    pub(super) fn remove(&self, key: &str, id: &str) {
        let mut inner = self.inner.lock();
        if let Some(values) = inner.entries.get_mut(key) {
            values.remove(id);
            if values.is_empty() {
                inner.entries.remove(key);
            }
        }
        inner.wake(key);
    }

    /// Puts this in place of everything, after a watch began anew.
    pub(super) fn replace(&self, all: Vec<(String, String, V)>) {
        let mut inner = self.inner.lock();
        inner.entries.clear();
        for (key, id, value) in all {
            inner.entries.entry(key).or_default().insert(id, value);
        }
        for reader in inner.readers.values().flatten() {
            reader.notify_one();
        }
    }
}

impl<V> Inner<V> {
    fn wake(&self, key: &str) {
        for reader in self.readers.get(key).into_iter().flatten() {
            reader.notify_one();
        }
    }
}

/// A reader of one key.
#[derive(Debug)]
pub(super) struct Subscription<V: Clone> {
    cache: Arc<KeyedCache<V>>,
    key: String,
    notify: Arc<Notify>,
}

impl<V: Clone> Subscription<V> {
    /// The current values.
    pub(super) fn values(&self) -> Vec<V> {
        let inner = self.cache.inner.lock();
        inner.entries.get(&self.key).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Returns when something changed since the last return.
    pub(super) async fn changed(&self) {
        self.notify.notified().await;
    }
}

impl<V: Clone> Drop for Subscription<V> {
    fn drop(&mut self) {
        let mut inner = self.cache.inner.lock();
        if let Some(readers) = inner.readers.get_mut(&self.key) {
            readers.retain(|reader| !Arc::ptr_eq(reader, &self.notify));
            if readers.is_empty() {
                inner.readers.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_wakes_for_its_key_and_sees_what_was_there_before_it_came() {
        let cache = Arc::new(KeyedCache::new());
        cache.set("a", "1", 10);
        let reader = cache.subscribe("a");
        assert_eq!(reader.values(), [10]);
        cache.set("b", "1", 30);
        cache.set("a", "2", 20);
        reader.changed().await;
        assert_eq!(reader.values(), [10, 20]);
        cache.remove("a", "1");
        reader.changed().await;
        cache.replace(vec![("a".into(), "3".into(), 40)]);
        reader.changed().await;
        assert_eq!(reader.values(), [40]);
    }

    #[tokio::test]
    async fn all_readers_of_a_key_wake() {
        let cache = Arc::new(KeyedCache::new());
        let (first, second) = (cache.subscribe("a"), cache.subscribe("a"));
        cache.set("a", "1", 10);
        first.changed().await;
        second.changed().await;
    }

    #[test]
    fn nothing_is_kept_for_readers_that_are_gone() {
        let cache = Arc::new(KeyedCache::<u8>::new());
        let (first, second) = (cache.subscribe("a"), cache.subscribe("a"));
        drop(first);
        assert_eq!(cache.inner.lock().readers["a"].len(), 1);
        drop(second);
        assert!(cache.inner.lock().readers.is_empty());
    }
}
