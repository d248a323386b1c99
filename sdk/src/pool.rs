//! Groups: requests and answers of a driver whose infrastructure has scaling groups.

mod rules;

use std::collections::BTreeMap;
use std::time::SystemTime;

use ostler_proto::v1alpha1 as proto;

use crate::context::Context;
use crate::error::DriverError;
use crate::instance::Instance;
use crate::request::UserData;

/// How far an instance of a group is.
pub use ostler_proto::v1alpha1::PoolMachineState as PoolState;
pub use rules::PoolDeletion;

/// The model of a group's instances, beside the class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolModel {
    /// Names all of it: keep it with the group, and with each instance that the group makes.
    pub hash: String,
    /// User data of instances that are made from now on. It may change while the hash stays.
    pub user_data: UserData,
    /// The format of the user data, e.g. `cloud-init`; may be empty.
    pub user_data_format: String,
    /// Where instances may be made; empty: where the class says.
    pub zones: Vec<String>,
}

/// Make the group of a pool, or find it.
#[derive(Debug, Clone)]
pub struct CreatePool {
    /// The operation. Its target is the pool.
    pub ctx: Context,
    /// How many instances a new group is to have. A found group keeps its size.
    pub desired: i32,
    /// The model for the instances of the group.
    pub model: PoolModel,
    /// Set these tags in the very call that makes the group, and on each instance of the group.
    pub tags: BTreeMap<String, String>,
    /// The pool was here before: look the group up by this id first, and adopt it.
    pub provider_id: Option<String>,
}

/// A size to reach, and the one that the core saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSize {
    /// The size that the core saw.
    pub expected: i32,
    /// What it wants.
    pub wanted: i32,
}

/// Change the size of a group, or what it makes instances from.
#[derive(Debug, Clone)]
pub struct UpdatePool {
    /// The operation. The target is the pool, and the class is the class of the model.
    pub ctx: Context,
    /// Id of the group.
    pub provider_id: String,
    /// `None`: as many as now. [`UpdatePool::allow`] says whether it may be done.
    pub size: Option<PoolSize>,
    /// `None`: as it is. Existing instances keep their model.
    pub model: Option<PoolModel>,
}

/// Delete a group with its instances.
#[derive(Debug, Clone)]
pub struct DeletePool {
    /// The operation. Its target is the pool.
    pub ctx: Context,
    /// Id of the group. `None`: find it by identity.
    pub provider_id: Option<String>,
}

/// Read a group.
#[derive(Debug, Clone)]
pub struct GetPoolStatus {
    /// The operation. Its target is the pool.
    pub ctx: Context,
    /// Id of the group. `None`: find it by identity.
    pub provider_id: Option<String>,
    /// And all its instances.
    pub with_instances: bool,
}

/// Read all groups of the cluster that the class can show.
#[derive(Debug, Clone)]
pub struct ListPools {
    /// The operation. Its target is the class.
    pub ctx: Context,
}

/// Delete named instances of a group, and no other.
#[derive(Debug, Clone)]
pub struct DeletePoolMachines {
    /// The operation. Its target is the pool.
    pub ctx: Context,
    /// Id of the group.
    pub provider_id: String,
    /// Ids of the instances.
    pub instances: Vec<String>,
    /// The size to reach. [`DeletePoolMachines::plan`] says what is to be done, also the second time.
    pub size: PoolSize,
}

/// Bring one instance of a group to the model that the group has, in place.
#[derive(Debug, Clone)]
pub struct UpdatePoolMachine {
    /// The operation. Its target is the pool.
    pub ctx: Context,
    /// Id of the group.
    pub provider_id: String,
    /// Id of the instance.
    pub instance: String,
    /// The model for the instance; a model other than the group's is ABORTED.
    pub model_hash: String,
    /// Its Node is drained: it may be restarted or made anew. Otherwise only changes that the Node does not feel are
    /// allowed.
    pub drained: bool,
}

