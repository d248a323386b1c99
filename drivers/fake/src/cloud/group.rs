//! What the cloud knows of a group.

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
    /// To which pool it belongs.
    pub identity: PoolIdentity,
    /// The tags that say so, and more; its instances get them, too.
    pub tags: BTreeMap<String, String>,
    /// Name of the class.
    pub class: String,
    /// How many instances it is to have.
    pub desired: i32,
    /// What it makes them from.
    pub model: Model,
    /// The number of the next instance.
    pub next: u64,
    /// When it was asked for.
    pub created_at: Timestamp,
}

/// What a group makes instances from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// What the core calls it.
    pub hash: String,
    /// The provider spec.
    pub spec: ProviderSpec,
    /// What the user data hold for the kubelet.
    pub bootstrap: Bootstrap,
    /// Where instances may be.
    pub zones: Vec<String>,
}

/// That an instance is one of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Id of the group.
    pub group: String,
    /// What tells it from the others.
    pub number: u64,
    /// The model that it was made from.
    pub model_hash: String,
    /// Where it is.
    pub zone: String,
    /// The cloud could not make it.
    pub failed: bool,
    /// When it goes away: it is being deleted, or was a spot instance.
    pub goes_at: Option<Timestamp>,
}
