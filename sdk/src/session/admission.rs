//! Whether an operation may start.

use ostler_proto::v1alpha1 as proto;
use proto::operation::Request;
use proto::{MachineErrorReason, OperationKind};

use super::fence::Stale;
use crate::driver::{DriverInfo, OptionalOperation};
use crate::error::DriverError;
use crate::limits::wrong_cluster_ids;

/// Why nothing may start now. Most of these should not happen: the core knows better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Refusal {
    Unwelcome,
    /// It changes something, and comes from a core that only looks.
    OutsideFencing,
    Draining,
    Standby,
    OverCredit,
    /// Another mutation of the same target runs: one that the core gave up while it began here.
    TargetBusy,
}

/// The kind of an operation that may start, or the error to complete it with.
pub(crate) fn admit(
    info: &DriverInfo,
    operation: &proto::Operation,
    fenced: Result<(), Stale>,
    refusal: Option<Refusal>,
) -> Result<OperationKind, DriverError> {
    let kind = operation.request.as_ref().map(kind_of).ok_or_else(|| {
        DriverError::unimplemented("this driver is older than the operation")
            .reason("UNKNOWN_OPERATION")
    })?;
    if let Some(optional) = optional(kind).filter(|optional| !info.offers(*optional)) {
        return Err(DriverError::unimplemented(format!(
            "{optional:?} is not offered; a driver that has it names it in DriverInfo::offering"
        )));
    }
    if let Err(Stale { term, highest }) = fenced {
        return Err(DriverError::failed_precondition(format!(
            "term {term} is over, {highest} has begun"
        ))
        .reason("STALE_TERM")
        .not_applied());
    }
    if let Some(refusal) = refusal {
        return Err(refused(refusal));
    }
    match wrong_cluster_ids(&operation.previous_cluster_ids) {
        Some(wrong) => {
            Err(DriverError::invalid_argument(wrong).reason("BAD_CLUSTER_IDS").not_applied())
        }
        None => Ok(kind),
    }
}

fn refused(refusal: Refusal) -> DriverError {
    let (reason, message) = match refusal {
        Refusal::OutsideFencing => {
            let message = "a core that leads nothing changes nothing";
            return DriverError::failed_precondition(message)
                .reason("OUTSIDE_FENCING")
                .not_applied();
        }
        Refusal::Unwelcome => ("NO_SESSION", "the session has not begun"),
        Refusal::Draining => {
            (MachineErrorReason::DriverDraining.word(), "this process is about to end")
        }
        Refusal::Standby => ("STANDBY", "this session stands by"),
        Refusal::OverCredit => ("OVER_CREDIT", "more operations than agreed"),
        Refusal::TargetBusy => {
            let message = "an earlier operation still works on this target";
            return DriverError::aborted(message).reason("TARGET_BUSY").not_applied();
        }
    };
    DriverError::unavailable(message).reason(reason).not_applied()
}

pub(super) fn kind_of(request: &Request) -> OperationKind {
    match request {
        Request::CreateMachine(_) => OperationKind::CreateMachine,
        Request::InitializeMachine(_) => OperationKind::InitializeMachine,
        Request::UpdateMachine(_) => OperationKind::UpdateMachine,
        Request::DeleteMachine(_) => OperationKind::DeleteMachine,
        Request::GetMachineStatus(_) => OperationKind::GetMachineStatus,
        Request::ListMachines(_) => OperationKind::ListMachines,
        Request::GetVolumeIds(_) => OperationKind::GetVolumeIds,
        Request::ValidateClass(_) => OperationKind::ValidateClass,
        Request::CreatePool(_) => OperationKind::CreatePool,
        Request::UpdatePool(_) => OperationKind::UpdatePool,
        Request::DeletePool(_) => OperationKind::DeletePool,
        Request::GetPoolStatus(_) => OperationKind::GetPoolStatus,
        Request::ListPools(_) => OperationKind::ListPools,
        Request::DeletePoolMachines(_) => OperationKind::DeletePoolMachines,
        Request::UpdatePoolMachine(_) => OperationKind::UpdatePoolMachine,
    }
}

