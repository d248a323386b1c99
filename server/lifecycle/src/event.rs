//! The vocabulary of events: what people are told, and why.

/// Something worth telling people, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Whether it is a warning.
    pub warning: bool,
    /// The reason, for programs.
    pub reason: EventReason,
    /// The action, for programs.
    pub action: EventAction,
    /// For people.
    pub message: String,
    /// Whether the event goes on the Node as well.
    pub on_node: bool,
}

impl Event {
    /// For information.
    pub const fn normal(reason: EventReason, message: String) -> Self {
        Self { warning: false, reason, action: EventAction::Reconcile, message, on_node: false }
    }

    /// An event that needs attention.
    pub fn warning(reason: EventReason, message: String) -> Self {
        Self { warning: true, ..Self::normal(reason, message) }
    }

    /// The action behind the event.
    #[must_use]
    pub fn doing(self, action: EventAction) -> Self {
        Self { action, ..self }
    }
}

ostler_api::closed_enum! {
    /// The done or tried action behind an event.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum EventAction {
        /// Where no word says more.
        Reconcile,
        /// A Machine came under the control of a set.
        Adopt,
        /// A user's object, the definitions or the API servers were looked at.
        Check,
        /// Instances without a Machine were looked for.
        CollectOrphans,
        /// A Machine was made.
        Create,
        /// A Machine was deleted.
        Delete,
        /// A set was frozen.
        Freeze,
        /// A driver asked to serve a provider.
        Register,
        /// An object is not under our control any more.
        Release,
        /// The number of replicas was changed.
        Scale,
        /// A set took a Machine of a reserve.
        Take,
        /// A set goes on.
        Unfreeze,
        /// A spec was checked.
        Validate,
        /// A driver reviewed a class.
        ValidateClass,
    }
}

