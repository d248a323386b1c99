//! What is written to the Node.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::api::resource::Quantity};
use ostler_api::names;
use ostler_lifecycle::{
    plan::{NodePatch, NodeStatusPatch},
    snapshot::NodeView,
};

use crate::machine::world::World;

impl World {
    pub fn patch_node(&mut self, patch: &NodePatch) {
        let mut node = self.node_of(&patch.name);
        let ours = names::finalizer::NODE;
        let finalizers = node.metadata.finalizers.get_or_insert_default();
        if patch.add_finalizer {
            finalizers.push(ours.to_owned());
        }
        if patch.remove_finalizer {
            finalizers.retain(|name| name != ours);
        }
        edit(&mut node.metadata.labels, &patch.labels);
        edit(&mut node.metadata.annotations, &patch.annotations);
        let spec = node.spec.get_or_insert_default();
        if let Some(taints) = &patch.taints {
            spec.taints = Some(taints.clone());
        }
        if patch.remove_not_ready_taint {
            let ours = names::taint::INSTANCE_NOT_READY;
            let rest = spec.taints.take().into_iter().flatten().filter(|one| one.key != ours);
            spec.taints = Some(rest.collect::<Vec<_>>()).filter(|rest| !rest.is_empty());
        }
        if patch.cordon {
            spec.unschedulable = Some(true);
        }
        if patch.uncordon {
            spec.unschedulable = None;
        }
        if patch.label_machine {
            let labels = node.metadata.labels.get_or_insert_default();
            labels.insert(names::label::MACHINE_NAME.to_owned(), "m1".to_owned());
        }
        self.put_node(node);
    }

    /// The Node of this name; empty: the machine's Node.
    pub fn node_of(&self, name: &str) -> Node {
        if name.is_empty() {
            return self.node().clone();
        }
        let all = self.node.all().into_iter().chain(self.node.main());
        let mut found = all.filter(|node| node.metadata.name.as_deref() == Some(name));
        Node::clone(found.next().unwrap_or_else(|| panic!("no node {name}: {:?}", self.node)))
    }

    /// Sets the kubelet's report for the Node of this name.
    pub fn node_is_of(&mut self, name: &str, ready: &str) {
        let mut node = self.node_of(name);
        for condition in node.status.iter_mut().flat_map(|it| it.conditions.iter_mut().flatten()) {
            if condition.type_ == "Ready" {
                ready.clone_into(&mut condition.status);
            }
        }
        self.put_node(node);
    }

    /// Replaces the Node of this name.
    pub fn put_node(&mut self, new: Node) {
        let name = new.metadata.name.clone();
        let is_it = |old: &Arc<Node>| old.metadata.name == name;
        match &mut self.node {
            NodeView::Known(node) => *node = Arc::new(new),
            NodeView::Several(main, others) => {
                let mut all = std::iter::once(main).chain(others);
                *all.find(|old| is_it(old)).unwrap() = Arc::new(new);
            }
            NodeView::Ambiguous(all) => {
                *all.iter_mut().find(|old| is_it(old)).unwrap() = Arc::new(new);
            }
            NodeView::Unknown | NodeView::Absent => panic!("no node"),
        }
    }

    /// The Node of this name goes.
    pub fn remove_node(&mut self, name: &str) {
        let mut left: Vec<_> = self.node.all().into_iter().cloned().collect();
        left.retain(|node| node.metadata.name.as_deref() != Some(name));
        self.node = match (left.is_empty(), &self.node) {
            (true, _) => NodeView::Absent,
            (false, NodeView::Ambiguous(_)) if left.len() > 1 => NodeView::Ambiguous(left),
            (false, _) => {
                let main = left.remove(0);
                let alone = left.is_empty();
                if alone { NodeView::Known(main) } else { NodeView::Several(main, left) }
            }
        };
    }

    pub fn patch_node_status(&mut self, patch: &NodeStatusPatch) {
        let mut node = self.node_of(&patch.name);
        let status = node.status.get_or_insert_default();
        let capacity = status.capacity.get_or_insert_default();
        for (key, value) in &patch.capacity {
            match value {
                Some(value) => capacity.insert(key.clone(), Quantity(value.clone())),
                None => capacity.remove(key),
            };
        }
        let conditions = status.conditions.get_or_insert_default();
        for condition in &patch.conditions {
            conditions.retain(|one| one.type_ != condition.type_);
            conditions.push(condition.clone());
        }
        self.put_node(node);
    }
}

fn edit(map: &mut Option<BTreeMap<String, String>>, changes: &BTreeMap<String, Option<String>>) {
    for (key, value) in changes {
        match value {
            Some(value) => map.get_or_insert_default().insert(key.clone(), value.clone()),
            None => map.get_or_insert_default().remove(key),
        };
    }
}
