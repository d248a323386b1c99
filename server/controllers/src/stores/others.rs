//! Finds the owner of an instance or Node that a driver reports: what belongs to another Machine is not used.

use ostler_api::ProviderId;
use std::sync::Arc;

use ostler_api::Machine;

use super::{MachineIndex, Stores};
use crate::target::cluster_of;

impl Stores {
    /// Name of another Machine that has this provider id, or whose UID is on the instance.
    pub(crate) fn other_holder(
        &self,
        machine: &Machine,
        provider_id: &ProviderId,
        tagged: &str,
    ) -> Option<String> {
        let find = |index, value: &str| match value {
            "" => Vec::new(),
            value => self.machines.find(index, value),
        };
        let holders = find(MachineIndex::ProviderId, provider_id.as_str());
        let mut all = holders.into_iter().chain(find(MachineIndex::Uid, tagged));
        let other = all.find(|holder| holder.uid() != machine.uid());
        other.map(|holder| holder.name().to_owned())
    }

    /// Name of another Machine of the same cluster whose Node has this name or, while it has no Node, will have it.
    pub(crate) fn other_with_node(&self, machine: &Machine, node: &str) -> Option<String> {
        let is_other = |other: &Arc<Machine>| {
            other.uid() != machine.uid() && cluster_of(other) == cluster_of(machine)
        };
        let labelled = self.machines.find(MachineIndex::Node, node);
        let mut named = self.machines.find(MachineIndex::Name, node);
        named.retain(|other| other.node_name().is_none());
        let other = labelled.into_iter().chain(named).find(is_other);
        other.map(|other| other.name().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    fn machine(name: &str, provider_id: Option<&str>, node: Option<&str>) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": name, "namespace": "default", "uid": format!("uid-of-{name}"),
                "labels": node.map(|node| json!({ "node": node })),
            },
            "spec": { "class": { "name": "c" }, "providerID": provider_id },
        }))
        .unwrap()
    }

    fn stores() -> Stores {
        let stores = Stores::default();
        for one in [
            machine("ours", Some("a:///1"), Some("node-1")),
            machine("theirs", Some("b:///2"), Some("node-2")),
            machine("new", None, None),
        ] {
            stores.machines.apply(Event::Apply(one));
        }
        stores
    }

    #[test]
    fn an_instance_is_another_machines_by_its_id_or_by_the_uid_on_it() {
        let stores = stores();
        let ours = machine("ours", Some("a:///1"), None);
        let holder = |id: &str, uid| stores.other_holder(&ours, &id.into(), uid);
        assert_eq!(holder("b:///2", "").as_deref(), Some("theirs"), "of any provider");
        assert_eq!(holder("a:///3", "uid-of-theirs").as_deref(), Some("theirs"));
        assert_eq!(holder("a:///1", "uid-of-ours"), None);
        assert_eq!(holder("a:///3", "of a deleted machine"), None);
        assert_eq!(holder("", ""), None);
    }

    #[test]
    fn a_driver_cannot_name_the_node_of_another_machine() {
        let stores = stores();
        let ours = machine("ours", Some("a:///1"), None);
        let other = |node| stores.other_with_node(&ours, node);
        assert_eq!(other("node-2").as_deref(), Some("theirs"));
        assert_eq!(other("new").as_deref(), Some("new"), "it will have the name of its Machine");
        assert_eq!(other("theirs"), None, "that Machine has a Node of another name");
        assert_eq!(other("node-1"), None);
        assert_eq!(other("ours"), None);
        assert_eq!(other("node-3"), None);
    }
}
