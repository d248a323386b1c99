//! The core under test.

use ostler_api::{ProviderId, ProviderName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use ostler_api::driver::OperationKind;
use ostler_api::operation::{
    self, ClassReference, Dispatch, Finished, Lane, OperationView, Request, UserData,
};
use ostler_proto::v1alpha1::driver_service_client::DriverServiceClient;
use ostler_proto::v1alpha1::{HeldOperation, ObjectRevision, Target};
use ostler_sessions::{
    ClassContent, ClassError, ClassSource, Principal, Providers, RecordedOperation, SecretContent,
    SessionEvent, Sessions, SessionsOptions, StaticTokens, Term,
};
use tokio::io::DuplexStream;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

pub(crate) const PROVIDER: &str = "fake.ostler.dev";
pub(crate) const TOKEN: &str = "token-of-fake";
/// Another principal with the same rights.
pub(crate) const SECOND_TOKEN: &str = "token-of-second";
/// Good for ten minutes.
pub(crate) const EXPIRING_TOKEN: &str = "token-that-expires";
/// A principal of another provider.
pub(crate) const FOREIGN_TOKEN: &str = "token-of-foreign";

/// Classes that a test can edit.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    pub(crate) known: Mutex<BTreeMap<String, ClassContent>>,
    pub(crate) secrets: Mutex<BTreeMap<String, SecretContent>>,
    /// What is written down, by UID.
    pub(crate) records: Mutex<BTreeMap<String, RecordedOperation>>,
}

impl Classes {
    pub(crate) fn put(&self, name: &str, class: ClassContent) {
        self.known.lock().unwrap().insert(name.to_owned(), class);
    }

    pub(crate) fn put_secret(&self, name: &str, revision: &str, value: &str) {
        let data = BTreeMap::from([("key".to_owned(), value.as_bytes().to_vec())]);
        let secret = SecretContent { revision: revision.into(), data };
        self.secrets.lock().unwrap().insert(name.to_owned(), secret);
    }

    /// The core before recorded this operation.
    pub(crate) fn record(&self, held: &HeldOperation) {
        self.write_down(recorded(held));
    }

    pub(crate) fn write_down(&self, recorded: RecordedOperation) {
        self.records.lock().unwrap().insert(recorded.target.uid.clone().into(), recorded);
    }
}

#[ostler_sessions::async_trait]
impl ClassSource for Classes {
    fn class(&self, namespace: &str, name: &str) -> Result<ClassContent, ClassError> {
        if namespace != "default" {
            return Err(ClassError::NamespaceDenied);
        }
        self.known.lock().unwrap().get(name).cloned().ok_or(ClassError::NotFound)
    }

    async fn secret(&self, class: &ClassReference) -> Result<SecretContent, ClassError> {
        assert_eq!(class.namespace, "default");
        self.secrets.lock().unwrap().get(&class.name).cloned().ok_or(ClassError::NotFound)
    }

    fn confidential(&self, _namespace: &str, name: &str) -> Vec<Vec<u8>> {
        let secrets = self.secrets.lock().unwrap();
        secrets.get(name).map(|it| it.data.values().cloned().collect()).unwrap_or_default()
    }

    fn providers(&self) -> BTreeSet<ProviderName> {
        self.known.lock().unwrap().values().map(|class| class.provider.clone()).collect()
    }

    fn recorded(&self, target_uid: &str) -> Option<RecordedOperation> {
        self.records.lock().unwrap().get(target_uid).cloned()
    }
}

/// A former core's record of an operation, made before the send.
pub(crate) fn recorded(held: &HeldOperation) -> RecordedOperation {
    RecordedOperation {
        operation_id: held.operation_id.clone().into(),
        kind: OperationKind::from_number(held.kind).unwrap(),
        idempotency_key: held.idempotency_key.clone(),
        term: Term(2),
        target: target_of(held.target.as_ref().unwrap()),
        class: class_of(held.machine_class.as_ref().unwrap()),
        provider: PROVIDER.into(),
    }
}

pub(crate) fn class(revision: &str, secret: &str) -> ClassContent {
    ClassContent {
        revision: revision.into(),
        provider: PROVIDER.into(),
        provider_spec_json: format!("{{\"revision\":\"{revision}\"}}"),
        secret_revision: Some(secret.into()),
        ..ClassContent::default()
    }
}

/// A core with the class `small` and its secret.
pub(crate) struct Core {
    pub(crate) sessions: Sessions,
    pub(crate) classes: Arc<Classes>,
    pub(crate) events: broadcast::Receiver<SessionEvent>,
    dial: mpsc::Sender<DuplexStream>,
    stop: Option<oneshot::Sender<()>>,
    served: tokio::task::JoinHandle<()>,
}

impl Core {
    pub(crate) fn start() -> Self {
        Self::with(SessionsOptions::default())
    }

    pub(crate) fn with(options: SessionsOptions) -> Self {
        let classes = Arc::new(Classes::default());
        classes.put("small", class("7", "1"));
        classes.put_secret("small", "1", "canary-secret");
        let principal =
            |name: &str, provider: &str| Principal::new(name, Providers::named([provider]));
        let tokens = StaticTokens::new()
            .with(TOKEN, principal("fake", PROVIDER))
            .with(SECOND_TOKEN, principal("second", PROVIDER))
            .with(FOREIGN_TOKEN, principal("foreign", "foreign.ostler.dev"))
            .with(
                EXPIRING_TOKEN,
                Principal {
                    expires_in: Some(Duration::from_mins(10)),
                    ..principal("expiring", PROVIDER)
                },
            );
        let source: Arc<Classes> = Arc::clone(&classes);
        let sessions = Sessions::new(options, source, Arc::new(tokens));
        sessions.lead(Term(3));
        Self::serving(sessions, classes)
    }

