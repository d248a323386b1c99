//! Carries out the plan for a set.

use std::sync::Arc;

use ostler_api::names::finalizer;
use ostler_api::{Machine, MachineSet};
use ostler_lifecycle::class::Hold;
use ostler_lifecycle::replicas::{ABSENT, Filled};
use ostler_lifecycle::set::{BURST, Plan, Snapshot};
use serde_json::json;
use tracing::{debug, warn};

use super::{Done, Sets};
use crate::class::patch as finalizer_patch;
use crate::events::Severity;
use crate::reconcile::PassError;
use crate::watch::{Author, By, ObjectName};
use crate::writes::WriteError;

impl Sets {
    pub(super) async fn carry_out(&self, facts: &Snapshot, plan: &Plan) -> Result<Done, PassError> {
        let set = &facts.set;
        let mut done = Done::default();
        if plan.finalizer != Hold::Keep {
            self.change_finalizer(set, plan.finalizer).await?;
            done.rewritten = true;
            return Ok(done);
        }
        if let Some(filled) = &plan.fill {
            self.fill(set, filled).await?;
            done.rewritten = true;
            return Ok(done);
        }
        if !plan.delete.is_empty() && self.freezes.is_due(&ObjectName::of(set.as_ref())) {
            return Err(PassError::NotYet(super::pending::LAG));
        }
        let makes = plan.create > 0 || !plan.repeat.is_empty();
        if makes || !plan.adopt.is_empty() || !plan.delete.is_empty() {
            self.is_current(set).await?;
        }
        for machine in plan.release.iter().take(BURST) {
            done.retry |= failed(machine, "release", self.release(set, machine).await);
        }
        // INV-11: what is not released yet is one of its own still, and gets no replacement.
        let released = !done.retry;
        let mut adopted = true;
        for machine in plan.adopt.iter().take(BURST) {
            adopted &= !failed(machine, "adopt", self.adopt(set, machine).await);
        }
        done.retry |= !adopted;
        let patches = plan.patches.get(..BURST).unwrap_or(&plan.patches);
        done.more = patches.len() < plan.patches.len();
        done.retry |= !self.patch(set, patches).await;
        // INV-14: what was chosen was chosen among those that it would have with these, and may be one of them.
        let chosen: &[_] = if adopted { &plan.delete } else { &[] };
        match self.delete(set, chosen).await {
            Ok(()) => {}
            Err(WriteError::Conflict) => done.retry = true,
            Err(error) => done.failures.delete = Some(error.to_string()),
        }
        if makes && released {
            let names = plan.repeat.iter().cloned().chain(self.new_names(set, plan.create));
            if let Err(error) = self.create(set, names.collect()).await {
                done.failures.create = Some(error.to_string());
            }
        }
        Ok(done)
    }

    /// Reads the set before anything is created, deleted or adopted for it: the cache may lag, and the set may be
    /// another one, be deleted, or want another number.
    async fn is_current(&self, set: &Arc<MachineSet>) -> Result<(), PassError> {
        let api =
            self.writer.api::<MachineSet>(set.metadata.namespace.as_deref().unwrap_or_default());
        let live = self.writer.get(&api, set.name()).await;
        let live = live.map_err(|source| PassError::Api { what: "cannot read a set", source })?;
        let Some(live) = live else { return Err(PassError::Gone) };
        if differs_in_status_only(set, &live) {
            Ok(())
        } else {
            Err(PassError::NotYet(super::pending::LAG))
        }
    }

    /// Writes the number of Machines that the set wants, and says so before anything follows from it.
    async fn fill(&self, set: &Arc<MachineSet>, filled: &Filled) -> Result<(), PassError> {
        let api =
            self.writer.api::<MachineSet>(set.metadata.namespace.as_deref().unwrap_or_default());
        let patch = json!({
            "metadata": { "resourceVersion": set.metadata.resource_version },
            "spec": { "replicas": filled.replicas },
        });
        let written = self.writer.patch::<MachineSet>(&api, set.name(), &patch).await;
        let what = "cannot write the replicas of a set";
        let written = written.map_err(|error| PassError::of_write(what, error))?;
        let severity = if filled.warning { Severity::Warning } else { Severity::Normal };
        self.tell(set, severity, ABSENT, "Scale", filled.note.clone());
        self.stores.sets.update(written, Author::new(By::Set, set.as_ref()));
        Ok(())
    }

    async fn change_finalizer(&self, set: &Arc<MachineSet>, hold: Hold) -> Result<(), PassError> {
        let Some(patch) = finalizer_patch(set.as_ref(), finalizer::MACHINE, hold) else {
            return Ok(());
        };
        let api =
            self.writer.api::<MachineSet>(set.metadata.namespace.as_deref().unwrap_or_default());
        let written = self.writer.patch::<MachineSet>(&api, set.name(), &patch).await;
        let what = "cannot change the finalizer of a set";
        let written = written.map_err(|error| PassError::of_write(what, error))?;
        debug!(set = set.name(), ?hold, "finalizer changed");
        self.stores.sets.update(written, Author::new(By::Set, set.as_ref()));
        Ok(())
    }
}

/// Whether two versions of a set differ in nothing but the status, which its controller writes with every change of a
/// Machine.
pub(crate) fn differs_in_status_only(one: &MachineSet, other: &MachineSet) -> bool {
    let (one, other) = (&one.metadata, &other.metadata);
    one.uid == other.uid
        && one.generation == other.generation
        && one.deletion_timestamp == other.deletion_timestamp
        && one.labels == other.labels
        && one.annotations == other.annotations
        && one.finalizers == other.finalizers
        && one.owner_references == other.owner_references
}

/// Whether a request about a Machine has to be made again. One that changed meanwhile may have changed in what wakes no
/// set.
fn failed(machine: &Machine, what: &str, answer: Result<(), WriteError>) -> bool {
    match answer {
        Ok(()) | Err(WriteError::NotFound) => false,
        Err(WriteError::Conflict | WriteError::Invalid(_)) => true,
        Err(error) => {
            warn!(machine = machine.name(), %error, "cannot {what} a machine");
            true
        }
    }
}
