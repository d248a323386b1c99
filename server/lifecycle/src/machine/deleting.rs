//! Deletion: the instance goes. Only the driver can say that the instance is gone.

use ostler_api::{driver::OperationKind, machine::MachineStep};

use super::{
    State, abandoning, absence, adoption, bootstrapping, conditions, draining, hooks,
    last_operation::Activity,
    pass::{Pass, Release},
    pooled, preconditions,
    reading::Reading,
    releasing::{DELETED, release},
    retry::{self, RetryAction},
    takeover::Upstream,
    token,
    transition::{Outcome, Transition},
};
use crate::{
    operation::{Failure, Request},
    plan::{EventReason, Next},
};

pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome {
    if pass.learned.release.is_some() {
        return Ok(Transition::To(State::Finishing));
    }
    if pass.status.step != Some(MachineStep::PreTerminateHook) {
        pass.step(Some(MachineStep::DeleteInstance));
    }
    if pass.takes_long() {
        draining::mark_terminating(pass);
    }
    pass.unless_working()?;
    abandoning::plan(pass)?;
    let drained = pass.status.drain.as_ref().is_some_and(|drain| drain.finished);
    let going = pooled::is_going(pass);
    if !pass.nodes().is_empty() && !drained && !going {
        // The Node came after all.
        return Ok(Transition::To(State::Draining));
    }
    // Once the driver was asked to delete the instance, no drain is repeated.
    if !pass.is_unresolved() && !going {
        draining::unless_unseen(pass)?;
        draining::repeat_if_needed(pass)?;
    }
    hooks::hold(pass, hooks::PRE_TERMINATE)?;
    pass.step(Some(MachineStep::DeleteInstance));
    pooled::wait_for_pool(pass)?;
    let (class, driver) = preconditions::check(pass.snap)?;
    let reading = pass.learned.reading.take();
    if let Some(Reading::Failed(failure)) = &reading {
        retry::remember(pass, OperationKind::GetMachineStatus, failure);
    }
    if matches!(reading, Some(Reading::Found(_))) && !pass.effects.patch.is_empty() {
        // The Node can be looked for only now.
        return Ok(Transition::Rest(Next::OnChange));
    }
    retry::gate(pass)?;
    // INV-4: an instance that was not seen may have joined meanwhile, so it is found before it goes.
    let unseen =
        reading.is_none() && pass.provider_id().is_none() && absence::is_asked_again(&pass.status);
    if (unseen || pass.is_unresolved()) && driver.has(OperationKind::GetMachineStatus) {
        return Ok(pass.send_read(class));
    }
    pass.show(Activity::Delete("deleting the instance", Upstream::DeleteVm));
    token::unless_it_may_join(pass)?;
    // By identity and name alone if the driver found nothing by the id: the id may be what is wrong. The id of another
    // Machine is not evidence of this Machine's instance: the driver finds the instance by identity.
    let unnamed = pass.snap.provider_id_holder.is_some()
        || absence::is_asked_again(&pass.status)
            && pass.status.creation_unconfirmed_since.is_none();
    let provider_id = pass.provider_id().filter(|_| !unnamed).cloned().unwrap_or_default();
    if pass.is_unresolved() {
        // No driver can tell the outcome of the operation.
        let intent = pass.end_operation();
        absence::lose_intent(pass, intent.as_ref());
    }
    // Usually gone by the time that the instance is.
    let _waits = bootstrapping::delete_copy(pass);
    Ok(pass.send(class, Request::Delete { provider_id }))
}

/// The driver deleted the instance, found none, or could not delete it.
pub(crate) fn answered(
    pass: &mut Pass<'_>,
    result: Result<bool, &Failure>,
    state: State,
) -> Transition {
    let begun = pass.status.operation.as_ref().and_then(|intent| intent.started_at.as_ref());
    let begun = begun.map_or(pass.snap.now, |time| time.0);
    let absent = match result {
        Ok(was_absent) => {
            pass.end_operation();
            was_absent
        }
        Err(failure) => {
            let rule = retry::remember_mutation(pass, OperationKind::DeleteMachine, failure);
            if rule.then != RetryAction::Accept {
                show_failure(pass, failure);
                return Transition::To(state);
            }
            true
        }
    };
    if !absent {
        release(pass, Release::Deleted);
    } else if absence::accept(pass, begun) {
        release(pass, Release::Absent);
    }
    Transition::To(state)
}

fn show_failure(pass: &mut Pass<'_>, failure: &Failure) {
    let text = failure.text();
    let (event, reason) = match adoption::stranger(failure) {
        Some(event) => (event, event.name()),
        None => (EventReason::InstanceDeleteFailed, failure.code.name()),
    };
    conditions::set(pass, &DELETED, false, reason, &text);
    pass.show(Activity::DeleteFailed(failure));
    pass.effects.event(true, event, format!("{}: {text}", failure.code));
}
