//! INV-1 for running creates: one create at a time, and none before a driver looked for the result of the last one.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// For how long an operation is waited for whose session is lost. What a driver still does that was not
/// heard of for so long is unknown.
const RESUME_WINDOW: Duration = Duration::from_mins(1);
/// How long a new leader waits for drivers that return with operations of the last leader.
const ADOPTION_WINDOW: Duration = Duration::from_secs(30);

/// The creates that run.
#[derive(Debug, Default)]
pub(super) struct Creates {
    /// By UID: which drivers, since when.
    running: BTreeMap<String, Vec<(String, Instant)>>,
    /// The create that was last begun for a UID, while no driver has looked for the instance since.
    unseen: BTreeMap<String, String>,
    /// The core that leads, and since when.
    leader: Option<(String, Instant)>,
}

impl Creates {
    /// This core writes the Lease.
    pub(super) fn leads(&mut self, core: &str) {
        if self.leader.as_ref().is_none_or(|(before, _)| before != core) {
            self.leader = Some((core.to_owned(), Instant::now()));
        }
    }

    /// A driver looks for the instance of this UID.
    pub(super) fn looked(&mut self, uid: &str) {
        self.unseen.remove(uid);
    }

    /// A driver begins a create. Returns the violations.
    pub(super) fn began(&mut self, driver: &str, uid: &str, operation: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        let before = self.unseen.insert(uid.to_owned(), operation.to_owned());
        if before.is_some_and(|before| before != operation) {
            wrong.push(format!("INV-1: nobody looked before {operation}"));
        }
        let adopted = self.leader.as_ref().map(|(_, since)| *since);
        let adopted = adopted.filter(|since| since.elapsed() >= ADOPTION_WINDOW);
        let running = self.running.entry(uid.to_owned()).or_default();
        let counts = |(_, since): &(String, Instant)| {
            since.elapsed() < RESUME_WINDOW && adopted.is_none_or(|adopted| *since > adopted)
        };
        if running.iter().any(counts) {
            wrong.push(format!("INV-1: two creates at once for {uid}"));
        }
        running.push((driver.to_owned(), Instant::now()));
        wrong
    }

    /// A create ended, with an answer or with its process.
    pub(super) fn ended(&mut self, driver: &str, uid: &str) {
        if let Some(running) = self.running.get_mut(uid)
            && let Some(at) = running.iter().position(|(it, _)| it == driver)
        {
            running.remove(at);
        }
    }
}
