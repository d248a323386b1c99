//! In-memory state of the Machine controller between passes; each part belongs to one file. Safe to lose: the next
//! pass reads once more.

use std::sync::Arc;

use ostler_lifecycle::operation::Finished;
use ostler_lifecycle::unwritten::Unwritten;

use super::evict::Evictions;
use super::replacements::Replacements;
use super::token::Tokens;
use crate::by_machine::ByMachine;
use crate::hints::Hints;
use crate::hot_update::UpdateSlots;
use crate::stores::MachineIndex;
use crate::watch::Cache;

/// All of the state.
#[derive(Debug)]
pub(crate) struct State {
    /// Machines that are hot updated now, or wait for a slot.
    pub(crate) slots: UpdateSlots,
    /// Bootstrap tokens that were read or written.
    pub(super) tokens: Tokens,
    /// Evictions that the API server refused.
    pub(crate) evictions: Evictions,
    /// Operations refused for good by the sessions, with their failures.
    pub(super) refused: ByMachine<Finished>,
    /// Drivers' own reports on instances.
    pub(crate) hints: Arc<Hints>,
    /// Statuses that are not written yet.
    pub(super) unwritten: ByMachine<Unwritten>,
    /// When machines last failed.
    pub(super) replacements: Replacements,
    /// Machines that our finalizer was removed from and that the cache still has.
    ended: ByMachine<()>,
}

impl State {
    /// The state of the given machines.
    pub(crate) fn of(machines: &Arc<Cache<MachineIndex>>) -> Self {
        Self {
            slots: UpdateSlots::default(),
            tokens: Tokens::of_machines(machines),
            evictions: Evictions::default(),
            refused: ByMachine::of(machines),
            hints: Arc::new(Hints::of_machines(machines)),
            unwritten: ByMachine::of(machines),
            replacements: Replacements::default(),
            ended: ByMachine::of(machines),
        }
    }

    /// Our finalizer is being removed from this machine.
    pub(super) fn end(&self, uid: &str) {
        self.ended.set(uid, ());
    }

    /// The finalizer may not have been removed.
    pub(super) fn not_ended(&self, uid: &str) {
        self.ended.remove(uid);
    }

    /// Whether our finalizer was removed from this machine, or is being removed.
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
