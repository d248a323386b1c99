//! Requests to the cloud, and its refusals.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::seed::seed;
use super::state::{Leftover, Record, State};
use super::{Bootstrap, Cloud, CloudError, Identity, Instance, JournalError, McmTags, TagSet};
use crate::digest::short_digest;
use crate::spec::{KubeletSpec, ProviderSpec, Resource};

/// An instance to make.
#[derive(Debug, Clone)]
pub struct NewInstance {
    /// The machine that gets the instance.
    pub identity: Identity,
    /// Name of its class.
    pub class: String,
    /// Made from this.
    pub spec: ProviderSpec,
    /// Tags that carry the identity; all three resources get them, and no update takes them away.
    pub identity_tags: BTreeMap<String, String>,
    /// The kubelet's part of the user data.
    pub bootstrap: Bootstrap,
    /// An instance that the machine is said to have had: adopted if it fits.
    pub previous: Option<String>,
    /// Adopt an instance of the machine's name that has no UID and these tags.
    pub by_name: Option<McmTags>,
    /// Previous ids of the cluster, which its instances may still carry.
    pub previous_clusters: Vec<String>,
}

/// The keys for an instance, in the order of their use.
#[derive(Debug, Clone, Copy)]
pub struct Lookup<'a> {
    /// The instance with this id, if it belongs to the machine.
    pub provider_id: Option<&'a str>,
    /// Of this cluster and machine UID.
    pub identity: &'a Identity,
    /// Of the machine's name, without UID and with these tags.
    pub by_name: Option<&'a McmTags>,
    /// Previous ids of the cluster: an instance with one of them belongs to this cluster.
    pub previous_clusters: &'a [String],
    /// By identity or name in this region only; `None`: in all.
    pub region: Option<&'a str>,
}

impl<'a> Lookup<'a> {
    /// By identity alone, of a cluster that always had its id.
    pub fn of(identity: &'a Identity) -> Self {
        Self { provider_id: None, identity, by_name: None, previous_clusters: &[], region: None }
    }

    /// First by `provider_id`, if set.
    #[must_use]
    pub fn known(self, provider_id: Option<&'a str>) -> Self {
        Self { provider_id, ..self }
    }

    fn is_in_region(&self, instance: &Instance) -> bool {
        self.region.is_none_or(|region| instance.region == region)
    }

    /// Whether an instance has an id that the cluster had before.
    fn is_previous(&self, instance: &Instance) -> bool {
        self.previous_clusters.contains(&instance.identity.cluster_id)
    }

    /// Whether an instance is of the cluster. One without a cluster id is of none.
    fn is_of_cluster(&self, instance: &Instance) -> bool {
        let tag = &instance.identity.cluster_id;
        !tag.is_empty() && (*tag == self.identity.cluster_id || self.is_previous(instance))
    }

    /// Whether an instance that was found by its id belongs to the machine. The UID may differ: a restored machine has
    /// a new UID.
    fn fits(&self, instance: &Instance) -> bool {
        self.is_of_cluster(instance)
            && instance.member.is_none()
            && instance.identity.machine_name == self.identity.machine_name
    }
}

/// An instance that is there, was meant, and is not the machine's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotOurs {
    /// Which one.
    pub provider_id: String,
    /// The cluster id in its tags; empty if it has none.
    pub cluster_id: String,
}

impl NotOurs {
    pub(super) fn of(instance: &Instance) -> Self {
        Self {
            provider_id: instance.provider_id.clone(),
            cluster_id: instance.identity.cluster_id.clone(),
        }
    }
}

/// The result of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// Stopped, and left to be removed.
    pub doomed: Vec<String>,
    /// An instance that is there, was meant, and is not the machine's.
    pub not_ours: Option<NotOurs>,
}

