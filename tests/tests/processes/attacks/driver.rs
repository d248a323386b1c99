//! A driver that lies.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ostler_proto::v1alpha1::driver_service_client::DriverServiceClient;
use ostler_proto::v1alpha1::operation_completed::Outcome;
use ostler_proto::v1alpha1::register_request::Frame;
use ostler_proto::v1alpha1::register_response::Frame as Answer;
use ostler_proto::v1alpha1::{
    DriverState, GetSecretRequest, HeldOperation, HeldState, Hello, ObjectRevision, Operation,
    OperationAccepted, OperationCompleted, OperationKind, Readiness, RegisterRequest,
    RegisterResponse, Resume, Target, Verdict, Welcome,
};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Streaming};

use crate::attacks::up::{Options, Up};

/// The provider of the hostile driver.
pub(crate) const HOSTILE: &str = "a.example.com";
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts `up` with places for drivers, by name and provider, that the test itself dials in for. Their processes do nothing.
pub(crate) async fn up_for(directory: &Path, drivers: &[(&str, &str)]) -> Up {
    let mut flags = Vec::new();
    for (name, provider) in drivers {
        let path = directory.join(name);
        // The program ends with its input, whose other end the server has.
        std::fs::write(&path, "#!/bin/sh\nexec cat\n").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        flags.extend(["--driver".to_owned(), format!("{provider}={}", path.display())]);
    }
    // It says when it has waited for the drivers for a while.
    let until = Some("waiting for driver");
    Up::start(Options { flags, until, ..Options::default() }).await
}

pub(crate) fn token_file(up: &Up, provider: &str) -> PathBuf {
    up.data().join("drivers").join(provider).join("token")
}

/// A session, after Hello.
pub(crate) struct Session {
    client: DriverServiceClient<Channel>,
    token: String,
    frames: mpsc::Sender<RegisterRequest>,
    answers: Streaming<RegisterResponse>,
    pub(crate) welcome: Welcome,
}

/// An operation that no core ever sent.
pub(crate) fn held(id: &str, kind: OperationKind, uid: &str, name: &str) -> HeldOperation {
    let letters = [(OperationKind::CreateMachine, "c"), (OperationKind::DeleteMachine, "d")];
    let letter = letters.iter().find(|(of, _)| *of == kind).map_or("u", |(_, letter)| letter);
    HeldOperation {
        operation_id: id.to_owned(),
        idempotency_key: format!("{uid}:{letter}"),
        target: Some(Target {
            kind: "Machine".to_owned(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        }),
        state: HeldState::Running.into(),
        kind: kind.into(),
        machine_class: None,
    }
}

impl Session {
    /// Dials in with the token of the driver of a provider, and says that it holds these.
    pub(crate) async fn begin(up: &Up, provider: &str, held: Vec<HeldOperation>) -> Self {
        let endpoint = format!("http://{}", up.drivers().await);
        let channel = Channel::from_shared(endpoint).unwrap().connect().await.unwrap();
        let mut client = DriverServiceClient::new(channel);
        let token = std::fs::read_to_string(token_file(up, provider)).unwrap();
        let (frames, receiver) = mpsc::channel(16);
        let hello = Hello {
            provider: provider.to_owned(),
            driver_name: "hostile".to_owned(),
            instance_id: format!("00000000-0000-4000-8000-{:012}", next()),
            capabilities: vec![1, 2, 3, 4, 5, 8],
            operation_kinds: vec![20, 21, 22, 23, 24, 25],
            max_in_flight: 10,
            resume: (!held.is_empty())
                .then(|| Resume { session_id: "before".to_owned(), operations: held }),
            ..Hello::default()
        };
        let first = RegisterRequest { frame: Some(Frame::Hello(Box::new(hello))) };
        frames.send(first).await.unwrap();
        let call = authorized(&token, ReceiverStream::new(receiver));
        let mut answers = client.register(call).await.unwrap().into_inner();
        let answer = timeout(PATIENCE, answers.message()).await.unwrap().unwrap().unwrap();
        let Some(Answer::Welcome(welcome)) = answer.frame else { panic!("{answer:?}") };
        let mut session = Self { client, token, frames, answers, welcome: *welcome };
        let ready = DriverState {
            readiness: Readiness::Ready.into(),
            max_in_flight: 10,
            ..DriverState::default()
        };
        session.send(Frame::State(ready)).await;
        session
    }

    pub(crate) async fn send(&mut self, frame: Frame) {
        let frame = RegisterRequest { frame: Some(frame) };
        self.frames.send(frame).await.unwrap();
    }

    /// Says this again and again, and answers heartbeats, for so long; how often it was said.
    pub(crate) async fn flood(&mut self, time: Duration, mut next: impl FnMut() -> Frame) -> usize {
        let (frames, mut sent) = (self.frames.clone(), 0);
        let saying = async {
            while frames.send(RegisterRequest { frame: Some(next()) }).await.is_ok() {
                sent += 1;
            }
        };
        let answering = async {
            loop {
                // None of them is done: a hostile driver need not.
                let _operation = self.operation().await;
            }
        };
        let over = timeout(time, async { tokio::join!(saying, answering) });
        assert!(over.await.is_err(), "the core goes on listening");
        sent
    }

    /// The core's verdict on a held operation.
    pub(crate) fn verdict(&self, operation: &str) -> Verdict {
        let verdicts = &self.welcome.verdicts;
        let verdict = verdicts.iter().find(|verdict| verdict.operation_id == operation);
        // One without a verdict is kept, by the contract.
        verdict.map_or(Verdict::Keep, ostler_proto::v1alpha1::HeldVerdict::verdict)
    }

    /// Asks for the secret of a class, as if for an operation.
    pub(crate) async fn secret(
        &mut self,
        name: &str,
        operation: &str,
    ) -> Result<Vec<String>, Code> {
        let revision = ObjectRevision {
            uid: String::new(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
            revision: String::new(),
        };
        let request = GetSecretRequest {
            r#ref: Some(revision),
            session_id: self.welcome.session_id.clone(),
            operation_id: operation.to_owned(),
        };
        let answer = self.client.get_secret(authorized(&self.token, request)).await;
        answer
            .map(|answer| answer.into_inner().data.into_keys().collect())
            .map_err(|status| status.code())
    }

    pub(crate) async fn complete(&mut self, operation: &str, outcome: Outcome) {
        let completed = OperationCompleted {
            operation_id: operation.to_owned(),
            checkpoint: String::new(),
            outcome: Some(outcome),
        };
        self.send(Frame::Completed(Box::new(completed))).await;
    }

    /// Answers heartbeats until there is an operation; accepts it.
    pub(crate) async fn operation(&mut self) -> Operation {
        loop {
            let answer =
                timeout(PATIENCE, self.answers.message()).await.expect("an operation comes");
            match answer.unwrap().expect("the session goes on").frame {
                Some(Answer::Operation(operation)) => {
                    let operation_id = operation.operation_id.clone();
                    self.send(Frame::Accepted(OperationAccepted {
                        operation_ids: vec![operation_id],
                    }))
                    .await;
                    return *operation;
                }
                Some(Answer::Heartbeat(heartbeat)) => self.send(Frame::Heartbeat(heartbeat)).await,
                _ => {}
            }
        }
    }
}

fn authorized<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let bearer: MetadataValue<_> = format!("Bearer {}", token.trim()).parse().unwrap();
    request.metadata_mut().insert("authorization", bearer);
    request
}

/// Another number each time.
fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
