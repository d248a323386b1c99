//! Leader election: Leases with upstream's names and rules, so that the Go controllers and this core never act at the
//! same time: one for machines, one for sets and deployments.
//!
//! `record` decides about the write, [`Elector`] makes it. Another holder's clock is never trusted: a lease is expired
//! when it has not changed for its whole duration on *our* clock. The only shortcut is
//! [`ElectionSettings::predecessor`].
//!
//! Kept by hand: the crates for Leases know no fencing term, no predecessor, and do not say until when a lease holds.

mod elector;
mod moving;
mod record;
mod running;

pub use elector::ElectionError;
pub(crate) use elector::{Elector, Leadership};
pub(crate) use record::{Observed, Predecessor};

use std::time::Duration;

use ostler_api::names::LEADER_LEASE;

/// How leadership is acquired and kept.
#[derive(Debug, Clone)]
pub(crate) struct ElectionSettings {
    /// Its name.
    pub(crate) lease: &'static str,
    /// The Lease's namespace.
    pub(crate) namespace: String,
    /// The namespaces that are served, for people who look at the Lease.
    pub(crate) serves: String,
    /// Name of this process, never used by another process.
    pub(crate) identity: String,
    /// Identity of a process that is known to be dead, e.g. because this process now holds its exclusive lock on the
    /// data directory. The core takes this process's lease over without waiting for the expiry.
    pub(crate) predecessor: Option<String>,
    /// Take the Lease from any holder without waiting: the operator guarantees that no other process leads. This
    /// starts a new term, and the previous holder ends.
    pub(crate) take_immediately: bool,
    /// How long a lease is valid without renewal.
    pub(crate) lease_duration: Duration,
    /// The leader ends after so long without a renewal. Shorter than the duration.
    pub(crate) renew_deadline: Duration,
    /// Time between two attempts.
    pub(crate) retry_period: Duration,
}

impl ElectionSettings {
    /// Upstream's defaults: 15 s, 10 s and 2 s.
    pub(crate) fn new(namespace: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            lease: LEADER_LEASE,
            namespace: namespace.into(),
            serves: String::new(),
            identity: identity.into(),
            predecessor: None,
            take_immediately: false,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}
