//! Wakes sets.

use ostler_api::{Machine, MachineClass, MachineSet};
use ostler_lifecycle::owner::controller;

use super::Sets;
use crate::autoscaler::{is_scaled, shown_otherwise};
use crate::fleet::{Fleet, FleetKind as _};
use crate::stores::{SetIndex, is_same_to_set};
use crate::triggers::{Triggers, Woken, add_of_set};
use crate::watch::{Change, ObjectName};

impl Triggers for Woken<Fleet<Sets>> {
    /// The controlling set, and sets that may adopt the Machine.
    fn machine(&self, change: &Change<Machine>) {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && is_same_to_set(old, new)
        {
            return;
        }
        for machine in [&change.old, &change.new].into_iter().flatten() {
            for set in self.stores.sets_of(machine) {
                add_of_set(&self.queue, ObjectName::of(set.as_ref()), &set, change.priority());
            }
        }
    }

    /// Autoscalers read on a set what its class says of a Node.
    fn class(&self, change: &Change<MachineClass>) {
        let Some(class) = shown_otherwise(change) else { return };
        let there = class.namespace();
        for set in self.stores.sets.find(SetIndex::Namespace, there) {
            let of = &set.spec.template.spec.class.name;
            if of == class.name() && is_scaled(&set.metadata) && controller(&set.metadata).is_none()
            {
                self.queue.add(ObjectName::of(set.as_ref()), change.priority());
            }
        }
    }

    /// The set itself. Others may adopt the Machines of a deleted set.
    fn set(&self, change: &Change<MachineSet>) {
        if let (Some(gone), None) = (&change.old, &change.new) {
            self.stores.unseen.forget(gone.uid());
            let there = gone.namespace();
            let others = self.stores.sets.find_names(SetIndex::Namespace, there);
            self.add_all(others, change.priority());
        }
        if let Some(set) = change.latest().map(|set| ObjectName::of(set.as_ref()))
            && change.is_news_to(Sets::NAME, &set)
        {
            self.queue.add(set, change.priority());
        }
    }
}
