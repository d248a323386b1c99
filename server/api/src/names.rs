//! Fixed strings that other programs read or write: groups, finalizers, labels, annotations, taints.
//!
//! Everything that is not marked as ours is upstream's and must not change.

/// API group of the machine kinds.
pub const GROUP: &str = "machine.sapcloud.io";
/// The only version of the machine kinds.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of the machine kinds.
pub const API_VERSION: &str = "machine.sapcloud.io/v1alpha1";

/// Category of `secrets` in the discovery of an API server that looks at the Node that is named on a bootstrap token. Ours;
/// any server may tell it.
pub const BOUND_TOKENS: &str = "node-bound-tokens";

/// Kind of a Machine.
pub const MACHINE: &str = "Machine";
/// Kind of a MachineClass; the only value of `spec.class.kind` that works.
pub const MACHINE_CLASS: &str = "MachineClass";
/// Kind of a MachineSet.
pub const MACHINE_SET: &str = "MachineSet";
/// Kind of a MachineDeployment.
pub const MACHINE_DEPLOYMENT: &str = "MachineDeployment";
/// Kind of a MachinePool. Ours.
pub const MACHINE_POOL: &str = "MachinePool";
/// Kind of a MachineReserve. Ours.
pub const MACHINE_RESERVE: &str = "MachineReserve";
/// API group of our own kinds.
pub const OWN_GROUP: &str = "ostler.dev";
/// `apiVersion` of our own kinds.
pub const OWN_API_VERSION: &str = "ostler.dev/v1alpha1";

/// Name of the Lease that the leading core holds; upstream's, so that both never act at the same
/// time.
pub const LEADER_LEASE: &str = "machine-controller";
/// Name of the Lease of the process that runs MachineSets and MachineDeployments; upstream's.
pub const SETS_LEASE: &str = "machine-controller-manager";
/// ConfigMap that remembers the cluster id.
pub const CLUSTER_ID_CONFIG_MAP: &str = "ostler-cluster-id";

/// Finalizers.
pub mod finalizer {
    /// On Machines, MachineClasses, MachineSets and MachineDeployments.
    pub const MACHINE: &str = "machine.sapcloud.io/machine-controller-manager";
    /// On MachinePools. Ours.
    pub const POOL: &str = "ostler.dev/machine-pool";
    /// On Secrets that a class names.
    pub const SECRET: &str = "machine.sapcloud.io/machine-controller";
    /// On the Leases of the core and on the ConfigMap of its cluster id, while there is what only a core deletes. Ours.
    pub const CORE: &str = "ostler.dev/core";
    /// On Nodes of Machines.
    pub const NODE: &str = "node.machine.sapcloud.io/machine-controller";
}

/// Labels.
pub mod label {
    /// On a Machine: the name of its Node.
    pub const NODE: &str = "node";
    /// On a Machine: the name of its MachineDeployment, by convention of the writing controller.
    pub const DEPLOYMENT_NAME: &str = "name";
    /// On a Node: the name of its Machine.
    pub const MACHINE_NAME: &str = "node.gardener.cloud/machine-name";
    /// On a Machine: the target cluster that its Node joins, as in Cluster API.
    pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
    /// On a Machine, a Go bool: drain and delete by force.
    pub const FORCE_DELETION: &str = "force-deletion";
    /// On a Machine, `True`: a drain without a deletion uses force.
    pub const FORCE_DRAIN: &str = "force-drain";
    /// On a Node, any value: it may be updated in place, once it is selected.
    pub const CANDIDATE_FOR_UPDATE: &str = "node.machine.sapcloud.io/candidate-for-update";
    /// On a candidate Node, any value: the Node's turn has come.
    pub const SELECTED_FOR_UPDATE: &str = "node.machine.sapcloud.io/selected-for-update";
    /// On a Node: how its update in place went, `successful` or `failed`. Set by the updating program.
    pub const UPDATE_RESULT: &str = "node.machine.sapcloud.io/update-result";
    /// On MachineSets, their Machines and both selectors: tells the templates of a MachineDeployment apart.
    pub const TEMPLATE_HASH: &str = "machine-template-hash";
    /// On a MachineSet: name of its MachineDeployment, as in Cluster API.
    pub const CLUSTER_API_DEPLOYMENT: &str = "cluster.x-k8s.io/deployment-name";
    /// On a Machine: its MachinePool, formatted so that every name fits, as in Cluster API.
    pub const POOL_NAME: &str = "cluster.x-k8s.io/pool-name";
    /// On a Machine: name of the MachineReserve that keeps the Machine ready. Ours.
    pub const RESERVE: &str = "ostler.dev/reserve";
    /// On a MachineSet or MachineDeployment, `True`: it creates nothing, since it has far too many Machines.
    pub const FREEZE: &str = "freeze";
    /// On a MachineSet, any value: it creates nothing, since its Machines are updated in place.
    pub const SCALE_UP_DISABLED: &str = "node.machine.sapcloud.io/scale-up-disabled";
    /// On Machines, Nodes and node templates: the zone.
    pub const ZONE: &str = "topology.kubernetes.io/zone";
    /// ClusterRole whose rights are added to the core's own, `"true"`: lets it at the kinds of a
    /// bootstrap provider. Ours.
    pub const AGGREGATE_TO_CORE: &str = "ostler.dev/aggregate-to-core";
    /// On a CustomResourceDefinition, `"true"`: the objects are a bootstrap provider's, each for one Machine. Ours.
    pub const BOOTSTRAP_KIND: &str = "ostler.dev/bootstrap-kind";
    /// On a CustomResourceDefinition: its provider in Cluster API, such as `bootstrap-kubeadm`.
    pub const CLUSTER_API_PROVIDER: &str = "cluster.x-k8s.io/provider";
}

