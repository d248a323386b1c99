//! There is no instance, or none is known: look it up by identity, and only if the driver says that
//! there is none, make it.

use ostler_api::SpecDigest;
use std::time::Duration;

use jiff::Timestamp;
use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind},
    machine::{FailureReason, MachineOperationType, MachinePhase, MachineStep, WaitReason},
};

use super::{
    State, absence, adoption, bootstrapping, initializing, instance, joining,
    last_operation::Activity,
    lost,
    pass::Pass,
    pooled, preconditions,
    reading::Reading,
    retry::{self, RetryAction},
    token,
    transition::{Outcome, Transition, fail, wait},
    updating,
};
use crate::{
    operation::{Failure, InstanceRecord, Request},
    plan::EventReason,
    snapshot::ClassFacts,
    time::after,
};

pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome {
    if pass.machine.has_pool() {
        return join_instance_of_group(pass);
    }
    if pass.is_working() {
        token::keep_alive(pass);
        return Ok(pass.wait_for_driver());
    }
    if pass.creation_overdue() {
        if let Err(lack) = preconditions::check(pass.snap)
            && lack.is_no_fault()
        {
            return Err(lack.into());
        }
        let text = lost::with_losses(pass, "no instance within the creation timeout");
        return Ok(fail(FailureReason::CreationTimeout, MachineOperationType::Create, text));
    }
    bootstrapping::gate(pass)?;
    let (class, driver) = preconditions::check(pass.snap)?;
    preconditions::target(pass.snap)?;
    retry::gate(pass)?;
    restore_created_condition(pass);
    Ok(match pass.learned.reading.take() {
        None if driver.has(OperationKind::GetMachineStatus) => pass.send_read(class),
        Some(Reading::NotFound) if let Some(until) = instance::catching_up(pass) => {
            let next = after(pass.snap.now, LOOK_AGAIN).min(until);
            let what = "the instance was created but the driver does not list it yet";
            look_again(pass, WaitReason::DriverRetry, what, next)
        }
        None | Some(Reading::NotFound | Reading::CannotRead)
            if let Some((reason, what)) = absence::doubt(pass, class) =>
        {
            let next = after(pass.snap.now, LOOK_AGAIN_IN_DOUBT);
            look_again(pass, reason, what, next).with_event(EventReason::Waiting)
        }
        None | Some(Reading::NotFound | Reading::CannotRead)
            if let Some(until) = absence::made_again_at(pass) =>
        {
            let next = after(pass.snap.now, LOOK_AGAIN).min(until);
            let what = format!(
                "the driver finds no instance; what the last create made is not known, and the infrastructure may not show \
                 it yet: none is made before {until}"
            );
            look_again(pass, WaitReason::DriverRetry, &what, next)
        }
        Some(Reading::NotFound) if instance::created_at(pass).is_some() => {
            lost::record(pass)?;
            retry::gate(pass)?;
            create(pass, class)?
        }
        None | Some(Reading::NotFound | Reading::CannotRead) => create(pass, class)?,
        Some(Reading::Failed(failure)) => read_failed(pass, &failure),
        Some(Reading::Found(record)) if adoption::is_needed(pass, &record) => create(pass, class)?,
        Some(Reading::Found(_) | Reading::Uninitialized) => Transition::To(State::Initializing),
    })
}

/// The pool made the Machine for an existing instance: the Node is awaited.
fn join_instance_of_group(pass: &mut Pass<'_>) -> Outcome {
    if pass.provider_id().is_none() {
        let text = "spec.providerID is empty, and the pool made this machine for an instance";
        return Err(wait(WaitReason::InstanceMissing, Some(text.to_owned()), None));
    }
    preconditions::target(pass.snap)?;
    if pass.status.instance.is_none() {
        // A user may have named the pool, and the id.
        return Err(pooled::wait_for_word());
    }
    start_creation(pass);
    instance::set_adopted(pass);
    instance::set_default_priority(pass);
    joining::enter(pass);
    Ok(Transition::To(State::Joining))
}

