//! Writes the status of a set.

use kube::api::Patch;
use ostler_api::MachineSet;
use ostler_api::machine_set::{MachineSetConditionType, MachineSetStatus};
use ostler_lifecycle::class::Hold;
use ostler_lifecycle::set::{FOREIGN, Plan, UNREADABLE, is_news, status};
use ostler_lifecycle::streak::REPLACEMENTS_FAIL;
use serde_json::{Value, json};

use super::{Done, Observed, Sets};
use crate::clock;
use crate::events::Severity;
use crate::queue::Outcome;
use crate::reconcile::{PassError, Passed};
use crate::watch::{Author, By};

impl Sets {
    pub(super) async fn write_status(
        &self,
        Observed { facts, again }: Observed,
        plan: Plan,
        done: Done,
    ) -> Result<Passed, PassError> {
        if done.rewritten {
            // The finalizer was removed: there is nothing to write a status to.
            let gone = plan.finalizer == Hold::Remove;
            return Ok(if gone { Passed::Settled(Outcome::Done) } else { Passed::Changed });
        }
        let set = &facts.set;
        let new = status(set, &plan, &done.failures, facts.now);
        if !plan.broken.is_empty() && !was_told(set) {
            let note = plan.broken.join("; ");
            self.tell(set, Severity::Warning, "ValidationFailed", "Validate", note);
        }
        if let Some(other) = &plan.overlap {
            let note = format!(
                "spec.selector overlaps with that of machine set {other}: each may adopt Machines that the other releases"
            );
            self.tell(set, Severity::Warning, "SelectorOverlap", "Reconcile", note);
        }
        for reason in [FOREIGN, UNREADABLE] {
            let before = set.status.as_ref().and_then(|old| message(old, reason));
            if let Some(note) = message(&new, reason).filter(|note| before != Some(note)) {
                self.tell(set, Severity::Warning, reason, "Reconcile", note.to_owned());
            }
        }
        if let Some(note) = plan.streak.message().filter(|_| plan.streak.is_new()) {
            self.tell(set, Severity::Warning, REPLACEMENTS_FAIL, "Reconcile", note);
        }
        if is_news(set, &new) {
            self.put(set, &new).await?;
        }
        let failed = done.retry || done.failures.create.is_some() || done.failures.delete.is_some();
        Ok(if failed {
            Passed::Settled(Outcome::Failed)
        } else if done.more || plan.streak.is_new() {
            Passed::Changed
        } else {
            let replaced = plan.streak.until().map(|until| clock::until(until, facts.now));
            let again = replaced.map_or(again, |replaced| again.min(replaced));
            Passed::Settled(Outcome::Again(again))
        })
    }

    async fn put(&self, set: &MachineSet, status: &MachineSetStatus) -> Result<(), PassError> {
        let api =
            self.writer.api::<MachineSet>(set.metadata.namespace.as_deref().unwrap_or_default());
        let mut fields = json!(status);
        if let Some(fields) = fields.as_object_mut() {
            // What is absent now must not stay.
            for field in [
                "machineSetCondition",
                "failedMachines",
                "autoPreserveFailedMachineCount",
                "replacementRetry",
            ] {
                fields.entry(field).or_insert(Value::Null);
            }
        }
        let version = &set.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version }, "status": fields });
        let written = self.writer.patch_status(&api, set.name(), Patch::Merge(&patch)).await;
        let what = "cannot write the status of a set";
        let written: MachineSet = written.map_err(|error| PassError::of_write(what, error))?;
        let kept = written.status.as_ref().is_some_and(|it| it.replacement_retry.is_some());
        self.stores.sets.update(written, Author::new(By::Set, set));
        if status.replacement_retry.is_some() && !kept { Err(PassError::Pruned) } else { Ok(()) }
    }
}

/// What a status says for this reason.
fn message<'a>(status: &'a MachineSetStatus, reason: &str) -> Option<&'a str> {
    let mut all = status.conditions.iter();
    all.find(|it| it.reason.as_deref() == Some(reason))?.message.as_deref()
}

/// Whether the status says already that this generation is refused: one event for each.
fn was_told(set: &MachineSet) -> bool {
    set.status.as_ref().is_some_and(|status| {
        let refused = |type_: &MachineSetConditionType| *type_ == MachineSetConditionType::Valid;
        status.observed_generation == set.metadata.generation
            && status.conditions.iter().any(|condition| refused(&condition.type_))
    })
}
