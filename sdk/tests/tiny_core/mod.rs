//! A core that only plays the frames of a test.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

pub(crate) mod stable;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use hyper_util::rt::TokioIo;
use ostler_driver_sdk::{Connection, Connector};
use ostler_proto::v1alpha1 as proto;
use proto::driver_service_server::{DriverService, DriverServiceServer};
use proto::operation::Request as Asked;
use proto::operation_completed::Outcome;
use proto::register_request::Frame as FromDriver;
use proto::register_response::Frame as ToDriver;
use proto::{RegisterRequest, RegisterResponse};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt as _};

pub(crate) const TOKEN: &str = "canary-token";
pub(crate) const PASSWORD: &str = "canary-password";

/// Longest wait for a frame or a session, on a paused clock; only a failing test waits that long.
const PATIENCE: Duration = Duration::from_hours(1);

/// The core's end of everything.
pub(crate) struct TinyCore {
    sessions: mpsc::Receiver<CoreSession>,
    service: Service,
    pipes: mpsc::Sender<Result<DuplexStream, std::io::Error>>,
}

#[derive(Clone)]
struct Service {
    sessions: mpsc::Sender<CoreSession>,
    calls: Arc<Calls>,
}

/// What was asked beside the sessions, and how to answer.
#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) classes: AtomicUsize,
    pub(crate) secrets: AtomicUsize,
    /// So many calls fail as if the connection were cut.
    pub(crate) failures: AtomicUsize,
    /// Why a secret is denied; empty: the core does not say.
    pub(crate) denial: Mutex<String>,
    /// For how long a secret may be kept.
    pub(crate) cache_for: Mutex<Duration>,
    /// The revision that a secret must be asked with; any if empty.
    pub(crate) secret_revision: Mutex<String>,
    pub(crate) operations: Mutex<Vec<String>>,
    /// The session that may ask for secrets.
    pub(crate) session: Mutex<String>,
}

impl TinyCore {
    pub(crate) fn start() -> Self {
        let (registered, sessions) = mpsc::channel(8);
        let (pipes, incoming) = mpsc::channel(8);
        let calls = Calls { session: Mutex::new("session".to_owned()), ..Calls::default() };
        let service = Service { sessions: registered, calls: Arc::new(calls) };
        let server = Server::builder()
            .add_service(DriverServiceServer::new(service.clone()))
            .serve_with_incoming(ReceiverStream::new(incoming));
        tokio::spawn(server);
        Self { sessions, service, pipes }
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.service.calls
    }

    pub(crate) fn connector(&self) -> Connector {
        let pipes = self.pipes.clone();
        Connector::new(move || {
            let pipes = pipes.clone();
            async move {
                let (ours, theirs) = tokio::io::duplex(64 * 1024);
                pipes.send(Ok(theirs)).await.unwrap();
                let ours = Mutex::new(Some(TokioIo::new(ours)));
                let pipe = tower::service_fn(move |_| {
                    let pipe = ours.lock().unwrap().take();
                    async move { pipe.ok_or_else(|| std::io::Error::other("used up")) }
                });
                let endpoint = Endpoint::from_static("http://core");
                let channel = endpoint.connect_with_connector(pipe).await.unwrap();
                Connection::new(channel).with_token(TOKEN)
            }
        })
    }

    /// The next session that a driver opens.
    pub(crate) async fn session(&mut self) -> CoreSession {
        timeout(PATIENCE, self.sessions.recv()).await.unwrap().unwrap()
    }

    /// The next session, and its Hello, answered with a Welcome as ACTIVE.
    pub(crate) async fn welcomed(&mut self) -> (CoreSession, proto::Hello) {
        self.welcomed_as(&welcome().session_id).await
    }

    /// The same, with this id of the session.
    pub(crate) async fn welcomed_as(&mut self, id: &str) -> (CoreSession, proto::Hello) {
        let mut session = self.session().await;
        let hello = session.hello().await;
        let session_id = id.to_owned();
        session.send(ToDriver::Welcome(Box::new(proto::Welcome { session_id, ..welcome() }))).await;
        session.state().await;
        (session, hello)
    }
}

pub(crate) fn welcome() -> proto::Welcome {
    proto::Welcome {
        session_id: "session".to_owned(),
        role: proto::RoleKind::Active.into(),
        fencing_term: 1,
        ..Default::default()
    }
}

