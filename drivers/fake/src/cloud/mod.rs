//! The cloud: instances with tags, in memory and in a journal that outlives the process.

mod adoption;
mod bootstrap;
mod clock;
mod group;
mod groups;
mod instance;
mod journal;
mod listener;
mod outage;
mod request;
mod scaling;
mod seed;
mod state;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

pub use adoption::McmTags;
pub use bootstrap::{Bootstrap, BootstrapToken, StartupTaint, UserData};
pub use clock::Clock;
pub use group::{Group, Member, Model};
pub use groups::{Deleted, GroupLookup, NewGroup, Seen};
pub use instance::{Instance, Power, TagSet};
pub use journal::{Journal, JournalError};
pub use listener::Listener;
pub use ostler_driver_sdk::identity::{CLUSTER_TAG, Identity, MACHINE_TAG, UID_TAG};
pub use request::{Lookup, NewInstance, NotOurs, Refusal, Stopped};
pub use state::{Changes, Leftover, Record, State};

/// Where an instance of a machine is, if the machine says.
pub const ZONE_TAG: &str = "topology.kubernetes.io/zone";

/// A cloud. Clones are the same cloud.
#[derive(Debug, Clone)]
pub struct Cloud {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Mutex<Shared>,
    /// Revision of the state, for those who wait for a change.
    revision: watch::Sender<u64>,
    clock: Clock,
    synced: tokio::sync::Mutex<u64>,
}

#[derive(Debug)]
struct Shared {
    state: State,
    /// `None`: the cloud ends with the process.
    journal: Option<Journal>,
    /// Number of appends so far, which is what a sync covers.
    appends: u64,
    /// Gets every change.
    listener: Option<Listener>,
}

/// The cloud did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// It refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Its journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// It does not answer.
    #[error("the cloud does not answer")]
    Away,
}

impl Cloud {
    /// A cloud that ends with the process.
    pub fn in_memory(clock: Clock) -> Self {
        Self::new(State::default(), None, clock)
    }

    /// A cloud whose state is kept in the file at `path`.
    pub fn open(path: &Path, clock: Clock) -> Result<Self, JournalError> {
        let (journal, state) = Journal::open(path)?;
        Ok(Self::new(state, Some(journal), clock))
    }

    /// The state in the file at `path` as it is now; a driver may be writing it meanwhile.
    pub fn read(path: &Path) -> Result<State, JournalError> {
        Journal::read(path)
    }

    fn new(state: State, journal: Option<Journal>, clock: Clock) -> Self {
        let revision = watch::Sender::new(state.revision());
        let shared = Mutex::new(Shared { state, journal, appends: 0, listener: None });
        let synced = tokio::sync::Mutex::new(0);
        Self { inner: Arc::new(Inner { shared, revision, clock, synced }) }
    }

    /// From now on tells `listener` of every change by this process.
    pub fn tell(&self, listener: Listener) {
        self.inner.shared.lock().listener = Some(listener);
    }

    /// The state file, if the cloud has one. Other processes may change the file, too.
    pub fn state_file(&self) -> Option<PathBuf> {
        self.inner.shared.lock().journal.as_ref().map(Journal::path)
    }

    /// The cloud's clock.
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Becomes ready whenever an instance has changed; the value is the revision of the state.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.inner.revision.subscribe()
    }

    /// Looks at the state as it is now.
    pub fn with<T>(&self, look: impl FnOnce(&State) -> T) -> Result<T, JournalError> {
        let mut guard = self.inner.shared.lock();
        let Shared { state, journal, .. } = &mut *guard;
        if let Some(journal) = journal {
            journal.catch_up(state)?;
        }
        let seen = look(state);
        self.announce(state);
        Ok(seen)
    }

    /// All instances, of all clusters.
    pub fn instances(&self) -> Result<Vec<Instance>, JournalError> {
        self.with(|state| state.instances().cloned().collect())
    }

    /// The instance of this id.
    pub fn instance(&self, provider_id: &str) -> Result<Option<Instance>, JournalError> {
        self.with(|state| state.instance(provider_id).cloned())
    }

    /// Lets `decide` turn the state as it is now into records, and takes them in as one change.
    pub(crate) fn transact<T>(
        &self,
        decide: impl FnOnce(&State) -> Result<(Vec<Record>, T), Refusal>,
    ) -> Result<T, CloudError> {
        let mut guard = self.inner.shared.lock();
        let shared = &mut *guard;
        if let Some(journal) = &mut shared.journal {
            journal.begin(&mut shared.state)?;
        }
        let outcome = shared.decide_and_append(decide);
        if let Some(journal) = &shared.journal {
            journal.end();
        }
        self.announce(&shared.state);
        outcome
    }

    /// Returns when every change so far is on the disk. Callers that wait at the same time share one sync.
    pub async fn durable(&self) -> Result<(), JournalError> {
        let wanted = self.inner.shared.lock().appends;
        let mut synced = self.inner.synced.lock().await;
        if *synced >= wanted {
            return Ok(());
        }
        let (appends, handle) = {
            let shared = self.inner.shared.lock();
            (shared.appends, shared.journal.as_ref().map(Journal::handle))
        };
        if let Some(handle) = handle {
            let sync = tokio::task::spawn_blocking(move || handle?.sync_data());
            let outcome = sync.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
            outcome.map_err(|source| self.sync_failed(source))?;
        }
        *synced = appends;
        Ok(())
    }

    fn sync_failed(&self, source: std::io::Error) -> JournalError {
        let path = self.state_file().unwrap_or_default();
        JournalError::Io { path, what: "sync it", source }
    }

    fn announce(&self, state: &State) {
        let revision = state.revision();
        self.inner.revision.send_if_modified(|known| {
            let changed = *known != revision;
            *known = revision;
            changed
        });
    }
}

impl Shared {
    fn decide_and_append<T>(
        &mut self,
        decide: impl FnOnce(&State) -> Result<(Vec<Record>, T), Refusal>,
    ) -> Result<T, CloudError> {
        self.answers()?;
        let (records, outcome) = decide(&self.state)?;
        if records.is_empty() {
            return Ok(outcome);
        }
        self.count_change();
        if let Some(journal) = &mut self.journal {
            journal.append(&records)?;
        }
        self.appends += 1;
        for record in records {
            if let Some(listener) = &self.listener {
                listener.hear(&record, &self.state);
            }
            self.state.apply(record);
        }
        if let Some(journal) = &mut self.journal {
            journal.rewrite_if_grown(&self.state)?;
        }
        Ok(outcome)
    }
}
