//! What answers the operations of a session: the verbs of a [`Driver`], or the adapter, which calls a
//! driver in another process. For the latter alone this module is public.

mod pool;

use std::future::Future;
use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::HeldOperation;
use proto::operation::Request;
use proto::operation_result::Response;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::driver::{Driver, DriverInfo};
use crate::error::DriverError;
use crate::events::Events;
use crate::readiness::Readiness;
use crate::request::{
    CreateMachine, DeleteMachine, GetMachineStatus, GetVolumeIds, InitializeMachine, ListMachines,
    UpdateMachine, UserData, ValidateClass,
};

use self::pool::PoolRequest;

/// The result of an operation. The arm of the response is that of the request.
pub type Answer = Result<Response, DriverError>;

/// Answers the operations of a session.
pub trait Handler: Send + Sync + 'static {
    /// The driver's info. Must not change while the session layer runs.
    fn info(&self) -> DriverInfo;

    /// As [`Driver::readiness`].
    fn readiness(&self) -> Readiness {
        Readiness::default()
    }

    /// As [`Driver::events`].
    fn events(&self) -> Option<Events> {
        None
    }

    /// The process that the core sees, a UUID: operations of another session with this id are held by
    /// this one. `None`: a new one.
    fn instance_id(&self) -> Option<String> {
        None
    }

    /// Operations that were begun before this process began and still run. Asked for once, at the start.
    fn held(&self) -> Vec<HeldOperation> {
        Vec::new()
    }

    /// Waits until an operation of [`held`](Self::held) has ended. Returns what the core gets then.
    /// `cancelled`: the core does not want it any more.
    fn until_ended(
        &self,
        _operation_id: &str,
        _cancelled: CancellationToken,
    ) -> impl Future<Output = DriverError> + Send {
        std::future::pending()
    }

    /// How long after the end of its time an operation is still waited for: for an answer that comes from another process,
    /// which was told when to stop.
    fn grace(&self) -> Duration {
        Duration::ZERO
    }

    /// Does one operation. Dropped when its time is over, and [`grace`](Self::grace).
    fn perform(&self, request: Request, ctx: Context) -> impl Future<Output = Answer> + Send;
}

/// The verbs of a driver in this process.
pub(crate) struct Verbs<D>(pub(crate) D);

impl<D: Driver> Handler for Verbs<D> {
    fn info(&self) -> DriverInfo {
        self.0.info()
    }

    fn readiness(&self) -> Readiness {
        self.0.readiness()
    }

    fn events(&self) -> Option<Events> {
        self.0.events()
    }

