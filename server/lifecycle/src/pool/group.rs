//! The driver's report on a group and its instances, and how often it did not name a Machine's instance.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use ostler_api::{
    Machine, ProviderId, SpecDigest,
    driver::OperationKind,
    machine::InstanceState,
    operation::{Failure, PoolInstance, PoolRecord},
};

use super::ending::has_drained;
use crate::retry::{RetryAction, rule};

/// Whether a read shows the absence of the group.
pub fn is_absent(failure: &Failure) -> bool {
    let kind = OperationKind::GetPoolStatus;
    rule(kind, failure.code, &failure.reason, failure.certainty).then == RetryAction::Absent
}

/// An instance of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Its id.
    pub provider_id: ProviderId,
    /// Distinguishes the instance within its group; part of the Machine's name.
    pub id: String,
    /// The name in the infrastructure; may be empty.
    pub name: String,
    /// The name of the future Node; may be empty.
    pub node_name: String,
    /// The infrastructure's state of the instance.
    pub state: InstanceState,
    /// The model of the instance; empty: not known.
    pub model_hash: SpecDigest,
    /// The fault of the instance.
    pub fault: Option<String>,
}

impl From<PoolInstance> for Instance {
    fn from(said: PoolInstance) -> Self {
        Self {
            provider_id: said.instance.provider_id,
            id: said.instance_id,
            name: said.instance_name,
            node_name: said.instance.node_name,
            state: InstanceState::from(said.state.name()),
            model_hash: said.model_hash.into(),
            fault: said.instance.fault.map(|fault| format!("{}: {}", fault.code, fault.text())),
        }
    }
}

impl Instance {
    /// Whether the instance is on its way out, for whatever reason. Such an instance gets no Machine.
    pub const fn is_going(&self) -> bool {
        matches!(self.state, InstanceState::Deleting)
    }
}

/// A read of a whole group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The id of the group.
    pub provider_id: ProviderId,
    /// The cluster id in the group's tags; may be empty.
    pub cluster_id: String,
    /// How many instances it is to have.
    pub desired: usize,
    /// The model for new instances.
    pub model_hash: SpecDigest,
    /// The fault of the group.
    pub fault: Option<String>,
    /// All instances of the group.
    pub instances: Vec<Instance>,
    /// By UID of the Machine: how many reads in a row did not name its instance.
    pub absent: BTreeMap<String, u32>,
    /// When the read was begun.
    pub began: Timestamp,
}

impl Reading {
    /// As a driver said it.
    pub fn new(pool: PoolRecord, instances: Vec<PoolInstance>, began: Timestamp) -> Self {
        Self {
            provider_id: pool.provider_id,
            cluster_id: pool.cluster_id,
            desired: usize::try_from(pool.desired).unwrap_or(0),
            model_hash: pool.model_hash.into(),
            fault: pool.fault.map(|fault| format!("{}: {}", fault.code, fault.text())),
            instances: instances.into_iter().map(Instance::from).collect(),
            absent: BTreeMap::new(),
            began,
        }
    }

    /// Whether it names no instance although there are to be some: a doubt, from which nothing follows.
    pub fn is_doubtful(&self) -> bool {
        self.instances.is_empty() && self.desired > 0
    }

    /// Counts the Machines whose instance it does not name, on from the read before. A read without any instance counts
    /// for nothing, and no Machine without an id counts before its Node is drained.
    #[must_use]
    pub fn counted(mut self, before: &BTreeMap<String, u32>, machines: &[&Machine]) -> Self {
        if self.is_doubtful() {
            self.absent.clone_from(before);
            return self;
        }
        let named: BTreeSet<&ProviderId> =
            self.instances.iter().map(|instance| &instance.provider_id).collect();
        let is_missing = |one: &&&Machine| match one.instance_id() {
            Some(id) => !named.contains(id),
            None => has_drained(one),
        };
        let missing = machines.iter().filter(is_missing);
        let count = |machine: &&Machine| {
            let looks = before.get(machine.uid()).copied().unwrap_or(0).saturating_add(1);
            (machine.uid().to_owned(), looks)
        };
        self.absent = missing.map(count).collect();
        self
    }
}

/// The known state of a pool's group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GroupView {
    /// The group was not read since the last operation.
    #[default]
    Unknown,
    /// The group could not be read.
    Unreadable(Box<Failure>),
    /// The driver said so many times in a row that there is none.
    Absent(u32),
    /// The group as read.
    Known(Arc<Reading>),
}

impl GroupView {
    /// Takes in a complete answer about one instance: from now on the read has the answer, if the read names the
    /// instance.
    pub fn learn(&mut self, told: PoolInstance) {
        let Self::Known(reading) = self else { return };
        let id = &told.instance.provider_id;
        let mut instances = Arc::make_mut(reading).instances.iter_mut();
        if let Some(known) = instances.find(|it| it.provider_id == *id) {
            *known = told.into();
        }
    }

    /// Whether the read names this instance.
    pub fn names(&self, id: &ProviderId) -> bool {
        self.known().is_some_and(|it| it.instances.iter().any(|one| one.provider_id == *id))
    }

    /// The read, if there is one.
    pub fn known(&self) -> Option<&Reading> {
        if let Self::Known(reading) = self { Some(reading) } else { None }
    }
}