/// Annotations.
pub mod annotation {
    /// On a Machine that an autoscaler chose: when it did, as RFC 3339.
    pub const MARKED_FOR_DELETION: &str = "machine.sapcloud.io/marked-for-deletion-time";
    /// On a MachineDeployment and its MachineSets: when an autoscaler last changed the replicas, as RFC 3339.
    pub const REPLICAS_CHANGED_BY_SCALER: &str =
        "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time";
    /// On a MachineDeployment or MachinePool: Machines that an autoscaler wants gone, `name~time` separated by commas.
    pub const TRIGGER_DELETION: &str = "node.machine.sapcloud.io/trigger-deletion-by-mcm";
    /// On a Lease that was given up: the term whose requests had all been answered by then.
    pub const ENDED_TERM: &str = "ostler.dev/ended-term";
    /// On the Lease of a core: the namespaces served by the holder, as in `--namespace`.
    pub const SERVED_NAMESPACES: &str = "ostler.dev/served-namespaces";
    /// On a Machine, any value: the set or pool deletes this Machine first, as in Cluster API.
    pub const DELETE_MACHINE: &str = "machine.sapcloud.io/delete-machine";
    /// The same in Cluster API's own name. Only pools read it.
    pub const CLUSTER_API_DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
    /// On a MachinePool, any value but `false`: another system decides how many instances it has, as in Cluster API.
    pub const REPLICAS_MANAGED_BY: &str = "cluster.x-k8s.io/replicas-managed-by";
    /// On a MachinePool, MachineSet or MachineDeployment: the least that an autoscaler may ask for, as in Cluster API.
    pub const AUTOSCALER_MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
    /// The same on a MachineSet or MachineDeployment, under the name in Cluster API's provider of the
    /// cluster-autoscaler for this API group.
    pub const AUTOSCALER_MIN_OF_GROUP: &str =
        "machine.sapcloud.io/cluster-api-autoscaler-node-group-min-size";
    /// The most that an autoscaler may ask for, on the same kinds and on MachineSets.
    pub const AUTOSCALER_MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
    /// The same for this API group.
    pub const AUTOSCALER_MAX_OF_GROUP: &str =
        "machine.sapcloud.io/cluster-api-autoscaler-node-group-max-size";
    /// Ours, on a MachineDeployment, MachineSet or MachinePool: which of its annotations
    /// `capacity.cluster-autoscaler.kubernetes.io/…` come from its class, separated by commas.
    pub const DERIVED_CAPACITY: &str = "ostler.dev/derived-capacity";
    /// Ours, on a MachineDeployment or MachinePool: when an autoscaler last scaled it through the core, and how, for people.
    pub const LAST_SCALING: &str = "ostler.dev/last-scaling";
    /// On a Node: its Machine, and the Machine's namespace, under Cluster API's names for this API group.
    pub const MACHINE_OF_NODE: &str = "machine.sapcloud.io/machine";
    /// See [`MACHINE_OF_NODE`].
    pub const CLUSTER_NAMESPACE: &str = "machine.sapcloud.io/cluster-namespace";
    /// Ours, on a Machine in reserve: digest of the template that it was made from.
    pub const RESERVE_TEMPLATE: &str = "ostler.dev/reserve-template";
    /// On a Machine of a pool: its instance is to be updated in place, as soon as the budget allows. The pool writes the
    /// hash of the model, a user any value.
    pub const UPDATE_INSTANCE: &str = "ostler.dev/update-instance";
    /// The same, as Cluster API's provider for Azure calls it.
    pub const CLUSTER_API_UPDATE_INSTANCE: &str =
        "azuremachinepool.infrastructure.cluster.x-k8s.io/updateInstance";
    /// On a Machine of a pool: the budget has a place for the update of its instance. The pool writes the annotation,
    /// and removes it.
    pub const UPDATE_BEGUN: &str = "ostler.dev/update-begun";
    /// Ours, on a Machine of a pool: the instance that its group has no more. The Machine goes without asking again.
    pub const INSTANCE_GONE: &str = "ostler.dev/instance-gone";
    /// Ours, on a Machine of a deleted pool whose driver cannot delete single instances: the Machine is drained, and
    /// the instance goes with the group.
    pub const POOL_DELETED: &str = "ostler.dev/pool-deleted";
    /// Ours, on a Machine: what a MachineHealthCheck says against it, see
    /// [`UnhealthyMark`](crate::machine_health_check::UnhealthyMark).
    pub const UNHEALTHY: &str = "ostler.dev/unhealthy";
    /// On a Machine, any value: a MachineHealthCheck with this Machine finds it unhealthy, as in Cluster API.
    pub const REMEDIATE_MACHINE: &str = "cluster.x-k8s.io/remediate-machine";
    /// On a Machine, any value: no MachineHealthCheck looks at it, as in Cluster API.
    pub const SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";
    /// On a MachineSet or MachineDeployment, any value: lift its freeze.
    pub const UNFREEZE: &str = "safety.machine.sapcloud.io/unfreeze";
    /// On a MachineSet and the Nodes of its Machines: tainted so that pods prefer newer Nodes. Key of the taint, too.
    pub const PREFER_NO_SCHEDULE: &str = "deployment.machine.sapcloud.io/prefer-no-schedule";
    /// On a MachineDeployment and its MachineSets: number of the rollout.
    pub const REVISION: &str = "deployment.kubernetes.io/revision";
    /// The same on the same objects, as in Cluster API.
    pub const CLUSTER_API_REVISION: &str = "machinedeployment.clusters.x-k8s.io/revision";
    /// On a MachineDeployment, any value: as `spec.paused`, as in Cluster API.
    pub const CLUSTER_API_PAUSED: &str = "cluster.x-k8s.io/paused";
    /// On a copy of a template: the name of the template. Cluster API's.
    pub const CLONED_FROM_NAME: &str = "cluster.x-k8s.io/cloned-from-name";
    /// On a copy of a template: kind and group of the template, as `Kind.group`. Cluster API's.
    pub const CLONED_FROM_GROUP_KIND: &str = "cluster.x-k8s.io/cloned-from-groupkind";
    /// kubectl's own.
    pub const LAST_APPLIED_CONFIGURATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
    /// Ours, on a MachineSet: the annotations that come from its MachineDeployment, separated by commas.
    pub const COPIED_ANNOTATIONS: &str = "ostler.dev/copied-annotations";
    /// On a MachineSet: its earlier numbers, separated by commas.
    pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
    /// On a MachineSet: replicas of its MachineDeployment.
    pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
    /// On a MachineSet: replicas of its MachineDeployment, and its surge.
    pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
    /// Ours, on a Machine without a controller: UID of the MachineSet that let it go because its labels changed.
    pub const RELEASED_BY: &str = "ostler.dev/released-by";
    /// Ours, on a MachineSet: which Machines go first among equals: `Oldest` (the default), `Newest` or `Random`.
    pub const DELETE_POLICY: &str = "ostler.dev/delete-policy";
    /// Ours, on a MachineDeployment: how many of its unhealthy Machines are replaced at the same time, 1 without it.
    pub const MAX_UNHEALTHY_REPLACEMENTS: &str = "ostler.dev/max-unhealthy-replacements";
    /// Ours, on a Machine, any value: its update in place that failed is tried again.
    pub const RETRY_UPDATE: &str = "ostler.dev/retry-update";
    /// Ours, on the template of a MachineDeployment: when a user asked for new Machines with the template as it is.
    pub const RESTARTED_AT: &str = "ostler.dev/restartedAt";
    /// Ours, on a MachineSet: who runs it, `ostler` or the name of another controller. Only asked for when another process
    /// was seen to run it without the Lease of the sets.
    pub const RUN_BY: &str = "ostler.dev/run-by";
    /// On a Machine: an integer, the lowest is deleted first.
    pub const PRIORITY: &str = "machinepriority.machine.sapcloud.io";
    /// Value of [`PRIORITY`] for a Machine that has none.
    pub const DEFAULT_PRIORITY: &str = "3";
    /// On a Machine: the provider spec that its driver last reported as fully applied, as JSON.
    pub const LAST_APPLIED_PROVIDER_SPEC: &str = "machine.sapcloud.io/last-applied-providerspec";
    /// Ours, on a Machine: the provider spec that its class had when its Node was updated in place, as JSON. The
    /// deployment writes the annotation at the hand-over of the Machine.
    pub const IN_PLACE_PROVIDER_SPEC: &str = "ostler.dev/in-place-providerspec";
    /// Ours, on a Machine: the spec that counts as the instance's since an update in place, as JSON: the last applied
    /// spec, but for fields that the driver cannot change, which are as the update left them.
    pub const SETTLED_PROVIDER_SPEC: &str = "ostler.dev/settled-providerspec";
    /// On a Machine: a Go duration that wins over `spec.creationTimeout`.
    pub const EFFECTIVE_CREATION_TIMEOUT: &str =
        "node.machine.sapcloud.io/effective-creation-timeout";
    /// On a Node: `1` keeps all machine controllers away from it.
    pub const NOT_MANAGED: &str = "node.machine.sapcloud.io/not-managed-by-mcm";
    /// On a Machine or Node: keep it for examination.
    pub const PRESERVE: &str = "node.machine.sapcloud.io/preserve";
    /// On a Machine: the last value of [`PRESERVE`] on its Node.
    pub const LAST_NODE_PRESERVE: &str =
        "node.machine.sapcloud.io/last-applied-node-preserve-value";
    /// On a Node, `true`: the cluster-autoscaler leaves it alone.
    pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
    /// On a Node, `true`: a machine controller put [`SCALE_DOWN_DISABLED`] there.
    pub const SCALE_DOWN_DISABLED_BY_US: &str =
        "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm";
    /// On a Node: why its update in place failed, for people.
    pub const UPDATE_FAILED_REASON: &str = "node.machine.sapcloud.io/update-failed-reason";
    /// On a Node: the node template that was last applied, as JSON.
    pub const LAST_APPLIED_NODE_TEMPLATE: &str =
        "node.machine.sapcloud.io/last-applied-anno-labels-taints";
    /// On a Node: the virtual capacity that was last applied, as JSON.
    pub const LAST_APPLIED_VIRTUAL_CAPACITY: &str =
        "node.machine.sapcloud.io/last-applied-virtual-capacity";
    /// Ours, on a Node, beside our finalizer: id of the cluster whose core put that there. The cores of others leave the
    /// Node alone.
    pub const CLUSTER_ID: &str = "ostler.dev/cluster-id";
    /// Ours, on a Node: whether the Node joined with the taint `critical-components-not-ready`, so that a controller
    /// for the taint exists.
    pub const CRITICAL_COMPONENTS: &str = "ostler.dev/critical-components";
    /// Ours, on a Node: `key:effect` of each taint from the Node's joining that the kubelet is to keep, separated by
    /// commas.
    pub const JOINED_TAINTS: &str = "ostler.dev/joined-taints";
    /// Ours, on a Node: what of its labels, annotations and taints the node template of its Machine replaced, in the form of
    /// a node template. It is put back when the template does not want it any more.
    pub const REPLACED_BY_TEMPLATE: &str = "ostler.dev/replaced-by-node-template";
    /// Ours, on the ConfigMap of the cluster id: the configured namespace of the core's ConfigMap, if that namespace
    /// has ended.
    pub const HOME_OF: &str = "ostler.dev/home-of";
    /// Ours, on a MachineClass. `true`: adopt instances that carry the machine's name and no UID; `false`: never.
    /// Without it, nothing is adopted by name, and nothing is made for a Machine that another controller began.
    pub const ADOPT_BY_NAME: &str = "ostler.dev/adopt-by-name";
    /// Ours, on a Machine: the request to its driver, see [`OperationRecord`](crate::OperationRecord).
    pub const OPERATION: &str = "ostler.dev/operation";
    /// Ours, on a Machine that is being deleted: the provider id of an instance that its driver calls
    /// not ours. The Machine goes, and the instance stays.
    pub const ABANDON_INSTANCE: &str = "ostler.dev/abandon-instance";
    /// Ours, on the Secret of a bootstrap token: UID of the Machine that it was made for.
    pub const TOKEN_OF: &str = "ostler.dev/machine-uid";
    /// Ours, on the Secret of a bootstrap token: the only Node that may join with the token, once known. The embedded
    /// API server signs for no other Node.
    pub const TOKEN_NODE: &str = "ostler.dev/node-name";
    /// Ours, on a Machine or MachineClass: any value but `false` keeps us from changing anything.
    pub const PAUSED: &str = "ostler.dev/paused";
    /// Ours, on a Machine: seconds or a Go duration; a pod that has been terminating for longer is
    /// not waited for by a drain.
    pub const SKIP_WAIT_FOR_DELETE: &str = "ostler.dev/skip-wait-for-delete-timeout";
    /// On a Pod: made by the kubelet itself, cannot be evicted.
    pub const MIRROR_POD: &str = "kubernetes.io/config.mirror";
}

