//! Messages of the adapter, as a core gets them through a session.

use std::collections::BTreeMap;
use std::time::Duration;

use ostler_api::driver::Certainty;
use ostler_api::operation::{
    ClassReference, Dispatch, Failure, Finished, Lane, OperationView, Request as Asked, Target,
    UserData,
};
use ostler_driver_sdk::{Connection, Connector, Options, run_handler};
use ostler_sessions::{
    ClassContent, ClassError, ClassSource, Principal, Providers, SecretContent, SessionEvent,
    Sessions, SessionsOptions, StaticTokens, Term,
};
use prost::{Message as _, Name as _};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tonic::transport::Endpoint;

use super::*;

const TOKEN: &str = "token";

/// Serves any class. The values of the class's secret, one for each read, in reverse order.
struct Classes(Mutex<Vec<&'static str>>);

#[ostler_sessions::async_trait]
impl ClassSource for Classes {
    fn class(&self, _: &str, _: &str) -> Result<ClassContent, ClassError> {
        Ok(ClassContent {
            revision: "1".into(),
            provider: PROVIDER.into(),
            secret_revision: Some("1".into()),
            ..ClassContent::default()
        })
    }

    async fn secret(&self, _: &ClassReference) -> Result<SecretContent, ClassError> {
        let Some(value) = self.0.lock().pop() else {
            return Err(ClassError::Unavailable("away".to_owned()));
        };
        let data = BTreeMap::from([("key".to_owned(), value.as_bytes().to_vec())]);
        Ok(SecretContent { revision: "1".into(), data })
    }
}

struct Core {
    sessions: Sessions,
    events: broadcast::Receiver<SessionEvent>,
}

impl Core {
    /// With a session of the adapter.
    async fn of(it: &Setting) -> Self {
        Self::with(it, vec!["key of the cloud"]).await
    }

    async fn with(it: &Setting, secrets: Vec<&'static str>) -> Self {
        let (mut core, connector) = Self::alone(secrets).await;
        tokio::spawn(run_handler(it.adapter.clone(), Options::new(connector)));
        while !matches!(core.events.recv().await, Ok(SessionEvent::ProviderReady { .. })) {}
        core
    }

    /// And how to dial it.
    async fn alone(secrets: Vec<&'static str>) -> (Self, Connector) {
        let classes = Classes(Mutex::new(secrets));
        let tokens = StaticTokens::new().with(TOKEN, Principal::new("it", Providers::Any));
        let sessions =
            Sessions::new(SessionsOptions::default(), Arc::new(classes), Arc::new(tokens));
        sessions.lead(Term(1));
        let events = sessions.subscribe();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let serving = sessions.clone();
        tokio::spawn(async move { serving.serve_tcp(listener, std::future::pending()).await });
        let connector = Connector::new(move || {
            let endpoint = Endpoint::from_shared(endpoint.clone()).unwrap();
            async move { Connection::new(endpoint.connect().await.unwrap()).with_token(TOKEN) }
        });
        (Self { sessions, events }, connector)
    }

    async fn outcome(&mut self, asked: Dispatch) -> (Failure, Option<String>) {
        let Finished { outcome, checkpoint, .. } = self.finished(asked).await;
        (outcome.unwrap_err(), checkpoint)
    }

    async fn finished(&mut self, asked: Dispatch) -> Finished {
        let uid = asked.target.uid.clone();
        self.sessions.submit(asked).unwrap();
        loop {
            if let OperationView::Finished(finished) = self.sessions.view(uid.as_str()) {
                return finished;
            }
            self.events.recv().await.unwrap();
        }
    }
}

fn create_with(user_data: &str, timeout: Duration) -> Dispatch {
    let user_data = Some(UserData::new(user_data.as_bytes().to_vec()));
    Dispatch {
        provider: PROVIDER.into(),
        id: "op".into(),
        idempotency_key: "uid-a:x".to_owned(),
        target: Target { uid: "uid-a".into(), name: "a".to_owned(), ..Target::default() },
        class: Some(ClassReference {
            namespace: "default".to_owned(),
            name: "class".to_owned(),
            revision: "1".into(),
        }),
        request: Asked::Create { user_data, provider_id: String::new().into() },
        timeout,
        checkpoint: String::new(),
        adopt_by_name: false,
        machine: None,
        lane: Lane::User,
    }
}

/// How a driver says what it knows of a failure.
fn failure(of: &proto::OperationError) -> Status {
    let detail =
        prost_types::Any { type_url: proto::OperationError::type_url(), value: of.encode_to_vec() };
    let rich = tonic_types::pb::Status { details: vec![detail], ..Default::default() };
    Status::with_details(tonic::Code::Unknown, "", rich.encode_to_vec().into())
}

#[tokio::test]
async fn a_driver_that_cannot_work_is_not_ready_from_the_first_moment() {
    let it = setting(Vec::new()).await;
    let (mut core, connector) = Core::alone(Vec::new()).await;
    let path = it.socket.path.clone();
    tokio::spawn(crate::serve(path, None, Options::new(connector)));
    let first = core.events.recv().await.unwrap();
    assert!(matches!(first, SessionEvent::ProviderGone { .. }), "{first:?}");
    let [provider] = &core.sessions.providers()[..] else { panic!("one provider") };
    assert_eq!((provider.ready, provider.reason.as_str()), (false, "the cloud is away"));
}

#[tokio::test]
async fn the_end_of_an_adapter_cancels_nothing_in_its_driver() {
    let it = setting(Vec::new()).await;
    let (mut core, connector) = Core::alone(vec!["key of the cloud"]).await;
    let shutdown = CancellationToken::new();
    let options =
        Options::new(connector).shutdown(shutdown.clone()).drain_timeout(Duration::from_millis(50));
    let session = tokio::spawn(run_handler(it.adapter.clone(), options));
    while !matches!(core.events.recv().await, Ok(SessionEvent::ProviderReady { .. })) {}
    core.sessions.submit(create_with("", Duration::from_mins(1))).unwrap();
    it.fake.began.acquire().await.unwrap().forget();
    shutdown.cancel();
    session.await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(it.fake.cancelled.available_permits(), 0);
}

#[tokio::test]
async fn the_checkpoint_of_an_answer_is_saved() {
    let it = setting(Vec::new()).await;
    let mut core = Core::of(&it).await;
    it.fake.permits.add_permits(1);
    let done = core.finished(create_with("", Duration::from_mins(1))).await;
    assert!(done.outcome.is_ok(), "{done:?}");
    assert_eq!(done.checkpoint.as_deref(), Some("made"));
}

#[tokio::test]
async fn user_data_that_a_driver_quotes_in_its_error_do_not_reach_the_core() {
    let it = setting(Vec::new()).await;
    let mut core = Core::of(&it).await;
    it.fake.permits.add_permits(1);
    let error = proto::OperationError {
        code: proto::MachineErrorCode::InvalidArgument.into(),
        message: "bad request: password: canary-in-user-data, too long".to_owned(),
        checkpoint: "after password: canary-in-user-data".to_owned(),
        ..Default::default()
    };
    *it.fake.bare.lock() = Some(failure(&error));
    let user_data = "#cloud-config\npassword: canary-in-user-data\n";
    let (failure, checkpoint) = core.outcome(create_with(user_data, Duration::from_mins(1))).await;
    assert!(failure.message.contains("too long"), "{failure:?}");
    assert!(!failure.message.contains("canary"), "{failure:?}");
    assert_eq!(failure.certainty, Certainty::Unknown);
    assert!(!checkpoint.unwrap_or_default().contains("canary"));
}

#[tokio::test]
async fn what_a_driver_says_at_the_end_of_its_own_time_arrives() {
    let it = setting(Vec::new()).await;
    let mut core = Core::of(&it).await;
    let error = proto::OperationError {
        code: proto::MachineErrorCode::DeadlineExceeded.into(),
        certainty: proto::OutcomeCertainty::Partial.into(),
        reason: "DISK_NOT_ATTACHED".to_owned(),
        checkpoint: "disk made".to_owned(),
        ..Default::default()
    };
    *it.fake.bare.lock() = Some(failure(&error));
    let fake = it.fake.clone();
    // The driver stops after the time that it was told, counted from the call: later than the adapter's deadline.
    tokio::spawn(async move {
        fake.began.acquire().await.unwrap().forget();
        let time = fake.asked.lock().pop().and_then(|it| it.timeout).unwrap();
        tokio::time::sleep(time.try_into().unwrap()).await;
        fake.permits.add_permits(1);
    });
    let (failure, checkpoint) = core.outcome(create_with("", Duration::from_secs(1))).await;
    let said = (failure.certainty, failure.reason.as_str(), checkpoint.as_deref());
    assert_eq!(said, (Certainty::Partial, "DISK_NOT_ATTACHED", Some("disk made")));
}

/// Nobody has read what the first attempt left, and a second one would begin with the checkpoint of before.
#[tokio::test]
async fn a_refused_key_is_replaced_at_once_only_where_nothing_was_done() {
    let error = |certainty: proto::OutcomeCertainty, reason: &str| {
        failure(&proto::OperationError {
            code: proto::MachineErrorCode::PermissionDenied.into(),
            certainty: certainty.into(),
            reason: reason.to_owned(),
            checkpoint: reason.to_lowercase(),
            ..Default::default()
        })
    };
    let both = || vec!["key-after", "key-before"];
    for (secrets, left, reason) in [
        (vec!["key-before"], proto::OutcomeCertainty::NotApplied, "FIRST"),
        (both(), proto::OutcomeCertainty::NotApplied, "SECOND"),
        (both(), proto::OutcomeCertainty::Partial, "FIRST"),
        (both(), proto::OutcomeCertainty::Unknown, "FIRST"),
    ] {
        let it = setting(Vec::new()).await;
        let mut core = Core::with(&it, secrets).await;
        let fake = it.fake.clone();
        tokio::spawn(async move {
            for reason in ["FIRST", "SECOND"] {
                fake.began.acquire().await.unwrap().forget();
                *fake.bare.lock() = Some(error(left, reason));
                fake.permits.add_permits(1);
            }
        });
        let (failure, checkpoint) = core.outcome(create_with("", Duration::from_mins(1))).await;
        let said = (failure.reason.as_str(), checkpoint);
        assert_eq!(said, (reason, Some(reason.to_lowercase())), "{left:?}");
    }
}
