//! What is written to the Node.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use ostler_api::names;
use ostler_lifecycle::{
    plan::{NodePatch, NodeStatusPatch},
    snapshot::NodeView,
};

use crate::world::World;

impl World {
    pub fn patch_node(&mut self, patch: &NodePatch) {
        let mut node = self.node().clone();
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
        self.node = NodeView::Known(Arc::new(node));
    }

    pub fn patch_node_status(&mut self, patch: &NodeStatusPatch) {
        let mut node = self.node().clone();
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
        self.node = NodeView::Known(Arc::new(node));
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
