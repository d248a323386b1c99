//! The bootstrap token of a Machine: made before the create that carries it, kept alive while the
//! instance may still join with it, and deleted as soon as it may not, or its kubelet has
//! registered. Where the API server looks at that, it is bound to the Node of the Machine that the
//! driver named, unless that joins within moments.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use ostler_api::{
    machine::{MachineConditionType, MachinePhase, MachineStatus, WaitReason},
    names,
};

use super::{
    conditions, draining,
    pass::Pass,
    transition::{Outcome, Transition, wait},
};
use crate::{
    operation::SecretText,
    plan::{Action, Next, OnFailure, TokenRequest},
    snapshot::{BootstrapToken, Observed, TargetView},
    time::after,
    user_data,
};

/// A token lives this much longer than the creation may last, so that a late joiner fails by the
/// timeout and not by a token that is no more. Covers clocks that differ, too.
const SLACK: SignedDuration = SignedDuration::from_mins(5);

/// How long a new instance may take to join before its token is bound to its Node.
const BIND_AFTER: Duration = Duration::from_secs(2);

/// The token for the user data of a create, `<id>.<secret>`. An existing token is used again, with more time if
/// necessary: an instance that the driver does not see yet may hold the token.
pub(crate) fn for_create(pass: &mut Pass<'_>) -> Outcome<SecretText> {
    let id = user_data::token_id_of(pass.machine);
    let snap = pass.snap;
    let secret = match &snap.bootstrap_token {
        Observed::Unknown => {
            let what = "the bootstrap token has not been read yet".to_owned();
            return Err(wait(WaitReason::NotObserved, Some(what), None));
        }
        Observed::Known(token) if !is_ours(pass, token) => return Err(take_next(pass, &id)),
        Observed::Known(token) => {
            renew(pass, &id, token);
            &token.secret
        }
        Observed::Absent => {
            ensure(pass, &id, &snap.fresh.token_secret);
            &snap.fresh.token_secret
        }
    };
    let token = SecretText::new(format!("{id}.{}", secret.expose()));
    pass.status.bootstrap_token_id = Some(id);
    Ok(token)
}

/// Another object has the id. The next id is recorded and looked up before use.
fn take_next(pass: &mut Pass<'_>, taken: &str) -> Transition {
    let next = user_data::token_id_after(pass.machine.uid(), taken);
    pass.status.bootstrap_token_id = Some(next);
    let what =
        format!("bootstrap token {taken} does not belong to this machine; the next id is tried");
    // No event reports the token.
    wait(WaitReason::NotObserved, Some(what), Some(pass.snap.now))
}

/// The id of an existing token that no status records: the core died before the write, or a client erased the record.
pub(crate) fn recall(pass: &mut Pass<'_>) {
    if let Observed::Known(token) = &pass.snap.bootstrap_token
        && pass.status.bootstrap_token_id.is_none()
        && is_ours(pass, token)
    {
        pass.status.bootstrap_token_id = Some(user_data::token_id_of(pass.machine));
    }
}

/// The id of a token that a core may have made that died before it wrote a status. Whether it did, the deletion finds out.
fn unknown(pass: &Pass<'_>) -> Option<String> {
    let is_new = |it: &MachineStatus| it.machine_phase() == MachinePhase::New;
    let may_be_there = matches!(pass.snap.bootstrap_token, Observed::Unknown)
        && pass.snap.stored_status().is_none_or(is_new)
        && pass.ever_asked();
    may_be_there.then(|| user_data::token_id_of(pass.machine))
}

/// Sees to it that the token lasts for as long as the instance may still join: the time for that may
/// have been prolonged since it was made.
pub(crate) fn keep_alive(pass: &mut Pass<'_>) {
    let Some(id) = pass.status.bootstrap_token_id.clone() else { return };
    let snap = pass.snap;
    if let Observed::Known(token) = &snap.bootstrap_token
        && is_ours(pass, token)
    {
        renew(pass, &id, token);
    }
}

