//! Everything that a driver sent in one session, in order.

use std::sync::Arc;

use ostler_proto::v1alpha1::RegisterRequest;
use ostler_proto::v1alpha1::register_request::Frame;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::codec::Inbound;

/// No check makes a driver say more than this; one that does floods.
const ENTRIES: usize = 200_000;

/// One frame of the driver.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) at: Instant,
    pub(crate) bytes: usize,
    pub(crate) frame: Option<Frame>,
}

/// The frames of one session and how it ended.
#[derive(Debug)]
pub(crate) struct Log {
    entries: Mutex<Vec<Arc<Entry>>>,
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Default)]
struct State {
    entries: usize,
    ended: Option<String>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self { entries: Mutex::default(), state: watch::Sender::new(State::default()) }
    }

    /// Adds a frame; `false` if the driver said too much.
    pub(crate) fn push(&self, inbound: Inbound) -> bool {
        let Inbound { frame: RegisterRequest { frame }, bytes } = inbound;
        let entry = Entry { at: Instant::now(), bytes, frame };
        let mut entries = self.entries.lock();
        if entries.len() >= ENTRIES {
            return false;
        }
        entries.push(Arc::new(entry));
        let count = entries.len();
        drop(entries);
        self.state.send_modify(|state| state.entries = count);
        true
    }

    /// Nothing more will come. The first reason counts.
    pub(crate) fn end(&self, how: impl Into<String>) {
        let how = how.into();
        self.state.send_modify(|state| {
            state.ended.get_or_insert(how);
        });
    }

    /// How the session ended, if it did.
    pub(crate) fn ended(&self) -> Option<String> {
        self.state.borrow().ended.clone()
    }

    /// Waits for the end and says how it came.
    pub(crate) async fn until_ended(&self) -> String {
        let mut state = self.state.subscribe();
        let ended = state.wait_for(|state| state.ended.is_some()).await;
        ended.ok().and_then(|state| state.ended.clone()).unwrap_or_default()
    }

    /// How many frames there are: a place to look from.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// The frames from a place on.
    pub(crate) fn since(&self, from: usize) -> Vec<Arc<Entry>> {
        self.entries.lock().get(from..).unwrap_or_default().to_vec()
    }

    /// The first thing that `pick` takes, among what is there from `from` on and what comes; or how
    /// the session ended before.
    pub(crate) async fn find<T>(
        &self,
        mut from: usize,
        mut pick: impl FnMut(&Entry) -> Option<T>,
    ) -> Result<T, String> {
        let mut state = self.state.subscribe();
        loop {
            // Read before the entries, so that none is missed.
            let ended = state.borrow_and_update().ended.clone();
            for entry in self.since(from) {
                from += 1;
                if let Some(found) = pick(&entry) {
                    return Ok(found);
                }
            }
            if let Some(how) = ended {
                return Err(how);
            }
            if state.changed().await.is_err() {
                return Err("the suite dropped the session".to_owned());
            }
        }
    }
}
