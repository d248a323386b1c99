//! The instance of the Machine's own provider id carries a cluster id that this core does not know:
//! the cluster moved, or was restored, and no operator told the core. The status says so, and the
//! core makes nothing.

use super::pass::Pass;
use crate::operation::{Failure, Reason};

/// The failure with a message about the changed cluster id; `None`: another failure. An instance
/// with only the name of the Machine is never called its own.
pub(crate) fn changed(pass: &Pass<'_>, failure: &Failure) -> Option<Failure> {
    let (cluster, stranger) = (&pass.snap.cluster, failure.stranger.as_ref()?);
    let (id, theirs) = (pass.provider_id()?, stranger.cluster_id.as_str());
    let named = stranger.provider_id.is_empty() || stranger.provider_id == *id;
    if !failure.is_not_ours() || !named || theirs.is_empty() || cluster.has(theirs) {
        return None;
    }
    let message = format!(
        "instance {id} carries cluster id {theirs}, and the one of this core is {}: if the cluster had that id before, \
         stop its old core, and start this one with --previous-cluster-ids {theirs}",
        cluster.own
    );
    let reason = Reason::CoreClusterIdChanged.into();
    Some(Failure { reason, message, ..failure.clone() })
}

/// The instance carries the identity of this Machine.
pub(crate) fn record_own(pass: &mut Pass<'_>) {
    pass.status.instance_uid = Some(pass.machine.uid().into());
    pass.status.instance_cluster_id = Some(pass.snap.cluster.own.clone());
}

/// Records the cluster id on the instance, if the driver named it.
pub(crate) fn record_stranger(pass: &mut Pass<'_>, failure: &Failure) {
    pass.status.instance_cluster_id = failure.stranger.as_ref().map(|it| it.cluster_id.clone());
}

/// The driver was asked, and did not say which cluster id the instance carries.
pub(crate) fn record_unknown(pass: &mut Pass<'_>) {
    pass.status.instance_cluster_id.get_or_insert_default();
}
