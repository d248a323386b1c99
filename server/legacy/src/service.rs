//! The service of the first proposal.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::channel::mpsc;
use ostler_api::driver::OperationKind;
use ostler_proto::legacy::infra::driver_side::Response as Answer;
use ostler_proto::legacy::infra::infragrpc_server::Infragrpc;
use ostler_proto::legacy::infra::{
    DriverSide, MachineClass, MachineClassMeta, McMside, Secret, SecretMeta,
};
use ostler_proto::v1alpha1::{DriverCapability, Hello, ObjectRevision};
use ostler_sessions::{LocalSession, Principal, Providers, Sessions};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::connection::{ConnectionId, Connections};
use crate::context::{OperationContext, StreamContext};
use crate::session::{Parts, Session};
use crate::window::ConsistencyWindow;
use crate::{LegacyKind, LegacyMetrics, LegacyOptions, render};

/// The id of the first thing that the core says.
const REGISTER: i32 = 1;
/// Questions that a driver has not read: the registration and one more.
const UNREAD: usize = 2;
/// The same for "not yours" and "not there", so that nothing can be learned by asking.
const DENIED: &str = "only the class and the secret of the operation in flight on this connection";
/// The verbs that can be made of create, delete and list.
const KINDS: [OperationKind; 4] = [
    OperationKind::CreateMachine,
    OperationKind::DeleteMachine,
    OperationKind::GetMachineStatus,
    OperationKind::ListMachines,
];

/// Serves all drivers of one listener; clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    sessions: Sessions,
    metrics: LegacyMetrics,
    options: Arc<LegacyOptions>,
    connections: Arc<Connections>,
    /// By provider.
    window: Arc<BTreeMap<String, Arc<Mutex<ConsistencyWindow>>>>,
    /// Tokens that end the newest stream of each kind.
    newest: Arc<Mutex<HashMap<LegacyKind, CancellationToken>>>,
    end: CancellationToken,
}

impl Service {
    pub(crate) fn new(
        sessions: Sessions,
        options: LegacyOptions,
        metrics: LegacyMetrics,
        connections: Arc<Connections>,
        end: CancellationToken,
    ) -> Self {
        let now = Instant::now();
        let window = |provider: &String| {
            (provider.clone(), Arc::new(Mutex::new(ConsistencyWindow::new(now, options.settle))))
        };
        Self {
            sessions,
            metrics,
            connections,
            window: Arc::new(options.drivers.values().map(window).collect()),
            options: Arc::new(options),
            newest: Arc::default(),
            end,
        }
    }

    /// Talks with one driver until the stream is to end; returns its last status.
    async fn serve(
        self,
        readable: Arc<StreamContext>,
        out: mpsc::Sender<Result<McMside, Status>>,
        mut answers: Streaming<DriverSide>,
    ) -> Option<Status> {
        let registered = tokio::select! {
            () = self.end.cancelled() => return Some(Status::unavailable("the core stops")),
            it = timeout(self.options.register, registration(&mut answers)) => it,
        };
        let kind = match registered {
            Ok(Ok(kind)) => kind,
            Ok(Err(status)) => return Some(status),
            Err(_elapsed) => return Some(Status::deadline_exceeded("no registration in time")),
        };
        let found = self.options.drivers.get(&kind);
        let found = found.and_then(|it| Some((it.clone(), self.window.get(it).cloned()?)));
        let Some((provider, window)) = found else {
            let message = format!(
                "nothing says which provider {kind} serves; start the core with --legacy-driver {kind}=PROVIDER"
            );
            tracing::warn!(%kind, "legacy driver refused: {message}");
            return Some(Status::permission_denied(message));
        };
        self.connections.registered(&readable);
        let end = self.supersede(&kind);
        let link = match self.open(&kind, &provider) {
            Ok(link) => link,
            Err(status) => return Some(status),
        };
        tracing::warn!(
            provider,
            %kind,
            "this driver speaks the protocol of the first proposal, whose support will end; see docs/mcm-providers.md"
        );
        let _counted = self.metrics.session(&provider);
        let Self { sessions, metrics, .. } = self;
        let parts =
            Parts { sessions, metrics, kind, provider, link, out, answers, readable, window };
        Session::new(parts).run(end).await
    }

    /// Ends the stream that a driver of this kind had before: it may be half open for hours.
    fn supersede(&self, kind: &LegacyKind) -> CancellationToken {
        let end = self.end.child_token();
        let mut newest = self.newest.lock();
        if let Some(older) = newest.insert(kind.clone(), end.clone()) {
            older.cancel();
        }
        end
    }

