//! A group of the cloud.

use std::collections::BTreeMap;

use jiff::Timestamp;
use ostler_driver_sdk::PoolIdentity;
use serde::{Deserialize, Serialize};

use super::bootstrap::Bootstrap;
use crate::spec::ProviderSpec;

/// A scaling group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// `fake:///<region>/g-<id>`.
    pub provider_id: String,
    /// The pool of the group.
    pub identity: PoolIdentity,
    /// Identity tags and others; the instances of the group get them, too.
    pub tags: BTreeMap<String, String>,
    /// Name of the class.
    pub class: String,
    /// How many instances it is to have.
    pub desired: i32,
    /// The model for new instances.
    pub model: Model,
    /// The number of the next instance.
    pub next: u64,
    /// When it was asked for.
    pub created_at: Timestamp,
}

/// The model of a group's instances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// The core's hash of the model.
    pub hash: String,
    /// The provider spec.
    pub spec: ProviderSpec,
    /// The kubelet's part of the user data.
    pub bootstrap: Bootstrap,
    /// Where instances may be.
    pub zones: Vec<String>,
}

/// Marks an instance as a member of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Id of the group.
    pub group: String,
    /// The number of the instance within the group.
    pub number: u64,
    /// The model from which the instance was made.
    pub model_hash: String,
    /// Where it is.
    pub zone: String,
    /// The cloud could not make it.
    pub failed: bool,
    /// When it goes away: it is being deleted, or was a spot instance.
    pub goes_at: Option<Timestamp>,
}
