//! A small map that forgets its oldest entry.

use std::collections::VecDeque;

/// At most `limit` entries, the oldest leaves first. Linear look-up: meant for a few hundred.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    entries: VecDeque<(K, V)>,
    limit: usize,
}

impl<K: PartialEq, V> Cache<K, V> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), limit }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.entries.retain(|(known, _)| *known != key);
        if self.entries.len() >= self.limit {
            self.entries.pop_front();
        }
        self.entries.push_back((key, value));
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        self.entries.retain(|(key, value)| keep(key, value));
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::Cache;

    #[test]
    fn the_oldest_entry_leaves_when_the_cache_is_full() {
        let mut cache = Cache::new(2);
        cache.insert(1, "a");
        cache.insert(2, "b");
        cache.insert(3, "c");
        assert_eq!((cache.get(&1), cache.get(&2), cache.get(&3)), (None, Some(&"b"), Some(&"c")));
    }

    #[test]
    fn inserting_a_known_key_replaces_its_value() {
        let mut cache = Cache::new(2);
        cache.insert(1, "a");
        cache.insert(2, "b");
        cache.insert(1, "c");
        assert_eq!((cache.get(&1), cache.get(&2)), (Some(&"c"), Some(&"b")));
    }
}
