//! What this process remembers between passes. Losing it costs a request more, never a decision.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use ostler_lifecycle::operation::Finished;
use ostler_lifecycle::snapshot::{BootstrapToken, Observed, Refusal, RefusalCause};

use crate::hot_update::AllRooms;
use crate::watch::ObjectName;

/// For how long a failure is remembered: longer than any creation may take.
const FAILURES_KEPT: SignedDuration = SignedDuration::from_hours(24);

/// A pod whose eviction was tried in vain.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    /// How, and how often.
    pub(crate) refusal: Refusal,
    /// Its labels, if they were needed and could be read.
    pub(crate) labels: Option<Arc<BTreeMap<String, String>>>,
    /// The machine that is drained of it.
    pub(crate) machine: ObjectName,
}

/// Bounded by the machines that exist and the pods on Nodes being drained: the watches report what
/// is gone.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Who is hot updated now.
    pub(crate) rooms: AllRooms,
    contents: Mutex<Contents>,
}

#[derive(Debug, Default)]
struct Contents {
    /// The bootstrap token that was looked at last, by UID of the machine: its id, and what is there.
    tokens: HashMap<String, (String, Observed<BootstrapToken>)>,
    /// Evictions in vain, by UID of the pod.
    refusals: HashMap<String, Refused>,
    /// Operations that the sessions refused for good, by UID of the machine.
    refused: HashMap<String, Finished>,
    /// When a machine of a MachineDeployment last failed its health.
    health_failures: HashMap<String, Timestamp>,
    /// UIDs of machines that we took our finalizer from and that the watch still shows.
    ended: HashSet<String>,
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the token of this id, which the machine has or would take.
    pub(crate) fn token(&self, machine_uid: &str, id: &str) -> Observed<BootstrapToken> {
        let contents = self.lock();
        let known = contents.tokens.get(machine_uid).filter(|(of, _)| of == id);
        known.map(|(_, token)| token.clone()).unwrap_or_default()
    }

    /// What was learned of the token of this id.
    pub(crate) fn keep_token(&self, machine_uid: &str, id: &str, token: Observed<BootstrapToken>) {
        self.lock().tokens.insert(machine_uid.to_owned(), (id.to_owned(), token));
    }

    /// How the eviction of this pod was last tried in vain.
    pub(crate) fn refused_pod(&self, pod_uid: &str) -> Option<Refused> {
        self.lock().refusals.get(pod_uid).cloned()
    }

    /// The eviction of this pod was tried in vain.
    pub(crate) fn keep_refused_pod(&self, pod_uid: &str, refused: Refused) {
        self.lock().refusals.insert(pod_uid.to_owned(), refused);
    }

    /// A budget lets so many pods go: as many of those that it held are tried again at once.
    /// Returns the machines that they hold up.
    pub(crate) fn let_go(&self, budget: &str, pods: usize) -> Vec<ObjectName> {
        let mut contents = self.lock();
        let held = contents.refusals.values_mut().filter(|refused| match &refused.refusal.cause {
            RefusalCause::Budgets(budgets) => budgets.iter().any(|one| one.name == budget),
            RefusalCause::Failed => false,
        });
        let mut machines = Vec::new();
        for refused in held.take(pods) {
            refused.refusal.at = Timestamp::UNIX_EPOCH;
            machines.push(refused.machine.clone());
        }
        machines
    }

    /// The operation of this machine that could not be sent and never will be, with its failure.
    pub(crate) fn refused(&self, machine_uid: &str) -> Option<Finished> {
        self.lock().refused.get(machine_uid).cloned()
    }

    /// This operation cannot be sent, however often it is tried.
    pub(crate) fn keep_refused(&self, machine_uid: &str, operation: Finished) {
        self.lock().refused.insert(machine_uid.to_owned(), operation);
    }

    /// The failure is recorded.
    pub(crate) fn drop_refused(&self, machine_uid: &str) {
        self.lock().refused.remove(machine_uid);
    }

    /// When a machine of this MachineDeployment last failed its health.
    pub(crate) fn health_failure(&self, deployment: &str) -> Option<Timestamp> {
        self.lock().health_failures.get(deployment).copied()
    }

    /// A machine of this MachineDeployment fails its health now. False: another one did so since
    /// `seen`, and this one has to look again.
    pub(crate) fn claim_replacement(
        &self,
        deployment: &str,
        seen: Option<Timestamp>,
        now: Timestamp,
    ) -> bool {
        let mut contents = self.lock();
        if contents.health_failures.get(deployment).copied() != seen {
            return false;
        }
        // What is older decides nothing any more.
        contents.health_failures.retain(|_, at| now.duration_since(*at) < FAILURES_KEPT);
        contents.health_failures.insert(deployment.to_owned(), now);
        true
    }

    /// The machine did not fail after all.
    pub(crate) fn return_claim(&self, deployment: &str, seen: Option<Timestamp>) {
        let mut contents = self.lock();
        match seen {
            Some(seen) => contents.health_failures.insert(deployment.to_owned(), seen),
            None => contents.health_failures.remove(deployment),
        };
    }

    /// Whether our finalizer was taken from this machine.
    pub(crate) fn has_ended(&self, machine_uid: &str) -> bool {
        self.lock().ended.contains(machine_uid)
    }

    /// Our finalizer was taken from this machine.
    pub(crate) fn keep_ended(&self, machine_uid: &str) {
        self.lock().ended.insert(machine_uid.to_owned());
    }

    /// A pod is gone.
    pub(crate) fn forget_pod(&self, pod_uid: &str) {
        self.lock().refusals.remove(pod_uid);
    }

    /// A machine is gone.
    pub(crate) fn forget_machine(&self, machine_uid: &str) {
        let mut contents = self.lock();
        contents.tokens.remove(machine_uid);
        contents.refused.remove(machine_uid);
        contents.ended.remove(machine_uid);
    }
}
