//! Takes what the driver answered into the status, whatever state the Machine is in: nothing that a
//! driver did is forgotten because a Machine was deleted meanwhile.

use std::{collections::BTreeMap, time::Duration};

use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind},
    machine::{
        Machine, MachineAddress, MachineConditionType, MachineOperationType, MachinePhase,
        MachineState, MachineStep, OperationIntent, Retry, WaitReason,
    },
    names,
};

use super::{
    State, absence, adoption, cluster_id, conditions, creating, initializing, joining,
    pass::{End, Pass, Reading, after, key_of},
    retry::{self, First, Move, Rule},
    standing::Standing,
    takeover::{self, Upstream},
    updating,
};
use crate::{
    node,
    operation::{Failure, Finished, InstanceRecord, OperationView, Success},
    plan::EventReason,
    snapshot::{ClassView, TargetView},
};

/// How soon an instance is looked at again that was reported in a way that cannot be right.
const ODD_RECORD_RETRY: Duration = Duration::from_mins(1);

/// Takes the result in the snapshot, if there is one, and moves the state on.
pub(crate) fn settle(pass: &mut Pass<'_>, state: &mut State) {
    let finished = match pass.standing() {
        Standing::Working => return keep_early_checkpoint(pass),
        Standing::Free | Standing::Unresolved => return,
        Standing::Stale(finished) => return stale(pass, finished),
        Standing::Answer(finished) => finished,
    };
    pass.settle(&finished.id);
    keep_in_history(pass, finished);
    keep_checkpoint(pass, finished);
    let next = match &finished.outcome {
        Ok(success) => succeeded(pass, success, *state),
        Err(failure) => {
            let changed = cluster_id::changed(pass, failure);
            failed(pass, finished, changed.as_ref().unwrap_or(failure), *state)
        }
    };
    *state = next;
}

/// For people who ask later what the driver said.
fn keep_in_history(pass: &mut Pass<'_>, finished: &Finished) {
    let (code, message) = match &finished.outcome {
        Ok(_) => ("OK", None),
        Err(failure) => (failure.code.name(), Some(failure.text())),
    };
    let now = pass.now();
    let history = pass.status.history.get_or_insert_default();
    history.answered(finished.kind.into(), code, message, now);
}

/// Nobody waits for it any more. An instance that was made for this Machine, which does not know it, is
/// not forgotten for that: it is there.
fn stale(pass: &mut Pass<'_>, finished: &Finished) {
    pass.settle(&finished.id);
    if let Ok(Success::Created(record)) = &finished.outcome
        && pass.provider_id().is_none()
        && is_own_create(pass.machine, finished, record)
    {
        adopt(pass, record, None);
    }
}

/// Whether an instance was made by a create of this very Machine.
pub(crate) fn is_own_create(
    machine: &Machine,
    finished: &Finished,
    record: &InstanceRecord,
) -> bool {
    let tagged = record.machine_uid.as_str();
    finished.idempotency_key == key_of(machine.uid(), OperationKind::CreateMachine)
        && (tagged.is_empty() || tagged == machine.uid())
}

/// What a driver wants handed back should this attempt come to nothing: core and driver may both be
/// gone before there is an answer.
fn keep_early_checkpoint(pass: &mut Pass<'_>) {
    let OperationView::InFlight(flight) = &pass.snap.operation else { return };
    let said = flight.progress.as_ref().map(|progress| &progress.checkpoint);
    if let Some(checkpoint) = said.filter(|it| flight.kind.is_mutation() && !it.is_empty()) {
        pass.status.last_known_state = Some(checkpoint.clone());
    }
}

/// What a driver wants handed back. Only a mutation that is done needs nothing handed back: a
/// failure, a lost session or a read that brings nothing takes nothing away.
fn keep_checkpoint(pass: &mut Pass<'_>, finished: &Finished) {
    match finished.checkpoint.as_deref() {
        Some(checkpoint) if !checkpoint.is_empty() => {
            pass.status.last_known_state = Some(checkpoint.to_owned());
        }
        Some(_) if finished.kind.is_mutation() && finished.outcome.is_ok() => {
            pass.status.last_known_state = None;
        }
        Some(_) | None => {}
    }
}