/// Annotations on a Machine that hold its deletion, as Cluster API has them: `<prefix>/<name>`, the value says who owns
/// the hook. The hook's own controller removes it.
pub mod hook {
    /// Nothing is drained while there is one.
    pub const PRE_DRAIN: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io";
    /// The instance is not deleted while there is one.
    pub const PRE_TERMINATE: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io";
}

/// Taints.
pub mod taint {
    /// On a Node until its Machine is Running. Put there by the kubelet.
    pub const INSTANCE_NOT_READY: &str = "node.machine.sapcloud.io/instance-not-ready";
    /// On the Node of a Failed Machine that is preserved.
    pub const PRESERVED: &str = "node.machine.sapcloud.io/preserved";
    /// On the Node of a Machine in reserve, until a set takes that. Ours.
    pub const RESERVE: &str = "ostler.dev/reserve";
    /// On a Node until its critical components run. A Pending Machine waits for its removal.
    pub const CRITICAL_COMPONENTS_NOT_READY: &str =
        "node.gardener.cloud/critical-components-not-ready";
}

/// Conditions of a Node that machine controllers write.
pub mod node_condition {
    /// True: its Machine is being deleted.
    pub const TERMINATING: &str = "Terminating";
    /// Whether its Machine is preserved.
    pub const PRESERVED: &str = "Preserved";
    /// The stage of the Node's update in place, in the reason.
    pub const IN_PLACE_UPDATE: &str = "InPlaceUpdate";
}

