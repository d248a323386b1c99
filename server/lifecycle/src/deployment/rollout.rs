//! Distributes Machines over the sets, and marks their Nodes meanwhile.

use ostler_api::machine_deployment::{MachineDeploymentConditionType as Type, StrategyType};
use ostler_api::names::{annotation, label};

use super::conditions::{self, find, reason};
use super::counts::{Counts, Fleet, SetSizes};
use super::nodes::{self, MARK, Wanted};
use super::pass::Pass;
use super::scaling::{self, Growth};
use super::{edit, fenceposts, in_place, revisions, rolling};

impl Pass<'_> {
    /// The deployment in numbers.
    pub(super) fn fleet(&self) -> Fleet {
        let deployment = self.snapshot.deployment.as_ref();
        let posts = fenceposts::of(&deployment.spec);
        let chosen = self.marks.due(deployment);
        let counts: Vec<Counts> =
            self.views.iter().map(|view| view.counts(&chosen, self.snapshot.now)).collect();
        let of_old =
            |(index, counts): (usize, &Counts)| (Some(index) != self.new).then_some(*counts);
        let mut fleet = Fleet {
            replicas: deployment.spec.replicas(),
            surge: posts.surge,
            unavailable: posts.unavailable,
            new: self.new.and_then(|index| counts.get(index).copied()),
            old: counts.iter().enumerate().filter_map(of_old).collect(),
        };
        self.count_updates(&mut fleet);
        fleet
    }

    fn apply(&mut self, fleet: &Fleet, targets: &SetSizes) {
        let new = self.new;
        let mut old = targets.old.iter();
        for (index, set) in self.sets.iter_mut().enumerate() {
            let wanted = if Some(index) == new { Some(&targets.new) } else { old.next() };
            if let Some(wanted) = wanted {
                edit::scale(set, *wanted, fleet);
            }
        }
    }

    /// The new set takes over changes that need no rollout, and old sets take over changes for autoscalers.
    pub(super) fn update_new_set(&mut self) {
        let (new, deployment) = (self.new, self.deployment.clone());
        let (others, mut newest) = split(&mut self.sets, new);
        if let Some(set) = &mut newest {
            edit::sync(&deployment, set);
            revisions::number(set, others.iter().map(|set| &**set));
            // It was updated in place before, and may be an old set no longer.
            set.metadata.labels.get_or_insert_default().remove(label::SCALE_UP_DISABLED);
            let number = revisions::of(set).to_string();
            edit::annotate(&mut self.deployment.metadata, annotation::REVISION, &number);
            edit::annotate(
                &mut self.deployment.metadata,
                annotation::CLUSTER_API_REVISION,
                &number,
            );
            if find(&self.status.conditions, &Type::Progressing).is_none() {
                let message = format!("Found new machine set \"{}\"", set.name());
                let what = (Type::Progressing, "True", reason::FOUND);
                conditions::set(&mut self.status.conditions, what, message, self.snapshot.now);
            }
        }
        for set in others {
            edit::tell_change_time(&deployment, set);
        }
        for set in &mut self.sets {
            edit::show_to_cluster_api(deployment.name(), set);
        }
    }

    /// Paused: the numbers follow the user, the template does not.
    pub(super) fn scale_only(&mut self) {
        let fleet = self.fleet();
        // Without a set for the template, the user's number still counts for the others.
        if scaling::is_off(&fleet) {
            let mut targets = scaling::scale(&fleet, self.growth());
            in_place::spare_available(&fleet, &mut targets);
            self.apply(&fleet, &targets);
        }
    }

    fn growth(&self) -> Growth {
        match self.snapshot.deployment.spec.strategy.type_ {
            Some(StrategyType::Recreate) => Growth::New,
            Some(StrategyType::InPlaceUpdate) => Growth::Largest,
            _ => Growth::Rolling,
        }
    }

    /// One step of a rolling update, or of scaling: never both, since a scale looks at what the sets were scaled for.
    pub(super) fn roll(&mut self) {
        let fleet = self.fleet();
        let targets = if scaling::is_due(&fleet) {
            scaling::scale(&fleet, self.growth())
        } else {
            rolling::roll(&fleet)
        };
        self.write(&fleet, &targets, true);
    }

    /// One step of Recreate, including scaling.
    pub(super) fn recreate(&mut self) {
        let fleet = self.fleet();
        let mut old = self.views.iter().enumerate().filter(|(index, _)| Some(*index) != self.new);
        let counted = |(_, view): (usize, &&super::snapshot::SetView)| {
            view.set.status.as_ref().is_some_and(|status| status.replicas > 0)
        };
        let targets = rolling::recreate(&fleet, old.any(counted));
        self.write(&fleet, &targets, false);
    }

    pub(super) fn write(&mut self, fleet: &Fleet, targets: &SetSizes, taints: bool) {
        self.show_on_nodes(fleet, taints);
        self.apply(fleet, targets);
        let waits = !taints && fleet.old.iter().any(|set| set.present() > 0);
        if self.new.is_none() && !waits {
            self.make(fleet, targets.new);
        }
    }

    /// A set for the template, above all others.
    fn make(&mut self, fleet: &Fleet, wanted: i32) {
        let mut set = edit::make(&self.deployment, wanted, fleet);
        revisions::number(&mut set, self.sets.iter());
        edit::show_to_cluster_api(self.deployment.name(), &mut set);
        self.create = Some(set);
    }

    /// Pods prefer the Nodes of the new set; autoscalers keep away from all of them until the old sets are empty.
    fn show_on_nodes(&mut self, fleet: &Fleet, taints: bool) {
        let rolls = fleet.old.iter().any(|set| set.present() > 0);
        let guarded = self.snapshot.guard_nodes.then_some(rolls);
        let mut writes = Vec::new();
        for (index, view) in self.views.iter().enumerate() {
            let is_new = Some(index) == self.new;
            let tainted = if is_new { Some(false) } else { taints.then_some(true) };
            let wanted = Wanted { tainted, guarded };
            let patches =
                view.machines.iter().filter_map(|it| Some((it, nodes::patch(it, wanted)?)));
            writes.extend(patches);
            let Some(set) = self.sets.get_mut(index) else { continue };
            let (key, value) = MARK;
            let done = tainted.is_some_and(|tainted| nodes::all_tainted(view, tainted));
            match tainted {
                Some(true) if done && !view.machines.is_empty() => {
                    edit::annotate(&mut set.metadata, key, value);
                }
                Some(false) if done => {
                    edit::annotations_mut(&mut set.metadata).remove(key);
                }
                Some(_) | None => {}
            }
        }
        self.write_to_nodes(writes);
    }
}

/// The old sets, and the new set.
fn split(
    sets: &mut [ostler_api::MachineSet],
    new: Option<usize>,
) -> (Vec<&mut ostler_api::MachineSet>, Option<&mut ostler_api::MachineSet>) {
    let (mut others, mut newest) = (Vec::new(), None);
    for (index, set) in sets.iter_mut().enumerate() {
        if Some(index) == new {
            newest = Some(set);
        } else {
            others.push(set);
        }
    }
    (others, newest)
}
