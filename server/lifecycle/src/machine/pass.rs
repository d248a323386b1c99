//! One pass: the observations, the facts learned on the way, and the resulting plan.

use ostler_api::OperationId;
use ostler_api::ProviderId;
use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use ostler_api::history::MachineHistory;
use ostler_api::machine::{
    CurrentStatus, Machine, MachineOperationType, MachinePhase, MachineState, MachineStatus,
    MachineStep, OperationIntent, WaitReason,
};

use super::{
    effects::Effects,
    operation_state::{self, OperationState},
    own_instance::{is_by_spec_only, was_begun_elsewhere},
    reading::Reading,
    transition::{Outcome, Transition, wait},
};
use crate::{
    node,
    operation::{OperationView, Place},
    plan::Next,
    snapshot::{DriverView, Snapshot},
    time::after,
    unwritten::{PATIENCE, due},
};

/// For how long a driver works before that is worth a write.
pub(crate) const WORTH_SAYING: Duration = PATIENCE;

/// Why a Machine may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// The driver said that the instance is gone.
    Deleted,
    /// The driver said that there is none.
    Absent,
    /// The operator lets the instance be.
    Abandoned,
}

/// Driver answers settled in this pass.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    /// The result of a read.
    pub(crate) reading: Option<Reading>,
    /// The ids of volumes; empty if the driver could not say.
    pub(crate) volume_ids: Option<BTreeMap<String, String>>,
    /// Why the Machine may go, if it may.
    pub(crate) release: Option<Release>,
    /// Whether the result in the snapshot was settled.
    settled: bool,
}

