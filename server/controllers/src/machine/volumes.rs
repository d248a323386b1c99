//! The persistent volumes of a Node that is being drained.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::storage::v1::VolumeAttachment;
use ostler_api::Machine;
use ostler_api::machine::DrainVolume;
use ostler_lifecycle::snapshot::{
    AttachmentView, NodeView, Observed, PodView, VolumeFacts, VolumesView,
};

use crate::stores::{AttachmentIndex, PodIndex};
use crate::target::{Target, TargetOf};
use crate::watch::{Cache, ObjectName};

/// Reads nothing, and keeps no watch, while no pod of the Node has a volume, no volume is attached to the Node and
/// none is followed.
pub(super) fn volumes_of(
    machine: &Machine,
    target: &TargetOf,
    node: &NodeView,
    pods: &Observed<Vec<PodView>>,
    attached: &Observed<Vec<String>>,
) -> Observed<VolumesView> {
    let (false, TargetOf::Cluster(target)) = (node.all().is_empty(), target) else {
        return Observed::Unknown;
    };
    if !machine.is_drained() {
        return Observed::Unknown;
    }
    let claims = pods.known().into_iter().flatten().flat_map(|pod| &pod.claims);
    let drain = machine.status.as_ref().and_then(|status| status.drain.as_ref());
    let followed = drain.map(|drain| drain.volumes.as_slice()).unwrap_or_default();
    let claims: BTreeSet<&str> = claims
        .map(String::as_str)
        .chain(followed.iter().map(|volume| volume.claim.as_str()))
        .collect();
    if claims.is_empty() && attached.known().is_none_or(Vec::is_empty) {
        return Observed::Known(VolumesView::default());
    }
    // Start all three watches before waiting for any.
    let observed = (target.claims.get(), target.volumes.get(), target.attachments.get());
    let (Some(_), Some(_), Some(attachments)) = observed else { return Observed::Unknown };
    let nodes: Vec<&str> =
        node.all().into_iter().filter_map(|node| node.metadata.name.as_deref()).collect();
    let found = nodes.iter().flat_map(|node| attachments.find(AttachmentIndex::Node, node));
    Observed::Known(VolumesView {
        claims: behind(target, &claims),
        attachments: found.map(|one| view(&one)).collect(),
        moving: followed
            .iter()
            .filter(|volume| is_moving(target, volume, &nodes, attachments))
            .map(|volume| volume.name.clone())
            .collect(),
    })
}

fn behind(target: &Target, claims: &BTreeSet<&str>) -> BTreeMap<String, VolumeFacts> {
    let volume_of = |claim: &&str| {
        let (namespace, name) = claim.split_once('/')?;
        let bound = target.claims.get()?.get(&ObjectName::new(namespace, name))?;
        let volume = bound.spec.as_ref()?.volume_name.clone()?;
        let volume = target.volumes.get()?.get(&ObjectName::cluster(volume))?;
        Some(((*claim).to_owned(), VolumeFacts::of(&volume)))
    };
    claims.iter().filter_map(volume_of).collect()
}

/// Whether a pod waits elsewhere for a volume that is not attached there.
fn is_moving(
    target: &Target,
    volume: &DrainVolume,
    nodes: &[&str],
    attachments: &Cache<AttachmentIndex>,
) -> bool {
    let wanted = target.pods.find(PodIndex::Claim, &volume.claim).iter().any(|pod| {
        let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let view = PodView::of(pod, None);
        on.is_none_or(|on| !nodes.contains(&on)) && !view.finished && !view.terminating
    });
    wanted
        && !attachments.find(AttachmentIndex::Volume, &volume.name).iter().any(|one| {
            !nodes.contains(&one.spec.node_name.as_str())
                && one.status.as_ref().is_some_and(|it| it.attached)
        })
}

fn view(attachment: &VolumeAttachment) -> AttachmentView {
    let meta = &attachment.metadata;
    AttachmentView {
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default().into(),
        volume: attachment.spec.source.persistent_volume_name.clone(),
        deleting: meta.deletion_timestamp.is_some(),
    }
}
