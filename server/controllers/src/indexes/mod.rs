//! Cached fields and indexes of each kind.

mod disruption;

pub use disruption::{AttachmentIndex, BudgetIndex, ClaimIndex, VolumeIndex};

use k8s_openapi::api::core::v1::{
    EphemeralVolumeSource, Node, Pod, PodSpec, PodStatus, Secret, Volume,
};
use ostler_api::machine::{MachinePhase, WaitReason};
use ostler_api::names::{annotation, label};
use ostler_api::{
    Machine, MachineClass, MachineDeployment, MachineHealthCheck, MachinePool, MachineReserve,
    MachineSet, ProviderId,
};
use ostler_lifecycle::bootstrap::{config_of, data_secret};
use ostler_lifecycle::owner::{controller, is_in_reserve};
use ostler_lifecycle::pod::claims;
use ostler_lifecycle::pool::{config_secrets, secret_name};

use crate::watch::{CacheIndex, ObjectName};

/// Indexes of Machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MachineIndex {
    /// `namespace/name` of the class.
    Class,
    /// `namespace/name` of the MachineDeployment, by the label.
    Deployment,
    /// Name of the Node.
    Node,
    /// `spec.providerID`, and the driver's name of the instance.
    ProviderId,
    /// The last part of the provider ids, in small letters.
    Ending,
    /// `metadata.uid`.
    Uid,
    /// The object that `spec.bootstrap.configRef` names.
    BootstrapConfig,
    /// The kind of that object.
    BootstrapKind,
    /// `namespace/name` of the Secret with the user data.
    BootstrapSecret,
    /// `metadata.name`, in any namespace.
    Name,
    /// `namespace/name` of the target cluster in the Machine's label.
    Cluster,
    /// UID of its controller.
    Controller,
    /// Namespace.
    Namespace,
    /// Namespace, of Machines without a controller.
    Uncontrolled,
    /// `namespace/key=value` of each label, of Machines without a controller.
    FreeLabel,
    /// `namespace/UID` of the MachineSet that let it go, of Machines without a controller.
    Released,
    /// Of Machines that wait for the replacement budget: UID of the controller, and `namespace/name` of the
    /// MachineDeployment as its label says.
    WaitsForBudget,
    /// One value: Machines whose drain waits for volumes to be attached elsewhere.
    FollowsVolumes,
    /// `namespace/name` of the MachineHealthCheck of the mark.
    HealthCheck,
    /// Namespace, of Machines that a MachineReserve controls.
    Reserve,
}

/// The namespace of a Machine, and the name of the cluster that its label names.
pub(crate) fn cluster_of(machine: &Machine) -> Option<ObjectName> {
    let meta = &machine.metadata;
    let name = meta.labels.as_ref()?.get(label::CLUSTER_NAME).filter(|name| !name.is_empty())?;
    Some(ObjectName::new(meta.namespace.clone().unwrap_or_default(), name))
}

/// `namespace/name` of the MachineDeployment, by the label.
pub(crate) fn deployment(machine: &Machine) -> Option<String> {
    let name = machine.label(label::DEPLOYMENT_NAME).filter(|name| !name.is_empty())?;
    let namespace = machine.namespace();
    Some(ObjectName::new(namespace, name).to_string())
}

impl CacheIndex for MachineIndex {
    type Object = Machine;
    const KIND: &'static str = "Machine";

    fn of(machine: &Machine) -> Vec<(Self, String)> {
        let namespace = machine.metadata.namespace.clone().unwrap_or_default();
        let class = ObjectName::new(&namespace, &machine.spec.class.name).to_string();
        let mut keys = vec![(Self::Class, class), (Self::Uid, machine.uid().into())];
        keys.extend(deployment(machine).map(|name| (Self::Deployment, name)));
        let check = machine.unhealthy_mark().map(|mark| ObjectName::new(&namespace, mark.check));
        keys.extend(check.map(|name| (Self::HealthCheck, name.to_string())));
        keys.push((Self::Name, machine.name().to_owned()));
        keys.push((Self::Namespace, namespace.clone()));
        if is_in_reserve(&machine.metadata) {
            keys.push((Self::Reserve, namespace.clone()));
        }
        match controller(&machine.metadata) {
            Some(owner) => keys.push((Self::Controller, owner.uid.clone())),
            None => keys.extend(free_keys(machine, namespace)),
        }
        keys.extend(cluster_of(machine).map(|name| (Self::Cluster, name.to_string())));
        // Users write labels: the name of the Node that it joined as counts, too.
        let joined = machine.status.as_ref().and_then(|status| status.node_ref.as_ref());
        let joined =
            joined.map(|it| it.name.as_str()).filter(|name| machine.node_name() != Some(*name));
        let nodes = machine.node_name().into_iter().chain(joined);
        keys.extend(nodes.map(|name| (Self::Node, name.to_owned())));
        let said = machine.instance_id().filter(|said| machine.provider_id() != Some(*said));
        for id in machine.provider_id().into_iter().chain(said) {
            keys.push((Self::ProviderId, id.to_string()));
            keys.extend(ProviderId::ending(id.as_str()).map(|it| (Self::Ending, it)));
        }
        keys.extend(bootstrap_keys(machine));
        if waits_for(machine) == Some(&WaitReason::VolumesMoving) {
            keys.push((Self::FollowsVolumes, String::new()));
        }
        if waits_for_budget(machine) {
            let owner = controller(&machine.metadata).map(|owner| owner.uid.clone());
            let families = owner.into_iter().chain(deployment(machine));
            keys.extend(families.map(|family| (Self::WaitsForBudget, family)));
        }
        keys
    }
}

