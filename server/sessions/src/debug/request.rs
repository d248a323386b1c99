//! The request of an Invoke, with its gaps filled in.

use std::time::Duration;

use ostler_api::driver::OperationKind;
use ostler_api::operation::Lane;
use ostler_proto::json;
use ostler_proto::v1alpha1::{
    InvokeRequest, ObjectRevision, Operation, SessionSelector, Target, operation,
};
use tonic::{Code, Status};

use super::{KnownTarget, Targets};
use crate::ClassError;
use crate::convert::{self, kind_of};
use crate::hub::Selected;
use crate::operation::Order;
use crate::service::status;
use crate::session::frames;
use crate::shell::Shell;
use crate::tail::json_name;

/// Longest time of an operation by hand.
const LONGEST: Duration = Duration::from_hours(24);

/// One operation by hand, ready to be sent.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) order: Order,
    /// The session that would get the request now, if any.
    pub(super) session: Option<Selected>,
}

/// Checks a request and fills it in.
pub(super) fn prepare(
    shell: &Shell,
    targets: &dyn Targets,
    request: InvokeRequest,
) -> Result<Prepared, Status> {
    let operation = request.operation.unwrap_or_default();
    let kind = check(&operation, request.allow_mutation || request.dry_run)?;
    let Operation {
        target,
        timeout,
        machine_class,
        checkpoint,
        idempotency_key,
        adopt_by_name,
        request: verb,
        ..
    } = operation;
    let mut verb = verb.ok_or_else(no_operation)?;
    let target = addressed(target.unwrap_or_default(), kind, targets.namespace());
    let found = known(&target, targets)?;
    refuse_pooled(kind, &target, found.as_ref())?;
    let target =
        Target { uid: found.as_ref().map_or(target.uid, |found| found.uid.clone()), ..target };
    if kind.is_mutation() && target.uid.is_empty() {
        let message = "operation.target.uid (--target-uid) is empty: name a Machine (--machine) or pool \
                       (--pool) that is there, or give a UID";
        return Err(Status::invalid_argument(message));
    }
    fill_provider_id(&mut verb, found.as_ref());
    let named = machine_class.or_else(|| class_target(&target));
    let class = named.or_else(|| found.map(|found| convert::reference(found.class)));
    let class = class.map(|class| resolve(shell, targets, class)).transpose()?;
    if let (operation::Request::ValidateClass(it), Some(class)) = (&mut verb, &class)
        && it.provider_spec_json.is_empty()
    {
        it.provider_spec_json.clone_from(&class.provider_spec_json);
    }
    let (provider, session) = address(shell, request.session.as_ref(), class.as_ref())?;
    let operation_id = uuid::Uuid::new_v4().to_string();
    let key =
        if idempotency_key.is_empty() { format!("debug:{operation_id}") } else { idempotency_key };
    let timeout = time(timeout, kind)?;
    let operation = Operation {
        operation_id,
        idempotency_key: key,
        target: Some(target),
        timeout: Some(frames::duration(timeout)),
        machine_class: class.map(|class| class.reference),
        checkpoint,
        adopt_by_name,
        request: Some(verb),
        ..Operation::default()
    };
    let order = Order {
        id: operation.operation_id.as_str().into(),
        kind,
        provider: provider.into(),
        timeout,
        lane: Lane::User,
        operation: Box::new(operation),
        volumes: Vec::new(),
        class: None,
        secret: None,
    };
    Ok(Prepared { order, session })
}

fn check(operation: &Operation, mutations: bool) -> Result<OperationKind, Status> {
    let kind = operation.request.as_ref().map(kind_of).ok_or_else(no_operation)?;
    if kind.is_mutation() && !mutations {
        let message = format!(
            "{} changes the infrastructure; set allow_mutation (--allow-mutation) if you mean it, or dry_run (--dry-run)",
            json_name(kind)
        );
        return Err(status(Code::FailedPrecondition, "MUTATION_NOT_ALLOWED", message));
    }
    if operation.idempotency_key.len() > 64 || !operation.idempotency_key.is_ascii() {
        return Err(Status::invalid_argument(
            "operation.idempotency_key is above 64 ASCII characters",
        ));
    }
    Ok(kind)
}

