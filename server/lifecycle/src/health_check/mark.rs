//! The mark that a check puts on a Machine, and whether it still counts. A mark counts while its finding is true: a
//! Node that is well again takes its Machine out of danger before the check removes the mark.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use ostler_api::{
    Machine, ProviderIdComparison,
    machine_health_check::{UnhealthyMark, UnhealthyReason},
    names::annotation,
};

use crate::{
    node,
    snapshot::{NodeView, Observed},
};

/// Whether what the mark says is still so. An unknown state does not hold.
pub fn holds(
    mark: &UnhealthyMark,
    machine: &Machine,
    view: &NodeView,
    by: ProviderIdComparison,
) -> bool {
    if mark.reason == UnhealthyReason::HasRemediateAnnotation {
        return machine.annotation(annotation::REMEDIATE_MACHINE).is_some();
    }
    match (&mark.reason, own_node(machine, view, by)) {
        (UnhealthyReason::NodeStartupTimeout | UnhealthyReason::NodeDeleted, node) => {
            node == Observed::Absent
        }
        (UnhealthyReason::UnhealthyNode, Observed::Known(_)) => {
            let nodes = own_nodes(machine, view, by);
            let condition = mark.condition.as_ref();
            condition.is_some_and(|condition| nodes.iter().all(|node| condition.holds(node)))
        }
        _ => false,
    }
}

/// The Node that stands for the Machine's health, and not another instance's.
pub(super) fn own_node<'a>(
    machine: &Machine,
    view: &'a NodeView,
    by: ProviderIdComparison,
) -> Observed<&'a Node> {
    match view {
        NodeView::Unknown | NodeView::Ambiguous(_) => Observed::Unknown,
        NodeView::Known(_) | NodeView::Several(..) | NodeView::Absent => {
            let own = |found: &&Arc<Node>| node::is_ours(machine, machine.instance_id(), found, by);
            match view.serving() {
                Some(node) if own(&node) => Observed::Known(node),
                // The next one would join in the same way.
                Some(node) if node::spelled_otherwise(machine.instance_id(), node).is_some() => {
                    Observed::Unknown
                }
                Some(_) | None => Observed::Absent,
            }
        }
    }
}

/// Every Node of the instance of a Machine.
pub(super) fn own_nodes<'a>(
    machine: &Machine,
    view: &'a NodeView,
    by: ProviderIdComparison,
) -> Vec<&'a Node> {
    let own = |found: &&Arc<Node>| node::is_ours(machine, machine.instance_id(), found, by);
    view.all().into_iter().filter(own).map(AsRef::as_ref).collect()
}

/// Whether two marks say the same; since when, is no matter.
pub(super) fn says_the_same(one: &UnhealthyMark, other: &UnhealthyMark) -> bool {
    one.reason == other.reason && one.condition == other.condition
}
