//! Networks, volumes and ports of a container.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A network that a container joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Network {
    /// Name of the network; of one that is made for the machine, the last part of its name.
    pub name: String,
    /// Made for the machine and deleted with it; else it is there and stays.
    #[serde(default)]
    pub own: bool,
    /// Driver of a network that is made; left out, `bridge`.
    #[serde(default)]
    pub driver: Option<String>,
    /// A network that is made leads nowhere else.
    #[serde(default)]
    pub internal: bool,
}

/// A volume of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Volume {
    /// The last part of its name; of a shared one, the name.
    pub name: String,
    /// Where it is in the container.
    pub path: String,
    /// It is there and stays; else it is made for the machine and deleted with it.
    #[serde(default)]
    pub shared: bool,
    /// The container may not write.
    #[serde(default)]
    pub read_only: bool,
    /// Volume driver of a volume that is made; left out, `local`.
    #[serde(default)]
    pub driver: Option<String>,
}

/// A port of a container that the host listens on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Port {
    /// Port in the container.
    #[serde(rename = "containerPort")]
    pub container: u16,
    /// Port of the host; left out, one that is free. One that is named serves one machine at a time.
    #[serde(default)]
    #[serde(rename = "hostPort")]
    pub host: Option<u16>,
    /// Address of the host; left out, all.
    #[serde(default)]
    pub host_address: Option<std::net::IpAddr>,
    /// Protocol; TCP if left out.
    #[serde(default)]
    pub protocol: Protocol,
}

/// Protocol of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Port {
    /// As Docker writes it, e.g. `80/tcp`.
    pub fn key(&self) -> String {
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        };
        format!("{}/{protocol}", self.container)
    }
}
