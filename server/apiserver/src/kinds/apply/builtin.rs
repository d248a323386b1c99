//! Which lists and maps of the built-in types are merged, and how: their published schemas do not say so.

use serde_json::json;

use super::items::{Items, Key};
use crate::kinds::builtin_types::short_name;

/// Structures that a server which keeps typed objects always has.
pub(super) const FIXED: &[&str] = &[
    "metadata",
    "spec",
    "status",
    "template",
    "strategy",
    "updateStrategy",
    "jobTemplate",
    "loadBalancer",
    "daemonEndpoints",
    "nodeInfo",
    "involvedObject",
    "source",
];

/// Types that are atomic.
const ATOMIC: &[&str] = &[
    "core.v1.ConfigMapKeySelector",
    "core.v1.FileKeySelector",
    "core.v1.LocalObjectReference",
    "core.v1.NodeSelector",
    "core.v1.NodeSelectorTerm",
    "core.v1.ObjectFieldSelector",
    "core.v1.ObjectReference",
    "core.v1.ResourceFieldSelector",
    "core.v1.ScopeSelector",
    "core.v1.SecretKeySelector",
    "core.v1.SecretReference",
    "core.v1.TopologySelectorTerm",
    "core.v1.TypedLocalObjectReference",
    "rbac.v1.RoleRef",
    "rbac.v1.Subject",
    "meta.v1.LabelSelector",
    "meta.v1.OwnerReference",
];

pub(super) fn is_atomic(name: &str) -> bool {
    ATOMIC.contains(&short_name(name))
}

/// Whether a plain map is one value.
pub(super) fn is_atomic_map(owner: &str, field: &str) -> bool {
    matches!(
        (short_name(owner), field),
        ("core.v1.PodSpec", "nodeSelector")
            | ("core.v1.ReplicationControllerSpec" | "core.v1.ServiceSpec", "selector")
    )
}

/// How the items of a list are told apart.
pub(super) fn items(owner: &str, field: &str) -> Items {
    const PROTOCOL: &str = "protocol";
    let by = |names: &[&str]| {
        let key = |name: &&str| Key {
            name: (*name).to_owned(),
            default: (*name == PROTOCOL).then(|| json!("TCP")),
        };
        Items::Keyed(names.iter().map(key).collect())
    };
    match (short_name(owner), field) {
        ("meta.v1.ObjectMeta", "finalizers")
        | ("core.v1.NodeSpec", "podCIDRs")
        | ("storage.v1.CSIDriverSpec", "volumeLifecycleModes")
        | ("batch.v1.PodFailurePolicyOnExitCodesRequirement", "values")
        | ("batch.v1.UncountedTerminatedPods", "failed" | "succeeded") => Items::Set,
        ("meta.v1.ObjectMeta", "ownerReferences")
        | ("resource.v1.ResourceClaimStatus", "reservedFor") => by(&["uid"]),
        ("resource.v1.ResourceClaimStatus", "devices") => {
            by(&["driver", "device", "pool", "shareID"])
        }
        (
            "core.v1.PodSpec",
            "containers"
            | "ephemeralContainers"
            | "imagePullSecrets"
            | "initContainers"
            | "resourceClaims"
            | "schedulingGates"
            | "volumes",
        )
        | ("core.v1.Container" | "core.v1.EphemeralContainer", "env")
        | ("core.v1.ContainerStatus", "allocatedResourcesStatus")
        | ("core.v1.PodStatus", "resourceClaimStatuses")
        | ("core.v1.ResourceRequirements", "claims")
        | ("core.v1.ServiceAccount", "secrets")
        | ("storage.v1.CSINodeSpec", "drivers") => by(&["name"]),
        ("core.v1.Container" | "core.v1.EphemeralContainer", "ports") => {
            by(&["containerPort", PROTOCOL])
        }
        ("core.v1.Container" | "core.v1.EphemeralContainer", "volumeDevices") => {
            by(&["devicePath"])
        }
        (
            "core.v1.Container" | "core.v1.EphemeralContainer" | "core.v1.ContainerStatus",
            "volumeMounts",
        ) => by(&["mountPath"]),
        ("core.v1.PodSpec", "hostAliases") | ("core.v1.PodStatus", "podIPs") => by(&["ip"]),
        ("core.v1.PodSpec", "topologySpreadConstraints") => {
            by(&["topologyKey", "whenUnsatisfiable"])
        }
        ("core.v1.ServiceSpec", "ports") => by(&["port", PROTOCOL]),
        ("core.v1.ResourceStatus", "resources") => by(&["resourceID"]),
        ("core.v1.NodeStatus", "addresses") => by(&["type"]),
        (owner, "conditions") if owner != "batch.v1.JobStatus" => by(&["type"]),
        _ => Items::Atomic,
    }
}