/// Why the cloud did not do what it was asked. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such instance.
    #[error("there is no instance for machine {machine_name}")]
    Absent {
        /// The machine.
        machine_name: String,
    },
    /// The identity is carried by more than one instance.
    #[error(
        "{count} instances carry the identity of machine {machine_name}: delete the wrong ones"
    )]
    Several {
        /// The machine.
        machine_name: String,
        /// How many there are.
        count: usize,
    },
    /// There is an instance, and it belongs to another machine or cluster, or to none.
    #[error("instance {} has other tags than this machine's", .0.provider_id)]
    Foreign(NotOurs),
    /// The machine has an instance that its class cannot be applied to.
    #[error("instance {provider_id} exists and differs in {}", paths.join(", "))]
    Incompatible {
        /// The instance.
        provider_id: String,
        /// Where it differs from the provider spec.
        paths: Vec<String>,
    },
    /// The instance is being deleted.
    #[error("instance {provider_id} is being deleted")]
    BeingDeleted {
        /// The instance.
        provider_id: String,
    },
    /// There is no room.
    #[error("region {region} is full: {limit} instances are allowed")]
    Full {
        /// The region.
        region: String,
        /// How many instances it may hold.
        limit: usize,
        /// When to try again.
        retry_after: Option<Duration>,
    },
}

impl Cloud {
    /// Makes an instance, or returns the one that the machine has.
    pub fn create(&self, new: &NewInstance) -> Result<Instance, CloudError> {
        let now = self.clock().now();
        self.transact(|state| {
            if let Some(found) = existing(state, new)? {
                return Ok(adopted(found, new));
            }
            check_room(state, &new.spec)?;
            let instance = build(new, now, state.revision());
            Ok((vec![Record::Created { instance: Box::new(instance.clone()) }], instance))
        })
    }

    /// The instance of a machine: of that id if it belongs to the machine, else by identity.
    pub fn find(
        &self,
        identity: &Identity,
        provider_id: Option<&str>,
    ) -> Result<Instance, CloudError> {
        self.look_up(Lookup::of(identity).known(provider_id))
    }

    /// The instance of a machine.
    pub fn look_up(&self, lookup: Lookup<'_>) -> Result<Instance, CloudError> {
        Ok(self.with(|state| find(state, lookup).cloned())??)
    }

    /// All instances of own clusters, and instances without an owner that carry all of `untagged`.
    pub fn of_clusters(
        &self,
        is_own: impl Fn(&str) -> bool,
        untagged: Option<&McmTags>,
    ) -> Result<Vec<Instance>, JournalError> {
        let listed = |it: &&Instance| {
            let unclaimed = || it.is_unclaimed() && untagged.is_some_and(|tags| tags.are_on(it));
            it.member.is_none() && (is_own(&it.identity.cluster_id) || unclaimed())
        };
        self.with(|state| state.instances().filter(listed).cloned().collect())
    }

    /// Marks the instance of a machine as initialized.
    pub fn initialize(&self, lookup: Lookup<'_>) -> Result<Instance, CloudError> {
        self.transact(|state| {
            let mut found = find(state, lookup)?.clone();
            let record = Record::Initialized { provider_id: found.provider_id.clone() };
            let records = if found.initialized { Vec::new() } else { vec![record] };
            found.initialized = true;
            Ok((records, found))
        })
    }

    /// Brings the tags of one resource to what a spec says; whether that changed anything.
    pub fn bring_tags(
        &self,
        provider_id: &str,
        resource: Resource,
        desired: &BTreeMap<String, String>,
    ) -> Result<bool, CloudError> {
        self.transact(|state| {
            let found = by_id(state, provider_id)?;
            let tags = found.tags(resource).brought_to(desired);
            if tags == *found.tags(resource) {
                return Ok((Vec::new(), false));
            }
            let provider_id = provider_id.to_owned();
            Ok((vec![Record::Tagged { provider_id, resource, tags }], true))
        })
    }

    /// Sets a tag as a program of the user would; no update may remove it.
    pub fn tag_as_stranger(
        &self,
        provider_id: &str,
        resource: Resource,
        (key, value): (&str, &str),
    ) -> Result<(), CloudError> {
        self.transact(|state| {
            let mut tags = by_id(state, provider_id)?.tags(resource).clone();
            tags.tags.insert(key.to_owned(), value.to_owned());
            let provider_id = provider_id.to_owned();
            Ok((vec![Record::Tagged { provider_id, resource, tags }], ()))
        })
    }

