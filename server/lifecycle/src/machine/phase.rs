//! `status.phase`: the lifecycle word, derived from the rest of the status.

use ostler_api::machine::{LifecyclePhase, MachinePhase, MachineStatus, MachineStep};

/// The lifecycle word for a status. Nothing decides by it.
pub fn lifecycle_phase(
    status: &MachineStatus,
    deleting: bool,
    has_instance: bool,
    gone: bool,
) -> LifecyclePhase {
    if deleting {
        return if gone { LifecyclePhase::Deleted } else { LifecyclePhase::Deleting };
    }
    match status.machine_phase() {
        MachinePhase::Failed => LifecyclePhase::Failed,
        MachinePhase::Running
        | MachinePhase::Unknown
        | MachinePhase::Available
        | MachinePhase::InPlaceUpdating
        | MachinePhase::InPlaceUpdateSuccessful
        | MachinePhase::InPlaceUpdateFailed => LifecyclePhase::Running,
        MachinePhase::Terminating => LifecyclePhase::Deleting,
        MachinePhase::New
        | MachinePhase::Pending
        | MachinePhase::CrashLoopBackOff
        | MachinePhase::Other(_) => word_of_creation(status, has_instance),
    }
}

fn word_of_creation(status: &MachineStatus, has_instance: bool) -> LifecyclePhase {
    if has_instance && status.step == Some(MachineStep::JoinNode) {
        LifecyclePhase::Provisioned
    } else if has_instance || status.creation_started_at.is_some() {
        LifecyclePhase::Provisioning
    } else {
        LifecyclePhase::Pending
    }
}

#[cfg(test)]
mod tests {
    use ostler_api::machine::CurrentStatus;

    use super::*;

    fn status(phase: MachinePhase, step: Option<MachineStep>) -> MachineStatus {
        MachineStatus {
            current_status: Some(CurrentStatus { phase: Some(phase), ..CurrentStatus::default() }),
            step,
            ..MachineStatus::default()
        }
    }

    #[test]
    fn each_part_of_a_life_has_its_word() {
        let new = status(MachinePhase::New, None);
        assert_eq!(lifecycle_phase(&new, false, false, false), LifecyclePhase::Pending);
        let init = status(MachinePhase::New, Some(MachineStep::InitializeInstance));
        assert_eq!(lifecycle_phase(&init, false, true, false), LifecyclePhase::Provisioning);
        let join = status(MachinePhase::Pending, Some(MachineStep::JoinNode));
        assert_eq!(lifecycle_phase(&join, false, true, false), LifecyclePhase::Provisioned);
        let running = status(MachinePhase::Unknown, None);
        assert_eq!(lifecycle_phase(&running, false, true, false), LifecyclePhase::Running);
        assert_eq!(lifecycle_phase(&running, true, true, false), LifecyclePhase::Deleting);
        assert_eq!(lifecycle_phase(&running, true, true, true), LifecyclePhase::Deleted);
        let failed = status(MachinePhase::Failed, None);
        assert_eq!(lifecycle_phase(&failed, false, true, false), LifecyclePhase::Failed);
    }
}
