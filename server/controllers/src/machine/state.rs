//! In-memory state of the Machine controller between passes; each part belongs to one file. Safe to lose: the next
//! pass reads once more.

use ostler_lifecycle::operation::Finished;
use ostler_lifecycle::unwritten::Unwritten;

use super::evict::Evictions;
use super::own_pool::LeftGroups;
use super::replacements::Replacements;
use super::token::Tokens;
use crate::by_machine::ByMachine;
use crate::hints::Hints;
use crate::hot_update::UpdateSlots;

/// All of the state.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Machines that are hot updated now, or wait for a slot.
    pub(crate) slots: UpdateSlots,
    /// Bootstrap tokens that were read or written.
    pub(super) tokens: Tokens,
    /// Evictions that the API server refused.
    pub(crate) evictions: Evictions,
    /// Operations that the sessions refused for good, with their failures.
    pub(super) refused: ByMachine<Finished>,
    /// What drivers said of instances by themselves.
    pub(crate) hints: Hints,
    /// Statuses that are not written yet.
    pub(super) unwritten: ByMachine<Unwritten>,
    /// When machines last failed.
    pub(super) replacements: Replacements,
    /// Groups of pools that are gone.
    pub(super) left_groups: LeftGroups,
    /// Machines that our finalizer was removed from and that the cache still has.
    ended: ByMachine<()>,
}

impl State {
    /// Our finalizer was removed from this machine.
    pub(super) fn end(&self, uid: &str) {
        self.ended.set(uid, ());
    }

    /// Whether our finalizer was removed from this machine.
    pub(crate) fn has_ended(&self, uid: &str) -> bool {
        self.ended.get(uid).is_some()
    }

    /// A machine is gone. Returns the UIDs of machines that may take an update slot now.
    pub(crate) fn forget(&self, uid: &str) -> Vec<String> {
        self.tokens.remove(uid);
        self.refused.remove(uid);
        self.hints.forget(uid);
        self.unwritten.remove(uid);
        self.ended.remove(uid);
        self.slots.leave(uid)
    }
}