/// The value of [`MachineIndex::FreeLabel`] for a label.
pub(crate) fn free_label(namespace: &str, key: &str, value: &str) -> String {
    format!("{namespace}/{key}={value}")
}

/// The keys by which a set finds a Machine without a controller: very many such Machines may concern no set.
fn free_keys(machine: &Machine, namespace: String) -> Vec<(MachineIndex, String)> {
    let labels = machine.metadata.labels.iter().flatten();
    let labels = labels.map(|(key, value)| free_label(&namespace, key, value));
    let released = machine.annotation(annotation::RELEASED_BY);
    let released = released.map(|set| ObjectName::new(&namespace, set).to_string());
    let mut keys: Vec<_> = labels.map(|label| (MachineIndex::FreeLabel, label)).collect();
    keys.extend(released.map(|set| (MachineIndex::Released, set)));
    keys.push((MachineIndex::Uncontrolled, namespace));
    keys
}

fn waits_for(machine: &Machine) -> Option<&WaitReason> {
    machine.status.as_ref()?.waiting_for.as_ref().map(|wait| &wait.reason)
}

/// Whether the replacement waits for siblings in the same MachineDeployment.
fn waits_for_budget(machine: &Machine) -> bool {
    let budget =
        matches!(waits_for(machine), Some(WaitReason::ReplacementBudget | WaitReason::MassFailure));
    budget && machine.phase() == MachinePhase::Unknown
}

fn bootstrap_keys(machine: &Machine) -> Vec<(MachineIndex, String)> {
    if machine.spec.bootstrap.is_none() {
        return Vec::new();
    }
    let mut keys = Vec::new();
    if let Ok(Some(config)) = config_of(machine) {
        keys.push((MachineIndex::BootstrapConfig, config.key()));
        keys.push((MachineIndex::BootstrapKind, config.kind.key()));
    }
    if let Some(name) = data_secret(machine) {
        let namespace = machine.metadata.namespace.clone().unwrap_or_default();
        keys.push((MachineIndex::BootstrapSecret, ObjectName::new(namespace, name).to_string()));
    }
    keys
}

/// Indexes of MachineSets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SetIndex {
    /// UID of its controller.
    Controller,
    /// `metadata.uid`.
    Uid,
    /// Namespace.
    Namespace,
}

impl CacheIndex for SetIndex {
    type Object = MachineSet;
    const KIND: &'static str = "MachineSet";

    fn of(set: &MachineSet) -> Vec<(Self, String)> {
        let namespace = set.metadata.namespace.clone().unwrap_or_default();
        let owner = controller(&set.metadata).map(|owner| owner.uid.clone());
        let keys = [(Self::Uid, set.uid().to_owned()), (Self::Namespace, namespace)];
        keys.into_iter().chain(owner.map(|uid| (Self::Controller, uid))).collect()
    }
}

/// Indexes of MachineDeployments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeploymentIndex {
    /// `metadata.uid`.
    Uid,
    /// Namespace.
    Namespace,
}

impl CacheIndex for DeploymentIndex {
    type Object = MachineDeployment;
    const KIND: &'static str = "MachineDeployment";

    fn of(deployment: &MachineDeployment) -> Vec<(Self, String)> {
        let namespace = deployment.metadata.namespace.clone().unwrap_or_default();
        vec![(Self::Uid, deployment.uid().to_owned()), (Self::Namespace, namespace)]
    }
}

/// Indexes of MachinePools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolIndex {
    /// `metadata.uid`.
    Uid,
    /// `namespace/name` of the class.
    Class,
    /// `namespace/name` of the Secrets with the user data.
    Secret,
    /// Namespace.
    Namespace,
}

