//! Who commits: the caller itself for a log in memory, one thread for a log on a disk.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::{
    Backend, Change, Expect, FIRST_REVISION, Key, OpenError, Store, StoreOptions, WriteError,
    disk::DiskLog,
    log::{MemoryLog, Opened},
    retention::Retention,
    shared::{BATCH, Operation, Shared},
    state::State,
};

/// Operations that may wait for the writer; callers beyond wait before they queue.
const QUEUE: usize = 1024;

/// A message to the writer thread.
#[derive(Debug)]
pub(super) enum Message {
    Write(Operation),
    /// Try to repair what failed.
    Repair,
    Close(oneshot::Sender<()>),
}

#[derive(Clone, Debug)]
pub(super) enum Writer {
    /// Commits happen in the caller: nothing blocks, and the order is the callers' own.
    Inline,
    /// Commits happen on one thread, so that a sync blocks no runtime worker and is shared by
    /// all the writes that came while the last one went on.
    Thread(mpsc::Sender<Message>),
}

impl Writer {
    pub(super) async fn write(
        &self,
        shared: &Shared,
        key: Key,
        expect: Expect,
        change: Change,
    ) -> Result<u64, WriteError> {
        let (reply, result) = oneshot::channel();
        let operation = Operation { key, expect, change, reply };
        match self {
            Self::Inline => shared.commit(vec![operation]),
            Self::Thread(queue) => {
                let sent = queue.send(Message::Write(operation)).await;
                sent.map_err(|_| WriteError::Closed)?;
            }
        }
        result.await.unwrap_or(Err(WriteError::Closed))
    }

    /// Has the writer check whether a failed log can be written again. A full queue drops the message without harm: the
    /// next write makes the writer check, too.
    pub(super) fn repair(&self) {
        if let Self::Thread(queue) = self {
            queue.try_send(Message::Repair).ok();
        }
    }

    pub(super) async fn close(self, shared: &Shared) {
        match self {
            Self::Inline => shared.close(),
            Self::Thread(queue) => {
                let (reply, done) = oneshot::channel();
                if queue.send(Message::Close(reply)).await.is_ok() {
                    done.await.ok();
                }
            }
        }
    }
}

/// Opens the log of `options` and starts its writer.
pub(super) async fn open(options: StoreOptions) -> Result<Store, OpenError> {
    let StoreOptions { backend, retention } = options;
    match backend {
        Backend::Memory => Ok(in_memory(State::new(FIRST_REVISION, FIRST_REVISION), retention)),
        Backend::File(path) => {
            let at = path.clone();
            let opening = tokio::task::spawn_blocking(move || DiskLog::open(&at));
            let (log, opened, state) = opening.await.map_err(|error| OpenError::Io {
                path: path.clone(),
                source: std::io::Error::other(error),
            })??;
            start(Shared::new(Box::new(log), &opened, state, retention))
                .map_err(|source| OpenError::Io { path, source })
        }
    }
}

/// A store in memory with this initial state.
pub(super) fn in_memory(state: State, retention: Retention) -> Store {
    let opened = Opened { uid: uuid::Uuid::new_v4(), compacted: state.compacted, history: 0 };
    let shared = Shared::new(Box::new(MemoryLog::default()), &opened, state, retention);
    Store { shared: Arc::new(shared), writer: Writer::Inline }
}

/// Starts the writer thread of a log on a disk.
pub(super) fn start(shared: Shared) -> std::io::Result<Store> {
    let shared = Arc::new(shared);
    let (queue, messages) = mpsc::channel(QUEUE);
    let committed = Arc::clone(&shared);
    std::thread::Builder::new()
        .name("store-writer".to_owned())
        .spawn(move || run(&committed, messages))?;
    Ok(Store { shared, writer: Writer::Thread(queue) })
}

/// Says that the store has failed if the writer panics: no write is answered any more.
struct Alarm<'a>(&'a Shared);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("the writer of the store panicked");
        }
    }
}

/// Commits what waits, as one batch, until the store is closed or its last handle is gone.
fn run(shared: &Shared, mut messages: mpsc::Receiver<Message>) {
    let _alarm = Alarm(shared);
    let mut closing = None;
    while closing.is_none() {
        let Some(first) = messages.blocking_recv() else { break };
        let (mut batch, mut repair) = (Vec::new(), false);
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Write(operation) => batch.push(operation),
                Message::Repair => repair = true,
                Message::Close(reply) => closing = Some(reply),
            }
            let full = batch.len() >= BATCH || closing.is_some();
            next = if full { None } else { messages.try_recv().ok() };
        }
        if repair || !batch.is_empty() {
            shared.commit(batch);
        }
    }
    messages.close();
    shared.close();
    if let Some(reply) = closing {
        // Who closed the store may have stopped waiting; it is closed all the same.
        reply.send(()).ok();
    }
}
