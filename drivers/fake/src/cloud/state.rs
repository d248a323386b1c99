//! The state of the cloud, and the records that change it. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Identity;
use super::McmTags;
use super::group::{Group, Member};
use super::instance::{Instance, TagSet};
use crate::spec::{KubeletSpec, Resource};

/// Call counters that are kept. A rule that counts for each machine needs one counter a machine, so this is a hundred
/// such rules on a thousand machines.
const MOST_COUNTERS: usize = 100_000;
/// Leftovers that are kept; one is enough to be found out.
const MOST_LEFTOVERS: usize = 1000;
/// Changes that are remembered singly. A reader that lags further behind reads all objects.
const MOST_CHANGES: usize = 4096;

/// One change of the state: a line of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Record {
    /// The first line.
    Opened {
        /// Version of the format.
        format: u32,
    },
    /// An instance exists.
    Created {
        /// The instance.
        instance: Box<Instance>,
    },
    /// An instance was adopted.
    Retagged {
        /// The instance.
        provider_id: String,
        /// The machine that the instance belongs to now.
        identity: Identity,
        /// The tags that say so.
        tags: BTreeMap<String, String>,
    },
    /// An instance was initialized.
    Initialized {
        /// The instance.
        provider_id: String,
    },
    /// The tags of one resource changed.
    Tagged {
        /// The instance.
        provider_id: String,
        /// The resource of the instance.
        resource: Resource,
        /// Its tags from now on.
        tags: TagSet,
    },
    /// The kubelet behaves otherwise.
    Behaves {
        /// The instance.
        provider_id: String,
        /// How it behaves from now on.
        kubelet: KubeletSpec,
    },
    /// The kubelet registered its Node.
    Joined {
        /// The instance.
        provider_id: String,
        /// When.
        at: Timestamp,
    },
    /// The instance stopped and goes away.
    Deleting {
        /// The instance.
        provider_id: String,
    },
    /// The instance is gone.
    Deleted {
        /// The instance.
        provider_id: String,
    },
    /// A group is like this from now on.
    Grouped {
        /// The group.
        group: Box<Group>,
    },
    /// A group is gone.
    Ungrouped {
        /// The group.
        provider_id: String,
    },
    /// A resource outlived its instance.
    Left {
        /// What.
        resource: Leftover,
    },
    /// How many changes there were so far, also those that left no trace.
    Changes {
        /// The number.
        total: u64,
    },
    /// A fault rule counted a call.
    Counted {
        /// Name of the counter.
        counter: String,
        /// Its value from now on.
        calls: u64,
    },
}

/// Something that was made with an instance and outlived it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leftover {
    /// Names it.
    pub id: String,
    /// `disk`, `network`.
    pub kind: String,
    /// UID of the machine it was made for.
    pub uid: String,
    /// The cluster of the machine.
    pub cluster_id: String,
}

/// Everything the cloud knows.
#[derive(Debug, Clone, Default)]
pub struct State {
    instances: BTreeMap<String, Instance>,
    by_uid: HashMap<String, BTreeSet<String>>,
    groups: BTreeMap<String, Group>,
    /// Ids of the instances of each group, in the order in which they were made.
    members: HashMap<String, BTreeMap<u64, String>>,
    leftovers: BTreeSet<Leftover>,
    counters: BTreeMap<String, u64>,
    /// Number of changes of instances so far.
    revision: u64,
    /// Provider ids of the latest of them.
    changes: VecDeque<String>,
    /// Number of changes that were ever made, over all rewrites of the journal.
    total: u64,
}

/// The changes since a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changes {
    /// Possibly everything.
    All,
    /// These instances, some perhaps more than once.
    These(Vec<String>),
}

impl State {
    /// An empty state with the next revision, so that readers of this state read all objects.
    pub(super) fn forgotten(&self) -> Self {
        Self { revision: self.revision + 1, ..Self::default() }
    }

