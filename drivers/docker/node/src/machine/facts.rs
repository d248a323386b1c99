//! What a Node says about the system it runs on.

use std::path::Path;

use serde_json::{Value, json};

/// The version of Kubernetes whose kubelet this agent behaves like, and that it is not one.
pub(crate) const KUBELET_VERSION: &str = concat!("v1.33.0+ostler.", env!("CARGO_PKG_VERSION"));

/// Read once, as none of it changes while the machine runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) arch: &'static str,
    kernel: String,
    boot_id: String,
    system: String,
    machine_id: String,
}

/// Reads them. `id` stands for this machine if the image has no machine id.
pub(crate) fn facts(id: &str) -> Facts {
    let read = |path: &str| {
        let text = std::fs::read_to_string(Path::new(path)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    Facts {
        arch: match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        },
        kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
        boot_id: read("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
        system: read("/etc/os-release")
            .and_then(|text| pretty_name(&text))
            .unwrap_or_else(|| "ostler-node".to_owned()),
        machine_id: read("/etc/machine-id").unwrap_or_else(|| id.to_owned()),
    }
}

impl Facts {
    /// `status.nodeInfo` of the Node.
    pub(crate) fn node_info(&self) -> Value {
        json!({
            "architecture": self.arch, "operatingSystem": "linux", "osImage": self.system,
            "kernelVersion": self.kernel, "bootID": self.boot_id,
            "machineID": self.machine_id, "systemUUID": self.machine_id,
            "containerRuntimeVersion": concat!("ostler-process://", env!("CARGO_PKG_VERSION")),
            "kubeletVersion": KUBELET_VERSION, "kubeProxyVersion": "",
        })
    }
}

fn pretty_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_named_as_os_release_does() {
        assert_eq!(pretty_name("NAME=x\nPRETTY_NAME=\"A B\"\n").as_deref(), Some("A B"));
        assert_eq!(pretty_name("NAME=x"), None);
    }

    #[test]
    fn a_node_says_that_it_is_no_kubelet() {
        let info = facts("docker://1").node_info();
        assert!(info["kubeletVersion"].as_str().unwrap().starts_with("v1.33.0+ostler."));
        assert!(!info["kernelVersion"].as_str().unwrap().is_empty());
    }
}
