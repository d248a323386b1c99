//! The heart of the store: commits batches to the log, then makes them visible.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard},
};

use bytes::Bytes;
use tokio::sync::{oneshot, watch};

use super::{
    Change, Event, Expect, Key, Record, WriteError,
    log::{Log, Opened, Row},
    retention::{Gauge, Retention},
    state::State,
};

/// One write that waits for its commit.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) key: Key,
    pub(super) expect: Expect,
    pub(super) change: Change,
    pub(super) reply: oneshot::Sender<Result<u64, WriteError>>,
}

/// How far the store is, as watches are told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) revision: u64,
    pub(super) closed: bool,
}

/// What the committer keeps between batches.
#[derive(Debug)]
struct Committer {
    gauge: Gauge,
    /// Set by the first failure of the log, and then for ever: what is on the disk is unknown.
    failed: Option<WriteError>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) log: Box<dyn Log>,
    pub(super) uid: uuid::Uuid,
    state: RwLock<State>,
    committer: Mutex<Committer>,
    progress: watch::Sender<Progress>,
}

/// An operation whose expectation holds, and the event it becomes.
struct Accepted {
    event: Event,
    reply: oneshot::Sender<Result<u64, WriteError>>,
}

impl Shared {
    pub(super) fn new(
        log: Box<dyn Log>,
        opened: &Opened,
        state: State,
        retention: Retention,
    ) -> Self {
        let progress = Progress { revision: state.revision, closed: false };
        let gauge = Gauge::new(retention, state.revision);
        Self {
            log,
            uid: opened.uid,
            state: RwLock::new(state),
            committer: Mutex::new(Committer { gauge, failed: None }),
            progress: watch::Sender::new(progress),
        }
    }

    pub(super) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Commits what of `batch` is as expected, in one append, then shows it to readers and
    /// answers every caller. Blocks while the log syncs.
    pub(super) fn commit(&self, batch: Vec<Operation>) {
        let mut committer = self.committer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failed) = &committer.failed {
            for operation in batch {
                answer(operation.reply, Err(failed.clone()));
            }
            return;
        }
        let (accepted, refused) = self.judge(batch);
        if let Err(error) = self.append(&accepted) {
            tracing::error!(%error, "the revision log failed, no more writes are accepted");
            let error = WriteError::Storage(Arc::new(error));
            committer.failed = Some(error.clone());
            for Accepted { reply, .. } in accepted {
                answer(reply, Err(error.clone()));
            }
        } else {
            self.publish(accepted, &mut committer.gauge);
        }
        for (reply, error) in refused {
            answer(reply, Err(error));
        }
    }

    /// Checks each operation against the state and against those before it in the batch.
    #[expect(clippy::type_complexity, reason = "two plain lists, used once")]
    fn judge(
        &self,
        batch: Vec<Operation>,
    ) -> (Vec<Accepted>, Vec<(oneshot::Sender<Result<u64, WriteError>>, WriteError)>) {
        let state = self.state();
        let mut revision = state.revision;
        let mut pending: HashMap<Key, Option<Record>> = HashMap::new();
        let (mut accepted, mut refused) = (Vec::with_capacity(batch.len()), Vec::new());
        for Operation { key, expect, change, reply } in batch {
            let current = match pending.get(&key) {
                Some(record) => record.clone(),
                None => state.get(&key).cloned(),
            };
            if !holds(expect, &change, current.as_ref()) {
                let current = current.map(|record| record.revision);
                refused.push((reply, WriteError::Conflict { current }));
                continue;
            }
            revision += 1;
            pending.insert(key.clone(), record_after(&key, revision, &change));
            let event = Event { revision, key, change, previous: current };
            accepted.push(Accepted { event, reply });
        }
        (accepted, refused)
    }

    fn append(&self, accepted: &[Accepted]) -> Result<(), super::StorageError> {
        if accepted.is_empty() {
            return Ok(());
        }
        let rows: Vec<Row> = accepted.iter().map(|accepted| row(&accepted.event)).collect();
        self.log.append(&rows)
    }

    fn publish(&self, accepted: Vec<Accepted>, gauge: &mut Gauge) {
        let Some(last) = accepted.last().map(|accepted| accepted.event.revision) else { return };
        let bytes = accepted.iter().map(|accepted| accepted.event.size()).sum::<usize>();
        let mut replies = Vec::with_capacity(accepted.len());
        {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            for Accepted { event, reply } in accepted {
                replies.push((event.revision, reply));
                state.publish(event);
            }
        }
        self.progress.send_modify(|progress| progress.revision = last);
        for (revision, reply) in replies {
            answer(reply, Ok(revision));
        }
        if let Some(target) = gauge.grown(last, bytes as u64) {
            self.compact(target);
        }
    }

    /// Forgets history up to `target`. Readers are told first, so that none trusts a row that is
    /// about to go. A failure leaves rows behind, which costs space and nothing else.
    fn compact(&self, target: u64) {
        let from = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut state.compacted, target)
        };
        if let Err(error) = self.log.compact(from, target) {
            tracing::warn!(%error, from, target, "compaction of the revision log failed");
        }
    }

    /// Refuses all further writes, ends all watches and releases the log.
    pub(super) fn close(&self) {
        let mut committer = self.committer.lock().unwrap_or_else(PoisonError::into_inner);
        committer.failed.get_or_insert(WriteError::Closed);
        self.progress.send_modify(|progress| progress.closed = true);
        self.log.close();
    }
}

fn holds(expect: Expect, change: &Change, current: Option<&Record>) -> bool {
    match (expect, current) {
        (Expect::Absent, None) => matches!(change, Change::Put(_)),
        (Expect::Revision(expected), Some(record)) => record.revision == expected,
        (Expect::Absent, Some(_)) | (Expect::Revision(_), None) => false,
    }
}

fn record_after(key: &Key, revision: u64, change: &Change) -> Option<Record> {
    match change {
        Change::Put(value) => {
            Some(Record { key: key.clone(), revision, value: Bytes::clone(value) })
        }
        Change::Delete(_) => None,
    }
}

fn row(event: &Event) -> Row {
    Row {
        revision: event.revision,
        previous: event.previous.as_ref().map_or(0, |record| record.revision),
        key: event.key.clone(),
        change: event.change.clone(),
    }
}

/// A caller that no longer waits has given up its answer; its write is done all the same.
fn answer(reply: oneshot::Sender<Result<u64, WriteError>>, result: Result<u64, WriteError>) {
    reply.send(result).ok();
}
