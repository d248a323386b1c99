//! Runs the verb of an operation.

use std::cell::LazyCell;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use ostler_proto::v1alpha1 as proto;
use ostler_trace::Traces;
use proto::operation::Request;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::admission::default_timeout;
use super::protocol::time;
use super::traced::Traced;
use crate::context::{Context, Facts, References, Report};
use crate::error::DriverError;
use crate::handler::{Answer, Handler};
use crate::identity::Target;
use crate::library::Library;

/// How long a change may take to stop when its time is over. The core waits longer.
const STOP: Duration = Duration::from_secs(5);

/// A verb that answered.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) operation_id: String,
    pub(crate) answer: Answer,
    pub(crate) checkpoint: Option<String>,
}

/// The parts that the verbs of a process share.
pub(crate) struct Dispatcher<H> {
    pub(crate) handler: Arc<H>,
    pub(crate) library: Arc<Library>,
    pub(crate) reports: mpsc::Sender<Report>,
    pub(crate) traces: Traces,
}

impl<H: Handler> Dispatcher<H> {
    /// Runs an operation to its end, in time: there is an answer whatever the verb does. A cancelled read leaves
    /// nothing behind, so it ends immediately: reads of a core that is gone would ask the next core for a class, be denied,
    /// and hold up operations that need the class.
    pub(crate) fn perform(
        &self,
        mut operation: proto::Operation,
        cancelled: CancellationToken,
    ) -> impl Future<Output = Finished> + Send + use<H> {
        let traced = Traced::begin(&self.traces, &mut operation);
        let handler = Arc::clone(&self.handler);
        let references = References::Core(Arc::clone(&self.library));
        let reports = Some(self.reports.clone());
        let operation_id = operation.operation_id.clone();
        let interval = time(operation.progress_interval);
        let interval = interval.filter(|interval| !interval.is_zero());
        let reads = !operation.is_mutation();
        let (facts, request) = split(operation);
        let ctx = Context::new(facts, references, cancelled.clone(), reports);
        let asked =
            request.ok_or_else(|| DriverError::unimplemented("the operation asks for nothing"));
        // A driver may quote its request in an error, as clouds do.
        if let Ok(request) = &asked
            && let Some(user_data) = user_data(request)
        {
            ctx.guard(user_data);
        }
        let tracing = Traced::of_logs(traced.as_ref());
        async move {
            let out_of_time = AtomicBool::new(false);
            let over = async {
                tokio::time::sleep_until(ctx.deadline()).await;
                out_of_time.store(!cancelled.is_cancelled(), Ordering::Relaxed);
                cancelled.cancel();
                std::future::pending::<Infallible>().await
            };
            // Tasks that a verb spawned learn that the verb is gone.
            let _gone = cancelled.clone().drop_guard();
            // A stopped mutation gets time for a truthful answer.
            let late = if reads { handler.grace() } else { handler.grace().max(STOP) };
            let until = ctx.deadline() + late;
            let verb = async { handler.perform(asked?, ctx.clone()).await }.instrument(tracing);
            let verb = Box::pin(AssertUnwindSafe(verb).catch_unwind());
            let verb = speaking(verb, &ctx, interval);
            let verb = tokio::time::timeout_at(until, verb);
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
                never = over, if !reads => match never {},
                () = ctx.cancelled(), if reads => {
                    Err(DriverError::canceled("the core cancelled the read").not_applied())
                }
            };
            let late = out_of_time.load(Ordering::Relaxed);
            let answer = answer.map_err(|error| if late { error.out_of_time() } else { error });
            let answer = scrubbed(answer, &ctx);
            if let Some(traced) = traced {
                traced.end(&answer);
            }
            Finished { operation_id, answer, checkpoint: ctx.saved_checkpoint() }
        }
    }
}

impl<H: Handler> Dispatcher<H> {
    /// Waits for the end of an operation that ran before this process began.
    pub(crate) fn resume(
        &self,
        operation_id: String,
        cancelled: CancellationToken,
    ) -> impl Future<Output = Finished> + Send + use<H> {
        let handler = Arc::clone(&self.handler);
        async move {
            let answer = Err(handler.until_ended(&operation_id, cancelled).await);
            Finished { operation_id, answer, checkpoint: None }
        }
    }
}

/// Without secrets and user data, also in the errors inside of the answer.
fn scrubbed(answer: Answer, ctx: &Context) -> Answer {
    let scrubber = LazyCell::new(|| ctx.scrubber());
    let scrub = |error: DriverError| error.map_texts(|text| scrubber.scrub(text));
    let mut response = answer.map_err(scrub)?;
    for fault in response.faults_mut() {
        *fault = scrub(std::mem::take(fault).into()).into();
    }
    Ok(response)
}

/// The user data of the request.
fn user_data(request: &Request) -> Option<&[u8]> {
    let bootstrap = match request {
        Request::CreateMachine(it) => it.bootstrap.as_ref(),
        Request::InitializeMachine(it) => it.bootstrap.as_ref(),
        Request::CreatePool(it) => it.model.as_ref().and_then(|model| model.bootstrap.as_ref()),
        Request::UpdatePool(it) => it.model.as_ref().and_then(|model| model.bootstrap.as_ref()),
        Request::UpdateMachine(_)
        | Request::DeleteMachine(_)
        | Request::GetMachineStatus(_)
        | Request::ListMachines(_)
        | Request::GetVolumeIds(_)
        | Request::ValidateClass(_)
        | Request::DeletePool(_)
        | Request::GetPoolStatus(_)
        | Request::ListPools(_)
        | Request::DeletePoolMachines(_)
        | Request::UpdatePoolMachine(_) => None,
    };
    bootstrap.map(|it| it.user_data.as_slice())
}

/// The shortest interval, whatever the core asks for.
const MOST_OFTEN: Duration = Duration::from_millis(100);

/// Repeats the last report of the verb at least once in every `interval`. Runs in the task of the verb, so that a verb
/// that blocks its thread does not count as working.
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
    let timeout = time(operation.timeout)
        .filter(|time| !time.is_zero())
        .or_else(|| operation.request.as_ref().map(default_timeout))
        .unwrap_or_default();
    let mut previous_cluster_ids = operation.previous_cluster_ids;
    previous_cluster_ids.retain(|id| *id != operation.cluster_id);
    let facts = Facts {
        operation_id: operation.operation_id,
        idempotency_key: operation.idempotency_key,
        create_idempotency_key: operation.create_idempotency_key,
        target: Target { namespace: target.namespace, name: target.name, uid: target.uid },
        cluster_id: operation.cluster_id,
        previous_cluster_ids,
        adopt_by_name: operation.adopt_by_name,
        delivery: operation.delivery,
        checkpoint: some(operation.checkpoint),
        traceparent: operation.traceparent,
        deadline: Instant::now() + timeout,
        class: operation.machine_class,
        machine: operation.machine.map(|it| (*it).into()),
    };
    (facts, operation.request)
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}
