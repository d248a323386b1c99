//! The Node as an object. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_kubelet::node::{addresses, condition, keep_transitions};

use super::About;
use crate::machine::{PODS, Resources};

/// The fields of a Node that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Now {
    pub(super) resources: Resources,
    pub(super) address: Option<IpAddr>,
    pub(super) going: bool,
}

/// The Node to register.
pub(super) fn node(about: &About, now: &Now, at: Timestamp) -> Node {
    Node {
        metadata: ObjectMeta {
            name: Some(about.name.clone()),
            labels: Some(labels(about)),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: about.provider_id.clone(),
            taints: Some(about.taints.0.clone()),
            ..NodeSpec::default()
        }),
        status: Some(status(about, now, &[], at)),
    }
}

fn labels(about: &About) -> BTreeMap<String, String> {
    let mut labels = about.labels.0.clone();
    for (key, own) in [
        ("kubernetes.io/hostname", label_value(&about.name)),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", about.facts.arch),
    ] {
        labels.insert(key.to_owned(), own.to_owned());
    }
    labels
}

/// As much of the name of a Node as the value of a label may be long.
fn label_value(name: &str) -> &str {
    const LONGEST: usize = 63;
    let head = name.get(..LONGEST).unwrap_or(name);
    head.trim_end_matches(|c: char| !c.is_ascii_alphanumeric())
}

/// The address that a status tells.
pub(super) fn address(status: &NodeStatus) -> Option<IpAddr> {
    let told = status.addresses.iter().flatten().find(|it| it.type_ == "InternalIP");
    told.and_then(|it| it.address.parse().ok())
}

/// The status of the Node. A condition that is as it was in `before` keeps the time of its transition.
pub(super) fn status(
    about: &About,
    now: &Now,
    before: &[NodeCondition],
    at: Timestamp,
) -> NodeStatus {
    let resources = &now.resources;
    let with_memory = |memory: String| {
        let disk =
            resources.disk_bytes.map(|bytes| ("ephemeral-storage", format!("{}Ki", bytes / 1024)));
        [("cpu", resources.cpu()), ("memory", memory), ("pods", PODS.to_string())]
            .into_iter()
            .chain(disk)
            .map(|(name, quantity)| (name.to_owned(), Quantity(quantity)))
            .collect()
    };
    let mut conditions = conditions(now, at);
    keep_transitions(&mut conditions, before);
    NodeStatus {
        capacity: Some(with_memory(resources.memory())),
        allocatable: Some(with_memory(resources.allocatable_memory())),
        addresses: Some(addresses(&about.name, now.address)),
        conditions: Some(conditions),
        node_info: Some(about.facts.node_info()),
        ..NodeStatus::default()
    }
}

fn conditions(now: &Now, at: Timestamp) -> Vec<NodeCondition> {
    let pressure = now.resources.pressure;
    let memory = if pressure.memory {
        ("KubeletHasInsufficientMemory", "the container is near its memory limit")
    } else {
        ("KubeletHasSufficientMemory", "enough memory is left")
    };
    let disk = if pressure.disk {
        ("KubeletHasDiskPressure", "the disk of the host is full")
    } else {
        ("KubeletHasNoDiskPressure", "enough disk is left")
    };
    let processes = if pressure.processes {
        ("KubeletHasInsufficientPID", "the container is near its process limit")
    } else {
        ("KubeletHasSufficientPID", "enough processes can be started")
    };
    let ready = if now.going {
        ("KubeletNotReady", "node is shutting down")
    } else {
        ("KubeletReady", "the agent runs the pods of this node")
    };
    vec![
        condition("MemoryPressure", pressure.memory, memory, at),
        condition("DiskPressure", pressure.disk, disk, at),
        condition("PIDPressure", pressure.processes, processes, at),
        condition("Ready", !now.going, ready, at),
    ]
}

