//! From an operation of the stream to a call of the driver, and back.

use std::collections::{BTreeMap, HashMap};

use ostler_driver_sdk::handler::Answer;
use ostler_driver_sdk::{Class, Context, DriverError, Secret};
use ostler_proto::v1alpha1 as proto;
use proto::operation::Request;
use proto::operation_result::Response;
use tonic::Status;

use crate::socket::Client;
use crate::{answer, lists};

/// The context of an operation, which the driver gets besides the request. `newer`: the secret in place of the one that
/// was read first.
pub(crate) async fn context(
    request: &Request,
    ctx: &Context,
    newer: Option<Secret>,
) -> Result<proto::OperationContext, DriverError> {
    let (kind, tags) = identity(request, ctx);
    let offline = matches!(request, Request::ValidateClass(_) | Request::GetVolumeIds(_));
    let class = if ctx.class_name().is_some() { Some(ctx.class().await?) } else { None };
    let secret = match &class {
        Some(class) if class.has_secret() && !offline => bytes(&match newer {
            Some(secret) => secret,
            None => ctx.secret().await?,
        }),
        Some(_) | None => HashMap::new(),
    };
    let target = ctx.target();
    let timeout = ctx.remaining();
    // A timeout of zero would read as no timeout.
    if timeout.is_zero() {
        let message = "the time of the operation was over before the driver was called";
        return Err(DriverError::deadline_exceeded(message).not_applied());
    }
    if ctx.is_cancelled() {
        let message = "the operation was cancelled before the driver was called";
        return Err(DriverError::canceled(message).not_applied());
    }
    Ok(proto::OperationContext {
        operation_id: ctx.operation_id().to_owned(),
        idempotency_key: ctx.idempotency_key().to_owned(),
        create_idempotency_key: ctx.create_idempotency_key().to_owned(),
        target: Some(proto::Target {
            kind: kind.to_owned(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            uid: target.uid.clone(),
        }),
        cluster_id: ctx.cluster_id().to_owned(),
        previous_cluster_ids: ctx.previous_cluster_ids().to_vec(),
        identity_tags: tags.into_iter().collect(),
        adopt_by_name: ctx.adopts_by_name(),
        checkpoint: ctx.checkpoint().unwrap_or_default().to_owned(),
        timeout: timeout.try_into().ok(),
        traceparent: ctx.traceparent().to_owned(),
        machine_class: class.map(|class| content(&class)),
        secret,
        machine: ctx.machine().cloned().map(Into::into),
    })
}

/// The kind of the operation's object, and the tags of that object.
fn identity(request: &Request, ctx: &Context) -> (&'static str, BTreeMap<String, String>) {
    match request {
        Request::ListMachines(_) | Request::ValidateClass(_) | Request::ListPools(_) => {
            ("MachineClass", BTreeMap::new())
        }
        Request::CreatePool(_)
        | Request::UpdatePool(_)
        | Request::DeletePool(_)
        | Request::GetPoolStatus(_)
        | Request::DeletePoolMachines(_)
        | Request::UpdatePoolMachine(_) => ("MachinePool", ctx.pool_identity().tags()),
        Request::CreateMachine(_)
        | Request::InitializeMachine(_)
        | Request::UpdateMachine(_)
        | Request::DeleteMachine(_)
        | Request::GetMachineStatus(_)
        | Request::GetVolumeIds(_) => ("Machine", ctx.identity().tags()),
    }
}

fn bytes(secret: &Secret) -> HashMap<String, Vec<u8>> {
    secret.keys().filter_map(|key| Some((key.to_owned(), secret.get(key)?.to_vec()))).collect()
}

fn content(class: &Class) -> proto::ClassContent {
    let shape = class.shape.clone().map(|shape| proto::MachineShape {
        capacity: shape.capacity.into_iter().collect(),
        instance_type: shape.instance_type,
        region: shape.region,
        zone: shape.zone,
        architecture: shape.architecture,
    });
    proto::ClassContent {
        r#ref: Some(proto::ObjectRevision {
            namespace: class.namespace.clone(),
            name: class.name.clone(),
            uid: class.uid.clone(),
            revision: class.revision.clone(),
        }),
        provider: class.provider.clone(),
        provider_spec_json: class.provider_spec_json.clone(),
        provider_spec_sha256: class.provider_spec_sha256.clone(),
        labels: class.labels.clone().into_iter().collect(),
        shape,
    }
}

