//! The built-in kinds: one row each. Why each is there is in the crate's README.

use super::{
    NameRule, Resource,
    Rule::{self, Generation, PutCreates, PutNeedsVersion, RechecksMetadata, ShownWhenDeleted},
    ScalePaths, StorageKey, Strategy,
    Subresource::{self, Approval, Binding, Eviction, Finalize, Token},
    Subresources,
};

/// A row of the table of kinds.
struct Row {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    status: bool,
    scale: bool,
    parts: &'static [Subresource],
    names: NameRule,
    rules: &'static [Rule],
    /// The columns of tables: see `table::builtin`.
    columns: &'static str,
}

type Text = &'static str;

const fn namespaced(group: Text, kind: Text, plural: Text, columns: Text) -> Row {
    Row {
        group,
        version: "v1",
        kind,
        plural,
        short: &[],
        categories: &[],
        namespaced: true,
        status: false,
        scale: false,
        parts: &[],
        names: NameRule::Subdomain,
        rules: &[],
        columns,
    }
}

const fn cluster(group: Text, kind: Text, plural: Text, columns: Text) -> Row {
    Row { namespaced: false, ..namespaced(group, kind, plural, columns) }
}

const fn workload(kind: Text, plural: Text, short: &'static [Text], columns: Text) -> Row {
    let row = namespaced("apps", kind, plural, columns);
    Row { short, categories: &["all"], status: true, rules: &[Generation], ..row }
}

const fn role(kind: Text, plural: Text, namespaced: bool, columns: Text) -> Row {
    let row = cluster("rbac.authorization.k8s.io", kind, plural, columns);
    Row { namespaced, names: NameRule::PathSegment, ..row }
}

/// Columns that several workloads have.
macro_rules! ready {
    () => {
        "Ready=.status.readyReplicas|0&.spec.replicas|0"
    };
}
macro_rules! replicas {
    () => {
        "#Desired=.spec.replicas,#Current=.status.replicas,#Ready=.status.readyReplicas"
    };
}
macro_rules! template {
    () => {
        "+Containers=.spec.template.spec.containers[*].name,\
             +Images=.spec.template.spec.containers[*].image"
    };
}
macro_rules! selected {
    () => {
        ",+Selector=:.spec.selector.matchLabels"
    };
}

/// Declares [`BuiltIn`] and its table.
macro_rules! kinds {
    ($($kind:ident => $row:expr;)*) => {
        /// The kinds that are compiled in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum BuiltIn { $($kind),* }

        impl BuiltIn {
            pub(crate) const ALL: &[Self] = &[$(Self::$kind),*];

            const fn row(self) -> Row {
                match self { $(Self::$kind => $row),* }
            }
        }
    };
}

