//! The gRPC service that the driver dials in to.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use ostler_proto::v1alpha1 as proto;
use proto::driver_service_server::{DriverService, DriverServiceServer, SERVICE_NAME};
use proto::register_request::Frame;
use proto::{
    GetMachineClassRequest, GetMachineClassResponse, GetSecretRequest, GetSecretResponse,
    ObjectRevision, RegisterRequest, RegisterResponse,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};
use tower::Service;

use super::State;
use super::codec::{FrameCodec, Inbound};
use super::library::{CallKind, Missing};
use super::session::{OUTBOX, Session};
use crate::observation::Rule;

const REGISTER: &str = "/ostler.driver.v1alpha1.DriverService/Register";
/// Far above what is allowed, so that a frame that is too large can be seen and named.
const DECODE_BYTES: usize = 16 << 20;

/// The stream as bytes, the other calls as generated.
#[derive(Clone)]
pub(super) struct SuiteService {
    state: Arc<State>,
    unary: DriverServiceServer<Unary>,
}

impl SuiteService {
    pub(super) fn new(state: &Arc<State>) -> Self {
        let unary = DriverServiceServer::new(Unary { state: Arc::clone(state) });
        Self { state: Arc::clone(state), unary }
    }
}

impl NamedService for SuiteService {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for SuiteService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != REGISTER {
            return Service::call(&mut self.unary, request);
        }
        let register = Register { state: Arc::clone(&self.state) };
        Box::pin(async move {
            let mut grpc = Grpc::new(FrameCodec).max_decoding_message_size(DECODE_BYTES);
            Ok(grpc.streaming(register, request).await)
        })
    }
}

struct Register {
    state: Arc<State>,
}

impl StreamingService<Inbound> for Register {
    type Response = Vec<u8>;
    type ResponseStream = ReceiverStream<Result<Vec<u8>, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<Inbound>>) -> Self::Future {
        let state = Arc::clone(&self.state);
        Box::pin(async move {
            state.authenticate(&request)?;
            if let Some(deadline) = request.metadata().get("grpc-timeout") {
                state.observe(Rule::NoDeadline, format!("Register with grpc-timeout {deadline:?}"));
            }
            let (outbox, frames) = mpsc::channel(OUTBOX);
            tokio::spawn(async move {
                if let Err(status) = serve(&state, request.into_inner(), &outbox).await {
                    // A driver that reads nothing need not be told.
                    drop(outbox.try_send(Err(status)));
                }
            });
            Ok(Response::new(ReceiverStream::new(frames)))
        })
    }
}

/// Reads a stream to the end.
async fn serve(
    state: &Arc<State>,
    mut frames: Streaming<Inbound>,
    outbox: &super::session::Outbox,
) -> Result<(), Status> {
    let first = tokio::time::timeout(state.hello_limit, frames.message()).await;
    let Ok(first) = first else {
        state.observe(Rule::HelloFirst, "a stream was opened and no Hello came on it");
        return Err(Status::deadline_exceeded("HELLO_TIMEOUT"));
    };
    let Some(first) = first? else { return Ok(()) };
    let Some(Frame::Hello(hello)) = first.frame.frame.clone() else {
        let came = format!("the first frame of a stream was {}", name(first.frame.frame.as_ref()));
        state.observe(Rule::HelloFirst, came);
        return Err(Status::failed_precondition("HELLO_FIRST"));
    };
    let session = Arc::new(Session::new(*hello, outbox.clone()));
    session.log.push(first);
    if state.arrivals.try_send(Arc::clone(&session)).is_err() {
        return Err(Status::resource_exhausted("TOO_MANY_SESSIONS"));
    }
    loop {
        match frames.message().await {
            Ok(Some(inbound)) => {
                state.received(&session, &inbound);
                if !session.log.push(inbound) {
                    session.close(Some(Status::resource_exhausted("FLOOD")));
                    return Ok(());
                }
            }
            Ok(None) => {
                session.log.end("the driver ended the stream");
                session.close(None);
                return Ok(());
            }
            Err(status) => {
                session.log.end(format!("the stream broke: {}", status.message()));
                session.close(None);
                return Ok(());
            }
        }
    }
}

/// The name of a frame, for people.
pub(crate) fn name(frame: Option<&Frame>) -> &'static str {
    match frame {
        None => "a frame without an arm",
        Some(Frame::Hello(_)) => "Hello",
        Some(Frame::Accepted(_)) => "OperationAccepted",
        Some(Frame::Progress(_)) => "OperationProgress",
        Some(Frame::Page(_)) => "OperationPage",
        Some(Frame::Completed(_)) => "OperationCompleted",
        Some(Frame::State(_)) => "DriverState",
        Some(Frame::Heartbeat(_)) => "Heartbeat",
        Some(Frame::Event(_)) => "DriverEvent",
    }
}

#[derive(Debug)]
struct Unary {
    state: Arc<State>,
}

#[tonic::async_trait]
impl DriverService for Unary {
    type RegisterStream = tokio_stream::Empty<Result<RegisterResponse, Status>>;

    async fn register(
        &self,
        _: Request<Streaming<RegisterRequest>>,
    ) -> Result<Response<Self::RegisterStream>, Status> {
        Err(Status::unimplemented("Register is served as bytes"))
    }

    async fn get_machine_class(
        &self,
        request: Request<GetMachineClassRequest>,
    ) -> Result<Response<GetMachineClassResponse>, Status> {
        self.state.authenticate(&request)?;
        let wanted = named(request.into_inner().r#ref)?;
        let provider = self.state.provider();
        let mut library = self.state.library.lock();
        library.note(CallKind::Class, wanted.clone());
        let found = library.class(&wanted, &provider);
        found.map(Response::new).map_err(|missing| match missing {
            Missing::Name => status(Code::NotFound, "CLASS_NOT_FOUND"),
            Missing::Revision => status(Code::NotFound, "REVISION_GONE"),
        })
    }

    async fn get_secret(
        &self,
        request: Request<GetSecretRequest>,
    ) -> Result<Response<GetSecretResponse>, Status> {
        self.state.authenticate(&request)?;
        let GetSecretRequest { r#ref, session_id, operation_id } = request.into_inner();
        let wanted = named(r#ref)?;
        let kind = CallKind::Secret { operation_id: operation_id.clone() };
        self.state.library.lock().note(kind, wanted.clone());
        self.state.may_read(&wanted, &session_id, &operation_id)?;
        let found = self.state.library.lock().secret(&wanted);
        found.map(Response::new).map_err(|missing| match missing {
            Missing::Name => {
                let came = format!("GetSecret for {:?}, whose class names no secret", wanted.name);
                self.state.observe(Rule::SecretScope, came);
                status(Code::PermissionDenied, "SECRET_DENIED")
            }
            Missing::Revision => status(Code::NotFound, "REVISION_GONE"),
        })
    }
}

fn named(reference: Option<ObjectRevision>) -> Result<ObjectRevision, Status> {
    reference
        .filter(|reference| !reference.name.is_empty())
        .ok_or_else(|| Status::invalid_argument("ref must name an object"))
}

/// A status whose reason programs can read.
pub(super) fn status(code: Code, reason: &str) -> Status {
    let details =
        ErrorDetails::with_error_info(reason, "ostler.dev", std::collections::HashMap::new());
    Status::with_error_details(code, reason, details)
}
