//! A driver written by hand, frame by frame.

use std::collections::VecDeque;

use ostler_proto::v1alpha1::driver_service_client::DriverServiceClient;
use ostler_proto::v1alpha1::{
    CreateMachineResponse, DeleteMachineResponse, DeletionOutcome, DriverCapability, DriverState,
    GetMachineStatusResponse, GetSecretRequest, Heartbeat, HeldOperation, HeldState, Hello,
    ListMachinesResponse, MachineRecord, Operation, OperationAccepted, OperationCompleted,
    OperationKind, OperationResult, ProtocolError, Readiness, RegisterRequest, RegisterResponse,
    Resume, Welcome, operation_completed, operation_result, register_request, register_response,
};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use crate::core::{Core, PROVIDER, TOKEN, class_ref, target};

pub(crate) use register_request::Frame as Said;
pub(crate) use register_response::Frame as Heard;

/// An operation that no core sent.
const BARRIER: &str = "barrier";

/// The instance id number `n`.
pub(crate) fn instance(n: u8) -> String {
    format!("00000000-0000-4000-8000-0000000000{n:02x}")
}

pub(crate) fn hello(n: u8) -> Hello {
    Hello {
        provider: PROVIDER.to_owned(),
        driver_name: "by hand".to_owned(),
        instance_id: instance(n),
        instance_name: "pod-1".to_owned(),
        capabilities: vec![DriverCapability::ResultRetention.into()],
        operation_kinds: [
            OperationKind::CreateMachine,
            OperationKind::UpdateMachine,
            OperationKind::DeleteMachine,
            OperationKind::GetMachineStatus,
            OperationKind::ListMachines,
        ]
        .map(Into::into)
        .to_vec(),
        max_in_flight: 4,
        ..Hello::default()
    }
}

pub(crate) fn holding(n: u8, operations: Vec<HeldOperation>) -> Hello {
    let resume = Resume { session_id: "earlier".to_owned(), operations };
    Hello { resume: Some(resume), ..hello(n) }
}

pub(crate) fn held(id: &str, uid: &str, state: HeldState) -> HeldOperation {
    HeldOperation {
        operation_id: id.to_owned(),
        idempotency_key: format!("{uid}:x"),
        target: Some(target(uid)),
        state: state.into(),
        kind: OperationKind::CreateMachine.into(),
        machine_class: Some(class_ref("small", "7")),
    }
}

/// One Register stream.
pub(crate) struct Driver {
    pub(crate) client: DriverServiceClient<Channel>,
    pub(crate) session_id: String,
    said: mpsc::Sender<RegisterRequest>,
    heard: Streaming<RegisterResponse>,
    /// Acknowledged, and not asked for.
    acks: VecDeque<String>,
    /// The operations in its heartbeats.
    pub(crate) running: Vec<String>,
    /// Aborted, it takes the connection away, as the death of the process does.
    pub(crate) link: AbortHandle,
}

impl Driver {
    /// Opens a stream and says nothing.
    pub(crate) async fn open(core: &Core, token: &str) -> Result<Self, Status> {
        let (channel, link) = core.connect_through().await;
        Self::open_on(channel, link, token).await
    }

    /// Opens a stream on a connection.
    async fn open_on(channel: Channel, link: AbortHandle, token: &str) -> Result<Self, Status> {
        let mut client = DriverServiceClient::new(channel);
        let (said, frames) = mpsc::channel(1024);
        let request = authorized(ReceiverStream::new(frames), token);
        let heard = client.register(request).await?.into_inner();
        let (session_id, running) = (String::new(), Vec::new());
        Ok(Self { client, session_id, said, heard, acks: VecDeque::new(), running, link })
    }

    /// A ready driver, and its connection.
    pub(crate) async fn ready_on(core: &mut Core, n: u8) -> (Self, Channel) {
        let (channel, link) = core.connect_through().await;
        let mut driver = Self::open_on(channel.clone(), link, TOKEN).await.unwrap();
        driver.greet(hello(n)).await;
        driver.state(Readiness::Ready, 4).await;
        core.provider_ready().await;
        (driver, channel)
    }

