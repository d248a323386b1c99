//! Deletion: the instance goes. Only the driver can say that it is gone.

use ostler_api::{
    driver::OperationKind,
    machine::{MachineConditionType, MachineStep},
};

use super::{
    State, abandoning, absence, adoption, conditions, draining, hooks,
    last_operation::Activity,
    pass::{Pass, Release},
    pooled, preconditions,
    reading::Reading,
    retry::{self, RetryAction},
    takeover::Upstream,
    token,
    transition::{Outcome, Transition},
};
use crate::{
    operation::{Failure, Request},
    plan::EventReason,
};

const DELETED: MachineConditionType = MachineConditionType::InstanceDeleted;

pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome {
    if pass.learned.release.is_some() {
        return Ok(Transition::To(State::Finishing));
    }
    if pass.status.step != Some(MachineStep::PreTerminateHook) {
        pass.step(Some(MachineStep::DeleteInstance));
    }
    if let (true, Some(node)) = (pass.takes_long(), pass.node()) {
        draining::mark_terminating(pass, node);
    }
    pass.unless_working()?;
    abandoning::plan(pass)?;
    let drained = pass.status.drain.as_ref().is_some_and(|drain| drain.finished);
    let going = pooled::is_going(pass);
    if pass.node().is_some() && !drained && !going {
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
    if let Some(Reading::Failed(failure)) = pass.learned.reading.take() {
        retry::remember(pass, OperationKind::GetMachineStatus, &failure);
    }
    retry::gate(pass)?;
    if pass.is_unresolved() && driver.has(OperationKind::GetMachineStatus) {
        return Ok(pass.send_read(class));
    }
    pass.show(Activity::Delete("deleting the instance", Upstream::DeleteVm));
    token::unless_it_may_join(pass)?;
    // By identity and name alone if the driver found nothing by the id: the id may be what is wrong.
    // An id that another Machine has is not evidence of an instance of this one: the driver finds
    // it by identity.
    let unnamed = pass.snap.provider_id_holder.is_some() || absence::is_asked_again(&pass.status);
    let provider_id = pass.provider_id().filter(|_| !unnamed).cloned().unwrap_or_default();
    Ok(pass.send(class, Request::Delete { provider_id }))
}

/// The driver deleted the instance, found none, or could not delete it.
pub(crate) fn answered(
    pass: &mut Pass<'_>,
    result: Result<bool, &Failure>,
    state: State,
) -> Transition {
    let gone = match result {
        Ok(was_absent) => {
            pass.end_operation();
            !was_absent || absence::accept(pass)
        }
        Err(failure) => {
            let rule = retry::remember_mutation(pass, OperationKind::DeleteMachine, failure);
            let accepted = rule.then == RetryAction::Accept;
            if !accepted {
                show_failure(pass, failure);
            }
            accepted && absence::accept(pass)
        }
    };
    pass.learned.release = gone.then_some(Release::Deleted);
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

/// Shows that the instance is gone.
pub(crate) fn show_deleted(pass: &mut Pass<'_>) {
    conditions::set(pass, &DELETED, true, "Deleted", "");
    let instance =
        pass.provider_id().map_or_else(|| "the instance".to_owned(), |id| format!("instance {id}"));
    pass.effects.event(false, EventReason::InstanceDeleted, format!("{instance} is gone"));
}