impl CacheIndex for PoolIndex {
    type Object = MachinePool;
    const KIND: &'static str = "MachinePool";

    fn of(pool: &MachinePool) -> Vec<(Self, String)> {
        let namespace = pool.metadata.namespace.clone().unwrap_or_default();
        let name = |name: &str| ObjectName::new(&namespace, name).to_string();
        let class = name(&pool.spec.template.spec.class.name);
        let secrets = secret_name(pool).into_iter().chain(config_secrets(pool));
        let secrets: Vec<_> = secrets.map(|it| (Self::Secret, name(it))).collect();
        let keys = [(Self::Uid, pool.uid().to_owned()), (Self::Class, class)];
        keys.into_iter().chain(secrets).chain([(Self::Namespace, namespace)]).collect()
    }
}

/// Indexes of MachineHealthChecks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CheckIndex {
    /// Namespace.
    Namespace,
}

impl CacheIndex for CheckIndex {
    type Object = MachineHealthCheck;
    const KIND: &'static str = "MachineHealthCheck";

    fn of(check: &MachineHealthCheck) -> Vec<(Self, String)> {
        vec![(Self::Namespace, check.metadata.namespace.clone().unwrap_or_default())]
    }
}

/// Indexes of MachineReserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReserveIndex {
    /// `metadata.uid`.
    Uid,
    /// `namespace/name` of the target, whatever its kind.
    Target,
    /// Namespace.
    Namespace,
}

impl CacheIndex for ReserveIndex {
    type Object = MachineReserve;
    const KIND: &'static str = "MachineReserve";

    fn of(reserve: &MachineReserve) -> Vec<(Self, String)> {
        let namespace = reserve.metadata.namespace.clone().unwrap_or_default();
        let target = ObjectName::new(&namespace, &reserve.spec.target_ref.name).to_string();
        vec![
            (Self::Uid, reserve.uid().to_owned()),
            (Self::Target, target),
            (Self::Namespace, namespace),
        ]
    }
}

/// Indexes of classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClassIndex {
    /// `namespace/name` of a secret that the class names.
    Secret,
}

impl CacheIndex for ClassIndex {
    type Object = MachineClass;
    const KIND: &'static str = "MachineClass";

    fn of(class: &MachineClass) -> Vec<(Self, String)> {
        let refs = class.secret_refs().into_iter();
        refs.map(|(namespace, name)| ObjectName::new(namespace, name).to_string())
            .map(|name| (Self::Secret, name))
            .collect()
    }
}

/// Secrets are found by name alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SecretIndex {}

impl CacheIndex for SecretIndex {
    type Object = Secret;
    const KIND: &'static str = "Secret";

    /// Drops the data of secrets of types that no class names.
    fn trim(secret: &mut Secret) {
        let foreign = ["helm.sh/release.v1", "kubernetes.io/service-account-token"];
        if secret.type_.as_deref().is_some_and(|type_| foreign.contains(&type_)) {
            secret.data = None;
        }
        secret.metadata.annotations = None;
    }
}

/// Indexes of Nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeIndex {
    /// `spec.providerID`.
    ProviderId,
    /// The last part of the provider id, in small letters.
    Ending,
    /// The label with the Machine's name.
    MachineName,
}

impl CacheIndex for NodeIndex {
    type Object = Node;
    const KIND: &'static str = "Node";

    fn of(node: &Node) -> Vec<(Self, String)> {
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
        let labels = node.metadata.labels.as_ref();
        let machine = labels.and_then(|labels| labels.get(label::MACHINE_NAME).cloned());
        let ending = id.as_deref().and_then(ProviderId::ending);
        let ending = ending.map(|ending| (Self::Ending, ending));
        let id = id.filter(|id| !id.is_empty()).map(|id| (Self::ProviderId, id));
        id.into_iter().chain(ending).chain(machine.map(|name| (Self::MachineName, name))).collect()
    }

    fn trim(node: &mut Node) {
        if let Some(status) = &mut node.status {
            status.addresses = None;
            status.allocatable = None;
            status.config = None;
            status.daemon_endpoints = None;
            status.features = None;
            status.images = None;
            status.runtime_handlers = None;
            status.volumes_in_use = None;
        }
    }
}

/// Indexes of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PodIndex {
    /// `spec.nodeName`.
    Node,
    /// `namespace/name` of a used claim.
    Claim,
}

impl CacheIndex for PodIndex {
    type Object = Pod;
    const KIND: &'static str = "Pod";

