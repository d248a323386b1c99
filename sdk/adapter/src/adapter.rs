//! Answers the operations of a session by calls to one driver process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use ostler_driver_sdk::handler::{Answer, Handler};
use ostler_driver_sdk::{
    CancellationToken, Certainty, Code, Context, DriverError, DriverInfo, Events,
    OptionalOperation, ProviderIdComparison, Readiness, Secret,
};
use ostler_proto::v1alpha1 as proto;
use parking_lot::Mutex;
use proto::operation::Request;
use proto::operation_result::Response;
use proto::{DriverCapability, GetInfoResponse, HeldOperation, OperationKind, RunningOperation};

use crate::answer;
use crate::call;
use crate::socket::{Client, Socket};

/// How often the driver is asked whether it can work.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// For the answer to that, and to GetInfo.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// For the answer to an operation, after the time that the driver was told. The core waits 15 s.
const LATE: Duration = Duration::from_secs(10);
/// How often the driver is asked whether an operation of an earlier adapter has ended.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Between two looks for a driver that does not answer any more.
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(50))
    .with_max_delay(Duration::from_secs(2))
    .without_max_times();
/// Between two calls of WatchEvents.
const EVENTS_AGAIN: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_secs(1))
    .with_max_delay(Duration::from_secs(30))
    .without_max_times();
/// The core refuses a Hello that lists a longer id, or none.
const ID_BYTES: std::ops::RangeInclusive<usize> = 1..=256;
/// Concurrent operations of a driver that gives no number.
const MAX_IN_FLIGHT: u32 = 16;

/// One driver process. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Adapter {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    info: GetInfoResponse,
    client: Mutex<Client>,
    /// Targets whose mutation runs in the driver, by UID, also after the core gave it up.
    busy: Mutex<HashMap<String, String>>,
    readiness: Readiness,
    events: Events,
    /// Cancelled once another process answers in the driver's place.
    replaced: CancellationToken,
}

