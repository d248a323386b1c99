//! Requests to the cloud about groups.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use ostler_driver_sdk::{DeletePoolMachines, DriverError, Identity, PoolIdentity, UpdatePool};

use super::group::{Group, Member, Model};
use super::request::{NotOurs, Refusal, later};
use super::state::{Record, State};
use super::{Cloud, CloudError, Instance, JournalError};
use crate::spec::Resource;

/// The keys for a group, in the order of their use.
#[derive(Debug, Clone, Copy)]
pub struct GroupLookup<'a> {
    /// The group with this id, if it belongs to the pool.
    pub provider_id: Option<&'a str>,
    /// Of this cluster and pool UID.
    pub identity: &'a PoolIdentity,
    /// Ids that the cluster had before.
    pub previous_clusters: &'a [String],
    /// By identity in this region only; `None`: in all.
    pub region: Option<&'a str>,
}

/// A group to make.
#[derive(Debug, Clone)]
pub struct NewGroup {
    /// The identity tags of the pool.
    pub tags: BTreeMap<String, String>,
    /// Name of its class.
    pub class: String,
    /// How many instances a new one is to have.
    pub desired: i32,
    /// The model for new instances.
    pub model: Model,
}

/// A group and its instances at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The group.
    pub group: Group,
    /// All its instances.
    pub members: Vec<Instance>,
}

/// The result of a deletion of instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleted {
    /// The group as it is now.
    pub seen: Seen,
    /// Instances that are not of the group.
    pub not_ours: Vec<NotOurs>,
}

impl GroupLookup<'_> {
    fn is_of_cluster(&self, group: &Group) -> bool {
        let id = &group.identity.cluster_id;
        *id == self.identity.cluster_id || self.previous_clusters.contains(id)
    }

    fn fits(&self, group: &Group) -> bool {
        self.is_of_cluster(group) && group.identity.pool_name == self.identity.pool_name
    }

    fn find(self, state: &State) -> Result<&Group, Refusal> {
        let named = self.provider_id.and_then(|id| state.group(id));
        if let Some(found) = named.filter(|it| self.fits(it)) {
            return Ok(found);
        }
        let uid = &self.identity.pool_uid;
        let own = |it: &&Group| {
            it.identity.pool_uid == *uid
                && self.is_of_cluster(it)
                && self.region.is_none_or(|region| it.model.spec.region == region)
        };
        let found: Vec<_> = state.groups().filter(own).collect();
        let name = self.identity.pool_name.clone();
        match found.as_slice() {
            [one] => Ok(one),
            [] => Err(match named.or_else(|| self.of_life_before(state)) {
                Some(other) => Refusal::Foreign(not_ours(other)),
                None => Refusal::Absent { machine_name: name },
            }),
            several => Err(Refusal::Several { machine_name: name, count: several.len() }),
        }
    }

    /// A group under a previous cluster id: the operator alone knows whether it belongs to this pool.
    fn of_life_before(self, state: &State) -> Option<&Group> {
        let before = |it: &&Group| self.previous_clusters.contains(&it.identity.cluster_id);
        state.groups().filter(before).find(|it| self.fits(it))
    }
}

fn not_ours(group: &Group) -> NotOurs {
    NotOurs {
        provider_id: group.provider_id.clone(),
        cluster_id: group.identity.cluster_id.clone(),
    }
}

type Changed<T> = (Vec<Record>, T);

/// The records for a changed group, its changed instances, and the cloud's own changes that follow.
fn settled(
    state: &State,
    mut group: Group,
    changed: Vec<Instance>,
    now: Timestamp,
) -> Changed<Seen> {
    let number = |it: &Instance| it.member.as_ref().map_or(0, |member| member.number);
    let numbered = |it: &Instance| (number(it), it.clone());
    let mut members: BTreeMap<_, _> = state.members(&group.provider_id).map(numbered).collect();
    members.extend(changed.iter().map(numbered));
    let room = group.room(state);
    let (gone, made) = group.converge(&mut members, room, now);
    let mut records: Vec<_> = changed.into_iter().chain(made).map(created).collect();
    records.extend(gone.into_iter().map(|provider_id| Record::Deleted { provider_id }));
    if state.group(&group.provider_id) != Some(&group) {
        records.push(Record::Grouped { group: Box::new(group.clone()) });
    }
    (records, Seen { group, members: members.into_values().collect() })
}

