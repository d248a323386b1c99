//! What this process remembers between passes. Losing it costs a request more, never a decision.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ostler_lifecycle::snapshot::{BootstrapToken, Refusal};
use ostler_lifecycle::user_data::token_id;

/// Bounded by the machines that exist and the pods on Nodes being drained: the watches report what
/// is gone.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    contents: Mutex<Contents>,
}

#[derive(Debug, Default)]
struct Contents {
    /// Bootstrap tokens that exist, by id.
    tokens: HashMap<String, BootstrapToken>,
    /// Evictions in vain, by UID of the pod.
    refusals: HashMap<String, Refusal>,
    /// Operations that were cancelled, by UID of the machine.
    cancelled: HashMap<String, String>,
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token of this id, if it is known to exist.
    pub(crate) fn token(&self, id: &str) -> Option<BootstrapToken> {
        self.lock().tokens.get(id).cloned()
    }

    /// The token of this id exists.
    pub(crate) fn keep_token(&self, id: &str, token: BootstrapToken) {
        self.lock().tokens.insert(id.to_owned(), token);
    }

    /// The token of this id does not exist any more.
    pub(crate) fn drop_token(&self, id: &str) {
        self.lock().tokens.remove(id);
    }

    /// When the eviction of this pod was last tried in vain.
    pub(crate) fn refusal(&self, pod_uid: &str) -> Option<Refusal> {
        self.lock().refusals.get(pod_uid).copied()
    }

    /// The eviction of this pod was tried in vain.
    pub(crate) fn keep_refusal(&self, pod_uid: &str, refusal: Refusal) {
        self.lock().refusals.insert(pod_uid.to_owned(), refusal);
    }

    /// Whether this operation was cancelled.
    pub(crate) fn was_cancelled(&self, machine_uid: &str, operation: &str) -> bool {
        self.lock().cancelled.get(machine_uid).is_some_and(|id| id == operation)
    }

    /// This operation was cancelled.
    pub(crate) fn keep_cancelled(&self, machine_uid: &str, operation: &str) {
        self.lock().cancelled.insert(machine_uid.to_owned(), operation.to_owned());
    }

    /// The operation of this machine ended.
    pub(crate) fn drop_cancelled(&self, machine_uid: &str) {
        self.lock().cancelled.remove(machine_uid);
    }

    /// A pod is gone.
    pub(crate) fn forget_pod(&self, pod_uid: &str) {
        self.lock().refusals.remove(pod_uid);
    }

    /// A machine is gone.
    pub(crate) fn forget_machine(&self, machine_uid: &str) {
        let mut contents = self.lock();
        contents.tokens.remove(&token_id(machine_uid));
        contents.cancelled.remove(machine_uid);
    }
}
