//! Classes and secrets, fetched from the core by reference and cached by revision.

use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use ostler_proto::v1alpha1 as proto;
use parking_lot::Mutex;
use proto::ObjectRevision;
use proto::driver_service_client::DriverServiceClient;
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};
use tonic_types::StatusExt as _;

use crate::class::Class;
use crate::connect::Bearer;
use crate::error::DriverError;
use crate::secret::Secret;

pub(crate) type Client = DriverServiceClient<InterceptedService<Channel, Bearer>>;

/// A class is at most 128 KiB, so the cache stays below 32 MiB.
const CLASSES: NonZeroUsize = NonZeroUsize::new(256).unwrap();
const SECRETS: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Whatever the core allows: a secret that was withdrawn is not used for longer than this.
const LONGEST_SECRET_LIFE: Duration = Duration::from_mins(5);
/// For one look-up; the core answers from memory.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// For the end of a stream to be noticed after a call that it made fail.
const LATE_NEWS: Duration = Duration::from_secs(1);
/// For the core to come back; its operations do not wait longer either.
const NEXT_SESSION: Duration = Duration::from_mins(1);

/// A live session, as unary calls need it.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) session_id: String,
}

/// Fetches and caches. A cell is shared by all who want the same revision, so it is fetched once.
pub(crate) struct Library {
    session: watch::Receiver<Option<Session>>,
    classes: Mutex<LruCache<ObjectRevision, Arc<OnceCell<Arc<Class>>>>>,
    secrets: Mutex<LruCache<ObjectRevision, Arc<OnceCell<Lease>>>>,
}

struct Lease {
    secret: Secret,
    until: Instant,
}

impl Library {
    pub(crate) fn new(session: watch::Receiver<Option<Session>>) -> Self {
        Self {
            session,
            classes: Mutex::new(LruCache::new(CLASSES)),
            secrets: Mutex::new(LruCache::new(SECRETS)),
        }
    }

    /// Drops stale objects, and classes that refer to them.
    pub(crate) fn invalidate(&self, stale: &[ObjectRevision]) {
        let hit = |known: &ObjectRevision| {
            stale.iter().any(|gone| {
                (&gone.namespace, &gone.name) == (&known.namespace, &known.name)
                    && (gone.revision.is_empty() || gone.revision == known.revision)
            })
        };
        self.secrets.lock().retain(|key, _| !hit(key));
        self.classes.lock().retain(|key, cell| {
            let secret = cell.get().and_then(|class| class.secret.as_ref());
            !hit(key) && !secret.is_some_and(hit)
        });
    }

    /// Drops everything: after a gap, invalidations may have been missed.
    pub(crate) fn clear(&self) {
        self.classes.lock().clear();
        self.secrets.lock().clear();
    }

    pub(crate) async fn class(
        &self,
        wanted: Option<&ObjectRevision>,
    ) -> Result<Arc<Class>, DriverError> {
        let wanted = wanted.filter(|wanted| !wanted.name.is_empty()).ok_or_else(|| {
            DriverError::invalid_argument("the operation names no machine class")
                .reason("CLASS_MISSING")
                .not_applied()
        })?;
        // Fetching is boxed, so that the future of every operation stays small: most find what is cached.
        if wanted.revision.is_empty() {
            return Box::pin(self.fetch_class(wanted)).await;
        }
        let cell = self.class_cell(wanted);
        cell.get_or_try_init(|| Box::pin(self.fetch_class(wanted))).await.cloned()
    }

    fn class_cell(&self, wanted: &ObjectRevision) -> Arc<OnceCell<Arc<Class>>> {
        Arc::clone(self.classes.lock().get_or_insert_ref(wanted, Arc::default))
    }

    async fn fetch_class(&self, wanted: &ObjectRevision) -> Result<Arc<Class>, DriverError> {
        let answer = self
            .call(|session| {
                let request = proto::GetMachineClassRequest {
                    r#ref: Some(wanted.clone()),
                    session_id: session.session_id,
                };
                let mut client = session.client;
                async move { client.get_machine_class(request).await }
            })
            .await;
        answer
            .map(|class| Arc::new(class.into()))
            .map_err(|status| refused("class", wanted, &status))
    }

    pub(crate) async fn secret(
        &self,
        operation_id: &str,
        wanted: ObjectRevision,
        fresh: bool,
    ) -> Result<Secret, DriverError> {
        let newest = ObjectRevision { revision: String::new(), ..wanted.clone() };
        if fresh {
            self.invalidate(std::slice::from_ref(&newest));
            let lease = Box::pin(self.fetch_secret(operation_id, &newest)).await;
            return lease
                .map(|lease| lease.secret)
                .map_err(|status| refused("secret", &newest, &status));
        }
        let cell = self.secret_cell(&wanted);
        let fetched = cell.get_or_try_init(|| {
            Box::pin(async {
                match self.fetch_secret(operation_id, &wanted).await {
                    // The revision is gone: it was replaced since the class was read.
                    Err(status)
                        if status.code() == Code::NotFound && !wanted.revision.is_empty() =>
                    {
                        self.fetch_secret(operation_id, &newest).await
                    }
                    answer => answer,
                }
            })
        });
        match fetched.await {
            Ok(lease) => Ok(lease.secret.clone()),
            Err(status) => Err(refused("secret", &wanted, &status)),
        }
    }

