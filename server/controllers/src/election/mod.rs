//! Who leads: one Lease, upstream's name and rules, so that the Go controller and this one never
//! act at the same time.
//!
//! `record` decides what to write, [`Elector`] writes it. Another holder's clock is never
//! trusted: a lease is dead when it has not changed for its whole duration on *our* clock. The one
//! shortcut is [`ElectionSettings::predecessor`].

mod elector;
mod record;

pub use elector::{ElectionError, Elector, Leadership};
pub use record::Term;

use std::time::Duration;

use ostler_api::names::LEADER_LEASE as LEASE;

/// How leadership is taken and kept.
#[derive(Debug, Clone)]
pub struct ElectionSettings {
    /// Where the Lease lives: the namespace that is served.
    pub namespace: String,
    /// Name of this process, never used by another one.
    pub identity: String,
    /// Identity of a process that is known to be dead, e.g. because its exclusive lock on the data
    /// directory is ours now. Its lease is taken over without waiting for its end.
    pub predecessor: Option<String>,
    /// Take the Lease from whoever holds it, without waiting: the operator says that nobody else leads. It is a new
    /// term, and whoever held it ends.
    pub at_once: bool,
    /// For how long a lease counts that is not renewed.
    pub lease_duration: Duration,
    /// The leader gives up when it could not renew for this long. Shorter than the duration.
    pub renew_deadline: Duration,
    /// Between two attempts.
    pub retry_period: Duration,
}

impl ElectionSettings {
    /// Upstream's 15 s, 10 s and 2 s.
    pub fn new(namespace: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            identity: identity.into(),
            predecessor: None,
            at_once: false,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}
