//! Wakes Nodes that may belong to no Machine.

use k8s_openapi::api::core::v1::Node;
use ostler_api::{Machine, ProviderId};
use ostler_lifecycle::machine::has_own_instance;

use super::UnmanagedNodes;
use crate::kind::Kind as _;
use crate::stores::NodeIndex;
use crate::target::Target;
use crate::triggers::{Triggers, Woken};
use crate::watch::{Change, ObjectName};

impl Triggers for Woken<UnmanagedNodes> {
    /// Nodes that gain or lose a machine.
    fn machine(&self, change: &Change<Machine>) {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        let link = |machine: &Machine| {
            let names = (machine.node_name().map(str::to_owned), machine.provider_id().cloned());
            let joined = machine.status.as_ref().and_then(|status| status.node_ref.clone());
            (names, machine.instance_id().cloned(), has_own_instance(machine), joined)
        };
        if old.is_some() && new.is_some() && old.map(link) == new.map(link) {
            return;
        }
        for machine in [old, new].into_iter().flatten() {
            for target in self.stores.targets.all() {
                let nodes = &target.nodes;
                let ids = machine.provider_id().into_iter().chain(machine.instance_id());
                let endings = ids.filter_map(|id| ProviderId::ending(id.as_str()));
                let by_id = endings.map(|ending| nodes.find_names(NodeIndex::Ending, &ending));
                let by_label = nodes.find_names(NodeIndex::MachineName, machine.name());
                let by_name = machine.node_name().map(ObjectName::cluster);
                let names = by_id.flatten().chain(by_label).chain(by_name);
                self.add_all(names, change.priority());
            }
        }
    }

    fn node(&self, _: &Target, change: &Change<Node>) {
        if let Some(node) = change.new.as_deref().map(ObjectName::of)
            && change.is_news_to(UnmanagedNodes::NAME, &node)
        {
            self.queue.add(node, change.priority());
        }
    }
}