    /// Makes the kubelet behave so; whether that changed anything.
    pub fn behave(&self, provider_id: &str, kubelet: &KubeletSpec) -> Result<bool, CloudError> {
        self.transact(|state| {
            if by_id(state, provider_id)?.kubelet == *kubelet {
                return Ok((Vec::new(), false));
            }
            let (provider_id, kubelet) = (provider_id.to_owned(), kubelet.clone());
            Ok((vec![Record::Behaves { provider_id, kubelet }], true))
        })
    }

    /// Notes that the kubelet registered its Node; returns the time.
    pub fn joined(&self, provider_id: &str) -> Result<Timestamp, CloudError> {
        let at = self.clock().now();
        self.transact(|state| {
            by_id(state, provider_id)?;
            Ok((vec![Record::Joined { provider_id: provider_id.to_owned(), at }], at))
        })
    }

    /// Stops all instances of a machine; those that are left to be removed.
    pub fn begin_delete(
        &self,
        identity: &Identity,
        provider_id: Option<&str>,
    ) -> Result<Vec<String>, CloudError> {
        Ok(self.stop(Lookup::of(identity).known(provider_id))?.doomed)
    }

    /// As [`begin_delete`](Self::begin_delete), for whatever is found so.
    pub fn stop(&self, lookup: Lookup<'_>) -> Result<Stopped, CloudError> {
        self.transact(|state| {
            let doomed = owned(state, lookup);
            let not_ours = not_ours(state, lookup).map(NotOurs::of);
            let records = doomed
                .iter()
                .filter(|instance| !instance.deleting)
                .map(|i| Record::Deleting { provider_id: i.provider_id.clone() })
                .collect();
            let doomed = doomed.iter().map(|i| i.provider_id.clone()).collect();
            Ok((records, Stopped { doomed, not_ours }))
        })
    }

    /// Removes instances for good. To tests it is also the hand that pulls the plug.
    pub fn remove(&self, provider_ids: &[String]) -> Result<(), CloudError> {
        self.transact(|state| {
            let records = provider_ids
                .iter()
                .filter(|id| state.instance(id).is_some())
                .map(|id| Record::Deleted { provider_id: id.clone() })
                .collect();
            Ok((records, ()))
        })
    }

    /// Puts instances into the cloud as they are, each in place of one of the same id. For tests
    /// and for what only a defect does.
    pub fn plant(&self, instances: Vec<Instance>) -> Result<(), CloudError> {
        let created = |instance| Record::Created { instance: Box::new(instance) };
        self.transact(|_| Ok((instances.into_iter().map(created).collect(), ())))
    }

    /// Brings the number of a cluster's instances that belong to no machine to `count` at least, in one change.
    pub fn seed(&self, cluster_id: &str, count: usize) -> Result<(), CloudError> {
        let now = self.clock().now();
        self.transact(|state| {
            let seeds = (0..count).map(|number| seed(cluster_id, number, now));
            let missing = seeds.filter(|seed| state.instance(&seed.provider_id).is_none());
            let records = missing.map(|seed| Record::Created { instance: Box::new(seed) });
            Ok((records.collect(), ()))
        })
    }

    /// Notes leftovers of deleted instances, as only a defect leaves them.
    pub fn leave_behind(&self, resources: Vec<Leftover>) -> Result<(), CloudError> {
        let left = |resource| Record::Left { resource };
        self.transact(|_| Ok((resources.into_iter().map(left).collect(), ())))
    }

    /// Increments a counter and returns the new value.
    pub fn count(&self, counter: &str) -> Result<u64, CloudError> {
        self.transact(|state| {
            let calls = state.counter(counter) + 1;
            Ok((vec![Record::Counted { counter: counter.to_owned(), calls }], calls))
        })
    }
}