/// How soon an instance is looked for again that the infrastructure does not show yet.
const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// How soon the core looks again for an instance that another controller may have made.
const LOOK_AGAIN_IN_DOUBT: Duration = Duration::from_mins(1);

/// Restores the facts in the metadata after a core died before writing the status of a creation: the begin of the
/// creation, and that the instance was made, which a driver may list late. A status that was erased long afterwards
/// restores nothing.
pub(crate) fn restore_start(pass: &mut Pass<'_>) {
    let initializes = initializing::is_recorded(pass.machine);
    let known = pass.status.creation_started_at.is_some();
    if pass.provider_id().is_none() || (known && !initializes) {
        return;
    }
    if !known {
        let limit = pass.machine.creation_timeout(pass.snap.settings.creation_timeout);
        let started = pass.machine.operation_record().and_then(|it| it.creation_started_at);
        pass.status.creation_started_at =
            started.filter(|started| after(started.0, limit) > pass.snap.now);
    }
    if pass.status.creation_started_at.is_some() {
        instance::set_recorded(pass);
    }
}

/// A core that died between the two writes of an answer left the id of the instance behind, without a word in the
/// status. Since when the instance exists is unknown: at the latest from now on.
fn restore_created_condition(pass: &mut Pass<'_>) {
    let Some(id) = pass.provider_id().filter(|_| pass.is_unresolved()) else { return };
    let intent = pass.status.operation.as_ref();
    let creates = intent.filter(|it| it.operation_kind() == Some(OperationKind::CreateMachine));
    // An instance to be adopted existed before the create.
    let made = creates.is_some_and(|intent| intent.provider_id.as_ref() != Some(id));
    if made {
        instance::set_recorded(pass);
    }
}

/// Makes no instance, and asks for the instance that may exist again.
fn look_again(pass: &mut Pass<'_>, reason: WaitReason, what: &str, next: Timestamp) -> Transition {
    let failures = pass.status.retry.as_ref().map_or(1, |retry| retry.failures);
    let kind = OperationKind::GetMachineStatus;
    let retry = retry::wait_until(pass, kind, ErrorCode::NotFound, reason.clone(), what, next);
    retry.failures = failures;
    wait(reason, Some(what.to_owned()), Some(next)).lasting_since(retry.since.clone())
}

fn create(pass: &mut Pass<'_>, class: &ClassFacts) -> Outcome {
    let user_data = bootstrapping::user_data(pass)?;
    start_creation(pass);
    if instance::created_at(pass).is_none() {
        // Forgets the initialization of a lost instance.
        initializing::forget(pass);
    }
    let digest = &class.spec_digest;
    let before = pass.status.creation_spec_digest.take();
    pass.status.creation_spec_digest = Some(match before {
        Some(before) if before != *digest => SpecDigest::default(),
        Some(_) | None => digest.clone(),
    });
    pass.step(Some(MachineStep::CreateInstance));
    pass.show(Activity::Create);
    let provider_id = pass.provider_id().cloned().unwrap_or_default();
    Ok(pass.send(class, Request::Create { user_data, provider_id }))
}

/// From now on the creation timeout counts, and an instance of this Machine can only be ours.
pub(crate) fn start_creation(pass: &mut Pass<'_>) {
    if pass.status.creation_started_at.is_none() {
        pass.status.creation_started_at = Some(pass.now());
    }
}

fn read_failed(pass: &mut Pass<'_>, failure: &Failure) -> Transition {
    if !retry::is_loss_of_session(failure) {
        if absence::proves(pass.snap, &pass.status) {
            start_creation(pass);
        }
        pass.step(Some(MachineStep::CreateInstance));
        show_failure(pass, OperationKind::GetMachineStatus, failure);
    }
    retry::after_read(pass, failure)
}

/// A read found the instance that a create has made whose outcome was not a success: that is told as it would
/// have been then.
pub(crate) fn tell_if_made(pass: &mut Pass<'_>, record: &InstanceRecord, was_create: bool) {
    let sent = was_create || pass.status.creation_spec_digest.is_some();
    let ours = record.machine_uid == pass.machine.uid();
    if sent && ours && instance::created_at(pass).is_none() {
        instance::set_made(pass);
        pass.effects.event(false, EventReason::InstanceCreated, record.provider_id.clone().into());
    }
}

