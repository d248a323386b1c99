//! The next request to the group. The core decides which instance goes; the group, how many there are.
//!
//! The size is lowered by a named deletion after a drain, and never below what the Machines need that are still being
//! drained. Both sizes of a named deletion are absolute, so a repeated deletion lowers nothing twice.

use jiff::Timestamp;
use ostler_api::{MachinePool, ProviderId, SpecDigest, driver::OperationKind};

use super::{
    Budget,
    bring::Bring,
    ending::{has_drained, is_marked_gone},
    group::{GroupView, Reading},
    known::SEEN_TWICE,
    matching::{Matched, Member},
    operation::{BURST, Held},
};
use crate::driver::DriverFacts;

/// The request to the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Make it, with so many instances.
    Create {
        /// How many.
        desired: usize,
    },
    /// Change the size, the model, or both.
    Update {
        /// The current and the wanted size.
        size: Option<(usize, usize)>,
        /// Whether it takes the current model and user data.
        model: bool,
    },
    /// Delete the named instances.
    Remove {
        /// The instances.
        ids: Vec<ProviderId>,
        /// The current size.
        expected: usize,
        /// The size after the deletion.
        new: usize,
    },
    /// Bring one instance to the model of the group.
    Bring(Bring),
    /// Delete the group.
    Delete,
}

impl Ask {
    /// The verb.
    pub const fn kind(&self) -> OperationKind {
        match self {
            Self::Create { .. } => OperationKind::CreatePool,
            Self::Update { .. } => OperationKind::UpdatePool,
            Self::Remove { .. } => OperationKind::DeletePoolMachines,
            Self::Bring(_) => OperationKind::UpdatePoolMachine,
            Self::Delete => OperationKind::DeletePool,
        }
    }
}

/// The facts for the choice beside the group.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) pool: &'a MachinePool,
    /// Whether the group has the tags of a previous cluster id.
    pub(super) was_moved: bool,
    /// How many Machines it has.
    pub(super) machines: usize,
    /// Whether all of them are drained.
    pub(super) drained: bool,
    /// The API server refuses Machines for instances that have none, as while the namespace is being deleted.
    pub(super) refused_machines: bool,
    /// How many Machines that stay have an old model, and are to be replaced.
    pub(super) rolls: usize,
    /// How many of them are being replaced now: the group has to make the current model first.
    pub(super) rolling: usize,
    pub(super) budget: Budget,
    pub(super) model: &'a SpecDigest,
    /// The group makes instances with other user data than the current ones, or may. `None`: the current user data are
    /// not known.
    pub(super) renews_user_data: Option<bool>,
    pub(super) driver: &'a DriverFacts,
    /// Instances that could not be deleted: others come first.
    pub(super) refused: &'a [ProviderId],
    /// Instances that are to get the current model.
    pub(super) bring: &'a [Bring],
    /// Operations that wait for the next attempt.
    pub(super) held: &'a Held,
    /// Until when the group of the last creation may not be shown; `None`: the result of the creation is known.
    pub(super) shown_at: Option<Timestamp>,
    /// When the group is made again that the last creation may have made; `None`: now.
    pub(super) made_again_at: Option<Timestamp>,
}

impl Wanted<'_> {
    /// The wanted size of the group during so many replacements: only as much of the surge as they need, since an
    /// instance without a victim is surplus, and would be made and deleted without end.
    fn size(&self, replaced: usize) -> usize {
        let replicas = usize::try_from(self.pool.replicas()).unwrap_or(0);
        if self.pool.is_deleting() { 0 } else { replicas + self.budget.surge.min(replaced) }
    }

    /// Whether it is known what the group makes instances from, and no pause keeps another model on it.
    fn may_take_model(&self, reading: &Reading) -> bool {
        let current = reading.model_hash == *self.model;
        self.renews_user_data.is_some() && (current || !self.pool.is_paused())
    }
}

/// The next operation; `None`: the group is as wanted, or not known, or has to wait. And the wanted verbs, waiting or
/// not.
pub(super) fn next(
    wanted: &Wanted<'_>,
    group: &GroupView,
    matched: &Matched<'_>,
) -> (Option<Ask>, Vec<OperationKind>) {
    let all: Vec<_> = candidates(wanted, group, matched).into_iter().flatten().collect();
    let kinds = all.iter().map(Ask::kind).collect();
    let free = |ask: &Ask| match ask {
        Ask::Bring(bring) => !wanted.held.has(ask.kind(), Some(&bring.id)),
        Ask::Create { .. } | Ask::Update { .. } | Ask::Remove { .. } | Ask::Delete => {
            !wanted.held.has(ask.kind(), None)
        }
    };
    (all.into_iter().find(free), kinds)
}