/// Tags that a driver sets on all objects it makes. Together they are the identity of an instance.
pub mod tag {
    /// The cluster; nothing without it is ever touched.
    pub const CLUSTER_ID: &str = "ostler.dev/cluster-id";
    /// Name of the Machine.
    pub const MACHINE_NAME: &str = "ostler.dev/machine-name";
    /// UID of the Machine.
    pub const MACHINE_UID: &str = "ostler.dev/machine-uid";
    /// Name of the MachinePool, on a group and its instances.
    pub const POOL_NAME: &str = "ostler.dev/pool-name";
    /// UID of the MachinePool, on a group and its instances.
    pub const POOL_UID: &str = "ostler.dev/pool-uid";
}

/// Bootstrap tokens and user data.
pub mod bootstrap {
    /// Namespace of bootstrap token secrets.
    pub const NAMESPACE: &str = "kube-system";
    /// Name of a bootstrap token secret without its token id.
    pub const SECRET_PREFIX: &str = "bootstrap-token-";
    /// `type` of a bootstrap token secret.
    pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
    /// Key of the user data in the secret of a class.
    pub const USER_DATA_KEY: &str = "userData";
    /// Key of the user data in the secret that `spec.bootstrap.dataSecretName` names.
    pub const DATA_KEY: &str = "value";
    /// The key beside it for the format of the user data, e.g. `cloud-config`; optional.
    pub const FORMAT_KEY: &str = "format";
    /// Stands for the bootstrap token in user data.
    pub const TOKEN_PLACEHOLDER: &str = "<<BOOTSTRAP_TOKEN>>";
    /// Stands for the name of the Machine in user data.
    pub const NAME_PLACEHOLDER: &str = "<<MACHINE_NAME>>";
}
