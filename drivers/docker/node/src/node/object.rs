//! Node and Lease as objects. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use serde_json::{Map, Value, json};

use super::About;
use crate::machine::{PODS, Resources};

/// As a kubelet: three renewals may be missed.
const LEASE_SECONDS: u32 = 40;

/// What changes while a Node lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Now {
    pub(super) resources: Resources,
    pub(super) address: Option<IpAddr>,
    pub(super) going: bool,
}

/// The Node to register.
pub(super) fn node(about: &About, now: &Now, at: Timestamp) -> Result<Node, serde_json::Error> {
    let taints: Vec<_> = about
        .taints
        .0
        .iter()
        .map(|t| json!({"key": t.key, "value": t.value, "effect": t.effect.to_string()}))
        .collect();
    let mut spec = json!({"taints": taints});
    if let (Some(id), Some(spec)) = (&about.provider_id, spec.as_object_mut()) {
        spec.insert("providerID".to_owned(), json!(id));
    }
    serde_json::from_value(json!({
        "metadata": {"name": about.name, "labels": labels(about)},
        "spec": spec,
        "status": status(about, now, &Map::new(), at),
    }))
}

/// The labels of the Node.
pub(super) fn labels(about: &About) -> BTreeMap<&str, &str> {
    let given = about.labels.0.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let own = [
        ("kubernetes.io/hostname", about.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", about.facts.arch),
    ];
    given.chain(own).collect()
}

/// The status of the Node. A condition that says what it said keeps the time since when; `since` has
/// those by type.
pub(super) fn status(about: &About, now: &Now, since: &Map<String, Value>, at: Timestamp) -> Value {
    let resources = &now.resources;
    let mut capacity = json!({
        "cpu": resources.cpu(), "memory": resources.memory(), "pods": PODS.to_string(),
    });
    let mut allocatable = json!({
        "cpu": resources.cpu(), "memory": resources.allocatable_memory(), "pods": PODS.to_string(),
    });
    if let Some(bytes) = resources.disk_bytes {
        for list in [&mut capacity, &mut allocatable] {
            if let Some(list) = list.as_object_mut() {
                list.insert("ephemeral-storage".to_owned(), json!(format!("{}Ki", bytes / 1024)));
            }
        }
    }
    let mut addresses = vec![json!({"type": "Hostname", "address": about.name})];
    addresses.extend(now.address.map(|ip| json!({"type": "InternalIP", "address": ip})));
    let conditions: Vec<_> =
        conditions(now).into_iter().map(|said| said.object(since, at)).collect();
    json!({
        "capacity": capacity, "allocatable": allocatable, "addresses": addresses,
        "conditions": conditions, "nodeInfo": about.facts.node_info(),
    })
}

struct Said {
    kind: &'static str,
    status: bool,
    reason: &'static str,
    message: &'static str,
}

impl Said {
    fn object(&self, since: &Map<String, Value>, at: Timestamp) -> Value {
        let status = if self.status { "True" } else { "False" };
        let kept = since
            .get(self.kind)
            .filter(|known| known.get("status").and_then(Value::as_str) == Some(status))
            .and_then(|known| known.get("lastTransitionTime"));
        json!({
            "type": self.kind, "status": status, "reason": self.reason, "message": self.message,
            "lastHeartbeatTime": Time(at),
            "lastTransitionTime": kept.cloned().unwrap_or_else(|| json!(Time(at))),
        })
    }
}

fn conditions(now: &Now) -> [Said; 4] {
    let pressure = now.resources.pressure;
    let pick =
        |short: bool, bad: (&'static str, &'static str), good: (&'static str, &'static str)| {
            if short { bad } else { good }
        };
    let said = |kind, status, (reason, message)| Said { kind, status, reason, message };
    [
        said(
            "MemoryPressure",
            pressure.memory,
            pick(
                pressure.memory,
                ("KubeletHasInsufficientMemory", "the container is near its memory limit"),
                ("KubeletHasSufficientMemory", "enough memory is left"),
            ),
        ),
        said(
            "DiskPressure",
            pressure.disk,
            pick(
                pressure.disk,
                ("KubeletHasDiskPressure", "the disk of the host is full"),
                ("KubeletHasNoDiskPressure", "enough disk is left"),
            ),
        ),
        said(
            "PIDPressure",
            pressure.processes,
            pick(
                pressure.processes,
                ("KubeletHasInsufficientPID", "the container is near its process limit"),
                ("KubeletHasSufficientPID", "enough processes can be started"),
            ),
        ),
        said(
            "Ready",
            !now.going,
            pick(
                now.going,
                ("KubeletNotReady", "node is shutting down"),
                ("KubeletReady", "the agent runs the pods of this node"),
            ),
        ),
    ]
}

/// The conditions of a status by their type.
pub(super) fn by_type(status: &Value) -> Map<String, Value> {
    let conditions = status.get("conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .filter_map(|it| Some((it.get("type")?.as_str()?.to_owned(), it.clone())))
        .collect()
}

/// What a status says, without when it was said.
pub(super) fn without_times(status: &Value) -> Value {
    let mut bare = status.clone();
    if let Some(conditions) = bare.get_mut("conditions").and_then(Value::as_array_mut) {
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            condition.remove("lastHeartbeatTime");
        }
    }
    bare
}

/// The Lease of the Node, which goes with it.
pub(super) fn lease(name: &str, uid: &str, at: Timestamp) -> Result<Lease, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {"name": name, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid},
        ]},
        "spec": {
            "holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": MicroTime(at),
        },
    }))
}

/// The patch that renews the Lease.
pub(super) fn renewal(name: &str, at: Timestamp) -> Value {
    json!({"spec": {
        "holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": MicroTime(at),
    }})
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

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

    #[test]
    fn the_node_that_is_registered_says_what_it_is() {
        let node = serde_json::to_value(node(&about(), &now(), at(0)).unwrap()).unwrap();
        assert_eq!(node["spec"]["providerID"], "docker:///abc");
        assert_eq!(
            node["spec"]["taints"],
            json!([{"key": "a", "value": "b", "effect": "NoExecute"}])
        );
        let labels = &node["metadata"]["labels"];
        assert_eq!(labels["pool"], "x");
        assert_eq!(labels["kubernetes.io/hostname"], "worker-1");
        assert_eq!(labels["kubernetes.io/os"], "linux", "nobody says otherwise");
        assert_eq!(node["status"]["capacity"]["cpu"], "1500m");
        assert_eq!(node["status"]["allocatable"]["memory"], "491520Ki");
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() {
        let first = status(&about(), &now(), &Map::new(), at(0));
        let later = status(&about(), &now(), &by_type(&first), at(10));
        let going = Now { going: true, ..now() };
        let end = status(&about(), &going, &by_type(&later), at(20));
        let ready = |status: &Value| {
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
        let said = by_type(&status(&about(), &now, &Map::new(), at(0)));
        let status = |kind: &str| said[kind]["status"].as_str().unwrap().to_owned();
        assert_eq!(
            ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(status),
            ["True", "False", "True", "True"]
        );
    }
}
