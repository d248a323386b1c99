//! Decisions of MachineDeployments: one file per rule. [`decide`] combines the rules.
//!
//! A pass is a function of the deployment, its sets, their Machines and Nodes. It returns writes, each conditional on
//! the version that it was planned from; whatever part of them happens, the next pass continues from there.

mod absent;
mod autoscaler;
pub mod conditions;
pub mod counts;
pub mod edit;
pub mod fenceposts;
mod hindrances;
pub mod in_place;
mod invariants;
pub mod marks;
mod mass_failure;
pub mod nodes;
mod pass;
pub mod plan;
mod relabel;
pub mod revisions;
pub mod rolling;
mod rollout;
pub mod scaling;
pub mod snapshot;
pub mod status;
pub mod valid;
mod writes;

pub use writes::{DeploymentReport, plan};

use ostler_api::machine_deployment::{MachineDeploymentConditionType, StrategyType};

use conditions::reason;
use pass::Pass;
use plan::Decision;
use snapshot::Snapshot;

use crate::{plan::EventReason, selector};

/// Decides about a deployment.
pub fn decide(snapshot: &Snapshot) -> Decision {
    let mut pass = Pass::new(snapshot);
    let deployment = snapshot.deployment.as_ref();
    if deployment.is_deleting() {
        pass.delete();
        return pass.finish();
    }
    let problems = valid::problems(deployment, &snapshot.sets);
    if !problems.is_empty() {
        pass.refuse(&problems.join("; "));
        return pass.finish();
    }
    if deployment.spec.selector.as_ref().is_none_or(selector::is_empty) {
        pass.warn(
            EventReason::SelectingAll,
            "an empty selector would select all machine sets".into(),
        );
        pass.status.observed_generation = deployment.metadata.generation;
        return pass.finish();
    }
    if !deployment.has_finalizer() {
        pass.add_finalizer();
        return pass.finish();
    }
    if pass.claim() {
        return pass.finish();
    }
    if deployment.spec.replicas.is_none() {
        pass.fill_replicas();
        return pass.finish();
    }
    pass.warn_of_overlaps();
    pass.warn_of_timeout();
    pass.relabel();
    pass.count();
    pass.show_mass_failure();
    pass.show_to_autoscalers();
    status::show_pause(deployment, &mut pass.status, snapshot.now);
    pass.mark_machines();
    let paused = status::is_paused(deployment);
    if !paused && let Some(to) = &deployment.spec.rollback_to {
        pass.roll_back(to.revision);
        return pass.finish();
    }
    pass.update_new_set();
    let in_place = pass.hands_over();
    if !in_place && !paused {
        pass.end_updates();
    }
    match &deployment.spec.strategy.type_ {
        _ if paused => pass.scale_only(),
        _ if in_place => pass.update_in_place(),
        Some(StrategyType::Recreate) => pass.recreate(),
        _ => pass.roll(),
    }
    pass.clean_up();
    if !paused {
        pass.next = pass.show_progress();
    }
    pass.show_hindrances();
    pass.finish()
}

impl Pass<'_> {
    /// The spec is refused: nothing is changed, and it says why, to each generation once.
    fn refuse(&mut self, why: &str) {
        let generation = self.snapshot.deployment.metadata.generation;
        let shown =
            conditions::find(&self.status.conditions, &MachineDeploymentConditionType::Valid);
        let changed = shown.is_none_or(|shown| shown.message.as_deref() != Some(why));
        if changed || self.status.observed_generation != generation {
            self.warn(EventReason::ValidationFailed, why.to_owned());
        }
        if changed {
            let what = (MachineDeploymentConditionType::Valid, "False", reason::INVALID);
            let now = self.snapshot.now;
            conditions::refresh(&mut self.status.conditions, what, why.to_owned(), now);
        }
        self.status.observed_generation = generation;
    }
}
