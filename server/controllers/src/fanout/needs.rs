//! When what the core needs itself is held, and when it is let go.

use ostler_api::names::CLUSTER_ID_CONFIG_MAP;

use super::Fanout;
use crate::queue::Priority;
use crate::watch::ObjectName;

impl Fanout {
    /// Something came or went that needs this core.
    pub(crate) fn needs(&self) {
        let need = self.stores.need(self.settings.controllers.run_sets());
        if self.needs.note(need) {
            self.queues.home.add(self.home(), Priority::Change);
        }
    }

    /// The ConfigMap of the cluster id.
    pub(crate) fn home(&self) -> ObjectName {
        ObjectName::new(&self.settings.home, CLUSTER_ID_CONFIG_MAP)
    }
}
