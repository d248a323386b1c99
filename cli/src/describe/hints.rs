//! Hints: how the reader can end a wait.

use ostler_api::Machine;
use ostler_api::machine::WaitReason;
use ostler_api::names::hook;

/// Only where a person can do something; most waits end by themselves.
const HINTS: [(WaitReason, &str); 68] = [
    (WaitReason::ClassRefInvalid, "set spec.class to kind MachineClass and a name"),
    (WaitReason::ClassMissing, "apply the MachineClass that spec.class names"),
    (WaitReason::ClassNamespaceDenied, "apply the class in the namespace of the machine"),
    (WaitReason::ClassInvalid, "correct the class"),
    (WaitReason::ClassNotHeld, "give the core the right that the message names"),
    (WaitReason::ProviderChanged, "make the class one of the provider that the message names"),
    (WaitReason::SecretMissing, "apply the secret that the class names"),
    (WaitReason::SecretNamespaceDenied, "put the secret into the namespace of the class"),
    (WaitReason::UserDataTooLarge, "make the user data smaller"),
    (WaitReason::ProviderSpecTooLarge, "make the provider spec smaller"),
    (WaitReason::BootstrapDataMissing, "set spec.bootstrap.data or dataSecretName"),
    (WaitReason::BootstrapConfigInvalid, "correct spec.bootstrap.configRef"),
    (
        WaitReason::BootstrapNamespaceDenied,
        "create the object of spec.bootstrap.configRef in the namespace of the machine",
    ),
    (WaitReason::BootstrapConfigMissing, "create the object that spec.bootstrap.configRef names"),
    (
        WaitReason::BootstrapConfigOwned,
        "give each machine a configRef of its own, to an object without other owners",
    ),
    (
        WaitReason::BootstrapConfigDeleting,
        "remove the finalizers that the message names, or have their controller remove them",
    ),
    (WaitReason::BootstrapKindMissing, "install the bootstrap provider"),
    (
        WaitReason::BootstrapKindUnmarked,
        "name an object of a bootstrap provider, or label the CustomResourceDefinition of its kind \
         ostler.dev/bootstrap-kind: \"true\"",
    ),
    (WaitReason::BootstrapKindUnreadable, "give the core the right to list and watch the kind"),
    (WaitReason::BootstrapSecretMissing, "create the Secret that spec.bootstrap names"),
    (WaitReason::BootstrapSecretInvalid, "put the user data under key `value` of the Secret"),
    (WaitReason::DriverUnavailable, "see `ostler drivers ls`: is a driver connected and ready?"),
    (WaitReason::DriverLost, "see `ostler drivers ls`: does the driver run?"),
    (WaitReason::DriverStalled, "see `ostler drivers ops` and the log of the driver"),
    (
        WaitReason::DriverLacksVerb,
        "upgrade the driver; a machine that it cannot delete alone goes when its pool is scaled in or deleted",
    ),
    (WaitReason::InvalidSpec, "correct the provider spec of the class"),
    (WaitReason::CredentialsRefused, "correct the secret of the class"),
    (WaitReason::CapacityExhausted, "raise the quota, or wait for capacity"),
    (WaitReason::CrdsOutdated, "run `ostler crds | kubectl apply -f -`"),
    (WaitReason::ActionNeeded, "do what the driver asks for"),
    (WaitReason::SeveralInstances, "delete the surplus instances manually"),
    (
        WaitReason::InstanceNotOurs,
        "annotate the class ostler.dev/adopt-by-name=true if another controller made it; delete it by \
         hand; or let it be: kubectl annotate machine NAME ostler.dev/abandon-instance=PROVIDER_ID",
    ),
    (
        WaitReason::ClusterIdChanged,
        "if the cluster had that id before: stop its old core, and start this one with \
         --previous-cluster-ids ID. Else as for an instance that is not ours",
    ),
    (
        WaitReason::AdoptionUndecided,
        "annotate the class ostler.dev/adopt-by-name: true adopts an instance with the machine's name; \
         false creates a new one (needs a driver that reads tags)",
    ),
    (
        WaitReason::AbsenceUnconfirmed,
        "is the instance gone, or the driver in the wrong account? If it is gone, delete the machine",
    ),
    (WaitReason::EmptyProviderId, "tell the author of the driver"),
    (
        WaitReason::InstanceMissing,
        "see in the infrastructure what ended the instance; delete the machine and its set or pool replaces it",
    ),
    (
        WaitReason::InstanceFaulty,
        "see what the infrastructure says of the instance; delete the machine to replace it",
    ),
    (
        WaitReason::InstanceNotReady,
        "start the instance, or see what the infrastructure says of it; without it the machine is Failed after its \
         creation or health timeout",
    ),
    (
        WaitReason::TargetUnnamed,
        "name the target cluster in label cluster.x-k8s.io/cluster-name of the machine",
    ),
    (
        WaitReason::TargetSecretMissing,
        "create Secret CLUSTER-kubeconfig in the namespace of the machine",
    ),
    (
        WaitReason::TargetSecretInvalid,
        "put a kubeconfig under key `value` of Secret CLUSTER-kubeconfig",
    ),
    (
        WaitReason::TargetNotReached,
        "see whether its API server answers, and the address in the kubeconfig",
    ),
    (WaitReason::TooManyTargets, "raise --max-target-clusters"),
    (
        WaitReason::NodeNotJoined,
        "read the console of the instance: does its kubelet start, does it reach the API server, is its certificate \
         request approved?",
    ),
    (WaitReason::NodeStale, "delete the Node of that name if no instance needs it"),
    (WaitReason::NodeNotReady, "see the kubelet and the network plugin of the Node"),
    (
        WaitReason::CriticalComponentsNotReady,
        "see the pods of this Node that have to be ready before the taint goes",
    ),
    (WaitReason::DuplicateProviderId, "delete one of the two machines"),
    (
        WaitReason::NodeAmbiguous,
        "delete the Node whose kubelet is silent for good: the machine stays while another one of its instance is Ready",
    ),
    (
        WaitReason::ProviderIdMismatch,
        "let kubelet or cloud controller and driver write the same provider id; the Node object has to be made anew, since \
         its id cannot be changed",
    ),
    (
        WaitReason::NodeUnschedulable,
        "`kubectl uncordon`, or take the taint away, if pods are to come; managedFields of the Node say who set it",
    ),
    (
        WaitReason::PodDisruptionBudget,
        "make room in the budget, or label the machine force-deletion=True",
    ),
    (
        WaitReason::MisconfiguredBudget,
        "let the budget that the message names allow an eviction: lower minAvailable, raise maxUnavailable or run more \
         replicas; or label the machine force-deletion=True",
    ),
    (
        WaitReason::SeveralBudgets,
        "change the budgets that the message names so that one of them selects the pod",
    ),
    (
        WaitReason::EvictionFailing,
        "correct what the message says, such as a webhook that denies evictions or a right that the core lacks; or label \
         the machine force-deletion=True",
    ),
    (
        WaitReason::NodeUnhealthy,
        "see this condition with `kubectl describe node`, and the kubelet on the Node; without a recovery the machine \
         is Failed after its health timeout, and its set or pool replaces it",
    ),
    (
        WaitReason::NodeMissing,
        "start the kubelet, which registers the Node again; without it the machine is Failed after its health timeout",
    ),
    (
        WaitReason::ReplacementBudget,
        "annotation ostler.dev/max-unhealthy-replacements of the deployment allows more at a time",
    ),
    (
        WaitReason::MassFailure,
        "see what all of them share: a zone, a network, an image; delete a machine to replace it all the same",
    ),
    (
        WaitReason::ApiServerUnreachable,
        "see the API server that the message names; credentials that it refuses (401, 403) count as no answer",
    ),
    (
        WaitReason::NodeUpdating,
        "see the agent on the Node that updates it; of a pool, `ostler describe machinepool`",
    ),
    (
        WaitReason::InPlaceUpdateFailed,
        "annotate the machine ostler.dev/retry-update to try again; take labels update-result and selected-for-update \
         from the Node to let it be",
    ),
    (
        WaitReason::PreDrainHook,
        "remove annotation pre-drain.delete.hook.machine.cluster.x-k8s.io/… if its owner is gone",
    ),
    (
        WaitReason::PreTerminateHook,
        "remove annotation pre-terminate.delete.hook.machine.cluster.x-k8s.io/… if its owner is gone",
    ),
    (WaitReason::PoolDeletion, "`ostler describe machinepool` says what the pool waits for"),
    (
        WaitReason::OtherFinalizers,
        "see why their controllers do not remove them; the core is done with the machine",
    ),
    (WaitReason::HotUpdateRefused, "roll the machine, or change the class back"),
];