/// The core's end of a session.
pub(crate) struct CoreSession {
    inbound: Streaming<RegisterRequest>,
    outbound: mpsc::Sender<Result<RegisterResponse, Status>>,
    /// Came while something else was waited for.
    early: VecDeque<FromDriver>,
    /// Operations that the driver has named.
    named: HashSet<String>,
}

impl CoreSession {
    pub(crate) async fn send(&mut self, frame: impl Into<Option<ToDriver>>) {
        let sent = RegisterResponse { frame: frame.into() };
        self.outbound.send(Ok(sent)).await.unwrap();
    }

    /// Ends the stream with a status of this reason.
    pub(crate) async fn refuse(self, reason: &str, after: Option<Duration>) {
        let mut details = ErrorDetails::with_error_info(reason, "ostler.dev", HashMap::new());
        if after.is_some() {
            details.set_retry_info(after);
        }
        let status = Status::with_error_details(Code::Unavailable, reason, details);
        self.outbound.send(Err(status)).await.unwrap();
    }

    pub(crate) async fn operate(&mut self, operation: proto::Operation) {
        self.send(ToDriver::Operation(Box::new(operation))).await;
    }

    pub(crate) async fn ack(&mut self, id: &str) {
        let operation_ids = vec![id.to_owned()];
        self.send(ToDriver::ResultAck(proto::OperationResultAck { operation_ids })).await;
    }

    /// The next frame.
    pub(crate) async fn receive(&mut self) -> Option<FromDriver> {
        if let Some(frame) = self.early.pop_front() {
            return Some(frame);
        }
        let next = timeout(PATIENCE, self.inbound.next()).await;
        assert!(next.is_ok(), "neither a frame nor the end of the stream");
        let request = next.unwrap()?.ok()?;
        Some(request.frame.unwrap())
    }

    pub(crate) async fn hello(&mut self) -> proto::Hello {
        match self.receive().await {
            Some(FromDriver::Hello(hello)) => *hello,
            other => panic!("not a Hello: {other:?}"),
        }
    }

    pub(crate) async fn state(&mut self) -> proto::DriverState {
        match self.receive().await {
            Some(FromDriver::State(state)) => state,
            other => panic!("not a state: {other:?}"),
        }
    }

    /// The next operation that the driver names; it is asked for by a heartbeat.
    pub(crate) async fn accepted(&mut self) -> String {
        let mut early = std::mem::take(&mut self.early);
        self.send(ToDriver::Heartbeat(proto::Heartbeat::default())).await;
        let mut ids = loop {
            match self.receive().await.unwrap() {
                FromDriver::Heartbeat(echo) => break echo.running,
                FromDriver::Accepted(_) => {}
                frame @ (FromDriver::Hello(_)
                | FromDriver::Progress(_)
                | FromDriver::Page(_)
                | FromDriver::Completed(_)
                | FromDriver::State(_)
                | FromDriver::Event(_)) => early.push_back(frame),
            }
        };
        ids.extend(early.iter().filter_map(|frame| match frame {
            FromDriver::Progress(progress) => Some(progress.operation_id.clone()),
            FromDriver::Page(page) => Some(page.operation_id.clone()),
            FromDriver::Completed(completed) => Some(completed.operation_id.clone()),
            FromDriver::Hello(_)
            | FromDriver::Accepted(_)
            | FromDriver::State(_)
            | FromDriver::Event(_)
            | FromDriver::Heartbeat(_) => None,
        }));
        self.early = early;
        ids.into_iter().find(|id| self.named.insert(id.clone())).unwrap()
    }

    pub(crate) async fn completed(&mut self) -> proto::OperationCompleted {
        match self.receive().await {
            Some(FromDriver::Completed(completed)) => *completed,
            other => panic!("not completed: {other:?}"),
        }
    }

    pub(crate) async fn failed(&mut self) -> proto::OperationError {
        match self.completed().await.outcome {
            Some(Outcome::Error(error)) => error,
            other => panic!("not an error: {other:?}"),
        }
    }

    pub(crate) async fn echo(&mut self) -> proto::Heartbeat {
        self.send(ToDriver::Heartbeat(proto::Heartbeat::default())).await;
        match self.receive().await {
            Some(FromDriver::Heartbeat(heartbeat)) => heartbeat,
            other => panic!("not a heartbeat: {other:?}"),
        }
    }
}

