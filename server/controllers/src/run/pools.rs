//! The start of pools and of the reads of their groups.

use std::sync::Arc;
use std::time::Duration;

use ostler_api::operation::Term;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Core;
use crate::fleet::Fleet;
use crate::handover::Handover;
use crate::kind;
use crate::pool::{GroupReads, Pools, Running};

impl Core {
    pub(super) fn start_pools(
        &self,
        term: Term,
        workers: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) {
        let (shared, metrics) = (&self.kinds.pools.own, &self.reconcile_metrics);
        // Another process may have led meanwhile.
        shared.groups.clear();
        let pools = Arc::new(Pools {
            tools: self.tools(),
            groups: Arc::clone(&shared.groups),
            reads: Arc::clone(&shared.reads),
            configs: Arc::clone(&self.configs),
            handover: Handover::new(Duration::ZERO),
            term,
        });
        let (queue, machines) = (&self.kinds.pools.queue, &self.kinds.machines.queue);
        let reads = Arc::new(GroupReads {
            pools: Arc::clone(&pools),
            left: shared.left.clone(),
            woken: (Arc::clone(queue), Arc::clone(machines)),
            running: Running::default(),
        });
        kind::work(Arc::new(Fleet(pools)), queue, metrics, workers, stop);
        kind::work(reads, &shared.reads, metrics, workers, stop);
    }
}
