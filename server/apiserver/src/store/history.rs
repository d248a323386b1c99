//! Reading the past: events after a revision, and lists as they were.

use std::{collections::BTreeMap, sync::Arc};

use tokio::task::{JoinError, JoinSet};

use super::{
    Change, Event, HistoryError, Key, Page, Prefix, Record, SharedEvent, StorageError, log::Row,
    shared::Shared,
};

/// Rows read from the log in one query: enough to be quick, few enough to hold.
const BATCH: usize = 256;
/// Bytes of objects that a batch ends after: each of many readers may hold one.
const BATCH_BYTES: usize = 256 << 10;

/// The events of a range up to a revision.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) events: Vec<SharedEvent>,
    /// The events are complete up to this revision. Without events and progress there is nothing new.
    pub(super) reached: u64,
}

/// The result of a task that read history.
pub(super) fn finished(
    read: Result<Result<Batch, HistoryError>, JoinError>,
) -> Result<Batch, HistoryError> {
    read.unwrap_or(Err(HistoryError::Storage(StorageError::Closed)))
}

impl Shared {
    /// Events after `after` that lie in the range, a batch of them; none if the log has to be read for them.
    pub(super) fn events(
        &self,
        prefix: &Prefix,
        after: u64,
    ) -> Result<Option<Batch>, HistoryError> {
        let state = self.state();
        reachable(after, state.compacted)?;
        let Some(recent) = state.recent(after) else { return Ok(None) };
        let (mut batch, mut bytes) = (Batch { events: Vec::new(), reached: after }, 0);
        for event in recent {
            batch.reached = event.revision;
            if prefix.contains(&event.key) {
                bytes += event.size();
                batch.events.push(Arc::clone(event));
                if batch.events.len() == BATCH || bytes >= BATCH_BYTES {
                    break;
                }
            }
        }
        Ok(Some(batch))
    }

    /// The same from the log. It is a task of its own, and all of them take turns: whatever many readers of the past
    /// ask for, one worker at most reads for them, and does other work after each batch.
    pub(super) fn older_events(
        self: &Arc<Self>,
        prefix: &Prefix,
        after: u64,
    ) -> impl Future<Output = Result<Batch, HistoryError>> + Send + 'static {
        let (shared, prefix) = (Arc::clone(self), prefix.clone());
        async move {
            let _turn = shared.turns.acquire().await;
            let visible = shared.state().revision;
            let rows = shared.rows(after, visible)?;
            let reached = rows.last().map_or(visible, |row| row.revision);
            let rows = rows.into_iter().filter(|row| prefix.contains(&row.key));
            let events = rows.map(|row| shared.event(row)).collect::<Result<_, _>>()?;
            reachable(after, shared.state().compacted)?;
            Ok(Batch { events, reached })
        }
    }

    /// The list of a range as it was at `revision`, after a key.
    pub(super) async fn list_at(
        self: &Arc<Self>,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
        revision: u64,
    ) -> Result<Page, HistoryError> {
        // of each key the first change since
        let mut older: BTreeMap<Key, SharedEvent> = BTreeMap::new();
        let mut reached = revision;
        loop {
            {
                let state = self.state();
                reachable(revision, state.compacted)?;
                if revision > state.revision {
                    return Err(HistoryError::Future { revision, latest: state.revision });
                }
                if let Some(recent) = state.recent(reached) {
                    let since = older.values().chain(recent);
                    return Ok(state.page_before(since, prefix, after, limit, revision));
                }
            }
            let mut reading = JoinSet::new();
            reading.spawn(self.older_events(prefix, reached));
            let Some(read) = reading.join_next().await else { continue };
            let batch = finished(read)?;
            reached = batch.reached;
            for event in batch.events {
                older.entry(event.key.clone()).or_insert(event);
            }
        }
    }

    fn rows(&self, after: u64, until: u64) -> Result<Vec<Row>, HistoryError> {
        let mut rows = self.log.read(after, BATCH, BATCH_BYTES).map_err(HistoryError::Storage)?;
        rows.retain(|row| row.revision <= until);
        Ok(rows)
    }

    fn event(&self, row: Row) -> Result<SharedEvent, HistoryError> {
        let previous = self.previous(&row)?;
        Ok(Arc::new(Event { revision: row.revision, key: row.key, change: row.change, previous }))
    }

    fn previous(&self, row: &Row) -> Result<Option<Record>, HistoryError> {
        if row.previous == 0 {
            return Ok(None);
        }
        let previous = self.log.row(row.previous).map_err(HistoryError::Storage)?;
        Ok(previous.and_then(|previous| match previous.change {
            Change::Put(value) => {
                Some(Record { key: previous.key, revision: previous.revision, value })
            }
            Change::Delete(_) => None,
        }))
    }
}

fn reachable(revision: u64, compacted: u64) -> Result<(), HistoryError> {
    if revision < compacted {
        return Err(HistoryError::Compacted { revision, oldest: compacted });
    }
    Ok(())
}