/// An operation on the machine `name`.
pub(crate) fn operation(id: &str, name: &str, request: Asked) -> proto::Operation {
    proto::Operation {
        operation_id: id.to_owned(),
        idempotency_key: format!("uid-{name}:x"),
        target: Some(proto::Target {
            kind: "Machine".to_owned(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
        }),
        fencing_term: 1,
        delivery: 1,
        machine_class: Some(reference("class", "1")),
        cluster_id: "cluster".to_owned(),
        request: Some(request),
        ..Default::default()
    }
}

pub(crate) fn create(id: &str, name: &str) -> proto::Operation {
    operation(id, name, Asked::CreateMachine(proto::CreateMachineRequest::default()))
}

pub(crate) fn reference(name: &str, revision: &str) -> proto::ObjectRevision {
    proto::ObjectRevision {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: String::new(),
        revision: revision.to_owned(),
    }
}

#[tonic::async_trait]
impl DriverService for Service {
    type RegisterStream = ReceiverStream<Result<RegisterResponse, Status>>;

    async fn register(
        &self,
        request: Request<Streaming<RegisterRequest>>,
    ) -> Result<Response<Self::RegisterStream>, Status> {
        check_token(&request)?;
        let (outbound, frames) = mpsc::channel(1);
        let session = CoreSession {
            inbound: request.into_inner(),
            outbound,
            early: VecDeque::new(),
            named: HashSet::new(),
        };
        self.sessions.send(session).await.unwrap();
        Ok(Response::new(ReceiverStream::new(frames)))
    }

    async fn get_machine_class(
        &self,
        request: Request<proto::GetMachineClassRequest>,
    ) -> Result<Response<proto::GetMachineClassResponse>, Status> {
        check_token(&request)?;
        self.calls.classes.fetch_add(1, Ordering::SeqCst);
        self.cut_off()?;
        let wanted = request.into_inner().r#ref.unwrap();
        if wanted.name == "gone" {
            return Err(Status::not_found("no such revision"));
        }
        Ok(Response::new(proto::GetMachineClassResponse {
            r#ref: Some(wanted),
            provider_spec_json: r#"{"size":3}"#.to_owned(),
            secret: Some(reference("secret", "1")),
            ..Default::default()
        }))
    }

    async fn get_secret(
        &self,
        request: Request<proto::GetSecretRequest>,
    ) -> Result<Response<proto::GetSecretResponse>, Status> {
        check_token(&request)?;
        self.calls.secrets.fetch_add(1, Ordering::SeqCst);
        self.cut_off()?;
        let request = request.into_inner();
        if request.session_id != *self.calls.session.lock().unwrap() {
            return Err(denied(self.calls.denial.lock().unwrap().clone()));
        }
        self.calls.operations.lock().unwrap().push(request.operation_id);
        let wanted = request.r#ref.unwrap();
        let served = self.calls.secret_revision.lock().unwrap().clone();
        if !wanted.revision.is_empty() && !served.is_empty() && wanted.revision != served {
            return Err(Status::not_found("no such revision"));
        }
        let cache_for = *self.calls.cache_for.lock().unwrap();
        Ok(Response::new(proto::GetSecretResponse {
            r#ref: Some(wanted),
            data: [("password".to_owned(), PASSWORD.as_bytes().to_vec())].into(),
            cache_for: cache_for.try_into().ok(),
        }))
    }
}

impl Service {
    fn cut_off(&self) -> Result<(), Status> {
        let failures = &self.calls.failures;
        let fails = |left: usize| left.checked_sub(1);
        match failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails) {
            Ok(_) => Err(Status::unavailable("cut off")),
            Err(_) => Ok(()),
        }
    }
}

fn denied(denial: String) -> Status {
    let metadata: HashMap<_, _> =
        [("denial".to_owned(), denial)].into_iter().filter(|(_, why)| !why.is_empty()).collect();
    let details = ErrorDetails::with_error_info("SECRET_DENIED", "ostler.dev", metadata);
    let message = "not yours, or not there";
    Status::with_error_details(Code::PermissionDenied, message, details)
}

fn check_token<T>(request: &Request<T>) -> Result<(), Status> {
    let shown = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
    if shown == Some(&format!("Bearer {TOKEN}")) {
        Ok(())
    } else {
        Err(Status::unauthenticated("wrong token"))
    }
}
