//! How an instance becomes a Node: `spec.bootstrap` of a Machine, and the known data.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;

/// Where the user data of an instance comes from, other than from the secrets of its class.
///
/// The Machine stays Pending until `data` or `dataSecretName` is there. Of the two, `data` wins. An
/// empty string in either says that the instance needs no user data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// An object of a bootstrap provider that fills in the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_ref: Option<BootstrapConfigRef>,
    /// Name of a Secret in the namespace of the Machine; its key `value` is the user data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_secret_name: Option<String>,
    /// The user data as plain text. Everybody who may read the Machine may read it: prefer a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<BootstrapText>,
}

/// Names an object of a bootstrap provider.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapConfigRef {
    /// `group/version` of its kind.
    #[serde(default)]
    pub api_version: String,
    /// Its kind.
    #[serde(default)]
    pub kind: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Absent, or the namespace of the Machine: no other one is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl fmt::Display for BootstrapConfigRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// User data as it stands in a Machine. The text may hold credentials and is never printed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootstrapText(String);

impl BootstrapText {
    /// Wraps the text.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for the caller's request.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BootstrapText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootstrapText({} bytes)", self.0.len())
    }
}

impl JsonSchema for BootstrapText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "BootstrapText".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

/// The Node of a Machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRef {
    /// `v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// `Node`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID: a Node of the same name that came later is another Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

open_enum! {
    /// The stage of a Machine's bootstrap. A word that is not ours is the bootstrap provider's.
    pub enum BootstrapPhase {
        /// The data are not there yet.
        Pending = "Pending",
        /// The data are there.
        Ready = "Ready",
        /// The instance needs no data.
        NotNeeded = "NotNeeded",
        /// The bootstrap provider gave up.
        Failed = "Failed",
    }
}

open_enum! {
    /// The stage of a Machine's instance.
    pub enum InfrastructurePhase {
        /// No driver was asked to make it.
        Pending = "Pending",
        /// The instance is being made.
        Creating = "Creating",
        /// The instance exists and is being initialized.
        Initializing = "Initializing",
        /// The instance exists and is initialized.
        Ready = "Ready",
        /// The last attempt to make or initialize it failed.
        Failing = "Failing",
        /// The instance is in deletion, or its pods leave first.
        Deleting = "Deleting",
        /// The instance is gone.
        Deleted = "Deleted",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn user_data_in_a_machine_is_never_printed() {
        let bootstrap: Bootstrap = serde_json::from_value(json!({ "data": "hunter2" })).unwrap();
        assert!(!format!("{bootstrap:?}").contains("hunter2"));
        assert_eq!(serde_json::to_value(&bootstrap).unwrap(), json!({ "data": "hunter2" }));
    }

    #[test]
    fn no_data_and_empty_data_are_two_things() {
        let read = |text| serde_json::from_value::<Bootstrap>(text).unwrap();
        assert_eq!(read(json!({})).data, None);
        assert_eq!(read(json!({ "data": "" })).data, Some(BootstrapText::default()));
        assert_eq!(read(json!({ "dataSecretName": "" })).data_secret_name, Some(String::new()));
    }
}
