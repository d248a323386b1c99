//! What keeps a rollout from going on until a user acts or a time is over: condition Progressing names it.

use ostler_api::machine::MachinePhase;
use ostler_api::machine_deployment::MachineDeploymentConditionType as Type;
use ostler_api::names::annotation::RETRY_UPDATE;

use super::conditions;
use super::pass::Pass;
use super::snapshot::MachineView;

impl Pass<'_> {
    /// Writes it into the message of condition Progressing, whose times stay.
    pub(super) fn show_hindrances(&mut self) {
        let text = self.failed_updates().or_else(|| self.preserved_machines());
        conditions::hinder(&mut self.status.conditions, &Type::Progressing, text.as_deref());
    }

    /// Updates in place that failed. They keep their places.
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
        let rolls = self.old_views().any(|set| set.set.spec.replicas > 0);
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
