//! Looking into the sessions, and doing one operation by hand: the service of the admin listener.

mod invoke;
mod orphans;
mod request;
mod targets;

use std::fmt;
use std::sync::{Arc, LazyLock};

use ostler_proto::v1alpha1::driver_debug_service_server::{
    DriverDebugService, DriverDebugServiceServer,
};
use ostler_proto::v1alpha1::{
    ADMIN_FILE_DESCRIPTOR_SET, AcceptOrphansRequest, AcceptOrphansResponse, CloseSessionRequest,
    CloseSessionResponse, CoreState, DrainSessionRequest, DrainSessionResponse, InvokeRequest,
    InvokeResponse, ListOperationsRequest, ListOperationsResponse, ListOrphansRequest,
    ListOrphansResponse, ListSessionsRequest, ListSessionsResponse, SessionSelector,
    TailFramesRequest,
};
use tokio::sync::watch;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

pub use self::orphans::{
    OrphanDesk, OrphanFate, OrphanReport, Refused, ReportedHold, ReportedOrphan,
};
pub use self::targets::{KnownTarget, Targets};
use crate::Sessions;
use crate::audit;
use crate::hub::Selected;
use crate::service::reflection;
use crate::session::Close;
use crate::tail;

/// Operations that are shown, unless the request says how many.
const SHOWN: usize = 1000;
/// A list of instances may be as long as the core holds; see [`crate::Limits::list_bytes`].
const ANSWER_BYTES: usize = 80 << 20;
/// Longest reason for a drain or a close, in bytes.
const REASON_BYTES: usize = 256;

/// The caller, for the log. Put it into the extensions of the request.
#[derive(Debug, Clone)]
pub struct Caller(pub String);

/// The debug service's needs besides the sessions.
#[derive(Clone)]
pub struct AdminOptions {
    /// Machines by name.
    pub targets: Arc<dyn Targets>,
    /// The known orphans.
    pub orphans: Arc<dyn OrphanDesk>,
    /// Whether this core leads.
    pub leading: watch::Receiver<bool>,
}

impl fmt::Debug for AdminOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminOptions").finish_non_exhaustive()
    }
}

/// Read once a process: tests start many cores in one.
static REFLECTION: LazyLock<Routes> = LazyLock::new(|| reflection(ADMIN_FILE_DESCRIPTOR_SET));

impl Sessions {
    /// The gRPC services for people: DriverDebugService, health, reflection v1 and v1alpha. The
    /// server must authorize callers first.
    pub fn admin_service(&self, options: AdminOptions) -> Routes {
        let AdminOptions { targets, orphans, leading } = options;
        let debug = Debug { sessions: self.clone(), targets, orphans, leading };
        let service = DriverDebugServiceServer::new(debug).max_encoding_message_size(ANSWER_BYTES);
        REFLECTION.clone().add_service(service).add_service(self.health.service())
    }

    /// Ends what [`Self::admin_service`] would keep open for ever.
    pub fn end_admin(&self) {
        self.shell.tail.end();
    }
}

/// The service.
struct Debug {
    sessions: Sessions,
    targets: Arc<dyn Targets>,
    orphans: Arc<dyn OrphanDesk>,
    leading: watch::Receiver<bool>,
}

impl Debug {
    fn core(&self) -> CoreState {
        let shell = &self.sessions.shell;
        let term = shell.with(|hub, _| hub.term());
        CoreState {
            instance: shell.options.core_instance.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            leading: *self.leading.borrow(),
            fencing_term: term.0.into(),
            cluster_id: shell.options.cluster_id.clone(),
        }
    }

    fn select(&self, wanted: Option<SessionSelector>) -> Result<Selected, Status> {
        let wanted = wanted.unwrap_or_default();
        if wanted.provider.is_empty() && wanted.session_id.is_empty() {
            return Err(Status::invalid_argument("`session` must name a session or a provider"));
        }
        let found = self.sessions.shell.with(|hub, _| hub.select(&wanted));
        found.ok_or_else(request::no_session)
    }
}

#[tonic::async_trait]
impl DriverDebugService for Debug {
    type TailFramesStream = tail::Frames;