    fn of(pod: &Pod) -> Vec<(Self, String)> {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let node = node.map(|name| (Self::Node, name));
        let claims = claims(pod).into_iter().map(|claim| (Self::Claim, claim));
        node.into_iter().chain(claims).collect()
    }

    /// A cluster has many pods, and a drain needs few fields.
    fn trim(pod: &mut Pod) {
        pod.metadata.labels = None;
        pod.metadata.finalizers = None;
        if let Some(annotations) = &mut pod.metadata.annotations {
            annotations.retain(|key, _| key == annotation::MIRROR_POD);
        }
        pod.spec = pod.spec.take().map(|spec| PodSpec {
            node_name: spec.node_name,
            priority: spec.priority,
            volumes: spec.volumes.map(claiming).filter(|volumes| !volumes.is_empty()),
            ..PodSpec::default()
        });
        pod.status = pod
            .status
            .take()
            .map(|status| PodStatus { phase: status.phase, ..PodStatus::default() });
    }
}

/// Volumes with a claim, reduced to that claim.
fn claiming(volumes: Vec<Volume>) -> Vec<Volume> {
    let claims =
        |volume: &Volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
    let bare = |volume: Volume| Volume {
        name: volume.name,
        persistent_volume_claim: volume.persistent_volume_claim,
        ephemeral: volume.ephemeral.map(|_| EphemeralVolumeSource::default()),
        ..Volume::default()
    };
    volumes.into_iter().filter(claims).map(bare).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn keys<I: CacheIndex<Object: serde::de::DeserializeOwned>>(object: Value) -> Vec<(I, String)> {
        I::of(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_machine_is_found_by_class_uid_node_and_provider_id() {
        let found = keys::<MachineIndex>(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m", "namespace": "default", "uid": "u", "labels": {
                "node": "n", "cluster.x-k8s.io/cluster-name": "k"
            } },
            "spec": { "class": { "kind": "MachineClass", "name": "c" }, "providerID": "fake:///1" },
            "status": { "nodeRef": { "name": "joined" }, "instanceProviderID": "fake:///said" },
        }));
        let expected = [
            (MachineIndex::Class, "default/c"),
            (MachineIndex::Uid, "u"),
            (MachineIndex::Name, "m"),
            (MachineIndex::Namespace, "default"),
            (MachineIndex::FreeLabel, "default/cluster.x-k8s.io/cluster-name=k"),
            (MachineIndex::FreeLabel, "default/node=n"),
            (MachineIndex::Uncontrolled, "default"),
            (MachineIndex::Cluster, "default/k"),
            (MachineIndex::Node, "n"),
            (MachineIndex::Node, "joined"),
            (MachineIndex::ProviderId, "fake:///1"),
            (MachineIndex::Ending, "1"),
            (MachineIndex::ProviderId, "fake:///said"),
            (MachineIndex::Ending, "said"),
        ];
        assert_eq!(found, expected.map(|(index, value)| (index, value.to_owned())));
    }

    #[test]
    fn an_empty_provider_id_finds_nothing() {
        let found = keys::<NodeIndex>(json!({ "metadata": {}, "spec": { "providerID": "" } }));
        assert!(found.is_empty());
    }

    #[test]
    fn a_cached_pod_has_only_the_fields_of_a_drain() {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": "p", "namespace": "a", "uid": "u", "labels": { "x": "y" },
                "annotations": { "kubernetes.io/config.mirror": "h", "other": "z" },
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1" }]
            },
            "spec": {
                "nodeName": "n", "priority": 7, "containers": [{ "name": "c", "image": "i" }],
                "volumes": [
                    { "name": "scratch", "emptyDir": {} },
                    { "name": "data", "persistentVolumeClaim": { "claimName": "data-p" } }
                ]
            },
            "status": { "phase": "Running", "podIP": "10.0.0.1" }
        }))
        .unwrap();
        PodIndex::trim(&mut pod);
        let claim = (PodIndex::Claim, "a/data-p".to_owned());
        assert_eq!(PodIndex::of(&pod), [(PodIndex::Node, "n".to_owned()), claim]);
        let kept = serde_json::to_value(&pod).unwrap();
        let data = json!({ "name": "data", "persistentVolumeClaim": { "claimName": "data-p" } });
        let spec = json!({ "containers": [], "nodeName": "n", "priority": 7, "volumes": [data] });
        assert_eq!(kept["spec"], spec);
        assert_eq!(kept["status"], json!({ "phase": "Running" }));
        assert_eq!(kept["metadata"]["annotations"], json!({ "kubernetes.io/config.mirror": "h" }));
        assert_eq!(kept["metadata"]["ownerReferences"][0]["kind"], "DaemonSet");
    }
}
