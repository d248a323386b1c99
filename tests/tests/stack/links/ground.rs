//! A core without controllers, a driver that a test controls, and the proxy between them.

use ostler_api::ProviderId;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ostler_api::operation::{
    ClassReference, Dispatch, Finished, Lane, OperationView, Outcome, Request, Target,
};
use ostler_driver_sdk::{
    CancellationToken, Connection, Connector, CreateMachine, DeleteMachine, Deletion, Driver,
    DriverError, DriverInfo, GetMachineStatus, Instance, ListMachines, Options, run_with,
};
use ostler_sessions::{
    ClassContent, ClassError, ClassSource, Principal, Providers, SecretContent, SessionEvent,
    Sessions, SessionsOptions, StaticTokens, Term, Timing,
};
use ostler_tests::proxy::Proxy;
use tokio::net::TcpListener;
use tokio::sync::{Notify, broadcast};
use tokio::time::timeout;
use tonic::transport::Endpoint;

pub(crate) const PROVIDER: &str = "links.example.com";
pub(crate) const OTHER: &str = "other.example.com";
pub(crate) const TOKEN: &str = "a token of the tests";

/// Longest wait for anything; only a failing test waits that long.
const PATIENCE: Duration = Duration::from_mins(2);

/// Awaits something that must come.
pub(crate) async fn soon<T>(awaited: impl Future<Output = T>) -> T {
    timeout(PATIENCE, awaited).await.unwrap()
}

/// No class is asked for here.
struct NoClasses;

#[ostler_sessions::async_trait]
impl ClassSource for NoClasses {
    fn class(&self, _: &str, _: &str) -> Result<ClassContent, ClassError> {
        Err(ClassError::NotFound)
    }

    async fn secret(&self, _: &ClassReference) -> Result<SecretContent, ClassError> {
        Err(ClassError::NotFound)
    }
}

/// A core, and the proxy before it.
pub(crate) struct Ground {
    pub(crate) sessions: Sessions,
    pub(crate) proxy: Proxy,
    pub(crate) direct: SocketAddr,
    events: broadcast::Receiver<SessionEvent>,
}

impl Ground {
    pub(crate) async fn start() -> Self {
        Self::beating(Duration::from_secs(2)).await
    }

    /// A core that notices soon when nothing is heard.
    pub(crate) async fn impatient() -> Self {
        Self::beating(Duration::from_millis(200)).await
    }

    async fn beating(heartbeat: Duration) -> Self {
        let not_reading = Duration::from_secs(5);
        let timing = Timing { heartbeat, not_reading, ..Timing::default() };
        let options = SessionsOptions { timing, ..SessionsOptions::default() };
        let principal = Principal::new("links", Providers::named([PROVIDER, OTHER]));
        let tokens = StaticTokens::new().with(TOKEN, principal);
        let sessions = Sessions::new(options, Arc::new(NoClasses), Arc::new(tokens));
        sessions.lead(Term(3));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let direct = listener.local_addr().unwrap();
        let serving = sessions.clone();
        tokio::spawn(async move { serving.serve_tcp(listener, std::future::pending()).await });
        let events = sessions.subscribe();
        Self { sessions, proxy: Proxy::start(direct).await, direct, events }
    }

    /// The next event that `wanted` accepts.
    pub(crate) async fn event(&mut self, wanted: impl Fn(&SessionEvent) -> bool) {
        soon(async { while !wanted(&self.events.recv().await.unwrap()) {} }).await;
    }

    pub(crate) async fn ready(&mut self, name: &str) {
        self.event(
            |event| matches!(event, SessionEvent::ProviderReady { provider } if provider == name),
        )
        .await;
    }

    pub(crate) async fn gone(&mut self, name: &str) {
        self.event(
            |event| matches!(event, SessionEvent::ProviderGone { provider } if provider == name),
        )
        .await;
    }

    pub(crate) async fn outcome(&mut self, uid: &str) -> Finished {
        loop {
            if let OperationView::Finished(finished) = self.sessions.view(uid) {
                return finished;
            }
            let ready = |event: &SessionEvent| matches!(event, SessionEvent::OutcomeReady { target_uid, .. } if target_uid == uid);
            self.event(ready).await;
        }
    }

    pub(crate) async fn list(&self, id: &str) -> Outcome {
        self.sessions.call(dispatch(PROVIDER, id, "class", Request::List)).await
    }
}

pub(crate) fn dispatch(provider: &str, id: &str, uid: &str, request: Request) -> Dispatch {
    Dispatch {
        provider: provider.into(),
        id: id.into(),
        idempotency_key: format!("{uid}:x"),
        target: Target { uid: uid.into(), name: uid.to_owned(), ..Target::default() },
        class: None,
        request,
        timeout: Duration::from_mins(1),
        checkpoint: String::new(),
        adopt_by_name: false,
        machine: None,
        lane: Lane::User,
    }
}

pub(crate) fn create(id: &str, uid: &str) -> Dispatch {
    let request = Request::Create { user_data: None, provider_id: ProviderId::default() };
    dispatch(PROVIDER, id, uid, request)
}

pub(crate) fn status(provider: &str, id: &str) -> Dispatch {
    let request = Request::Status { provider_id: ProviderId::default() };
    dispatch(provider, id, id, request)
}

/// A driver whose creates wait until the test releases them.
#[derive(Clone, Default)]
pub(crate) struct Patient {
    pub(crate) provider: &'static str,
    pub(crate) listed: usize,
    /// Bytes of each provider id, beside its number.
    pub(crate) id_bytes: usize,
    pub(crate) creates: Arc<AtomicUsize>,
    /// A create began.
    pub(crate) began: Arc<Notify>,
    /// Lets one create go on.
    pub(crate) go: Arc<Notify>,
    /// A create ended.
    pub(crate) ended: Arc<Notify>,
}

impl Patient {
    pub(crate) fn of(provider: &'static str) -> Self {
        Self { provider, ..Self::default() }
    }

    /// Runs until the token is cancelled.
    pub(crate) fn run(&self, address: SocketAddr) -> CancellationToken {
        let connector = Connector::new(move || async move {
            let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
            Connection::new(endpoint.connect_lazy()).with_token(TOKEN)
        });
        let end = CancellationToken::new();
        let options =
            Options::new(connector).shutdown(end.clone()).drain_timeout(Duration::from_secs(1));
        tokio::spawn(run_with(self.clone(), options));
        end
    }
}

impl Driver for Patient {
    fn info(&self) -> DriverInfo {
        DriverInfo::new(self.provider)
    }

    async fn create_machine(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        self.creates.fetch_add(1, Ordering::SeqCst);
        self.began.notify_one();
        self.go.notified().await;
        self.ended.notify_one();
        Ok(Instance::new(format!("links:///{}", request.ctx.target().uid)))
    }

    async fn delete_machine(&self, _: DeleteMachine) -> Result<Deletion, DriverError> {
        Ok(Deletion::WasAbsent)
    }

    async fn get_machine_status(&self, _: GetMachineStatus) -> Result<Instance, DriverError> {
        Err(DriverError::not_found("there is none"))
    }

    async fn list_machines(&self, _: ListMachines) -> Result<Vec<Instance>, DriverError> {
        let filler = "x".repeat(self.id_bytes);
        Ok((0..self.listed).map(|it| Instance::new(format!("links:///{it}-{filler}"))).collect())
    }
}