/// A scaling group.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Pool {
    pub(crate) record: proto::PoolRecord,
}

impl Pool {
    /// A group with its final id, its desired size, and the number of its instances.
    pub fn new(provider_id: impl Into<String>, desired: i32, current: i32) -> Self {
        let provider_id = provider_id.into();
        Self { record: proto::PoolRecord { provider_id, desired, current, ..Default::default() } }
    }

    /// The pool in the group's tags. Left out: the pool of the operation.
    pub fn pool(mut self, name: impl Into<String>, uid: impl Into<String>) -> Self {
        self.record.pool_name = name.into();
        self.record.pool_uid = uid.into();
        self
    }

    /// The cluster id in its tags, as with [`Instance::cluster_id`].
    pub fn cluster_id(mut self, id: impl Into<String>) -> Self {
        self.record.cluster_id = id.into();
        self
    }

    /// The current model of the group.
    pub fn model_hash(mut self, hash: impl Into<String>) -> Self {
        self.record.model_hash = hash.into();
        self
    }

    /// It makes, deletes or updates instances right now.
    pub fn busy(mut self, busy: bool) -> Self {
        self.record.busy = busy;
        self
    }

    /// The infrastructure reports it as broken, or makes no instances for it.
    pub fn fault(mut self, fault: DriverError) -> Self {
        self.record.fault = Some(Box::new(fault.into()));
        self
    }

    /// When the infrastructure made it.
    pub fn created_at(mut self, time: SystemTime) -> Self {
        self.record.created_at = Some(time.into());
        self
    }

    /// The record of the group of the target.
    pub(crate) fn into_record_of(mut self, ctx: &Context) -> proto::PoolRecord {
        if self.record.pool_name.is_empty() {
            let target = ctx.target();
            self.record.pool_name.clone_from(&target.name);
            self.record.pool_uid.clone_from(&target.uid);
        }
        self.into_listed_record(ctx)
    }

    /// The record of one group of many. The current cluster id is left out.
    pub(crate) fn into_listed_record(mut self, ctx: &Context) -> proto::PoolRecord {
        if !ctx.is_previous_cluster(&self.record.cluster_id) {
            self.record.cluster_id.clear();
        }
        self.record
    }
}

/// One instance of a group.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct PoolInstance {
    record: proto::PoolMachineRecord,
}

impl PoolInstance {
    /// An instance, and what tells it from the others of its group, at most 63 characters.
    pub fn new(instance: Instance, instance_id: impl Into<String>, state: PoolState) -> Self {
        let record = proto::PoolMachineRecord {
            machine: Some(instance.record),
            instance_id: instance_id.into(),
            state: state.into(),
            ..Default::default()
        };
        Self { record }
    }

    /// How the infrastructure calls it, for people.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.record.instance_name = name.into();
        self
    }

    /// The model that it was made from, or last updated to.
    pub fn model_hash(mut self, hash: impl Into<String>) -> Self {
        self.record.model_hash = hash.into();
        self
    }

    /// Where it is.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.record.zone = zone.into();
        self
    }

    /// The record; an instance of a group is of no machine.
    pub(crate) fn into_record(mut self, ctx: &Context) -> proto::PoolMachineRecord {
        if let Some(machine) = &mut self.record.machine {
            machine.machine_name.clear();
            machine.machine_uid.clear();
            if !ctx.is_previous_cluster(&machine.cluster_id) {
                machine.cluster_id.clear();
            }
        }
        self.record
    }
}

/// A group and its instances.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolStatus {
    /// The group.
    pub pool: Pool,
    /// All instances of the group, if they were asked for. Never a part of the instances.
    pub instances: Vec<PoolInstance>,
}

/// The outcome of a deletion of instances.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolMachinesDeleted {
    /// The group as it is now.
    pub pool: Pool,
    /// Instances that could not be deleted, by id, with the error. The size did not fall for them.
    pub not_deleted: Vec<(String, DriverError)>,
}
