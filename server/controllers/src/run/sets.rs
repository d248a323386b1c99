//! The holder of the Lease for sets runs MachineSets and MachineDeployments; the Lease has the name of
//! machine-controller-manager's. A core that runs machines too takes the Lease only while leading the machines, and
//! gives up both together; until then another process runs the sets, and the machines are not affected.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube::Client;
use ostler_api::names::SETS_LEASE;
use ostler_api::operation::Term;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::kinds::Kinds;
use super::{Core, LAST_WORK, all_ended};
use crate::bootstrap::Configs;
use crate::controllers::Controller;
use crate::deployment::Deployments;
use crate::election::{ElectionError, Elector, Leadership, Observed, Predecessor};
use crate::fleet::{Fleet, Tools};
use crate::freeze::Freezes;
use crate::handover::Handover;
use crate::kind;
use crate::metrics::{Leads, ReconcileMetrics, SetMetrics};
use crate::reserve::Reserves;
use crate::set::Sets;
use crate::triggers::Woken;

/// A leadership of the sets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetsTerm {
    /// The term, by the Lease of the sets.
    pub(crate) term: Term,
    /// The abilities left to the process that ran the sets before.
    pub(crate) predecessor: Predecessor,
}

/// Takes the Lease of the sets, and runs the controllers of the sets while holding it.
#[derive(Clone)]
pub(super) struct SetLeader {
    client: Client,
    tools: Tools,
    kinds: Arc<Kinds>,
    metrics: ReconcileMetrics,
    set_metrics: SetMetrics,
    configs: Arc<Configs>,
    leads: Leads,
}

impl Core {
    pub(super) fn sets(&self) -> SetLeader {
        SetLeader {
            client: self.client.clone(),
            tools: self.tools(),
            kinds: Arc::clone(&self.kinds),
            metrics: self.reconcile_metrics.clone(),
            set_metrics: self.set_metrics.clone(),
            configs: Arc::clone(&self.configs),
            leads: self.leases.sets.clone(),
        }
    }

    /// Leads as a process without the machine controllers does: by the Lease of the sets, and without drivers.
    pub(super) async fn lead_sets_alone(
        &self,
        stop: &CancellationToken,
    ) -> Result<(), ElectionError> {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = self.stores.synced() => info!(machines = self.stores.machines.len(), "synced"),
        }
        let sets = self.sets();
        let Some(leadership) = sets.acquire(Observed::default(), stop).await? else {
            return Ok(());
        };
        self.leading.send_replace(Some(leadership.term()));
        let ended = sets.work(leadership, stop).await;
        self.leading.send_replace(None);
        ended
    }
}

impl SetLeader {
    /// Reads the Lease of the sets while this process may not take it. A core that died stopped renewing both of its
    /// Leases: the next core then knows for how long, and does not wait for the second Lease after the first.
    pub(super) async fn observe(&self, observed: &mut Observed) -> Infallible {
        if !self.tools.settings.controllers.run_sets() {
            return pending().await;
        }
        self.elector().observe(observed).await
    }

    /// Runs the sets whenever this process has their Lease; `observed`: earlier observations of the Lease. Dropping the
    /// future stops the controllers in the middle of their work; the Lease then expires.
    pub(super) async fn follow(self, mut observed: Observed, stop: CancellationToken) {
        loop {
            let ended = match self.acquire(std::mem::take(&mut observed), &stop).await {
                Ok(Some(leadership)) => self.work(leadership, &stop).await,
                Ok(None) => return,
                Err(error) => Err(error),
            };
            let Err(error) = ended else { return };
            warn!(%error, "another process may run the sets; waiting for their lease");
            // The cause may last.
            if stop.run_until_cancelled(sleep(self.tools.settings.lease.2)).await.is_none() {
                return;
            }
        }
    }

    fn elector(&self) -> Elector {
        let election = self.tools.settings.election(SETS_LEASE);
        self.kinds.home.elector(self.client.clone(), election, Arc::clone(&self.tools.clock.0))
    }

