//! The snapshot of a pass over a set.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use ostler_api::machine::MachinePhase;
use ostler_api::names::annotation::{PRESERVE, RELEASED_BY};
use ostler_api::names::label::ZONE;
use ostler_api::{Machine, MachineSet};
use ostler_lifecycle::foreign::Foreign;
use ostler_lifecycle::owner::{controller, is_controlled_by};
use ostler_lifecycle::selector;
use ostler_lifecycle::set::{NodeWish, Snapshot, Spare, is_active};
use ostler_lifecycle::time;

use super::{RESYNC, Seen, Seer, Sets};
use crate::fleet::Tools;
use crate::kind::PassError;
use crate::machine::node_view;
use crate::stores::{MachineIndex, SetIndex, free_label};
use crate::target::TargetOf;
use crate::unseen::Effect;
use crate::watch::{Found, ObjectName};

/// How many Machines that are gone the roll may remember, besides as many as there are.
const ROLL_SLACK: usize = 1000;

impl Sets {
    pub(super) async fn gather(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        let Some(set) = self.tools.stores.sets.get(name) else { return Ok(None) };
        let seen = |found: &Found<Machine>| {
            let mut roll = self.roll.lock();
            for machine in &found.objects {
                roll.ours(machine);
                self.tools.stores.await_listed(machine);
            }
            // Unreadable Machines may be fixed one day.
            found.unread.iter().for_each(|it| roll.was_there(&it.namespace, &it.name));
        };
        let Tools { writer, stores, .. } = &self.tools;
        let seer = Seer { writer, stores, resync: RESYNC };
        let predecessor = seer.predecessor(&self.handover, &self.tools.settings, seen).await?;
        let created = self.created(&set, &name.namespace);
        let (cached, own) = (|| self.cached(&set), |machine: &Machine| concerns(&set, machine));
        let Seen { machines, unanswered, blind, mut again } =
            seer.see(set.uid(), &name.namespace, predecessor, cached, own).await?;
        let wishes = self.wishes(&machines);
        let (spares, taking) = self.spares(&set, &name.namespace);
        let zones = if spares.is_empty() { Vec::new() } else { self.zones_of_going(&machines) };
        let others = self.tools.stores.sets.find(SetIndex::Namespace, &name.namespace);
        let now = self.tools.now();
        let foreign = match predecessor {
            // A Machine that appears now was made by the former process.
            Some(_) => None,
            None => self.foreign(&set, &machines, &created, now),
        };
        if let Some(Foreign::Appeared { until, .. }) = &foreign {
            again = again.min(time::until(*until, now));
        }
        let class = ObjectName::new(&name.namespace, &set.spec.template.spec.class.name);
        Ok(Some(Snapshot {
            freeze_due: self.freezes.is_due(name),
            copies: self.configs.copies(&set),
            runs_machines: self.runs_machines,
            seed: rand::random(),
            class: self.tools.stores.classes.get(&class),
            set,
            machines,
            others,
            wishes,
            unanswered,
            spares,
            taking,
            zones,
            blind,
            foreign,
            now,
            again,
        }))
    }

    /// Names of Machines that were created. Machines that the cache shows are noted as the set's own before the
    /// comparison: they are not awaited any more, and a list that fails ends the pass.
    fn created(&self, set: &MachineSet, namespace: &str) -> BTreeSet<String> {
        let open = self.tools.stores.unseen.open(set.uid());
        let created: BTreeSet<_> =
            open.iter().flat_map(|open| open.keys(Effect::Created)).cloned().collect();
        let shown = created.iter().map(|made| ObjectName::new(namespace, made));
        for machine in shown.filter_map(|made| self.tools.stores.machines.get(&made)) {
            if is_controlled_by(&machine.metadata, set.uid()) {
                self.roll.lock().ours(&machine);
            }
        }
        created
    }

    /// Whether another process makes Machines of this set.
    fn foreign(
        &self,
        set: &MachineSet,
        machines: &[Arc<Machine>],
        created: &BTreeSet<String>,
        now: Timestamp,
    ) -> Option<Foreign> {
        let mut roll = self.roll.lock();
        if roll.len() > 2 * self.tools.stores.machines.len() + ROLL_SLACK {
            let sets = self.tools.stores.sets.all();
            let uids: Vec<_> = sets.iter().map(|set| set.uid()).collect();
            let exists = |namespace: &str, name: &str| {
                self.tools.stores.machines.has(&ObjectName::new(namespace, name))
            };
            roll.prune(exists, &uids);
        }
        let own = machines.iter().filter(|it| is_controlled_by(&it.metadata, set.uid()));
        roll.look(set, own.map(AsRef::as_ref), created, now)
    }