    async fn list_sessions(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        let provider = request.into_inner().provider;
        let sessions =
            self.sessions.shell.with(|hub, now| hub.session_infos(now, &provider.into()));
        Ok(Response::new(ListSessionsResponse { core: Some(self.core()), sessions }))
    }

    async fn list_operations(
        &self,
        request: Request<ListOperationsRequest>,
    ) -> Result<Response<ListOperationsResponse>, Status> {
        let wanted = request.into_inner();
        let limit = match wanted.limit {
            0 => SHOWN,
            limit => usize::try_from(limit).unwrap_or(SHOWN),
        };
        let shell = &self.sessions.shell;
        let (operations, left_out) =
            shell.with(|hub, now| hub.operation_infos(now, &wanted, limit));
        let left_out = u32::try_from(left_out).unwrap_or(u32::MAX);
        Ok(Response::new(ListOperationsResponse { core: Some(self.core()), operations, left_out }))
    }

    async fn invoke(
        &self,
        request: Request<InvokeRequest>,
    ) -> Result<Response<InvokeResponse>, Status> {
        let caller = caller(&request);
        invoke::invoke(self, &caller, request.into_inner()).await.map(Response::new)
    }

    async fn tail_frames(
        &self,
        request: Request<TailFramesRequest>,
    ) -> Result<Response<tail::Frames>, Status> {
        let Caller(caller) = caller(&request);
        let asked = request.into_inner();
        let shell = &self.sessions.shell;
        let provider = shell.options.canonical(asked.provider.as_str());
        let wanted = TailFramesRequest { provider: provider.into(), ..asked };
        tracing::info!(caller, provider = wanted.provider, "reads frames along");
        audit::by_hand(&caller, "tail-frames", "frames", &wanted.provider, "ok");
        shell.tail.read(wanted).map(Response::new)
    }

    async fn drain_session(
        &self,
        request: Request<DrainSessionRequest>,
    ) -> Result<Response<DrainSessionResponse>, Status> {
        let Caller(caller) = caller(&request);
        let DrainSessionRequest { session, reason } = request.into_inner();
        let Selected { id, provider, .. } = self.select(session)?;
        let reason = shortened(reason);
        tracing::warn!(
            caller,
            provider = provider.as_str(),
            session = id,
            reason,
            "session drained by hand"
        );
        if !self.sessions.drain_session(&id, None) {
            return Err(request::no_session());
        }
        audit::by_hand(&caller, "drain-session", &id, provider.as_str(), "ok");
        Ok(Response::new(DrainSessionResponse { core: Some(self.core()), session_id: id }))
    }

    async fn close_session(
        &self,
        request: Request<CloseSessionRequest>,
    ) -> Result<Response<CloseSessionResponse>, Status> {
        let Caller(caller) = caller(&request);
        let CloseSessionRequest { session, reason } = request.into_inner();
        let Selected { key, id, provider, .. } = self.select(session)?;
        let reason = shortened(reason);
        tracing::warn!(
            caller,
            provider = provider.as_str(),
            session = id,
            reason,
            "session closed by hand"
        );
        let close = Close::by_hand(&reason);
        self.sessions.shell.with(|hub, now| hub.close(now, key, close));
        audit::by_hand(&caller, "close-session", &id, provider.as_str(), "ok");
        Ok(Response::new(CloseSessionResponse { core: Some(self.core()), session_id: id }))
    }

    async fn list_orphans(
        &self,
        request: Request<ListOrphansRequest>,
    ) -> Result<Response<ListOrphansResponse>, Status> {
        orphans::list(self, request.into_inner()).await.map(Response::new)
    }

    async fn accept_orphans(
        &self,
        request: Request<AcceptOrphansRequest>,
    ) -> Result<Response<AcceptOrphansResponse>, Status> {
        let caller = caller(&request);
        orphans::accept(self, &caller, request.into_inner()).await.map(Response::new)
    }
}

fn caller<T>(request: &Request<T>) -> Caller {
    request.extensions().get().cloned().unwrap_or_else(|| Caller("unknown".to_owned()))
}

fn shortened(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(REASON_BYTES));
    reason
}
