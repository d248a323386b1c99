//! The cloud's words in the protocol's words.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use ostler_driver_sdk::{DriverError, Instance as Answer, PowerState, Violation};
use sha2::{Digest, Sha256};

use crate::cloud::{Clock, CloudError, Instance, JournalError, NotOurs, Power, Refusal};
use crate::control::ControlError;
use crate::fault::Action;
use crate::fault::Injection;

/// The driver's answer about an instance.
pub(super) fn answer(instance: &Instance, clock: &Clock) -> Answer {
    let power = match instance.power(clock.now()) {
        Power::Pending => PowerState::Pending,
        Power::Running => PowerState::Running,
        Power::Deleting => PowerState::Deleting,
    };
    let identity = &instance.identity;
    Answer::new(instance.provider_id.clone())
        .machine(identity.machine_name.clone(), identity.machine_uid.clone())
        .cluster_id(identity.cluster_id.clone())
        .node_name(identity.machine_name.clone())
        .power_state(power)
        .initialized(instance.initialized)
        .address("InternalIP", internal_ip(&instance.provider_id).to_string())
        .address("Hostname", identity.machine_name.clone())
        .created_at(SystemTime::from(instance.created_at))
}

/// As [`answer`], with the provider id that a fault puts in place of the true one.
pub(super) fn answer_with(instance: &Instance, clock: &Clock, injection: &Injection) -> Answer {
    match &injection.action {
        Some(Action::AnswerProviderId(id)) => {
            let named = Instance { provider_id: id.clone(), ..instance.clone() };
            answer(&named, clock)
        }
        Some(
            Action::Fail(..) | Action::LoseReply | Action::Crash(_) | Action::ApplyPartially(..),
        )
        | None => answer(instance, clock),
    }
}

/// An address in 10.0.0.0/8 that is always the same for the same id.
pub(crate) fn internal_ip(id: &str) -> Ipv4Addr {
    match *Sha256::digest(id.as_bytes()) {
        [a, b, c, ..] => Ipv4Addr::new(10, a, b, c),
        _ => Ipv4Addr::new(10, 0, 0, 0),
    }
}

impl From<CloudError> for DriverError {
    fn from(error: CloudError) -> Self {
        match error {
            CloudError::Refused(refusal) => refused(&refusal),
            CloudError::Journal(error) => journal_error(&error),
            CloudError::Away => away(),
        }
    }
}

/// Changes before the outage stay.
pub(super) fn away() -> DriverError {
    DriverError::unavailable("the cloud does not answer").reason("CLOUD_AWAY")
}

/// The journal may or may not hold what was written last.
pub(super) fn journal_error(error: &JournalError) -> DriverError {
    DriverError::from_error(ostler_driver_sdk::Code::Internal, error).reason("STATE_FILE")
}

pub(super) fn control_error(error: &ControlError) -> DriverError {
    let code = ostler_driver_sdk::Code::FailedPrecondition;
    DriverError::from_error(code, error).reason("CONTROL_FILE").not_applied()
}

fn refused(refusal: &Refusal) -> DriverError {
    let message = refusal.to_string();
    let error = match refusal {
        Refusal::Absent { .. } => DriverError::not_found(message),
        Refusal::Several { .. } => DriverError::out_of_range(message).reason("SEVERAL_INSTANCES"),
        Refusal::Foreign(NotOurs { provider_id, cluster_id }) => {
            DriverError::not_ours(provider_id).of_cluster(cluster_id)
        }
        Refusal::Incompatible { paths, .. } => paths.iter().fold(
            DriverError::already_exists(message).reason("INCOMPATIBLE_INSTANCE"),
            |error, path| error.violation(path.as_str(), "differs from the instance that exists"),
        ),
        Refusal::BeingDeleted { .. } => DriverError::aborted(message).reason("OPERATION_PENDING"),
        Refusal::Full { retry_after, .. } => {
            let error = DriverError::resource_exhausted(message).reason("REGION_FULL");
            match retry_after {
                Some(delay) => error.retry_after(*delay),
                None => error,
            }
        }
    };
    error.not_applied()
}

/// A provider spec that reads well and cannot be meant.
pub(super) fn bad_spec(violations: &[Violation]) -> DriverError {
    let texts: Vec<_> =
        violations.iter().map(|v| format!("providerSpec.{}: {}", v.path, v.description)).collect();
    violations
        .iter()
        .fold(DriverError::invalid_argument(texts.join("; ")), |error, violation| {
            error.violation(violation.path.clone(), violation.description.clone())
        })
        .reason("INVALID_PROVIDER_SPEC")
        .not_applied()
}
