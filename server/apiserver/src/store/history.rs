//! Reading the past: events after a revision, and lists as they were.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Change, Event, HistoryError, Key, Page, Prefix, Record, SharedEvent, log::Row, shared::Shared,
};

/// Rows read from the log in one query: enough to be quick, few enough to hold.
const BATCH: usize = 256;

impl Shared {
    /// Events after `after` that lie in the range, at most [`BATCH`] of them, and the revision up
    /// to which they are all of them. No events and the same revision: there is nothing new.
    pub(super) fn events(
        &self,
        prefix: &Prefix,
        after: u64,
    ) -> Result<(Vec<SharedEvent>, u64), HistoryError> {
        let visible = {
            let state = self.state();
            reachable(after, state.compacted)?;
            if let Some(recent) = state.recent(after) {
                let mut reached = after;
                let mut events = Vec::new();
                for event in recent {
                    reached = event.revision;
                    if prefix.contains(&event.key) {
                        events.push(Arc::clone(event));
                        if events.len() == BATCH {
                            break;
                        }
                    }
                }
                return Ok((events, reached));
            }
            state.revision
        };
        self.older_events(prefix, after, visible)
    }

    fn older_events(
        &self,
        prefix: &Prefix,
        after: u64,
        visible: u64,
    ) -> Result<(Vec<SharedEvent>, u64), HistoryError> {
        let rows = self.rows(after, visible)?;
        let reached = rows.last().map_or(after, |row| row.revision);
        let rows = rows.into_iter().filter(|row| prefix.contains(&row.key));
        let events = rows.map(|row| self.event(row)).collect::<Result<Vec<_>, _>>()?;
        reachable(after, self.state().compacted)?;
        Ok((events, reached))
    }

    /// The list of a range as it was at `revision`, after a key.
    pub(super) fn list_at(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
        revision: u64,
    ) -> Result<Page, HistoryError> {
        let (latest, mut records) = {
            let state = self.state();
            reachable(revision, state.compacted)?;
            if revision == state.revision {
                return Ok(state.page(prefix, after, limit));
            }
            if revision > state.revision {
                return Err(HistoryError::Future { revision, latest: state.revision });
            }
            if let Some(page) = state.page_at(prefix, after, limit, revision) {
                return Ok(page);
            }
            let records: BTreeMap<Key, Record> = state
                .range(prefix, after)
                .map(|record| (record.key.clone(), record.clone()))
                .collect();
            (state.revision, records)
        };
        for row in self.first_changes(prefix, revision, latest)? {
            if after.is_some_and(|after| row.key <= *after) {
                continue;
            }
            match self.previous(&row)? {
                Some(record) => records.insert(row.key, record),
                None => records.remove(&row.key),
            };
        }
        reachable(revision, self.state().compacted)?;
        let mut rest = records.into_values();
        let records = rest.by_ref().take(limit).collect();
        Ok(Page { records, revision, remaining: rest.count() })
    }

    /// Of each key in the range that changed in (`after`, `until`], the first change.
    fn first_changes(
        &self,
        prefix: &Prefix,
        after: u64,
        until: u64,
    ) -> Result<Vec<Row>, HistoryError> {
        let mut first: BTreeMap<Key, Row> = BTreeMap::new();
        let mut reached = after;
        while reached < until {
            let rows = self.rows(reached, until)?;
            let Some(last) = rows.last() else { break };
            reached = last.revision;
            for row in rows.into_iter().filter(|row| prefix.contains(&row.key)) {
                first.entry(row.key.clone()).or_insert(row);
            }
        }
        Ok(first.into_values().collect())
    }

    fn rows(&self, after: u64, until: u64) -> Result<Vec<Row>, HistoryError> {
        let mut rows = self.log.read(after, BATCH).map_err(HistoryError::Storage)?;
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
