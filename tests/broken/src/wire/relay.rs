//! Carries frames between the driver and the core.

use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use ostler_proto::v1alpha1 as proto;
use parking_lot::Mutex;
use proto::driver_service_client::DriverServiceClient;
use proto::driver_service_server::DriverService;
use proto::{RegisterRequest, RegisterResponse};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use super::frames::{Call, Memory, Step, Tap};
use crate::Breakage;

/// Above the limit of the contract, so that only the two sides enforce it.
pub(super) const MESSAGE_BYTES: usize = 4 * 1024 * 1024;
/// Frames between the relay and each side.
const FRAMES: usize = 16;
/// How often a driver that never notices hears of a core that is gone.
const PULSE: Duration = Duration::from_secs(1);
/// How often it dials in a row at most.
const HAMMERS: usize = 1000;

type ToDriver = mpsc::Sender<Result<RegisterResponse, Status>>;

/// Stands in for the core.
#[derive(Debug, Clone)]
pub(super) struct Relay {
    core: DriverServiceClient<Channel>,
    breakage: Breakage,
    memory: Arc<Mutex<Memory>>,
}

/// The header with the token, which every call shows.
type Token = Option<MetadataValue<Ascii>>;

fn token<T>(request: &Request<T>) -> Token {
    request.metadata().get("authorization").cloned()
}

fn shown<T>(message: T, token: &Token) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", token.clone());
    }
    request
}

impl Relay {
    pub(super) fn new(core: Channel, breakage: Breakage, memory: Arc<Mutex<Memory>>) -> Self {
        let core = DriverServiceClient::new(core)
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES);
        Self { core, breakage, memory }
    }

    /// Opens a session with the core. A driver that hammers does so until it is let in.
    async fn open(&self, hello: &RegisterRequest, token: &Token) -> Result<Upstream, Status> {
        let mut left = if self.breakage == Breakage::ReconnectBackoff { HAMMERS } else { 0 };
        loop {
            let answer = self.open_once(hello, token).await;
            match answer {
                Err(_) if left > 0 => left -= 1,
                answer => return answer,
            }
        }
    }

    async fn open_once(&self, hello: &RegisterRequest, token: &Token) -> Result<Upstream, Status> {
        let (to_core, frames) = mpsc::channel(FRAMES);
        let mut upstream = Tap::new(self.breakage, Arc::clone(&self.memory));
        for frame in upstream.outgoing(hello.clone()) {
            // The channel is new and holds more than a Hello is ever turned into.
            to_core.try_send(frame).ok();
        }
        let mut request = shown(ReceiverStream::new(frames), token);
        if self.breakage == Breakage::NoDeadline {
            request.set_timeout(Duration::from_hours(1));
        }
        let mut from_core = self.core.clone().register(request).await?.into_inner();
        let mut first = None;
        if self.breakage == Breakage::ReconnectBackoff {
            let frame = from_core.message().await?;
            let refused = |frame: &RegisterResponse| {
                matches!(frame.frame, Some(proto::register_response::Frame::ProtocolError(_)))
            };
            if frame.as_ref().is_none_or(refused) {
                return Err(Status::unavailable("the core refused"));
            }
            first = frame;
        }
        Ok(Upstream { tap: upstream, to_core, from_core, first, token: token.clone() })
    }
}

/// A session with the core.
struct Upstream {
    tap: Tap,
    to_core: mpsc::Sender<RegisterRequest>,
    from_core: Streaming<RegisterResponse>,
    /// A frame that was read already.
    first: Option<RegisterResponse>,
    token: Token,
}

#[tonic::async_trait]
impl DriverService for Relay {
    type RegisterStream = ReceiverStream<Result<RegisterResponse, Status>>;

    async fn register(
        &self,
        request: Request<Streaming<RegisterRequest>>,
    ) -> Result<Response<Self::RegisterStream>, Status> {
        let token = token(&request);
        let mut from_driver = request.into_inner();
        let ended = || Status::cancelled("the driver said nothing");
        let hello = from_driver.message().await?.ok_or_else(ended)?;
        let upstream = self.open(&hello, &token).await?;
        let (to_driver, frames) = mpsc::channel(FRAMES);
        tokio::spawn(pump(self.clone(), upstream, from_driver, to_driver));
        Ok(Response::new(ReceiverStream::new(frames)))
    }

