//! The core that the suite plays: a server for drivers, classes and secrets, and the sessions that arrive.

pub(crate) mod codec;
pub(crate) mod library;
pub(crate) mod limits;
pub(crate) mod log;
pub(crate) mod reasons;
pub(crate) mod service;
pub(crate) mod session;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use parking_lot::{Mutex, MutexGuard};
use proto::operation_completed::Outcome as Ended;
use proto::register_request::Frame as Received;
use proto::register_response::Frame;
use proto::{HeldVerdict, ObjectRevision, Operation, RoleKind, Verdict, Welcome};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Status};

use self::codec::Inbound;
use self::library::Library;
use self::service::{SuiteService, status};
use self::session::Session;
use crate::observation::{Observations, Rule};
use crate::outcome::{Outcome, failed};

/// Streams whose Hello came and that no check has looked at yet.
const ARRIVALS: usize = 256;
/// Short, so that a dead link shows soon; long enough that a busy machine does not show one.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(3);

/// One life of a core. It ends with the value.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    arrivals: tokio::sync::Mutex<mpsc::Receiver<Arc<Session>>>,
    server: JoinHandle<()>,
}

/// What the service and the checks share.
#[derive(Debug)]
pub(crate) struct State {
    token: String,
    hello_limit: Duration,
    observations: Observations,
    arrivals: mpsc::Sender<Arc<Session>>,
    library: Mutex<Library>,
    facts: Mutex<Facts>,
}

#[derive(Debug, Default)]
struct Facts {
    provider: String,
    /// The session that was welcomed last.
    current: Option<Arc<Session>>,
    /// By id: for which class.
    in_flight: HashMap<String, String>,
    /// Leadership term.
    term: u64,
}

impl Core {
    /// A core that knows nothing but its leadership.
    pub(crate) async fn start(
        token: &str,
        hello_limit: Duration,
        observations: Observations,
        term: u64,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (arrivals, inbox) = mpsc::channel(ARRIVALS);
        let state = Arc::new(State {
            token: token.to_owned(),
            hello_limit,
            observations,
            arrivals,
            library: Mutex::default(),
            facts: Mutex::new(Facts { term, ..Facts::default() }),
        });
        let service = SuiteService::new(&state);
        let server = tokio::spawn(async move {
            let incoming = TcpListenerStream::new(listener);
            let server = tonic::transport::Server::builder().add_service(service);
            // Ends with the task only; a listener on loopback does not fail.
            drop(server.serve_with_incoming(incoming).await);
        });
        Ok(Self { address, state, arrivals: tokio::sync::Mutex::new(inbox), server })
    }

    /// The classes and secrets for the driver.
    pub(crate) fn library(&self) -> MutexGuard<'_, Library> {
        self.state.library.lock()
    }

    /// The session that was welcomed last, if it lives.
    pub(crate) fn current(&self) -> Option<Arc<Session>> {
        self.state.facts.lock().current.clone().filter(|session| session.is_live())
    }

    /// The next stream that said Hello and still lives.
    pub(crate) async fn arrival(&self) -> Option<Arc<Session>> {
        let mut arrivals = self.arrivals.lock().await;
        loop {
            let session = arrivals.recv().await?;
            if session.is_live() {
                return Some(session);
            }
        }
    }

    /// Answers a Hello, and sends heartbeats from now on.
    pub(crate) fn welcome(&self, session: &Arc<Session>, welcome: Welcome) -> Outcome {
        {
            let mut facts = self.state.facts.lock();
            facts.provider.clone_from(&session.hello.provider);
            facts.current = Some(Arc::clone(session));
            for held in session.hello.resume.iter().flat_map(|resume| &resume.operations) {
                // After a restart of the core: the driver may not know the class of the operation.
                facts.in_flight.entry(held.operation_id.clone()).or_default();
            }
        }
        session.send(Frame::Welcome(Box::new(welcome)))?;
        session.heartbeats(HEARTBEAT);
        Ok(())
    }

    /// Welcome as a core in good health says it, which keeps everything.
    pub(crate) fn greeting(&self, session: &Session, role: RoleKind) -> Welcome {
        let held = session.hello.resume.iter().flat_map(|resume| &resume.operations);
        let verdicts = held
            .map(|held| HeldVerdict {
                operation_id: held.operation_id.clone(),
                verdict: Verdict::Keep.into(),
            })
            .collect();
        let duration = |time: Duration| prost_types::Duration::try_from(time).ok();
        Welcome {
            session_id: session.id.clone(),
            resume_outcome: proto::ResumeOutcome::Fresh.into(),
            verdicts,
            role: role.into(),
            fencing_term: self.term(),
            capabilities: vec![
                proto::CoreCapability::Resume.into(),
                proto::CoreCapability::CacheInvalidation.into(),
            ],
            heartbeat_interval: duration(HEARTBEAT),
            resume_window: duration(Duration::from_mins(1)),
            max_frame_bytes: limits::FRAME,
            core_instance: "conformance".to_owned(),
            core_version: env!("CARGO_PKG_VERSION").to_owned(),
            core_time: Some(std::time::SystemTime::now().into()),
            ..Welcome::default()
        }
    }

    /// Sends an operation and counts it as in flight.
    pub(crate) fn dispatch(&self, session: &Session, operation: &Operation) -> Outcome {
        self.note_dispatch(operation);
        session.send(Frame::Operation(Box::new(operation.clone()))).map(drop)
    }

    /// Counts an operation as in flight.
    pub(crate) fn note_dispatch(&self, operation: &Operation) {
        let class = operation.machine_class.as_ref().map(|class| class.name.clone());
        let id = operation.operation_id.clone();
        self.state.facts.lock().in_flight.insert(id, class.unwrap_or_default());
    }

    /// Its leadership term.
    pub(crate) fn term(&self) -> u64 {
        self.state.facts.lock().term
    }

    /// It leads in another term.
    pub(crate) fn set_term(&self, term: u64) {
        self.state.facts.lock().term = term;
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.server.abort();
        if let Some(session) = self.state.facts.lock().current.take() {
            session.close(None);
        }
    }
}

