//! Changes with an effect on the need for this core.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use ostler_api::names::CLUSTER_ID_CONFIG_MAP;
use ostler_api::{Machine, MachineClass, MachineDeployment, MachinePool, MachineSet};
use tokio_util::sync::CancellationToken;

use super::{Home, Shared};
use crate::clock::Clock;
use crate::election::{ElectionSettings, Elector};
use crate::queue::Priority;
use crate::triggers::{Triggers, Woken};
use crate::watch::{Change, ObjectName};

/// The kind has a single key: the ConfigMap of the cluster id.
impl Woken<Home, Shared> {
    /// An object with a need for this core came or went.
    pub(crate) fn note(&self) {
        let need = self.stores.need(self.settings.controllers.run_sets());
        if self.own.needs.note(need) {
            self.wake();
        }
    }

    pub(crate) fn wake(&self) {
        let map = ObjectName::new(self.own.namespace.current(), CLUSTER_ID_CONFIG_MAP);
        self.queue.add(map, Priority::Change);
    }

    /// A candidate for a Lease, which is held while this core is needed.
    pub(crate) fn elector(
        &self,
        client: Client,
        election: ElectionSettings,
        clock: Clock,
    ) -> Elector {
        let Shared { needs, namespace } = &self.own;
        Elector::new(client, election, clock, needs.follow(), Arc::clone(namespace))
    }

    /// Wakes the ConfigMap of each namespace to which it moves, until `stop`.
    pub(crate) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut moved = self.own.namespace.follow();
        moved.mark_changed();
        while let Some(Ok(())) = stop.run_until_cancelled(moved.changed()).await {
            self.wake();
        }
    }
}

impl Triggers for Woken<Home, Shared> {
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