fn no_operation() -> Status {
    let known = json::arms::<Operation>("request").join(", ");
    Status::invalid_argument(format!("operation must have one of {known}"))
}

/// The target with its kind and namespace.
fn addressed(target: Target, kind: OperationKind, namespace: &str) -> Target {
    let usual = match kind {
        OperationKind::ListMachines | OperationKind::ValidateClass | OperationKind::ListPools => {
            "MachineClass"
        }
        OperationKind::CreatePool
        | OperationKind::UpdatePool
        | OperationKind::DeletePool
        | OperationKind::GetPoolStatus
        | OperationKind::DeletePoolMachines
        | OperationKind::UpdatePoolMachine => "MachinePool",
        OperationKind::CreateMachine
        | OperationKind::InitializeMachine
        | OperationKind::UpdateMachine
        | OperationKind::DeleteMachine
        | OperationKind::GetMachineStatus
        | OperationKind::GetVolumeIds => "Machine",
    };
    let or = |value: String, other: &str| if value.is_empty() { other.to_owned() } else { value };
    Target { kind: or(target.kind, usual), namespace: or(target.namespace, namespace), ..target }
}

/// The Machine or pool that the target names. A target that does not exist needs a UID from the
/// caller.
fn known(target: &Target, targets: &dyn Targets) -> Result<Option<KnownTarget>, Status> {
    if !matches!(target.kind.as_str(), "Machine" | "MachinePool") || target.name.is_empty() {
        return Ok(None);
    }
    let Target { kind, namespace, name, .. } = target;
    match targets.find(kind, namespace, name) {
        Some(found) if target.uid.is_empty() || target.uid == found.uid => Ok(Some(found)),
        None if target.uid.is_empty() => {
            let message = format!(
                "there is no {kind} {namespace}/{name}; give operation.target.uid (--target-uid) for one that is gone"
            );
            Err(Status::not_found(message))
        }
        Some(_) | None => Ok(None),
    }
}

/// A driver knows the instance of a pool by its group alone, and would say that it is not ours.
fn refuse_pooled(
    kind: OperationKind,
    target: &Target,
    found: Option<&KnownTarget>,
) -> Result<(), Status> {
    let pool = found.map(|found| found.pool.as_str()).unwrap_or_default();
    if pool.is_empty() || kind == OperationKind::GetVolumeIds {
        return Ok(());
    }
    let message = format!(
        "machine {}/{} is an instance of machinepool {pool}, so {} does not find it; ask getPoolStatus of that pool (--pool {pool})",
        target.namespace,
        target.name,
        json_name(kind)
    );
    Err(status(Code::FailedPrecondition, "MACHINE_OF_POOL", message))
}

