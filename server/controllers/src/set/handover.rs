//! Requests that the former leader may still have sent. A new leader creates and chooses nothing before the last
//! request of the former leader has been answered or has run out, and before a list of the objects after that.

use std::sync::Arc;
use std::time::Duration;

use ostler_api::Machine;
use ostler_lifecycle::owner::{controller, is_in_reserve};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::pending::Pending;
use crate::client::{PATIENCE, WriteError, Writer};
use crate::election::Predecessor;
use crate::stores::{MachineIndex, Stores};
use crate::watch::{Found, ObjectName};

/// The beginning of a leadership.
#[derive(Debug)]
pub(crate) struct Handover {
    /// When the last request of the process that led before is over.
    over_at: Instant,
    listed: Mutex<bool>,
}

/// The stage of a handover.
#[derive(Debug)]
pub(crate) enum Stage<'a> {
    /// Requests may still arrive for so long.
    Wait(Duration),
    /// No requests any more: the former leader's writes have to be listed, and the flag set to true.
    List(MutexGuard<'a, bool>),
    /// The list was made.
    Over,
}

impl Handover {
    /// Now.
    pub(crate) fn new(predecessor: Predecessor) -> Self {
        let wait = match predecessor {
            Predecessor::None | Predecessor::Ended => Duration::ZERO,
            Predecessor::MayAct => PATIENCE,
        };
        Self { over_at: Instant::now() + wait, listed: Mutex::new(false) }
    }

    /// A finished handover.
    #[cfg(test)]
    pub(crate) fn over() -> Self {
        Self { over_at: Instant::now(), listed: Mutex::new(true) }
    }

    /// Whether the former process may still have requests on their way, or its writes have to be listed first.
    pub(crate) async fn stage(&self) -> Stage<'_> {
        let listed = self.listed.lock().await;
        let left = self.over_at.saturating_duration_since(Instant::now());
        if *listed {
            Stage::Over
        } else if left.is_zero() {
            Stage::List(listed)
        } else {
            Stage::Wait(left)
        }
    }

    /// How much longer the process that led before may have requests on their way; `None`: none any more, and `seen` was
    /// called for the Machines that there were then.
    pub(crate) async fn wait(
        &self,
        writer: &Writer,
        namespaces: &[Option<String>],
        seen: impl Fn(&Found<Machine>),
    ) -> Result<Option<Duration>, WriteError> {
        let mut listed = match self.stage().await {
            Stage::Over => return Ok(None),
            Stage::Wait(left) => return Ok(Some(left)),
            Stage::List(listed) => listed,
        };
        for namespace in namespaces {
            // By the cache, an unreadable Machine holds up the sets and pools of its namespace.
            seen(&writer.all(namespace.as_deref()).await?);
        }
        *listed = true;
        Ok(None)
    }
}

/// Awaits in the cache what the list shows.
pub(crate) fn await_in_cache(machine: &Arc<Machine>, stores: &Stores, pending: &Pending) {
    let Some(owner) = controller(&machine.metadata) else { return };
    if stores.machines.get(&ObjectName::of(machine.as_ref())).is_none() {
        pending.confirmed(&owner.uid, machine.name());
    }
    let cached = stores.machines.find(MachineIndex::Uid, machine.uid());
    if !is_in_reserve(&machine.metadata) && cached.iter().any(|it| is_in_reserve(&it.metadata)) {
        // The process before took it.
        pending.takes(&owner.uid, machine.name());
    }
    if machine.is_deleting() && cached.iter().any(|cached| !cached.is_deleting()) {
        pending.deleted(&owner.uid, machine.uid());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Bench;

    #[tokio::test(start_paused = true)]
    async fn a_new_leader_waits_until_the_last_requests_of_the_one_before_have_ended() {
        let bench = Bench::new();
        let wait =
            async |handover: &Handover| handover.wait(&bench.writer(), &[None], |_| {}).await;
        let one = Handover::new(Predecessor::MayAct);
        assert!(matches!(wait(&one).await, Ok(Some(PATIENCE))));
        tokio::time::advance(PATIENCE / 2).await;
        assert!(matches!(wait(&one).await, Ok(Some(left)) if left == PATIENCE / 2));
        tokio::time::advance(PATIENCE / 2).await;
        // The process lists now, and waits until a list succeeds.
        assert!(wait(&one).await.is_err());
        let none = Handover::new(Predecessor::None);
        assert!(wait(&none).await.is_err(), "there was none to wait for");
    }
}
