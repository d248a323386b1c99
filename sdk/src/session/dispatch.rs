//! From an operation to the verb that does it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use ostler_proto::v1alpha1 as proto;
use proto::operation::Request;
use proto::operation_result::Response;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::admission::{default_timeout, is_mutation};
use super::completion::Answer;
use crate::context::{Context, Facts, References, Report};
use crate::driver::Driver;
use crate::error::DriverError;
use crate::library::Library;
use crate::request::{
    CreateMachine, DeleteMachine, GetMachineStatus, GetVolumeIds, InitializeMachine, ListMachines,
    Target, UpdateMachine, ValidateClass,
};

/// A verb that answered.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) operation_id: String,
    pub(crate) answer: Answer,
    pub(crate) checkpoint: Option<String>,
}

/// What the verbs of a process share.
pub(crate) struct Dispatcher<D> {
    pub(crate) driver: Arc<D>,
    pub(crate) library: Arc<Library>,
    pub(crate) reports: mpsc::Sender<Report>,
}

impl<D: Driver> Dispatcher<D> {
    /// Does an operation to its end, in time: whatever the verb does, there is an answer. A read that
    /// is cancelled leaves nothing to be looked after, so it ends where it is: those of a core that is
    /// gone would ask the next one for a class that is denied to them, and hold up what needs it.
    pub(crate) fn perform(
        &self,
        operation: proto::Operation,
        cancelled: CancellationToken,
    ) -> impl Future<Output = Finished> + Send + use<D> {
        let driver = Arc::clone(&self.driver);
        let references = References::Core(Arc::clone(&self.library));
        let reports = Some(self.reports.clone());
        let operation_id = operation.operation_id.clone();
        let interval = operation.progress_interval.and_then(|time| Duration::try_from(time).ok());
        let interval = interval.filter(|interval| !interval.is_zero());
        let reads = !is_mutation(&operation);
        let (facts, request) = split(operation);
        let ctx = Context::new(facts, references, cancelled.clone(), reports);
        async move {
            // What a verb spawned learns that the verb is gone.
            let _gone = cancelled.drop_guard();
            let verb = call(&*driver, request, ctx.clone());
            let verb = Box::pin(AssertUnwindSafe(verb).catch_unwind());
            let verb = speaking(verb, &ctx, interval);
            let verb = tokio::time::timeout_at(ctx.deadline(), verb);
            let answer = tokio::select! {
                biased;
                answer = verb => match answer {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(_panic)) => {
                        Err(DriverError::internal("the driver panicked, its log says where")
                            .reason("DRIVER_PANIC"))
                    }
                    Err(_) => Err(DriverError::deadline_exceeded("the verb took too long")),
                },
                () = ctx.cancelled(), if reads => {
                    Err(DriverError::canceled("the core cancelled the read").not_applied())
                }
            };
            let answer = answer.map_err(|error| error.map_texts(|text| ctx.scrub(text)));
            Finished { operation_id, answer, checkpoint: ctx.saved_checkpoint() }
        }
    }
}

/// Whatever the core asks for, no more often than this.
const MOST_OFTEN: Duration = Duration::from_millis(100);

/// Repeats what the verb last said at least once in every `interval`. In the task of the verb, so that
/// one that blocks its thread is not said to work.
async fn speaking<T>(
    verb: impl Future<Output = T> + Unpin,
    ctx: &Context,
    interval: Option<Duration>,
) -> T {
    let Some(interval) = interval else { return verb.await };
    let interval = interval.max(MOST_OFTEN);
    let mut turns = tokio::time::interval_at(Instant::now() + interval, interval);
    turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut verb = verb;
    loop {
        tokio::select! {
            biased;
            answer = &mut verb => return answer,
            _ = turns.tick() => ctx.report(),
        }
    }
}

