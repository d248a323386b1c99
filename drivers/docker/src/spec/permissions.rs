//! Permissions of a class on the host. None, unless the operator of the driver grants them by a flag.

use ostler_driver_sdk::Violation;

use super::ProviderSpec;

/// What an author of classes may take of the host, beyond containers of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "one flag of the command line each")]
pub struct Permissions {
    /// Make privileged containers where a class asks for them; they are root of the host
    #[arg(
        long = "allow-privileged",
        env = "OSTLER_DOCKER_ALLOW_PRIVILEGED",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub privileged: bool,

    /// Let classes use the network of the host or of a container that is not theirs; they reach what listens on loopback
    #[arg(
        long = "allow-host-network",
        env = "OSTLER_DOCKER_ALLOW_HOST_NETWORK",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub host_network: bool,

    /// Let classes mount volumes that are not made for their machine; any volume of the engine, also those of others
    #[arg(
        long = "allow-shared-volumes",
        env = "OSTLER_DOCKER_ALLOW_SHARED_VOLUMES",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub shared_volumes: bool,

    /// Let classes open ports on addresses of the host other than loopback
    #[arg(
        long = "allow-host-ports",
        env = "OSTLER_DOCKER_ALLOW_HOST_PORTS",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub host_ports: bool,
}

/// Something that a spec asks for and the driver may not give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For programs, e.g. `PRIVILEGED_NOT_ALLOWED`.
    pub reason: &'static str,
    /// Where in the spec, and what to do.
    pub violation: Violation,
}

impl Permissions {
    /// All of them, for who trusts every author of classes as much as root.
    pub const ALL: Self =
        Self { privileged: true, host_network: true, shared_volumes: true, host_ports: true };

    /// The parts of a good spec that are not permitted.
    pub fn refusals(self, spec: &ProviderSpec) -> Vec<Refusal> {
        let mut found = Vec::new();
        let mut refuse = |reason, path: String, value: &str, flag| {
            let why = format!(
                "{value} is not allowed by this driver: start it with {flag}, or leave it out"
            );
            found.push(Refusal { reason, violation: Violation::new(path, why) });
        };
        if spec.privileged && !self.privileged {
            let path = "privileged".to_owned();
            refuse("PRIVILEGED_NOT_ALLOWED", path, "true", "--allow-privileged");
        }
        for (index, network) in spec.networks.iter().enumerate() {
            if !network.own && is_of_others(&network.name) && !self.host_network {
                let (path, value) = (format!("networks[{index}].name"), &network.name);
                refuse("HOST_NETWORK_NOT_ALLOWED", path, value, "--allow-host-network");
            }
        }
        for (index, volume) in spec.volumes.iter().enumerate() {
            if volume.shared && !self.shared_volumes {
                let (path, value) = (format!("volumes[{index}].shared"), &volume.name);
                refuse("SHARED_VOLUME_NOT_ALLOWED", path, value, "--allow-shared-volumes");
            }
        }
        for (index, port) in spec.ports.iter().enumerate() {
            let address = port.address();
            if !address.is_loopback() && !self.host_ports {
                let path = format!("ports[{index}].hostAddress");
                refuse("HOST_PORT_NOT_ALLOWED", path, &address.to_string(), "--allow-host-ports");
            }
        }
        found
    }
}

/// The network of the host, and modes such as `container:ID` and `ns:PATH`: no network has a colon in its name.
fn is_of_others(name: &str) -> bool {
    name.eq_ignore_ascii_case("host") || name.contains(':')
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refused(permissions: Permissions, more: &Value) -> Vec<(String, &'static str, String)> {
        let mut spec = json!({"image": "i"});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let spec: ProviderSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(spec.violations(), []);
        let refusals = permissions.refusals(&spec).into_iter();
        refusals.map(|it| (it.violation.path, it.reason, it.violation.description)).collect()
    }

    #[test]
    fn what_is_of_the_host_is_refused_with_its_field_value_and_flag_unless_it_is_allowed() {
        let none = Permissions::default();
        for (more, path, reason, value, flag, allowed) in [
            (
                json!({"privileged": true}),
                "privileged",
                "PRIVILEGED_NOT_ALLOWED",
                "true",
                "--allow-privileged",
                Permissions { privileged: true, ..none },
            ),
            (
                json!({"networks": [{"name": "host"}]}),
                "networks[0].name",
                "HOST_NETWORK_NOT_ALLOWED",
                "host",
                "--allow-host-network",
                Permissions { host_network: true, ..none },
            ),
            (
                json!({"networks": [{"name": "bridge"}, {"name": "container:core"}]}),
                "networks[1].name",
                "HOST_NETWORK_NOT_ALLOWED",
                "container:core",
                "--allow-host-network",
                Permissions { host_network: true, ..none },
            ),
            (
                json!({"volumes": [{"name": "keys", "path": "/k", "shared": true, "readOnly": true}]}),
                "volumes[0].shared",
                "SHARED_VOLUME_NOT_ALLOWED",
                "keys",
                "--allow-shared-volumes",
                Permissions { shared_volumes: true, ..none },
            ),
            (
                json!({"ports": [{"containerPort": 1, "hostPort": 80, "hostAddress": "0.0.0.0"}]}),
                "ports[0].hostAddress",
                "HOST_PORT_NOT_ALLOWED",
                "0.0.0.0",
                "--allow-host-ports",
                Permissions { host_ports: true, ..none },
            ),
            (
                json!({"ports": [{"containerPort": 1}, {"containerPort": 2, "hostAddress": "::"}]}),
                "ports[1].hostAddress",
                "HOST_PORT_NOT_ALLOWED",
                "::",
                "--allow-host-ports",
                Permissions { host_ports: true, ..none },
            ),
        ] {
            let others = Permissions {
                privileged: !allowed.privileged,
                host_network: !allowed.host_network,
                shared_volumes: !allowed.shared_volumes,
                host_ports: !allowed.host_ports,
            };
            for permissions in [none, others] {
                let said = refused(permissions, &more);
                let [(at, why, text)] = said.as_slice() else { panic!("{more}: {said:?}") };
                assert_eq!((at.as_str(), *why), (path, reason), "{more}");
                assert!(text.starts_with(value) && text.contains(flag), "{more}: {text}");
            }
            assert_eq!(refused(allowed, &more), [], "{more}");
            assert_eq!(refused(Permissions::ALL, &more), [], "{more}");
        }
    }

    #[test]
    fn what_is_of_the_machine_alone_needs_no_permission() {
        let spec = json!({
            "networks": [{"name": "bridge"}, {"name": "host", "own": true}],
            "volumes": [{"name": "data", "path": "/data"}],
            "ports": [
                {"containerPort": 1}, {"containerPort": 2, "hostPort": 8080},
                {"containerPort": 3, "hostAddress": "127.0.0.1"}, {"containerPort": 4, "hostAddress": "::1"},
            ],
        });
        assert_eq!(refused(Permissions::default(), &spec), []);
    }
}