fn succeeded(pass: &mut Pass<'_>, success: &Success, state: State) -> State {
    match success {
        Success::Read(record) => read(pass, Reading::Found(record.clone()), state),
        Success::Created(record) => created(pass, record, state),
        Success::Initialized(record) => {
            pass.status.operation = None;
            initialized(pass, record.as_ref(), state)
        }
        Success::Updated { .. } => {
            let intent = pass.status.operation.take();
            updating::succeeded(pass, intent.as_ref());
            state
        }
        Success::Deleted { was_absent } => {
            pass.status.operation = None;
            let gone = !was_absent || absence::accept(pass);
            pass.end = gone.then_some(End::Deleted);
            state
        }
        Success::VolumeIds(ids) => {
            pass.volume_ids = Some(ids.clone());
            state
        }
        // Never asked on behalf of a Machine.
        Success::Listed(_) | Success::Reviewed(_) => state,
    }
}

fn failed(pass: &mut Pass<'_>, finished: &Finished, failure: &Failure, state: State) -> State {
    match finished.kind {
        OperationKind::CreateMachine => creation_failed(pass, failure, state),
        OperationKind::InitializeMachine => initialization_failed(pass, failure, state),
        OperationKind::UpdateMachine => {
            let rule = lose(pass, OperationKind::UpdateMachine, failure);
            updating::failed(pass, failure, &rule);
            state
        }
        OperationKind::DeleteMachine => {
            deletion_failed(pass, failure);
            state
        }
        OperationKind::GetMachineStatus => {
            let reading = match retry::rule_for(finished.kind, failure).then {
                Move::Absent => Reading::NotFound,
                Move::NotInitialized => Reading::Uninitialized,
                Move::GoOn => Reading::CannotRead,
                Move::Backoff { .. }
                | Move::OnClassChange
                | Move::OnSecretChange { .. }
                | Move::WhenThereIsRoom
                | Move::GiveUp(_)
                | Move::Accept
                | Move::Refuse(_)
                | Move::LookAgain { .. } => Reading::Failed(failure.clone()),
            };
            read(pass, reading, state)
        }
        OperationKind::GetVolumeIds => {
            // A drain does not wait for a driver: it goes by what the API server knows.
            pass.volume_ids = Some(BTreeMap::new());
            state
        }
        OperationKind::ListMachines | OperationKind::ValidateClass => state,
    }
}

/// A read resolves an intent whose outcome was unknown, unless it failed itself.
fn read(pass: &mut Pass<'_>, reading: Reading, state: State) -> State {
    if matches!(reading, Reading::Failed(_)) {
        pass.reading = Some(reading);
        return state;
    }
    let intent = pass.status.operation.take();
    let next = match &reading {
        Reading::Found(record) => found(pass, record, intent, state),
        Reading::Uninitialized if state == State::Creating || state == State::Joining => {
            creating::note_start(pass);
            State::Initializing
        }
        Reading::Uninitialized | Reading::NotFound | Reading::CannotRead | Reading::Failed(_) => {
            state
        }
    };
    pass.reading = Some(reading);
    next
}

fn found(
    pass: &mut Pass<'_>,
    record: &InstanceRecord,
    intent: Option<OperationIntent>,
    state: State,
) -> State {
    let was_create = intent
        .as_ref()
        .is_some_and(|intent| intent.operation_kind() == Some(OperationKind::CreateMachine));
    if !adopt(pass, record, intent) {
        return state;
    }
    if adoption::is_needed(pass, record) {
        let creation = matches!(state, State::Creating | State::Initializing | State::Joining);
        return if creation { State::Creating } else { state };
    }
    adoption::note(pass);
    if state == State::Joining && record.initialized == Some(false) {
        return State::Initializing;
    }
    if state != State::Creating {
        return state;
    }
    // An instance that was there before has been initialized unless the driver says otherwise.
    if record.initialized.unwrap_or_else(|| !was_create && !initializing::is_owed(pass)) {
        joining::enter(pass);
        return State::Joining;
    }
    State::Initializing
}