/// The awaited event, for reasons that name the state instead.
const AWAITED: [(WaitReason, &str); 6] = [
    (WaitReason::Failed, "a user, or its set or pool, to replace it"),
    (WaitReason::Preserved, "the end of its preservation"),
    (WaitReason::OtherFinalizers, "finalizers of others"),
    (WaitReason::Paused, "annotation ostler.dev/paused to go"),
    (WaitReason::HotUpdateRefused, "a new machine, or another class"),
    (WaitReason::InPlaceUpdateFailed, "a user"),
];

/// What is waited for, and the reason as status and events have it.
pub(super) fn awaited(reason: &WaitReason) -> String {
    AWAITED
        .iter()
        .find(|(of, _)| of == reason)
        .map_or_else(|| reason.to_string(), |(_, what)| format!("{what} ({reason})"))
}

/// A hint for the wait of a machine. Its deletion asks once more by itself whether there is an instance.
pub(super) fn of_machine(reason: &WaitReason, deleting: bool) -> Option<&'static str> {
    hint(reason).filter(|_| !deleting || *reason != WaitReason::AbsenceUnconfirmed)
}

/// How the hooks that hold a machine are removed.
pub(super) fn of_hook(machine: &Machine, reason: &WaitReason) -> Option<String> {
    let holds = [
        (WaitReason::PreDrainHook, hook::PRE_DRAIN),
        (WaitReason::PreTerminateHook, hook::PRE_TERMINATE),
    ];
    let (_, prefix) = holds.into_iter().find(|(of, _)| of == reason)?;
    let keys = machine.metadata.annotations.iter().flatten().map(|(key, _)| key);
    let keys: Vec<_> =
        keys.filter(|key| key.starts_with(prefix)).map(|key| format!("{key}-")).collect();
    let name = machine.name();
    (!keys.is_empty()).then(|| {
        format!("if its owner is gone: kubectl annotate machine {name} {}", keys.join(" "))
    })
}

/// What to do about a wait, if a person can do something.
pub(crate) fn hint(reason: &WaitReason) -> Option<&'static str> {
    HINTS.iter().find(|(of, _)| of == reason).map(|(_, hint)| *hint)
}
