//! The mark that a check puts on a Machine, and whether it still counts. It does while what it says is so: a Node that is
//! well again takes its Machine out of danger before the check has removed its mark.

use k8s_openapi::api::core::v1::Node;
use ostler_api::{
    Machine,
    machine_health_check::{UnhealthyMark, UnhealthyReason},
    names::annotation,
};

use crate::{
    node,
    snapshot::{NodeView, Observed},
};

/// Whether what the mark says is still so. What is not known does not hold.
pub fn holds(mark: &UnhealthyMark, machine: &Machine, view: &NodeView) -> bool {
    if mark.reason == UnhealthyReason::HasRemediateAnnotation {
        return machine.annotation(annotation::REMEDIATE_MACHINE).is_some();
    }
    match (&mark.reason, own_node(machine, view)) {
        (UnhealthyReason::NodeStartupTimeout | UnhealthyReason::NodeDeleted, node) => {
            node == Observed::Absent
        }
        (UnhealthyReason::UnhealthyNode, Observed::Known(node)) => {
            mark.condition.as_ref().is_some_and(|condition| condition.holds(node))
        }
        _ => false,
    }
}

/// The Node of a Machine, and not that of another instance.
pub(super) fn own_node<'a>(machine: &Machine, view: &'a NodeView) -> Observed<&'a Node> {
    match view {
        NodeView::Unknown | NodeView::Ambiguous(_) => Observed::Unknown,
        NodeView::Known(found) if node::is_ours(machine, machine.instance_id(), found) => {
            Observed::Known(found)
        }
        NodeView::Known(_) | NodeView::Absent => Observed::Absent,
    }
}

/// Whether two marks say the same; since when, is no matter.
pub(super) fn says_the_same(one: &UnhealthyMark, other: &UnhealthyMark) -> bool {
    one.reason == other.reason && one.condition == other.condition
}