    pub(super) fn cached(&self, set: &MachineSet) -> Vec<Arc<Machine>> {
        let name = ObjectName::of(set);
        let released = ObjectName::new(&name.namespace, set.uid()).to_string();
        let mut free = self.tools.stores.machines.find(MachineIndex::Released, &released);
        free.extend(self.may_select(set, &name.namespace));
        free.retain(|machine| concerns(set, machine));
        // After the others: a Machine adopted meanwhile is found twice rather than never, and this version counts.
        let mut machines = self.tools.stores.machines.find(MachineIndex::Controller, set.uid());
        machines.extend(free);
        machines.sort_by(|one, other| one.name().cmp(other.name()));
        machines.dedup_by(|one, other| one.name() == other.name());
        machines
    }

    /// Of the Machines without a controller, at least the selected ones: all Machines with the rarest label in the
    /// selector. A selector without `matchLabels` may select any Machine.
    fn may_select(&self, set: &MachineSet, namespace: &str) -> Vec<Arc<Machine>> {
        let machines = &self.tools.stores.machines;
        let selector = set.spec.selector.as_ref();
        let labels = selector.and_then(|selector| selector.match_labels.as_ref());
        let labels = labels.into_iter().flatten();
        let labels = labels.map(|(key, value)| free_label(namespace, key, value));
        match labels.min_by_key(|label| machines.count(MachineIndex::FreeLabel, label)) {
            Some(rarest) => machines.find(MachineIndex::FreeLabel, &rarest),
            None => machines.find(MachineIndex::Uncontrolled, namespace),
        }
    }

    /// Machines in reserve, and names of the Machines that may already be the set's.
    fn spares(&self, set: &MachineSet, namespace: &str) -> (Vec<Spare>, Vec<String>) {
        let spares = self.tools.stores.machines.find(MachineIndex::Reserve, namespace);
        let open = self.tools.stores.unseen.open(set.uid());
        let taking = open.iter().flat_map(|open| open.keys(Effect::Changed)).cloned().collect();
        let spare = |machine: Arc<Machine>| Spare { zone: self.zone(&machine), machine };
        (spares.into_iter().map(spare).collect(), taking)
    }

    /// The zones of Machines that are to be replaced.
    fn zones_of_going(&self, machines: &[Arc<Machine>]) -> Vec<String> {
        machines.iter().filter(|it| !is_active(it)).filter_map(|it| self.zone(it)).collect()
    }

    fn zone(&self, machine: &Machine) -> Option<String> {
        let view = node_view(machine, &self.tools.stores.targets.of(machine), &self.tools.stores);
        let of_node =
            view.main().and_then(|node| node.metadata.labels.as_ref()?.get(ZONE).cloned());
        of_node.or_else(|| machine.label(ZONE).map(str::to_owned))
    }

    /// The wishes on the Nodes of Failed Machines. An unwatched Node may have any wish.
    fn wishes(&self, machines: &[Arc<Machine>]) -> BTreeMap<String, NodeWish> {
        let failed = machines.iter().filter(|machine| machine.phase() == MachinePhase::Failed);
        failed.filter_map(|one| Some((one.uid().to_owned(), self.wish(one)?))).collect()
    }

    fn wish(&self, machine: &Machine) -> Option<NodeWish> {
        let target = self.tools.stores.targets.of(machine);
        match &target {
            TargetOf::None => None,
            TargetOf::Cluster(cluster) if cluster.is_synced() => {
                let view = node_view(machine, &target, &self.tools.stores);
                let nodes: Vec<_> = view.main().into_iter().chain(view.serving()).collect();
                if nodes.is_empty() && machine.node_name().is_none() {
                    return None;
                }
                let annotations = nodes.iter().filter_map(|it| it.metadata.annotations.as_ref());
                let said: Vec<_> = annotations.filter_map(|all| all.get(PRESERVE)).collect();
                let says = said.iter().find(|value| !value.is_empty()).or_else(|| said.first());
                Some(NodeWish::Known(says.map(|value| (*value).clone())))
            }
            TargetOf::Cluster(_) | TargetOf::Lacking { .. } => Some(NodeWish::Unknown),
        }
    }
}

/// Whether a Machine matters to a set: the set controls, may adopt, or released the Machine.
fn concerns(set: &MachineSet, machine: &Machine) -> bool {
    let matches = |machine: &Machine| {
        let selector = set.spec.selector.as_ref();
        selector.is_some_and(|it| selector::matches(it, machine.metadata.labels.as_ref()))
    };
    is_controlled_by(&machine.metadata, set.uid())
        || controller(&machine.metadata).is_none()
            && (matches(machine) || machine.annotation(RELEASED_BY) == Some(set.uid()))
}
