//! What may change whether this core is needed.

use k8s_openapi::api::core::v1::Secret;
use ostler_api::names::CLUSTER_ID_CONFIG_MAP;
use ostler_api::{Machine, MachineClass, MachineDeployment, MachinePool, MachineSet};

use super::{Home, Needs};
use crate::queue::Priority;
use crate::triggers::{Triggers, Woken};
use crate::watch::{Change, ObjectName};

/// It has one key: the ConfigMap of the cluster id.
impl Woken<Home, Needs> {
    /// Something came or went that needs this core.
    pub(crate) fn note(&self) {
        let need = self.stores.need(self.settings.controllers.run_sets());
        if self.own.note(need) {
            self.wake();
        }
    }

    pub(crate) fn wake(&self) {
        let map = ObjectName::new(&self.settings.home, CLUSTER_ID_CONFIG_MAP);
        self.queue.add(map, Priority::Change);
    }
}

impl Triggers for Woken<Home, Needs> {
    fn machine(&self, _: &Change<Machine>) {
        self.note();
    }

    fn class(&self, _: &Change<MachineClass>) {
        self.note();
    }

    fn secret(&self, _: &Change<Secret>) {
        self.note();
    }

    fn set(&self, _: &Change<MachineSet>) {
        self.note();
    }

    fn deployment(&self, _: &Change<MachineDeployment>) {
        self.note();
    }

    fn pool(&self, _: &Change<MachinePool>) {
        self.note();
    }
}