kinds! {
    ConfigMap => Row { short: &["cm"], rules: &[RechecksMetadata],
        ..namespaced("", "ConfigMap", "configmaps", "Name,Data,Age") };
    CoreEvent => Row { short: &["ev"], rules: &[PutCreates],
        ..namespaced("", "Event", "events", EVENT) };
    // the same objects as those of `CoreEvent`, in another form
    Event => Row { short: &["ev"], rules: &[PutCreates],
        ..namespaced("events.k8s.io", "Event", "events", EVENT) };
    Namespace => Row { short: &["ns"], status: true, parts: &[Finalize], names: NameRule::Label,
        rules: &[ShownWhenDeleted], ..cluster("", "Namespace", "namespaces", "Name,Status=.status.phase,Age") };
    Node => Row { short: &["no"], status: true, rules: &[RechecksMetadata],
        ..cluster("", "Node", "nodes", "Name,Status,Roles,Age,Version=.status.nodeInfo.kubeletVersion,\
            +Internal-IP=.status.addresses[?(@.type==\"InternalIP\")].address|<none>,\
            +External-IP=.status.addresses[?(@.type==\"ExternalIP\")].address|<none>,\
            +OS-Image=.status.nodeInfo.osImage|<unknown>,+Kernel-Version,\
            +Container-Runtime=.status.nodeInfo.containerRuntimeVersion|<unknown>") };
    PersistentVolumeClaim => Row { short: &["pvc"], status: true, rules: &[ShownWhenDeleted],
        ..namespaced("", "PersistentVolumeClaim", "persistentvolumeclaims", "Name,\
            Status=.status.phase,Volume=.spec.volumeName,Capacity=.status.capacity.storage,\
            Access Modes,StorageClass=.spec.storageClassName,\
            VolumeAttributesClass=.spec.volumeAttributesClassName|<unset>,Age,\
            +VolumeMode=.spec.volumeMode|<unset>") };
    PersistentVolume => Row { short: &["pv"], status: true, rules: &[ShownWhenDeleted],
        ..cluster("", "PersistentVolume", "persistentvolumes", "Name,\
            Capacity=.spec.capacity.storage,Access Modes,\
            Reclaim Policy=.spec.persistentVolumeReclaimPolicy,Status=.status.phase,Claim,\
            StorageClass=.spec.storageClassName,\
            VolumeAttributesClass=.spec.volumeAttributesClassName|<unset>,\
            Reason=.status.reason,Age,+VolumeMode=.spec.volumeMode|<unset>") };
    Pod => Row { short: &["po"], categories: &["all"], status: true, parts: &[Binding, Eviction],
        rules: &[Generation, RechecksMetadata, ShownWhenDeleted],
        ..namespaced("", "Pod", "pods", "Name,Ready,Status,Restarts,Age,+IP,+Node,\
            +Nominated Node,+Readiness Gates") };
    Secret => Row { categories: &["node-bound-tokens"], rules: &[RechecksMetadata],
        ..namespaced("", "Secret", "secrets", "Name,Type=.type,Data=#.data,Age") };
    ServiceAccount => Row { short: &["sa"], parts: &[Token],
        rules: &[RechecksMetadata, ShownWhenDeleted],
        ..namespaced("", "ServiceAccount", "serviceaccounts", "Name,Secrets=#.secrets,Age") };
    Service => Row { short: &["svc"], categories: &["all"], status: true,
        names: NameRule::Label1035, rules: &[PutCreates, ShownWhenDeleted],
        ..namespaced("", "Service", "services",
            "Name,Type=.spec.type,Cluster-IP=.spec.clusterIP|<none>,\
            External-IP=.spec.externalIPs[*]|<none>,Port(s),Age,+Selector=:.spec.selector|<none>") };
    DaemonSet => workload("DaemonSet", "daemonsets", &["ds"], concat!("Name,\
        #Desired=.status.desiredNumberScheduled,#Current=.status.currentNumberScheduled,\
        #Ready=.status.numberReady,#Up-to-date=.status.updatedNumberScheduled,\
        #Available=.status.numberAvailable,\
        Node Selector=:.spec.template.spec.nodeSelector|<none>,Age,", template!(), selected!()));
    Deployment => Row { scale: true, ..workload("Deployment", "deployments", &["deploy"],
        concat!("Name,", ready!(), ",Up-to-date=.status.updatedReplicas|0,\
            Available=.status.availableReplicas|0,Age,", template!(), selected!())) };
    ReplicaSet => Row { scale: true, ..workload("ReplicaSet", "replicasets", &["rs"],
        concat!("Name,", replicas!(), ",Age,", template!(), selected!())) };
    StatefulSet => Row { scale: true, ..workload("StatefulSet", "statefulsets", &["sts"],
        concat!("Name,", ready!(), ",Age,", template!())) };
    // what follows is stored for its clients, and nothing here acts on it
    ControllerRevision => namespaced("apps", "ControllerRevision", "controllerrevisions",
        "Name,Controller,#Revision=.revision,Age");
    Endpoints => Row { short: &["ep"],
        ..namespaced("", "Endpoints", "endpoints", "Name,Endpoints,Age") };
    EndpointSlice => Row { rules: &[Generation], ..namespaced("discovery.k8s.io", "EndpointSlice",
        "endpointslices", "Name,AddressType=.addressType,Ports,Endpoints,Age") };
    ReplicationController => Row { short: &["rc"], categories: &["all"], status: true,
        rules: &[Generation], ..namespaced("", "ReplicationController", "replicationcontrollers",
            concat!("Name,", replicas!(), ",Age,", template!(), ",+Selector=:.spec.selector")) };
    ResourceQuota => Row { short: &["quota"], status: true,
        ..namespaced("", "ResourceQuota", "resourcequotas", "Name,Request,Limit,Age") };
    NetworkPolicy => Row { short: &["netpol"], rules: &[Generation],
        ..namespaced("networking.k8s.io", "NetworkPolicy", "networkpolicies",
            "Name,Pod-Selector=:.spec.podSelector.matchLabels,Age") };
    Job => Row { categories: &["all"], status: true, rules: &[Generation],
        ..namespaced("batch", "Job", "jobs",
            concat!("Name,Status,Completions,Duration,Age,", template!(), selected!(), "|<none>")) };
    CronJob => Row { short: &["cj"], categories: &["all"], status: true, rules: &[Generation],
        ..namespaced("batch", "CronJob", "cronjobs", "Name,Schedule=.spec.schedule,\
            Timezone=.spec.timeZone|<none>,?Suspend=.spec.suspend,#Active=#.status.active,\
            Last Schedule=~.status.lastScheduleTime|<none>,Age,\
            +Containers=.spec.jobTemplate.spec.template.spec.containers[*].name,\
            +Images=.spec.jobTemplate.spec.template.spec.containers[*].image,\
            +Selector=:.spec.jobTemplate.spec.selector.matchLabels|<none>") };
    HorizontalPodAutoscaler => Row { version: "v2", short: &["hpa"], categories: &["all"],
        status: true, ..namespaced("autoscaling", "HorizontalPodAutoscaler",
            "horizontalpodautoscalers", "Name,\
            Reference=.spec.scaleTargetRef.kind&.spec.scaleTargetRef.name,\
            #MinPods=.spec.minReplicas,#MaxPods=.spec.maxReplicas,\
            #Replicas=.status.currentReplicas,Age") };
    PriorityClass => Row { short: &["pc"], rules: &[Generation], ..cluster("scheduling.k8s.io", "PriorityClass",
        "priorityclasses", "Name,#Value=.value,?Global-Default=.globalDefault,Age,\
            PreemptionPolicy=.preemptionPolicy") };
    StorageClass => Row { short: &["sc"], ..cluster("storage.k8s.io", "StorageClass",
        "storageclasses", "Name,Provisioner=.provisioner,ReclaimPolicy=.reclaimPolicy,\
            VolumeBindingMode=.volumeBindingMode,?AllowVolumeExpansion=.allowVolumeExpansion,Age") };
    CsiDriver => cluster("storage.k8s.io", "CSIDriver", "csidrivers",
        "Name,?AttachRequired=.spec.attachRequired,?PodInfoOnMount=.spec.podInfoOnMount,\
            ?StorageCapacity=.spec.storageCapacity,?RequiresRepublish=.spec.requiresRepublish,\
            Modes=.spec.volumeLifecycleModes[*],Age");
    CsiStorageCapacity => namespaced("storage.k8s.io", "CSIStorageCapacity",
        "csistoragecapacities", "Name,StorageClassName=.storageClassName,Capacity=.capacity,Age");
    ResourceSlice => cluster("resource.k8s.io", "ResourceSlice", "resourceslices",
        "Name,Node=.spec.nodeName,Driver=.spec.driver,Pool=.spec.pool.name,Age");
    ResourceClaim => Row { status: true, ..namespaced("resource.k8s.io", "ResourceClaim",
        "resourceclaims", "Name,State,Age") };
    ResourceClaimTemplate => namespaced("resource.k8s.io", "ResourceClaimTemplate",
        "resourceclaimtemplates", "Name,Age");
    DeviceClass => cluster("resource.k8s.io", "DeviceClass", "deviceclasses", "Name,Age");
    PodDisruptionBudget => Row { short: &["pdb"], status: true,
        rules: &[Generation, PutNeedsVersion],
        ..namespaced("policy", "PodDisruptionBudget", "poddisruptionbudgets",
            "Name,Min Available=.spec.minAvailable|N/A,Max Unavailable=.spec.maxUnavailable|N/A,\
            #Allowed Disruptions=.status.disruptionsAllowed,Age") };
    Lease => Row { rules: &[PutCreates, PutNeedsVersion],
        ..namespaced("coordination.k8s.io", "Lease", "leases", "Name,Holder=.spec.holderIdentity,Age") };
    CertificateSigningRequest => Row { short: &["csr"], status: true, parts: &[Approval],
        names: NameRule::PathSegment, ..cluster("certificates.k8s.io",
            "CertificateSigningRequest", "certificatesigningrequests",
            "Name,Age,SignerName=.spec.signerName|<none>,Requestor=.spec.username,\
            RequestedDuration,Condition") };
    RuntimeClass => cluster("node.k8s.io", "RuntimeClass", "runtimeclasses", "Name,Handler=.handler,Age");
    // the four RBAC kinds are stored, and no rule of this server reads them
    ClusterRoleBinding => role("ClusterRoleBinding", "clusterrolebindings", false, ROLE_BINDING);
    ClusterRole => role("ClusterRole", "clusterroles", false, CREATED);
    RoleBinding => role("RoleBinding", "rolebindings", true, ROLE_BINDING);
    Role => role("Role", "roles", true, CREATED);
    CsiNode => Row { rules: &[PutNeedsVersion, ShownWhenDeleted],
        ..cluster("storage.k8s.io", "CSINode", "csinodes", "Name,#Drivers=#.spec.drivers,Age") };
    VolumeAttachment => Row { status: true, rules: &[PutNeedsVersion, ShownWhenDeleted],
        ..cluster("storage.k8s.io", "VolumeAttachment", "volumeattachments",
            "Name,Attacher=.spec.attacher,PV=.spec.source.persistentVolumeName,\
            Node=.spec.nodeName,?Attached=.status.attached,Age") };
    CustomResourceDefinition => Row { short: &["crd", "crds"], categories: &["api-extensions"],
        status: true, rules: &[Generation, PutNeedsVersion], ..cluster("apiextensions.k8s.io",
            "CustomResourceDefinition", "customresourcedefinitions", CREATED) };
}

