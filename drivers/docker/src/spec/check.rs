//! Checks beyond the types of a spec.

use std::collections::BTreeSet;

use ostler_driver_sdk::Violation;

use super::limits::{LEAST_CPU, LEAST_MEMORY, LEAST_PROCESSES, MOST_PROCESSES};
use super::{
    CLAIM_FILE, Delivery, OWN_VARIABLES, ProviderSpec, RESERVED_TAG_PREFIXES, Resource, TAGS_FILE,
};

/// Longest last part of the name of a network or volume.
const PART_NAME: usize = 63;

impl ProviderSpec {
    /// The faults of the spec.
    pub fn violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        self.check_process(&mut found);
        self.check_user_data(&mut found);
        self.check_networks(&mut found);
        self.check_volumes(&mut found);
        self.check_ports(&mut found);
        self.check_limits(&mut found);
        self.check_tags(&mut found);
        found
    }

    fn check_process(&self, found: &mut Vec<Violation>) {
        if self.image.is_empty() || self.image.chars().any(char::is_whitespace) {
            found.push(Violation::new("image", "must be the name of an image, e.g. node:1"));
        }
        for name in self.environment.keys() {
            if !is_variable(name) {
                let why = "must be letters, digits and `_`, and not begin with a digit";
                found.push(Violation::new(format!("environment.{name}"), why));
            } else if OWN_VARIABLES.contains(&name.as_str()) {
                let why = "is set by the driver: take another name";
                found.push(Violation::new(format!("environment.{name}"), why));
            }
        }
        for (index, command) in self.initialize.iter().enumerate() {
            if command.first().is_none_or(String::is_empty) {
                found.push(Violation::new(format!("initialize[{index}]"), "must name a program"));
            }
        }
    }

    fn check_user_data(&self, found: &mut Vec<Violation>) {
        let user_data = &self.user_data;
        if !is_path(&user_data.path)
            || [TAGS_FILE, CLAIM_FILE].iter().any(|own| user_data.path.starts_with(own))
        {
            let why = format!("must be an absolute path other than {TAGS_FILE} and {CLAIM_FILE}");
            found.push(Violation::new("userData.path", why));
        }
        let variable = &user_data.variable;
        let taken =
            OWN_VARIABLES.contains(&variable.as_str()) || self.environment.contains_key(variable);
        if !is_variable(variable) || (user_data.delivery == Delivery::Environment && taken) {
            let why = "must be a variable that is not set already";
            found.push(Violation::new("userData.variable", why));
        }
    }

    fn check_networks(&self, found: &mut Vec<Violation>) {
        let mut names = BTreeSet::new();
        for (index, network) in self.networks.iter().enumerate() {
            let at = |field: &str| format!("networks[{index}].{field}");
            check_name(&network.name, network.own, at("name"), found);
            if !names.insert((&network.name, network.own)) {
                found.push(Violation::new(at("name"), "is there twice"));
            }
            if !network.own && (network.driver.is_some() || network.internal) {
                let why = "is true or nothing of driver and internal is said: they are of networks that are made";
                found.push(Violation::new(at("own"), why));
            }
        }
        let alone = ["host", "none"];
        if self.networks.len() > 1
            && self.networks.iter().any(|it| !it.own && alone.contains(&it.name.as_str()))
        {
            found.push(Violation::new("networks", "must be one alone if it is host or none"));
        }
    }

    fn check_volumes(&self, found: &mut Vec<Violation>) {
        let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
        for (index, volume) in self.volumes.iter().enumerate() {
            let at = |field: &str| format!("volumes[{index}].{field}");
            check_name(&volume.name, !volume.shared, at("name"), found);
            if !names.insert((&volume.name, volume.shared)) {
                found.push(Violation::new(at("name"), "is there twice"));
            }
            if !is_path(&volume.path) {
                found.push(Violation::new(at("path"), "must be an absolute path"));
            } else if !paths.insert(volume.path.trim_end_matches('/')) {
                found.push(Violation::new(at("path"), "is there twice"));
            }
            if volume.shared && volume.driver.is_some() {
                found.push(Violation::new(at("driver"), "is of volumes that are made"));
            }
        }
    }

    fn check_ports(&self, found: &mut Vec<Violation>) {
        let mut taken = BTreeSet::new();
        for (index, port) in self.ports.iter().enumerate() {
            if port.container == 0 {
                let at = format!("ports[{index}].containerPort");
                found.push(Violation::new(at, "must be between 1 and 65535"));
            }
            let host = port.host.map(|host| (host, port.address(), port.protocol as u8));
            if host.is_some_and(|host| !taken.insert(host)) {
                found.push(Violation::new(format!("ports[{index}].hostPort"), "is there twice"));
            }
        }
    }

    fn check_limits(&self, found: &mut Vec<Violation>) {
        if self.cpu.is_some_and(|cpu| cpu.nanos() < LEAST_CPU) {
            found.push(Violation::new("cpu", "must be 10m or more, which is Docker's minimum"));
        }
        if self.memory.is_some_and(|memory| memory.bytes() < LEAST_MEMORY) {
            found.push(Violation::new("memory", "must be 6Mi or more, which is Docker's minimum"));
        }
        let pids = self.pids.count();
        if !(LEAST_PROCESSES..=MOST_PROCESSES).contains(&pids) {
            let why = format!("is {pids}; must be {LEAST_PROCESSES} to {MOST_PROCESSES}");
            found.push(Violation::new("pids", why));
        }
    }

    fn check_tags(&self, found: &mut Vec<Violation>) {
        for resource in Resource::ALL {
            for key in self.tags.of(resource).keys() {
                let own = RESERVED_TAG_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
                if key.is_empty() || own {
                    let path = format!("{}[{key}]", resource.path());
                    let why = "must not be empty or begin with ostler.dev/ or docker.ostler.dev/, which is the driver's";
                    found.push(Violation::new(path, why));
                }
            }
        }
    }
}

