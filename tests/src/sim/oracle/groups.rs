//! What the judge is told of sets and deployments, and of machines that go at once.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_api::{MachineDeployment, MachineReserve, MachineSet};

use super::{Books, Change, Oracle};

/// Whether nothing holds an object any more that is deleted.
pub(super) fn is_gone(change: &Change, meta: &ObjectMeta) -> bool {
    (change.method == "DELETE" || meta.deletion_timestamp.is_some())
        && meta.finalizers.as_ref().is_none_or(Vec::is_empty)
}

impl Oracle {
    /// A machine without a finalizer was deleted.
    pub(super) fn vanished(&self, change: &Change, name: &str) {
        let mut books = self.lock();
        let found = books.lives.iter().find(|(_, life)| life.name == name);
        let Some((uid, machine)) = found.map(|(uid, it)| (uid.clone(), it.machine.clone())) else {
            return;
        };
        self.check_meant(change, Some(&uid));
        let ours = change.by.starts_with("core");
        for wrong in books.groups.machine(Some(&machine), &machine, "DELETE", ours) {
            self.broken(wrong);
        }
        self.pooled(&mut books, Some(&machine), &machine, change);
        books.groups.machine_gone(&uid);
        books.pools.machine_gone(&uid);
        books.checks.machine_gone(&uid);
        books.lives.remove(&uid);
    }

    /// A Node was written that may be one of a deployment.
    pub(super) fn node_of_a_group(
        &self,
        books: &mut Books,
        change: &Change,
        name: &str,
        node: &Node,
    ) {
        let found = books.lives.values().find(|life| life.name == name);
        let Some(machine) = found.map(|life| life.machine.clone()) else { return };
        let ours = change.by.starts_with("core");
        if let Some(wrong) = books.groups.node(&machine, node, ours) {
            self.broken(wrong);
        }
    }

    pub(super) fn set(&self, change: &Change) {
        let Ok(set) = serde_json::from_value::<MachineSet>(change.object.clone()) else { return };
        let ours = change.by.starts_with("core");
        let gone = is_gone(change, &set.metadata);
        if let Some(wrong) = self.lock().groups.set(set, gone, ours) {
            self.broken(wrong);
        }
    }

    pub(super) fn reserve(&self, change: &Change) {
        let read = serde_json::from_value::<MachineReserve>(change.object.clone());
        let Ok(reserve) = read else { return };
        let gone = is_gone(change, &reserve.metadata);
        self.lock().groups.reserve(reserve, gone);
    }

    pub(super) fn deployment(&self, change: &Change) {
        let read = serde_json::from_value::<MachineDeployment>(change.object.clone());
        let Ok(deployment) = read else { return };
        let gone = is_gone(change, &deployment.metadata);
        self.lock().groups.deployment(deployment, gone);
    }
}