    async fn acquire(
        &self,
        observed: Observed,
        stop: &CancellationToken,
    ) -> Result<Option<Leadership>, ElectionError> {
        if stop.run_until_cancelled(self.tools.stores.fleet_synced()).await.is_none() {
            return Ok(None);
        }
        // Only now the absence of all objects may be known.
        self.kinds.home.note();
        self.elector().acquire(observed, stop).await
    }

    async fn work(
        &self,
        leadership: Leadership,
        stop: &CancellationToken,
    ) -> Result<(), ElectionError> {
        let _leads = self.leads.begin();
        let (no_more_work, idle) = (CancellationToken::new(), CancellationToken::new());
        let term = SetsTerm { term: leadership.term(), predecessor: leadership.predecessor() };
        let all_ended_in_time = AtomicBool::new(false);
        let answered =
            || all_ended_in_time.load(Ordering::Relaxed) && self.tools.writer.all_answered();
        let held = leadership.hold(&idle, |_| {}, answered);
        tokio::pin!(held);
        let mut workers = self.start(term, &no_more_work);
        let finished = async {
            stop.cancelled().await;
            no_more_work.cancel();
            let in_time = timeout(LAST_WORK, all_ended(&mut workers)).await.is_ok();
            all_ended_in_time.store(in_time, Ordering::Relaxed);
            if !in_time {
                info!("reconciles of sets take too long to finish; aborting them");
            }
        };
        tokio::select! {
            lost = &mut held => return lost,
            () = finished => {}
        }
        drop(workers);
        idle.cancel();
        held.await
    }

    /// Starts the controllers of sets and deployments that are switched on.
    fn start(&self, term: SetsTerm, stop: &CancellationToken) -> JoinSet<()> {
        let controllers = self.tools.settings.controllers;
        info!(term = term.term.0, %controllers, predecessor = ?term.predecessor, "runs the sets");
        let mut workers = JoinSet::new();
        if controllers.run(Controller::MachineSet) {
            let freezes = self.start_freezes(&mut workers, stop);
            self.start_sets(term, freezes, &mut workers, stop);
            self.start_reserves(term, &mut workers, stop);
        }
        if controllers.run(Controller::MachineDeployment) {
            self.start_deployments(term, &mut workers, stop);
        }
        workers
    }

    fn start_freezes(&self, workers: &mut JoinSet<()>, stop: &CancellationToken) -> Arc<Freezes> {
        let freezes = Arc::new(Freezes { tools: self.tools.clone(), lifted: Mutex::default() });
        let queue = &self.kinds.freezes.queue;
        kind::work(Arc::clone(&freezes), queue, &self.metrics, workers, stop);
        freezes
    }

    fn start_sets(
        &self,
        term: SetsTerm,
        freezes: Arc<Freezes>,
        workers: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) {
        let queue = &self.kinds.sets.queue;
        let sets = Fleet(Arc::new(Sets {
            tools: self.tools.clone(),
            metrics: self.set_metrics.clone(),
            handover: Handover::new(term.predecessor.arrives()),
            freezes,
            configs: Arc::clone(&self.configs),
            roll: Mutex::default(),
            runs_machines: self.tools.settings.controllers.run_machines(),
        }));
        kind::work(Arc::new(sets), queue, &self.metrics, workers, stop);
    }

    fn start_reserves(&self, term: SetsTerm, workers: &mut JoinSet<()>, stop: &CancellationToken) {
        let Woken { queue, own, .. } = self.kinds.reserves.as_ref();
        let reserves = Fleet(Arc::new(Reserves {
            tools: self.tools.clone(),
            given: Arc::clone(own),
            handover: Handover::new(term.predecessor.arrives()),
        }));
        kind::work(Arc::new(reserves), queue, &self.metrics, workers, stop);
    }

    fn start_deployments(
        &self,
        term: SetsTerm,
        workers: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) {
        let queue = &self.kinds.deployments.queue;
        let deployments = Fleet(Arc::new(Deployments {
            tools: self.tools.clone(),
            handover: Handover::new(term.predecessor.arrives()),
        }));
        kind::work(Arc::new(deployments), queue, &self.metrics, workers, stop);
    }
}