/// The name of something that is made has room in a longer one; what is there has any.
fn check_name(name: &str, made: bool, path: String, found: &mut Vec<Violation>) {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if made
        && !(name.len() <= PART_NAME
            && name.starts_with(|c: char| c != '-')
            && name.chars().all(letters))
    {
        let why = "must be 1 to 63 lower-case letters, digits and `-`, and not begin with `-`";
        found.push(Violation::new(path, why));
    } else if name.is_empty() || name.len() > 255 {
        found.push(Violation::new(path, "must be 1 to 255 characters"));
    }
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Absolute, of a file or folder below the root, without a way back up.
fn is_path(path: &str) -> bool {
    let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    path.starts_with('/')
        && !path.contains('\0')
        && !steps.is_empty()
        && !steps.iter().any(|step| matches!(*step, "." | ".."))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_violation_names_its_path() {
        let spec: ProviderSpec = serde_json::from_value(json!({
            "image": "a b",
            "environment": {"1x": "", "OSTLER_NODE_NAME": "n", "U": ""},
            "initialize": [["true"], []],
            "userData": {"as": "Environment", "path": "/etc/ostler/tags.json", "variable": "U"},
            "networks": [{"name": "A", "own": true}, {"name": "host", "internal": true}],
            "volumes": [
                {"name": "v", "path": "/v"}, {"name": "v", "path": "v"},
                {"name": "w", "path": "/v/", "shared": true, "driver": "d"},
            ],
            "ports": [{"containerPort": 0, "hostPort": 80}, {"containerPort": 1, "hostPort": 80}],
            "cpu": "1m", "memory": "4Mi", "pids": 15,
            "tags": {"volume": {"ostler.dev/cluster-id": "x"}},
        }))
        .unwrap();
        let paths: Vec<_> = spec.violations().into_iter().map(|it| it.path).collect();
        assert_eq!(
            paths,
            [
                "image",
                "environment.1x",
                "environment.OSTLER_NODE_NAME",
                "initialize[1]",
                "userData.path",
                "userData.variable",
                "networks[0].name",
                "networks[1].own",
                "networks",
                "volumes[1].name",
                "volumes[1].path",
                "volumes[2].path",
                "volumes[2].driver",
                "ports[0].containerPort",
                "ports[1].hostPort",
                "cpu",
                "memory",
                "pids",
                "tags.volume[ostler.dev/cluster-id]",
            ]
        );
    }

    #[test]
    fn a_file_of_user_data_is_below_the_root_and_no_way_leads_back_up() {
        for (path, good) in [
            ("/etc/ostler/user-data", true),
            ("/x", true),
            ("/", false),
            ("x", false),
            ("/a/../b", false),
            ("/etc/ostler/tags.json.next", false),
        ] {
            let spec: ProviderSpec =
                serde_json::from_value(json!({"image": "i", "userData": {"path": path}})).unwrap();
            assert_eq!(spec.violations().is_empty(), good, "{path}");
        }
    }

    #[test]
    fn an_unknown_field_is_refused_wherever_it_is() {
        for json in [
            json!({"image": "i", "imgae": ""}),
            json!({"image": "i", "tags": {"disk": {}}}),
            json!({"image": "i", "volumes": [{"name": "v", "path": "/v", "size": 1}]}),
            json!({"image": "i", "userData": {"file": "x"}}),
            json!({"image": "i", "ports": [{"containerPort": 80, "host": 1}]}),
        ] {
            assert!(serde_json::from_value::<ProviderSpec>(json.clone()).is_err(), "{json}");
        }
    }
}