impl Cloud {
    /// Makes a group, or finds the one that the pool has and gives it the model.
    pub fn create_group(&self, lookup: GroupLookup<'_>, new: NewGroup) -> Result<Seen, CloudError> {
        let now = self.clock().now();
        self.transact(|state| {
            let found = match lookup.find(state) {
                Err(Refusal::Absent { .. }) => None,
                found => Some(found?),
            };
            let identity = lookup.identity.clone();
            let Some(found) = found else {
                let NewGroup { tags, class, desired, model } = new;
                let made = (now, state.revision());
                let group = Group::new(identity, (tags, class), (desired, model), made);
                return Ok(settled(state, group, Vec::new(), now));
            };
            let mut group = Group { model: new.model, class: new.class, ..found.clone() };
            let mut changed = Vec::new();
            if found.identity != identity {
                group = Group { identity, tags: new.tags, ..group };
                changed.extend(state.members(&group.provider_id).map(|it| retagged(it, &group)));
            }
            Ok(settled(state, group, changed, now))
        })
    }

    /// The group of a pool as it is now.
    pub fn read_group(&self, lookup: GroupLookup<'_>) -> Result<Seen, CloudError> {
        let now = self.clock().now();
        self.transact(|state| {
            let group = lookup.find(state)?.clone();
            Ok(settled(state, group, Vec::new(), now))
        })
    }

    /// All groups of these clusters.
    pub fn groups(&self, is_own: impl Fn(&str) -> bool) -> Result<Vec<Seen>, JournalError> {
        self.with(|state| {
            let own = state.groups().filter(|it| is_own(&it.identity.cluster_id));
            let seen = |group: &Group| Seen {
                group: group.clone(),
                members: state.members(&group.provider_id).cloned().collect(),
            };
            own.map(seen).collect()
        })
    }

    /// Changes size and model of a group.
    pub fn update_group(
        &self,
        lookup: GroupLookup<'_>,
        asked: &UpdatePool,
        model: Option<Model>,
    ) -> Result<Result<Seen, DriverError>, CloudError> {
        let now = self.clock().now();
        self.transact(|state| {
            let found = lookup.find(state)?;
            let live = state.members(&found.provider_id).filter(|it| !it.deleting).count();
            let desired = match asked.allow(found.desired, count(live)) {
                Ok(desired) => desired,
                Err(refused) => return Ok((Vec::new(), Err(refused))),
            };
            let model = model.unwrap_or_else(|| found.model.clone());
            let group = Group { desired, model, ..found.clone() };
            let (records, seen) = settled(state, group, Vec::new(), now);
            Ok((records, Ok(seen)))
        })
    }

    /// Stops a group and all its instances; they are left to be removed. `None`: there is no such group.
    pub fn stop_group(&self, lookup: GroupLookup<'_>) -> Result<Option<Group>, CloudError> {
        self.transact(|state| {
            let found = match lookup.find(state) {
                Err(Refusal::Absent { .. }) => return Ok((Vec::new(), None)),
                found => found?,
            };
            let group = Group { desired: 0, ..found.clone() };
            let members = state.members(&found.provider_id).filter(|it| !it.deleting);
            let mut records: Vec<_> =
                members.map(|it| created(it.doomed(Timestamp::MAX))).collect();
            records.push(Record::Grouped { group: Box::new(group.clone()) });
            Ok((records, Some(group)))
        })
    }

    /// Removes a group and its instances for good.
    pub fn remove_group(&self, provider_id: &str) -> Result<(), CloudError> {
        self.transact(|state| {
            let ids = state.members(provider_id).map(|it| it.provider_id.clone());
            let mut records: Vec<_> =
                ids.map(|provider_id| Record::Deleted { provider_id }).collect();
            records.push(Record::Ungrouped { provider_id: provider_id.to_owned() });
            Ok((records, ()))
        })
    }

