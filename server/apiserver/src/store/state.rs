//! The state for readers: the current objects, and the recent events.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use super::{
    Change, Event, Key, Page, Prefix, Record, SharedEvent,
    index::{Index, Wanted},
};

/// Events kept in memory for watches; older ones are read from the log.
const WINDOW_EVENTS: usize = 8192;
/// Bytes of events kept in memory, so that large objects cannot make the window large.
const WINDOW_BYTES: usize = 32 << 20;

/// The visible state: everything up to and including `revision`, which is durable.
#[derive(Debug)]
pub(super) struct State {
    pub(super) revision: u64,
    /// History before this revision is gone.
    pub(super) compacted: u64,
    objects: BTreeMap<Key, Record>,
    index: Index,
    window: VecDeque<SharedEvent>,
    window_bytes: usize,
}

impl State {
    pub(super) fn new(revision: u64, compacted: u64) -> Self {
        Self {
            revision,
            compacted,
            objects: BTreeMap::new(),
            index: Index::default(),
            window: VecDeque::new(),
            window_bytes: 0,
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Record> {
        self.objects.get(key)
    }

    /// Takes over one change, without keeping an event: used while the log is loaded.
    pub(super) fn load(&mut self, revision: u64, key: &Key, change: Change) {
        self.revision = self.revision.max(revision);
        match change {
            Change::Put(value) => {
                let record = Record { key: key.clone(), revision, value: value.clone() };
                let before = self.objects.insert(key.clone(), record);
                self.index.change(key, before.as_ref().map(|it| &*it.value), Some(&value));
            }
            Change::Delete(_) => {
                let before = self.objects.remove(key);
                self.index.change(key, before.as_ref().map(|it| &*it.value), None);
            }
        }
    }

    /// Makes one committed event visible.
    pub(super) fn publish(&mut self, event: Event) {
        self.load(event.revision, &event.key, event.change.clone());
        self.window_bytes += event.size();
        self.window.push_back(Arc::new(event));
        while self.window.len() > WINDOW_EVENTS || self.window_bytes > WINDOW_BYTES {
            let Some(oldest) = self.window.pop_front() else { break };
            self.window_bytes -= oldest.size();
        }
    }

    /// The records of a range after a key.
    pub(super) fn range<'a>(
        &'a self,
        prefix: &'a Prefix,
        after: Option<&Key>,
    ) -> impl Iterator<Item = &'a Record> {
        let start = match after {
            Some(key) if key.as_str() >= prefix.as_str() => Bound::Excluded(key.as_str()),
            Some(_) | None => Bound::Included(prefix.as_str()),
        };
        self.objects
            .range::<str, _>((start, Bound::Unbounded))
            .map(|(_, record)| record)
            .take_while(|record| prefix.contains(&record.key))
    }

    pub(super) fn page(&self, prefix: &Prefix, after: Option<&Key>, limit: usize) -> Page {
        let mut rest = self.range(prefix, after);
        let records = rest.by_ref().take(limit).cloned().collect();
        Page { records, revision: self.revision, remaining: rest.count() }
    }

    /// The same as it was at a revision, before what changed since.
    pub(super) fn page_before<'a>(
        &'a self,
        since: impl Iterator<Item = &'a SharedEvent>,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
        revision: u64,
    ) -> Page {
        let mut past: BTreeMap<&Key, Option<&Record>> = BTreeMap::new();
        let is_meant = |key: &Key| prefix.contains(key) && after.is_none_or(|after| key > after);
        for event in since.filter(|event| is_meant(&event.key)) {
            past.entry(&event.key).or_insert(event.previous.as_ref());
        }
        let same = self.range(prefix, after).filter(|record| !past.contains_key(&record.key));
        let (mut same, mut other) = (same.peekable(), past.values().copied().flatten().peekable());
        let mut rest = std::iter::from_fn(|| match (same.peek(), other.peek()) {
            (Some(first), Some(second)) if first.key < second.key => same.next(),
            (_, Some(_)) => other.next(),
            (_, None) => same.next(),
        });
        let records = rest.by_ref().take(limit).cloned().collect();
        Page { records, revision, remaining: rest.count() }
    }

    /// The records of a range after a key that may have a value in a field.
    pub(super) fn found(&self, wanted: Wanted<'_>, prefix: &Prefix, after: Option<&Key>) -> Page {
        let keys = self.index.find(wanted, prefix, after);
        let records = keys.into_iter().filter_map(|key| self.objects.get(key)).cloned().collect();
        Page { records, revision: self.revision, remaining: 0 }
    }

    /// The events after a revision, oldest first; none if the window does not reach back so far.
    pub(super) fn recent(&self, after: u64) -> Option<impl Iterator<Item = &SharedEvent>> {
        let first = self.window.front().map_or(self.revision + 1, |event| event.revision);
        let skip = usize::try_from(after.saturating_add(1).checked_sub(first)?).ok()?;
        Some(self.window.iter().skip(skip))
    }
}
