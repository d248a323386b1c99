//! Why a Machine waits, and why it is given up.

use crate::open_enum::open_enum;

open_enum! {
    /// What a Machine waits for.
    pub enum WaitReason {
        /// `spec.class` does not name a MachineClass.
        ClassRefInvalid = "ClassRefInvalid",
        /// The class does not exist.
        ClassMissing = "ClassMissing",
        /// The class is of another namespace.
        ClassNamespaceDenied = "ClassNamespaceDenied",
        /// The core may not, or could not, put its finalizer on the class; the message says what is missing.
        ClassNotHeld = "ClassNotHeld",
        /// The class breaks a rule; its event and the message say which.
        ClassInvalid = "ClassInvalid",
        /// The class names another provider than the one that has the instance.
        ProviderChanged = "ProviderChanged",
        /// A secret of the class does not exist.
        SecretMissing = "SecretMissing",
        /// A secret of the class is of another namespace.
        SecretNamespaceDenied = "SecretNamespaceDenied",
        /// The user data is over 256 KiB.
        UserDataTooLarge = "UserDataTooLarge",
        /// The provider spec is over 128 KiB.
        ProviderSpecTooLarge = "ProviderSpecTooLarge",
        /// `spec.bootstrap` has neither data nor the name of a secret, and no controller brings
        /// them.
        BootstrapDataMissing = "BootstrapDataMissing",
        /// `spec.bootstrap.configRef` names nothing that a Machine can own.
        BootstrapConfigInvalid = "BootstrapConfigInvalid",
        /// `spec.bootstrap.configRef` names an object in another namespace.
        BootstrapNamespaceDenied = "BootstrapNamespaceDenied",
        /// The API server does not serve the kind of the bootstrap config.
        BootstrapKindMissing = "BootstrapKindMissing",
        /// The kind of the bootstrap config cannot be watched.
        BootstrapKindUnreadable = "BootstrapKindUnreadable",
        /// The kind of the bootstrap config does not say that it is one of a bootstrap provider.
        BootstrapKindUnmarked = "BootstrapKindUnmarked",
        /// The bootstrap config does not exist.
        BootstrapConfigMissing = "BootstrapConfigMissing",
        /// The bootstrap config belongs to another object.
        BootstrapConfigOwned = "BootstrapConfigOwned",
        /// The copy of a template that the Machine had is being deleted, and a finalizer holds it.
        BootstrapConfigDeleting = "BootstrapConfigDeleting",
        /// The bootstrap provider has not made the data yet.
        BootstrapNotReady = "BootstrapNotReady",
        /// The secret with the bootstrap data does not exist.
        BootstrapSecretMissing = "BootstrapSecretMissing",
        /// The secret with the bootstrap data has no key `value`.
        BootstrapSecretInvalid = "BootstrapSecretInvalid",
        /// No driver for the provider of the class is connected and ready.
        DriverUnavailable = "DriverUnavailable",
        /// An operation waits in the core: for its turn, or while the infrastructure throttles.
        OperationQueued = "OperationQueued",
        /// A driver works on an operation.
        DriverWorking = "DriverWorking",
        /// A driver works on an operation and has said nothing about it for too long.
        DriverStalled = "DriverStalled",
        /// The driver of an operation lost its session; the driver may come back with the operation.
        DriverLost = "DriverLost",
        /// The driver failed, or does not list yet what it made; the next attempt has its time.
        DriverRetry = "DriverRetry",
        /// The driver lacks a verb that is needed.
        DriverLacksVerb = "DriverLacksVerb",
        /// The driver refused the spec; it waits for a change of the class.
        InvalidSpec = "InvalidSpec",
        /// The driver refused the credentials.
        CredentialsRefused = "CredentialsRefused",
        /// Quota or capacity is short.
        CapacityExhausted = "CapacityExhausted",
        /// The infrastructure needs a hand first.
        ActionNeeded = "ActionNeeded",
        /// The definitions of our kinds lack fields that the core writes: nothing is asked of drivers until they are
        /// back.
        CrdsOutdated = "CRDsOutdated",
        /// The driver reports more than one instance for this Machine.
        SeveralInstances = "SeveralInstances",
        /// The driver reported an instance without a provider id.
        EmptyProviderId = "EmptyProviderID",
        /// Another Machine has the same provider id.
        DuplicateProviderId = "DuplicateProviderID",
        /// The instance that the driver found has other tags than this cluster's and machine's.
        InstanceNotOurs = "InstanceNotOurs",
        /// The instance of the Machine carries another cluster id, which the core does not know: it was started with
        /// another one, or in another control cluster.
        ClusterIdChanged = "ClusterIdChanged",
        /// The driver finds no instance of a Machine that was never adopted, or of one whose last create has no known
        /// outcome. A deletion asks it once more; nothing is made in its place.
        AbsenceUnconfirmed = "AbsenceUnconfirmed",
        /// Another controller may have made an instance of the name of this Machine, and the
        /// operator did not say is to be taken over.
        AdoptionUndecided = "AdoptionUndecided",
        /// The driver does not know the instance any more.
        InstanceMissing = "InstanceMissing",
        /// The infrastructure reports the instance as broken.
        InstanceFaulty = "InstanceFaulty",
        /// The instance is of a group, and the driver does not say that it runs; there is no Node to tell.
        InstanceNotReady = "InstanceNotReady",
        /// The instance is not initialized.
        InstanceNotInitialized = "InstanceNotInitialized",
        /// The Machine does not say which target cluster its Node joins.
        TargetUnnamed = "TargetUnnamed",
        /// The secret with the kubeconfig of the target cluster does not exist.
        TargetSecretMissing = "TargetSecretMissing",
        /// The secret of the target cluster holds no kubeconfig that can be used.
        TargetSecretInvalid = "TargetSecretInvalid",
        /// The target cluster was not reached yet.
        TargetNotReached = "TargetNotReached",
        /// So many target clusters are watched that there is no room for another one.
        TooManyTargets = "TooManyTargets",
        /// No Node with this provider id has joined.
        NodeNotJoined = "NodeNotJoined",
        /// The Node of that name is of another or an older instance. It is not taken.
        NodeStale = "NodeStale",
        /// A Node that is there spells the provider id in another way than the driver. The Machine is not replaced for it: the
        /// next one would be the same.
        ProviderIdMismatch = "ProviderIdMismatch",
        /// The Node is healthy and takes no pods: a user or a controller cordoned or tainted it.
        NodeUnschedulable = "NodeUnschedulable",
        /// More than one Node has this provider id or machine name.
        NodeAmbiguous = "NodeAmbiguous",
        /// The Node is there and not healthy.
        NodeNotReady = "NodeNotReady",
        /// The Node still has the taint of its critical components.
        CriticalComponentsNotReady = "CriticalComponentsNotReady",
        /// The Node was healthy and is not any more.
        NodeUnhealthy = "NodeUnhealthy",
        /// The Node was there and is not any more.
        NodeMissing = "NodeMissing",
        /// The health timeout is over, and another Machine of the same MachineDeployment is being
        /// replaced.
        ReplacementBudget = "ReplacementBudget",
        /// The health timeout is over, and so many Machines of the same MachineDeployment are unhealthy that something
        /// else must be broken: one is replaced, and the others wait for its successor.
        MassFailure = "MassFailure",
        /// An API server does not answer, or did not until now: the health of Nodes is not known.
        ApiServerUnreachable = "ApiServerUnreachable",
        /// Another controller updates the Node in place.
        NodeUpdating = "NodeUpdating",
        /// The update of the Node in place failed, and no controller tries it again by itself.
        InPlaceUpdateFailed = "InPlaceUpdateFailed",
        /// The Node is not cordoned yet.
        NodeNotCordoned = "NodeNotCordoned",
        /// Pods are terminating.
        PodsTerminating = "PodsTerminating",
        /// A PodDisruptionBudget refuses evictions.
        PodDisruptionBudget = "PodDisruptionBudget",
        /// A PodDisruptionBudget allows no eviction though all its pods are healthy: as it is
        /// written it never will.
        MisconfiguredBudget = "PodDisruptionBudgetMisconfigured",
        /// More than one PodDisruptionBudget selects a pod; the API server evicts no such pod.
        SeveralBudgets = "SeveralPodDisruptionBudgets",
        /// Evictions fail.
        EvictionFailing = "EvictionFailing",
        /// A pre-drain hook holds the deletion.
        PreDrainHook = "PreDrainHook",
        /// A pre-terminate hook holds the deletion.
        PreTerminateHook = "PreTerminateHook",
        /// The core is done with the Machine, and finalizers of others hold it.
        OtherFinalizers = "OtherFinalizers",
        /// Its pool deletes the instance from the group.
        PoolDeletion = "PoolDeletion",
        /// Volumes are still attached to the Node.
        VolumesAttached = "VolumesAttached",
        /// Volumes have left the Node and are not attached yet where a pod waits for them.
        VolumesMoving = "VolumesMoving",
        /// The API server refused or did not answer a write.
        ApiWriteFailed = "ApiWriteFailed",
        /// A user paused the Machine or its class by annotation `ostler.dev/paused`.
        Paused = "Paused",
        /// Something could not be observed yet.
        NotObserved = "NotObserved",
        /// The volumes of the Node, or their attachments, were not looked up yet.
        VolumesNotObserved = "VolumesNotObserved",
        /// Given up; a user, or a MachineSet, has to replace it.
        Failed = "Failed",
        /// Given up, and kept for examination.
        Preserved = "Preserved",
        /// The driver refuses to change the running instance.
        HotUpdateRefused = "HotUpdateRefused",
        /// Enough other instances of the class are being updated.
        HotUpdateBudget = "HotUpdateBudget",
        /// The driver is asked whether it takes the class, and the change of it.
        ClassReview = "ClassReview",
    }
}

open_enum! {
    /// Why a Machine is Failed.
    pub enum FailureReason {
        /// No instance within the creation timeout.
        CreationTimeout = "CreationTimeout",
        /// The instance was not initialized within the creation timeout.
        InitializationTimeout = "InitializationTimeout",
        /// No healthy Node within the creation timeout.
        JoinTimeout = "JoinTimeout",
        /// The Node of that name is of another or an older instance, and did not go.
        StaleNode = "StaleNode",
        /// The Node was unhealthy for longer than the health timeout.
        HealthTimeout = "HealthTimeout",
        /// A MachineHealthCheck found it unhealthy.
        HealthCheck = "HealthCheck",
        /// Another instance holds the name.
        InstanceConflict = "InstanceConflict",
        /// The driver says that the instance of an unhealthy Node does not exist any more.
        InstanceMissing = "InstanceMissing",
        /// The infrastructure lost something for good.
        DataLoss = "DataLoss",
        /// The bootstrap provider gave up and named no reason of its own.
        BootstrapFailed = "BootstrapFailed",
    }
}