fn created(pass: &mut Pass<'_>, record: &InstanceRecord, state: State) -> State {
    let intent = pass.status.operation.take();
    let digest = intent.as_ref().and_then(|intent| intent.spec_digest.clone());
    let known = adoption::was_known(intent.as_ref(), record);
    let owed = !known || initializing::is_owed(pass);
    if !adopt(pass, record, intent) {
        return state;
    }
    adoption::note(pass);
    // An earlier create with another spec may be the one that made it.
    let one_spec = pass.status.creation_spec_digest.take() == digest;
    if known {
        adoption::done(pass, record);
    } else {
        pass.event(false, EventReason::InstanceCreated, record.provider_id.clone());
        if one_spec {
            note_applied(pass, digest.as_deref());
        }
    }
    if pass.is_over() || state == State::Running {
        return state;
    }
    if !known {
        let now = pass.now();
        let type_ = MachineConditionType::InstanceCreated;
        conditions::set(&mut pass.status, &now, &type_, true, node::MADE, "");
    }
    if record.initialized.unwrap_or(!owed) {
        joining::enter(pass);
        return State::Joining;
    }
    State::Initializing
}

/// INV-6: the annotation names a spec only when a driver reported just that one as applied. If the
/// class changed while the driver worked, the text of what was applied is not known any more.
pub(crate) fn note_applied(pass: &mut Pass<'_>, digest: Option<&str>) -> bool {
    let ClassView::Known(class) = &pass.snap.class else { return false };
    if digest != Some(class.spec_digest.as_str()) {
        return false;
    }
    let key = names::annotation::LAST_APPLIED_PROVIDER_SPEC.to_owned();
    pass.patch.annotations.insert(key, Some(class.provider_spec.clone()));
    true
}

/// Makes an instance the Machine's own. False: the record cannot be right; it is read again later,
/// and the intent stays unresolved until then.
fn adopt(pass: &mut Pass<'_>, record: &InstanceRecord, intent: Option<OperationIntent>) -> bool {
    let odd = if record.provider_id.is_empty() {
        Some((WaitReason::EmptyProviderId, "the driver reported an empty provider id".to_owned()))
    } else {
        pass.snap.provider_id_holder.as_ref().map(|other| {
            let id = &record.provider_id;
            (WaitReason::DuplicateProviderId, format!("machine {other} has provider id {id}"))
        })
    };
    if let Some((reason, message)) = odd {
        distrust(pass, intent, reason, message);
        return false;
    }
    pass.status.retry = None;
    learn(pass, record);
    true
}

fn distrust(
    pass: &mut Pass<'_>,
    intent: Option<OperationIntent>,
    reason: WaitReason,
    message: String,
) {
    pass.status.operation =
        intent.map(|intent| OperationIntent { outcome_unknown: true, ..intent });
    pass.event(true, EventReason::InstanceCreateFailed, format!("{reason}: {message}"));
    pass.status.retry = Some(Retry {
        kind: OperationKind::GetMachineStatus.into(),
        code: ErrorCode::Internal.name().to_owned(),
        reason,
        message: Some(message),
        failures: 1,
        not_before: Some(after(pass.snap.now, ODD_RECORD_RETRY).into()),
        class_revision: None,
        secret_revision: None,
        provider_id: None,
    });
}

/// Takes over what the driver knows of the instance.
fn learn(pass: &mut Pass<'_>, record: &InstanceRecord) {
    if pass.machine.provider_id() != Some(record.provider_id.as_str()) {
        pass.patch.provider_id = Some(record.provider_id.clone());
    }
    let joins = pass.snap.target != TargetView::None;
    if joins && pass.machine.node_name().is_none() && !record.node_name.is_empty() {
        pass.patch.labels.insert(names::label::NODE.to_owned(), record.node_name.clone());
    }
    if pass.machine.annotation(names::annotation::PRIORITY).is_none() {
        let value = names::annotation::DEFAULT_PRIORITY.to_owned();
        pass.patch.annotations.insert(names::annotation::PRIORITY.to_owned(), Some(value));
    }
    // Those of an instance that is no more are nobody's.
    let same = pass.machine.provider_id().is_none_or(|id| id == record.provider_id);
    let known = if same { std::mem::take(&mut pass.status.addresses) } else { Vec::new() };
    let mut addresses: Vec<MachineAddress> = known;
    addresses.extend(record.addresses.iter().cloned());
    addresses.sort();
    addresses.dedup();
    pass.status.addresses = addresses;
}