    async fn get_machine_class(
        &self,
        request: Request<proto::GetMachineClassRequest>,
    ) -> Result<Response<proto::GetMachineClassResponse>, Status> {
        let token = token(&request);
        let answer = self.core.clone().get_machine_class(shown(request.into_inner(), &token)).await;
        if let Ok(class) = &answer {
            self.memory.lock().secret.clone_from(&class.get_ref().secret);
            if self.breakage == Breakage::SecretScope {
                self.call(Call::SecretOfNoOperation, &token).await;
            }
        }
        answer
    }

    async fn get_secret(
        &self,
        request: Request<proto::GetSecretRequest>,
    ) -> Result<Response<proto::GetSecretResponse>, Status> {
        let keeps = self.breakage == Breakage::SecretRefresh;
        if keeps && let Some(kept) = self.memory.lock().kept.clone() {
            return Ok(Response::new(kept));
        }
        let token = token(&request);
        let answer = self.core.clone().get_secret(shown(request.into_inner(), &token)).await?;
        if keeps {
            self.memory.lock().kept = Some(answer.get_ref().clone());
        }
        Ok(answer)
    }
}

impl Relay {
    /// Makes a call that the driver did not order. The answer is ignored.
    async fn call(&self, call: Call, token: &Token) {
        let mut core = self.core.clone();
        match call {
            Call::Class(reference) => {
                let message =
                    proto::GetMachineClassRequest { r#ref: Some(reference), ..Default::default() };
                core.get_machine_class(shown(message, token)).await.ok();
            }
            Call::SecretOfNoOperation => {
                let message = self.memory.lock().secret_of_no_operation();
                core.get_secret(shown(message, token)).await.ok();
            }
        }
    }

    async fn take(&self, steps: Vec<Step>, ends: &Ends, token: &Token) -> Result<(), Over> {
        for step in steps {
            match step {
                Step::ToDriver(frame) => ends.to_driver.send(Ok(frame)).await.map_err(|_| Over)?,
                Step::ToCore(frame) => ends.to_core.send(frame).await.map_err(|_| Over)?,
                Step::Call(call) => self.call(call, token).await,
                Step::Close => return Err(Over),
            }
        }
        Ok(())
    }
}

/// The session has ended.
struct Over;

struct Ends {
    to_core: mpsc::Sender<RegisterRequest>,
    to_driver: ToDriver,
}

/// Carries frames until one side ends. A driver that never notices does not hear of the core's end.
async fn pump(
    relay: Relay,
    upstream: Upstream,
    mut from_driver: Streaming<RegisterRequest>,
    to_driver: ToDriver,
) {
    let Upstream { mut tap, to_core, mut from_core, mut first, token } = upstream;
    let ends = Ends { to_core, to_driver };
    let deaf = relay.breakage == Breakage::HalfOpen;
    let mut core_is_gone = false;
    loop {
        let due = OptionFuture::from(tap.due().map(sleep_until));
        let steps = tokio::select! {
            frame = from_driver.message() => match frame {
                Ok(Some(frame)) => tap.outgoing(frame).into_iter().map(Step::ToCore).collect(),
                Ok(None) | Err(_) => return,
            },
            frame = read(&mut first, &mut from_core), if !core_is_gone => match frame {
                Ok(Some(frame)) => tap.incoming(frame),
                Ok(None) | Err(_) if deaf => { core_is_gone = true; Vec::new() }
                Ok(None) => return,
                Err(status) => { ends.to_driver.send(Err(status)).await.ok(); return; }
            },
            Some(()) = due => tap.overdue(Instant::now()).into_iter().map(Step::ToCore).collect(),
            () = sleep(PULSE), if deaf => vec![Step::ToDriver(Tap::pulse())],
        };
        match relay.take(steps, &ends, &token).await {
            Ok(()) => {}
            // Further frames of the driver are dropped.
            Err(Over) if deaf && !ends.to_driver.is_closed() => core_is_gone = true,
            Err(Over) => return,
        }
    }
}

async fn read(
    first: &mut Option<RegisterResponse>,
    from_core: &mut Streaming<RegisterResponse>,
) -> Result<Option<RegisterResponse>, Status> {
    match first.take() {
        Some(frame) => Ok(Some(frame)),
        None => from_core.message().await,
    }
}