    /// Takes a record in. A record about an instance that does not exist changes nothing.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Opened { .. } => {}
            Record::Created { instance } => self.insert(*instance),
            Record::Retagged { provider_id, identity, tags } => {
                if let Some(mut instance) = self.remove(&provider_id) {
                    instance.retag(&identity, &tags);
                    self.insert(instance);
                }
            }
            Record::Initialized { provider_id } => {
                self.change(provider_id, |instance| instance.initialized = true);
            }
            Record::Tagged { provider_id, resource, tags } => {
                self.change(provider_id, |instance| *instance.tags_mut(resource) = tags);
            }
            Record::Behaves { provider_id, kubelet } => {
                self.change(provider_id, |instance| instance.kubelet = kubelet);
            }
            Record::Joined { provider_id, at } => {
                self.change(provider_id, |instance| instance.joined_at = Some(at));
            }
            Record::Deleting { provider_id } => {
                self.change(provider_id, |instance| instance.deleting = true);
            }
            Record::Deleted { provider_id } => {
                self.remove(&provider_id);
                self.changed(provider_id);
            }
            Record::Grouped { group } => {
                self.changed(group.provider_id.clone());
                self.groups.insert(group.provider_id.clone(), *group);
            }
            Record::Ungrouped { provider_id } => {
                self.groups.remove(&provider_id);
                self.changed(provider_id);
            }
            Record::Left { resource } => {
                self.total += 1;
                self.leftovers.insert(resource);
                if self.leftovers.len() > MOST_LEFTOVERS {
                    self.leftovers.pop_first();
                }
            }
            Record::Changes { total } => self.total = total,
            Record::Counted { counter, calls } => {
                self.counters.insert(counter, calls);
                if self.counters.len() > MOST_COUNTERS {
                    self.counters.pop_first();
                }
            }
        }
    }

    /// The records for rebuilding this state.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let instances =
            self.instances.values().map(|i| Record::Created { instance: Box::new(i.clone()) });
        let counters = self
            .counters
            .iter()
            .map(|(counter, calls)| Record::Counted { counter: counter.clone(), calls: *calls });
        let leftovers = self.leftovers.iter().map(|r| Record::Left { resource: r.clone() });
        // Last, since the records before it count as changes when they are replayed.
        let total = std::iter::once(Record::Changes { total: self.total });
        let groups = self.groups.values().map(|it| Record::Grouped { group: Box::new(it.clone()) });
        instances.chain(groups).chain(leftovers).chain(counters).chain(total)
    }

    /// All instances, by provider id.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.instances.values()
    }

    /// The instance of this id.
    pub fn instance(&self, provider_id: &str) -> Option<&Instance> {
        self.instances.get(provider_id)
    }

    /// All groups, by provider id.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    /// The group of this id.
    pub fn group(&self, provider_id: &str) -> Option<&Group> {
        self.groups.get(provider_id)
    }

    /// The instances of a group, in the order in which they were made.
    pub fn members(&self, group: &str) -> impl Iterator<Item = &Instance> {
        let ids = self.members.get(group).into_iter().flat_map(BTreeMap::values);
        ids.filter_map(|id| self.instances.get(id))
    }

    /// All instances of this cluster and machine UID.
    pub fn of_identity(&self, identity: &Identity) -> impl Iterator<Item = &Instance> {
        self.of_uid(&identity.machine_uid)
            .filter(|instance| instance.identity.cluster_id == identity.cluster_id)
    }

    /// All instances of this machine UID, of all clusters.
    pub(super) fn of_uid(&self, uid: &str) -> impl Iterator<Item = &Instance> {
        let ids = self.by_uid.get(uid).into_iter().flatten();
        ids.filter_map(|id| self.instances.get(id))
    }

    /// The instances of a machine of this name that carry no UID and all these tags.
    pub(super) fn of_name(&self, name: &str, tags: &McmTags) -> impl Iterator<Item = &Instance> {
        self.of_uid("").filter(move |it| it.identity.machine_name == name && tags.are_on(it))
    }

    /// The instances of a machine of this name that carry neither a UID nor a cluster id of ours.
    pub(super) fn unclaimed_of_name(&self, name: &str) -> impl Iterator<Item = &Instance> {
        self.of_uid("").filter(move |it| it.identity.machine_name == name && it.is_unclaimed())
    }

    /// Resources of instances that are gone.
    pub fn leftovers(&self) -> impl Iterator<Item = &Leftover> {
        self.leftovers.iter()
    }

    /// Number of changes that were ever made to the cloud.
    pub(crate) fn total_changes(&self) -> u64 {
        self.total
    }

    /// How many calls a fault rule counted.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or_default()
    }

    /// Number of changes of instances so far.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The instances that changed since `revision`.
    pub(crate) fn changes_since(&self, revision: u64) -> Changes {
        let missed = usize::try_from(self.revision.saturating_sub(revision)).unwrap_or(usize::MAX);
        if missed > self.changes.len() {
            return Changes::All;
        }
        Changes::These(self.changes.iter().rev().take(missed).rev().cloned().collect())
    }

    fn insert(&mut self, instance: Instance) {
        let id = instance.provider_id.clone();
        if let Some(Member { group, number, .. }) = &instance.member {
            self.members.entry(group.clone()).or_default().insert(*number, id.clone());
        } else {
            let uid = instance.identity.machine_uid.clone();
            self.by_uid.entry(uid).or_default().insert(id.clone());
        }
        self.instances.insert(id.clone(), instance);
        self.changed(id);
    }

    fn remove(&mut self, provider_id: &str) -> Option<Instance> {
        let instance = self.instances.remove(provider_id)?;
        if let Some(Member { group, number, .. }) = &instance.member
            && let Some(ids) = self.members.get_mut(group)
        {
            ids.remove(number);
            if ids.is_empty() {
                self.members.remove(group);
            }
        }
        if let Some(ids) = self.by_uid.get_mut(&instance.identity.machine_uid) {
            ids.remove(provider_id);
            if ids.is_empty() {
                self.by_uid.remove(&instance.identity.machine_uid);
            }
        }
        Some(instance)
    }

    fn change(&mut self, provider_id: String, change: impl FnOnce(&mut Instance)) {
        if let Some(instance) = self.instances.get_mut(&provider_id) {
            change(instance);
            self.changed(provider_id);
        }
    }

    fn changed(&mut self, provider_id: String) {
        self.revision += 1;
        self.total += 1;
        if self.changes.len() == MOST_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(provider_id);
    }
}
