//! Deletions that another controller goes on with, in either direction.
//!
//! machine-controller of machine-controller-manager keeps its state in the text of the last operation: it ends in
//! what comes next. That text is read here once, when a deletion is taken over, and nowhere else (INV-9 is about
//! our own); and every description of ours ends in it, so that machine-controller goes on where we were.

use ostler_api::machine::{MachineOperationType, MachineStatus, MachineStep};

use super::{draining::drain, pass::Pass};

/// The next action of machine-controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Upstream {
    /// Finds the Node.
    FindNode,
    /// Drains the Node.
    Drain,
    /// After a forced drain: takes the volumes from it.
    Detach,
    /// Deletes the instance.
    DeleteVm,
    /// Deletes the Node.
    DeleteNode,
    /// Lets the Machine go.
    RemoveFinalizer,
}

impl Upstream {
    const ALL: [Self; 6] = [
        Self::FindNode,
        Self::Drain,
        Self::Detach,
        Self::DeleteVm,
        Self::DeleteNode,
        Self::RemoveFinalizer,
    ];

    /// The last words of the description of the step.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::FindNode => "Set machine status to termination. Now, getting VM Status",
            Self::Drain => "Initiate node drain",
            Self::Detach => "Delete Volume Attachments",
            Self::DeleteVm => "Initiate VM deletion",
            Self::DeleteNode => "Initiate node object deletion",
            Self::RemoveFinalizer => "Initiate machine object finalizer removal",
        }
    }

    /// Where we go on. Once the instance is said to be gone the driver is asked again: only a
    /// driver can say so (INV-3).
    const fn step_to_resume(self) -> MachineStep {
        match self {
            Self::FindNode | Self::Drain => MachineStep::FindInstance,
            Self::Detach => MachineStep::DetachVolumes,
            Self::DeleteVm | Self::DeleteNode | Self::RemoveFinalizer => {
                MachineStep::DeleteInstance
            }
        }
    }
}

/// The step at which a deletion goes on that another controller began; `None`: from the start.
/// Only the end of the text counts: what a provider said may stand before it.
pub(crate) fn step_to_resume(pass: &mut Pass<'_>) -> Option<MachineStep> {
    let next = upstream_next(&pass.status).filter(|_| pass.status.step.is_none())?;
    if !matches!(next, Upstream::FindNode | Upstream::Drain) {
        drain::take_over(pass, next == Upstream::Detach);
    }
    Some(next.step_to_resume())
}

fn upstream_next(status: &MachineStatus) -> Option<Upstream> {
    let last = status.last_operation.as_ref()?;
    let text = last.description.as_deref()?.trim_end();
    let deletes = last.type_ == Some(MachineOperationType::Delete);
    Upstream::ALL.into_iter().find(|next| deletes && text.ends_with(next.words()))
}