/// The instance that a machine to be created has already.
fn existing(state: &State, new: &NewInstance) -> Result<Option<Instance>, Refusal> {
    let lookup = Lookup {
        provider_id: new.previous.as_deref(),
        identity: &new.identity,
        by_name: new.by_name.as_ref(),
        previous_clusters: &new.previous_clusters,
        region: Some(&new.spec.region),
    };
    let named = lookup.provider_id.and_then(|id| state.instance(id));
    let found = match find(state, lookup) {
        Err(Refusal::Absent { .. }) => None,
        found => Some(found?),
    };
    if let Some(named) = named.filter(|named| !lookup.fits(named))
        && found.is_none_or(|found| found.provider_id != named.provider_id)
    {
        return Err(Refusal::Foreign(NotOurs::of(named)));
    }
    let Some(found) = found else { return Ok(None) };
    let provider_id = found.provider_id.clone();
    if found.deleting {
        return Err(Refusal::BeingDeleted { provider_id });
    }
    // An adopted machine may be older than its class: its spec is a matter for an update.
    let ours = found.identity == new.identity && named.is_none();
    let paths = found.fixed_paths_differing(&new.spec);
    if ours && !paths.is_empty() {
        return Err(Refusal::Incompatible { provider_id, paths });
    }
    Ok(Some(found.clone()))
}

fn find<'a>(state: &'a State, lookup: Lookup<'_>) -> Result<&'a Instance, Refusal> {
    let identity = lookup.identity;
    let by_id = lookup.provider_id.and_then(|id| state.instance(id));
    if let Some(found) = by_id.filter(|found| lookup.fits(found)) {
        return Ok(found);
    }
    let machine_name = identity.machine_name.clone();
    let by_uid = of_uid(state, lookup);
    let found = if by_uid.is_empty() { named(state, lookup) } else { by_uid };
    match found.as_slice() {
        [] => Err(match not_ours(state, lookup) {
            Some(foreign) => Refusal::Foreign(NotOurs::of(foreign)),
            None => Refusal::Absent { machine_name },
        }),
        [instance] => Ok(instance),
        several => Err(Refusal::Several { machine_name, count: several.len() }),
    }
}

/// Instances of the cluster, under any of its ids, with the machine's UID. An empty UID matches no instance: otherwise
/// every instance without a UID would belong to the machine.
fn of_uid<'a>(state: &'a State, lookup: Lookup<'_>) -> Vec<&'a Instance> {
    let uid = &lookup.identity.machine_uid;
    if uid.is_empty() {
        return Vec::new();
    }
    state.of_uid(uid).filter(|it| lookup.is_of_cluster(it) && lookup.is_in_region(it)).collect()
}

/// An instance that is there, may be meant, and is not the machine's: that of the id, or else one of
/// the machine's name that no cluster of ours has tagged, or that has another UID and an id that the
/// cluster had before.
fn not_ours<'a>(state: &'a State, lookup: Lookup<'_>) -> Option<&'a Instance> {
    let Lookup { provider_id, identity, .. } = lookup;
    let claimed = named(state, lookup);
    let Some(id) = provider_id else {
        let unclaimed =
            state.unclaimed_of_name(&identity.machine_name).find(|it| !claimed.contains(it));
        return unclaimed.or_else(|| of_life_before(state, lookup));
    };
    state.instance(id).filter(|found| !lookup.fits(found) && !claimed.contains(found))
}

/// An instance under a previous cluster id: the operator alone knows whether it belongs to this machine or to another
/// of the same name.
fn of_life_before<'a>(state: &'a State, lookup: Lookup<'_>) -> Option<&'a Instance> {
    if lookup.previous_clusters.is_empty() {
        return None;
    }
    let Identity { machine_name, machine_uid, .. } = lookup.identity;
    state.instances().filter(|it| it.member.is_none() && lookup.is_previous(it)).find(|it| {
        it.identity.machine_name == *machine_name && it.identity.machine_uid != *machine_uid
    })
}

