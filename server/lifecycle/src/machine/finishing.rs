//! Deletion ends: the Node, the bootstrap token, and the Machine itself.

use k8s_openapi::api::core::v1::Node;
use ostler_api::machine::MachineStep;

use super::{
    bootstrapping, draining, health,
    last_operation::Activity,
    pass::{Pass, Release},
    retry,
    takeover::Upstream,
    token,
    transition::{Outcome, Transition},
};
use crate::{
    node,
    plan::{Action, Next},
    snapshot::{Observed, Snapshot},
    user_data,
};

pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome {
    draining::unless_unseen(pass)?;
    if let Some(wait) = bootstrapping::delete_copy(pass) {
        return Err(wait.until(None));
    }
    // An abandoned instance keeps its Node.
    let abandoned = pass.learned.release == Some(Release::Abandoned);
    let nodes = pass.nodes();
    // Without the Machine, the core would not know of a stale Node.
    let stale = stale_node(pass).filter(|_| nodes.is_empty() && !abandoned);
    for node in nodes.into_iter().chain(stale) {
        if abandoned {
            pass.effects.node_patch(node).remove_finalizer = true;
        } else {
            delete_node(pass, node);
        }
    }
    if !draining::is_unseen_for_good(pass) && !matches!(pass.snap.bootstrap_token, Observed::Absent)
    {
        token::delete_by_id(pass, user_data::token_id_of(pass.machine));
    }
    pass.effects.act_last(Action::RemoveFinalizer);
    pass.step(Some(MachineStep::RemoveFinalizer));
    pass.end_operation();
    retry::clear(pass);
    let (text, next) = match pass.learned.release {
        Some(Release::Abandoned) => ("the instance is abandoned", Upstream::RemoveFinalizer),
        Some(Release::Absent) => ("there was no instance", Upstream::DeleteNode),
        Some(Release::Deleted) | None => ("the instance is gone", Upstream::DeleteNode),
    };
    pass.show(Activity::Deleted(text, next));
    Ok(Transition::Rest(Next::Done))
}

/// The Node that an earlier instance of the Machine left behind, if there is one.
pub(crate) fn stale_node<'a>(pass: &Pass<'a>) -> Option<&'a Node> {
    let snap: &'a Snapshot = pass.snap;
    let node = snap.node.main()?;
    node::is_stale(pass.machine, pass.instance_id(), node, pass.snap.ids.by()).then_some(node)
}

/// Deletes this Node at the end of the pass.
pub(crate) fn delete_node(pass: &mut Pass<'_>, node: &Node) {
    pass.effects.node_patch(node).remove_finalizer |= health::has_finalizer(node);
    let name = node.metadata.name.clone().unwrap_or_default();
    let uid = node.metadata.uid.clone().unwrap_or_default();
    pass.effects.act_last(Action::DeleteNode { name, uid: uid.into() });
}