fn split(operation: proto::Operation) -> (Facts, Option<Request>) {
    let target = operation.target.unwrap_or_default();
    let asked = operation.timeout.and_then(|time| Duration::try_from(time).ok());
    let timeout = asked
        .filter(|time| !time.is_zero())
        .or_else(|| operation.request.as_ref().map(default_timeout))
        .unwrap_or_default();
    let mut previous_cluster_ids = operation.previous_cluster_ids;
    previous_cluster_ids.retain(|id| *id != operation.cluster_id);
    let facts = Facts {
        operation_id: operation.operation_id,
        idempotency_key: operation.idempotency_key,
        target: Target { namespace: target.namespace, name: target.name, uid: target.uid },
        cluster_id: operation.cluster_id,
        previous_cluster_ids,
        adopt_by_name: operation.adopt_by_name,
        delivery: operation.delivery,
        checkpoint: some(operation.checkpoint),
        traceparent: operation.traceparent,
        deadline: Instant::now() + timeout,
        class: operation.machine_class,
    };
    (facts, operation.request)
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

async fn call<D: Driver>(driver: &D, request: Option<Request>, ctx: Context) -> Answer {
    let Some(request) = request else {
        return Err(DriverError::unimplemented("the operation asks for nothing"));
    };
    match request {
        Request::CreateMachine(create) => create_machine(driver, create, ctx).await,
        Request::InitializeMachine(proto::InitializeMachineRequest { provider_id }) => {
            let asked = InitializeMachine { ctx: ctx.clone(), provider_id };
            let machine = Some(driver.initialize_machine(asked).await?.into_record_of(&ctx));
            Ok(Response::InitializeMachine(proto::InitializeMachineResponse { machine }))
        }
        Request::UpdateMachine(update) => {
            let last_applied_spec_json = some(update.last_applied_spec_json);
            let provider_id = update.provider_id;
            let update = UpdateMachine { ctx, provider_id, last_applied_spec_json };
            let applied_paths = driver.update_machine(update).await?.applied_paths;
            Ok(Response::UpdateMachine(proto::UpdateMachineResponse { applied_paths }))
        }
        Request::DeleteMachine(proto::DeleteMachineRequest { provider_id }) => {
            let provider_id = some(provider_id);
            let deletion = driver.delete_machine(DeleteMachine { ctx, provider_id }).await?;
            Ok(Response::DeleteMachine(deletion.into_response()))
        }
        Request::GetMachineStatus(proto::GetMachineStatusRequest { provider_id }) => {
            let asked = GetMachineStatus { ctx: ctx.clone(), provider_id: some(provider_id) };
            let machine = Some(driver.get_machine_status(asked).await?.into_record_of(&ctx));
            Ok(Response::GetMachineStatus(proto::GetMachineStatusResponse { machine }))
        }
        Request::ListMachines(proto::ListMachinesRequest {}) => {
            let instances = driver.list_machines(ListMachines { ctx: ctx.clone() }).await?;
            let machines = instances.into_iter().map(|it| it.into_listed_record(&ctx)).collect();
            Ok(Response::ListMachines(proto::ListMachinesResponse { machines, pages: 0 }))
        }
        Request::GetVolumeIds(proto::GetVolumeIdsRequest { pv_specs_json }) => {
            let volume_ids = driver.get_volume_ids(GetVolumeIds { ctx, pv_specs_json }).await?;
            Ok(Response::GetVolumeIds(proto::GetVolumeIdsResponse { volume_ids }))
        }
        Request::ValidateClass(validate) => {
            let provider_spec_json = validate.provider_spec_json;
            let old_provider_spec_json = some(validate.old_provider_spec_json);
            let validate = ValidateClass { ctx, provider_spec_json, old_provider_spec_json };
            Ok(Response::ValidateClass(driver.validate_class(validate).await?.into()))
        }
    }
}

async fn create_machine<D: Driver>(
    driver: &D,
    create: proto::CreateMachineRequest,
    ctx: Context,
) -> Answer {
    let bootstrap = create.bootstrap.unwrap_or_default();
    ctx.guard(&bootstrap.user_data);
    let request = CreateMachine {
        ctx: ctx.clone(),
        tags: create.tags.into_iter().collect(),
        provider_id: some(create.provider_id),
        user_data_format: bootstrap.format,
        user_data: bootstrap.user_data,
    };
    let machine = Some(driver.create_machine(request).await?.into_record_of(&ctx));
    Ok(Response::CreateMachine(proto::CreateMachineResponse { machine }))
}