/// Instances that machine-controller-manager made for the machine.
fn named<'a>(state: &'a State, lookup: Lookup<'_>) -> Vec<&'a Instance> {
    let Some(tags) = lookup.by_name else { return Vec::new() };
    // One with the id of another cluster is that one's, and never found by its name.
    let Identity { cluster_id, machine_name, .. } = lookup.identity;
    let free = |it: &&Instance| it.is_unclaimed() || it.identity.cluster_id == *cluster_id;
    state.of_name(machine_name, tags).filter(free).filter(|it| lookup.is_in_region(it)).collect()
}

/// Everything that is the machine's and so must go with it.
fn owned<'a>(state: &'a State, lookup: Lookup<'_>) -> Vec<&'a Instance> {
    let mut owned = of_uid(state, lookup);
    owned.extend(named(state, lookup));
    let by_id = lookup.provider_id.and_then(|id| state.instance(id)).filter(|it| lookup.fits(it));
    let known = |found: &&Instance| owned.iter().any(|it| it.provider_id == found.provider_id);
    let by_id = by_id.filter(|found| !known(found));
    owned.extend(by_id);
    owned
}

fn by_id<'a>(state: &'a State, provider_id: &str) -> Result<&'a Instance, Refusal> {
    let absent = || Refusal::Absent { machine_name: provider_id.to_owned() };
    state.instance(provider_id).ok_or_else(absent)
}

/// An instance that is there, with the identity of the machine on it.
fn adopted(mut found: Instance, new: &NewInstance) -> (Vec<Record>, Instance) {
    if found.identity == new.identity {
        return (Vec::new(), found);
    }
    found.retag(&new.identity, &new.identity_tags);
    let record = Record::Retagged {
        provider_id: found.provider_id.clone(),
        identity: new.identity.clone(),
        tags: new.identity_tags.clone(),
    };
    (vec![record], found)
}

fn check_room(state: &State, spec: &ProviderSpec) -> Result<(), Refusal> {
    let Some(limit) = spec.capacity.max_instances else {
        return Ok(());
    };
    if state.instances().filter(|i| i.region == spec.region).count() < limit {
        return Ok(());
    }
    let retry_after = spec.capacity.retry_after.map(|delay| delay.0);
    Err(Refusal::Full { region: spec.region.clone(), limit, retry_after })
}

fn build(new: &NewInstance, now: Timestamp, revision: u64) -> Instance {
    let spec = &new.spec;
    let tags = |resource| {
        let identity = TagSet { tags: new.identity_tags.clone(), ..TagSet::default() };
        identity.brought_to(spec.tags.of(resource))
    };
    let until_running = spec.latency.create.0.saturating_add(spec.latency.boot.0);
    Instance {
        provider_id: provider_id(&spec.region, &new.identity, (now, revision)),
        identity: new.identity.clone(),
        class: new.class.clone(),
        region: spec.region.clone(),
        image: spec.image.clone(),
        machine_type: spec.machine_type.clone(),
        vm: tags(Resource::Vm),
        network: tags(Resource::Network),
        disk: tags(Resource::Disk),
        created_at: now,
        boots_at: later(now, until_running),
        deleting: false,
        initialized: !spec.initialize,
        joined_at: None,
        bootstrap: new.bootstrap.clone(),
        join_latency: spec.latency.join,
        kubelet: spec.kubelet.clone(),
        node_capacity: spec.node_capacity.clone(),
        member: None,
    }
}

pub(super) fn later(now: Timestamp, delay: Duration) -> Timestamp {
    let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
    now.checked_add(delay).unwrap_or(Timestamp::MAX)
}

/// Unique without chance: two changes of one cloud differ in time or revision, two clouds in the
/// machines.
fn provider_id(region: &str, identity: &Identity, (now, revision): (Timestamp, u64)) -> String {
    let text = format!("{}/{}/{now}/{revision}", identity.cluster_id, identity.machine_uid);
    format!("fake:///{region}/i-{}", short_digest(&text))
}
