//! Whose an instance is: [`Context::identity`](crate::Context::identity), and the tags that say so.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Tag with the id of the cluster.
pub const CLUSTER_TAG: &str = "ostler.dev/cluster-id";
/// Tag with the name of the machine.
pub const MACHINE_TAG: &str = "ostler.dev/machine-name";
/// Tag with the UID of the machine.
pub const UID_TAG: &str = "ostler.dev/machine-uid";

/// The API object that an operation is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Target {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// UID of the object. Together with the cluster id it is the identity of the instance.
    pub uid: String,
}

/// The machine and the cluster that an instance belongs to. Cluster id and UID alone decide; the name is for people.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The cluster. Instances of other clusters are never touched.
    pub cluster_id: String,
    /// Name of the machine.
    pub machine_name: String,
    /// UID of the machine.
    pub machine_uid: String,
}

impl Identity {
    /// The tags that the call that makes the instance has to set.
    pub fn tags(&self) -> BTreeMap<String, String> {
        let Self { cluster_id, machine_name, machine_uid } = self;
        [(CLUSTER_TAG, cluster_id), (MACHINE_TAG, machine_name), (UID_TAG, machine_uid)]
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .into()
    }
}

/// Tag with the name of the pool, on a group and on its instances.
pub const POOL_TAG: &str = "ostler.dev/pool-name";
/// Tag with the UID of the pool, on a group and on its instances.
pub const POOL_UID_TAG: &str = "ostler.dev/pool-uid";

/// The pool and the cluster that a group belongs to. Cluster id and UID alone decide; the name is for people.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolIdentity {
    /// The cluster. Groups of other clusters are never touched.
    pub cluster_id: String,
    /// Name of the pool.
    pub pool_name: String,
    /// UID of the pool.
    pub pool_uid: String,
}

impl PoolIdentity {
    /// The tags of a group and of all its instances.
    pub fn tags(&self) -> BTreeMap<String, String> {
        let Self { cluster_id, pool_name, pool_uid } = self;
        [(CLUSTER_TAG, cluster_id), (POOL_TAG, pool_name), (POOL_UID_TAG, pool_uid)]
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .into()
    }
}
