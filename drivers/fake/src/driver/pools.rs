//! The verbs of groups.

use ostler_driver_sdk::{
    CreatePool, DeletePool, DeletePoolMachines, Deletion, DriverError, GetPoolStatus, ListPools,
    Pool, PoolIdentity, PoolInstance, PoolMachinesDeleted, PoolModel, PoolState, PoolStatus,
    UpdatePool, UpdatePoolMachine,
};

use super::FakeDriver;
use super::answer::{answer, journal_error};
use super::call::{Call, Need};
use super::verbs::check_credentials;
use crate::cloud::{
    Bootstrap, Clock, CloudError, GroupLookup, Instance, Model, NewGroup, NotOurs, Power, Refusal,
    Seen,
};
use crate::fault::Verb;

impl FakeDriver {
    pub(super) async fn make_pool(&self, request: CreatePool) -> Result<Pool, DriverError> {
        let CreatePool { ctx, desired, model, tags, provider_id } = request;
        self.call((Verb::CreatePool, Need::GoodSpec), ctx, async |call| {
            check_credentials(call).await?;
            let identity = call.ctx.pool_identity();
            let new = NewGroup {
                tags: tags.into_iter().chain(identity.tags()).collect(),
                class: call.ctx.class_name().unwrap_or_default().to_owned(),
                desired,
                model: model_of(call, model),
            };
            let lookup = lookup(call, provider_id.as_deref(), &identity);
            let seen = self.cloud.create_group(lookup, new)?;
            self.durable().await?;
            let pool = &identity.pool_name;
            tracing::info!(%pool, provider_id = %seen.group.provider_id, "group exists");
            Ok(shown(&seen))
        })
        .await
    }

    pub(super) async fn change_pool(&self, request: UpdatePool) -> Result<Pool, DriverError> {
        let ctx = request.ctx.clone();
        self.call((Verb::UpdatePool, Need::GoodSpec), ctx, async |call| {
            check_credentials(call).await?;
            let identity = call.ctx.pool_identity();
            let lookup = lookup(call, Some(&request.provider_id), &identity);
            let model = request.model.clone().map(|model| model_of(call, model));
            let seen = self.cloud.update_group(lookup, &request, model)??;
            self.durable().await?;
            Ok(shown(&seen))
        })
        .await
    }

    pub(super) async fn remove_pool(&self, request: DeletePool) -> Result<Deletion, DriverError> {
        let DeletePool { ctx, provider_id } = request;
        self.call((Verb::DeletePool, Need::Class), ctx, async |call| {
            check_credentials(call).await?;
            let identity = call.ctx.pool_identity();
            let lookup = lookup(call, provider_id.as_deref(), &identity);
            let group = match self.cloud.stop_group(lookup) {
                Ok(Some(group)) => group,
                Ok(None) => return Ok(Deletion::WasAbsent),
                Err(CloudError::Refused(Refusal::Foreign(other))) => {
                    let NotOurs { provider_id, cluster_id } = other;
                    return Ok(Deletion::NotOurs { provider_id, cluster_id });
                }
                Err(error) => return Err(error.into()),
            };
            call.wait(call.spec.latency.delete.0).await.map_err(DriverError::partial)?;
            self.cloud.remove_group(&group.provider_id)?;
            self.durable().await?;
            tracing::info!(pool = %identity.pool_name, "group is gone");
            Ok(Deletion::Deleted)
        })
        .await
    }

    pub(super) async fn read_pool(
        &self,
        request: GetPoolStatus,
    ) -> Result<PoolStatus, DriverError> {
        let GetPoolStatus { ctx, provider_id, with_instances } = request;
        self.call((Verb::GetPoolStatus, Need::Class), ctx, async |call| {
            check_credentials(call).await?;
            let identity = call.ctx.pool_identity();
            let lookup = lookup(call, provider_id.as_deref(), &identity);
            let seen = self.cloud.read_group(lookup)?;
            self.durable().await?;
            let clock = self.cloud.clock();
            let asked = seen.members.iter().filter(|_| with_instances);
            let instances = asked.map(|it| instance(it, clock)).collect();
            Ok(PoolStatus { pool: shown(&seen), instances })
        })
        .await
    }

    pub(super) async fn read_pools(&self, request: ListPools) -> Result<Vec<Pool>, DriverError> {
        self.call((Verb::ListPools, Need::Class), request.ctx, async |call| {
            check_credentials(call).await?;
            let own = self.cloud.groups(|cluster_id| call.ctx.is_own_cluster(cluster_id));
            let own = own.map_err(|error| journal_error(&error))?;
            Ok(own.iter().map(shown).collect())
        })
        .await
    }

