//! `status.phase`: the lifecycle word of the preboot proposal, derived from the rest of the status.

use ostler_api::machine::{LifecyclePhase, MachinePhase, MachineStatus};

/// Whether the end of a Machine was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineLife {
    /// The Machine was not deleted.
    Lives,
    /// The Machine was deleted; parts are left.
    Deleting,
    /// Nothing is left but the object.
    Gone,
}

/// The lifecycle word for a status: the last word whose conditions hold. No decision depends on the phase.
///
/// `node_ready`: there is a Node with the provider id of the Machine, and its condition Ready is True.
pub fn lifecycle_phase(
    status: &MachineStatus,
    life: MachineLife,
    has_provider_id: bool,
    node_ready: bool,
) -> LifecyclePhase {
    match life {
        MachineLife::Gone => return LifecyclePhase::Deleted,
        MachineLife::Deleting => return LifecyclePhase::Deleting,
        MachineLife::Lives => {}
    }
    let is_provisioned = has_provider_id && status.infrastructure_ready == Some(true);
    if has_failed(status) {
        LifecyclePhase::Failed
    } else if has_joined(status) || (is_provisioned && node_ready) {
        LifecyclePhase::Running
    } else if is_provisioned {
        LifecyclePhase::Provisioned
    } else if status.bootstrap_ready != Some(false)
        && (has_provider_id || status.creation_started_at.is_some())
    {
        LifecyclePhase::Provisioning
    } else {
        LifecyclePhase::Pending
    }
}

fn has_failed(status: &MachineStatus) -> bool {
    status.machine_phase() == MachinePhase::Failed
        || status.failure_reason.is_some()
        || status.failure_message.is_some()
}

/// The Node was ready once; its conditions tell the current state.
fn has_joined(status: &MachineStatus) -> bool {
    use MachinePhase as Phase;
    // Where there are no Nodes, it is the instance that does not run.
    let without_node = status.stopped_since.is_some();
    !without_node
        && matches!(
            status.machine_phase(),
            Phase::Running
                | Phase::Unknown
                | Phase::InPlaceUpdating
                | Phase::InPlaceUpdateSuccessful
                | Phase::InPlaceUpdateFailed
        )
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use ostler_api::machine::{CurrentStatus, FailureReason};

    use super::*;

    fn status(phase: MachinePhase) -> MachineStatus {
        MachineStatus {
            current_status: Some(CurrentStatus { phase: Some(phase), ..CurrentStatus::default() }),
            ..MachineStatus::default()
        }
    }

    fn asked() -> MachineStatus {
        MachineStatus {
            creation_started_at: Some(Timestamp::UNIX_EPOCH.into()),
            ..MachineStatus::default()
        }
    }

    #[test]
    fn a_machine_is_pending_until_its_data_are_there_and_a_driver_is_asked() {
        let word =
            |status: &MachineStatus| lifecycle_phase(status, MachineLife::Lives, false, false);
        assert_eq!(word(&MachineStatus::default()), LifecyclePhase::Pending);
        let waits = MachineStatus { bootstrap_ready: Some(false), ..asked() };
        assert_eq!(word(&waits), LifecyclePhase::Pending);
        let ready = MachineStatus { bootstrap_ready: Some(true), ..asked() };
        assert_eq!(word(&ready), LifecyclePhase::Provisioning);
        assert_eq!(word(&asked()), LifecyclePhase::Provisioning);
    }

    #[test]
    fn provisioned_needs_ready_infrastructure_and_a_provider_id() {
        let ready = MachineStatus { infrastructure_ready: Some(true), ..asked() };
        let word = |id| lifecycle_phase(&ready, MachineLife::Lives, id, false);
        assert_eq!(word(true), LifecyclePhase::Provisioned);
        assert_eq!(word(false), LifecyclePhase::Provisioning);
    }

    #[test]
    fn running_needs_a_ready_node_with_the_provider_id_and_lasts_while_it_is_unhealthy() {
        let ready = MachineStatus { infrastructure_ready: Some(true), ..asked() };
        let word = |id, node| lifecycle_phase(&ready, MachineLife::Lives, id, node);
        assert_eq!(word(true, true), LifecyclePhase::Running);
        assert_eq!(word(true, false), LifecyclePhase::Provisioned);
        let fails = MachineStatus { infrastructure_ready: Some(false), ..asked() };
        for word in [&fails, &asked()].map(|it| lifecycle_phase(it, MachineLife::Lives, true, true))
        {
            assert_eq!(word, LifecyclePhase::Provisioning, "its instance is not initialized");
        }
        let unknown = status(MachinePhase::Unknown);
        assert_eq!(
            lifecycle_phase(&unknown, MachineLife::Lives, true, false),
            LifecyclePhase::Running
        );
    }

    #[test]
    fn a_failure_wins_over_everything_but_deletion() {
        for failed in [
            status(MachinePhase::Failed),
            MachineStatus { failure_reason: Some(FailureReason::DataLoss), ..asked() },
            MachineStatus { failure_message: Some("lost".to_owned()), ..asked() },
        ] {
            let word = |life| lifecycle_phase(&failed, life, true, true);
            assert_eq!(word(MachineLife::Lives), LifecyclePhase::Failed);
            assert_eq!(word(MachineLife::Deleting), LifecyclePhase::Deleting);
            assert_eq!(word(MachineLife::Gone), LifecyclePhase::Deleted);
        }
    }
}
