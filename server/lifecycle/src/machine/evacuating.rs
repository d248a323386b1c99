//! The pods of a preserved Failed Machine leave its Node once, so that what ran there runs elsewhere. Afterwards the
//! Node is left alone: a user may examine it and put pods on it. It is not cordoned, for its taint keeps all other pods
//! away.

use ostler_api::machine::{DrainProgress, DrainPurpose};

use super::{draining::drain, pass::Pass, transition::Outcome, volumes};

/// Whether the pods have left.
pub(crate) fn is_done(pass: &Pass<'_>) -> bool {
    drain::is_finished(pass, &DrainPurpose::Preservation)
}

/// Whether pods refuse to leave.
pub(crate) fn is_stuck(pass: &Pass<'_>) -> bool {
    let drain = pass.status.drain.as_ref();
    let refused = |drain: &DrainProgress| !drain.finished && drain.blocked + drain.failing > 0;
    drain.is_some_and(|it| it.purpose() == DrainPurpose::Preservation && refused(it))
}

/// The Node is not preserved any more, or not Failed: the next time, its pods leave again. A Node cordoned for an
/// earlier update in place takes pods again.
pub(crate) fn forget(pass: &mut Pass<'_>) {
    drain::give_back(pass, &DrainPurpose::Preservation);
}

/// Asks the pods to leave. Goes on if none is left, or if nothing can be done about them.
pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome<()> {
    if is_done(pass) || pass.nodes().is_empty() {
        return Ok(());
    }
    let current = pass.status.current_status.as_ref();
    let failed_at = current.and_then(|current| current.last_update_time.clone());
    drain::begin(pass, DrainPurpose::Preservation, failed_at);
    let force = drain::must_force(pass);
    let forced = drain::evict_pods(pass, force)?;
    if !force {
        volumes::wait_for_detach(pass)?;
    }
    drain::finish(pass, forced);
    pass.step(None);
    Ok(())
}
