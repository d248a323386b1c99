//! Wakes reserves.

use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use ostler_api::{Machine, MachineClass, MachineDeployment, MachineReserve, MachineSet};
use ostler_lifecycle::owner::{controller, is_in_reserve};
use ostler_lifecycle::write::Same;

use super::{Given, Reserves};
use crate::fleet::{Fleet, FleetKind as _};
use crate::queue::Priority;
use crate::stores::{ReserveIndex, is_same_to_set};
use crate::triggers::{Triggers, Woken};
use crate::watch::{Change, ObjectName};

impl Woken<Fleet<Reserves>, Arc<Given>> {
    /// The reserves of an object that changed in more than its status.
    fn target<K: Resource<DynamicType = ()>>(&self, change: &Change<K>) {
        let same = |(old, new): (&Arc<K>, &Arc<K>)| {
            Same::AllButStatus(Duration::ZERO).holds(old.meta(), new.meta())
        };
        let Some(of) = change.latest() else { return };
        if !change.old.as_ref().zip(change.new.as_ref()).is_some_and(same) {
            let name = ObjectName::of(of.as_ref()).to_string();
            let reserves = self.stores.reserves.find_names(ReserveIndex::Target, &name);
            self.add_all(reserves, change.priority());
        }
    }
}

impl Triggers for Woken<Fleet<Reserves>, Arc<Given>> {
    /// The present or former reserve of the Machine.
    fn machine(&self, change: &Change<Machine>) {
        if let Some(gone) = change.gone() {
            let there = gone.namespace();
            for reserve in self.stores.reserves.find(ReserveIndex::Namespace, there) {
                if self.own.gone(gone, &reserve) {
                    self.queue.add(ObjectName::of(reserve.as_ref()), change.priority());
                }
            }
        }
        let both = change.old.as_ref().zip(change.new.as_ref());
        if both.is_some_and(|(old, new)| is_same_to_set(old, new)) {
            return;
        }
        for machine in [&change.old, &change.new].into_iter().flatten() {
            let owner = controller(&machine.metadata).filter(|_| is_in_reserve(&machine.metadata));
            let find = |uid: &str| self.stores.reserves.find_names(ReserveIndex::Uid, uid);
            self.add_all(owner.map(|it| find(&it.uid)).unwrap_or_default(), change.priority());
        }
    }

    fn set(&self, change: &Change<MachineSet>) {
        self.target(change);
    }

    fn deployment(&self, change: &Change<MachineDeployment>) {
        self.target(change);
    }

    /// A class that came or went: a template may name it.
    fn class(&self, change: &Change<MachineClass>) {
        let ((None, Some(class)) | (Some(class), None)) = (&change.old, &change.new) else {
            return;
        };
        let there = class.namespace();
        let reserves = self.stores.reserves.find_names(ReserveIndex::Namespace, there);
        self.add_all(reserves, Priority::Change);
    }

    fn reserve(&self, change: &Change<MachineReserve>) {
        if let (Some(gone), None) = (&change.old, &change.new) {
            self.own.forget(gone.uid());
            self.stores.unseen.forget(gone.uid());
        }
        if let Some(name) = change.latest().map(|it| ObjectName::of(it.as_ref()))
            && change.is_news_to(Reserves::NAME, &name)
        {
            self.queue.add(name, change.priority());
        }
    }
}
