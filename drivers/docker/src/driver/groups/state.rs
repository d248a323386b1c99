//! What a group is to be: a file in the container that stands for it, since Docker never changes a label.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::engine::Labels;
use crate::spec::ProviderSpec;

/// The file. It holds user data, which are secret: it is for root alone, and `Debug` does not show it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct State {
    /// The identity of the group and what else the core wants on it and on its instances. It stands before the labels,
    /// which are those of the day on which the group was made.
    pub(super) tags: Labels,
    /// How many instances it is to have.
    pub(super) desired: i32,
    /// The number of the next instance. It is raised before that is made, so that no number is given twice.
    pub(super) next: u64,
    /// Containers that are to go, by name. Noted in one with the size: whatever ends the driver then, they go, and the
    /// size falls once.
    pub(super) doomed: BTreeSet<String>,
    /// What instances are made from.
    pub(super) model: Model,
}

/// What instances are made from.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Model {
    /// What the core calls it.
    pub(super) hash: String,
    /// The spec of the class.
    pub(super) spec: ProviderSpec,
    /// Base64.
    pub(super) user_data: String,
}
