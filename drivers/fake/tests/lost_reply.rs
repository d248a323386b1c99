//! A reply that is lost with its session, against a core that is played frame by frame.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Mutex;

use hyper_util::rt::TokioIo;
use ostler_driver_fake::FakeDriver;
use ostler_driver_fake::cloud::{Clock, Cloud};
use ostler_driver_sdk::{Connection, Connector, Cutter, Options, run_with};
use ostler_proto::v1alpha1 as proto;
use proto::driver_service_server::{DriverService, DriverServiceServer};
use proto::operation::Request as Asked;
use proto::operation_completed::Outcome;
use proto::register_request::Frame as Sent;
use proto::register_response::Frame as Received;
use proto::{RegisterRequest, RegisterResponse};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

const SPEC: &str = r#"{"region": "eu-1", "image": "linux",
    "faults": [{"operation": "CreateMachine", "call": 1, "lostReply": true}]}"#;

type Session = (Streaming<RegisterRequest>, mpsc::Sender<Result<RegisterResponse, Status>>);

struct Core {
    sessions: mpsc::Sender<Session>,
}

#[tonic::async_trait]
impl DriverService for Core {
    type RegisterStream = ReceiverStream<Result<RegisterResponse, Status>>;

    async fn register(
        &self,
        request: Request<Streaming<RegisterRequest>>,
    ) -> Result<Response<Self::RegisterStream>, Status> {
        let (outbound, frames) = mpsc::channel(8);
        self.sessions.send((request.into_inner(), outbound)).await.unwrap();
        Ok(Response::new(ReceiverStream::new(frames)))
    }

    async fn get_machine_class(
        &self,
        request: Request<proto::GetMachineClassRequest>,
    ) -> Result<Response<proto::GetMachineClassResponse>, Status> {
        Ok(Response::new(proto::GetMachineClassResponse {
            r#ref: request.into_inner().r#ref,
            provider_spec_json: SPEC.to_owned(),
            ..Default::default()
        }))
    }

    async fn get_secret(
        &self,
        _: Request<proto::GetSecretRequest>,
    ) -> Result<Response<proto::GetSecretResponse>, Status> {
        Err(Status::permission_denied("there is none"))
    }
}

fn connector(pipes: mpsc::Sender<Result<DuplexStream, std::io::Error>>) -> Connector {
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
            Ok(Connection::new(endpoint.connect_with_connector(pipe).await.unwrap()))
        }
    })
}

async fn receive(session: &mut Session) -> Option<Sent> {
    session.0.message().await.ok().flatten().map(|request| request.frame.unwrap())
}

async fn send(session: &Session, frame: Received) {
    let frame = RegisterResponse { frame: Some(frame) };
    session.1.send(Ok(frame)).await.unwrap();
}

async fn welcome(session: &mut Session) -> proto::Hello {
    let Some(Sent::Hello(hello)) = receive(session).await else { panic!("no Hello") };
    let welcome = proto::Welcome {
        session_id: "session".to_owned(),
        role: proto::RoleKind::Active.into(),
        fencing_term: 1,
        ..Default::default()
    };
    send(session, Received::Welcome(Box::new(welcome))).await;
    *hello
}

fn create() -> proto::Operation {
    let reference = proto::ObjectRevision {
        uid: String::new(),
        namespace: "default".to_owned(),
        name: "class".to_owned(),
        revision: "1".to_owned(),
    };
    proto::Operation {
        operation_id: "op".to_owned(),
        target: Some(proto::Target { uid: "uid".to_owned(), ..Default::default() }),
        machine_class: Some(reference),
        cluster_id: "cluster".to_owned(),
        fencing_term: 1,
        request: Some(Asked::CreateMachine(proto::CreateMachineRequest::default())),
        ..Default::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_takes_the_session_with_it_and_comes_with_the_next() {
    let (sessions, mut registered) = mpsc::channel(4);
    let (pipes, incoming) = mpsc::channel(4);
    let service = DriverServiceServer::new(Core { sessions });
    tokio::spawn(
        Server::builder().add_service(service).serve_with_incoming(ReceiverStream::new(incoming)),
    );
    let cutter = Cutter::default();
    let cloud = Cloud::in_memory(Clock::system());
    let driver = FakeDriver::new(cloud.clone()).cutter(cutter.clone());
    tokio::spawn(run_with(driver, Options::new(connector(pipes)).cutter(cutter)));

    let mut first: Session = registered.recv().await.unwrap();
    assert!(welcome(&mut first).await.resume.is_none());
    send(&first, Received::Operation(Box::new(create()))).await;
    while let Some(frame) = receive(&mut first).await {
        assert!(!matches!(frame, Sent::Completed(_)), "the reply was not lost");
    }
    assert_eq!(cloud.instances().unwrap().len(), 1);

    let mut second: Session = registered.recv().await.unwrap();
    let held = welcome(&mut second).await.resume.unwrap().operations;
    assert_eq!(held.iter().map(|held| held.operation_id.as_str()).collect::<Vec<_>>(), ["op"]);
    let Some(Sent::Completed(completed)) = receive(&mut second).await else { panic!("no result") };
    assert!(matches!(completed.outcome, Some(Outcome::Result(_))), "{completed:?}");
}
