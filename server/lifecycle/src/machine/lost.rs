//! The instance was made for this Machine, and is gone before its Node has joined. The cause of the loss takes the next
//! instance, too: the pauses grow, and after a few losses the Machine has failed.

use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind},
    machine::{FailureReason, InstanceLosses, MachineOperationType, MachinePhase, MachineStep},
    operation::Reason,
};

use super::{
    instance,
    last_operation::Activity,
    pass::Pass,
    retry,
    transition::{Outcome, fail},
};
use crate::{
    numbered,
    operation::{Failure, OperationView},
    plan::EventReason,
};

/// Writes down that the instance is gone. Until the next instance is made, the Machine waits as after a failed create.
///
/// # Errors
/// So many were lost that the Machine is given up.
pub(crate) fn record(pass: &mut Pass<'_>) -> Outcome<()> {
    let count = pass.status.losses.as_ref().map_or(0, |it| it.count).saturating_add(1);
    let (id, said) = (pass.provider_id().cloned(), last_word(pass));
    let which =
        id.as_ref().map_or_else(|| "the instance".to_owned(), |id| format!("instance {id}"));
    let lost = numbered(count, "instance");
    let text = format!(
        "{which} was gone before its node had joined; lost so far: {lost}; the driver said: {said}"
    );
    pass.status.losses = Some(InstanceLosses {
        count,
        last_at: Some(pass.now()),
        provider_id: id,
        message: Some(said),
    });
    instance::set_lost(pass, &text);
    pass.effects.event(true, EventReason::InstanceLost, text.clone());
    let failure =
        Failure::by_core(ErrorCode::NotFound, Reason::CoreLost, &text, Certainty::NotApplied);
    pass.show(Activity::CreateFailed(&failure));
    if count >= retry::MOST_LOSSES {
        return Err(fail(FailureReason::InstanceMissing, MachineOperationType::Create, text));
    }
    pass.step(Some(MachineStep::CreateInstance));
    pass.machine_phase(&MachinePhase::CrashLoopBackOff);
    retry::remember_times(pass, OperationKind::CreateMachine, &failure, count);
    Ok(())
}

/// The Node has joined: earlier losses do not count any more.
pub(crate) fn forget(pass: &mut Pass<'_>) {
    pass.status.losses = None;
    if pass.status.joined_at.is_none() {
        pass.status.joined_at = Some(pass.now());
    }
}

/// Adds the losses on the way to a text about the creation.
pub(crate) fn with_losses(pass: &Pass<'_>, text: &str) -> String {
    let message =
        pass.status.losses.as_ref().map(|it| (numbered(it.count, "instance"), &it.message));
    match message {
        Some((lost, Some(said))) => format!("{text}; lost: {lost}; the driver said: {said}"),
        Some((lost, None)) => format!("{text}; lost: {lost}"),
        None => text.to_owned(),
    }
}

/// The driver's last message.
fn last_word(pass: &Pass<'_>) -> String {
    let OperationView::Finished(finished) = &pass.snap.operation else { return "none".to_owned() };
    match &finished.outcome {
        Err(failure) => format!("{}: {}", failure.code, failure.text()),
        Ok(_) => "none".to_owned(),
    }
}
