//! The system information of a Node.

use std::path::Path;

use k8s_openapi::api::core::v1::NodeSystemInfo;

/// The version of the kubelet that this agent imitates, with a suffix that names the agent.
const KUBELET_VERSION: &str = concat!("v1.33.0+ostler.", env!("CARGO_PKG_VERSION"));

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
    pub(crate) fn node_info(&self) -> NodeSystemInfo {
        NodeSystemInfo {
            architecture: self.arch.to_owned(),
            operating_system: "linux".to_owned(),
            os_image: self.system.clone(),
            kernel_version: self.kernel.clone(),
            boot_id: self.boot_id.clone(),
            machine_id: self.machine_id.clone(),
            system_uuid: self.machine_id.clone(),
            container_runtime_version: concat!("ostler-process://", env!("CARGO_PKG_VERSION"))
                .to_owned(),
            kubelet_version: KUBELET_VERSION.to_owned(),
            ..NodeSystemInfo::default()
        }
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
        assert!(info.kubelet_version.starts_with("v1.33.0+ostler."));
        assert!(!info.kernel_version.is_empty());
    }
}
