//! How user data reach a machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How user data reach a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UserData {
    /// The way.
    #[serde(rename = "as")]
    pub delivery: Delivery,
    /// The file, for `File` and `Executed`; `/etc/ostler/user-data` if left out.
    pub path: String,
    /// The variable, for `Environment`; `OSTLER_USER_DATA` if left out.
    pub variable: String,
}

impl Default for UserData {
    fn default() -> Self {
        Self {
            delivery: Delivery::default(),
            path: "/etc/ostler/user-data".to_owned(),
            variable: "OSTLER_USER_DATA".to_owned(),
        }
    }
}

/// A way of user data into a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Delivery {
    /// A file that only root of the container reads, there before its first process.
    #[default]
    File,
    /// A variable: text of at most 128 KiB, which everybody sees who may inspect the container.
    Environment,
    /// As `File`, and InitializeMachine executes it; it begins with `#!`.
    Executed,
}
