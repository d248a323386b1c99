//! The gRPC service that drivers dial in to.

mod health;
mod reads;
mod register;
pub(crate) mod scrub;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use ostler_proto::v1alpha1::driver_service_server::{DriverService, DriverServiceServer};
use ostler_proto::v1alpha1::{
    self, GetMachineClassRequest, GetMachineClassResponse, GetSecretRequest, GetSecretResponse,
    RegisterRequest,
};
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

pub(crate) use self::health::Health;
use crate::audit;
use crate::session::DOMAIN;
use crate::session::frames::FRAME_BYTES;
use crate::session::outbox::OutboxStream;
use crate::shell::Shell;
use crate::{AuthError, Pass, Peer, Presented, Principal};

/// Both ways; class and secret are larger than a frame only through labels.
const UNARY_BYTES: usize = 4 << 20;

/// The service, health, and reflection.
pub(crate) fn routes(shell: &Arc<Shell>, health: &Health) -> Routes {
    let frame = usize::try_from(FRAME_BYTES).unwrap_or(usize::MAX);
    let driver = DriverServiceServer::new(Service { shell: Arc::clone(shell) })
        .max_decoding_message_size(frame)
        .max_encoding_message_size(UNARY_BYTES);
    REFLECTION.clone().add_service(driver).add_service(health.service())
}

/// Read once a process: tests start many cores in one.
static REFLECTION: LazyLock<Routes> = LazyLock::new(|| reflection(v1alpha1::FILE_DESCRIPTOR_SET));

/// Reflection of `contract` and health, for grpcurl of every age.
pub(crate) fn reflection(contract: &'static [u8]) -> Routes {
    let described = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(contract)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // So that grpcurl can show the reason of a refusal.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    match (described().build_v1(), described().build_v1alpha()) {
        (Ok(v1), Ok(v1alpha)) => Routes::new(v1).add_service(v1alpha),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "no reflection: the contract has no readable description");
            Routes::default()
        }
    }
}

struct Service {
    shell: Arc<Shell>,
}

impl Service {
    /// The caller, with its address.
    async fn caller<T>(&self, request: &Request<T>) -> Result<(Principal, String), Status> {
        // Before anything is looked up for a driver that is to go elsewhere.
        self.shell.with(|hub, _| hub.leads()).map_err(|close| close.status())?;
        let peer = peer(request);
        let header = request.metadata().get("authorization");
        let token = header
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "));
        let presented = Presented { token, peer: &peer };
        let pass = request.extensions().get::<Pass>();
        let asking = pass.map(Pass::asking);
        let found = self.shell.tokens.authenticate(presented).await;
        drop(asking);
        match found {
            Ok(principal) => {
                pass.map_or(Ok(()), |pass| pass.known(&principal.name))?;
                Ok((principal, peer.address))
            }
            Err(error) => {
                self.shell.metrics.refused(error.word());
                tracing::warn!(peer = peer.address, %error, "caller refused");
                audit::refused("", &peer.address, error.word());
                Err(refusal(&error))
            }
        }
    }
}

/// The other end of the connection of a call.
fn peer<T>(request: &Request<T>) -> Peer {
    request.extensions().get::<Peer>().cloned().unwrap_or_else(|| Peer {
        address: request.remote_addr().map(|address| address.to_string()).unwrap_or_default(),
        ..Peer::default()
    })
}

fn refusal(error: &AuthError) -> Status {
    let message = error.to_string();
    match error {
        AuthError::Missing | AuthError::Invalid | AuthError::Refused(_) => {
            Status::unauthenticated(message)
        }
        AuthError::Unbound(_) => status(Code::PermissionDenied, "NOT_BOUND", message),
        AuthError::Unavailable(_) => Status::unavailable(message),
    }
}

#[tonic::async_trait]
impl DriverService for Service {
    type RegisterStream = OutboxStream;

    async fn register(
        &self,
        request: Request<Streaming<RegisterRequest>>,
    ) -> Result<Response<OutboxStream>, Status> {
        let (principal, peer) = self.caller(&request).await?;
        let frames = request.into_inner();
        let stream = register::open(&self.shell, principal, peer, frames)?;
        Ok(Response::new(stream))
    }

    async fn get_machine_class(
        &self,
        request: Request<GetMachineClassRequest>,
    ) -> Result<Response<GetMachineClassResponse>, Status> {
        let (principal, peer) = self.caller(&request).await?;
        let GetMachineClassRequest { r#ref, session_id: session } = request.into_inner();
        let wanted = named(r#ref)?;
        let read = reads::machine_class(&self.shell, &principal, wanted.clone(), &session);
        audit::read(&principal.name, &peer, "machineclasses", &wanted, outcome(&read));
        read.map(Response::new)
    }

    async fn get_secret(
        &self,
        request: Request<GetSecretRequest>,
    ) -> Result<Response<GetSecretResponse>, Status> {
        let (principal, peer) = self.caller(&request).await?;
        let request = request.into_inner();
        let wanted = named(request.r#ref.clone())?;
        let read = reads::secret(&self.shell, &principal, request).await;
        audit::read(&principal.name, &peer, "secrets-of-machineclasses", &wanted, outcome(&read));
        read.map(Response::new)
    }
}

/// The outcome of a read, for the audit log.
fn outcome<T>(read: &Result<T, Status>) -> &'static str {
    match read {
        Ok(_) => "ok",
        Err(status) if status.code() == Code::PermissionDenied => "denied",
        Err(_) => "failed",
    }
}

/// A reference with a name.
fn named(reference: Option<v1alpha1::ObjectRevision>) -> Result<v1alpha1::ObjectRevision, Status> {
    reference
        .filter(|reference| !reference.name.is_empty())
        .ok_or_else(|| Status::invalid_argument("ref must name an object"))
}

/// A status whose reason programs can read.
pub(crate) fn status(code: Code, reason: &str, message: impl Into<String>) -> Status {
    status_with(code, reason, message, HashMap::new())
}

fn status_with(
    code: Code,
    reason: &str,
    message: impl Into<String>,
    metadata: HashMap<String, String>,
) -> Status {
    let details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
    Status::with_error_details(code, message, details)
}
