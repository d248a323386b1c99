//! Between the operations of the core and the wire's.

mod pool;

use std::collections::HashMap;
use std::time::Duration;

use ostler_api::driver::{Certainty, ErrorCode, OperationKind};
use ostler_api::machine::MachineAddress;
use ostler_api::names::{self, tag};
use ostler_api::operation::{
    ClassReference, ClassReview, Dispatch, Failure, InfrastructureError, InstanceRecord,
    LONGEST_WAIT, MachineMetadata, Outcome, Part, Power, Reason, Request, Stranger, Success,
    Target, UserData,
};
use ostler_proto::v1alpha1::{
    Address, BootstrapData, CreateMachineRequest, DeleteMachineRequest, DeletionOutcome,
    FieldViolation, GetMachineStatusRequest, GetVolumeIdsRequest, InitializeMachineRequest,
    ListMachinesRequest, ListPoolsRequest, MachineErrorReason, MachineMetadata as WireMetadata,
    MachinePowerState, MachineRecord, ObjectRevision, Operation, OperationError, PartRecord,
    Target as WireTarget, UpdateMachineRequest, ValidateClassRequest, operation, operation_result,
};

use crate::operation::Order;
use crate::session::frames;

/// Longest text for people, in bytes. A longer text is cut.
pub(crate) const MESSAGE_BYTES: usize = 2 << 10;
/// Longest name or word, in bytes.
pub(crate) const WORD_BYTES: usize = 256;
/// Most violations of a failure.
pub(crate) const VIOLATIONS: usize = 64;
/// Most addresses of an instance.
pub(crate) const ADDRESSES: usize = 64;
/// Most paths, warnings and failed parts of an answer.
pub(crate) const FEW: usize = 256;