const EVENT: &str = "Last Seen,Type=.type,Reason=.reason,Object,+Subobject=.involvedObject.fieldPath,+Source,\
     Message,+First Seen,+Count,+Name";
const ROLE_BINDING: &str =
    "Name,Role=.roleRef.kind&.roleRef.name,Age,+Users,+Groups,+ServiceAccounts";
const CREATED: &str = "Name,@Created At=.metadata.creationTimestamp";

const VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const VERBS_ONE_BY_ONE: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

impl BuiltIn {
    /// Its descriptor.
    pub(crate) fn resource(self) -> Resource {
        let row = self.row();
        let owned = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect();
        let storage_group = if self == Self::Event { "" } else { row.group };
        Resource {
            group: row.group.to_owned(),
            version: row.version.to_owned(),
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
                others: row.parts,
            },
            verbs: if self == Self::Namespace { VERBS_ONE_BY_ONE } else { VERBS },
            storage: StorageKey { group: storage_group.to_owned(), plural: row.plural.to_owned() },
            terminating: false,
            names: row.names,
            rules: row.rules,
            strategy: Strategy::BuiltIn(self),
        }
    }

    /// Its name in objects.
    pub(super) const fn kind(self) -> &'static str {
        self.row().kind
    }

    /// The columns of its tables, in the notation of `table::builtin`.
    pub(crate) const fn columns(self) -> &'static str {
        self.row().columns
    }

    /// The name of its type in the catalogue.
    pub(crate) fn type_name(self) -> String {
        let Row { group, version, kind, .. } = self.row();
        type_name(group, version, kind)
    }
}

/// The name of a type in the catalogue, such as `io.k8s.api.core.v1.Pod`.
pub(crate) fn type_name(group: &str, version: &str, kind: &str) -> String {
    let package = match group.split('.').next().unwrap_or_default() {
        "" => "api.core",
        "apiextensions" => "apiextensions-apiserver.pkg.apis.apiextensions",
        first => return format!("io.k8s.api.{first}.{version}.{kind}"),
    };
    format!("io.k8s.{package}.{version}.{kind}")
}

fn replica_paths() -> ScalePaths {
    ScalePaths {
        spec_replicas: ".spec.replicas".to_owned(),
        status_replicas: ".status.replicas".to_owned(),
        label_selector: Some(".spec.selector".to_owned()),
    }
}