/// The pass: observations, learned facts, and the wanted state of the Machine's status and the world.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    pub(crate) snap: &'a Snapshot,
    pub(crate) machine: &'a Machine,
    pub(crate) learned: Learned,
    pub(crate) status: MachineStatus,
    pub(crate) effects: Effects,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(snap: &'a Snapshot) -> Self {
        Self {
            snap,
            machine: &snap.machine,
            learned: Learned::default(),
            status: MachineStatus { waiting_for: None, ..snap.machine.recorded_status() },
            effects: Effects::default(),
        }
    }

    // --- what is known ---

    pub(crate) fn now(&self) -> Time {
        Time(self.snap.now)
    }

    pub(crate) fn name(&self) -> &'a str {
        self.machine.name()
    }

    /// The provider id, from the Machine or learned in this pass.
    pub(crate) fn provider_id(&self) -> Option<&ProviderId> {
        self.effects.patch.provider_id.as_ref().or_else(|| self.machine.provider_id())
    }

    /// The provider id by which the Node is known.
    pub(crate) fn instance_id(&self) -> Option<&ProviderId> {
        self.status.instance_provider_id.as_ref().or_else(|| self.provider_id())
    }

    /// Whether the spec has another provider id than the driver's: a user wrote the id, and a driver is to decide.
    pub(crate) fn has_other_id(&self) -> bool {
        self.provider_id().is_some() && self.provider_id() != self.instance_id()
    }

    /// Whether the creation of this Machine is over for good, so that what a driver still answers is
    /// recorded and leads to nothing.
    pub(crate) fn is_over(&self) -> bool {
        self.machine.is_deleting() || self.machine.phase() == MachinePhase::Failed
    }

    /// The state of the operation, with everything settled by this pass.
    pub(crate) fn operation_state(&self) -> OperationState<'a> {
        let snap: &'a Snapshot = self.snap;
        if self.learned.settled {
            const IDLE: &OperationView = &OperationView::Idle;
            return operation_state::compare(self.status.operation.as_ref(), IDLE);
        }
        operation_state::compare(self.status.operation.as_ref(), &snap.operation)
    }

    /// From now on the result in the snapshot counts as taken.
    pub(crate) fn settle(&mut self, id: &OperationId) {
        self.learned.settled = true;
        self.effects.acknowledge = Some(id.clone());
    }

    /// The Node, if present and ours: its provider id is empty or the Machine's.
    pub(crate) fn node(&self) -> Option<&'a Node> {
        let snap: &'a Snapshot = self.snap;
        snap.node.main().map(AsRef::as_ref).filter(|node| self.has(node))
    }

    /// Every Node that runs on the instance, the Machine's first.
    pub(crate) fn nodes(&self) -> Vec<&'a Node> {
        let snap: &'a Snapshot = self.snap;
        snap.node.all().into_iter().map(AsRef::as_ref).filter(|node| self.has(node)).collect()
    }

    /// The Node that stands for the Machine's health: its own, or another ready Node of the instance while its own is
    /// not ready.
    pub(crate) fn serving(&self) -> Option<&'a Node> {
        let main = self.node()?;
        Some(self.nodes().into_iter().find(|node| node::is_ready(node)).unwrap_or(main))
    }

    fn has(&self, node: &Node) -> bool {
        self.calls_own(node) && !is_by_spec_only(self.snap, &self.status, node)
    }

    fn calls_own(&self, node: &Node) -> bool {
        node::is_ours(self.machine, self.instance_id(), node, self.snap.ids.by())
    }

    /// Whether only the spec of the Machine, which is being deleted, calls a Node its own.
    pub(crate) fn has_node_by_spec_only(&self) -> bool {
        let by_spec =
            |node: &Node| self.calls_own(node) && is_by_spec_only(self.snap, &self.status, node);
        self.snap.node.all().into_iter().any(|node| by_spec(node))
    }

    /// When the creation is given up; `None`: it has not begun. A Machine begun by another controller has no start of
    /// its own: its birth counts.
    pub(crate) fn creation_deadline(&self) -> Option<Timestamp> {
        let begun = self.status.machine_phase() != MachinePhase::New;
        let born = self.machine.metadata.creation_timestamp.as_ref().filter(|_| begun);
        let from = self.status.creation_started_at.as_ref().or(born)?.0;
        let limit = self.machine.creation_timeout(self.snap.settings.creation_timeout);
        Some(after(after(from, limit), self.snap.api.lost_to_new(from, self.snap.now)))
    }

    /// Whether the Node was healthy before.
    pub(crate) fn has_run(&self) -> bool {
        self.status.last_operation.as_ref().is_none_or(|last| {
            last.type_ != Some(MachineOperationType::Create)
                || last.state == Some(MachineState::Successful)
        })
    }

    pub(crate) fn creation_overdue(&self) -> bool {
        self.creation_deadline().is_some_and(|deadline| self.snap.now >= deadline)
    }

    /// Whether something may have been asked of the infrastructure for this Machine, ever.
    pub(crate) fn ever_asked(&self) -> bool {
        self.machine.provider_id().is_some()
            || self.machine.operation_record().is_some()
            || was_begun_elsewhere(self.machine)
            || self.machine.status.as_ref().is_some_and(|status| {
                status.operation.is_some()
                    || status.creation_started_at.is_some()
                    || !matches!(
                        status.machine_phase(),
                        MachinePhase::New | MachinePhase::Terminating
                    )
            })
    }

    /// Whether the Machine had an instance, as far as is known: reason enough to ask for it.
    pub(crate) fn has_seen_instance(&self) -> bool {
        self.status.instance_uid.is_some() || self.machine.noted_instance_uid().is_some()
    }

    /// Since when the Machine has waited for this; `None`: it waits for something else, or for nothing.
    pub(crate) fn has_waited_since(&self, reason: &WaitReason) -> Option<Timestamp> {
        let waits = self.machine.status.as_ref()?.waiting_for.as_ref()?;
        waits.since.as_ref().filter(|_| waits.reason == *reason).map(|since| since.0)
    }

    /// Until when volumes that were not looked up yet are waited for. `None`: no more.
    pub(crate) fn waits_for_volumes_until(&self, patience: Duration) -> Option<Timestamp> {
        let since = self.has_waited_since(&WaitReason::VolumesNotObserved).unwrap_or(self.snap.now);
        let until = after(since, patience);
        (self.snap.now < until).then_some(until)
    }

    // --- what is to be done ---

    /// Enters a step; the time it began is kept while it stays the same.
    pub(crate) fn step(&mut self, step: Option<MachineStep>) {
        if self.status.step != step {
            let now = self.now();
            if let Some(ended) = self.status.step.take() {
                let since = self.status.step_since.take();
                self.history().step_ended(ended, since, now);
            }
            self.status.step_since = step.is_some().then(|| self.now());
            self.status.step = step;
        }
    }

    pub(crate) fn machine_phase(&mut self, phase: &MachinePhase) {
        if self.status.machine_phase() == *phase {
            return;
        }
        let preserve = self.status.current_status.take().and_then(|old| old.preserve_expiry_time);
        let kept = preserve.filter(|_| *phase != MachinePhase::Terminating);
        if !matches!(phase, MachinePhase::Failed | MachinePhase::Terminating) {
            (self.status.failure_reason, self.status.failure_message) = (None, None);
        }
        self.status.current_status = Some(CurrentStatus {
            phase: Some(phase.clone()),
            timeout_active: Some(*phase == MachinePhase::Pending),
            last_update_time: Some(self.now()),
            preserve_expiry_time: kept,
        });
    }

    /// Until when the Machine is preserved; `None`: it is not any more.
    pub(crate) fn preserve_until(&mut self, until: Option<Timestamp>) {
        let current = self.status.current_status.get_or_insert_default();
        current.preserve_expiry_time = until.map(Time);
    }

    /// A mutation is about to be sent: its intent is written down before.
    pub(crate) fn begin_operation(&mut self, intent: OperationIntent) {
        self.status.operation = Some(intent);
    }

    /// The outcome of the mutation is known: its intent is no more.
    pub(crate) const fn end_operation(&mut self) -> Option<OperationIntent> {
        self.status.operation.take()
    }

    /// The mutation ended, and it is unknown with what: a read decides.
    pub(crate) fn end_unknown(&mut self, intent: Option<OperationIntent>) {
        self.status.operation =
            intent.map(|intent| OperationIntent { outcome_unknown: true, ..intent });
    }

    pub(crate) fn history(&mut self) -> &mut MachineHistory {
        self.status.history.get_or_insert_default()
    }

    // --- how it ends ---

    /// Whether the driver has worked for so long that people are to see it.
    pub(crate) fn takes_long(&self) -> bool {
        matches!(&self.snap.operation, OperationView::InFlight(it) if it.age >= WORTH_SAYING)
    }

    /// A wait while a driver works. Only a long wait is worth a write.
    pub(crate) fn wait_for_driver(&self) -> Transition {
        let flight = match &self.snap.operation {
            OperationView::InFlight(flight) => flight,
            OperationView::Expected(left) => {
                let what = "the driver may still work on an operation of the previous leader";
                return self.wait_for_lost_driver(what, *left);
            }
            OperationView::Idle | OperationView::Finished(_) => {
                return Transition::Rest(Next::OnChange);
            }
        };
        let until = after(self.snap.now, WORTH_SAYING.saturating_sub(flight.age));
        // An operation that waited in the core is sent now: the status shows the new wait instead of nothing.
        let queued = [WaitReason::OperationQueued, WaitReason::DriverUnavailable];
        let was_queued = queued.iter().any(|reason| self.has_waited_since(reason).is_some());
        // A status written now anyway shows the wait, too.
        let is_due = self.snap.unwritten.as_ref().is_some_and(|it| self.snap.now >= due(it.since));
        if self.snap.now < until && !is_due && !(was_queued && flight.place == Place::Sent) {
            return Transition::Rest(Next::Wait { reason: WaitReason::DriverWorking, until });
        }
        let verb = flight.kind.name();
        let in_the_core = |reason, why: String, until| {
            wait(reason, Some(format!("{verb} is queued in the core: {why}")), until)
        };
        match flight.place {
            Place::Unserved => {
                let lack = self.snap.driver.lack(&flight.provider);
                let lack = lack.or_else(|| DriverView::Unavailable.lack(&flight.provider));
                in_the_core(WaitReason::DriverUnavailable, lack.unwrap_or_default(), None)
            }
            Place::Paused(left) => {
                let (until, shown) = self.end_of(left);
                let provider = &flight.provider;
                let why = format!(
                    "provider {provider} is rate-limited; creates are paused until {shown}"
                );
                in_the_core(WaitReason::OperationQueued, why, Some(until))
            }
            Place::Queued => {
                let why = "the driver or --provider-rate is at its limit".to_owned();
                in_the_core(WaitReason::OperationQueued, why, None)
            }
            Place::Sent if flight.stalled => {
                let last = flight.progress.as_ref().map(ToString::to_string);
                let last = last.as_deref().unwrap_or("nothing");
                let message = format!("{verb}: last progress reported by the driver: {last}");
                wait(WaitReason::DriverStalled, Some(message), None)
            }
            Place::Sent => {
                let message = format!("{verb}: sent, and the driver has not answered yet");
                wait(WaitReason::DriverWorking, Some(message), None)
            }
            Place::Lost(left) => {
                let what = format!("{verb}: the driver lost its session");
                self.wait_for_lost_driver(&what, left)
            }
        }
    }

    /// When a time that is left ends; the same in whole seconds, for people.
    fn end_of(&self, left: Duration) -> (Timestamp, Timestamp) {
        let end = after(self.snap.now, left);
        (end, Timestamp::from_second(end.as_second()).unwrap_or(end))
    }

    fn wait_for_lost_driver(&self, what: &str, left: Duration) -> Transition {
        let (until, seconds) = self.end_of(left);
        let text = format!(
            "{what}; if it does not reconnect by {seconds}, the core reads the instance from the driver"
        );
        wait(WaitReason::DriverLost, Some(text), Some(until))
    }

    /// Whether a driver works for the Machine, or will.
    pub(crate) fn is_working(&self) -> bool {
        self.operation_state() == OperationState::Working
    }

    /// Whether the outcome of the last mutation is unknown.
    pub(crate) fn is_unresolved(&self) -> bool {
        self.operation_state() == OperationState::Unresolved
    }

    /// Whether no mutation is intended, and nothing is in flight.
    pub(crate) fn is_free(&self) -> bool {
        self.operation_state() == OperationState::Free
    }

    /// Goes on unless a driver works.
    pub(crate) fn unless_working(&self) -> Outcome<()> {
        if self.is_working() { Err(self.wait_for_driver()) } else { Ok(()) }
    }
}