fn candidates(wanted: &Wanted<'_>, group: &GroupView, matched: &Matched<'_>) -> [Option<Ask>; 4] {
    let pool = wanted.pool;
    let existed = pool.status.as_ref().is_some_and(|status| status.provider_id.is_some());
    let reading = match group {
        GroupView::Unknown | GroupView::Unreadable(_) => return [None, None, None, None],
        GroupView::Absent(looks) if *looks < SEEN_TWICE && existed => {
            return [None, None, None, None];
        }
        GroupView::Absent(_) if pool.is_deleting() => {
            let delete = wanted.shown_at.is_some() && wanted.machines == 0;
            return [delete.then_some(Ask::Delete), None, None, None];
        }
        GroupView::Absent(_) if wanted.made_again_at.is_some() => return [None, None, None, None],
        GroupView::Absent(_) => {
            let create = Ask::Create { desired: wanted.size(wanted.rolls) };
            return [Some(create), None, None, None];
        }
        GroupView::Known(reading) => reading,
    };
    let unclaimed = !matched.new.is_empty() && !wanted.refused_machines;
    let one_by_one = wanted.driver.has(OperationKind::DeletePoolMachines);
    let empty = wanted.machines == 0 || !one_by_one && wanted.drained;
    if pool.is_deleting() && empty && !unclaimed {
        return [Some(Ask::Delete), None, None, None];
    }
    let remove = remove(wanted, reading, matched);
    if pool.is_deleting() && !unclaimed && is_stuck(wanted, matched) {
        return [Some(Ask::Delete), remove, None, None];
    }
    // Last: a driver that claims success and then names the old id holds up nothing else.
    [remove, update(wanted, reading), bring(wanted), tag(wanted, reading)]
}

/// All are drained, and nothing is left to delete by name: each instance goes, is not there, or could not be deleted.
/// The group goes with the Machines, like a group without named deletion.
fn is_stuck(wanted: &Wanted<'_>, matched: &Matched<'_>) -> bool {
    let is_refused = |id: &ProviderId| wanted.refused.contains(id);
    let left = |it: &Member<'_>| {
        !it.machine.is_paused()
            && it.instance.is_none_or(|one| one.is_going() || is_refused(&one.provider_id))
    };
    wanted.drained && matched.members.iter().all(left)
}

/// A creation finds the group, keeps its size, and puts the tags of today on it.
fn tag(wanted: &Wanted<'_>, reading: &Reading) -> Option<Ask> {
    let due = wanted.was_moved && !wanted.pool.is_deleting() && wanted.may_take_model(reading);
    due.then_some(Ask::Create { desired: reading.desired })
}

/// Instance after instance. A failed instance waits while others go on.
fn bring(wanted: &Wanted<'_>) -> Option<Ask> {
    let kind = OperationKind::UpdatePoolMachine;
    let free = wanted.bring.iter().find(|it| !wanted.held.has(kind, Some(&it.id)));
    free.or_else(|| wanted.bring.first()).cloned().map(Ask::Bring)
}

/// Deletes the instances whose Machines are drained. Replacements leave the size unchanged. In doubt, instances are
/// named as well: the driver's answer on each of them counts.
fn remove(wanted: &Wanted<'_>, reading: &Reading, matched: &Matched<'_>) -> Option<Ask> {
    if !wanted.driver.has(OperationKind::DeletePoolMachines) {
        return None;
    }
    let ready = matched.members.iter().filter_map(|Member { machine, instance }| {
        let ready = has_drained(machine) && !machine.is_paused();
        let waits = |id| wanted.held.has(OperationKind::DeletePoolMachines, Some(id));
        let doubt = || reading.is_doubtful() && !reading.absent.contains_key(machine.uid());
        let id = match instance {
            Some(it) => Some(&it.provider_id).filter(|_| !it.is_going()),
            None => machine.instance_id().filter(|_| doubt() && !is_marked_gone(machine)),
        };
        id.filter(|id| ready && !waits(id)).cloned()
    });
    let mut ids: Vec<_> = ready.collect();
    // An instance whose deletion may be refused again takes no place of others.
    ids.sort_by_cached_key(|id| wanted.refused.contains(id));
    ids.truncate(BURST);
    if ids.is_empty() {
        return None;
    }
    let expected = reading.desired;
    let surplus = if wanted.pool.is_externally_scaled() && !wanted.pool.is_deleting() {
        0
    } else {
        // As the choice of victims sees it: what goes as surplus must not be made again.
        expected.saturating_sub(wanted.size(wanted.rolling))
    };
    if surplus == 0 {
        return Some(Ask::Remove { ids, expected, new: expected });
    }
    // Surplus first; the next operation takes the instances to be replaced.
    let ids: Vec<_> = ids.into_iter().take(surplus).collect();
    let new = expected - ids.len();
    Some(Ask::Remove { ids, expected, new })
}

fn update(wanted: &Wanted<'_>, reading: &Reading) -> Option<Ask> {
    let pool = wanted.pool;
    if pool.is_deleting() || !wanted.driver.has(OperationKind::UpdatePool) {
        return None;
    }
    // A pool that is paused scales, so what its new instances join with is renewed all the same.
    let current = reading.model_hash == *wanted.model;
    let model =
        wanted.may_take_model(reading) && (!current || wanted.renews_user_data == Some(true));
    // Without its model, a surge would be surplus, and be made and deleted without end.
    let replaced = if current || model { wanted.rolls } else { 0 };
    let size = if pool.is_externally_scaled() { None } else { size(wanted, reading, replaced) };
    (model || size.is_some()).then_some(Ask::Update { size, model })
}

/// A size that is too large is lowered without a named deletion only as far as no instance is there for it, unless the
/// driver has no named deletion. An answer without instances is no doubt where there is no Machine either.
fn size(wanted: &Wanted<'_>, reading: &Reading, replaced: usize) -> Option<(usize, usize)> {
    let (now, size) = (reading.desired, wanted.size(replaced));
    let there = reading.instances.iter().filter(|instance| !instance.is_going()).count();
    let one_by_one = wanted.driver.has(OperationKind::DeletePoolMachines);
    let least = match one_by_one {
        true if reading.is_doubtful() && wanted.machines > 0 => now,
        true => there,
        false => 0,
    };
    let new = if size > now { size } else { size.max(least).min(now) };
    (new != now).then_some((now, new))
}
