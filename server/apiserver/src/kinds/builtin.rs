//! The built-in kinds: one row each.

use super::{NameRule, Resource, ScalePaths, StorageKey, Strategy, Subresource, Subresources};

/// The kinds that are compiled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BuiltIn {
    /// core/v1 ConfigMap.
    ConfigMap,
    /// core/v1 Event.
    CoreEvent,
    /// events.k8s.io/v1 Event: another face of [`BuiltIn::CoreEvent`].
    Event,
    /// core/v1 Namespace.
    Namespace,
    /// core/v1 Node.
    Node,
    /// core/v1 PersistentVolumeClaim.
    PersistentVolumeClaim,
    /// core/v1 PersistentVolume.
    PersistentVolume,
    /// core/v1 Pod.
    Pod,
    /// core/v1 Secret.
    Secret,
    /// core/v1 ServiceAccount.
    ServiceAccount,
    /// core/v1 Service.
    Service,
    /// apps/v1 DaemonSet.
    DaemonSet,
    /// apps/v1 Deployment.
    Deployment,
    /// apps/v1 ReplicaSet.
    ReplicaSet,
    /// apps/v1 StatefulSet.
    StatefulSet,
    /// policy/v1 PodDisruptionBudget.
    PodDisruptionBudget,
    /// coordination.k8s.io/v1 Lease.
    Lease,
    /// certificates.k8s.io/v1 CertificateSigningRequest.
    CertificateSigningRequest,
    /// rbac.authorization.k8s.io/v1 ClusterRoleBinding: stored, and obeyed by nobody.
    ClusterRoleBinding,
    /// rbac.authorization.k8s.io/v1 ClusterRole.
    ClusterRole,
    /// rbac.authorization.k8s.io/v1 RoleBinding.
    RoleBinding,
    /// rbac.authorization.k8s.io/v1 Role.
    Role,
    /// storage.k8s.io/v1 CSINode.
    CsiNode,
    /// storage.k8s.io/v1 VolumeAttachment.
    VolumeAttachment,
    /// apiextensions.k8s.io/v1 CustomResourceDefinition.
    CustomResourceDefinition,
}

const VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const VERBS_ONE_BY_ONE: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

/// What a row of the table says.
struct Row {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    status: bool,
    scale: bool,
    others: &'static [Subresource],
}

impl BuiltIn {
    /// All of them, in the order of group and plural name.
    pub const ALL: [Self; 25] = [
        Self::ConfigMap,
        Self::CoreEvent,
        Self::Namespace,
        Self::Node,
        Self::PersistentVolumeClaim,
        Self::PersistentVolume,
        Self::Pod,
        Self::Secret,
        Self::ServiceAccount,
        Self::Service,
        Self::DaemonSet,
        Self::Deployment,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::Event,
        Self::CertificateSigningRequest,
        Self::PodDisruptionBudget,
        Self::Lease,
        Self::ClusterRoleBinding,
        Self::ClusterRole,
        Self::RoleBinding,
        Self::Role,
        Self::CsiNode,
        Self::VolumeAttachment,
        Self::CustomResourceDefinition,
    ];

    fn row(self) -> Row {
        let row = |group, kind, plural| Row {
            group,
            kind,
            plural,
            short: &[],
            categories: &[],
            namespaced: true,
            status: false,
            scale: false,
            others: &[],
        };
        match self {
            Self::ConfigMap => Row { short: &["cm"], ..row("", "ConfigMap", "configmaps") },
            Self::CoreEvent => Row { short: &["ev"], ..row("", "Event", "events") },
            Self::Namespace => Row {
                short: &["ns"],
                namespaced: false,
                status: true,
                others: &[Subresource::Finalize],
                ..row("", "Namespace", "namespaces")
            },
            Self::Node => {
                Row { short: &["no"], namespaced: false, status: true, ..row("", "Node", "nodes") }
            }
            Self::PersistentVolumeClaim => Row {
                short: &["pvc"],
                status: true,
                ..row("", "PersistentVolumeClaim", "persistentvolumeclaims")
            },
            Self::PersistentVolume => Row {
                short: &["pv"],
                namespaced: false,
                status: true,
                ..row("", "PersistentVolume", "persistentvolumes")
            },
            Self::Pod => Row {
                short: &["po"],
                categories: &["all"],
                status: true,
                others: &[Subresource::Binding, Subresource::Eviction],
                ..row("", "Pod", "pods")
            },
            Self::Secret => row("", "Secret", "secrets"),
            Self::ServiceAccount => Row {
                short: &["sa"],
                others: &[Subresource::Token],
                ..row("", "ServiceAccount", "serviceaccounts")
            },
            Self::Service => Row {
                short: &["svc"],
                categories: &["all"],
                status: true,
                ..row("", "Service", "services")
            },
            Self::DaemonSet
            | Self::Deployment
            | Self::ReplicaSet
            | Self::StatefulSet
            | Self::Event
            | Self::PodDisruptionBudget
            | Self::Lease
            | Self::CertificateSigningRequest
            | Self::ClusterRoleBinding
            | Self::ClusterRole
            | Self::RoleBinding
            | Self::Role
            | Self::CsiNode
            | Self::VolumeAttachment
            | Self::CustomResourceDefinition => self.row_of_group(),
        }
    }