/// A status without the times at which it was reported.
pub(super) fn without_times(status: &NodeStatus) -> NodeStatus {
    let mut bare = status.clone();
    for condition in bare.conditions.iter_mut().flatten() {
        condition.last_heartbeat_time = None;
    }
    bare
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::{Value, json};

    use super::*;
    use crate::machine::{Pressure, facts};

    fn about() -> About {
        About {
            name: "worker-1".to_owned(),
            provider_id: Some("docker:///abc".to_owned()),
            taints: "a=b:NoExecute".parse().unwrap(),
            labels: "pool=x,kubernetes.io/os=beos".parse().unwrap(),
            facts: facts("docker:///abc"),
            disk: PathBuf::from("/"),
        }
    }

    fn now() -> Now {
        let resources = Resources {
            cpu_millis: 1500,
            memory_bytes: 512 * 1024 * 1024,
            disk_bytes: Some(1024 * 1024),
            pressure: Pressure::default(),
        };
        Now { resources, address: Some([172, 17, 0, 5].into()), going: false }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// The conditions of a status by their type.
    fn by_type(status: &NodeStatus) -> BTreeMap<String, Value> {
        let conditions = status.conditions.iter().flatten();
        conditions.map(|it| (it.type_.clone(), serde_json::to_value(it).unwrap())).collect()
    }

    #[test]
    fn the_node_that_is_registered_says_what_it_is() {
        let node = serde_json::to_value(node(&about(), &now(), at(0))).unwrap();
        assert_eq!(node["spec"]["providerID"], "docker:///abc");
        assert_eq!(
            node["spec"]["taints"],
            json!([{"key": "a", "value": "b", "effect": "NoExecute"}])
        );
        let labels = &node["metadata"]["labels"];
        assert_eq!(labels["pool"], "x");
        assert_eq!(labels["kubernetes.io/hostname"], "worker-1");
        assert_eq!(labels["kubernetes.io/os"], "linux", "no option says otherwise");
        assert_eq!(node["status"]["capacity"]["cpu"], "1500m");
        assert_eq!(node["status"]["allocatable"]["memory"], "491520Ki");
    }

    #[test]
    fn the_host_name_of_a_node_with_a_long_name_is_the_beginning_of_it() {
        let long = format!("{}.b", "a".repeat(62));
        for (name, value) in [("worker-1", "worker-1"), (&long, &long[..62])] {
            let about = About { name: name.to_owned(), ..about() };
            let labels = node(&about, &now(), at(0)).metadata.labels.unwrap();
            assert_eq!(labels["kubernetes.io/hostname"], value);
        }
    }

    #[test]
    fn the_address_that_was_told_is_found_again() {
        let mut told = status(&about(), &now(), &[], at(0));
        assert_eq!(address(&told), now().address);
        told.addresses = None;
        assert_eq!(address(&told), None);
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() {
        let first = status(&about(), &now(), &[], at(0));
        let later = status(&about(), &now(), first.conditions.as_deref().unwrap(), at(10));
        let going = Now { going: true, ..now() };
        let end = status(&about(), &going, later.conditions.as_deref().unwrap(), at(20));
        let ready = |status: &NodeStatus| {
            let ready = by_type(status)["Ready"].clone();
            let time = |key: &str| ready[key].as_str().unwrap().to_owned();
            (
                ready["status"].as_str().unwrap().to_owned(),
                time("lastHeartbeatTime"),
                time("lastTransitionTime"),
            )
        };
        let said = |status: &str, heartbeat: i64, since: i64| {
            (status.to_owned(), at(heartbeat).to_string(), at(since).to_string())
        };
        assert_eq!(ready(&first), said("True", 0, 0));
        assert_eq!(ready(&later), said("True", 10, 0));
        assert_eq!(ready(&end), said("False", 20, 20));
        assert_eq!(without_times(&first), without_times(&later), "nothing new was said");
        assert_ne!(without_times(&later), without_times(&end));
    }

    #[test]
    fn pressure_is_a_condition_each() {
        let mut now = now();
        now.resources.pressure = Pressure { memory: true, disk: false, processes: true };
        let said = by_type(&status(&about(), &now, &[], at(0)));
        let status = |kind: &str| said[kind]["status"].as_str().unwrap().to_owned();
        assert_eq!(
            ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(status),
            ["True", "False", "True", "True"]
        );
    }
}