ostler_api::closed_enum! {
    /// Reasons of events.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum EventReason {
        /// A wait began that a user may have to end; the message starts with its reason.
        Waiting,
        /// The instance was made.
        InstanceCreated,
        /// An instance that was there before carries the identity of the Machine now.
        InstanceAdopted,
        /// The driver did not adopt the instance.
        InstanceAdoptFailed,
        /// The driver could not make the instance.
        InstanceCreateFailed,
        /// The instance was gone before its Node had joined.
        InstanceLost,
        /// The driver could not initialize the instance.
        InstanceInitializeFailed,
        /// The Node is healthy.
        NodeJoined,
        /// The instance is there, and there is no target cluster to join.
        Available,
        /// The Node is not healthy any more.
        NodeUnhealthy,
        /// The Machine is given up.
        MachineFailed,
        /// The Node was deleted, so the Machine is.
        NodeDeleted,
        /// Several Nodes have the provider id of the instance.
        NodeAmbiguous,
        /// Parts of the node template are malformed, and not put on the Node.
        NodeTemplateRefused,
        /// The Machine is kept for examination.
        Preserved,
        /// The Machine is not kept any more.
        PreservationEnded,
        /// The value of an annotation that asks for preservation has no meaning.
        PreserveValueInvalid,
        /// A hot update reached the instance.
        HotUpdated,
        /// A hot update failed.
        HotUpdateFailed,
        /// A change cannot reach the running instance.
        HotUpdateRefused,
        /// The drain has begun.
        DrainStarted,
        /// The Node is drained.
        Drained,
        /// The drain ended by force.
        DrainForced,
        /// PodDisruptionBudgets hold the drain in a way that only an edit of them ends.
        DrainBlocked,
        /// The volumes of the Node did not leave in time, so they are taken from it.
        VolumesForced,
        /// The volumes of the Node did not leave in time, and stay: the Node lives on.
        VolumesNotDetached,
        /// The Node is drained, and another controller may update it in place now.
        InPlaceUpdateReady,
        /// The Node was updated in place.
        InPlaceUpdated,
        /// The Node was not updated in place in time, or the updating controller failed.
        InPlaceUpdateFailed,
        /// A hook of the Machine holds its deletion.
        HookWaiting,
        /// The infrastructure will end the instance.
        TerminationNotice,
        /// The infrastructure will work on the instance.
        MaintenanceNotice,
        /// The instance is gone.
        InstanceDeleted,
        /// A deletion found no instance.
        InstanceAbsent,
        /// The driver could not delete the instance.
        InstanceDeleteFailed,
        /// The driver found an instance that is not this Machine's, and deleted nothing.
        InstanceNotOurs,
        /// The instance of this Machine carries a cluster id that the core does not know.
        ClusterIdChanged,
        /// The operator let the Machine go and its instance stay.
        InstanceAbandoned,
        /// The object goes without a question to a driver, because no driver was ever asked.
        InstanceNeverRequested,
        /// A set or pool made a Machine.
        SuccessfulCreate,
        /// A set or pool could not make a Machine.
        FailedCreate,
        /// A set or pool deleted a Machine.
        SuccessfulDelete,
        /// A set or pool could not delete a Machine.
        FailedDelete,
        /// A Machine came under the control of a set.
        AdoptedMachine,
        /// A set took a Machine from a reserve.
        TookFromReserve,
        /// A Machine is not under the control of a set any more.
        ReleasedMachine,
        /// A spec is refused.
        ValidationFailed,
        /// Autoscalers cannot follow an annotation.
        AnnotationInvalid,
        /// `spec.replicas` is absent and was filled in.
        ReplicasAbsent,
        /// An autoscaler changed how many Machines there are to be.
        ScaledByAutoscaler,
        /// A template of a bootstrap provider changed, of which Machines have copies.
        TemplateChangedInPlace,
        /// A selector also selects objects of another owner.
        SelectorOverlap,
        /// A selector is empty.
        SelectingAll,
        /// A set got another number of replicas.
        ScalingMachineSet,
        /// A set came under the control of a deployment.
        AdoptedMachineSet,
        /// A set is not under the control of a deployment any more.
        ReleasedMachineSet,
        /// A deployment goes back to an earlier template.
        DeploymentRollback,
        /// There is no such revision.
        DeploymentRollbackRevisionNotFound,
        /// A deployment has the template of that revision.
        DeploymentRollbackTemplateUnchanged,
        /// An autoscaler's list of Machines has an entry that cannot be read.
        MarkMalformed,
        /// The set for a template cannot be created.
        MachineSetCreateError,
        /// A set that may be a deployment's cannot be read.
        MachineSetUnreadable,
        /// Half of the Machines of a deployment are lost.
        MassFailure,
        /// Fewer than half of them are lost again.
        MassFailureEnded,
        /// A set has far too many Machines, and creates none.
        FrozeMachineSet,
        /// The set creates Machines again.
        UnfrozeMachineSet,
        /// A check found a Machine unhealthy.
        MachineMarkedUnhealthy,
        /// So many Machines of a check are unhealthy, or so few, that none is replaced.
        RemediationRestricted,
        /// Machines are unhealthy, and no set or pool controls them.
        NoController,
        /// Another process runs a set.
        ForeignController,
        /// A Machine that may be a set's cannot be read.
        MachineUnreadable,
        /// Machines fail one after the other before they had run for a while.
        ReplacementsFail,
        /// A Node belongs to no Machine.
        NodeNotManaged,
        /// A class breaks rules, or the driver rejects the class.
        ClassInvalid,
        /// The driver warns about a class.
        ClassWarning,
        /// A class cannot go while it is used.
        ClassInUse,
        /// A secret cannot go while a class names it.
        SecretInUse,
        /// A driver asked to serve a provider that it may not serve.
        ForeignProvider,
        /// An API server does not answer: no Machine fails meanwhile.
        MachineHealthFrozen,
        /// The API servers answer again.
        MachineHealthThawed,
        /// The API server drops fields of ours.
        CRDsOutdated,
        /// The API server keeps our fields again.
        CRDsCurrent,
        /// An orphan was confirmed.
        OrphanFound,
        /// An orphan was deleted.
        OrphanDeleted,
        /// The driver could not delete an orphan.
        OrphanDeleteFailed,
        /// The instances of a class could not be listed.
        InstancesNotListed,
        /// Several instances have the identity of the same Machine.
        SeveralInstances,
        /// Orphans are only reported from now on.
        OrphansHeld,
        /// An operator accepted the deletion of the orphans.
        OrphansAccepted,
        /// The class of a pool is not there, or cannot be used.
        ClassMissing,
        /// The bootstrap data of a pool's Nodes are missing.
        DataMissing,
        /// The group of a pool belongs to another provider than its class.
        ProviderChanged,
        /// The driver is connected, and not ready.
        DriverNotReady,
        /// The driver has no groups.
        DriverLacksVerb,
        /// The group cannot be made.
        CreatePoolFailed,
        /// The group cannot be changed.
        UpdatePoolFailed,
        /// The group cannot be deleted.
        DeletePoolFailed,
        /// Instances of the group cannot be deleted.
        DeletePoolMachinesFailed,
        /// Something else of a group failed.
        OperationFailed,
        /// The group cannot be read.
        GetPoolStatusFailed,
        /// It is not known yet what the last creation of a group made.
        AbsenceUnconfirmed,
        /// The group is gone.
        GroupMissing,
        /// Something is wrong with the group.
        GroupFaulty,
        /// The group has more instances than anyone wants.
        TooManyInstances,
        /// The driver cannot delete one instance of a group.
        NotSupported,
        /// The group may delete instances by itself.
        GroupScalesIn,
        /// A number that a user wrote is taken back.
        ReplicasReset,
    }
}
