//! The Node of a simulated kubelet. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Node, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_kubelet::node::{addresses, condition};

use crate::cloud::{BootstrapToken, Instance};
use crate::driver::internal_ip;
use crate::spec::KubeletSpec;

/// The Kubernetes version that the simulated kubelets claim.
const KUBELET_VERSION: &str = "v1.33.0+fake";

/// The Node that an instance registers, ready, with this provider id.
pub(super) fn node(instance: &Instance, id: &str, now: Timestamp) -> Node {
    let taints = instance.bootstrap.taints.iter().map(|taint| Taint {
        key: taint.key.clone(),
        value: Some(taint.value.clone()),
        effect: taint.effect.clone(),
        time_added: None,
    });
    Node {
        metadata: ObjectMeta {
            name: Some(instance.identity.machine_name.clone()),
            labels: Some(labels(instance)),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(id.to_owned()),
            taints: Some(taints.collect()),
            ..NodeSpec::default()
        }),
        status: Some(status(instance, now)),
    }
}

/// The status of the Node when it has just joined.
fn status(instance: &Instance, now: Timestamp) -> NodeStatus {
    let capacity = &instance.node_capacity;
    let resources: BTreeMap<_, _> =
        [("cpu", &capacity.cpu), ("memory", &capacity.memory), ("pods", &capacity.pods)]
            .map(|(name, quantity)| (name.to_owned(), Quantity(quantity.clone())))
            .into();
    let ip = internal_ip(&instance.provider_id).into();
    NodeStatus {
        capacity: Some(resources.clone()),
        allocatable: Some(resources),
        addresses: Some(addresses(&instance.identity.machine_name, Some(ip))),
        conditions: Some(conditions(true, now).into()),
        node_info: Some(NodeSystemInfo {
            architecture: "amd64".to_owned(),
            operating_system: "linux".to_owned(),
            os_image: instance.image.clone(),
            kernel_version: "fake".to_owned(),
            container_runtime_version: "fake://1".to_owned(),
            kubelet_version: KUBELET_VERSION.to_owned(),
            kube_proxy_version: KUBELET_VERSION.to_owned(),
            machine_id: instance.provider_id.clone(),
            system_uuid: instance.provider_id.clone(),
            boot_id: instance.provider_id.clone(),
            swap: None,
        }),
        ..NodeStatus::default()
    }
}

/// The conditions of a kubelet's Node.
fn conditions(ready: bool, now: Timestamp) -> [NodeCondition; 4] {
    [
        condition("MemoryPressure", false, ("KubeletHasSufficientMemory", ""), now),
        condition("DiskPressure", false, ("KubeletHasNoDiskPressure", ""), now),
        condition("PIDPressure", false, ("KubeletHasSufficientPID", ""), now),
        ready_condition(ready, now),
    ]
}

/// Which of its conditions the Node does not have: others wrote them while the kubelet was silent.
pub(super) fn wrong(node: &Node, ready: bool, now: Timestamp) -> Vec<NodeCondition> {
    let there = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut wanted = Vec::from(conditions(ready, now));
    wanted.retain(|one| {
        let mut there = there.into_iter().flatten();
        !there.any(|it| it.type_ == one.type_ && it.status == one.status)
    });
    wanted
}

/// The condition of a Node that says whether it is ready.
pub(super) fn ready_condition(ready: bool, now: Timestamp) -> NodeCondition {
    let reason = if ready { "KubeletReady" } else { "KubeletNotReady" };
    condition("Ready", ready, (reason, ""), now)
}

fn labels(instance: &Instance) -> BTreeMap<String, String> {
    let known = [
        ("kubernetes.io/hostname", instance.identity.machine_name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("topology.kubernetes.io/region", instance.region.as_str()),
        ("topology.kubernetes.io/zone", instance.zone()),
        ("node.kubernetes.io/instance-type", instance.machine_type.as_str()),
    ];
    let known = known.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    known
        .chain(instance.bootstrap.labels.iter().cloned())
        .filter(|(_, value)| is_label_value(value))
        .collect()
}

/// What an API server takes as the value of a label, but for the empty one, which says nothing.
fn is_label_value(text: &str) -> bool {
    let is_edge = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63
        && text.starts_with(is_edge)
        && text.ends_with(is_edge)
        && text.chars().all(|c| is_edge(c) || matches!(c, '-' | '_' | '.'))
}

/// Whether a kubelet says Ready at `now`, and when that changes by itself.
pub(super) fn readiness(
    spec: &KubeletSpec,
    joined_at: Timestamp,
    now: Timestamp,
) -> (bool, Option<Timestamp>) {
    let Some(not_ready) = spec.not_ready_after.and_then(|after| later(joined_at, after.0)) else {
        return (true, None);
    };
    let again = spec.ready_again_after.and_then(|after| later(not_ready, after.0));
    if now < not_ready {
        (true, Some(not_ready))
    } else {
        match again {
            Some(again) if again <= now => (true, None),
            again => (false, again),
        }
    }
}

/// `None`: beyond the end of time.
fn later(time: Timestamp, delay: std::time::Duration) -> Option<Timestamp> {
    time.checked_add(jiff::SignedDuration::try_from(delay).ok()?).ok()
}

/// The bootstrap token of the kubelet's user data; with `foreign`, a wrong token.
pub(super) fn credential(instance: &Instance, foreign: bool) -> Option<BootstrapToken> {
    let token = instance.bootstrap.token.clone()?;
    let secret = if foreign { "foreign".to_owned() } else { token.secret };
    Some(BootstrapToken { id: token.id, secret })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn labels_that_an_api_server_would_refuse_are_left_out() {
        for good in ["a", "m5.large", "A-b_c"] {
            assert!(is_label_value(good), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", "-a", "a-", "a b", "a/b", long.as_str()] {
            assert!(!is_label_value(bad), "{bad}");
        }
    }

    #[test]
    fn a_kubelet_is_ready_until_it_is_not_and_then_again() {
        let joined: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |seconds| joined + jiff::SignedDuration::from_secs(seconds);
        let spec = |json: Value| serde_json::from_value::<KubeletSpec>(json).unwrap();
        let healthy = spec(json!({}));
        let broken = spec(json!({"notReadyAfter": "10s"}));
        let flapping = spec(json!({"notReadyAfter": "10s", "readyAgainAfter": "5s"}));
        let cases = [
            (&healthy, 99, (true, None)),
            (&broken, 9, (true, Some(at(10)))),
            (&broken, 10, (false, None)),
            (&flapping, 10, (false, Some(at(15)))),
            (&flapping, 15, (true, None)),
        ];
        for (spec, seconds, expected) in cases {
            assert_eq!(readiness(spec, joined, at(seconds)), expected, "{spec:?} at {seconds}");
        }
    }
}
