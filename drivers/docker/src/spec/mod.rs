//! The provider spec of a machine class: what a container is made of.

mod check;
mod limits;
mod parts;
mod permissions;
mod user_data;

use std::collections::BTreeMap;

use ostler_driver_sdk::HotSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use limits::{Cpu, Memory, NotAQuantity, Processes, RestartPolicy};
pub use parts::{Network, Port, Protocol, Volume};
pub use permissions::{Permissions, Refusal};
pub use user_data::{Delivery, UserData};

/// Where the mutable tags of a machine are, inside its container.
pub const TAGS_FILE: &str = "/etc/ostler/tags.json";
/// The identity of an adopted machine, inside its container.
pub(crate) const CLAIM_FILE: &str = "/etc/ostler/claim.json";
/// The desired state of a group, inside the container that stands for the group.
pub(crate) const GROUP_FILE: &str = "/etc/ostler/group.json";
/// Tags that begin so are the driver's own: they carry the identity of the instance.
pub(crate) const RESERVED_TAG_PREFIXES: [&str; 2] = ["ostler.dev/", "docker.ostler.dev/"];
/// Variables that the driver sets in every container: name of the Node, and provider id.
pub(crate) const OWN_VARIABLES: [&str; 2] = ["OSTLER_NODE_NAME", "OSTLER_PROVIDER_ID"];

/// `MachineClass.providerSpec` of provider `docker.ostler.dev`.
///
/// What is not said to change on a running machine is fixed when it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, HotSpec)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderSpec {
    /// Image of the container, as `docker run` takes it.
    pub image: String,
    /// When the image is pulled. Only new machines see a change.
    #[ostler(hot)]
    #[serde(default)]
    pub image_pull_policy: ImagePullPolicy,
    /// What runs in the container; left out, what the image says.
    #[serde(default)]
    pub command: Vec<String>,
    /// Variables of the container.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Networks that the container joins; left out, Docker's default bridge. The first is joined
    /// when it is made, the others by InitializeMachine.
    #[serde(default)]
    pub networks: Vec<Network>,
    /// Volumes of the container.
    #[serde(default)]
    pub volumes: Vec<Volume>,
    /// Ports of the container that the host listens on.
    #[serde(default)]
    pub ports: Vec<Port>,
    /// CPUs that the container may use, e.g. `500m`; left out, all. Changes on a running machine.
    #[ostler(hot)]
    #[serde(default)]
    pub cpu: Option<Cpu>,
    /// Memory that the container may use, e.g. `256Mi`, without swap; left out, all. Changes on a
    /// running machine.
    #[ostler(hot)]
    #[serde(default)]
    pub memory: Option<Memory>,
    /// Processes and threads that the container may have at the same time, 16 to 32768; left out, 4096. Changes on a running machine.
    #[ostler(hot)]
    #[serde(default)]
    pub pids: Processes,
    /// When Docker starts the container again. Changes on a running machine.
    #[ostler(hot)]
    #[serde(default)]
    pub restart_policy: RestartPolicy,
    /// Gives the container the rights of the host. Refused unless the driver allows it.
    #[serde(default)]
    pub privileged: bool,
    /// How user data reach the machine.
    #[serde(default)]
    pub user_data: UserData,
    /// What InitializeMachine runs in the container, one command after the other. They may run
    /// again after an interruption.
    #[serde(default)]
    pub initialize: Vec<Vec<String>>,
    /// Tags, kept in a file of the container. They change on a running machine.
    #[ostler(hot)]
    #[serde(default)]
    pub tags: Tags,
}

/// When an image is pulled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// For every new machine.
    Always,
    /// If the engine does not have it.
    #[default]
    IfNotPresent,
    /// Never: the engine has it, or the machine cannot be made.
    Never,
}

/// Tags of what a machine is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tags {
    /// Tags of the container.
    #[serde(default)]
    pub container: BTreeMap<String, String>,
    /// Tags of its own networks.
    #[serde(default)]
    pub network: BTreeMap<String, String>,
    /// Tags of its own volumes.
    #[serde(default)]
    pub volume: BTreeMap<String, String>,
}

/// What carries tags of its own, in the order in which an update goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    /// The container.
    Container,
    /// Its own networks.
    Network,
    /// Its own volumes.
    Volume,
}

impl Resource {
    /// All, in the order of an update.
    pub const ALL: [Self; 3] = [Self::Container, Self::Network, Self::Volume];

    /// Where its tags stand in the provider spec.
    pub fn path(self) -> &'static str {
        match self {
            Self::Container => "tags.container",
            Self::Network => "tags.network",
            Self::Volume => "tags.volume",
        }
    }
}

impl Tags {
    /// The tags of one resource.
    pub fn of(&self, resource: Resource) -> &BTreeMap<String, String> {
        match resource {
            Resource::Container => &self.container,
            Resource::Network => &self.network,
            Resource::Volume => &self.volume,
        }
    }
}

impl ProviderSpec {
    /// Whether a new machine needs InitializeMachine.
    pub(crate) fn needs_initialization(&self) -> bool {
        let executed = self.user_data.delivery == Delivery::Executed;
        executed || self.networks.len() > 1 || !self.initialize.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use ostler_driver_sdk::hot;
    use serde_json::{Value, json};

    use super::*;

    fn spec(json: Value) -> ProviderSpec {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn an_image_is_enough() {
        let spec = spec(json!({"image": "node"}));
        assert_eq!(spec.violations(), []);
        assert!(!spec.needs_initialization() && !spec.privileged);
        assert_eq!(spec.restart_policy, RestartPolicy::Always);
        assert_eq!(spec.pids.count(), 4096);
        assert_eq!(spec.user_data.path, "/etc/ostler/user-data");
    }

    #[test]
    fn limits_restart_policy_and_tags_are_hot_and_what_the_container_is_made_of_is_not() {
        let base = json!({"image": "i"});
        let cases = [
            ("cpu", json!("500m"), None),
            ("memory", json!("64Mi"), None),
            ("restartPolicy", json!("Never"), None),
            ("pids", json!(64), None),
            ("tags", json!({"volume": {"a": "b"}}), None),
            ("imagePullPolicy", json!("Always"), None),
            ("image", json!("j"), Some("image")),
            ("command", json!(["sh"]), Some("command")),
            ("environment", json!({"A": "b"}), Some("environment.A")),
            ("networks", json!([{"name": "bridge"}]), Some("networks")),
            ("volumes", json!([{"name": "v", "path": "/v"}]), Some("volumes")),
            ("ports", json!([{"containerPort": 80}]), Some("ports")),
            ("privileged", json!(true), Some("privileged")),
            ("userData", json!({"as": "Executed"}), Some("userData.as")),
            ("initialize", json!([["true"]]), Some("initialize")),
        ];
        for (path, value, fixed) in cases {
            let mut changed = base.clone();
            changed[path] = value;
            let changes = hot::fixed_changes(&spec(base.clone()), &spec(changed)).unwrap();
            assert_eq!(changes, fixed.into_iter().collect::<Vec<_>>(), "{path}");
        }
    }

    #[test]
    fn what_is_left_to_do_after_the_start_makes_an_initialization() {
        for (json, needed) in [
            (json!({"image": "i", "networks": [{"name": "a"}]}), false),
            (json!({"image": "i", "networks": [{"name": "a"}, {"name": "b"}]}), true),
            (json!({"image": "i", "initialize": [["true"]]}), true),
            (json!({"image": "i", "userData": {"as": "Executed"}}), true),
        ] {
            assert_eq!(spec(json.clone()).needs_initialization(), needed, "{json}");
        }
    }
}
