//! `status.lastOperation`: what happened to the Machine last, as other programs read it. Autoscalers look for
//! its error code, and machine-controller-manager for some of the texts.

use ostler_api::{
    driver::ErrorCode,
    machine::{LastOperation, MachineOperationType as Type, MachineState},
};

use super::{pass::Pass, takeover::Upstream};
use crate::operation::Failure;

/// The text of `description`, word for word, while initialization fails.
pub(crate) const INITIALIZATION: &str = "InstanceInitialization";

/// The current activity, or its result.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Activity<'a> {
    /// The instance is being created.
    Create,
    /// The instance could not be created, or not be looked up before.
    CreateFailed(&'a Failure),
    /// The instance could not be initialized.
    InitializeFailed,
    /// The Node has to join.
    Join,
    /// The Node joined for the first time.
    Joined,
    /// The Node is healthy again.
    Rejoined,
    /// The instance is there, and no Node is expected.
    RunsWithoutNode,
    /// The Node is unhealthy.
    Unhealthy(&'a str),
    /// The running instance is being updated.
    Update,
    /// The instance was updated.
    Updated,
    /// The instance could not be updated.
    UpdateFailed(&'a Failure),
    /// The instance cannot get the spec of its class, and runs on.
    UpdateRefused,
    /// The pods leave the Node before an update in place.
    DrainForUpdate,
    /// The Node is being updated in place.
    UpdateInPlace,
    /// The Node was updated in place.
    UpdatedInPlace,
    /// The Node was not updated in place.
    UpdateInPlaceFailed(&'a str),
    /// The Machine is being deleted, and what comes next.
    Delete(&'a str, Upstream),
    /// The instance could not be deleted.
    DeleteFailed(&'a Failure),
    /// Nothing is left but the objects.
    Deleted(&'a str, Upstream),
    /// The Machine was given up.
    GiveUp(&'a Type, &'a str),
}

impl Activity<'_> {
    fn description(self, machine: &str) -> String {
        match self {
            Self::Create => "creating the instance".to_owned(),
            Self::CreateFailed(failure) => {
                format!("creating the instance failed: {}", failure.text())
            }
            Self::InitializeFailed => INITIALIZATION.to_owned(),
            Self::Join => "the instance exists, its node has to join".to_owned(),
            Self::Joined => format!("Machine {machine} successfully joined the cluster"),
            Self::Rejoined => format!("Machine {machine} successfully re-joined the cluster"),
            Self::RunsWithoutNode => {
                "the instance exists, and there is no target cluster to join".to_owned()
            }
            Self::Unhealthy(why) => format!("Machine {machine} is unhealthy: {why}"),
            Self::Update => "updating the running instance".to_owned(),
            Self::Updated => "the running instance has the spec of its class".to_owned(),
            Self::UpdateFailed(failure) => {
                format!("updating the running instance failed: {}", failure.text())
            }
            Self::UpdateRefused => {
                format!("Machine {machine} runs; its class cannot be applied to it")
            }
            Self::DrainForUpdate => "draining the node for an in-place update".to_owned(),
            Self::UpdateInPlace => format!("Machine {machine} is undergoing an in-place update"),
            Self::UpdatedInPlace => format!("Machine {machine} successfully updated dependencies"),
            Self::Delete(text, next) | Self::Deleted(text, next) => {
                format!("{text}. {}", next.words())
            }
            Self::DeleteFailed(failure) => {
                let next = Upstream::DeleteVm.words();
                format!("deleting the instance failed: {}. {next}", failure.text())
            }
            Self::UpdateInPlaceFailed(text) | Self::GiveUp(_, text) => text.to_owned(),
        }
    }

    /// Type, state and error code.
    fn kind(self) -> (Type, MachineState, Option<ErrorCode>) {
        use MachineState::{Failed, Processing, Successful};
        match self {
            Self::Create | Self::Join => (Type::Create, Processing, None),
            Self::CreateFailed(failure) => (Type::Create, Failed, Some(failure.code)),
            Self::InitializeFailed => (Type::Create, Failed, Some(ErrorCode::Uninitialized)),
            Self::Joined | Self::RunsWithoutNode => (Type::Create, Successful, None),
            Self::Rejoined | Self::UpdateRefused => (Type::HealthCheck, Successful, None),
            Self::Unhealthy(_) => (Type::HealthCheck, Processing, None),
            Self::Update => (Type::Update, Processing, None),
            Self::Updated => (Type::Update, Successful, None),
            Self::UpdateFailed(failure) => (Type::Update, Failed, Some(failure.code)),
            Self::DrainForUpdate => (Type::DrainNode, Processing, None),
            Self::UpdateInPlace => (Type::InPlaceUpdate, Processing, None),
            Self::UpdatedInPlace => (Type::InPlaceUpdate, Successful, None),
            Self::UpdateInPlaceFailed(_) => (Type::InPlaceUpdate, Failed, None),
            Self::Delete(..) => (Type::Delete, Processing, None),
            Self::Deleted(..) => (Type::Delete, Successful, None),
            Self::DeleteFailed(failure) => (Type::Delete, Failed, Some(failure.code)),
            Self::GiveUp(type_, _) => (type_.clone(), Failed, None),
        }
    }
}

impl Pass<'_> {
    /// Records the activity, and returns the description. A failed create is shown until one succeeds: autoscalers back
    /// off for as long as its error code stands there. A given-up Machine keeps the code of its failure.
    pub(crate) fn show(&mut self, activity: Activity<'_>) -> String {
        let description = activity.description(self.name());
        let old = self.status.last_operation.as_ref();
        if matches!(activity, Activity::Create) && old.is_some_and(is_failed_create) {
            return description;
        }
        let (type_, state, code) = activity.kind();
        let code = code.map(|code| code.name().to_owned());
        let kept = old.filter(|_| matches!(activity, Activity::GiveUp(..)));
        let mut new = LastOperation {
            description: Some(description.clone()),
            error_code: code.or_else(|| kept.and_then(|old| old.error_code.clone())),
            last_update_time: old.and_then(|old| old.last_update_time.clone()),
            state: Some(state),
            type_: Some(type_),
        };
        if old != Some(&new) {
            new.last_update_time = Some(self.now());
            self.status.last_operation = Some(new);
        }
        description
    }
}

fn is_failed_create(last: &LastOperation) -> bool {
    last.type_ == Some(Type::Create)
        && last.state == Some(MachineState::Failed)
        && last.error_code.is_some()
}