    /// Deletes named instances of a group, in one change with its size; each is gone after `latency`.
    pub fn delete_members(
        &self,
        lookup: GroupLookup<'_>,
        asked: &DeletePoolMachines,
        latency: Duration,
    ) -> Result<Result<Deleted, DriverError>, CloudError> {
        let now = self.clock().now();
        self.transact(|state| {
            let group = lookup.find(state)?.clone();
            let of_group = |it: &Instance| {
                it.member.as_ref().is_some_and(|member| member.group == group.provider_id)
            };
            let there = |id: &str| state.instance(id).filter(|it| of_group(it) && !it.deleting);
            let plan = match asked.plan(group.desired, |id| there(id).is_some()) {
                Ok(plan) => plan,
                Err(refused) => return Ok((Vec::new(), Err(refused))),
            };
            let goes_at = later(now, latency);
            let doomed = plan.instances.iter().filter_map(|id| there(id));
            let changed = doomed.map(|it| it.doomed(goes_at)).collect();
            let strange = asked.instances.iter().filter_map(|id| state.instance(id));
            let not_ours = strange.filter(|it| !of_group(it)).map(NotOurs::of).collect();
            let (records, seen) =
                settled(state, Group { desired: plan.size, ..group }, changed, now);
            Ok((records, Ok(Deleted { seen, not_ours })))
        })
    }

    /// Sets another size, as an autoscaler of the cloud does: the newest surplus instances go after `notice`.
    pub fn rescale(
        &self,
        provider_id: &str,
        desired: i32,
        notice: Duration,
    ) -> Result<(), CloudError> {
        let now = self.clock().now();
        self.transact(|state| {
            let Some(group) = state.group(provider_id) else { return Ok((Vec::new(), ())) };
            let live: Vec<_> = state.members(provider_id).filter(|it| !it.deleting).collect();
            let kept = usize::try_from(desired).unwrap_or_default();
            let goes_at = later(now, notice);
            let doomed = live.iter().skip(kept).map(|it| it.doomed(goes_at)).collect();
            let (records, _) = settled(state, Group { desired, ..group.clone() }, doomed, now);
            Ok((records, ()))
        })
    }

    /// The group, and one of its instances, unless the instance is on its way out.
    pub fn member(
        &self,
        lookup: GroupLookup<'_>,
        instance: &str,
    ) -> Result<(Group, Instance), CloudError> {
        let found = self.with(|state| {
            let group = lookup.find(state)?;
            let absent = || Refusal::Absent { machine_name: instance.to_owned() };
            let found = state.instance(instance).ok_or_else(absent)?;
            let group_of = |member: &Member| member.group == group.provider_id;
            if !found.member.as_ref().is_some_and(group_of) {
                return Err(Refusal::Foreign(NotOurs::of(found)));
            }
            if found.deleting { Err(absent()) } else { Ok((group.clone(), found.clone())) }
        })?;
        Ok(found?)
    }

    /// Brings one instance to the model of its group: tags and kubelet, or `anew` all of it.
    pub fn bring_member(
        &self,
        lookup: GroupLookup<'_>,
        instance: &str,
        anew: bool,
    ) -> Result<Instance, CloudError> {
        let now = self.clock().now();
        let (group, _) = self.member(lookup, instance)?;
        self.transact(|state| {
            let absent = || Refusal::Absent { machine_name: instance.to_owned() };
            let found = state.instance(instance).ok_or_else(absent)?;
            let mut brought = if anew { found.remade(&group, now) } else { found.clone() };
            let spec = &group.model.spec;
            for resource in Resource::ALL {
                *brought.tags_mut(resource) =
                    found.tags(resource).brought_to(spec.tags.of(resource));
            }
            brought.kubelet = spec.kubelet.clone();
            if let Some(member) = &mut brought.member {
                member.model_hash.clone_from(&group.model.hash);
                member.failed = false;
            }
            Ok((vec![created(brought.clone())], brought))
        })
    }
}

fn created(instance: Instance) -> Record {
    Record::Created { instance: Box::new(instance) }
}

/// With the tags of the group as it is now. The name of its Node stays.
fn retagged(instance: &Instance, group: &Group) -> Instance {
    let mut retagged = instance.clone();
    let cluster_id = group.identity.cluster_id.clone();
    retagged.retag(&Identity { cluster_id, ..instance.identity.clone() }, &group.tags);
    retagged
}

fn count(of: usize) -> i32 {
    i32::try_from(of).unwrap_or(i32::MAX)
}