/// A call that changes something, and whose answer may have a checkpoint.
macro_rules! mutation {
    ($client:ident.$call:ident($asked:expr), $arm:path) => {
        saved($client.$call($asked).await, |it| &mut it.checkpoint, $arm)
    };
}

/// Calls the driver and waits for its answer, which may be of the operation's own checkpoint as well.
pub(crate) async fn call(
    Client { calls: mut client, .. }: Client,
    request: Request,
    context: proto::OperationContext,
    ctx: &Context,
) -> Answer {
    let context = Some(Box::new(context));
    let (response, checkpoint) = match request {
        Request::CreatePool(it) => {
            let asked = proto::CreatePoolRequest { context, ..it };
            mutation!(client.create_pool(asked), Response::CreatePool)
        }
        Request::UpdatePool(it) => {
            let asked = proto::UpdatePoolRequest { context, ..it };
            mutation!(client.update_pool(asked), Response::UpdatePool)
        }
        Request::DeletePool(it) => {
            let asked = proto::DeletePoolRequest { context, ..it };
            mutation!(client.delete_pool(asked), Response::DeletePool)
        }
        Request::GetPoolStatus(it) => {
            let asked = proto::GetPoolStatusRequest { context, ..it };
            whole(lists::pool_status(client, asked).await)
        }
        Request::ListPools(_) => whole(lists::pools(client, context).await),
        Request::DeletePoolMachines(it) => {
            let asked = proto::DeletePoolMachinesRequest { context, ..it };
            mutation!(client.delete_pool_machines(asked), Response::DeletePoolMachines)
        }
        Request::UpdatePoolMachine(it) => {
            let asked = proto::UpdatePoolMachineRequest { context, ..it };
            mutation!(client.update_pool_machine(asked), Response::UpdatePoolMachine)
        }
        Request::CreateMachine(it) => {
            let asked = proto::CreateMachineRequest { context, ..it };
            mutation!(client.create_machine(asked), Response::CreateMachine)
        }
        Request::InitializeMachine(it) => {
            let asked = proto::InitializeMachineRequest { context, ..it };
            mutation!(client.initialize_machine(asked), Response::InitializeMachine)
        }
        Request::UpdateMachine(it) => {
            let asked = proto::UpdateMachineRequest { context, ..it };
            mutation!(client.update_machine(asked), Response::UpdateMachine)
        }
        Request::DeleteMachine(it) => {
            let asked = proto::DeleteMachineRequest { context, ..it };
            mutation!(client.delete_machine(asked), Response::DeleteMachine)
        }
        Request::GetMachineStatus(it) => {
            let asked = proto::GetMachineStatusRequest { context, ..it };
            read(client.get_machine_status(asked).await, Response::GetMachineStatus)
        }
        Request::ListMachines(_) => whole(lists::machines(client, context).await),
        Request::GetVolumeIds(it) => {
            let asked = proto::GetVolumeIdsRequest { context, ..it };
            read(client.get_volume_ids(asked).await, Response::GetVolumeIds)
        }
        Request::ValidateClass(it) => {
            let asked = proto::ValidateClassRequest { context, ..it };
            read(client.validate_class(asked).await, Response::ValidateClass)
        }
    };
    if !checkpoint.is_empty() {
        ctx.save_checkpoint(checkpoint);
    }
    response
}

/// An answer whose checkpoint travels apart from it on the stream.
fn saved<T>(
    answer: Result<tonic::Response<T>, Status>,
    checkpoint: impl FnOnce(&mut T) -> &mut String,
    arm: impl FnOnce(T) -> Response,
) -> (Answer, String) {
    match answer {
        Ok(response) => {
            let mut response = response.into_inner();
            let checkpoint = std::mem::take(checkpoint(&mut response));
            (Ok(arm(response)), checkpoint)
        }
        Err(status) => failed(&status),
    }
}

fn read<T>(
    answer: Result<tonic::Response<T>, Status>,
    arm: impl FnOnce(T) -> Response,
) -> (Answer, String) {
    whole(answer.map(|response| arm(response.into_inner())))
}

fn whole(answer: Result<Response, Status>) -> (Answer, String) {
    answer.map_or_else(|status| failed(&status), |response| (Ok(response), String::new()))
}

fn failed(status: &Status) -> (Answer, String) {
    let (error, checkpoint) = answer::error(status);
    (Err(error), checkpoint)
}