/// A read found the instance. `was_create`: the read settles a create of unknown outcome.
pub(crate) fn found(pass: &mut Pass<'_>, record: &InstanceRecord, was_create: bool) -> State {
    // An instance that was there before has been initialized unless the driver says otherwise.
    let initialized = record.initialized;
    if initialized.unwrap_or_else(|| !was_create && !initializing::is_owed(pass)) {
        joining::enter(pass);
        return State::Joining;
    }
    State::Initializing
}

/// The driver made the instance, or could not.
pub(crate) fn answered(
    pass: &mut Pass<'_>,
    result: Result<&InstanceRecord, &Failure>,
    state: State,
) -> Transition {
    let failure = match result {
        Ok(record) => return Transition::To(created(pass, record, state)),
        Err(failure) if state == State::Running => {
            adoption::failed(pass, failure);
            return Transition::To(state);
        }
        Err(failure) => failure,
    };
    // A lost create leaves no retry, so the number of the attempt does not tell.
    let begun = pass.status.creation_started_at.as_ref();
    let intent = pass.status.operation.as_ref();
    let first = begun.is_some() && intent.and_then(|it| it.started_at.as_ref()) == begun;
    if first && failure.certainty == Certainty::NotApplied {
        pass.status.creation_spec_digest = None;
    }
    if failure.certainty != Certainty::NotApplied {
        instance::doubt_creation(pass);
    }
    let rule = retry::remember_mutation(pass, OperationKind::CreateMachine, failure);
    if pass.is_over() {
        return Transition::To(state);
    }
    show_failure(pass, OperationKind::CreateMachine, failure);
    if let RetryAction::GiveUp(reason) = rule.then {
        return fail(reason, MachineOperationType::Create, failure.text());
    }
    Transition::To(state)
}

fn created(pass: &mut Pass<'_>, record: &InstanceRecord, state: State) -> State {
    let intent = pass.end_operation();
    let digest = intent.as_ref().and_then(|intent| intent.spec_digest.clone());
    let known = adoption::was_known(intent.as_ref(), record);
    let owed = !known || initializing::is_owed(pass);
    if !instance::adopt(pass, record, intent) {
        return state;
    }
    adoption::record_identity(pass);
    // An earlier create with another spec may have made the instance.
    let one_spec = pass.status.creation_spec_digest.take() == digest;
    if known {
        adoption::record_adoption(pass, record);
    } else {
        pass.effects.event(false, EventReason::InstanceCreated, record.provider_id.to_string());
        if one_spec {
            updating::note_applied(pass, digest.as_ref());
        }
    }
    if pass.is_over() || state == State::Running {
        return state;
    }
    if !known {
        instance::set_made(pass);
    }
    if record.initialized.unwrap_or(!owed) {
        joining::enter(pass);
        return State::Joining;
    }
    State::Initializing
}

/// Shows that the instance could not be made, or not be looked up before.
fn show_failure(pass: &mut Pass<'_>, kind: OperationKind, failure: &Failure) {
    instance::set_not_made(pass, failure);
    let (code, text) = (failure.code.name(), failure.text());
    let lacks_capacity = retry::rule_for(kind, failure).reason == WaitReason::CapacityExhausted;
    if failure.code == ErrorCode::ResourceExhausted && !lacks_capacity {
        // By that code autoscalers look for room elsewhere.
        let busy = Failure { code: ErrorCode::Unavailable, ..failure.clone() };
        pass.show(Activity::CreateFailed(&busy));
    } else {
        pass.show(Activity::CreateFailed(failure));
    }
    pass.machine_phase(&MachinePhase::CrashLoopBackOff);
    // Cluster API's autoscaler backs off by nothing else. No set replaces this Machine: a replacement would be a second
    // answer.
    let told = lacks_capacity && pass.machine.has_machine_set();
    pass.failure_message(told.then(|| text.clone()));
    pass.effects.event(true, EventReason::InstanceCreateFailed, format!("{code}: {text}"));
}
