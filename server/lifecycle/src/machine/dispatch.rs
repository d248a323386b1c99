//! Requests to a driver, and the intent recorded before a mutation.

use std::collections::BTreeMap;

use ostler_api::{driver::OperationKind, machine::OperationIntent};

use super::{pass::Pass, transition::Transition};
use crate::{
    operation::{Dispatch, Lane, MachineMetadata, Request, Target},
    snapshot::ClassFacts,
};

impl Pass<'_> {
    /// A read of the instance.
    pub(crate) fn send_read(&self, class: &ClassFacts) -> Transition {
        Transition::Read(Box::new(self.status_request(class)))
    }

    /// Asks for the instance, beside everything else that the pass does.
    pub(crate) fn ask_status(&mut self, class: &ClassFacts) {
        self.effects.dispatch = Some(self.status_request(class));
    }

    /// Asks for the infrastructure's names of these volumes, beside the other work of the pass.
    pub(crate) fn ask_volume_ids(&mut self, class: &ClassFacts, specs: BTreeMap<String, String>) {
        self.effects.dispatch = Some(self.dispatch_of(class, Request::VolumeIds { specs }));
    }

    fn status_request(&self, class: &ClassFacts) -> Dispatch {
        let class = self.snap.class_before.as_ref().unwrap_or(class);
        let provider_id = self.provider_id().cloned().unwrap_or_default();
        self.dispatch_of(class, Request::Status { provider_id })
    }

    /// A mutation, with the intent that is written down before it is sent.
    pub(crate) fn send(&self, class: &ClassFacts, request: Request) -> Transition {
        let kind = request.kind();
        debug_assert!(kind.is_mutation(), "{kind} needs no intent");
        let attempt = self.status.retry.as_ref().map_or(0, |retry| retry.failures) + 1;
        let provider_id = if let Request::Create { provider_id, .. } = &request {
            Some(provider_id.clone()).filter(|id| !id.is_empty())
        } else {
            None
        };
        let dispatch = self.dispatch_of(class, request);
        let intent = class.intent(&dispatch, self.snap.term, attempt, self.snap.now);
        let intent = OperationIntent { provider_id, ..intent };
        Transition::Send(Box::new(dispatch), Box::new(intent))
    }

    fn dispatch_of(&self, class: &ClassFacts, request: Request) -> Dispatch {
        let (id, kind) = (self.snap.fresh.operation_id.clone(), request.kind());
        let told = kind != OperationKind::GetVolumeIds;
        Dispatch {
            machine: told.then(|| Box::new(MachineMetadata::of(self.machine))),
            idempotency_key: idempotency_key(self.machine.uid(), kind, class),
            adopt_by_name: self.snap.settings.adopts_by_name(class),
            checkpoint: self.status.last_known_state.clone().unwrap_or_default(),
            lane: Lane::User,
            ..class.dispatch(id, Target::of_machine(self.machine), request, kind.usual_time())
        }
    }
}

/// `<uid>:<verb>`, and for an update the digest of the spec: another spec is another intent.
fn idempotency_key(uid: &str, kind: OperationKind, class: &ClassFacts) -> String {
    let key = key_of(uid, kind);
    if kind == OperationKind::UpdateMachine { format!("{key}:{}", class.spec_digest) } else { key }
}

/// `<uid>:<verb>`.
pub(crate) fn key_of(uid: &str, kind: OperationKind) -> String {
    kind.key_of(uid)
}
