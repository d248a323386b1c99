//! The verbs.

use std::collections::BTreeMap;
use std::time::Duration;

use ostler_driver_sdk::{
    ClassReview, CreateMachine, CreatePool, DeleteMachine, DeletePool, DeletePoolMachines,
    Deletion, Driver, DriverError, DriverInfo, Events, GetMachineStatus, GetPoolStatus,
    GetVolumeIds, InitializeMachine, Instance, ListMachines, ListPools, OptionalOperation, Pool,
    PoolInstance, PoolMachinesDeleted, PoolStatus, UpdateMachine, UpdatePool, UpdatePoolMachine,
    Updated, ValidateClass,
};

use super::answer::{answer, answer_with, journal_error};
use super::call::{Call, Need};
use super::{FakeDriver, PROVIDER};
use crate::cloud::{
    Bootstrap, CloudError, Identity, Lookup, McmTags, NewInstance, NotOurs, Refusal, Stopped,
    ZONE_TAG,
};
use crate::fault::{Action, Verb};
use crate::spec::{ProviderSpec, Resource};

/// Nearly nothing is done in this process while the cloud takes its time.
const MAX_IN_FLIGHT: u32 = 640;

impl Driver for FakeDriver {
    fn info(&self) -> DriverInfo {
        DriverInfo::new(PROVIDER)
            .name("ostler-driver-fake")
            .version(env!("CARGO_PKG_VERSION"))
            .max_in_flight(MAX_IN_FLIGHT)
            // The cloud is in this process: what it was asked for is there, or never will be.
            .list_lag(Duration::ZERO)
            .knows_previous_cluster_ids()
            .offering([
                OptionalOperation::InitializeMachine,
                OptionalOperation::UpdateMachine,
                OptionalOperation::GetVolumeIds,
                OptionalOperation::ValidateClass,
                OptionalOperation::Pools,
                OptionalOperation::DeletePoolMachines,
                OptionalOperation::UpdatePoolMachine,
            ])
    }

    fn events(&self) -> Option<Events> {
        Some(self.told().clone())
    }

    async fn create_machine(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        let bootstrap = Bootstrap::read(request.user_data());
        let CreateMachine { ctx, tags, provider_id, .. } = request;
        self.call((Verb::CreateMachine, Need::GoodSpec), ctx, async |call| {
            check_credentials(call).await?;
            let new = NewInstance {
                identity: call.ctx.identity(),
                class: call.ctx.class_name().unwrap_or_default().to_owned(),
                spec: call.spec.clone(),
                identity_tags: identity_tags(call, tags).await?,
                bootstrap,
                previous: provider_id,
                by_name: by_name(call),
                previous_clusters: call.ctx.previous_cluster_ids().to_vec(),
            };
            let made = self.cloud.create(&new)?;
            self.durable().await?;
            let machine = &made.identity.machine_name;
            tracing::info!(%machine, provider_id = %made.provider_id, "instance exists");
            // A call that is cancelled now has its instance all the same: telling so is the truth.
            call.wait(call.spec.latency.create.0).await.ok();
            Ok(answer_with(&made, self.cloud.clock(), &call.injection))
        })
        .await
    }

    async fn initialize_machine(
        &self,
        request: InitializeMachine,
    ) -> Result<Instance, DriverError> {
        let InitializeMachine { ctx, provider_id, .. } = request;
        self.call((Verb::InitializeMachine, Need::Class), ctx, async |call| {
            check_credentials(call).await?;
            let (identity, tags) = (call.ctx.identity(), by_name(call));
            let lookup = lookup(call, &identity, tags.as_ref()).known(Some(&provider_id));
            self.cloud.look_up(lookup)?;
            call.wait(call.spec.latency.initialize.0).await.map_err(DriverError::not_applied)?;
            let done = self.cloud.initialize(lookup)?;
            self.durable().await?;
            Ok(answer_with(&done, self.cloud.clock(), &call.injection))
        })
        .await
    }

    async fn update_machine(&self, request: UpdateMachine) -> Result<Updated, DriverError> {
        let UpdateMachine { ctx, provider_id, .. } = request.clone();
        self.call((Verb::UpdateMachine, Need::GoodSpec), ctx, async |call| {
            check_credentials(call).await?;
            let (identity, tags) = (call.ctx.identity(), by_name(call));
            let lookup = lookup(call, &identity, tags.as_ref()).known(Some(&provider_id));
            let found = self.cloud.look_up(lookup)?;
            if found.deleting {
                let provider_id = found.provider_id;
                return Err(CloudError::from(Refusal::BeingDeleted { provider_id }).into());
            }
            let fixed = found.fixed_paths_differing(&call.spec);
            let fixed = request.in_the_way(&call.spec, fixed);
            if !fixed.is_empty() {
                return Err(DriverError::not_hot_updatable(fixed));
            }
            call.wait(call.spec.latency.update.0).await.map_err(DriverError::not_applied)?;
            let applied = self.apply(call, &found.provider_id);
            self.durable().await?;
            applied.map(|paths| Updated { applied_paths: paths })
        })
        .await
    }