    fn row_of_group(self) -> Row {
        let row = |group, kind, plural| Row {
            group,
            kind,
            plural,
            short: &[],
            categories: &[],
            namespaced: true,
            status: false,
            scale: false,
            others: &[],
        };
        let workload = |kind, plural, short, scale| Row {
            short,
            categories: &["all"],
            status: true,
            scale,
            ..row("apps", kind, plural)
        };
        let role = |kind, plural, namespaced| Row {
            namespaced,
            ..row("rbac.authorization.k8s.io", kind, plural)
        };
        match self {
            Self::DaemonSet => workload("DaemonSet", "daemonsets", &["ds"], false),
            Self::Deployment => workload("Deployment", "deployments", &["deploy"], true),
            Self::ReplicaSet => workload("ReplicaSet", "replicasets", &["rs"], true),
            Self::StatefulSet => workload("StatefulSet", "statefulsets", &["sts"], true),
            Self::Event => Row { short: &["ev"], ..row("events.k8s.io", "Event", "events") },
            Self::PodDisruptionBudget => Row {
                short: &["pdb"],
                status: true,
                ..row("policy", "PodDisruptionBudget", "poddisruptionbudgets")
            },
            Self::CertificateSigningRequest => {
                let (kind, plural) = ("CertificateSigningRequest", "certificatesigningrequests");
                let others = &[Subresource::Approval];
                let row = row("certificates.k8s.io", kind, plural);
                Row { short: &["csr"], namespaced: false, status: true, others, ..row }
            }
            Self::ClusterRoleBinding => role("ClusterRoleBinding", "clusterrolebindings", false),
            Self::ClusterRole => role("ClusterRole", "clusterroles", false),
            Self::RoleBinding => role("RoleBinding", "rolebindings", true),
            Self::Role => role("Role", "roles", true),
            Self::CsiNode => {
                Row { namespaced: false, ..row("storage.k8s.io", "CSINode", "csinodes") }
            }
            Self::VolumeAttachment => Row {
                namespaced: false,
                status: true,
                ..row("storage.k8s.io", "VolumeAttachment", "volumeattachments")
            },
            Self::CustomResourceDefinition => {
                let (kind, plural) = ("CustomResourceDefinition", "customresourcedefinitions");
                let (short, categories) = (&["crd", "crds"], &["api-extensions"]);
                let row = row("apiextensions.k8s.io", kind, plural);
                Row { short, categories, namespaced: false, status: true, ..row }
            }
            Self::Lease
            | Self::ConfigMap
            | Self::CoreEvent
            | Self::Namespace
            | Self::Node
            | Self::PersistentVolumeClaim
            | Self::PersistentVolume
            | Self::Pod
            | Self::Secret
            | Self::ServiceAccount
            | Self::Service => row("coordination.k8s.io", "Lease", "leases"),
        }
    }

    /// Its descriptor.
    pub fn resource(self) -> Resource {
        let row = self.row();
        let owned = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect();
        let storage_group = if self == Self::Event { "" } else { row.group };
        Resource {
            group: row.group.to_owned(),
            version: "v1".to_owned(),
            kind: row.kind.to_owned(),
            list_kind: format!("{}List", row.kind),
            plural: row.plural.to_owned(),
            singular: row.kind.to_lowercase(),
            short_names: owned(row.short),
            categories: owned(row.categories),
            namespaced: row.namespaced,
            subresources: Subresources {
                status: row.status,
                scale: row.scale.then(replica_paths),
                others: row.others,
            },
            verbs: if self == Self::Namespace { VERBS_ONE_BY_ONE } else { VERBS },
            storage: StorageKey { group: storage_group.to_owned(), plural: row.plural.to_owned() },
            terminating: false,
            strategy: Strategy::BuiltIn(self),
        }
    }

    /// Whether objects carry `metadata.generation`.
    pub fn has_generation(self) -> bool {
        match self {
            Self::Pod
            | Self::DaemonSet
            | Self::Deployment
            | Self::ReplicaSet
            | Self::StatefulSet
            | Self::PodDisruptionBudget
            | Self::CustomResourceDefinition => true,
            Self::ConfigMap
            | Self::CoreEvent
            | Self::Event
            | Self::Namespace
            | Self::Node
            | Self::PersistentVolumeClaim
            | Self::PersistentVolume
            | Self::Secret
            | Self::ServiceAccount
            | Self::Service
            | Self::Lease
            | Self::CertificateSigningRequest
            | Self::ClusterRoleBinding
            | Self::ClusterRole
            | Self::RoleBinding
            | Self::Role
            | Self::CsiNode
            | Self::VolumeAttachment => false,
        }
    }

    /// Whether the metadata of a changed object is checked as if it were new.
    pub(super) const fn rechecks_metadata(self) -> bool {
        matches!(
            self,
            Self::ConfigMap | Self::Secret | Self::Node | Self::Pod | Self::ServiceAccount
        )
    }

    /// What names of objects must look like.
    pub fn name_rule(self) -> NameRule {
        match self {
            Self::Namespace => NameRule::Label,
            Self::Service => NameRule::Label1035,
            Self::CertificateSigningRequest
            | Self::ClusterRoleBinding
            | Self::ClusterRole
            | Self::RoleBinding
            | Self::Role => NameRule::PathSegment,
            Self::ConfigMap
            | Self::CoreEvent
            | Self::Event
            | Self::Node
            | Self::PersistentVolumeClaim
            | Self::PersistentVolume
            | Self::Pod
            | Self::Secret
            | Self::ServiceAccount
            | Self::DaemonSet
            | Self::Deployment
            | Self::ReplicaSet
            | Self::StatefulSet
            | Self::PodDisruptionBudget
            | Self::Lease
            | Self::CsiNode
            | Self::VolumeAttachment
            | Self::CustomResourceDefinition => NameRule::Subdomain,
        }
    }
}

fn replica_paths() -> ScalePaths {
    ScalePaths {
        spec_replicas: ".spec.replicas".to_owned(),
        status_replicas: ".status.replicas".to_owned(),
        label_selector: Some(".spec.selector".to_owned()),
    }
}