    /// The status of a call to be refused.
    pub(crate) async fn call(channel: &Channel, token: &str) -> Status {
        let request =
            GetSecretRequest { r#ref: Some(class_ref("small", "")), ..GetSecretRequest::default() };
        let mut client = DriverServiceClient::new(channel.clone());
        client.get_secret(authorized(request, token)).await.unwrap_err()
    }

    /// Opens a stream and introduces itself.
    pub(crate) async fn dial(core: &Core, hello: Hello) -> (Self, Welcome) {
        let mut driver = Self::open(core, TOKEN).await.unwrap();
        let welcome = driver.greet(hello).await;
        (driver, welcome)
    }

    pub(crate) async fn greet(&mut self, hello: Hello) -> Welcome {
        let held = hello.resume.iter().flat_map(|resume| &resume.operations);
        self.running = held.map(|held| held.operation_id.clone()).collect();
        self.say(Said::Hello(hello.into())).await;
        let Heard::Welcome(welcome) = self.hear().await else { panic!("no welcome") };
        self.session_id.clone_from(&welcome.session_id);
        *welcome
    }

    /// A ready driver of instance `n`.
    pub(crate) async fn ready(core: &mut Core, n: u8) -> Self {
        Self::ready_with(core, n, 4).await
    }

    pub(crate) async fn ready_with(core: &mut Core, n: u8, credit: u32) -> Self {
        let (mut driver, _) = Self::dial(core, hello(n)).await;
        driver.state(Readiness::Ready, credit).await;
        core.provider_ready().await;
        driver
    }

    pub(crate) async fn state(&mut self, readiness: Readiness, credit: u32) {
        let state =
            DriverState { readiness: readiness.into(), max_in_flight: credit, ..<_>::default() };
        self.say(Said::State(state)).await;
    }

    pub(crate) async fn say(&mut self, frame: Said) {
        self.send(Some(frame)).await;
    }

    /// Without a frame: a frame unknown to the core.
    pub(crate) async fn send(&mut self, frame: Option<Said>) {
        // The stream may have ended, which is what the test wants to see.
        drop(self.said.send(RegisterRequest { frame }).await);
    }

    /// Ends its half of the stream: it has nothing more to say.
    pub(crate) fn leave(&mut self) {
        self.said = mpsc::channel(1).0;
    }

    /// The next item, whatever it is.
    pub(crate) async fn item(&mut self) -> Result<Option<RegisterResponse>, Status> {
        self.heard.message().await
    }

    /// The next frame but heartbeats, which are answered.
    pub(crate) async fn hear(&mut self) -> Heard {
        loop {
            let frame = self.item().await.unwrap().expect("stream ended").frame.unwrap();
            match frame {
                Heard::Heartbeat(heartbeat) => {
                    let running = self.running.clone();
                    self.say(Said::Heartbeat(Heartbeat { running, ..heartbeat })).await;
                }
                other => return other,
            }
        }
    }

    /// The next frame, which must be an operation; it is not accepted.
    pub(crate) async fn receive(&mut self) -> Operation {
        match self.hear().await {
            Heard::Operation(operation) => *operation,
            other => panic!("not an operation: {other:?}"),
        }
    }

    /// The next frame, which must be an operation; accepts it.
    pub(crate) async fn take(&mut self) -> Operation {
        let operation = self.receive().await;
        self.accept(&operation.operation_id).await;
        operation
    }

    pub(crate) async fn accept(&mut self, id: &str) {
        self.running.push(id.to_owned());
        self.say(Said::Accepted(OperationAccepted { operation_ids: vec![id.to_owned()] })).await;
    }

    /// Resolves once the core has handled every earlier frame, even without an answer: the core acknowledges an
    /// unexpected result in order.
    pub(crate) async fn handled(&mut self) {
        self.complete(BARRIER, created("barrier")).await;
        assert_eq!(self.acknowledged().await, BARRIER);
    }

    /// As [`Self::handled`], whatever is acknowledged before.
    pub(crate) async fn handled_past_acks(&mut self) {
        self.complete(BARRIER, created("barrier")).await;
        while self.acknowledged().await != BARRIER {}
    }

    /// The id of the result that is acknowledged next.
    pub(crate) async fn acknowledged(&mut self) -> String {
        loop {
            if let Some(id) = self.acks.pop_front() {
                return id;
            }
            match self.hear().await {
                Heard::ResultAck(ack) => self.acks.extend(ack.operation_ids),
                other => panic!("not an acknowledgement: {other:?}"),
            }
        }
    }

    /// The id of the operation that is cancelled next.
    pub(crate) async fn cancelled(&mut self) -> String {
        match self.hear().await {
            Heard::Cancel(cancel) => cancel.operation_id,
            other => panic!("not a cancel: {other:?}"),
        }
    }

    pub(crate) async fn complete(&mut self, id: &str, outcome: operation_completed::Outcome) {
        self.running.retain(|running| running != id);
        let operation_id = id.to_owned();
        let outcome = Some(outcome);
        let completed = OperationCompleted { operation_id, outcome, ..<_>::default() };
        self.say(Said::Completed(completed.into())).await;
    }

    /// Why the core closed the stream, and the status that it ended with.
    pub(crate) async fn closed(&mut self) -> (ProtocolError, Status) {
        let Heard::ProtocolError(error) = self.hear().await else { panic!("no protocol error") };
        (error, self.item().await.unwrap_err())
    }

    /// Asks for the secret of class `small`.
    pub(crate) async fn secret(&mut self, id: &str, revision: &str) -> Result<Vec<u8>, Status> {
        let request = GetSecretRequest {
            r#ref: Some(class_ref("small", revision)),
            session_id: self.session_id.clone(),
            operation_id: id.to_owned(),
        };
        let answer = self.client.get_secret(authorized(request, TOKEN)).await?;
        Ok(answer.into_inner().data["key"].clone())
    }
}

pub(crate) fn authorized<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

pub(crate) fn record(name: &str) -> MachineRecord {
    MachineRecord {
        provider_id: format!("fake:///{name}"),
        machine_name: name.to_owned(),
        ..MachineRecord::default()
    }
}

pub(crate) fn result(response: operation_result::Response) -> operation_completed::Outcome {
    operation_completed::Outcome::Result(OperationResult { response: Some(response) })
}

pub(crate) fn created(name: &str) -> operation_completed::Outcome {
    let machine = Some(record(name));
    result(operation_result::Response::CreateMachine(CreateMachineResponse {
        machine,
        ..Default::default()
    }))
}

pub(crate) fn deleted() -> operation_completed::Outcome {
    let outcome = DeletionOutcome::Deleted.into();
    let deleted = DeleteMachineResponse { outcome, ..DeleteMachineResponse::default() };
    result(operation_result::Response::DeleteMachine(deleted))
}

pub(crate) fn listed(names: &[&str]) -> operation_completed::Outcome {
    let machines = names.iter().map(|name| record(name)).collect();
    let list = ListMachinesResponse { machines, ..ListMachinesResponse::default() };
    result(operation_result::Response::ListMachines(list))
}

pub(crate) fn found(name: &str) -> operation_completed::Outcome {
    let machine = Some(record(name));
    result(operation_result::Response::GetMachineStatus(GetMachineStatusResponse { machine }))
}