    /// Sessions that may not lead yet.
    pub(crate) fn serving(sessions: Sessions, classes: Arc<Classes>) -> Self {
        let (dial, incoming) = mpsc::channel(8);
        let (stop, stopped) = oneshot::channel::<()>();
        let incoming = ReceiverStream::new(incoming).map(Ok::<_, std::io::Error>);
        let serving = sessions.clone();
        let served = tokio::spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            serving.serve(incoming, shutdown).await.unwrap();
        });
        let events = sessions.subscribe();
        Self { sessions, classes, events, dial, stop: Some(stop), served }
    }

    /// The far end of a connection.
    pub(crate) async fn raw(&self) -> DuplexStream {
        let (theirs, ours) = tokio::io::duplex(1 << 16);
        self.dial.send(ours).await.unwrap();
        theirs
    }

    /// A connection of its own.
    pub(crate) async fn connect(&self) -> Channel {
        self.connect_through().await.0
    }

    /// A connection, and the link under it: without the link both ends see the end of the bytes.
    pub(crate) async fn connect_through(&self) -> (Channel, AbortHandle) {
        let (theirs, mut near) = tokio::io::duplex(1 << 16);
        let mut far = self.raw().await;
        let link = tokio::spawn(async move {
            let ended = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            drop(ended);
        });
        let mut theirs = Some(theirs);
        let connector = tower::service_fn(move |_| {
            let stream = theirs.take().map(TokioIo::new);
            async move { stream.ok_or_else(|| std::io::Error::other("connected once")) }
        });
        // The smallest windows there are: what a driver leaves unread stays with the core.
        let window = (1 << 16) - 1;
        let endpoint = Endpoint::from_static("http://core")
            .initial_stream_window_size(window)
            .initial_connection_window_size(window);
        (endpoint.connect_with_connector(connector).await.unwrap(), link.abort_handle())
    }

    pub(crate) async fn client(&self) -> DriverServiceClient<Channel> {
        DriverServiceClient::new(self.connect().await)
    }

    /// The next event that `wanted` accepts.
    pub(crate) async fn event(&mut self, wanted: impl Fn(&SessionEvent) -> bool) -> SessionEvent {
        loop {
            let event = self.events.recv().await.unwrap();
            if wanted(&event) {
                return event;
            }
        }
    }

    pub(crate) async fn provider_ready(&mut self) {
        self.event(|event| matches!(event, SessionEvent::ProviderReady { .. })).await;
    }

    pub(crate) async fn provider_gone(&mut self) {
        self.event(|event| matches!(event, SessionEvent::ProviderGone { .. })).await;
    }

    /// The outcome of a target, once available.
    pub(crate) async fn outcome(&mut self, uid: &str) -> Finished {
        loop {
            if let OperationView::Finished(finished) = self.sessions.view(uid) {
                return finished;
            }
            let ready = |event: &SessionEvent| matches!(event, SessionEvent::OutcomeReady { target_uid, .. } if target_uid == uid);
            self.event(ready).await;
        }
    }

    /// Stops serving, and waits until it has.
    pub(crate) async fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        (&mut self.served).await.unwrap();
    }
}

/// An operation `id` on the target `uid`.
pub(crate) fn dispatch(id: &str, uid: &str, request: Request) -> Dispatch {
    Dispatch {
        provider: PROVIDER.into(),
        id: id.into(),
        idempotency_key: format!("{uid}:x"),
        target: target_of(&target(uid)),
        class: Some(class_of(&class_ref("small", "7"))),
        request,
        timeout: Duration::from_mins(1),
        checkpoint: String::new(),
        adopt_by_name: false,
        machine: None,
        lane: Lane::User,
    }
}

pub(crate) fn target(uid: &str) -> Target {
    Target {
        kind: "Machine".into(),
        namespace: "default".into(),
        name: format!("machine-{uid}"),
        uid: uid.to_owned(),
    }
}

pub(crate) fn class_ref(name: &str, revision: &str) -> ObjectRevision {
    ObjectRevision {
        uid: String::new(),
        namespace: "default".into(),
        name: name.into(),
        revision: revision.into(),
    }
}

/// The same target, as the core speaks of it.
pub(crate) fn target_of(target: &Target) -> operation::Target {
    let Target { kind, namespace, name, uid } = target.clone();
    operation::Target { kind, namespace, name, uid: uid.into() }
}

/// The same class, as the core speaks of it.
pub(crate) fn class_of(class: &ObjectRevision) -> ClassReference {
    let ObjectRevision { namespace, name, revision, .. } = class.clone();
    ClassReference { namespace, name, revision: revision.into() }
}

pub(crate) fn create(id: &str, uid: &str) -> Dispatch {
    create_with(id, uid, b"canary-user-data".to_vec())
}

pub(crate) fn create_with(id: &str, uid: &str, user_data: Vec<u8>) -> Dispatch {
    let user_data = Some(UserData::new(user_data));
    dispatch(id, uid, Request::Create { user_data, provider_id: ProviderId::default() })
}

pub(crate) fn delete(id: &str, uid: &str) -> Dispatch {
    dispatch(id, uid, Request::Delete { provider_id: ProviderId::default() })
}

pub(crate) fn update(id: &str, uid: &str) -> Dispatch {
    let (provider_id, last_applied_spec_json) = (String::new(), String::new());
    dispatch(id, uid, Request::Update { provider_id: provider_id.into(), last_applied_spec_json })
}

pub(crate) fn status(id: &str, uid: &str) -> Dispatch {
    dispatch(id, uid, Request::Status { provider_id: ProviderId::default() })
}

pub(crate) fn list(id: &str) -> Dispatch {
    dispatch(id, "class-uid", Request::List)
}
