//! What the process that led before may still have sent. A new leader creates and chooses nothing before the last
//! request of that process has been answered or has run out, and before it has seen a list of what there is then.

use std::sync::Arc;
use std::time::Duration;

use ostler_api::Machine;
use ostler_lifecycle::set::controller;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::pending::Pending;
use crate::stores::{MachineIndex, Stores};
use crate::watch::ObjectName;
use crate::writes::{PATIENCE, WriteError, Writer};

/// Whether the process that led before may still have requests on their way.
#[derive(Debug)]
pub(crate) struct Predecessor {
    over_at: Instant,
    listed: Mutex<bool>,
}

impl Predecessor {
    /// At the beginning of a leadership. `is_gone`: there was none, or it had ended all its work.
    pub(crate) fn new(is_gone: bool) -> Self {
        let wait = if is_gone { Duration::ZERO } else { PATIENCE };
        Self { over_at: Instant::now() + wait, listed: Mutex::new(false) }
    }

    /// How much longer it may have requests on their way; `None`: none any more, and what it did is seen or awaited.
    /// `seen` is called for each Machine there is then.
    pub(super) async fn wait(
        &self,
        writer: &Writer,
        stores: &Stores,
        pending: &Pending,
        namespaces: &[Option<String>],
        seen: impl Fn(&Machine),
    ) -> Result<Option<Duration>, WriteError> {
        let mut listed = self.listed.lock().await;
        if *listed {
            return Ok(None);
        }
        let left = self.over_at.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Ok(Some(left));
        }
        for namespace in namespaces {
            for machine in writer.machines(namespace.as_deref()).await? {
                seen(&machine);
                await_in_cache(&machine, stores, pending);
            }
        }
        *listed = true;
        Ok(None)
    }
}

/// Awaits in the cache what the list shows.
fn await_in_cache(machine: &Arc<Machine>, stores: &Stores, pending: &Pending) {
    let Some(owner) = controller(&machine.metadata) else { return };
    if stores.machines.get(&ObjectName::of(machine.as_ref())).is_none() {
        pending.confirmed(&owner.uid, machine.name());
    }
    let cached = stores.machines.find(MachineIndex::Uid, machine.uid());
    if machine.is_deleting() && cached.iter().any(|cached| !cached.is_deleting()) {
        pending.deleted(&owner.uid, machine.uid());
    }
}
