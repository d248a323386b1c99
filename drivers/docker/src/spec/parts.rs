//! Networks, volumes and ports of a container.

use std::net::{IpAddr, Ipv4Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A network that a container joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Network {
    /// Name of the network; of one that is made for the machine, the last part of its name. That of the host (`host`) and of
    /// other containers (`container:ID`) are refused unless the driver allows them.
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
    /// It is there and stays; else it is made for the machine and deleted with it. Refused unless the driver allows it.
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
    /// Port of the host; left out, one that is free. A host port that is named serves one machine at a time.
    #[serde(default)]
    #[serde(rename = "hostPort")]
    pub host: Option<u16>,
    /// Address of the host; left out, `127.0.0.1`. One that is not of loopback is refused unless the driver allows it.
    #[serde(default)]
    pub host_address: Option<IpAddr>,
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
    /// The address of the host that is listened on.
    pub fn address(&self) -> IpAddr {
        self.host_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

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
