//! Finds the objects concerned by another one.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use ostler_api::names::annotation::RELEASED_BY;
use ostler_api::names::label;
use ostler_api::{Machine, MachineSet, ProviderId};
use ostler_lifecycle::node::provider_id;
use ostler_lifecycle::owner::controller;
use ostler_lifecycle::selector;

use super::{MachineIndex, NodeIndex, SetIndex, Stores};
use crate::target::Target;
use crate::watch::ObjectName;

impl Stores {
    /// The set that controls a machine; without a controller, all sets that select the machine.
    pub(crate) fn sets_of(&self, machine: &Machine) -> Vec<Arc<MachineSet>> {
        if let Some(owner) = controller(&machine.metadata) {
            return self.sets.find(SetIndex::Uid, &owner.uid);
        }
        let there = machine.namespace();
        let mut found = self.sets.find(SetIndex::Namespace, there);
        let labels = machine.metadata.labels.as_ref();
        found.retain(|set| {
            set.spec.selector.as_ref().is_some_and(|selector| selector::matches(selector, labels))
                || machine.annotation(RELEASED_BY) == Some(set.uid())
        });
        found
    }

    /// The machines that a Node may belong to.
    pub(crate) fn machines_of(&self, target: &Target, node: &Node) -> Vec<ObjectName> {
        let machines = &self.machines;
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let mut found = machines.find_names(MachineIndex::Node, name);
        if let Some(id) = provider_id(node) {
            // Also in another spelling, by which the driver may call it equal, or which is to be named.
            let of_ending =
                ProviderId::ending(id).map(|it| machines.find(MachineIndex::Ending, &it));
            let may_have = |machine: &Arc<Machine>| {
                let ids = [machine.provider_id(), machine.instance_id()];
                ids.into_iter().flatten().any(|it| it.is_spelled(id) || it.may_equal(id))
            };
            let of_ending = of_ending.unwrap_or_default().into_iter().filter(may_have);
            found.extend(of_ending.map(|machine| ObjectName::of(&*machine)));
            // The cloud may spell the id in another way than the driver: then by the other Nodes of the instance.
            for other in target.nodes.find_names(NodeIndex::ProviderId, id) {
                found.extend(machines.find_names(MachineIndex::Node, &other.name));
            }
        }
        // The machine of the same name may own the Node.
        found.extend(machines.find_names(MachineIndex::Name, name));
        let labels = node.metadata.labels.as_ref();
        if let Some(machine) = labels.and_then(|labels| labels.get(label::MACHINE_NAME)) {
            found.extend(machines.find_names(MachineIndex::Name, machine));
        }
        found.retain(|name| machines.get(name).is_some_and(|machine| target.is_of(&machine)));
        found
    }
}
