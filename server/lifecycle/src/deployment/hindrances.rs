//! The hindrances of a rollout until a user acts or a time is over: condition Progressing names them.

use ostler_api::machine::MachinePhase;
use ostler_api::machine_deployment::{MachineDeploymentConditionType as Type, StrategyType};
use ostler_api::names::annotation::RETRY_UPDATE;
use ostler_api::names::label::SELECTED_FOR_UPDATE;

use super::pass::Pass;
use super::snapshot::MachineView;
use super::{conditions, fenceposts, in_place, status};

impl Pass<'_> {
    /// Writes the hindrances into the message of condition Progressing, whose times stay.
    pub(super) fn show_hindrances(&mut self) {
        let all = [
            self.failed_updates(),
            self.preserved_machines(),
            self.machines_without_nodes(),
            self.unselected_nodes(),
        ];
        let all: Vec<_> = all.into_iter().flatten().collect();
        let text = (!all.is_empty()).then(|| all.join("; "));
        conditions::hinder(&mut self.status.conditions, &Type::Progressing, text.as_deref());
    }

    /// Machines of old sets that a rollout in place is to update, while there is one and nothing holds it.
    fn to_be_updated(&self) -> impl Iterator<Item = &MachineView> {
        let deployment = self.snapshot.deployment.as_ref();
        let new = self.new.and_then(|index| self.views.get(index));
        let goes_on = deployment.spec.strategy.type_ == Some(StrategyType::InPlaceUpdate)
            && !status::is_paused(deployment)
            && new.is_some_and(|new| new.set.spec.replicas() < deployment.spec.replicas());
        let old = self.old_views().filter(move |_| goes_on).flat_map(|set| &set.machines);
        old.filter(|view| in_place::waits(view))
    }

    /// Nodes that no user has selected yet, where a user does.
    fn unselected_nodes(&self) -> Option<String> {
        let manual = fenceposts::is_manual(&self.snapshot.deployment.spec);
        let waits = |view: &&MachineView| manual && in_place::is_unselected(view);
        match self.to_be_updated().filter(waits).count() {
            0 => None,
            1 => Some(format!("1 node must be labelled {SELECTED_FOR_UPDATE} by a user")),
            many => Some(format!("{many} nodes must be labelled {SELECTED_FOR_UPDATE} by a user")),
        }
    }

    /// Machines left out of an update, since they have no Node to update.
    fn machines_without_nodes(&self) -> Option<String> {
        let mut without = self.to_be_updated().filter(|view| view.node.is_none());
        let name = without.next()?.machine.name();
        Some(format!("machine {name}{} has no node that could be updated", others(without.count())))
    }

    /// Updates in place that failed. A failed update still counts as undergoing.
    fn failed_updates(&self) -> Option<String> {
        let failed = |view: &&MachineView| {
            view.machine.phase() == MachinePhase::InPlaceUpdateFailed && !view.machine.is_deleting()
        };
        let mut failed = self.old_views().flat_map(|set| &set.machines).filter(failed);
        let machine = &failed.next()?.machine;
        let (name, node) = (machine.name(), machine.node_name().unwrap_or_default());
        let others = others(failed.count());
        Some(format!(
            "the update of machine {name} on node {node}{others} failed; annotation {RETRY_UPDATE} on the machine tries \
             it again"
        ))
    }

    /// Failed Machines of the new set that are preserved. They are among its replicas and not available, as with
    /// machine-controller-manager: nothing else may be taken for them.
    fn preserved_machines(&self) -> Option<String> {
        let rolls = self.old_views().any(|set| set.set.spec.replicas() > 0);
        let new = self.new.and_then(|index| self.views.get(index)).filter(|_| rolls)?;
        let now = self.snapshot.now;
        let mut kept = new.machines.iter().filter(|view| view.is_preserved(now));
        let name = kept.next()?.machine.name();
        let others = others(kept.count());
        Some(format!("machine {name}{others} of the new set is failed and preserved"))
    }
}

fn others(more: usize) -> String {
    if more > 0 { format!(" and {more} more") } else { String::new() }
}