/// The verb of a request.
pub(crate) fn kind_of(request: &operation::Request) -> OperationKind {
    use operation::Request;
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

pub(crate) fn target(target: Target) -> WireTarget {
    let Target { kind, namespace, name, uid } = target;
    WireTarget { kind, namespace, name, uid: uid.into() }
}

/// A Machine's data for drivers.
pub(crate) fn metadata(of: MachineMetadata) -> WireMetadata {
    WireMetadata {
        labels: of.labels.into_iter().collect(),
        annotations: of.annotations.into_iter().collect(),
        node_template_json: of.node_template_json,
        version: of.version,
        zone: of.zone,
        incomplete: of.incomplete,
    }
}

pub(crate) fn reference(class: ClassReference) -> ObjectRevision {
    let ClassReference { namespace, name, revision } = class;
    ObjectRevision { namespace, name, uid: String::new(), revision: revision.into() }
}

pub(crate) fn class_reference(of: &ObjectRevision) -> ClassReference {
    let ObjectRevision { namespace, name, revision, .. } = of.clone();
    ClassReference { namespace, name, revision: revision.into() }
}

/// An operation for the driver of its provider, in the cluster with this id.
pub(crate) fn order(dispatch: Dispatch, cluster_id: &str) -> Order {
    let volumes = if let Request::VolumeIds { specs } = &dispatch.request {
        specs.keys().cloned().collect()
    } else {
        Vec::new()
    };
    Order {
        kind: dispatch.kind(),
        id: dispatch.id.clone(),
        provider: dispatch.provider,
        timeout: dispatch.timeout,
        lane: dispatch.lane,
        operation: Box::new(Operation {
            operation_id: dispatch.id.as_str().to_owned(),
            idempotency_key: dispatch.idempotency_key,
            timeout: Some(frames::duration(dispatch.timeout)),
            machine_class: dispatch.class.map(reference),
            checkpoint: dispatch.checkpoint,
            adopt_by_name: dispatch.adopt_by_name,
            create_idempotency_key: creation_key(&dispatch.target),
            request: Some(request(dispatch.request, &dispatch.target, cluster_id)),
            target: Some(target(dispatch.target)),
            machine: dispatch.machine.map(|it| Box::new(metadata(*it))),
            ..Operation::default()
        }),
        volumes,
        class: None,
        secret: None,
    }
}

fn bootstrap(user_data: Option<UserData>) -> Option<BootstrapData> {
    user_data.map(|data| BootstrapData {
        format: data.format().to_owned(),
        user_data: data.into_bytes(),
    })
}

fn request(request: Request, target: &Target, cluster_id: &str) -> operation::Request {
    match request {
        Request::Create { user_data, provider_id } => {
            let tags = identity_tags(target, cluster_id);
            operation::Request::CreateMachine(CreateMachineRequest {
                bootstrap: bootstrap(user_data),
                provider_id: provider_id.into(),
                tags,
                ..Default::default()
            })
        }
        Request::Initialize { user_data, provider_id } => {
            operation::Request::InitializeMachine(InitializeMachineRequest {
                bootstrap: bootstrap(user_data),
                provider_id: provider_id.into(),
                ..Default::default()
            })
        }
        Request::Update { provider_id, last_applied_spec_json } => {
            let update = UpdateMachineRequest {
                provider_id: provider_id.into(),
                last_applied_spec_json,
                ..Default::default()
            };
            operation::Request::UpdateMachine(update)
        }
        Request::Delete { provider_id } => {
            operation::Request::DeleteMachine(DeleteMachineRequest {
                provider_id: provider_id.into(),
                ..Default::default()
            })
        }
        Request::Status { provider_id } => {
            operation::Request::GetMachineStatus(GetMachineStatusRequest {
                provider_id: provider_id.into(),
                ..Default::default()
            })
        }
        Request::VolumeIds { specs } => operation::Request::GetVolumeIds(GetVolumeIdsRequest {
            pv_specs_json: specs.into_values().collect(),
            ..Default::default()
        }),
        Request::List => {
            operation::Request::ListMachines(ListMachinesRequest { ..Default::default() })
        }
        Request::Validate { spec_json, old_spec_json } => {
            operation::Request::ValidateClass(ValidateClassRequest {
                provider_spec_json: spec_json,
                old_provider_spec_json: old_spec_json,
                ..Default::default()
            })
        }
        Request::CreatePool { desired, model, provider_id } => {
            pool::create((desired, model), provider_id, (target, cluster_id))
        }
        Request::UpdatePool { provider_id, size, model } => pool::update(provider_id, size, model),
        Request::DeletePool { provider_id } => pool::delete(provider_id),
        Request::PoolStatus { provider_id, with_instances } => {
            pool::status(provider_id, with_instances)
        }
        Request::ListPools => operation::Request::ListPools(ListPoolsRequest::default()),
        Request::DeletePoolMachines { provider_id, instances, size } => {
            pool::delete_machines(provider_id, instances, size)
        }
        Request::UpdatePoolMachine { provider_id, instance, model_hash, drained } => {
            pool::update_machine(provider_id, instance, (model_hash, drained))
        }
    }
}

/// The idempotency key of the target's creation. No key for an object without an instance.
fn creation_key(target: &Target) -> String {
    let creation = match target.kind.as_str() {
        names::MACHINE => OperationKind::CreateMachine,
        names::MACHINE_POOL => OperationKind::CreatePool,
        _ => return String::new(),
    };
    creation.key_of(target.uid.as_str())
}

/// The tags of the instance, from its first moment.
fn identity_tags(target: &Target, cluster_id: &str) -> HashMap<String, String> {
    let tags = [
        (tag::CLUSTER_ID, cluster_id),
        (tag::MACHINE_NAME, &target.name),
        (tag::MACHINE_UID, target.uid.as_str()),
    ];
    tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// The outcome from a driver's answer. `volumes`: names of the requested volumes.
pub(crate) fn outcome(response: operation_result::Response, volumes: Vec<String>) -> Outcome {
    use operation_result::Response;
    match response {
        Response::CreateMachine(answer) => {
            Ok(Success::Created(answer.machine.map(record).transpose()?.unwrap_or_default()))
        }
        Response::InitializeMachine(answer) => {
            Ok(Success::Initialized(answer.machine.map(record).transpose()?))
        }
        Response::UpdateMachine(answer) => {
            Ok(Success::Updated { applied_paths: short(answer.applied_paths, WORD_BYTES) })
        }
        Response::DeleteMachine(answer) => {
            deletion(answer.outcome(), &answer.provider_id, &answer.cluster_id)
        }
        Response::GetMachineStatus(answer) => {
            Ok(Success::Read(answer.machine.map(record).transpose()?.unwrap_or_default()))
        }
        Response::GetVolumeIds(answer) => volume_ids(volumes, answer.volume_ids),
        Response::ListMachines(answer) => Ok(Success::Listed {
            instances: answer.machines.into_iter().map(record).collect::<Result<_, _>>()?,
            parts: parts(answer.parts)?,
            scope: scope(answer.list_scope),
        }),
        Response::ValidateClass(mut answer) => {
            few(&mut answer.violations, VIOLATIONS);
            Ok(Success::Reviewed(ClassReview {
                violations: answer.violations.into_iter().map(violation).collect(),
                hot: answer.change_is_hot_updatable,
                fixed_paths: short(answer.not_hot_updatable_paths, WORD_BYTES),
                warnings: short(answer.warnings, MESSAGE_BYTES),
            }))
        }
        Response::CreatePool(answer) => pool::changed(answer.pool),
        Response::UpdatePool(answer) => pool::changed(answer.pool),
        Response::DeletePool(answer) => pool::deleted(&answer),
        Response::GetPoolStatus(answer) => pool::read(answer),
        Response::ListPools(answer) => pool::listed(answer),
        Response::DeletePoolMachines(answer) => pool::machines_deleted(answer),
        Response::UpdatePoolMachine(answer) => pool::machine_updated(answer),
    }
}

/// A shortened scope would be another scope.
fn scope(of: String) -> String {
    Some(of).filter(|it| it.len() <= WORD_BYTES).unwrap_or_default()
}

/// An instance or a group is gone only if the driver says so.
fn deletion(outcome: DeletionOutcome, provider_id: &str, cluster_id: &str) -> Outcome {
    match outcome {
        DeletionOutcome::Deleted => Ok(Success::Deleted { was_absent: false }),
        DeletionOutcome::WasAbsent => Ok(Success::Deleted { was_absent: true }),
        DeletionOutcome::NotOurs => Err(Failure::not_ours(provider_id, cluster_id)),
        DeletionOutcome::Unspecified => {
            let text = "the driver does not say whether it is gone";
            Err(Failure::new(ErrorCode::Internal, Certainty::Unknown, text))
        }
    }
}

/// An id for each name, in order; any other answer says nothing.
fn volume_ids(asked: Vec<String>, ids: Vec<String>) -> Outcome {
    if asked.len() != ids.len() {
        let text = format!("the driver answered {} ids for {} volumes", ids.len(), asked.len());
        return Err(Failure::new(ErrorCode::Internal, Certainty::NotApplied, &text));
    }
    Ok(Success::VolumeIds(asked.into_iter().zip(ids).collect()))
}

fn record(mut record: MachineRecord) -> Result<InstanceRecord, Failure> {
    let MachineRecord { provider_id, machine_name, machine_uid, node_name, cluster_id, .. } =
        &record;
    bounded([provider_id, machine_name, machine_uid, node_name, cluster_id])?;
    let power = match record.power_state() {
        MachinePowerState::Stopped => Power::Stopped,
        MachinePowerState::Deleting => Power::Deleting,
        MachinePowerState::Unspecified
        | MachinePowerState::Pending
        | MachinePowerState::Running => Power::On,
    };
    few(&mut record.addresses, ADDRESSES);
    // Part of an address is another one.
    let is_short = |one: &Address| one.address.len().max(one.r#type.len()) <= WORD_BYTES;
    let addresses = record.addresses.into_iter().filter(is_short);
    Ok(InstanceRecord {
        provider_id: record.provider_id.into(),
        machine_name: record.machine_name,
        machine_uid: record.machine_uid.into(),
        cluster_id: record.cluster_id,
        node_name: record.node_name,
        initialized: record.initialized,
        power,
        addresses: addresses
            .map(|one| MachineAddress { type_: one.r#type, address: one.address })
            .collect(),
        fault: record.fault.map(|error| Box::new(failure(*error))),
    })
}

/// A part whose tags name no Machine is ignored.
fn parts(records: Vec<PartRecord>) -> Result<Vec<Part>, Failure> {
    let tagged = records.into_iter().filter(|it| !it.machine_uid.is_empty() && !it.id.is_empty());
    let part = |it: PartRecord| {
        bounded([&it.id, &it.kind, &it.machine_name, &it.machine_uid, &it.cluster_id])?;
        Ok(Part {
            id: it.id.into(),
            kind: it.kind,
            machine_name: it.machine_name,
            machine_uid: it.machine_uid.into(),
            cluster_id: it.cluster_id,
        })
    };
    tagged.map(part).collect()
}

/// Each instance and each group has a place in an object of the API, which takes only so much. A shortened name is
/// another name, so a name that is too long counts as absent.
fn bounded<const N: usize>(names: [&String; N]) -> Result<(), Failure> {
    if names.iter().any(|name| name.len() > WORD_BYTES) { Err(too_long()) } else { Ok(()) }
}

fn too_long() -> Failure {
    let text = "the driver's answer has a name that is longer than the contract allows";
    Failure::new(ErrorCode::Internal, Certainty::Unknown, text)
}

fn violation(of: FieldViolation) -> (String, String) {
    (cut(of.path, WORD_BYTES), cut(of.description, MESSAGE_BYTES))
}

/// A driver's failure, cut to the parts that the core keeps.
pub(crate) fn failure(mut error: OperationError) -> Failure {
    few(&mut error.violations, VIOLATIONS);
    let reason = error.acts_by();
    let infrastructure = InfrastructureError {
        code: cut(error.provider_code, WORD_BYTES),
        request_id: cut(error.provider_request_id, WORD_BYTES),
    };
    Failure {
        code: ErrorCode::from_number(error.code),
        certainty: Certainty::from_number(error.certainty),
        reason: if reason != MachineErrorReason::Unspecified {
            reason.word().to_owned()
        } else if error.reason.starts_with("CORE_") {
            // Only the core gives these.
            Reason::Reserved.into()
        } else {
            cut(error.reason, WORD_BYTES)
        },
        message: cut(error.message, MESSAGE_BYTES),
        retry_after: error
            .retry_after
            .and_then(|after| Duration::try_from(after).ok())
            .map(|after| after.min(LONGEST_WAIT)),
        violations: error.violations.into_iter().map(violation).collect(),
        stranger: Stranger::new(
            &cut(error.provider_id, WORD_BYTES),
            &cut(error.cluster_id, WORD_BYTES),
        ),
        infrastructure: (infrastructure != InfrastructureError::default())
            .then(|| Box::new(infrastructure)),
    }
}

/// The first so many items, without room for more: a value made of the list may keep its memory.
pub(crate) fn few<T>(list: &mut Vec<T>, most: usize) {
    list.truncate(most);
    list.shrink_to_fit();
}

/// A few texts of at most so many bytes.
fn short(mut texts: Vec<String>, bytes: usize) -> Vec<String> {
    few(&mut texts, FEW);
    texts.into_iter().map(|text| cut(text, bytes)).collect()
}

/// At most so many bytes, ending between characters, and no room for more.
pub(crate) fn cut(mut text: String, bytes: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes));
    text.shrink_to_fit();
    text
}

pub(crate) fn error(failure: Failure) -> OperationError {
    let stranger = failure.stranger.map(|it| *it).unwrap_or_default();
    let infrastructure = failure.infrastructure.map(|it| *it).unwrap_or_default();
    let violations = failure.violations.into_iter();
    OperationError {
        code: failure.code.number(),
        typed_reason: MachineErrorReason::of_word(&failure.reason).into(),
        reason: failure.reason,
        message: failure.message,
        retry_after: failure.retry_after.map(frames::duration),
        certainty: failure.certainty.number(),
        violations: violations
            .map(|(path, description)| FieldViolation { path, description })
            .collect(),
        provider_code: infrastructure.code,
        provider_request_id: infrastructure.request_id,
        provider_id: stranger.provider_id.into(),
        cluster_id: stranger.cluster_id,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use ostler_api::driver::{Certainty, ErrorCode};
    use ostler_api::operation::{LONGEST_WAIT, Reason, Success};
    use ostler_proto::v1alpha1::operation_result::Response;
    use ostler_proto::v1alpha1::{
        CreateMachineResponse, ListMachinesResponse, MachineErrorReason, MachineRecord,
        OperationError, UpdateMachineResponse, ValidateClassResponse,
    };

    use super::{FEW, MESSAGE_BYTES, WORD_BYTES};

    #[test]
    fn a_name_of_an_instance_that_is_too_long_is_a_wrong_answer_and_is_not_cut() {
        let created = |machine: MachineRecord| {
            let answer = CreateMachineResponse { machine: Some(machine), ..Default::default() };
            super::outcome(Response::CreateMachine(answer), Vec::new())
        };
        let name = |bytes| "x".repeat(bytes);
        let of = |provider_id| MachineRecord { provider_id, ..Default::default() };
        assert!(created(of(name(WORD_BYTES))).is_ok());
        let failure = created(of(name(WORD_BYTES + 1))).unwrap_err();
        assert_eq!((failure.code, failure.certainty), (ErrorCode::Internal, Certainty::Unknown));
        let long = || name(WORD_BYTES + 1);
        for machine in [
            MachineRecord { machine_name: long(), ..of(name(1)) },
            MachineRecord { machine_uid: long(), ..of(name(1)) },
            MachineRecord { node_name: long(), ..of(name(1)) },
            MachineRecord { cluster_id: long(), ..of(name(1)) },
        ] {
            assert!(created(machine).is_err());
        }
        // A list that lacks an instance must not look whole.
        let machines = vec![of(name(1)), of(name(WORD_BYTES + 1))];
        let list = ListMachinesResponse { machines, ..Default::default() };
        assert!(super::outcome(Response::ListMachines(list), Vec::new()).is_err());
    }

    #[test]
    fn of_paths_and_warnings_few_are_kept_and_each_is_cut() {
        let texts = || vec!["x".repeat(MESSAGE_BYTES + 1); FEW + 1];
        let sizes = |texts: &[String]| (texts.len(), texts.iter().map(String::len).max());
        let answer = UpdateMachineResponse { applied_paths: texts(), ..Default::default() };
        let updated = super::outcome(Response::UpdateMachine(answer), Vec::new());
        let Ok(Success::Updated { applied_paths }) = updated else { panic!("{updated:?}") };
        assert_eq!(sizes(&applied_paths), (FEW, Some(WORD_BYTES)));
        let answer = ValidateClassResponse {
            not_hot_updatable_paths: texts(),
            warnings: texts(),
            ..Default::default()
        };
        let reviewed = super::outcome(Response::ValidateClass(answer), Vec::new());
        let Ok(Success::Reviewed(review)) = reviewed else { panic!("{reviewed:?}") };
        assert_eq!(sizes(&review.fixed_paths), (FEW, Some(WORD_BYTES)));
        assert_eq!(sizes(&review.warnings), (FEW, Some(MESSAGE_BYTES)));
    }

    #[test]
    fn a_driver_asks_for_a_wait_of_an_hour_at_most() {
        let wait = |seconds| {
            let retry_after = Some(prost_types::Duration { seconds, nanos: 0 });
            super::failure(OperationError { retry_after, ..Default::default() }).retry_after
        };
        assert_eq!(wait(42), Some(Duration::from_secs(42)));
        assert_eq!(wait(i64::MAX), Some(LONGEST_WAIT));
        assert_eq!(wait(-1), None);
    }

    /// Words in backquotes that are written in capitals.
    fn words(text: &str) -> BTreeSet<&str> {
        let is_word =
            |it: &&str| it.len() > 3 && it.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        text.split('`').skip(1).step_by(2).filter(is_word).collect()
    }

    #[test]
    fn contract_and_manual_name_the_reasons_that_the_core_acts_on() {
        let acted_on: BTreeSet<_> = Reason::OF_DRIVERS.iter().map(|it| it.word()).collect();
        let known = (1..).map_while(|number| MachineErrorReason::try_from(number).ok());
        assert_eq!(known.map(MachineErrorReason::word).collect::<BTreeSet<_>>(), acted_on);
        let manual = include_str!("../../../docs/driver-authors.md");
        let (_, from) = manual.split_once("The core acts on ").unwrap();
        let (manual, _) = from.split_once("; others are").unwrap();
        assert_eq!(words(manual), acted_on);
    }

    #[test]
    fn the_core_acts_on_the_type_of_a_reason_and_on_the_word_of_a_driver_that_has_no_types() {
        let reason = |typed: i32, word: &str| {
            let error = OperationError {
                typed_reason: typed,
                reason: word.to_owned(),
                ..OperationError::default()
            };
            super::failure(error).reason
        };
        let throttled = MachineErrorReason::Throttled.into();
        assert_eq!(reason(throttled, "RATE_EXCEEDED"), Reason::Throttled.word());
        assert_eq!(reason(0, "THROTTLED"), Reason::Throttled.word());
        assert_eq!(reason(99, "NEW_WORD"), "NEW_WORD");
    }
}
