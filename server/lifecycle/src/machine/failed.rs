//! Given up. Nothing is done for it any more until somebody deletes it; replacing it is the work of
//! its MachineSet.

use ostler_api::machine::WaitReason;

use super::{
    pass::{Pass, Turn},
    running, token,
};

pub(crate) fn plan(pass: &mut Pass<'_>) -> Turn {
    if let Some(node) = pass.node().filter(|node| node.metadata.deletion_timestamp.is_some()) {
        return running::follow_node(pass, node);
    }
    token::delete(pass);
    let why = pass.status.failure_reason.as_ref().map(ToString::to_string);
    pass.wait(WaitReason::Failed, why, None)
}
