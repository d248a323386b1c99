//! Does what a state wants, which may be the end of the pass.

use std::ops::ControlFlow;

use ostler_api::machine::{
    FailureReason, MachineOperationType, MachinePhase, WaitReason, WaitingFor,
};

use super::{
    State,
    last_operation::Activity,
    pass::{Pass, WORTH_SAYING},
    retry,
    transition::{Transition, Wait},
};
use crate::{
    plan::{EventReason, Next},
    time::after,
};

impl Pass<'_> {
    /// Does what a state wants. `Continue`: the state in which the pass goes on.
    pub(crate) fn apply(&mut self, transition: Transition) -> ControlFlow<Next, State> {
        match transition {
            Transition::To(state) => return ControlFlow::Continue(state),
            Transition::Fail { reason, type_, description } => {
                self.give_up(reason, &type_, description);
                return ControlFlow::Continue(State::Failed);
            }
            Transition::Rest(next) => {
                if next == Next::Done {
                    self.wait_for_others();
                }
                return ControlFlow::Break(next);
            }
            Transition::Wait(wait) => return ControlFlow::Break(self.begin_wait(wait)),
            Transition::Send(dispatch, intent) => {
                self.begin_operation(*intent);
                self.effects.dispatch = Some(*dispatch);
            }
            Transition::Read(dispatch) => self.effects.dispatch = Some(*dispatch),
        }
        // A driver that hangs says nothing, and so nothing else would wake the Machine.
        let (reason, until) = (WaitReason::DriverWorking, after(self.snap.now, WORTH_SAYING));
        ControlFlow::Break(Next::Wait { reason, until })
    }

    /// Our finalizer goes, or is gone: finalizers of others may still hold the Machine.
    fn wait_for_others(&mut self) {
        let others = self.machine.other_finalizers();
        if !others.is_empty() {
            let message = Some(others.join(", "));
            let reason = WaitReason::OtherFinalizers;
            self.begin_wait(Wait { reason, message, until: None, event: None, since: None });
        }
    }

    fn begin_wait(&mut self, wait: Wait) -> Next {
        let Wait { reason, message, until, event, since } = wait;
        let old = self.machine.status.as_ref().and_then(|status| status.waiting_for.as_ref());
        let old = old.filter(|old| old.reason == reason);
        if let (None, Some(event)) = (old, event) {
            let text = message.as_deref().unwrap_or_default();
            self.effects.event(event == EventReason::Waiting, event, format!("{reason}: {text}"));
        }
        let since = since.or_else(|| old?.since.clone()).unwrap_or_else(|| self.now());
        self.status.waiting_for =
            Some(WaitingFor { reason: reason.clone(), message, since: Some(since) });
        until.map_or(Next::OnChange, |until| Next::Wait { reason, until })
    }

    /// For people, and for Cluster API's autoscaler.
    pub(super) fn failure_message(&mut self, message: Option<String>) {
        self.status.failure_message = message;
    }

    fn give_up(
        &mut self,
        reason: FailureReason,
        type_: &MachineOperationType,
        description: String,
    ) {
        self.machine_phase(&MachinePhase::Failed);
        self.show(Activity::GiveUp(type_, &description));
        self.effects.event(true, EventReason::MachineFailed, format!("{reason}: {description}"));
        self.status.failure_reason = Some(reason);
        // By it Cluster API's autoscaler lowers the replicas, which would be a second answer where a set replaces the Machine.
        self.status.failure_message = (!self.machine.has_machine_set()).then_some(description);
        retry::clear(self);
        self.step(None);
    }
}