    fn open(&self, kind: &LegacyKind, provider: &str) -> Result<LocalSession, Status> {
        let name = format!("legacy:{kind}");
        let principal = Principal::new(name.clone(), Providers::named([provider]));
        let hello = Hello {
            provider: provider.to_owned(),
            driver_name: "legacy".to_owned(),
            driver_version: kind.to_string(),
            instance_id: uuid::Uuid::new_v4().to_string(),
            instance_name: name.clone(),
            operation_kinds: KINDS.iter().map(|kind| kind.number()).collect(),
            max_in_flight: 1,
            // A cluster id means nothing to such a driver, which finds instances by name.
            capabilities: vec![
                DriverCapability::PreviousClusterIds.into(),
                DriverCapability::IdentityByName.into(),
            ],
            ..Hello::default()
        };
        self.sessions.open_local(principal, name, hello)
    }

    /// The data readable for the caller now, if they are the requested ones.
    fn readable<T>(
        &self,
        request: &Request<T>,
        what: &str,
        fits: impl FnOnce(&OperationContext) -> bool,
    ) -> Option<OperationContext> {
        let connection = request.extensions().get::<ConnectionId>();
        let context = connection.and_then(|id| self.connections.readable(*id));
        let context = context.filter(fits);
        if context.is_none() {
            self.metrics.refused();
            let asked = what.get(..what.floor_char_boundary(256)).unwrap_or_default();
            tracing::warn!(asked, "legacy driver asked for what it may not have");
        }
        context
    }
}

/// Waits for the answer to `register`.
async fn registration(answers: &mut Streaming<DriverSide>) -> Result<LegacyKind, Status> {
    let answer = answers.message().await?;
    let expected = || Status::failed_precondition("the first answer must be that to `register`");
    let answer = answer.filter(|it| it.operation_id == REGISTER).ok_or_else(expected)?;
    match answer.response {
        Some(Answer::RegisterResp(it)) => {
            Ok(LegacyKind { group: it.group, version: it.version, kind: it.kind })
        }
        Some(Answer::Createresponse(_) | Answer::Deleteresponse(_) | Answer::Listresponse(_))
        | None => Err(expected()),
    }
}

#[tonic::async_trait]
impl Infragrpc for Service {
    type RegisterStream = mpsc::Receiver<Result<McMside, Status>>;

    /// The core speaks first: a driver says nothing before it is asked to register.
    async fn register(
        &self,
        request: Request<Streaming<DriverSide>>,
    ) -> Result<Response<Self::RegisterStream>, Status> {
        let readable = Arc::new(StreamContext::default());
        let connection = request.extensions().get::<ConnectionId>().copied();
        let slot = connection.and_then(|id| self.connections.claim_stream(id, &readable));
        let Some(slot) = slot else {
            return Err(Status::resource_exhausted("too many streams"));
        };
        let (mut out, stream) = mpsc::channel(UNREAD);
        let register = McMside {
            operation_id: REGISTER,
            operation_type: "register".to_owned(),
            operationparams: None,
        };
        let _there_is_room = out.try_send(Ok(register));
        let (service, mut last) = (self.clone(), out.clone());
        tokio::spawn(async move {
            let status = service.serve(readable, out, request.into_inner()).await;
            drop(slot);
            if let Some(status) = status {
                // The driver may be gone.
                let _gone = last.try_send(Err(status));
            }
        });
        Ok(Response::new(stream))
    }

    async fn get_machine_class(
        &self,
        request: Request<MachineClassMeta>,
    ) -> Result<Response<MachineClass>, Status> {
        let name = request.get_ref().name.clone();
        // The name is not parsed: only the sent text matches.
        let context = self.readable(&request, &name, |context| context.path == name);
        Ok(Response::new(match context {
            Some(context) => MachineClass { data: context.json, error: String::new() },
            None => MachineClass { data: String::new(), error: DENIED.to_owned() },
        }))
    }

    async fn get_secret(&self, request: Request<SecretMeta>) -> Result<Response<Secret>, Status> {
        let SecretMeta { secret_name, name_space, .. } = request.get_ref().clone();
        let fits = |context: &OperationContext| {
            let ObjectRevision { namespace, name, .. } = &context.class;
            *name == secret_name && *namespace == name_space
        };
        let denied = || Secret { data: String::new(), error: DENIED.to_owned() };
        let Some(context) = self.readable(&request, &secret_name, fits) else {
            return Ok(Response::new(denied()));
        };
        Ok(Response::new(match self.sessions.secret(&context.class).await {
            Ok(secret) => Secret {
                data: render::secret(&context.class, &secret, context.user_data.as_deref()),
                error: String::new(),
            },
            Err(_not_there) => denied(),
        }))
    }
}