    pub(super) async fn remove_pool_machines(
        &self,
        request: DeletePoolMachines,
    ) -> Result<PoolMachinesDeleted, DriverError> {
        let ctx = request.ctx.clone();
        self.call((Verb::DeletePoolMachines, Need::Class), ctx, async |call| {
            check_credentials(call).await?;
            let identity = call.ctx.pool_identity();
            let lookup = lookup(call, Some(&request.provider_id), &identity);
            let latency = call.spec.latency.delete.0;
            let deleted = self.cloud.delete_members(lookup, &request, latency)??;
            self.durable().await?;
            let strange = |NotOurs { provider_id, cluster_id }| {
                let error = DriverError::not_ours(&provider_id).of_cluster(&cluster_id);
                (provider_id, error.not_applied())
            };
            let not_deleted = deleted.not_ours.into_iter().map(strange).collect();
            Ok(PoolMachinesDeleted { pool: shown(&deleted.seen), not_deleted })
        })
        .await
    }

    pub(super) async fn bring_pool_machine(
        &self,
        request: UpdatePoolMachine,
    ) -> Result<PoolInstance, DriverError> {
        let UpdatePoolMachine { ctx, provider_id, instance: id, model_hash, drained } = request;
        self.call((Verb::UpdatePoolMachine, Need::Class), ctx, async |call| {
            check_credentials(call).await?;
            let identity = call.ctx.pool_identity();
            let lookup = lookup(call, Some(&provider_id), &identity);
            let (group, found) = self.cloud.member(lookup, &id)?;
            if group.model.hash != model_hash {
                let message = format!("the group has model {}", group.model.hash);
                return Err(DriverError::aborted(message).reason("MODEL_CHANGED").not_applied());
            }
            let fixed = found.fixed_paths_differing(&group.model.spec);
            if !fixed.is_empty() && !drained {
                return Err(DriverError::not_hot_updatable(fixed));
            }
            call.wait(call.spec.latency.update.0).await.map_err(DriverError::not_applied)?;
            let brought = self.cloud.bring_member(lookup, &id, !fixed.is_empty())?;
            self.durable().await?;
            Ok(instance(&brought, self.cloud.clock()))
        })
        .await
    }
}

/// How the group of the target is looked for.
fn lookup<'a>(
    call: &'a Call,
    provider_id: Option<&'a str>,
    identity: &'a PoolIdentity,
) -> GroupLookup<'a> {
    let (previous_clusters, region) = (call.ctx.previous_cluster_ids(), call.region());
    GroupLookup { provider_id, identity, previous_clusters, region }
}

fn model_of(call: &Call, model: PoolModel) -> Model {
    Model {
        hash: model.hash,
        spec: call.spec.clone(),
        bootstrap: Bootstrap::read(model.user_data.as_bytes()),
        zones: model.zones,
    }
}

fn shown(Seen { group, members }: &Seen) -> Pool {
    let current = i32::try_from(members.len()).unwrap_or(i32::MAX);
    let live = members.iter().filter(|it| !it.deleting).count();
    let short = i32::try_from(live).is_ok_and(|live| live < group.desired);
    let identity = &group.identity;
    let pool = Pool::new(group.provider_id.clone(), group.desired, current)
        .pool(identity.pool_name.clone(), identity.pool_uid.clone())
        .cluster_id(identity.cluster_id.clone())
        .model_hash(group.model.hash.clone())
        .busy(short || members.iter().any(|it| it.deleting))
        .created_at(group.created_at.into());
    if !short {
        return pool;
    }
    let message = format!("region {} is full", group.model.spec.region);
    pool.fault(DriverError::resource_exhausted(message).reason("REGION_FULL").not_applied())
}

fn instance(of: &Instance, clock: &Clock) -> PoolInstance {
    let member = of.member.as_ref();
    let failed = member.is_some_and(|member| member.failed);
    let state = match of.power(clock.now()) {
        Power::Deleting => PoolState::Deleting,
        Power::Pending => PoolState::Creating,
        Power::Running if failed => PoolState::Failed,
        Power::Running => PoolState::Succeeded,
    };
    let mut told = answer(of, clock);
    if failed {
        let message = "the image does not start";
        told = told.fault(DriverError::internal(message).reason("BOOT_FAILED").not_applied());
    }
    let number = member.map(|member| member.number.to_string()).unwrap_or_default();
    PoolInstance::new(told, number, state)
        .name(of.identity.machine_name.clone())
        .model_hash(member.map(|member| member.model_hash.clone()).unwrap_or_default())
        .zone(of.zone().to_owned())
}
