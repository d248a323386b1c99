//! Finds the Machine of a driver's own report about an instance.

use std::sync::Arc;

use jiff::Timestamp;
use ostler_api::Machine;
use ostler_api::hint::Hint;
use ostler_sessions::Sessions;
use tokio::time::Instant;
use tracing::debug;

use super::Hints;
use crate::settings::Settings;
use crate::stores::{MachineIndex, Stores};
use crate::watch::ObjectName;

/// Takes hints in.
pub(crate) struct Listener {
    pub(crate) hints: Arc<Hints>,
    pub(crate) stores: Stores,
    pub(crate) settings: Arc<Settings>,
    pub(crate) sessions: Sessions,
}

impl Listener {
    /// A driver says that something happened to an instance. Returns the instance's machine, which then reads the
    /// instance. Nothing follows from what cannot be assigned to a machine of this provider, or comes too often.
    pub(crate) fn hear(
        &self,
        clock: Timestamp,
        provider: &str,
        mut hint: Hint,
    ) -> Option<Arc<Machine>> {
        let drivers = &self.sessions;
        let is_ours = |cluster: &str| {
            drivers.cluster_id() == cluster
                || drivers.previous_cluster_ids().iter().any(|id| id == cluster)
        };
        let Some(machine) = self.machine_of(provider, &hint, is_ours) else {
            debug!(
                provider,
                kind = hint.kind.as_str(),
                "an event of a driver is about no machine of ours"
            );
            drivers.hint_dropped(provider, "UNKNOWN_MACHINE");
            return None;
        };
        let namespace = machine.namespace();
        hint.message = drivers.scrub(namespace, &machine.spec.class.name, &hint.message);
        if !self.hints.take(machine.uid(), &hint, clock, Instant::now()) {
            drivers.hint_dropped(provider, "MACHINE_RATE");
            return None;
        }
        debug!(
            provider,
            machine = machine.name(),
            kind = hint.kind.as_str(),
            "an event of a driver"
        );
        Some(machine)
    }

    /// The machine of this provider for a hint: by cluster and UID, else by provider id.
    fn machine_of(
        &self,
        provider: &str,
        hint: &Hint,
        is_ours: impl Fn(&str) -> bool,
    ) -> Option<Arc<Machine>> {
        let machines = &self.stores.machines;
        let by_tags = !hint.machine_uid.is_empty() && !hint.cluster_id.is_empty();
        if by_tags && !is_ours(&hint.cluster_id) {
            return None;
        }
        let mut found = Vec::new();
        if by_tags {
            found = machines.find(MachineIndex::Uid, hint.machine_uid.as_str());
        }
        if found.is_empty() && !hint.provider_id.is_empty() {
            found = machines.find(MachineIndex::ProviderId, hint.provider_id.as_str());
        }
        found.retain(|machine| self.is_served_by(machine, provider));
        let one = found.pop()?;
        found.is_empty().then_some(one)
    }

    fn is_served_by(&self, machine: &Machine, provider: &str) -> bool {
        let namespace = machine.metadata.namespace.clone().unwrap_or_default();
        let name = ObjectName::new(namespace, &machine.spec.class.name);
        let kept = || self.stores.last_known(&name).map(|kept| Arc::new(kept.class));
        let class = self.stores.classes.get(&name).or_else(kept);
        class.is_some_and(|class| self.settings.driver_name(class.provider()) == provider)
    }
}
