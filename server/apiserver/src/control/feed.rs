//! All objects of a range, and then its changes.

use futures::StreamExt;

use crate::store::{Change, Key, Prefix, Record, SharedEvent, Store, Watch};

/// An item of a feed.
#[derive(Debug)]
pub(crate) enum Update {
    /// Everything in the range, as it is now: first of all, and again if history was lost.
    All(Vec<Record>),
    /// One change after the last `All`.
    Change(SharedEvent),
}

impl Update {
    /// Whether it says all there is: what was known before counts no more.
    pub(crate) fn is_all(&self) -> bool {
        matches!(self, Self::All(_))
    }

    /// The objects of the update with their texts; none for a deleted object.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (&Key, Option<&[u8]>)> {
        let (records, event) = match self {
            Self::All(records) => (records.as_slice(), None),
            Self::Change(event) => (&[][..], Some(event)),
        };
        let changed = event.map(|event| match &event.change {
            Change::Put(value) => (&event.key, Some(value.as_ref())),
            Change::Delete(_) => (&event.key, None),
        });
        let listed = records.iter().map(|record| (&record.key, Some(record.value.as_ref())));
        listed.chain(changed)
    }
}

/// Follows a range of the store from its present state onwards.
#[derive(Debug)]
pub(crate) struct Feed {
    store: Store,
    prefix: Prefix,
    watch: Option<Watch>,
}

impl Feed {
    pub(crate) fn new(store: Store, prefix: Prefix) -> Self {
        Self { store, prefix, watch: None }
    }

    /// The next update; none when the store is closed. Safe to drop while it waits.
    pub(crate) async fn next(&mut self) -> Option<Update> {
        loop {
            let Some(watch) = &mut self.watch else {
                let page = self.store.list(&self.prefix, None, None);
                self.watch = self.store.watch(self.prefix.clone(), page.revision).ok();
                return Some(Update::All(page.records));
            };
            match watch.next().await? {
                Ok(event) => return Some(Update::Change(event)),
                Err(error) => {
                    tracing::debug!(%error, "history is lost, starting over");
                    self.watch = None;
                }
            }
        }
    }
}
