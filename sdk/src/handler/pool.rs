//! The operations on groups.

use ostler_proto::v1alpha1 as proto;
use proto::operation_result::Response;

use super::{Answer, some, user_data};
use crate::context::Context;
use crate::driver::Driver;
use crate::error::DriverError;
use crate::pool::{
    CreatePool, DeletePool, DeletePoolMachines, GetPoolStatus, ListPools, Pool, PoolModel,
    PoolSize, UpdatePool, UpdatePoolMachine,
};

/// An operation on a group.
pub(super) enum PoolRequest {
    Create(proto::CreatePoolRequest),
    Update(proto::UpdatePoolRequest),
    Delete(proto::DeletePoolRequest),
    Status(proto::GetPoolStatusRequest),
    List,
    DeleteMachines(proto::DeletePoolMachinesRequest),
    UpdateMachine(proto::UpdatePoolMachineRequest),
}

pub(super) async fn call<D: Driver>(driver: &D, request: PoolRequest, ctx: Context) -> Answer {
    match request {
        PoolRequest::Create(asked) => create(driver, asked, ctx).await,
        PoolRequest::Update(asked) => update(driver, asked, ctx).await,
        PoolRequest::Delete(asked) => {
            let provider_id = some(asked.provider_id);
            let deletion = driver.delete_pool(DeletePool { ctx, provider_id }).await?;
            let proto::DeleteMachineResponse { outcome, provider_id, cluster_id, .. } =
                deletion.into_response();
            Ok(Response::DeletePool(proto::DeletePoolResponse {
                outcome,
                provider_id,
                cluster_id,
                ..Default::default()
            }))
        }
        PoolRequest::Status(asked) => status(driver, asked, ctx).await,
        PoolRequest::List => {
            let pools = driver.list_pools(ListPools { ctx: ctx.clone() }).await?;
            let pools = pools.into_iter().map(|it| it.into_listed_record(&ctx)).collect();
            let list_scope = super::list_scope(driver, &ctx).await;
            Ok(Response::ListPools(proto::ListPoolsResponse { pools, pages: 0, list_scope }))
        }
        PoolRequest::DeleteMachines(asked) => delete_machines(driver, asked, ctx).await,
        PoolRequest::UpdateMachine(asked) => update_machine(driver, asked, ctx).await,
    }
}

fn model(of: proto::PoolModel) -> PoolModel {
    let (user_data, user_data_format) = user_data(of.bootstrap);
    PoolModel { hash: of.hash, user_data, user_data_format, zones: of.zones }
}

#[expect(clippy::unnecessary_wraps, reason = "as the responses have it")]
fn record(pool: Pool, ctx: &Context) -> Option<proto::PoolRecord> {
    Some(pool.into_record_of(ctx))
}

async fn create<D: Driver>(driver: &D, asked: proto::CreatePoolRequest, ctx: Context) -> Answer {
    let request = CreatePool {
        ctx: ctx.clone(),
        desired: asked.desired,
        model: model(asked.model.unwrap_or_default()),
        tags: asked.tags.into_iter().collect(),
        provider_id: some(asked.provider_id),
    };
    let pool = record(driver.create_pool(request).await?, &ctx);
    Ok(Response::CreatePool(proto::CreatePoolResponse { pool, ..Default::default() }))
}

async fn update<D: Driver>(driver: &D, asked: proto::UpdatePoolRequest, ctx: Context) -> Answer {
    let size = match (asked.desired, asked.expected_desired) {
        (None, _) => None,
        (Some(wanted), Some(expected)) => Some(PoolSize { expected, wanted }),
        (Some(_), None) => {
            let message = "a size is wanted, and not said in place of which";
            return Err(DriverError::invalid_argument(message).not_applied());
        }
    };
    let request = UpdatePool {
        ctx: ctx.clone(),
        provider_id: asked.provider_id,
        size,
        model: asked.model.map(model),
    };
    let pool = record(driver.update_pool(request).await?, &ctx);
    Ok(Response::UpdatePool(proto::UpdatePoolResponse { pool, ..Default::default() }))
}

async fn status<D: Driver>(driver: &D, asked: proto::GetPoolStatusRequest, ctx: Context) -> Answer {
    let request = GetPoolStatus {
        ctx: ctx.clone(),
        provider_id: some(asked.provider_id),
        with_instances: asked.include_machines,
    };
    let status = driver.get_pool_status(request).await?;
    let machines = status.instances.into_iter().map(|it| it.into_record(&ctx)).collect();
    let pool = record(status.pool, &ctx);
    Ok(Response::GetPoolStatus(proto::GetPoolStatusResponse { pool, machines, pages: 0 }))
}

async fn delete_machines<D: Driver>(
    driver: &D,
    asked: proto::DeletePoolMachinesRequest,
    ctx: Context,
) -> Answer {
    let request = DeletePoolMachines {
        ctx: ctx.clone(),
        provider_id: asked.provider_id,
        instances: asked.machine_provider_ids,
        size: PoolSize { expected: asked.expected_desired, wanted: asked.new_desired },
    };
    let deleted = driver.delete_pool_machines(request).await?;
    let failed = |(machine_provider_id, error): (String, DriverError)| proto::PoolMachineFailure {
        machine_provider_id,
        error: Some(error.into()),
    };
    Ok(Response::DeletePoolMachines(proto::DeletePoolMachinesResponse {
        pool: record(deleted.pool, &ctx),
        not_deleted: deleted.not_deleted.into_iter().map(failed).collect(),
        ..Default::default()
    }))
}

async fn update_machine<D: Driver>(
    driver: &D,
    asked: proto::UpdatePoolMachineRequest,
    ctx: Context,
) -> Answer {
    let request = UpdatePoolMachine {
        ctx: ctx.clone(),
        provider_id: asked.provider_id,
        instance: asked.machine_provider_id,
        model_hash: asked.model_hash,
        drained: asked.drained,
    };
    let machine = Some(driver.update_pool_machine(request).await?.into_record(&ctx));
    Ok(Response::UpdatePoolMachine(proto::UpdatePoolMachineResponse {
        machine,
        ..Default::default()
    }))
}
