//! Which lists are merged and by which key: the published schemas of the API types do not say so.

use crate::kinds::builtin_types::short_name;

/// How a list is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Items are merged, not replaced as a whole.
    pub(crate) merges: bool,
    /// The field that tells items apart; empty for lists of plain values.
    pub(crate) key: &'static str,
    /// Fields that the patch does not name vanish where it says `$retainKeys`.
    pub(crate) retains: bool,
}

impl Rule {
    /// The list is one value.
    pub(crate) const ATOMIC: Self = Self { merges: false, key: "", retains: false };

    const fn by(key: &'static str) -> Self {
        Self { merges: true, key, retains: false }
    }

    const fn retaining(key: &'static str) -> Self {
        Self { merges: true, key, retains: true }
    }

    /// The strategy in the notation of schemas; `None` for an atomic list.
    pub(crate) const fn strategy(self) -> Option<&'static str> {
        match (self.merges, self.retains) {
            (true, true) => Some("merge,retainKeys"),
            (true, false) => Some("merge"),
            (false, true) => Some("retainKeys"),
            (false, false) => None,
        }
    }
}

/// The rule of a field of a named type.
pub(crate) fn rule(type_name: &str, field: &str) -> Rule {
    match (short_name(type_name), field) {
        ("meta.v1.ObjectMeta", "ownerReferences") => Rule::by("uid"),
        ("meta.v1.ObjectMeta", "finalizers") | ("core.v1.NodeSpec", "podCIDRs") => Rule::by(""),
        (
            "core.v1.PodSpec",
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "imagePullSecrets"
            | "schedulingGates",
        )
        | ("core.v1.Container" | "core.v1.EphemeralContainer", "env")
        | ("core.v1.ServiceAccount", "secrets")
        | ("storage.v1.CSINodeSpec", "drivers") => Rule::by("name"),
        ("core.v1.PodSpec", "volumes" | "resourceClaims")
        | ("core.v1.PodStatus", "resourceClaimStatuses") => Rule::retaining("name"),
        ("core.v1.PodSpec", "hostAliases") | ("core.v1.PodStatus", "podIPs" | "hostIPs") => {
            Rule::by("ip")
        }
        ("core.v1.PodSpec", "topologySpreadConstraints") => Rule::by("topologyKey"),
        ("core.v1.Container" | "core.v1.EphemeralContainer", "ports") => Rule::by("containerPort"),
        ("core.v1.Container" | "core.v1.EphemeralContainer", "volumeMounts") => {
            Rule::by("mountPath")
        }
        ("core.v1.Container" | "core.v1.EphemeralContainer", "volumeDevices") => {
            Rule::by("devicePath")
        }
        ("core.v1.ServiceSpec", "ports") => Rule::by("port"),
        ("core.v1.NodeStatus", "addresses") => Rule::by("type"),
        (owner, "conditions") if has_merged_conditions(owner) => Rule::by("type"),
        ("apps.v1.DeploymentSpec", "strategy") => Rule { retains: true, ..Rule::ATOMIC },
        _ => Rule::ATOMIC,
    }
}

fn has_merged_conditions(owner: &str) -> bool {
    matches!(
        owner,
        "core.v1.NodeStatus"
            | "core.v1.PodStatus"
            | "core.v1.NamespaceStatus"
            | "core.v1.ServiceStatus"
            | "core.v1.PersistentVolumeClaimStatus"
            | "apps.v1.DaemonSetStatus"
            | "apps.v1.DeploymentStatus"
            | "apps.v1.ReplicaSetStatus"
            | "apps.v1.StatefulSetStatus"
            | "policy.v1.PodDisruptionBudgetStatus"
    )
}