    async fn delete_machine(&self, request: DeleteMachine) -> Result<Deletion, DriverError> {
        let DeleteMachine { ctx, provider_id } = request;
        self.call((Verb::DeleteMachine, Need::Class), ctx, async |call| {
            check_credentials(call).await?;
            let (identity, tags) = (call.ctx.identity(), by_name(call));
            let lookup = lookup(call, &identity, tags.as_ref()).known(provider_id.as_deref());
            let Stopped { doomed, not_ours } = self.cloud.stop(lookup)?;
            let ended = not_ours.map(|NotOurs { provider_id, cluster_id }| Deletion::NotOurs {
                provider_id,
                cluster_id,
            });
            if doomed.is_empty() {
                return Ok(ended.unwrap_or(Deletion::WasAbsent));
            }
            call.wait(call.spec.latency.delete.0).await.map_err(DriverError::partial)?;
            self.cloud.remove(&doomed)?;
            self.durable().await?;
            let machine = &identity.machine_name;
            tracing::info!(%machine, provider_ids = ?doomed, "instance is gone");
            Ok(ended.unwrap_or(Deletion::Deleted))
        })
        .await
    }

    async fn get_machine_status(&self, request: GetMachineStatus) -> Result<Instance, DriverError> {
        let GetMachineStatus { ctx, provider_id } = request;
        self.call((Verb::GetMachineStatus, Need::Class), ctx, async |call| {
            check_credentials(call).await?;
            let (identity, tags) = (call.ctx.identity(), by_name(call));
            let lookup = lookup(call, &identity, tags.as_ref()).known(provider_id.as_deref());
            let found = self.cloud.look_up(lookup)?;
            Ok(answer_with(&found, self.cloud.clock(), &call.injection))
        })
        .await
    }

    async fn list_machines(&self, request: ListMachines) -> Result<Vec<Instance>, DriverError> {
        self.call((Verb::ListMachines, Need::Class), request.ctx, async |call| {
            check_credentials(call).await?;
            let untagged = McmTags::of(&call.spec);
            let is_own = |cluster_id: &str| call.ctx.is_own_cluster(cluster_id);
            let found = self.cloud.of_clusters(is_own, untagged.as_ref());
            let found = found.map_err(|error| journal_error(&error))?;
            let clock = self.cloud.clock();
            let shown = found.iter().filter(|i| i.is_older(call.spec.latency.list.0, clock.now()));
            Ok(shown.map(|instance| answer(instance, clock)).collect())
        })
        .await
    }

    async fn get_volume_ids(&self, request: GetVolumeIds) -> Result<Vec<String>, DriverError> {
        let GetVolumeIds { ctx, pv_specs_json } = request;
        self.call((Verb::GetVolumeIds, Need::Nothing), ctx, async |_| {
            pv_specs_json.iter().map(|json| volume_id(json)).collect()
        })
        .await
    }

    async fn validate_class(&self, request: ValidateClass) -> Result<ClassReview, DriverError> {
        let ctx = request.ctx.clone();
        self.call((Verb::ValidateClass, Need::Nothing), ctx, async |_| Ok(review(&request))).await
    }

    async fn create_pool(&self, request: CreatePool) -> Result<Pool, DriverError> {
        self.make_pool(request).await
    }

    async fn update_pool(&self, request: UpdatePool) -> Result<Pool, DriverError> {
        self.change_pool(request).await
    }

    async fn delete_pool(&self, request: DeletePool) -> Result<Deletion, DriverError> {
        self.remove_pool(request).await
    }

    async fn get_pool_status(&self, request: GetPoolStatus) -> Result<PoolStatus, DriverError> {
        self.read_pool(request).await
    }

    async fn list_pools(&self, request: ListPools) -> Result<Vec<Pool>, DriverError> {
        self.read_pools(request).await
    }

    async fn delete_pool_machines(
        &self,
        request: DeletePoolMachines,
    ) -> Result<PoolMachinesDeleted, DriverError> {
        self.remove_pool_machines(request).await
    }

    async fn update_pool_machine(
        &self,
        request: UpdatePoolMachine,
    ) -> Result<PoolInstance, DriverError> {
        self.bring_pool_machine(request).await
    }
}

