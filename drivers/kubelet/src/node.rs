//! Node and Lease as objects. Pure.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};

/// How often a kubelet renews its Lease.
pub const RENEWAL: Duration = Duration::from_secs(10);
/// How long a Lease lasts, as with a real kubelet: it ends unless one of the four renewals that are due in it succeeds.
pub const LEASE: Duration = RENEWAL.saturating_mul(4);
const LEASE_SECONDS: i32 = 40;

/// A condition that a Node reports from `now` on.
pub fn condition(
    kind: &str,
    status: bool,
    (reason, message): (&str, &str),
    now: Timestamp,
) -> NodeCondition {
    NodeCondition {
        type_: kind.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: (!message.is_empty()).then(|| message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// Gives conditions that did not change since `before` the time of their last transition.
pub fn keep_transitions(conditions: &mut [NodeCondition], before: &[NodeCondition]) {
    for condition in conditions {
        let same =
            |it: &&NodeCondition| it.type_ == condition.type_ && it.status == condition.status;
        if let Some(known) = before.iter().find(same) {
            condition.last_transition_time.clone_from(&known.last_transition_time);
        }
    }
}

/// The addresses of a Node: its IP address, if it is known, and its name.
pub fn addresses(name: &str, ip: Option<IpAddr>) -> Vec<NodeAddress> {
    let address = |kind: &str, address: String| NodeAddress { type_: kind.to_owned(), address };
    let ip = ip.map(|ip| address("InternalIP", ip.to_string()));
    ip.into_iter().chain([address("Hostname", name.to_owned())]).collect()
}

/// The conditions that a Node reports.
pub fn conditions(node: &Node) -> &[NodeCondition] {
    let status = node.status.as_ref();
    status.and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

/// Whether the Node is ready.
pub fn is_ready(node: &Node) -> bool {
    conditions(node).iter().any(|it| it.type_ == "Ready" && it.status == "True")
}

/// The provider id of a Node; `None` if it has none, or an empty one.
pub fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref().filter(|id| !id.is_empty())
}

/// The provider id of the other instance that a Node belongs to, seen by the instance `own`.
pub(crate) fn other_owner<'a>(node: &'a Node, own: Option<&str>) -> Option<&'a str> {
    provider_id(node).filter(|id| own.is_some_and(|own| own != *id))
}

/// The Lease of the Node with this UID; Kubernetes deletes both together.
pub(crate) fn lease(name: &str, uid: String, now: Timestamp) -> Lease {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.to_owned(),
        uid,
        ..OwnerReference::default()
    };
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(renewed(name, now)),
    }
}

/// The content of a renewed Lease.
pub(crate) fn renewed(name: &str, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(MicroTime(now)),
        ..LeaseSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_of_another_instance_is_not_taken_over() {
        let node = |id: Option<&str>| -> Node {
            serde_json::from_value(json!({"metadata": {}, "spec": {"providerID": id}})).unwrap()
        };
        for (found, own, other) in [
            (None, Some("a"), None),
            (Some(""), Some("a"), None),
            (Some("a"), Some("a"), None),
            (Some("b"), Some("a"), Some("b")),
            (Some("b"), None, None),
        ] {
            assert_eq!(other_owner(&node(found), own), other, "{found:?}");
        }
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let ready = |status, second| condition("Ready", status, ("r", "m"), at(second));
        let before = [ready(true, 0)];
        let mut same = [ready(true, 10)];
        keep_transitions(&mut same, &before);
        assert_eq!(same[0].last_transition_time, Some(Time(at(0))));
        assert_eq!(same[0].last_heartbeat_time, Some(Time(at(10))));
        let mut other = [ready(false, 20)];
        keep_transitions(&mut other, &same);
        assert_eq!(other[0].last_transition_time, Some(Time(at(20))));
    }

    #[test]
    fn a_lease_is_of_its_node_and_lasts_for_four_renewals() {
        let lease = lease("n", "u".to_owned(), Timestamp::UNIX_EPOCH);
        assert_eq!(lease.metadata.owner_references.unwrap()[0].uid, "u");
        let spec = lease.spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("n"));
        assert_eq!(spec.lease_duration_seconds, Some(40));
        assert_eq!(u64::try_from(LEASE_SECONDS).unwrap(), LEASE.as_secs());
    }
}
