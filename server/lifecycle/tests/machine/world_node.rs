//! What is written to the Node.

use std::sync::Arc;

use ostler_api::names;
use ostler_lifecycle::{plan::NodePatch, snapshot::NodeView};

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
        let spec = node.spec.get_or_insert_default();
        if patch.remove_not_ready_taint {
            spec.taints = None;
        }
        if patch.cordon {
            spec.unschedulable = Some(true);
        }
        if patch.label_machine {
            let labels = node.metadata.labels.get_or_insert_default();
            labels.insert(names::label::MACHINE_NAME.to_owned(), "m1".to_owned());
        }
        self.node = NodeView::Known(Arc::new(node));
    }
}
