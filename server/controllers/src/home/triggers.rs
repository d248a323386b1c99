//! What may change whether this core is needed.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use ostler_api::names::CLUSTER_ID_CONFIG_MAP;
use ostler_api::{Machine, MachineClass, MachineDeployment, MachinePool, MachineSet};

use super::Needs;
use crate::queue::{Priority, Queue};
use crate::settings::Settings;
use crate::stores::Stores;
use crate::triggers::Triggers;
use crate::watch::{Change, ObjectName};

/// Wakes the one key: the ConfigMap of the cluster id.
pub(crate) struct HomeTriggers {
    pub(crate) queue: Arc<Queue<ObjectName>>,
    pub(crate) stores: Stores,
    pub(crate) settings: Arc<Settings>,
    /// Whether this core is needed.
    pub(crate) needs: Needs,
}

impl HomeTriggers {
    /// Something came or went that needs this core.
    pub(crate) fn note(&self) {
        let need = self.stores.need(self.settings.controllers.run_sets());
        if self.needs.note(need) {
            self.wake();
        }
    }

    pub(crate) fn wake(&self) {
        let map = ObjectName::new(&self.settings.home, CLUSTER_ID_CONFIG_MAP);
        self.queue.add(map, Priority::Change);
    }
}

impl Triggers for HomeTriggers {
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
