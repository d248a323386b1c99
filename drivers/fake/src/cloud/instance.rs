//! An instance of the cloud.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use ostler_driver_sdk::hot::fixed_changes;
use ostler_driver_sdk::identity::Identity;
use serde::{Deserialize, Serialize};

use super::bootstrap::Bootstrap;
use super::group::Member;
use crate::duration::GoDuration;
use crate::spec::{KubeletSpec, NodeCapacity, ProviderSpec, RESERVED_TAG_PREFIX, Resource};

/// A virtual machine with its network interface and disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// `fake:///<region>/<id>`.
    pub provider_id: String,
    /// The machine that the instance belongs to.
    pub identity: Identity,
    /// Name of the class at its creation.
    pub class: String,
    /// The region. From here on, fields date from the creation, except tags and kubelet, which are current.
    pub region: String,
    /// Image it booted.
    pub image: String,
    /// Size.
    pub machine_type: String,
    /// Tags of the virtual machine.
    pub vm: TagSet,
    /// Tags of the network interface.
    pub network: TagSet,
    /// Tags of the disk.
    pub disk: TagSet,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// From when on it runs.
    pub boots_at: Timestamp,
    /// It is being deleted.
    pub deleting: bool,
    /// InitializeMachine is done, or not needed.
    pub initialized: bool,
    /// When its kubelet registered a Node.
    pub joined_at: Option<Timestamp>,
    /// The kubelet's part of the user data.
    pub bootstrap: Bootstrap,
    /// How long the kubelet waits before it asks to join.
    pub join_latency: GoDuration,
    /// How the kubelet behaves.
    pub kubelet: KubeletSpec,
    /// The capacity that the Node reports.
    pub node_capacity: NodeCapacity,
    /// Set for an instance of a group, which belongs to no machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<Member>,
}

/// The power state of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// It boots.
    Pending,
    /// It runs.
    Running,
    /// It is being deleted.
    Deleting,
}

/// The tags of one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TagSet {
    /// All of them.
    pub tags: BTreeMap<String, String>,
    /// Keys that come from a provider spec. The others are foreign, and are never taken away.
    pub managed: BTreeSet<String>,
}

impl TagSet {
    /// This set with the tags of a provider spec in place of the last ones.
    #[must_use]
    pub(crate) fn brought_to(&self, desired: &BTreeMap<String, String>) -> Self {
        let kept = self.tags.iter().filter(|(key, _)| !self.managed.contains(*key));
        let tags = kept.chain(desired).map(|(key, value)| (key.clone(), value.clone())).collect();
        Self { tags, managed: desired.keys().cloned().collect() }
    }
}

impl Instance {
    /// Gives the instance to another machine, with the identity tags.
    pub(super) fn retag(&mut self, identity: &Identity, tags: &BTreeMap<String, String>) {
        self.identity = identity.clone();
        for resource in Resource::ALL {
            let own = &mut self.tags_mut(resource).tags;
            own.extend(tags.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
    }

    /// Takes the identity off: as machine-controller-manager would have made it.
    pub fn disown(&mut self) {
        self.identity.cluster_id = String::new();
        self.identity.machine_uid = String::new();
        for resource in Resource::ALL {
            let own = &mut self.tags_mut(resource).tags;
            own.retain(|key, _| !key.starts_with(RESERVED_TAG_PREFIX));
        }
    }

    /// Whether neither a cluster nor a machine of ours is in its tags.
    pub(crate) fn is_unclaimed(&self) -> bool {
        self.identity.cluster_id.is_empty() && self.identity.machine_uid.is_empty()
    }

    /// The power state at `now`.
    pub fn power(&self, now: Timestamp) -> Power {
        if self.deleting {
            Power::Deleting
        } else if now < self.boots_at {
            Power::Pending
        } else {
            Power::Running
        }
    }

    /// Whether it was asked for at least `age` ago.
    pub fn is_older(&self, age: Duration, now: Timestamp) -> bool {
        SignedDuration::try_from(age).is_ok_and(|age| now.duration_since(self.created_at) >= age)
    }

    /// The tags of `resource`.
    pub fn tags(&self, resource: Resource) -> &TagSet {
        match resource {
            Resource::Vm => &self.vm,
            Resource::Network => &self.network,
            Resource::Disk => &self.disk,
        }
    }

    pub(super) fn tags_mut(&mut self, resource: Resource) -> &mut TagSet {
        match resource {
            Resource::Vm => &mut self.vm,
            Resource::Network => &mut self.network,
            Resource::Disk => &mut self.disk,
        }
    }

    /// Where `spec` asks for something that this instance can never become.
    pub(crate) fn fixed_paths_differing(&self, spec: &ProviderSpec) -> Vec<String> {
        let own = ProviderSpec {
            region: self.region.clone(),
            image: self.image.clone(),
            machine_type: self.machine_type.clone(),
            node_capacity: self.node_capacity.clone(),
            ..spec.clone()
        };
        // Both were read from JSON, so this never happens; it would be a difference.
        fixed_changes(&own, spec).unwrap_or_else(|error| vec![error.to_string()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn an_update_adds_changes_and_removes_its_own_tags_and_keeps_foreign_ones() {
        let mut set = TagSet::default().brought_to(&map(&[("a", "1"), ("b", "1")]));
        set.tags.insert("foreign".into(), "x".into());
        let set = set.brought_to(&map(&[("b", "2"), ("c", "1")]));
        assert_eq!(set.tags, map(&[("b", "2"), ("c", "1"), ("foreign", "x")]));
    }

    #[test]
    fn a_half_applied_change_that_is_taken_back_leaves_nothing_behind() {
        let first = map(&[("a", "1")]);
        let before = TagSet::default().brought_to(&first);
        let half = before.brought_to(&map(&[("a", "2"), ("new", "x")]));
        assert_eq!(half.brought_to(&first), before);
    }
}
