//! How many Machines a reserve makes and which go. INV-11 and INV-14 hold for it as they do for a set.

use std::sync::Arc;

use ostler_api::{Machine, machine::MachinePhase, names::annotation::RESERVE_TEMPLATE};
use serde_json::json;

use super::{Decision, Facts, Snapshot, size::size, template, valid};
use crate::{
    hint,
    push_down::has_all,
    set::{self, BURST, is_active},
    streak::Streak,
    template_identity::digest,
};

/// Why a Machine in reserve goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// There are too many.
    Surplus,
    /// The target has another template.
    Outdated,
    /// The infrastructure announced the end of its instance.
    TerminationNotice,
    /// It is Failed and to be replaced.
    Failed,
    /// The target is gone.
    TargetGone,
}

/// Decides about a reserve. The garbage collector deletes the Machines of a reserve in deletion.
pub fn decide(snapshot: &Snapshot) -> Decision {
    let Snapshot { reserve, machines, .. } = snapshot;
    let active: Vec<_> = machines.iter().filter(|it| is_active(it)).cloned().collect();
    let old = reserve.status.as_ref().and_then(|it| it.replacement_retry.as_ref());
    let mut decision = Decision {
        broken: valid::broken(snapshot),
        streak: Streak::of(old, machines.iter().map(AsRef::as_ref), is_failed, snapshot.now),
        ..Decision::default()
    };
    if reserve.metadata.deletion_timestamp.is_some() {
        return decision;
    }
    if snapshot.target.is_gone() {
        let all = active.into_iter().map(|machine| (machine, Cause::TargetGone));
        decision.delete = all.take(BURST).collect();
        return decision;
    }
    if let Some(facts) = snapshot.target.facts() {
        let current = digest(facts.template);
        let is_current = |it: &&Arc<Machine>| it.annotation(RESERVE_TEMPLATE) == Some(&current);
        decision.current = active.iter().filter(is_current).count();
        let ready = |it: &&Arc<Machine>| is_current(it) && set::is_ready(it);
        decision.ready = active.iter().filter(ready).count();
        if decision.broken.is_none() {
            keep_up(&mut decision, snapshot, &facts, &active);
        }
    }
    debug_assert!(holds(snapshot, &decision), "{}", reserve.name());
    decision
}

fn keep_up(
    decision: &mut Decision,
    snapshot: &Snapshot,
    target: &Facts<'_>,
    active: &[Arc<Machine>],
) {
    let (unanswered, current) = (&snapshot.unanswered, digest(target.template));
    decision.size = size(&snapshot.reserve, target);
    decision.frozen = target.is_frozen();
    let Some(size) = decision.size.filter(|_| snapshot.blind.is_none()) else { return };
    let is_current =
        |it: &Machine| decision.frozen || it.annotation(RESERVE_TEMPLATE) == Some(&current);
    let cause = |it: &Machine| match () {
        () if !is_current(it) => Some(Cause::Outdated),
        () if hint::is_to_be_replaced(it, snapshot.now) => Some(Cause::TerminationNotice),
        () if is_failed(it) && !decision.streak.holds(it) => Some(Cause::Failed),
        () => None,
    };
    let mut kept: Vec<_> = active.iter().filter(|it| cause(it).is_none()).cloned().collect();
    // The newest go: the oldest have run for longest.
    kept.sort_by_key(|it| {
        let made = it.metadata.creation_timestamp.as_ref().map(|it| it.0);
        (made, it.name().to_owned())
    });
    let mut surplus = kept.split_off(size.wanted.min(kept.len()));
    // A growing target, up to its maximum perhaps, takes the surplus in a moment.
    let grows = usize::try_from(size.replicas).unwrap_or(0).saturating_sub(snapshot.has);
    surplus.retain(|it| {
        let stays = decision.held < grows && is_current(it) && set::is_ready(it);
        decision.held += usize::from(stays);
        !stays
    });
    let going = active.iter().filter_map(|it| Some((Arc::clone(it), cause(it)?)));
    let surplus = surplus.into_iter().rev().map(|it| (it, Cause::Surplus));
    decision.delete = going.chain(surplus).take(BURST).collect();
    decision.update = kept.iter().filter_map(|it| update(snapshot, target, it)).collect();
    if decision.frozen {
        return;
    }
    let missing = size.wanted.saturating_sub(kept.len());
    decision.repeat = unanswered.iter().take(missing).cloned().collect();
    decision.create = missing.saturating_sub(unanswered.len()).min(BURST);
}

/// INV-11 and INV-14.
fn holds(snapshot: &Snapshot, decision: &Decision) -> bool {
    let Decision { delete, repeat, create, .. } = decision;
    let own = delete.iter().all(|(it, _)| !it.is_deleting() && snapshot.machines.contains(it));
    let active = snapshot.machines.iter().filter(|it| is_active(it)).count();
    let most = decision.size.map_or(0, |size| size.wanted);
    own && (*create == 0 && repeat.is_empty()
        || active - delete.len().min(active)
            + repeat.len().max(snapshot.unanswered.len().min(most))
            + create
            <= most)
}

fn is_failed(machine: &Machine) -> bool {
    machine.phase() == MachinePhase::Failed
}

/// Changes for a Machine after a change of the target without a new template, or of the taint's effect.
fn update(
    snapshot: &Snapshot,
    target: &Facts<'_>,
    machine: &Arc<Machine>,
) -> Option<(Arc<Machine>, serde_json::Value)> {
    let wanted = template::machine(&snapshot.reserve, target, machine.name()).spec;
    let differs = !has_all(&wanted, &machine.spec);
    let spec = differs.then(|| set::spec_patch(&machine.spec, &wanted)).flatten()?;
    Some((Arc::clone(machine), json!({ "spec": spec })))
}