fn class_target(target: &Target) -> Option<ObjectRevision> {
    (target.kind == "MachineClass" && !target.name.is_empty()).then(|| ObjectRevision {
        uid: String::new(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        revision: String::new(),
    })
}

/// The instance or group of the target, where the request leaves it open.
fn fill_provider_id(verb: &mut operation::Request, found: Option<&KnownTarget>) {
    use operation::Request;
    let Some(found) = found else { return };
    let field = match verb {
        Request::InitializeMachine(it) => &mut it.provider_id,
        Request::UpdateMachine(it) => &mut it.provider_id,
        Request::DeleteMachine(it) => &mut it.provider_id,
        Request::GetMachineStatus(it) => &mut it.provider_id,
        Request::UpdatePool(it) => &mut it.provider_id,
        Request::DeletePool(it) => &mut it.provider_id,
        Request::GetPoolStatus(it) => &mut it.provider_id,
        Request::DeletePoolMachines(it) => &mut it.provider_id,
        Request::UpdatePoolMachine(it) => &mut it.provider_id,
        // Given, it would turn a create into an adoption.
        Request::CreateMachine(_)
        | Request::CreatePool(_)
        | Request::ListMachines(_)
        | Request::GetVolumeIds(_)
        | Request::ValidateClass(_)
        | Request::ListPools(_) => return,
    };
    if field.is_empty() {
        field.clone_from(&found.provider_id);
    }
}

/// A class that is there.
struct Class {
    reference: ObjectRevision,
    /// By the name that drivers use.
    provider: String,
    provider_spec_json: String,
}

fn resolve(shell: &Shell, targets: &dyn Targets, named: ObjectRevision) -> Result<Class, Status> {
    let mut reference = named;
    if reference.namespace.is_empty() {
        targets.namespace().clone_into(&mut reference.namespace);
    }
    let found = shell.classes.class(&reference.namespace, &reference.name);
    let content = found.map_err(|error| {
        let message = format!("class {}/{}: {error}", reference.namespace, reference.name);
        match error {
            ClassError::NotFound | ClassError::NamespaceDenied => Status::not_found(message),
            ClassError::Unavailable(_) => Status::unavailable(message),
        }
    })?;
    if reference.revision.is_empty() {
        reference.revision = content.revision.into();
    }
    let provider = shell.options.canonical(content.provider.as_str());
    Ok(Class {
        reference,
        provider: provider.into(),
        provider_spec_json: content.provider_spec_json,
    })
}

/// The driver for the request: the session's, which must be the driver of the class.
fn address(
    shell: &Shell,
    wanted: Option<&SessionSelector>,
    class: Option<&Class>,
) -> Result<(String, Option<Selected>), Status> {
    let wanted = wanted.cloned().unwrap_or_default();
    let by_class = class.map(|class| class.provider.as_str()).unwrap_or_default();
    let provider = match (wanted.provider.as_str(), wanted.session_id.as_str()) {
        ("", "") if by_class.is_empty() => {
            let message = "name a provider or a session in `session`, or a class in \
                           `operation.machineClass` (--class)";
            return Err(Status::invalid_argument(message));
        }
        ("", "") => by_class.to_owned(),
        (provider, _) => shell.options.canonical(provider).into(),
    };
    let selector = SessionSelector { provider: provider.clone(), session_id: wanted.session_id };
    let session = shell.with(|hub, _| hub.select(&selector));
    if !selector.session_id.is_empty() {
        let session = session.as_ref().ok_or_else(no_session)?;
        if !session.serves {
            let message = "operations go to the active session of a provider, when it is ready; \
                           this one is not";
            return Err(status(Code::FailedPrecondition, "SESSION_NOT_ACTIVE", message));
        }
    }
    let provider = session.as_ref().map_or(provider, |session| session.provider.clone().into());
    if !by_class.is_empty() && by_class != provider {
        let message = format!("the class is of provider {by_class}, not of {provider}");
        return Err(status(Code::FailedPrecondition, "WRONG_PROVIDER", message));
    }
    Ok((provider, session))
}

/// No session fits the request.
pub(super) fn no_session() -> Status {
    Status::not_found(
        "there is no such session; ListSessions (`ostler drivers ls`) shows those that there are",
    )
}

fn time(wanted: Option<prost_types::Duration>, kind: OperationKind) -> Result<Duration, Status> {
    let usual = kind.usual_time();
    let Some(wanted) = wanted else { return Ok(usual) };
    match Duration::try_from(wanted) {
        Ok(Duration::ZERO) => Ok(usual),
        Ok(wanted) if wanted <= LONGEST => Ok(wanted),
        Ok(_) | Err(_) => Err(Status::invalid_argument("operation.timeout must be from 0s to 24h")),
    }
}