/// No instance may join with the token any more.
pub(crate) fn delete(pass: &mut Pass<'_>) {
    if matches!(pass.snap.target, TargetView::Lacking { .. }) {
        // The cluster cannot be reached. The id stays written down for when it can.
        return;
    }
    if let Some(id) = pass.status.bootstrap_token_id.take().or_else(|| unknown(pass)) {
        delete_by_id(pass, id);
    }
}

/// A deletion by force does not wait: the token expires by itself.
pub(crate) fn delete_by_id(pass: &mut Pass<'_>, id: String) {
    let forced = draining::is_forced(pass);
    let on_failure = if forced { OnFailure::GoOn } else { OnFailure::Stop };
    pass.effects.act_last(Action::DeleteBootstrapToken { id, on_failure });
}

/// INV-4: an instance that may join until its token is deleted may have pods that the last look at the API server for
/// its Node missed. The next pass looks again.
pub(crate) fn unless_it_may_join(pass: &Pass<'_>) -> Outcome<()> {
    if !pass.nodes().is_empty() || !pass.effects.deletes_token() {
        return Ok(());
    }
    let what = "the bootstrap token is deleted before the node is looked up for the last time";
    Err(wait(WaitReason::NotObserved, Some(what.to_owned()), Some(pass.snap.now)))
}

fn is_ours(pass: &Pass<'_>, token: &BootstrapToken) -> bool {
    token.owner.as_ref().is_some_and(|it| it == pass.machine.uid())
}

fn renew(pass: &mut Pass<'_>, id: &str, token: &BootstrapToken) {
    let short = token.expires.is_some_and(|end| end < needed_until(pass));
    let unbound = binds_at(pass, token).is_some_and(|at| at <= pass.snap.now);
    if short || unbound {
        ensure(pass, id, &token.secret);
    }
}

/// When the token is bound to the Node named by the driver; `None`: already bound, no known name, or an API server that
/// ignores the binding. A Node that joins soon makes the binding needless: the token is deleted.
fn binds_at(pass: &Pass<'_>, token: &BootstrapToken) -> Option<Timestamp> {
    if !pass.snap.binds_tokens {
        return None;
    }
    node_name(pass).filter(|name| token.node.as_deref() != Some(*name))?;
    Some(
        conditions::held_since(&pass.status, &MachineConditionType::InstanceCreated)
            .map_or(pass.snap.now, |at| after(at, BIND_AFTER)),
    )
}

/// Sees to it that the token is bound in time, though nothing else happens.
pub(crate) fn wake_to_bind(pass: &Pass<'_>, next: Next) -> Next {
    let Observed::Known(token) = &pass.snap.bootstrap_token else { return next };
    let waits = pass.status.bootstrap_token_id.is_some() && is_ours(pass, token);
    match binds_at(pass, token).filter(|at| waits && *at > pass.snap.now) {
        Some(at) => next.by(WaitReason::NodeNotJoined, at),
        None => next,
    }
}

/// The name of the Node, once known.
fn node_name<'a>(pass: &'a Pass<'_>) -> Option<&'a str> {
    let learned = pass.effects.patch.labels.get(names::label::NODE).map(String::as_str);
    learned.or_else(|| pass.machine.node_name()).or(pass.status.node_name.as_deref())
}

fn needed_until(pass: &Pass<'_>) -> Timestamp {
    let lifetime = pass.machine.creation_timeout(pass.snap.settings.creation_timeout);
    pass.creation_deadline().unwrap_or_else(|| after(pass.snap.now, lifetime))
}

fn ensure(pass: &mut Pass<'_>, id: &str, secret: &SecretText) {
    let end = needed_until(pass);
    let node = node_name(pass).map(str::to_owned);
    pass.effects.act(Action::EnsureBootstrapToken(TokenRequest {
        id: id.to_owned(),
        owner: pass.machine.uid().into(),
        secret: secret.clone(),
        expires: end.checked_add(SLACK).unwrap_or(end),
        node,
        groups: pass.snap.settings.bootstrap_token_groups.clone(),
        description: format!("Bootstrap token of machine {}", pass.name()),
    }));
}
