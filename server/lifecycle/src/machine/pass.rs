//! One pass: what was observed, what was learned on the way, and the plan that grows from it.

use std::{collections::BTreeMap, ops::ControlFlow, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use ostler_api::{
    driver::OperationKind,
    machine::{
        CurrentStatus, FailureReason, LastOperation, Machine, MachineOperationType, MachinePhase,
        MachineState, MachineStatus, MachineStep, OperationIntent, OperationRecord, WaitReason,
        WaitingFor,
    },
    names,
};

use super::{
    State,
    operation_state::{self, OperationState},
    preboot, preserving,
    reading::Reading,
    retry,
    transition::{Outcome, Transition, Wait, wait},
};
use crate::{
    hot_update::SlotUse,
    node,
    operation::{Dispatch, OperationView},
    plan::{Action, Event, EventReason, MachinePatch, Next, NodePatch, NodeStatusPatch, Plan},
    snapshot::{NodeView, Snapshot},
};

/// Why a Machine may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// The driver said that the instance is gone.
    Deleted,
    /// The operator lets the instance be.
    Abandoned,
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    pub(crate) snap: &'a Snapshot,
    pub(crate) machine: &'a Machine,
    pub(crate) status: MachineStatus,
    pub(crate) patch: MachinePatch,
    pub(crate) node_patch: NodePatch,
    /// Written in a pass that changes nothing else on the Node: either changes its version.
    pub(crate) node_status: NodeStatusPatch,
    /// What a read said that was settled in this pass.
    pub(crate) reading: Option<Reading>,
    /// What the driver said of volumes in this pass; empty if it could not say.
    pub(crate) volume_ids: Option<BTreeMap<String, String>>,
    /// Why the Machine may go, if this pass learned that it may.
    pub(crate) release: Option<Release>,
    /// Whether the result in the snapshot was settled.
    settled: bool,
    before: Vec<Action>,
    after: Vec<Action>,
    pub(super) dispatch: Option<Dispatch>,
    pub(crate) cancel: Option<String>,
    pub(crate) acknowledge: Option<String>,
    events: Vec<Event>,
    waits: bool,
    /// Whether the Machine is to be kept from vanishing unseen, once something was asked for it.
    pub(crate) holds: bool,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(snap: &'a Snapshot) -> Self {
        Self {
            snap,
            machine: &snap.machine,
            status: snap.machine.recorded_status(),
            patch: MachinePatch::default(),
            node_patch: NodePatch::default(),
            node_status: NodeStatusPatch::default(),
            reading: None,
            volume_ids: None,
            release: None,
            settled: false,
            before: Vec::new(),
            after: Vec::new(),
            dispatch: None,
            cancel: None,
            acknowledge: None,
            events: Vec::new(),
            waits: false,
            holds: false,
        }
    }

    // --- what is known ---

    pub(crate) fn now(&self) -> Time {
        Time(self.snap.now)
    }

    pub(crate) fn name(&self) -> &'a str {
        self.machine.name()
    }

    /// The instance, as the Machine has it or as this pass learned it.
    pub(crate) fn provider_id(&self) -> Option<&str> {
        self.patch.provider_id.as_deref().or_else(|| self.machine.provider_id())
    }

    /// Whether the creation of this Machine is over for good, so that what a driver still answers is
    /// recorded and leads to nothing.
    pub(crate) fn is_over(&self) -> bool {
        self.machine.is_deleting() || self.machine.phase() == MachinePhase::Failed
    }

    /// Where the operation stands, with everything that this pass settled.
    pub(crate) fn operation_state(&self) -> OperationState<'a> {
        let snap: &'a Snapshot = self.snap;
        if self.settled {
            const IDLE: &OperationView = &OperationView::Idle;
            return operation_state::compare(self.status.operation.as_ref(), IDLE);
        }
        operation_state::compare(self.status.operation.as_ref(), &snap.operation)
    }

    /// From now on the result in the snapshot counts as taken.
    pub(crate) fn settle(&mut self, id: &str) {
        self.settled = true;
        self.acknowledge = Some(id.to_owned());
    }

    /// The Node, if it is there and ours: its provider id is empty or that of the Machine.
    pub(crate) fn node(&self) -> Option<&'a Node> {
        let snap: &'a Snapshot = self.snap;
        let NodeView::Known(node) = &snap.node else { return None };
        node::is_ours(self.machine, self.provider_id(), node).then_some(node)
    }

    /// When the creation is given up; `None`: it has not begun. A Machine that another controller
    /// began has no start of its own: its birth counts.
    pub(crate) fn creation_deadline(&self) -> Option<Timestamp> {
        let begun = self.status.machine_phase() != MachinePhase::New;
        let born = self.machine.metadata.creation_timestamp.as_ref().filter(|_| begun);
        let from = self.status.creation_started_at.as_ref().or(born)?.0;
        let limit = self.machine.creation_timeout(self.snap.settings.creation_timeout);
        Some(after(after(from, limit), self.snap.api.lost(from, self.snap.now)))
    }

    pub(crate) fn creation_overdue(&self) -> bool {
        self.creation_deadline().is_some_and(|deadline| self.snap.now >= deadline)
    }

    /// Whether something may have been asked of the infrastructure for this Machine, ever.
    pub(crate) fn ever_asked(&self) -> bool {
        self.machine.provider_id().is_some()
            || self.machine.operation_record().is_some()
            || self.machine.status.as_ref().is_some_and(|status| {
                status.operation.is_some()
                    || status.creation_started_at.is_some()
                    || !matches!(
                        status.machine_phase(),
                        MachinePhase::New | MachinePhase::Terminating
                    )
            })
    }

    // --- what is to be done ---

    /// An action before everything else.
    pub(crate) fn act(&mut self, action: Action) {
        self.before.push(action);
    }

    /// An action after everything else.
    pub(crate) fn act_last(&mut self, action: Action) {
        self.after.push(action);
    }

    pub(crate) fn event(&mut self, warning: bool, reason: EventReason, message: String) {
        self.events.push(Event { warning, reason, message, on_node: false });
    }

    /// An event that those who look at the Node are told as well.
    pub(crate) fn event_on_node(&mut self, warning: bool, reason: EventReason, message: String) {
        self.events.push(Event { warning, reason, message, on_node: true });
    }

    /// Enters a step; the time it began is kept while it stays the same.
    pub(crate) fn step(&mut self, step: Option<MachineStep>) {
        if self.status.step != step {
            let now = self.now();
            if let Some(ended) = self.status.step.take() {
                let since = self.status.step_since.take();
                self.status.history.get_or_insert_default().step_ended(ended, since, now);
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

    pub(crate) fn last_operation(
        &mut self,
        type_: MachineOperationType,
        state: MachineState,
        description: &str,
        error_code: Option<&str>,
    ) {
        let old = self.status.last_operation.as_ref();
        let mut new = LastOperation {
            description: Some(description.to_owned()),
            error_code: error_code.map(str::to_owned),
            last_update_time: old.and_then(|old| old.last_update_time.clone()),
            state: Some(state),
            type_: Some(type_),
        };
        if old != Some(&new) {
            new.last_update_time = Some(self.now());
            self.status.last_operation = Some(new);
        }
    }

    // --- how it ends ---

    /// A wait while a driver works. Only one that lasts is worth a write.
    pub(crate) fn wait_for_driver(&self) -> Transition {
        const WORTH_SAYING: Duration = Duration::from_secs(5);
        let flight = match &self.snap.operation {
            OperationView::InFlight(flight) => flight,
            OperationView::Expected => {
                let what = "a driver may still be working on an operation of the previous leader"
                    .to_owned();
                return wait(WaitReason::DriverWorking, Some(what), None);
            }
            OperationView::Idle | OperationView::Finished(_) => {
                return Transition::Rest(Next::OnChange);
            }
        };
        let until = after(self.snap.now, WORTH_SAYING.saturating_sub(flight.age));
        if self.snap.now < until {
            return Transition::Rest(Next::Wait { reason: WaitReason::DriverWorking, until });
        }
        let verb = flight.kind.name();
        if flight.stalled {
            let last = flight.progress.as_ref().map(ToString::to_string);
            let last = last.as_deref().unwrap_or("nothing");
            let message = format!("{verb}: last progress reported by the driver: {last}");
            return wait(WaitReason::DriverStalled, Some(message), None);
        }
        wait(WaitReason::DriverWorking, Some(verb.to_owned()), None)
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

    /// Does what a state wants. `Continue`: the state in which the pass goes on.
    pub(crate) fn apply(&mut self, transition: Transition) -> ControlFlow<Next, State> {
        match transition {
            Transition::To(state) => return ControlFlow::Continue(state),
            Transition::Fail { reason, type_, description } => {
                self.give_up(reason, type_, description);
                return ControlFlow::Continue(State::Failed);
            }
            Transition::Rest(next) => return ControlFlow::Break(next),
            Transition::Wait(wait) => return ControlFlow::Break(self.begin_wait(wait)),
            Transition::Send(dispatch, intent) => {
                self.status.operation = Some(*intent);
                self.dispatch = Some(*dispatch);
            }
            Transition::Read(dispatch) => self.dispatch = Some(*dispatch),
        }
        ControlFlow::Break(Next::OnChange)
    }

    fn begin_wait(&mut self, wait: Wait) -> Next {
        let Wait { reason, message, until, event } = wait;
        self.waits = true;
        let old = self.machine.status.as_ref().and_then(|status| status.waiting_for.as_ref());
        let old = old.filter(|old| old.reason == reason);
        if let (None, Some(event)) = (old, event) {
            let text = message.as_deref().unwrap_or_default();
            self.event(event == EventReason::Waiting, event, format!("{reason}: {text}"));
        }
        let since = old.and_then(|old| old.since.clone()).unwrap_or_else(|| self.now());
        self.status.waiting_for =
            Some(WaitingFor { reason: reason.clone(), message, since: Some(since) });
        until.map_or(Next::OnChange, |until| Next::Wait { reason, until })
    }

    fn give_up(&mut self, reason: FailureReason, type_: MachineOperationType, description: String) {
        self.machine_phase(&MachinePhase::Failed);
        let code = self.status.last_operation.as_ref().and_then(|last| last.error_code.clone());
        self.last_operation(type_, MachineState::Failed, &description, code.as_deref());
        self.event(true, EventReason::MachineFailed, format!("{reason}: {description}"));
        self.status.failure_reason = Some(reason);
        self.status.failure_message = Some(description);
        retry::clear(self);
        self.step(None);
    }

    /// The finalizer and the record of the first create go into one patch, before the create is sent: a Machine
    /// without the finalizer is one that nothing was asked for. Later the record goes with a patch that is due anyhow.
    fn keep_record(&mut self) {
        let creates =
            self.dispatch.as_ref().is_some_and(|it| it.kind() == OperationKind::CreateMachine);
        let unheld = self.holds && !self.machine.has_finalizer();
        let asked = creates || self.ever_asked() || !self.patch.is_empty();
        self.patch.add_finalizer = unheld && asked;
        let old = self.machine.operation_record().unwrap_or_default();
        let new = OperationRecord::of(self.machine, &self.status);
        let key = |record: &OperationRecord| {
            record.operation.as_ref().map(|it| (it.idempotency_key.clone(), it.provider_id.clone()))
        };
        let begins = creates && key(&old) != key(&new);
        let adopted = old.instance_uid.is_none() && new.instance_uid.is_some();
        let due = begins || adopted || !self.patch.is_empty();
        let says = new.operation.is_some() || new.instance_uid.is_some();
        if due
            && says
            && old != new
            && let Ok(text) = serde_json::to_string(&new)
        {
            self.patch.annotations.insert(names::annotation::OPERATION.to_owned(), Some(text));
        }
    }

    /// What is to change about the update slot of the Machine. An update counts from the decision to send it until
    /// its outcome is recorded; not while it waits for its next attempt. `busy`: a driver works, or is about to.
    fn update_slot(&self, busy: bool) -> Option<Action> {
        let is_update =
            |it: &OperationIntent| it.operation_kind() == Some(OperationKind::UpdateMachine);
        let waits = self.status.waiting_for.as_ref().map(|wait| &wait.reason);
        let wanted = if busy && self.status.operation.as_ref().is_some_and(is_update) {
            SlotUse::Uses
        } else if waits == Some(&WaitReason::HotUpdateBudget) {
            SlotUse::Waits
        } else {
            SlotUse::None
        };
        let slot = &self.snap.slot;
        let runs = wanted == SlotUse::Uses && self.machine.intent().as_ref().is_some_and(is_update);
        let limit = (!runs).then_some(slot.limit);
        (wanted != slot.has).then_some(Action::UpdateSlot { wanted, limit })
    }

    pub(crate) fn finish(mut self, next: Next) -> Plan {
        self.keep_record();
        let next = preserving::wake_at_expiry(self.status.current_status.as_ref(), next);
        let before = self.snap.machine.status.clone().unwrap_or_default();
        let reads_only = self.dispatch.as_ref().is_some_and(|one| !one.kind().is_mutation());
        let works = matches!(self.snap.operation, OperationView::InFlight(_));
        if !self.waits {
            self.status.waiting_for = None;
        }
        let quiet = (reads_only || works) && !self.waits && self.acknowledge.is_none();
        let quiet = quiet && differs_only_in_frills(&before, &self.status);
        self.status.observed_generation = self.machine.metadata.generation;
        preboot::derive(&mut self, next == Next::Done);
        let expected = self.snap.operation == OperationView::Expected;
        let busy = works || expected || self.dispatch.is_some();
        let slot = self.update_slot(busy);
        let status = if quiet { before } else { self.status };
        let mut actions: Vec<_> = slot.into_iter().chain(self.before).collect();
        if self.patch.add_finalizer {
            actions.insert(0, Action::PatchMachine(self.patch));
        } else if !self.patch.is_empty() {
            actions.push(Action::PatchMachine(self.patch));
        }
        if let NodeView::Known(node) = &self.snap.node {
            let name = node.metadata.name.clone().unwrap_or_default();
            let uid = node.metadata.uid.clone().unwrap_or_default();
            if !self.node_patch.is_empty() {
                actions.push(Action::PatchNode(NodePatch { name, uid, ..self.node_patch }));
            } else if !self.node_status.is_empty() {
                let patch = NodeStatusPatch { name, ..self.node_status };
                actions.push(Action::PatchNodeStatus(patch));
            }
        }
        actions.extend(self.after);
        Plan {
            actions,
            status,
            dispatch: self.dispatch,
            cancel: self.cancel,
            acknowledge: self.acknowledge,
            events: self.events,
            next,
        }
    }
}

/// Whether a write would tell nothing but that a pass was made.
fn differs_only_in_frills(before: &MachineStatus, now: &MachineStatus) -> bool {
    let mut bare = now.clone();
    bare.waiting_for.clone_from(&before.waiting_for);
    bare.step.clone_from(&before.step);
    bare.step_since.clone_from(&before.step_since);
    bare.history.clone_from(&before.history);
    bare == *before
}

/// A time after another; never overflows.
pub(crate) fn after(from: Timestamp, wait: Duration) -> Timestamp {
    SignedDuration::try_from(wait)
        .ok()
        .and_then(|wait| from.checked_add(wait).ok())
        .unwrap_or(Timestamp::MAX)
}
