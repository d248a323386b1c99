//! The heart of the store: commits batches to the log, then makes them visible.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::{Semaphore, oneshot, watch};

use super::{
    Change, Event, Expect, Key, Record, StorageError, WriteError,
    log::{Log, Opened, Row},
    retention::{Gauge, Retention},
    state::State,
};

/// Operations that one append and one sync carry at most: bounds what a commit holds in memory
/// and how long the last of them waits.
pub(super) const BATCH: usize = 256;

/// A write before the commit.
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

/// Whether a store can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It can.
    Good,
    /// The disk is full. Reads go on; each write and each look at the health of the server
    /// makes the store try again, at most once a second.
    Failing(Arc<str>),
    /// The disk failed for good, or what is on it is not what was written: the process must end.
    Failed(Arc<str>),
}

/// How long the store lets a disk be that refused: opening it anew reads all of it.
const PAUSE: Duration = Duration::from_secs(1);

/// Why nothing is written now.
#[derive(Debug)]
enum Stopped {
    Closed,
    Failed { error: Arc<StorageError>, again: Instant },
}

/// The state of the committer between batches.
#[derive(Debug)]
struct Committer {
    gauge: Gauge,
    stopped: Option<Stopped>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) log: Box<dyn Log>,
    pub(super) uid: uuid::Uuid,
    /// Turns of readers of history that is not in memory.
    pub(super) turns: Semaphore,
    state: RwLock<State>,
    committer: Mutex<Committer>,
    progress: watch::Sender<Progress>,
    health: watch::Sender<Health>,
    pause: Duration,
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
        let gauge = Gauge::new(retention, opened, state.revision);
        Self {
            log,
            uid: opened.uid,
            turns: Semaphore::new(1),
            state: RwLock::new(state),
            committer: Mutex::new(Committer { gauge, stopped: None }),
            progress: watch::Sender::new(progress),
            health: watch::Sender::new(Health::Good),
            pause: PAUSE,
        }
    }

    /// The same without a pause between attempts to repair it.
    #[cfg(test)]
    pub(super) fn without_pause(self) -> Self {
        Self { pause: Duration::ZERO, ..self }
    }

    /// The store can never be written again.
    pub(super) fn fail(&self, reason: &str) {
        self.health.send_replace(Health::Failed(reason.into()));
    }

    pub(super) fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    pub(super) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Commits what of `batch` is as expected, in one append, then shows it to readers and
    /// answers every caller. Blocks while the log syncs.
    pub(super) fn commit(&self, batch: Vec<Operation>) {
        let mut committer = self.committer.lock();
        if let Err(error) = self.usable(&mut committer) {
            for operation in batch {
                answer(operation.reply, Err(error.clone()));
            }
            return;
        }
        let (accepted, refused) = self.judge(batch);
        if let Err(error) = self.append(&accepted) {
            let error = self.stop(&mut committer, error);
            for Accepted { reply, .. } in accepted {
                answer(reply, Err(error.clone()));
            }
        } else if let Err(error) = self.publish(accepted, &mut committer.gauge) {
            self.stop(&mut committer, error);
        }
        for (reply, error) in refused {
            answer(reply, Err(error));
        }
    }

    /// Whether something can be written now, after an attempt to repair what failed if one is due.
    fn usable(&self, committer: &mut Committer) -> Result<(), WriteError> {
        let (error, again) = match &committer.stopped {
            None => return Ok(()),
            Some(Stopped::Closed) => return Err(WriteError::Closed),
            Some(Stopped::Failed { error, again }) => (error, *again),
        };
        let hopeless = matches!(*self.health.borrow(), Health::Failed(_));
        if hopeless || Instant::now() < again {
            return Err(WriteError::Storage(Arc::clone(error)));
        }
        match self.repair(&mut committer.gauge) {
            Ok(()) => {
                tracing::info!("the store can be written again");
                committer.stopped = None;
                self.health.send_replace(Health::Good);
                Ok(())
            }
            Err(error) => Err(self.stop(committer, error)),
        }
    }

    /// Notes a failure and tells who watches the health. Only a lack of space is waited for: after
    /// another failure of a sync, pages that never reached the disk are read as if they had, and what is
    /// written later would stand on them.
    fn stop(&self, committer: &mut Committer, error: StorageError) -> WriteError {
        let reason: Arc<str> = error.told().into();
        let error = Arc::new(error);
        let health = if error.is_full() {
            Health::Failing(Arc::clone(&reason))
        } else {
            Health::Failed(Arc::clone(&reason))
        };
        if *self.health.borrow() != health {
            tracing::error!(%reason, "the store cannot be written");
            self.health.send_replace(health);
        }
        let again = Instant::now() + self.pause;
        committer.stopped = Some(Stopped::Failed { error: Arc::clone(&error), again });
        WriteError::Storage(error)
    }

    /// Opens the log anew. It may contain the failed batch all the same: readers now see the rest of
    /// that batch, and the log must contain every write that readers have seen.
    fn repair(&self, gauge: &mut Gauge) -> Result<(), StorageError> {
        self.log.reopen()?;
        let (revision, compacted) = {
            let state = self.state();
            (state.revision, state.compacted)
        };
        if revision > compacted && self.log.row(revision)?.is_none() {
            return Err(StorageError::Diverged { found: "acknowledged changes are missing" });
        }
        let rows = self.log.read(revision, BATCH, usize::MAX)?;
        let events = self
            .events_of(rows, revision)
            .ok_or(StorageError::Diverged { found: "changes follow that were not made" })?;
        self.make_visible(events, gauge).map_or(Ok(()), |target| self.compact(target))
    }

    /// The events of rows that follow `revision`; none if they do not go on where the state is.
    fn events_of(&self, rows: Vec<Row>, revision: u64) -> Option<Vec<Event>> {
        let state = self.state();
        let mut pending: HashMap<Key, Option<Record>> = HashMap::new();
        let mut events = Vec::with_capacity(rows.len());
        for (row, expected) in rows.into_iter().zip(revision + 1..) {
            let Row { revision, previous: before, key, change } = row;
            let previous = match pending.get(&key) {
                Some(record) => record.clone(),
                None => state.get(&key).cloned(),
            };
            let found = previous.as_ref().map_or(0, |record| record.revision);
            if revision != expected || found != before {
                return None;
            }
            pending.insert(key.clone(), record_after(&key, revision, &change));
            events.push(Event { revision, key, change, previous });
        }
        Some(events)
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

    fn append(&self, accepted: &[Accepted]) -> Result<(), StorageError> {
        if accepted.is_empty() {
            return Ok(());
        }
        let rows: Vec<Row> = accepted.iter().map(|accepted| row(&accepted.event)).collect();
        self.log.append(&rows)
    }

    fn publish(&self, accepted: Vec<Accepted>, gauge: &mut Gauge) -> Result<(), StorageError> {
        let (events, replies): (Vec<_>, Vec<_>) = accepted
            .into_iter()
            .map(|Accepted { event, reply }| {
                let revision = event.revision;
                (event, (revision, reply))
            })
            .unzip();
        let target = self.make_visible(events, gauge);
        for (revision, reply) in replies {
            answer(reply, Ok(revision));
        }
        target.map_or(Ok(()), |target| self.compact(target))
    }

    /// Shows durable events to readers; up to where history may be forgotten then.
    fn make_visible(&self, events: Vec<Event>, gauge: &mut Gauge) -> Option<u64> {
        let last = events.last()?.revision;
        let bytes = events.iter().map(Event::size).sum::<usize>();
        {
            let mut state = self.state.write();
            for event in events {
                state.publish(event);
            }
        }
        self.progress.send_modify(|progress| progress.revision = last);
        gauge.grown(last, bytes as u64)
    }

    /// Forgets history up to `target`. Readers are told first, so that none trusts a row that is
    /// about to go. A failure leaves rows behind, which the next compaction takes.
    fn compact(&self, target: u64) -> Result<(), StorageError> {
        self.state.write().compacted = target;
        self.log.compact(target)
    }

    /// Refuses all further writes, ends all watches and releases the log.
    pub(super) fn close(&self) {
        let mut committer = self.committer.lock();
        committer.stopped = Some(Stopped::Closed);
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
