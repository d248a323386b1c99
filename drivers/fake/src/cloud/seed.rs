//! Instances that belong to no Machine: so many that lists get long.

use jiff::Timestamp;

use super::{Bootstrap, Identity, Instance, TagSet};
use crate::digest::short_digest;
use crate::duration::GoDuration;
use crate::spec::{KubeletSpec, NodeCapacity};

/// A seed instance; equal numbers give equal instances.
pub(super) fn seed(cluster_id: &str, number: usize, now: Timestamp) -> Instance {
    let identity = Identity {
        cluster_id: cluster_id.to_owned(),
        machine_name: format!("seed-{number}"),
        machine_uid: format!("seed-{number}"),
    };
    let tags = TagSet { tags: identity.tags(), ..TagSet::default() };
    let id = short_digest(&format!("{cluster_id}/seed-{number}"));
    Instance {
        provider_id: format!("fake:///seed/i-{id}"),
        identity,
        class: "seed".to_owned(),
        region: "seed".to_owned(),
        image: "none".to_owned(),
        machine_type: String::new(),
        vm: tags.clone(),
        network: tags.clone(),
        disk: tags,
        created_at: now,
        boots_at: now,
        deleting: false,
        initialized: true,
        joined_at: None,
        bootstrap: Bootstrap::default(),
        join_latency: GoDuration::default(),
        kubelet: KubeletSpec::default(),
        node_capacity: NodeCapacity::default(),
        member: None,
    }
}