impl FakeDriver {
    /// Brings tags and kubelet to the spec, part by part as a cloud does; what was changed.
    fn apply(&self, call: &Call, provider_id: &str) -> Result<Vec<String>, DriverError> {
        let (limit, failure) = match &call.injection.action {
            Some(Action::ApplyPartially(resources, failure)) => (*resources, Some(failure)),
            Some(
                Action::Fail(..)
                | Action::LoseReply
                | Action::Crash(_)
                | Action::AnswerProviderId(_),
            )
            | None => (Resource::ALL.len(), None),
        };
        let mut applied = Vec::new();
        for resource in Resource::ALL.into_iter().take(limit) {
            let desired = call.spec.tags.of(resource);
            let changed = self.cloud.bring_tags(provider_id, resource, desired);
            // Earlier changes stay applied.
            if changed.map_err(|error| DriverError::from(error).partial())? {
                applied.push(resource.path().to_owned());
            }
        }
        if let Some(failure) = failure {
            return Err(failure.clone().into());
        }
        let changed = self.cloud.behave(provider_id, &call.spec.kubelet);
        if changed.map_err(|error| DriverError::from(error).partial())? {
            applied.push("kubelet".to_owned());
        }
        Ok(applied)
    }

    pub(super) async fn durable(&self) -> Result<(), DriverError> {
        self.cloud.durable().await.map_err(|error| journal_error(&error))
    }
}

/// Credentials of the simulation: key `accessToken` of the secret. The cloud lets everybody in but
/// those whose token begins with `invalid` or `denied`. A class without a secret is anonymous.
pub(super) async fn check_credentials(call: &Call) -> Result<(), DriverError> {
    match verdict(&call.ctx.secret().await) {
        // The secret may have been fixed since it was cached.
        Err(_) => verdict(&call.ctx.fresh_secret().await),
        Ok(()) => Ok(()),
    }
}

fn verdict(secret: &Result<ostler_driver_sdk::Secret, DriverError>) -> Result<(), DriverError> {
    let token = match secret {
        Ok(secret) => secret.get("accessToken").unwrap_or_default(),
        Err(error) if error.reason_word() == "SECRET_MISSING" => return Ok(()),
        Err(error) => return Err(error.clone()),
    };
    if token.starts_with(b"invalid") {
        let message = "the cloud does not accept the credentials: fix accessToken of the secret";
        Err(DriverError::unauthenticated(message).reason("BAD_CREDENTIALS").not_applied())
    } else if token.starts_with(b"denied") {
        let message = "the cloud does not allow it with these credentials";
        Err(DriverError::permission_denied(message).reason("DENIED").not_applied())
    } else {
        Ok(())
    }
}

/// Cluster and machine, and what else the core wants on the instance from its first moment.
async fn identity_tags(
    call: &Call,
    tags: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, DriverError> {
    let of_machine = call.ctx.machine().map(|it| it.zone.clone());
    let of_class = call.ctx.class().await?.shape.as_ref().map(|it| it.zone.clone());
    let zone = of_machine.into_iter().chain(of_class).find(|zone| !zone.is_empty());
    let zone = zone.map(|zone| (ZONE_TAG.to_owned(), zone));
    Ok(tags.into_iter().chain(call.ctx.identity().tags()).chain(zone).collect())
}

/// How the instance of the target is looked for, but for its id.
fn lookup<'a>(call: &'a Call, identity: &'a Identity, by_name: Option<&'a McmTags>) -> Lookup<'a> {
    let previous_clusters = call.ctx.previous_cluster_ids();
    let region = call.region();
    Lookup { by_name, previous_clusters, region, ..Lookup::of(identity) }
}

/// The tags by which an instance without UID is found, if the core wants it found by its name.
fn by_name(call: &Call) -> Option<McmTags> {
    call.ctx.adopts_by_name().then(|| McmTags::of(&call.spec)).flatten()
}

fn volume_id(pv_spec_json: &str) -> Result<String, DriverError> {
    let spec: serde_json::Value = serde_json::from_str(pv_spec_json).map_err(|error| {
        DriverError::invalid_argument(format!("a PersistentVolumeSpec is no JSON: {error}"))
            .not_applied()
    })?;
    let text = |path: &str| spec.pointer(path).and_then(serde_json::Value::as_str);
    let ours = text("/csi/driver") == Some(PROVIDER);
    Ok(text("/csi/volumeHandle").filter(|_| ours).unwrap_or_default().to_owned())
}

fn review(request: &ValidateClass) -> ClassReview {
    let mut review = request.review(ProviderSpec::violations);
    let faults = request.spec::<ProviderSpec>().map_or(0, |spec| spec.faults.len());
    if faults > 0 {
        review.warnings.push(format!("{faults} scripted faults are on"));
    }
    review
}
