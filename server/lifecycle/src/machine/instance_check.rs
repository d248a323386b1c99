//! Whether the instance of an unhealthy Node still exists. A user may have deleted it by hand;
//! then nothing is gained by waiting for the health timeout.

use jiff::Timestamp;
use ostler_api::machine::{FailureReason, MachineOperationType};

use super::{
    absence, instance,
    pass::Pass,
    preconditions,
    reading::Reading,
    transition::{Outcome, Transition, fail},
};
use crate::{
    hint::{HintUse, HintView},
    time::after,
};

/// Asks the driver once when the Node becomes unhealthy, then from time to time, beside everything
/// else that the pass does.
///
/// # Errors
/// The instance does not exist: the Machine is given up. Otherwise when to look again, if an answer
/// or a driver that comes does not say so first.
pub(crate) fn check(pass: &mut Pass<'_>) -> Outcome<Option<Timestamp>> {
    if let Some(reading) = pass.learned.reading.take() {
        if matches!(reading, Reading::NotFound) {
            missed(pass)?;
        }
        record(pass);
    }
    let known = pass.provider_id().is_some() && pass.is_free();
    let class = preconditions::class_to_read(pass.snap).filter(|_| known);
    let Some(class) = class else { return Ok(None) };
    let next = next_check(pass);
    if pass.snap.now < next {
        return Ok(Some(next));
    }
    pass.ask_status(class);
    Ok(None)
}

/// Takes the answer to a look that a driver asked for, while the Node may still be healthy.
///
/// # Errors
/// The instance does not exist: the Machine is given up. Not while an API server is away.
pub(crate) fn conclude(pass: &mut Pass<'_>) -> Outcome<()> {
    let none = matches!(pass.learned.reading, Some(Reading::NotFound));
    if none && pass.provider_id().is_some() && !pass.snap.api.frozen {
        missed(pass)?;
    }
    Ok(())
}

/// Takes "none" as the answer. Two findings prove that an instance is gone: a driver's own report and a look, or two
/// looks at different times. A single finding may be an error, and lists may lag behind a creation. The Machine is
/// given up without a new instance in its place, so an error costs no second instance.
fn missed(pass: &mut Pass<'_>) -> Outcome<()> {
    if !absence::proves(pass.snap, &pass.status) {
        return Ok(());
    }
    let own = |hint: &&HintView| hint.lost.is_none() || hint.lost.as_ref() == pass.instance_id();
    let told = pass.snap.hint.as_ref().filter(|hint| hint.gone).filter(own);
    if told.is_some_and(|hint| hint.asked) {
        return Err(give_up(pass));
    }
    if told.is_none() {
        let again = after(pass.snap.now, absence::SECOND_LOOK);
        let again = instance::catching_up(pass).map_or(again, |until| again.max(until));
        pass.effects.hint = Some(HintUse::Missed(again));
    }
    Ok(())
}

fn give_up(pass: &mut Pass<'_>) -> Transition {
    let text = "the driver reports that the instance does not exist any more";
    pass.status.instance_checked_at = None;
    fail(FailureReason::InstanceMissing, MachineOperationType::HealthCheck, text)
}

/// The driver said now how the instance is.
pub(crate) fn record(pass: &mut Pass<'_>) {
    pass.status.instance_checked_at = Some(pass.now());
}

/// Looks an instance up by identity whose provider id a user erased: without the id, its Node is no
/// Machine's.
pub(crate) fn find_id(pass: &Pass<'_>) -> Outcome<()> {
    let erased = pass.provider_id().is_none() && pass.has_seen_instance();
    let may_ask = erased && pass.learned.reading.is_none() && pass.is_free();
    match preconditions::class_to_read(pass.snap) {
        Some(class) if may_ask => Err(pass.send_read(class)),
        Some(_) | None => Ok(()),
    }
}

/// When the driver is asked again. Not before a second look, which would be no look apart.
fn next_check(pass: &Pass<'_>) -> Timestamp {
    let second = pass.snap.hint.as_ref().and_then(|hint| hint.not_before);
    let due = due(pass);
    second.map_or(due, |second| due.max(second))
}

fn due(pass: &Pass<'_>) -> Timestamp {
    let current = pass.status.current_status.as_ref();
    let unhealthy_since = current.and_then(|current| current.last_update_time.as_ref());
    let asked = pass.status.instance_checked_at.as_ref();
    match (asked, unhealthy_since) {
        (Some(asked), since) if since.is_none_or(|since| asked.0 >= since.0) => {
            let next = after(asked.0, pass.snap.settings.instance_check);
            // An answer within the list lag proves nothing: check again after the lag.
            let proves = instance::caught_up_at(pass).filter(|at| asked.0 < *at);
            proves.map_or(next, |at| next.min(at))
        }
        _ => pass.snap.now,
    }
}
