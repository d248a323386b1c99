//! The choice of a pool's victims. A pure function in one total order: a long drain sees the same victim in each pass,
//! and instances in deletion already make up for the surplus.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use jiff::Timestamp;

use super::budget::Budget;
use crate::{digest, set::Policy};

/// The facts about a Machine for the choice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Candidate<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// When the Machine was created.
    pub created: Option<Timestamp>,
    /// Its deletion was asked for: it is in no class, and goes whatever is decided.
    pub deleting: bool,
    /// The driver could not delete its instance, or a user or a hook holds its deletion.
    pub stuck: bool,
    /// The Machine or its instance was given up.
    pub failed: bool,
    /// The Node is Ready.
    pub ready: bool,
    /// The infrastructure announced the end of its instance.
    pub ends: bool,
    /// Its instance has another model than the group.
    pub outdated: bool,
    /// A user or an autoscaler wants it gone first.
    pub annotated: bool,
    /// A user keeps the Machine.
    pub preserved: bool,
}

/// Why a Machine goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The Machine was given up.
    Failed,
    /// The infrastructure announced the end of its instance.
    TerminationNotice,
    /// There are too many.
    Surplus,
    /// A user or an autoscaler asked for it.
    Annotated,
    /// The instance has an old model.
    Outdated,
    /// The infrastructure deletes its instance.
    InstanceGoing,
    /// The instance is gone.
    InstanceGone,
    /// The pool is deleted.
    PoolGone,
}

impl Cause {
    /// Whether the Machine was chosen among others, by its state at the time.
    pub const fn is_choice(self) -> bool {
        match self {
            Self::Failed
            | Self::TerminationNotice
            | Self::Surplus
            | Self::Annotated
            | Self::Outdated => true,
            Self::InstanceGoing | Self::InstanceGone | Self::PoolGone => false,
        }
    }
}

/// The place among equals: the name decides last, so no two are equal.
fn rank<'a>(of: &Candidate<'a>, policy: Policy) -> impl Ord + use<'a> {
    let (oldest, newest, random) = match policy {
        Policy::Oldest => (of.created, None, None),
        Policy::Newest => (None, of.created, None),
        Policy::Random => (None, None, Some(digest::of_text(of.uid))),
    };
    (of.preserved, oldest, Reverse(newest), random, of.name)
}

/// The Machines that go, as places in `all`, and why. `size`: how many instances the group wants now; more than
/// `replicas` and the surge says that a user scales down, and not only a rollout.
pub fn choose(
    all: &[Candidate<'_>],
    replicas: usize,
    size: usize,
    budget: Budget,
) -> Vec<(usize, Cause)> {
    let mut live: Vec<(usize, &Candidate<'_>)> =
        all.iter().enumerate().filter(|(_, one)| !one.deleting).collect();
    let count = |test: &dyn Fn(&Candidate<'_>) -> bool| live.iter().filter(|it| test(it.1)).count();
    let ready = count(&|it| it.ready);
    let outdated = count(&|it| it.outdated);
    let scales_down = size > replicas + budget.surge;
    let rolling = outdated > 0 && budget.rolls && !scales_down;
    let booting = count(&|it| !it.ready && !it.outdated && !it.failed);
    let guarded = if rolling { booting.min(count(&|it| it.ready && it.outdated)) } else { 0 };
    // Machines kept by a user go last, also after Machines that cannot go yet. A kept Machine that does not work holds
    // a rollout, and no ready Machine is surplus beside it.
    let others_first = !rolling || count(&|it| it.outdated && !it.preserved) > 0;
    let is_kept = |it: &Candidate<'_>| it.preserved && (others_first || !it.outdated);
    let holds = |it: &Candidate<'_>| is_kept(it) && !it.ready && (it.outdated || it.failed);
    let held = if rolling { count(&holds) } else { 0 };
    let surplus = live.len().saturating_sub(guarded + held + replicas);
    if surplus == 0 && !rolling && count(&|it| it.failed || it.ends || it.annotated) == 0 {
        // Most passes: nothing is put in order for that.
        return Vec::new();
    }
    live.sort_by_cached_key(|(_, one)| rank(one, budget.policy));
    let least = replicas.saturating_sub(budget.unavailable);
    let taken = BTreeSet::new();
    let mut choice = Choice { chosen: Vec::new(), taken, spare: ready.saturating_sub(least) };

    // It takes nothing away; one at a time all the same, since an outage may look like many that failed.
    let in_turn = !all.iter().any(|it| it.deleting && !it.stuck);
    let most_failed = (surplus + choice.spare).max(usize::from(in_turn));
    choice.take(&live, Cause::Failed, most_failed, |it| it.failed && !it.preserved);
    // No budget holds what goes anyway, but it uses the budget of the others.
    choice.take(&live, Cause::TerminationNotice, usize::MAX, |it| it.ends && !it.preserved);
    let mut left = surplus.saturating_sub(choice.chosen.len());
    let mut unguarded = booting.saturating_sub(guarded);
    for kept in [false, true] {
        let mut take = |most: usize, fits: fn(&Candidate<'_>) -> bool| {
            let fits = |it: &Candidate<'_>| is_kept(it) == kept && fits(it);
            let taken = choice.take(&live, Cause::Surplus, most.min(left), fits);
            left -= taken;
            taken
        };
        take(usize::MAX, |it| it.annotated);
        take(usize::MAX, |it| !it.ready && (it.outdated || it.failed));
        unguarded -= take(unguarded, |it| !it.ready);
        take(usize::MAX, |it| it.ready && it.outdated);
        take(usize::MAX, |it| it.ready);
    }
    // Replaced and not just removed: only as far as enough others are ready.
    let spare = choice.spare;
    choice.take(&live, Cause::Annotated, spare, |it| it.annotated && it.ready);
    if rolling {
        let fits = |it: &Candidate<'_>| it.outdated && !is_kept(it);
        // Replacing an unready Machine costs nothing, but its booting replacements have to be ready first.
        let chosen = choice.chosen.len();
        let room = live.len().saturating_sub(chosen + least + booting);
        choice.take(&live, Cause::Outdated, room, |it| fits(it) && !it.ready);
        let spare = choice.spare;
        choice.take(&live, Cause::Outdated, spare, |it| fits(it) && it.ready);
    }
    choice.chosen
}

struct Choice {
    chosen: Vec<(usize, Cause)>,
    taken: BTreeSet<usize>,
    /// How many ready ones may still go.
    spare: usize,
}

impl Choice {
    /// Takes at most so many that fit, in the order of the list.
    fn take(
        &mut self,
        live: &[(usize, &Candidate<'_>)],
        cause: Cause,
        most: usize,
        fits: impl Fn(&Candidate<'_>) -> bool,
    ) -> usize {
        let before = self.chosen.len();
        for (at, one) in live {
            if self.chosen.len() - before >= most {
                break;
            }
            if fits(one) && self.taken.insert(*at) {
                self.chosen.push((*at, cause));
                self.spare = self.spare.saturating_sub(usize::from(one.ready));
            }
        }
        self.chosen.len() - before
    }
}