impl Adapter {
    pub(crate) fn new(client: Client, info: GetInfoResponse) -> Self {
        let shared = Shared {
            info,
            client: Mutex::new(client),
            busy: Mutex::default(),
            readiness: Readiness::default(),
            events: Events::default(),
            replaced: CancellationToken::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    fn client(&self) -> Client {
        self.shared.client.lock().clone()
    }

    /// Looks after the driver until `ended`, or until another process or another driver answers in its
    /// place: then cancels `ended`, since the session of this one is over.
    pub(crate) async fn watch(&self, socket: &Socket, ended: &CancellationToken) {
        let mut pauses = PAUSES.build();
        let mut answers = true;
        loop {
            let lost = self.client().lost;
            tokio::select! {
                () = tokio::time::sleep(PROBE_EVERY), if answers => {}
                () = lost.cancelled(), if answers => {}
                () = tokio::time::sleep(pauses.next().unwrap_or(PROBE_EVERY)), if !answers => {}
                () = ended.cancelled() => return,
            }
            answers = self.probe().await;
            if answers {
                pauses = PAUSES.build();
            } else if !self.reconnect(socket).await {
                tracing::info!("the driver is another process than before; it is registered anew");
                self.shared.replaced.cancel();
                ended.cancel();
                return;
            }
        }
    }

    /// Whether it may still be the same driver.
    async fn reconnect(&self, socket: &Socket) -> bool {
        let Ok((client, info)) = info(socket).await else { return true };
        let same = self.is_same(&info);
        if same {
            *self.shared.client.lock() = client;
        }
        same
    }

    /// Asks whether the driver can work, and says so to the core. Whether it answers.
    pub(crate) async fn probe(&self) -> bool {
        let Client { mut calls, lost } = self.client();
        let asked = calls.probe(proto::ProbeRequest {});
        let (answers, lack) = match tokio::time::timeout(ANSWER_WITHIN, asked).await {
            Ok(Ok(said)) => (true, said.into_inner().not_ready_reason),
            Ok(Err(status)) if status.code() == tonic::Code::Unimplemented => (true, String::new()),
            Ok(Err(_)) | Err(_) if lost.is_cancelled() => {
                (false, "the connection to the driver is lost".to_owned())
            }
            Ok(Err(status)) => {
                (false, format!("the driver does not answer: {}", answer::text(&status)))
            }
            Err(_) => (false, format!("the driver does not answer within {ANSWER_WITHIN:?}")),
        };
        if lack.is_empty() {
            self.shared.readiness.ready();
        } else {
            self.shared.readiness.not_ready(lack);
        }
        answers
    }

    /// Passes the events of the driver on, if it tells any. Never ends.
    pub(crate) async fn pass_events_on(&self) {
        if !self.has(DriverCapability::Events) {
            return std::future::pending().await;
        }
        let mut pauses = EVENTS_AGAIN.build();
        loop {
            if self.watch_events_once().await {
                pauses = EVENTS_AGAIN.build();
            }
            tokio::time::sleep(pauses.next().unwrap_or(PROBE_EVERY)).await;
        }
    }

    /// Watches the events of the driver until their stream ends. Whether there was one.
    async fn watch_events_once(&self) -> bool {
        let Client { mut calls, lost } = self.client();
        let mut told = match calls.watch_events(proto::WatchEventsRequest {}).await {
            Ok(told) => told.into_inner(),
            Err(status) => {
                if !lost.is_cancelled() {
                    warn_of_no_events(&status);
                }
                if status.code() == tonic::Code::Unimplemented {
                    lost.cancelled().await;
                }
                return false;
            }
        };
        let mut any = false;
        while let Ok(Some(told)) = told.message().await {
            any = true;
            told.event.into_iter().for_each(|event| self.shared.events.send_raw(event));
        }
        any
    }

    fn has(&self, capability: DriverCapability) -> bool {
        self.shared.info.capabilities().any(|it| it == capability)
    }

    fn is_same(&self, info: &GetInfoResponse) -> bool {
        let fixed =
            |info: &GetInfoResponse| GetInfoResponse { running: Vec::new(), ..info.clone() };
        fixed(info) == fixed(&self.shared.info)
    }

    /// Calls the driver in a task of its own: a mutation that the core gives up, or whose connection breaks, goes on
    /// there, and its target is busy until it has ended.
    async fn detached(&self, request: Request, ctx: Context, newer: Option<Secret>) -> Answer {
        self.refuse_beside_a_stranger(&ctx.target().uid).await?;
        let context = call::context(&request, &ctx, newer).await?;
        let busy = Busy::take(&self.shared, ctx.target().uid.clone(), ctx.operation_id())?;
        let this = self.clone();
        // Dropped with this future, before the operation counts as cancelled: that is the end of the adapter, not its core's wish.
        let given_up = CancellationToken::new();
        let _given_up = given_up.clone().drop_guard();
        let called = tokio::spawn(async move {
            let operation_id = ctx.operation_id().to_owned();
            let cancelled = async {
                ctx.cancelled().await;
                if given_up.is_cancelled() {
                    std::future::pending::<()>().await;
                }
            };
            let answer = this.call(request, context, &ctx, cancelled).await;
            if answer.as_ref().is_err_and(|error| error.reason_word() == answer::CONNECTION_LOST) {
                // The core is told now; the driver may work on.
                tokio::spawn(async move {
                    this.until_unlisted(&operation_id, CancellationToken::new()).await;
                    drop(busy);
                });
            }
            answer
        });
        called.await.unwrap_or_else(|_| {
            Err(DriverError::internal("the adapter failed in a call to the driver"))
        })
    }

    /// Nobody holds a call that was made by hand without an id; its target is busy all the same.
    async fn refuse_beside_a_stranger(&self, uid: &str) -> Result<(), DriverError> {
        let strange = |it: &RunningOperation| {
            !can_be_held(it) && it.target.as_ref().is_some_and(|target| target.uid == uid)
        };
        if !self.shared.info.running.iter().any(strange) {
            return Ok(());
        }
        let mut client = self.client().calls;
        let said = client.get_info(proto::GetInfoRequest {});
        match tokio::time::timeout(ANSWER_WITHIN, said).await {
            Ok(Ok(info)) if !info.get_ref().running.iter().any(strange) => Ok(()),
            _ => Err(busy("an operation that this core did not send runs in the driver")),
        }
    }

    async fn call(
        &self,
        request: Request,
        context: proto::OperationContext,
        ctx: &Context,
        cancelled: impl Future<Output = ()>,
    ) -> Answer {
        let operation_id = context.operation_id.clone();
        let mut call = Box::pin(call::call(self.client(), request, context, ctx));
        tokio::select! {
            // A driver does not know a call that was not sent yet, and would cancel nothing.
            biased;
            answer = &mut call => answer,
            () = cancelled => {
                self.cancel(operation_id).await;
                call.await
            }
        }
    }

    /// Asks the driver to stop an operation. The driver answers in the call of the operation.
    async fn cancel(&self, operation_id: String) {
        let mut client = self.client().calls;
        let asked = client.cancel_operation(proto::CancelOperationRequest { operation_id });
        if !matches!(tokio::time::timeout(ANSWER_WITHIN, asked).await, Ok(Ok(_))) {
            tracing::debug!("the driver was not asked to stop an operation; it ends by itself");
        }
    }

    /// Waits until the driver answers that it does not work on an operation any more, or another process answers in its place.
    /// If it does not answer, the operation may still run.
    async fn until_unlisted(&self, operation_id: &str, cancelled: CancellationToken) {
        let listed = self.while_listed(operation_id, cancelled);
        let _ = self.shared.replaced.run_until_cancelled(listed).await;
    }

    async fn while_listed(&self, operation_id: &str, cancelled: CancellationToken) {
        let mut asked = false;
        loop {
            let mut client = self.client().calls;
            let said = client.get_info(proto::GetInfoRequest {});
            if let Ok(Ok(info)) = tokio::time::timeout(ANSWER_WITHIN, said).await
                && info.get_ref().running.iter().all(|it| it.operation_id != operation_id)
            {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = cancelled.cancelled(), if !asked => {
                    asked = true;
                    self.cancel(operation_id.to_owned()).await;
                }
            }
        }
    }

    /// Finds one instance in the list, for a driver without GetMachineStatus.
    async fn find(
        &self,
        asked: &proto::GetMachineStatusRequest,
        ctx: &Context,
        newer: Option<Secret>,
    ) -> Answer {
        let list = Request::ListMachines(proto::ListMachinesRequest::default());
        let mut context = call::context(&list, ctx, newer).await?;
        let class = context.machine_class.as_ref().and_then(|class| class.r#ref.clone());
        context.target = class.map(|class| proto::Target {
            kind: "MachineClass".to_owned(),
            namespace: class.namespace,
            name: class.name,
            uid: class.uid,
        });
        let answer = self.call(list, context, ctx, ctx.cancelled()).await?;
        let Response::ListMachines(list) = answer else {
            return Err(DriverError::internal("the driver answered another call"));
        };
        let target = ctx.target();
        let by_id = |record: &proto::MachineRecord| {
            !asked.provider_id.is_empty() && record.provider_id == asked.provider_id
        };
        let of_machine = |record: &proto::MachineRecord| {
            let by_name = ctx.adopts_by_name() && record.machine_uid.is_empty();
            (by_id(record) && record.machine_name == target.name)
                || (!target.uid.is_empty() && record.machine_uid == target.uid)
                || (by_name && record.machine_name == target.name)
        };
        let (mut own, others): (Vec<_>, Vec<_>) = list.machines.into_iter().partition(of_machine);
        match (own.pop(), own.len()) {
            (Some(one), 0) => {
                let machine = Some(one);
                Ok(Response::GetMachineStatus(proto::GetMachineStatusResponse { machine }))
            }
            (Some(_), _) => Err(DriverError::out_of_range(
                "several instances of this machine are in the driver's list",
            )),
            (None, _) => Err(others
                .iter()
                .find(|it| by_id(it) || is_of_before(it, ctx))
                .map_or_else(not_listed, |other| not_ours(other, ctx))),
        }
    }

    async fn ask(&self, request: Request, ctx: Context, newer: Option<Secret>) -> Answer {
        let reads_one =
            self.shared.info.operation_kinds().any(|it| it == OperationKind::GetMachineStatus);
        if let Request::GetMachineStatus(asked) = &request
            && !reads_one
        {
            return self.find(asked, &ctx, newer).await;
        }
        if request.is_mutation() {
            return self.detached(request, ctx, newer).await;
        }
        let context = call::context(&request, &ctx, newer).await?;
        self.call(request, context, &ctx, ctx.cancelled()).await
    }
}

impl Handler for Adapter {
    fn info(&self) -> DriverInfo {
        let info = &self.shared.info;
        let optional = [
            (OperationKind::InitializeMachine, OptionalOperation::InitializeMachine),
            (OperationKind::UpdateMachine, OptionalOperation::UpdateMachine),
            (OperationKind::GetVolumeIds, OptionalOperation::GetVolumeIds),
            (OperationKind::ValidateClass, OptionalOperation::ValidateClass),
            (OperationKind::CreatePool, OptionalOperation::Pools),
            (OperationKind::DeletePoolMachines, OptionalOperation::DeletePoolMachines),
            (OperationKind::UpdatePoolMachine, OptionalOperation::UpdatePoolMachine),
        ];
        let kinds: Vec<OperationKind> = info.operation_kinds().collect();
        let offered =
            optional.into_iter().filter(|(kind, _)| kinds.contains(kind)).map(|(_, it)| it);
        let most = if info.max_in_flight == 0 { MAX_IN_FLIGHT } else { info.max_in_flight };
        let mut said = DriverInfo::new(&info.provider)
            .name(&info.driver_name)
            .version(&info.driver_version)
            .max_in_flight(most)
            .compares_provider_ids(comparison(info.provider_id_comparison()))
            .offering(offered);
        // One below zero says nothing.
        if let Some(lag) = info.list_lag.and_then(|lag| Duration::try_from(lag).ok()) {
            said = said.list_lag(lag);
        }
        if self.has(DriverCapability::PreviousClusterIds) {
            said = said.knows_previous_cluster_ids();
        }
        if self.has(DriverCapability::IdentityByName) {
            said = said.identity_by_name();
        }
        if self.has(DriverCapability::PoolSurge) {
            said = said.pool_surge();
        }
        if self.has(DriverCapability::PoolScalesIn) {
            said = said.pool_scales_in();
        }
        said
    }

    fn readiness(&self) -> Readiness {
        self.shared.readiness.clone()
    }

    fn events(&self) -> Option<Events> {
        self.has(DriverCapability::Events).then(|| self.shared.events.clone())
    }

    /// The driver's, so that the core knows a driver whose adapter was replaced.
    fn instance_id(&self) -> Option<String> {
        Some(self.shared.info.boot_id.clone())
    }

    fn held(&self) -> Vec<HeldOperation> {
        let held = |running: &RunningOperation| HeldOperation {
            operation_id: running.operation_id.clone(),
            idempotency_key: running.idempotency_key.clone(),
            target: running.target.clone(),
            state: proto::HeldState::Running.into(),
            kind: running.kind,
            machine_class: None,
        };
        self.shared.info.running.iter().filter(|it| can_be_held(it)).map(held).collect()
    }

    fn grace(&self) -> Duration {
        LATE
    }

    async fn until_ended(&self, operation_id: &str, cancelled: CancellationToken) -> DriverError {
        self.until_unlisted(operation_id, cancelled).await;
        DriverError::unknown("the operation has ended, and its adapter was replaced meanwhile")
            .reason("RESULT_LOST")
    }

    async fn perform(&self, request: Request, ctx: Context) -> Answer {
        let first = self.ask(request.clone(), ctx.clone(), None).await;
        let Err(refused) = &first else { return first };
        let credentials = matches!(refused.code(), Code::Unauthenticated | Code::PermissionDenied);
        // What a mutation may have left has to be read first, and its new checkpoint sent: the core does both.
        if !credentials || (request.is_mutation() && refused.certainty() != Certainty::NotApplied) {
            return first;
        }
        // The secret may just have been replaced.
        let Some(newer) = newer_secret(&ctx).await else { return first };
        self.ask(request, ctx, Some(newer)).await
    }
}

/// The secret of the class, if it is another one than before and there is time to try it.
async fn newer_secret(ctx: &Context) -> Option<Secret> {
    if ctx.class_name().is_none() || !ctx.class().await.is_ok_and(|class| class.has_secret()) {
        return None;
    }
    let before = ctx.secret().await.ok()?;
    let newest = ctx.fresh_secret().await.ok()?;
    (newest != before && !ctx.remaining().is_zero()).then_some(newest)
}

fn can_be_held(running: &RunningOperation) -> bool {
    ID_BYTES.contains(&running.operation_id.len())
}

fn busy(message: impl Into<String>) -> DriverError {
    DriverError::aborted(message).reason("TARGET_BUSY").not_applied()
}

/// There is no instance of the machine in the list. One of another cluster may be there all the same, which the conformance
/// suite knows by this reason.
fn not_listed() -> DriverError {
    DriverError::not_found("the list of the driver has no instance of this machine")
        .reason("NOT_LISTED")
}

/// An instance of the machine's name, from a life of the cluster under an id that it has no more.
fn is_of_before(record: &proto::MachineRecord, ctx: &Context) -> bool {
    record.machine_name == ctx.target().name
        && ctx.previous_cluster_ids().contains(&record.cluster_id)
}

fn not_ours(record: &proto::MachineRecord, ctx: &Context) -> DriverError {
    let listed = record.cluster_id.as_str();
    let cluster_id = if listed.is_empty() { ctx.cluster_id() } else { listed };
    DriverError::not_ours(&record.provider_id).of_cluster(cluster_id)
}

fn warn_of_no_events(status: &tonic::Status) {
    if status.code() == tonic::Code::Unimplemented {
        tracing::warn!("the driver says that it tells events, and has no WatchEvents");
    } else {
        let (code, why) = (status.code(), answer::text(status));
        tracing::warn!("WatchEvents failed, and is called again: {code}: {why}");
    }
}

/// What a later version of the contract may say is taken for the strictest.
const fn comparison(said: proto::ProviderIdComparison) -> ProviderIdComparison {
    match said {
        proto::ProviderIdComparison::Unspecified | proto::ProviderIdComparison::Exact => {
            ProviderIdComparison::Exact
        }
        proto::ProviderIdComparison::CaseInsensitive => ProviderIdComparison::CaseInsensitive,
        proto::ProviderIdComparison::LastSegment => ProviderIdComparison::LastSegment,
    }
}

/// Asks for the driver's info, over a new connection.
pub(crate) async fn info(socket: &Socket) -> anyhow::Result<(Client, GetInfoResponse)> {
    let mut client = socket.connect().await?;
    let asked = client.calls.get_info(proto::GetInfoRequest {});
    let said = tokio::time::timeout(ANSWER_WITHIN, asked).await;
    let said = said.map_err(|_| {
        anyhow::anyhow!("the driver does not answer GetInfo within {ANSWER_WITHIN:?}")
    })?;
    let info = said.map_err(|status| {
        anyhow::anyhow!("GetInfo of the driver fails: {}: {}", status.code(), answer::text(&status))
    })?;
    Ok((client, info.into_inner()))
}

/// A mutation that runs in the driver.
struct Busy {
    shared: Arc<Shared>,
    uid: String,
}

impl Busy {
    fn take(shared: &Arc<Shared>, uid: String, operation_id: &str) -> Result<Self, DriverError> {
        let mut all = shared.busy.lock();
        // The core may have given up as many as it may have in flight.
        let most =
            usize::try_from(shared.info.max_in_flight.max(MAX_IN_FLIGHT)).unwrap_or(usize::MAX);
        if all.len() >= most.saturating_mul(2) {
            return Err(DriverError::unavailable(
                "the driver still works on operations that were given up",
            )
            .reason("DRIVER_BUSY")
            .not_applied());
        }
        if let Some(other) = all.get(&uid) {
            let message = format!("operation {other} of this machine still runs in the driver");
            return Err(busy(message));
        }
        all.insert(uid.clone(), operation_id.to_owned());
        drop(all);
        Ok(Self { shared: Arc::clone(shared), uid })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.shared.busy.lock().remove(&self.uid);
    }
}

#[cfg(test)]
mod tests;
