//! Work of the cloud that brings a group to its size. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use ostler_driver_sdk::{Identity, PoolIdentity};

use super::group::{Group, Member, Model};
use super::request::later;
use super::state::State;
use super::{Instance, TagSet};
use crate::digest::short_digest;
use crate::spec::{Join, KubeletSpec, Resource};

/// Longer names of pools are shortened in the names of their Nodes.
const NAME_BYTES: usize = 40;

impl Group {
    /// A group without instances.
    pub(super) fn new(
        identity: PoolIdentity,
        (tags, class): (BTreeMap<String, String>, String),
        (desired, model): (i32, Model),
        (now, revision): (Timestamp, u64),
    ) -> Self {
        let text = format!("{}/{}/{now}/{revision}", identity.cluster_id, identity.pool_uid);
        let provider_id = format!("fake:///{}/g-{}", model.spec.region, short_digest(&text));
        let created_at = now;
        Self { provider_id, identity, tags, class, desired, model, next: 0, created_at }
    }

    /// Brings the group to its size at `now`: instances whose deletion is over are gone, spot instances are lost, and new
    /// instances are made as long as there is room. Returns the ids of lost instances, and the new instances.
    pub(super) fn converge(
        &mut self,
        members: &mut BTreeMap<u64, Instance>,
        room: i64,
        now: Timestamp,
    ) -> (Vec<String>, Vec<Instance>) {
        let over = |it: &Instance| it.goes_at().is_some_and(|at| at <= now);
        let gone: Vec<_> = members.extract_if(.., |_, it| over(it)).collect();
        let mut used = BTreeMap::<String, usize>::new();
        for member in members.values().filter(|it| !it.deleting) {
            *used.entry(member.zone().to_owned()).or_default() += 1;
        }
        let live: usize = used.values().sum();
        let wanted = usize::try_from(self.desired).unwrap_or_default();
        let room = room.saturating_add(i64::try_from(gone.len()).unwrap_or_default());
        let missing = wanted.saturating_sub(live).min(usize::try_from(room).unwrap_or_default());
        let mut made = Vec::with_capacity(missing);
        for _ in 0..missing {
            let zone = self.zone(&used);
            *used.entry(zone.clone()).or_default() += 1;
            made.push(self.make(zone, now));
            self.next += 1;
        }
        members.extend(
            (self.next - u64::try_from(made.len()).unwrap_or_default()..).zip(made.iter().cloned()),
        );
        (gone.into_iter().map(|(_, it)| it.provider_id).collect(), made)
    }

    /// How many more instances the region takes; less than none where it has more than its limit of today.
    pub(super) fn room(&self, state: &State) -> i64 {
        let spec = &self.model.spec;
        let Some(limit) = spec.capacity.max_instances else { return i64::MAX };
        let there = state.instances().filter(|it| it.region == spec.region).count();
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        number(limit).saturating_sub(number(there))
    }

    /// The zone with the fewest instances; the first of equals.
    fn zone(&self, used: &BTreeMap<String, usize>) -> String {
        let Model { zones, spec, .. } = &self.model;
        let zones = if zones.is_empty() { &spec.groups.zones } else { zones };
        let count = |zone: &&String| used.get(*zone).copied().unwrap_or_default();
        zones.iter().min_by_key(count).cloned().unwrap_or_default()
    }

    /// The next instance.
    fn make(&self, zone: String, now: Timestamp) -> Instance {
        let Model { spec, hash, bootstrap, .. } = &self.model;
        let number = self.next;
        let each =
            |every: Option<u64>| every.is_some_and(|n| n > 0 && (number + 1).is_multiple_of(n));
        let failed = each(spec.groups.fail_every);
        let mut until_running = spec.latency.create.0.saturating_add(spec.latency.boot.0);
        if each(spec.groups.slow_every) {
            until_running = until_running.saturating_add(spec.groups.slow_boot.0);
        }
        let boots_at = later(now, until_running);
        let goes_at = spec.groups.spot_lifetime.map(|life| later(boots_at, life.0));
        let tags = |resource| {
            let identity = TagSet { tags: self.tags.clone(), ..TagSet::default() };
            identity.brought_to(spec.tags.of(resource))
        };
        let join = if failed { Join::Never } else { spec.kubelet.join };
        let id = short_digest(&format!("{}/{number}", self.provider_id));
        Instance {
            provider_id: format!("fake:///{}/i-{id}", spec.region),
            identity: self.instance_identity(number),
            class: self.class.clone(),
            region: spec.region.clone(),
            image: spec.image.clone(),
            machine_type: spec.machine_type.clone(),
            vm: tags(Resource::Vm),
            network: tags(Resource::Network),
            disk: tags(Resource::Disk),
            created_at: now,
            boots_at,
            deleting: false,
            initialized: true,
            joined_at: None,
            bootstrap: bootstrap.clone(),
            join_latency: spec.latency.join,
            kubelet: KubeletSpec { join, ..spec.kubelet.clone() },
            node_capacity: spec.node_capacity.clone(),
            member: Some(Member {
                group: self.provider_id.clone(),
                number,
                model_hash: hash.clone(),
                zone,
                failed,
                goes_at,
            }),
        }
    }

    /// Of no machine; the name is that of its Node.
    pub(super) fn instance_identity(&self, number: u64) -> Identity {
        let PoolIdentity { cluster_id, pool_name, pool_uid } = &self.identity;
        let name = if pool_name.len() <= NAME_BYTES {
            pool_name.clone()
        } else {
            format!("{pool_name:.NAME_BYTES$}-{:.8}", short_digest(pool_uid))
        };
        Identity {
            cluster_id: cluster_id.clone(),
            machine_name: format!("{name}-{number}"),
            machine_uid: String::new(),
        }
    }
}

impl Instance {
    /// When the instance goes away by itself.
    fn goes_at(&self) -> Option<Timestamp> {
        self.member.as_ref()?.goes_at
    }

    /// Where it is; empty: the cloud does not say.
    pub(crate) fn zone(&self) -> &str {
        self.member.as_ref().map_or("", |member| member.zone.as_str())
    }

    /// Begins to be deleted.
    pub(super) fn doomed(&self, goes_at: Timestamp) -> Self {
        let mut doomed = Self { deleting: true, ..self.clone() };
        if let Some(member) = &mut doomed.member {
            member.goes_at = Some(goes_at);
        }
        doomed
    }

    /// Made anew from the model of its group, in place.
    pub(super) fn remade(&self, group: &Group, now: Timestamp) -> Self {
        let fresh = group.make(self.zone().to_owned(), now);
        let mut remade = Self {
            provider_id: self.provider_id.clone(),
            identity: self.identity.clone(),
            ..fresh
        };
        if let (Some(member), Some(before)) = (&mut remade.member, &self.member) {
            *member = Member { number: before.number, ..member.clone() };
        }
        remade
    }
}