    /// The secrets that this process holds now, to be kept out of texts: a verb may have learned one
    /// in an earlier operation.
    pub(crate) fn held_secrets(&self) -> Vec<Secret> {
        let secrets = self.secrets.lock();
        secrets.iter().filter_map(|(_, cell)| Some(cell.get()?.secret.clone())).collect()
    }

    fn secret_cell(&self, wanted: &ObjectRevision) -> Arc<OnceCell<Lease>> {
        let mut secrets = self.secrets.lock();
        let now = Instant::now();
        secrets.retain(|_, cell| cell.get().is_none_or(|lease| now < lease.until));
        Arc::clone(secrets.get_or_insert_ref(wanted, Arc::default))
    }

    async fn fetch_secret(
        &self,
        operation_id: &str,
        wanted: &ObjectRevision,
    ) -> Result<Lease, Status> {
        let answer = self
            .call(|session| {
                let request = proto::GetSecretRequest {
                    r#ref: Some(wanted.clone()),
                    session_id: session.session_id,
                    operation_id: operation_id.to_owned(),
                };
                let mut client = session.client;
                async move { client.get_secret(request).await }
            })
            .await?;
        let allowed = answer.cache_for.and_then(|time| Duration::try_from(time).ok());
        let life = allowed.unwrap_or_default().min(LONGEST_SECRET_LIFE);
        Ok(Lease { secret: Secret::new(answer.data), until: Instant::now() + life })
    }

    /// Calls the core, waiting for a session if there is none. A call that was cut off is made once more without a
    /// wait, since the first call on a connection that was told to go away never reaches the core; a call that failed
    /// because its session is over is made again in the next session. The next session may be over as soon: cores are
    /// replaced one after another.
    async fn call<T, F>(&self, attempt: impl Fn(Session) -> F + Send + Sync) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>> + Send,
        T: Send,
    {
        let mut session = self.session_other_than(None).await?;
        loop {
            let mut answer = bounded(attempt(session.clone())).await;
            if answer.as_ref().is_err_and(is_cut_off) {
                answer = bounded(attempt(session.clone())).await;
            }
            let status = match answer {
                Err(status) if self.is_over(&session.session_id, &status).await => status,
                answer => return answer,
            };
            let next = self.session_other_than(Some(&session.session_id));
            session = tokio::time::timeout(NEXT_SESSION, next).await.unwrap_or(Err(status))?;
        }
    }

    /// Whether a call failed because its session ended, of which we hear on another stream, and
    /// maybe later: then the core calls it denied, or the connection broke.
    async fn is_over(&self, session_id: &str, status: &Status) -> bool {
        match denial(status).as_deref() {
            Some("SESSION_OVER") => return true,
            Some(_) => return false,
            None if !is_cut_off(status) && status.code() != Code::PermissionDenied => return false,
            None => {}
        }
        let mut sessions = self.session.clone();
        let gone = |session: &Option<Session>| {
            session.as_ref().is_none_or(|session| session.session_id != session_id)
        };
        tokio::time::timeout(LATE_NEWS, sessions.wait_for(gone)).await.is_ok()
    }

    async fn session_other_than(&self, lost: Option<&str>) -> Result<Session, Status> {
        let mut sessions = self.session.clone();
        let other = |session: &Option<Session>| {
            session.as_ref().is_some_and(|session| Some(session.session_id.as_str()) != lost)
        };
        let session = sessions.wait_for(other).await.ok().and_then(|session| session.clone());
        session.ok_or_else(|| Status::unavailable("the driver ends"))
    }
}

/// The answer to one call, in time.
async fn bounded<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(answer) => answer.map(Response::into_inner),
        Err(_) => Err(Status::unavailable("the core did not answer in time")),
    }
}

/// Whether the call may have been cut off: a link that breaks shows as any of these codes.
fn is_cut_off(status: &Status) -> bool {
    matches!(status.code(), Code::Cancelled | Code::Unavailable | Code::Unknown | Code::Internal)
}

/// Why the core denies something, if it says so.
fn denial(status: &Status) -> Option<String> {
    let mut info = status.get_details_error_info()?;
    info.metadata.remove("denial").filter(|_| status.code() == Code::PermissionDenied)
}

/// The error of a verb that could not get its class or secret. Nothing was changed yet.
fn refused(what: &str, wanted: &ObjectRevision, status: &Status) -> DriverError {
    let ObjectRevision { namespace, name, .. } = wanted;
    let message = format!("{what} {namespace}/{name}: {}", status.message());
    if denial(status).as_deref() == Some("OPERATION_CANCELLED") {
        return DriverError::canceled(message).not_applied();
    }
    #[expect(clippy::wildcard_enum_match_arm, reason = "only these have a meaning of their own")]
    let error = match status.code() {
        Code::NotFound => DriverError::aborted(message).reason("STALE_REVISION"),
        Code::PermissionDenied => {
            DriverError::permission_denied(message).reason("REFERENCE_DENIED")
        }
        Code::InvalidArgument => DriverError::invalid_argument(message).reason("REFERENCE_INVALID"),
        Code::FailedPrecondition => {
            DriverError::failed_precondition(message).reason("REFERENCE_REFUSED")
        }
        _ => DriverError::unavailable(message).reason("REFERENCE_UNAVAILABLE"),
    };
    error.not_applied()
}