impl State {
    fn provider(&self) -> String {
        self.facts.lock().provider.clone()
    }

    fn observe(&self, rule: Rule, came: impl Into<String>) {
        self.observations.add(rule, came);
    }

    fn authenticate<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let header = request.metadata().get("authorization");
        let expected = format!("Bearer {}", self.token);
        if header.is_some_and(|header| header.as_bytes() == expected.as_bytes()) {
            return Ok(());
        }
        Err(Status::unauthenticated(
            "every call needs `authorization: Bearer <token>` with the token of OSTLER_TOKEN_FILE",
        ))
    }

    /// INV-7: only for an operation in flight on the caller's own session.
    fn may_read(
        &self,
        wanted: &ObjectRevision,
        session_id: &str,
        operation_id: &str,
    ) -> Result<(), Status> {
        let denied = || status(Code::PermissionDenied, "SECRET_DENIED");
        let facts = self.facts.lock();
        let current = facts.current.as_ref().filter(|session| session.id == session_id);
        if current.is_none_or(|session| !session.is_live()) {
            // It may have ended while the call was under way, so the driver is not blamed.
            return Err(denied());
        }
        let class = facts.in_flight.get(operation_id).cloned();
        drop(facts);
        match class {
            Some(class) if class.is_empty() || class == wanted.name => Ok(()),
            Some(class) => {
                let came =
                    format!("GetSecret for {:?} with an operation on class {class:?}", wanted.name);
                self.observe(Rule::SecretScope, came);
                Err(denied())
            }
            None => {
                let came =
                    format!("GetSecret with operation_id {operation_id:?}, which is not in flight");
                self.observe(Rule::SecretScope, came);
                Err(denied())
            }
        }
    }

    /// What has to happen for every frame.
    fn received(&self, session: &Session, inbound: &Inbound) {
        if let Some(Received::Hello(_)) = &inbound.frame.frame
            && session.log.len() > 0
        {
            self.observe(Rule::HelloFirst, "a second Hello on one stream".to_owned());
        }
        for came in limits::broken(inbound.frame.frame.as_ref(), inbound.bytes) {
            self.observe(Rule::Limits, came);
        }
        if let Some(Received::Completed(completed)) = &inbound.frame.frame {
            if let Some(Ended::Error(error)) = &completed.outcome
                && let Some(came) = reasons::wrong(error)
            {
                self.observe(Rule::Reasons, came);
            }
            self.facts.lock().in_flight.remove(&completed.operation_id);
            if session.acknowledges() {
                // The receiver sees that the stream is over.
                drop(session.acknowledge_result(&completed.operation_id));
            }
        }
    }
}

/// Waits for something within a limit of time.
pub(crate) async fn within<T>(
    limit: Duration,
    what: impl std::fmt::Display,
    wait: impl Future<Output = T>,
) -> Outcome<T> {
    let found = tokio::time::timeout(limit, wait).await;
    found.map_err(|_| failed(what, format_args!("nothing of the kind within {limit:?}")))
}
