//! What a group is to be: a file in the container that stands for it, since Docker never changes a label.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::engine::Labels;
use crate::spec::ProviderSpec;

/// The file. The file holds user data, which are secret: it is for root alone, and `Debug` does not show it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct State {
    /// The identity of the group, and further tags from the core for the group and its instances. These tags count
    /// before the labels of the container, which date from the making of the group.
    pub(super) tags: Labels,
    /// How many instances it is to have.
    pub(super) desired: i32,
    /// The number of the next instance. The number is raised before the instance is made, so that no number is given
    /// twice.
    pub(super) next: u64,
    /// Containers that are to go, by name. Noted in one with the size: whatever ends the driver then, they go, and the
    /// size falls once.
    pub(super) doomed: BTreeSet<String>,
    /// The model for instances.
    pub(super) model: Model,
}

/// The model for instances.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Model {
    /// The core's hash of the model.
    pub(super) hash: String,
    /// The spec of the class.
    pub(super) spec: ProviderSpec,
    /// Base64.
    pub(super) user_data: String,
}