    fn perform(&self, request: Request, ctx: Context) -> impl Future<Output = Answer> + Send {
        call(&self.0, request, ctx)
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

async fn call<D: Driver>(driver: &D, request: Request, ctx: Context) -> Answer {
    match request {
        Request::CreateMachine(create) => create_machine(driver, create, ctx).await,
        Request::InitializeMachine(initialize) => {
            let (user_data, _) = user_data(initialize.bootstrap);
            let provider_id = initialize.provider_id;
            let asked = InitializeMachine { ctx: ctx.clone(), provider_id, user_data };
            let machine = Some(driver.initialize_machine(asked).await?.into_record_of(&ctx));
            Ok(Response::InitializeMachine(proto::InitializeMachineResponse {
                machine,
                ..Default::default()
            }))
        }
        Request::UpdateMachine(update) => {
            let last_applied_spec_json = some(update.last_applied_spec_json);
            let provider_id = update.provider_id;
            let update = UpdateMachine { ctx, provider_id, last_applied_spec_json };
            let applied_paths = driver.update_machine(update).await?.applied_paths;
            Ok(Response::UpdateMachine(proto::UpdateMachineResponse {
                applied_paths,
                ..Default::default()
            }))
        }
        Request::DeleteMachine(proto::DeleteMachineRequest { provider_id, .. }) => {
            let provider_id = some(provider_id);
            let deletion = driver.delete_machine(DeleteMachine { ctx, provider_id }).await?;
            Ok(Response::DeleteMachine(deletion.into_response()))
        }
        Request::GetMachineStatus(proto::GetMachineStatusRequest { provider_id, .. }) => {
            let asked = GetMachineStatus { ctx: ctx.clone(), provider_id: some(provider_id) };
            let machine = Some(driver.get_machine_status(asked).await?.into_record_of(&ctx));
            Ok(Response::GetMachineStatus(proto::GetMachineStatusResponse { machine }))
        }
        Request::ListMachines(proto::ListMachinesRequest { .. }) => {
            let instances = driver.list_machines(ListMachines { ctx: ctx.clone() }).await?;
            let machines = instances.into_iter().map(|it| it.into_listed_record(&ctx)).collect();
            let parts = driver.list_parts(ListMachines { ctx: ctx.clone() }).await?;
            let parts = parts.into_iter().map(|it| it.into_record(&ctx)).collect();
            let list_scope = list_scope(driver, &ctx).await;
            Ok(Response::ListMachines(proto::ListMachinesResponse {
                machines,
                pages: 0,
                list_scope,
                parts,
            }))
        }
        Request::GetVolumeIds(proto::GetVolumeIdsRequest { pv_specs_json, .. }) => {
            let volume_ids = driver.get_volume_ids(GetVolumeIds { ctx, pv_specs_json }).await?;
            Ok(Response::GetVolumeIds(proto::GetVolumeIdsResponse { volume_ids }))
        }
        Request::ValidateClass(validate) => {
            let provider_spec_json = validate.provider_spec_json;
            let old_provider_spec_json = some(validate.old_provider_spec_json);
            let validate = ValidateClass { ctx, provider_spec_json, old_provider_spec_json };
            Ok(Response::ValidateClass(driver.validate_class(validate).await?.into()))
        }
        Request::CreatePool(asked) => pool::call(driver, PoolRequest::Create(asked), ctx).await,
        Request::UpdatePool(asked) => pool::call(driver, PoolRequest::Update(asked), ctx).await,
        Request::DeletePool(asked) => pool::call(driver, PoolRequest::Delete(asked), ctx).await,
        Request::GetPoolStatus(asked) => pool::call(driver, PoolRequest::Status(asked), ctx).await,
        Request::ListPools(_) => pool::call(driver, PoolRequest::List, ctx).await,
        Request::DeletePoolMachines(asked) => {
            pool::call(driver, PoolRequest::DeleteMachines(asked), ctx).await
        }
        Request::UpdatePoolMachine(asked) => {
            pool::call(driver, PoolRequest::UpdateMachine(asked), ctx).await
        }
    }
}

/// User data and their format.
fn user_data(bootstrap: Option<proto::BootstrapData>) -> (UserData, String) {
    let proto::BootstrapData { user_data, format } = bootstrap.unwrap_or_default();
    (UserData(user_data), format)
}

/// What a list of the class of this operation is a list of.
async fn list_scope<D: Driver>(driver: &D, ctx: &Context) -> String {
    // It was read for the list already, if it is there at all.
    let class = if ctx.class_name().is_some() { ctx.class().await.ok() } else { None };
    class.map(|class| driver.list_scope(&class)).unwrap_or_default()
}

async fn create_machine<D: Driver>(
    driver: &D,
    create: proto::CreateMachineRequest,
    ctx: Context,
) -> Answer {
    let (user_data, user_data_format) = user_data(create.bootstrap);
    let request = CreateMachine {
        ctx: ctx.clone(),
        tags: create.tags.into_iter().collect(),
        provider_id: some(create.provider_id),
        user_data_format,
        user_data,
    };
    let machine = Some(driver.create_machine(request).await?.into_record_of(&ctx));
    Ok(Response::CreateMachine(proto::CreateMachineResponse { machine, ..Default::default() }))
}
