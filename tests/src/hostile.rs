//! A driver that means harm: it speaks the protocol, has a good token, and says what is not true.

use std::time::Duration;

use ostler_api::driver::OperationKind as Kind;
use ostler_api::machine::Machine;
use ostler_proto::v1alpha1::driver_service_client::DriverServiceClient;
use ostler_proto::v1alpha1::{
    CreateMachineResponse, DeleteMachineResponse, DeletionOutcome, DriverCapability,
    GetMachineClassRequest, GetSecretRequest, Heartbeat, HeldOperation, HeldState, Hello,
    MachineRecord, ObjectRevision, OperationCompleted, OperationResult, RegisterRequest,
    RegisterResponse, Resume, Target, UpdateMachineResponse, Welcome, operation_completed,
    operation_result, register_request, register_response,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Streaming};

/// Frames that wait to be sent; more than it has to say.
const FRAMES: usize = 256;

/// One session of the hostile driver.
#[derive(Debug)]
pub struct Hostile {
    /// The core's answer to the Hello.
    pub welcome: Welcome,
    token: String,
    client: DriverServiceClient<Channel>,
    said: mpsc::Sender<RegisterRequest>,
    heard: Streaming<RegisterResponse>,
}

impl Hostile {
    /// Dials in and says Hello. `None`: the core that was met does not lead, or does not want it.
    pub async fn greet(channel: Channel, token: &str, hello: Hello) -> Option<Self> {
        let mut client = DriverServiceClient::new(channel);
        let (said, frames) = mpsc::channel(FRAMES);
        let request = authorized(ReceiverStream::new(frames), token);
        let heard = client.register(request).await.ok()?.into_inner();
        let (token, welcome) = (token.to_owned(), Welcome::default());
        let mut hostile = Self { welcome, token, client, said, heard };
        hostile.say(register_request::Frame::Hello(Box::new(hello))).await;
        let register_response::Frame::Welcome(welcome) = hostile.hear().await? else { return None };
        hostile.welcome = *welcome;
        Some(hostile)
    }

    /// Whether the driver gets the class.
    pub async fn gets_class(&mut self, class: ObjectRevision) -> bool {
        let request = GetMachineClassRequest { r#ref: Some(class), ..Default::default() };
        self.client.get_machine_class(authorized(request, &self.token)).await.is_ok()
    }

    /// Whether the driver gets the secret of the class for the operation.
    pub async fn gets_secret(&mut self, class: ObjectRevision, operation: &str) -> bool {
        let request = GetSecretRequest {
            r#ref: Some(class),
            session_id: self.welcome.session_id.clone(),
            operation_id: operation.to_owned(),
        };
        self.client.get_secret(authorized(request, &self.token)).await.is_ok()
    }

    /// Reports a claimed operation as done.
    pub async fn complete(&mut self, claim: &HeldOperation) {
        let completed = OperationCompleted {
            operation_id: claim.operation_id.clone(),
            outcome: Some(outcome(claim)),
            ..OperationCompleted::default()
        };
        self.say(register_request::Frame::Completed(Box::new(completed))).await;
    }

    /// Stays for so long and answers heartbeats, and is never ready for anything.
    pub async fn stay(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while let Ok(Some(frame)) = timeout_at(until, self.hear()).await {
            if let register_response::Frame::Heartbeat(_) = frame {
                self.say(register_request::Frame::Heartbeat(Heartbeat::default())).await;
            }
        }
    }

    async fn say(&mut self, frame: register_request::Frame) {
        let request = RegisterRequest { frame: Some(frame) };
        // `hear` notices the end of the stream.
        self.said.send(request).await.ok();
    }

    async fn hear(&mut self) -> Option<register_response::Frame> {
        self.heard.message().await.ok()??.frame
    }
}

/// A Hello of a process that was there before and holds these.
pub fn hello(provider: &str, instance_id: String, operations: Vec<HeldOperation>) -> Hello {
    Hello {
        provider: provider.to_owned(),
        driver_name: "hostile".to_owned(),
        instance_id,
        instance_name: "hostile".to_owned(),
        capabilities: vec![DriverCapability::ResultRetention.into()],
        operation_kinds: [
            Kind::CreateMachine,
            Kind::UpdateMachine,
            Kind::DeleteMachine,
            Kind::GetMachineStatus,
            Kind::ListMachines,
        ]
        .map(Kind::number)
        .to_vec(),
        max_in_flight: 4,
        resume: Some(Resume { operations, ..Resume::default() }),
        ..Hello::default()
    }
}

/// The claim to hold an operation on a Machine.
pub fn claim(
    machine: &Machine,
    id: &str,
    (kind, key): (Kind, &str),
    state: HeldState,
) -> HeldOperation {
    let namespace = machine.metadata.namespace.clone().unwrap_or_default();
    HeldOperation {
        operation_id: id.to_owned(),
        idempotency_key: key.to_owned(),
        target: Some(Target {
            kind: "Machine".to_owned(),
            namespace: namespace.clone(),
            name: machine.name().to_owned(),
            uid: machine.uid().to_owned(),
        }),
        state: state.into(),
        kind: kind.number(),
        machine_class: Some(ObjectRevision {
            uid: String::new(),
            namespace,
            name: machine.spec.class.name.clone(),
            revision: String::new(),
        }),
    }
}

/// The outcome that would profit a liar most.
fn outcome(claim: &HeldOperation) -> operation_completed::Outcome {
    let kind = Kind::from_number(claim.kind);
    let response = if kind == Some(Kind::DeleteMachine) {
        operation_result::Response::DeleteMachine(DeleteMachineResponse {
            outcome: DeletionOutcome::Deleted.into(),
            ..<_>::default()
        })
    } else if kind == Some(Kind::UpdateMachine) {
        operation_result::Response::UpdateMachine(UpdateMachineResponse::default())
    } else {
        let machine = Some(MachineRecord {
            provider_id: format!("hostile:///{}", claim.operation_id),
            node_name: "attacker-node".to_owned(),
            ..MachineRecord::default()
        });
        operation_result::Response::CreateMachine(CreateMachineResponse {
            machine,
            ..Default::default()
        })
    };
    operation_completed::Outcome::Result(OperationResult { response: Some(response) })
}

fn authorized<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    let token = format!("Bearer {token}").parse().expect("tokens are text");
    request.metadata_mut().insert("authorization", token);
    request
}