fn initialized(pass: &mut Pass<'_>, record: Option<&InstanceRecord>, state: State) -> State {
    if pass.is_over() {
        return state;
    }
    if record.is_some_and(|record| record.initialized == Some(false)) {
        let text = "the driver reported success, and the instance as not initialized";
        let failure = Failure::new(ErrorCode::Uninitialized, Certainty::NotApplied, text);
        return initialization_failed(pass, &failure, state);
    }
    // An instance that is another Machine's is not this one's for having been initialized.
    let shared = pass.snap.provider_id_holder.is_some();
    if let Some(record) = record.filter(|it| !it.provider_id.is_empty() && !shared) {
        learn(pass, record);
    }
    pass.status.retry = None;
    let now = pass.now();
    let type_ = MachineConditionType::InstanceInitialized;
    conditions::set(&mut pass.status, &now, &type_, true, "Initialized", "");
    pass.event(false, EventReason::InstanceInitialized, pass.name().to_owned());
    joining::enter(pass);
    State::Joining
}

/// A mutation failed. If nobody can tell what it left behind, the intent stays: a read decides.
fn lose(pass: &mut Pass<'_>, kind: OperationKind, failure: &Failure) -> Rule {
    let intent = pass.status.operation.take();
    let rule = if pass.is_over() && kind != OperationKind::DeleteMachine {
        retry::rule_for(kind, failure)
    } else {
        retry::remember(pass, kind, failure)
    };
    if rule.first == First::Read {
        pass.status.operation =
            intent.map(|intent| OperationIntent { outcome_unknown: true, ..intent });
    }
    rule
}

fn creation_failed(pass: &mut Pass<'_>, failure: &Failure, state: State) -> State {
    if state == State::Running {
        return adoption_failed(pass, failure);
    }
    let first = pass.status.operation.as_ref().is_some_and(|intent| intent.attempt == 1);
    if first && failure.certainty == Certainty::NotApplied {
        pass.status.creation_spec_digest = None;
    }
    let rule = lose(pass, OperationKind::CreateMachine, failure);
    if pass.is_over() {
        return state;
    }
    creating::failed(pass, failure);
    if let Move::GiveUp(reason) = rule.then {
        pass.fail(reason, MachineOperationType::Create, &failure.text());
        return State::Failed;
    }
    state
}

/// The Machine runs, and goes on running.
fn adoption_failed(pass: &mut Pass<'_>, failure: &Failure) -> State {
    let rule = lose(pass, OperationKind::CreateMachine, failure);
    adoption::failed(pass, failure);
    if matches!(rule.then, Move::GiveUp(_)) {
        pass.status.retry = None;
    }
    State::Running
}

fn initialization_failed(pass: &mut Pass<'_>, failure: &Failure, state: State) -> State {
    let rule = lose(pass, OperationKind::InitializeMachine, failure);
    if pass.is_over() {
        return state;
    }
    match rule.then {
        Move::Accept => {
            joining::enter(pass);
            return State::Joining;
        }
        Move::GiveUp(reason) => {
            pass.fail(reason, MachineOperationType::Create, &failure.text());
            return State::Failed;
        }
        Move::Backoff { .. }
        | Move::OnClassChange
        | Move::OnSecretChange { .. }
        | Move::WhenThereIsRoom
        | Move::Refuse(_)
        | Move::LookAgain { .. }
        | Move::Absent
        | Move::NotInitialized
        | Move::GoOn => {}
    }
    initializing::failed(pass, failure);
    if matches!(rule.then, Move::LookAgain { .. }) {
        // The lookup by identity finds the instance again, or makes it.
        pass.status.operation = None;
        pass.step(Some(MachineStep::CreateInstance));
        return State::Creating;
    }
    State::Initializing
}

fn deletion_failed(pass: &mut Pass<'_>, failure: &Failure) {
    let rule = lose(pass, OperationKind::DeleteMachine, failure);
    if rule.then == Move::Accept {
        pass.end = absence::accept(pass).then_some(End::Deleted);
        return;
    }
    let (now, text) = (pass.now(), failure.text());
    let type_ = MachineConditionType::InstanceDeleted;
    let (event, reason) = match adoption::stranger(failure) {
        Some(event) => (event, event.as_str()),
        None => (EventReason::InstanceDeleteFailed, failure.code.name()),
    };
    conditions::set(&mut pass.status, &now, &type_, false, reason, &text);
    let description = format!("deleting the instance failed: {text}");
    let (state, code) = (MachineState::Failed, failure.code.name());
    takeover::describe(pass, state, &description, Upstream::DeleteVm, Some(code));
    debug_assert_eq!(pass.status.machine_phase(), MachinePhase::Terminating);
    pass.event(true, event, format!("{}: {text}", failure.code));
}
