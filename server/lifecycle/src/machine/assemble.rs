//! Makes the plan of a pass from the status and the effects that its states left.

use ostler_api::{
    OperationRecord, ProviderName,
    driver::OperationKind,
    machine::{MachinePhase, MachineStatus, OperationIntent, WaitReason},
    names,
};

use super::{
    bootstrapping, deadline, draining,
    effects::{Effects, NodeEffects},
    hint,
    pass::Pass,
    preboot, preserving, token,
};
use crate::{
    hint::HintUse,
    hot_update::SlotUse,
    operation::{Dispatch, OperationView, Success},
    owner::controller,
    plan::{Action, Next, NodePatch, NodeStatusPatch, OnFailure, Plan},
};

impl Pass<'_> {
    /// The finalizer and the record of the first create go into one patch, before the create is sent: for a Machine
    /// without the finalizer, no driver was ever asked. One with a copy of a template has the finalizer earlier. Later the
    /// record goes with a patch that is due anyhow.
    fn keep_record(&mut self) {
        let creates = self
            .effects
            .dispatch
            .as_ref()
            .is_some_and(|it| it.kind() == OperationKind::CreateMachine);
        let unheld = self.effects.holds && !self.machine.has_finalizer();
        let is_to_stay = creates || self.ever_asked() || bootstrapping::has_copy(self);
        self.effects.patch.add_finalizer = unheld && is_to_stay;
        let old = self.machine.operation_record().unwrap_or_default();
        let provider = self.known_provider().or_else(|| old.provider.clone());
        let new = OperationRecord::of(self.machine, &self.status, provider);
        let key = |record: &OperationRecord| {
            let of = |it: &OperationIntent| (it.idempotency_key.clone(), it.provider_id.clone());
            (record.operation.as_ref().map(of), record.provider.clone())
        };
        let begins = creates && key(&old) != key(&new);
        let adopted = old.instance_uid.is_none() && new.instance_uid.is_some();
        let found = old.provider.is_none() && new.provider.is_some();
        let due = begins || adopted || found || !self.effects.patch.is_empty();
        let says = new.operation.is_some() || new.instance_uid.is_some();
        if due
            && says
            && old != new
            && let Ok(text) = serde_json::to_string(&new)
        {
            self.effects
                .patch
                .annotations
                .insert(names::annotation::OPERATION.to_owned(), Some(text));
        }
    }

    /// The provider that a create is about to be sent to, or whose driver has just shown the instance.
    fn known_provider(&self) -> Option<ProviderName> {
        let created = |it: &&Dispatch| it.kind() == OperationKind::CreateMachine;
        if let Some(create) = self.effects.dispatch.as_ref().filter(created) {
            return Some(create.provider.clone());
        }
        let OperationView::Finished(it) = &self.snap.operation else { return None };
        let shows = matches!(
            it.outcome,
            Ok(Success::Read(_)
                | Success::Created(_)
                | Success::Initialized(_)
                | Success::Updated { .. })
        );
        shows.then(|| it.provider.clone())
    }

    /// The change of the Machine's update slot. An update counts from the decision to send it until the outcome is
    /// recorded, except while waiting for its next attempt. `busy`: a driver works, or is about to.
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

    /// A deletion by force does not wait for the Node, nor does a health check for mere upkeep. A running Machine needs
    /// our finalizer on the Node first.
    fn without_node_patch(&self, node: &NodeEffects) -> OnFailure {
        let unheld =
            node.patch.add_finalizer && self.status.machine_phase() == MachinePhase::Running;
        if draining::is_forced(self) {
            OnFailure::GoOn
        } else if node.patch == node.upkeep && !unheld {
            OnFailure::Repeat
        } else {
            OnFailure::Stop
        }
    }

    /// The writes to the Nodes: one to each.
    fn write_nodes(&mut self) -> Vec<Action> {
        let nodes = std::mem::take(&mut self.effects.nodes);
        let write = |((name, uid), node): ((String, String), NodeEffects)| {
            let on_failure = self.without_node_patch(&node);
            let NodeEffects { patch, status, .. } = node;
            if !patch.is_empty() {
                let uid = uid.into();
                return Some(Action::PatchNode(NodePatch { name, uid, on_failure, ..patch }));
            }
            let patch = NodeStatusPatch { name, ..status };
            (!patch.is_empty()).then_some(Action::PatchNodeStatus(patch))
        };
        nodes.into_iter().filter_map(write).collect()
    }

    pub(crate) fn finish(mut self, next: Next) -> Plan {
        self.keep_record();
        let next = deadline::wake(&self, next);
        let next = preserving::wake_at_expiry(&self, next);
        let next = hint::wake(&self, next);
        let next = token::wake_to_bind(&self, next);
        let before = self.snap.machine.status.clone().unwrap_or_default();
        let effects = &self.effects;
        let reads_only = effects.dispatch.as_ref().is_some_and(|one| !one.kind().is_mutation());
        let works = matches!(self.snap.operation, OperationView::InFlight(_));
        let waits = self.status.waiting_for.is_some();
        let quiet = (reads_only || works) && !waits && effects.acknowledge.is_none();
        let quiet = quiet && differs_only_in_frills(&before, &self.status);
        if self.status != before {
            let now = self.now();
            self.status.show_new(&now);
        }
        self.status.observed_generation = self.machine.metadata.generation;
        preboot::derive(&mut self, next == Next::Done);
        let expected = matches!(self.snap.operation, OperationView::Expected(_));
        let busy = works || expected || self.effects.dispatch.is_some();
        let slot = self.update_slot(busy);
        let to_nodes = self.write_nodes();
        let status = if quiet { before } else { self.status };
        let mut effects = self.effects;
        let patch = &mut effects.patch;
        // A Machine without a controller keeps the managed fields: if a user applied it server-side later, our
        // finalizer would be the user's, and go with the user's next apply.
        patch.forget_managers = !patch.is_empty()
            && controller(&self.machine.metadata).is_some()
            && !self.machine.was_applied();
        let mut actions: Vec<_> = slot.into_iter().chain(effects.before).collect();
        if effects.patch.add_finalizer {
            actions.insert(0, Action::PatchMachine(effects.patch));
        } else if !effects.patch.is_empty() {
            actions.push(Action::PatchMachine(effects.patch));
        }
        actions.extend(to_nodes);
        actions.extend(effects.after);
        let Effects { dispatch, cancel, acknowledge, hint: used, events, status_waits, .. } =
            effects;
        let reads =
            dispatch.as_ref().is_some_and(|it| it.kind() == OperationKind::GetMachineStatus);
        let asks = (reads && self.snap.hint.is_some()).then_some(HintUse::Asks);
        let hint = used.or(asks);
        Plan { actions, status, dispatch, status_waits, cancel, acknowledge, hint, events, next }
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