fn optional(kind: OperationKind) -> Option<OptionalOperation> {
    match kind {
        OperationKind::InitializeMachine => Some(OptionalOperation::InitializeMachine),
        OperationKind::UpdateMachine => Some(OptionalOperation::UpdateMachine),
        OperationKind::GetVolumeIds => Some(OptionalOperation::GetVolumeIds),
        OperationKind::ValidateClass => Some(OptionalOperation::ValidateClass),
        OperationKind::CreatePool
        | OperationKind::UpdatePool
        | OperationKind::DeletePool
        | OperationKind::GetPoolStatus
        | OperationKind::ListPools => Some(OptionalOperation::Pools),
        OperationKind::DeletePoolMachines => Some(OptionalOperation::DeletePoolMachines),
        OperationKind::UpdatePoolMachine => Some(OptionalOperation::UpdatePoolMachine),
        OperationKind::Unspecified
        | OperationKind::CreateMachine
        | OperationKind::DeleteMachine
        | OperationKind::GetMachineStatus
        | OperationKind::ListMachines => None,
    }
}

/// How long an operation may take when the core does not say.
pub(crate) fn default_timeout(request: &Request) -> std::time::Duration {
    const MINUTE: u64 = 60;
    std::time::Duration::from_secs(match request {
        Request::DeletePool(_) => 30 * MINUTE,
        Request::CreateMachine(_)
        | Request::DeleteMachine(_)
        | Request::CreatePool(_)
        | Request::UpdatePoolMachine(_) => 20 * MINUTE,
        Request::UpdateMachine(_) | Request::UpdatePool(_) | Request::DeletePoolMachines(_) => {
            10 * MINUTE
        }
        Request::InitializeMachine(_)
        | Request::ListMachines(_)
        | Request::GetPoolStatus(_)
        | Request::ListPools(_) => 5 * MINUTE,
        Request::GetMachineStatus(_) | Request::GetVolumeIds(_) => MINUTE,
        Request::ValidateClass(_) => 15,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> DriverInfo {
        DriverInfo::new("a").offering([OptionalOperation::UpdateMachine])
    }

    fn operation(request: Option<Request>) -> proto::Operation {
        proto::Operation { request, ..Default::default() }
    }

    #[test]
    fn an_operation_starts_only_if_nothing_stands_against_it() {
        let create = || Some(Request::CreateMachine(proto::CreateMachineRequest::default()));
        let update = || Some(Request::UpdateMachine(proto::UpdateMachineRequest::default()));
        let initialize =
            || Some(Request::InitializeMachine(proto::InitializeMachineRequest::default()));
        let stale = Err(Stale { term: 4, highest: 5 });
        let cases = [
            (create(), Ok(()), None, Ok(OperationKind::CreateMachine)),
            (update(), Ok(()), None, Ok(OperationKind::UpdateMachine)),
            (initialize(), Ok(()), None, Err("UNIMPLEMENTED")),
            (None, Ok(()), None, Err("UNKNOWN_OPERATION")),
            (create(), stale, None, Err("STALE_TERM")),
            (create(), stale, Some(Refusal::Draining), Err("STALE_TERM")),
            (create(), Ok(()), Some(Refusal::Draining), Err("DRIVER_DRAINING")),
            (create(), Ok(()), Some(Refusal::Standby), Err("STANDBY")),
            (create(), Ok(()), Some(Refusal::OverCredit), Err("OVER_CREDIT")),
            (create(), Ok(()), Some(Refusal::TargetBusy), Err("TARGET_BUSY")),
            (create(), Ok(()), Some(Refusal::Unwelcome), Err("NO_SESSION")),
            (create(), Ok(()), Some(Refusal::OutsideFencing), Err("OUTSIDE_FENCING")),
        ];
        for (request, fenced, refusal, expected) in cases {
            let operation = operation(request);
            let admitted = admit(&info(), &operation, fenced, refusal);
            let shown = admitted.as_ref().map(|kind| *kind).map_err(DriverError::reason_word);
            assert_eq!(shown, expected, "{operation:?} {refusal:?}");
            if let Err(error) = &admitted {
                assert_eq!(error.certainty(), crate::Certainty::NotApplied, "{error}");
            }
        }
    }

    #[test]
    fn no_operation_starts_with_ids_that_a_cluster_cannot_have_had() {
        let id = |bytes: usize| "x".repeat(bytes);
        for (ids, good) in [
            (vec![], true),
            (vec![id(256); 8], true),
            (vec![id(1); 9], false),
            (vec![id(257)], false),
            (vec![id(1), String::new()], false),
        ] {
            let request =
                Some(Request::ListMachines(proto::ListMachinesRequest { ..Default::default() }));
            let asked = proto::Operation { previous_cluster_ids: ids, ..operation(request) };
            let admitted = admit(&info(), &asked, Ok(()), None);
            assert_eq!(admitted.is_ok(), good, "{admitted:?}");
            let Err(error) = admitted else { continue };
            assert_eq!(error.code(), crate::Code::InvalidArgument);
            assert_eq!(error.certainty(), crate::Certainty::NotApplied);
        }
    }
}
