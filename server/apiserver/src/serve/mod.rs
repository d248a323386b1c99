//! The server in process and over HTTPS.
//!
//! [`ApiServer`] holds everything together:
//!
//! ```
//! use k8s_openapi::api::core::v1::Namespace;
//! use kube::{Api, Client, api::ListParams};
//! use ostler_apiserver::serve::{ApiServer, Options};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let api = ApiServer::open(Options::memory()).await?;
//! let client = Client::new(api.local_service(), "default");
//! let namespaces = Api::<Namespace>::all(client).list(&ListParams::default()).await?;
//! assert!(namespaces.items.iter().any(|one| one.metadata.name.as_deref() == Some("default")));
//! api.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! A request takes the same way whether it comes from
//! [`LocalService`] or from a TLS connection: `pipeline` authenticates, authorizes, answers health
//! and reviews, hands the rest to `crate::rest`, and tells `audit` of it.
//!
//! What comes over the network has limits: `limits` says which, `door` who may be connected, `gate`
//! whose request is worked on, `outflow` how long an answer waits for its reader, `tenant` who holds
//! how much.

mod audit;
mod backup;
mod bootstrap;
mod compress;
mod counted;
mod door;
mod gate;
mod health;
mod kind;
mod kubeconfig;
mod limits;
mod listener;
mod local;
mod metrics;
mod outflow;
mod pipeline;
mod tenant;
#[cfg(test)]
mod tests;
mod trial;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::{
    auth::{Auth, certificates::Authority},
    clock::{Clock, wall_clock},
    context::Context,
    control,
    store::{self, Backend, Health, Retention, Store, StoreOptions, secret::Secret},
};

pub use crate::auth::certificates::{PkiError, TlsMaterial};
pub use limits::{Limits, ServeOptions};
pub use local::LocalService;
use pipeline::Pipeline;

/// The place of a server's objects, keys and tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Nowhere: everything ends with the process.
    Memory,
    /// In this directory, which is created (mode 0700) if missing.
    Directory(PathBuf),
}

/// How to open a server.
#[derive(Clone)]
pub struct Options {
    /// Where things are kept.
    pub storage: Storage,
    /// How much history watches and lists can go back to.
    pub retention: Retention,
    /// The clock for timestamps of objects and tokens.
    pub clock: Clock,
    /// How much clients over the network may take.
    pub limits: Limits,
    /// How long a kubelet may be silent until its Node is not Ready; `None`: for ever, and pods of Nodes that
    /// are gone stay.
    pub node_grace: Option<Duration>,
}

impl Options {
    /// A server in memory, on the wall clock.
    pub fn memory() -> Self {
        Self {
            storage: Storage::Memory,
            retention: Retention::default(),
            clock: wall_clock(),
            limits: Limits::default(),
            node_grace: None,
        }
    }

    /// A server that keeps everything in `path`, on the wall clock.
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        Self { storage: Storage::Directory(path.into()), ..Self::memory() }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("storage", &self.storage)
            .field("retention", &self.retention)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Why a server could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The objects could not be opened.
    #[error("cannot open the objects")]
    Store(#[from] store::OpenError),
    /// The keys could not be read or written.
    #[error("cannot keep the server's keys in {}", directory.display())]
    Keys {
        /// Where they are kept.
        directory: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// There is no authority that signs certificates.
    #[error("cannot open the server's certificate authority")]
    Authority(#[from] PkiError),
    /// The objects that every cluster has could not be created.
    #[error("cannot create the namespace {name}: the server answers {code}")]
    Bootstrap {
        /// The namespace.
        name: &'static str,
        /// The HTTP code of the refusal.
        code: u16,
    },
}

/// A running API server. Cheap to clone; it stops when it is closed or the last handle is gone.
#[derive(Clone, Debug)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pipeline: Pipeline,
    context: Context,
    authority: Arc<Authority>,
    directory: Option<PathBuf>,
    controllers: TaskTracker,
    stop: CancellationToken,
    /// Stops the controllers when the last handle is gone.
    _stop_on_drop: DropGuard,
}

impl ApiServer {
    /// Opens a server and starts its controllers. Must be called inside a tokio runtime.
    pub fn open(options: Options) -> BoxFuture<'static, Result<Self, OpenError>> {
        Box::pin(Self::start(options))
    }

    async fn start(options: Options) -> Result<Self, OpenError> {
        let directory = match &options.storage {
            Storage::Memory => None,
            Storage::Directory(path) => Some(path.clone()),
        };
        let backend = match &directory {
            None => Backend::Memory,
            Some(path) => {
                crate::store::secret::private_directory(path)
                    .map_err(|source| OpenError::Keys { directory: path.clone(), source })?;
                Backend::File(path.join(OBJECTS))
            }
        };
        let store = Store::open(StoreOptions { backend, retention: options.retention }).await?;
        let context = Context { store, clock: options.clock };
        let auth = Auth::open(context.clone(), directory.as_deref()).map_err(|source| {
            let directory = directory.clone().unwrap_or_default();
            OpenError::Keys { directory, source }
        })?;
        let pki = directory.as_deref().map(pki_directory);
        let authority = Authority::open(pki.as_deref(), (context.clock)())?;
        Self::over(context, auth, authority, directory, (options.limits, options.node_grace)).await
    }

    /// Starts with what was opened.
    async fn over(
        context: Context,
        auth: Auth,
        authority: Authority,
        directory: Option<PathBuf>,
        (limits, node_grace): (Limits, Option<Duration>),
    ) -> Result<Self, OpenError> {
        let authority = Arc::new(authority);
        let pipeline = Pipeline::new(auth, &context, limits);
        let loopback = control::Loopback::new(LocalService::new(pipeline.clone()));
        bootstrap::namespaces(&context, &loopback).await?;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        control::start(&tasks, &context, &loopback, &authority, node_grace, &stop);
        tasks.close();
        let inner = Inner {
            pipeline,
            context,
            authority,
            directory,
            controllers: tasks,
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The store and the clock the server stands on.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The server as a tower service in this process: for `kube::Client::new`. It acts as
    /// `system:admin` and needs neither TLS nor a token.
    pub fn local_service(&self) -> LocalService {
        LocalService::new(self.inner.pipeline.clone())
    }

    /// The bearer token of `system:admin`.
    pub fn admin_token(&self) -> &Secret {
        self.inner.pipeline.admin_token()
    }

    /// Certificate and key for [`ApiServer::serve`], good for `localhost`, the loopback addresses
    /// and `names` (DNS names or IP addresses), signed by the server's own authority. Both are
    /// kept in the data directory and made anew when they are about to expire or the names change.
    pub fn tls(&self, names: &[String]) -> Result<TlsMaterial, PkiError> {
        let now = (self.inner.context.clock)();
        let directory = self.inner.directory.as_deref().map(pki_directory);
        TlsMaterial::open(&self.inner.authority, directory.as_deref(), names, now)
    }

    /// A kubeconfig for `system:admin` at `server`, such as `https://127.0.0.1:16440`. The kubeconfig holds the token:
    /// keep it private.
    pub fn kubeconfig(&self, tls: &TlsMaterial, server: &str) -> String {
        kubeconfig::render(server, tls.authority_pem(), self.admin_token())
    }

    /// Writes [`ApiServer::kubeconfig`] to a file that only its owner can read.
    pub fn write_kubeconfig(&self, path: &Path, tls: &TlsMaterial, server: &str) -> io::Result<()> {
        crate::store::secret::write_private(path, &self.kubeconfig(tls, server))
    }

    /// The certificate of the authority that signs the server's certificates and its clients', as
    /// PEM: what clients must trust.
    pub fn authority_pem(&self) -> &str {
        self.inner.authority.pem()
    }

    /// Serves HTTPS until `shutdown`, then ends the watches, lets other requests finish (10 s at
    /// most) and returns.
    pub fn serve(
        &self,
        listener: TcpListener,
        tls: TlsMaterial,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, io::Result<()>> {
        self.serve_with(listener, tls, ServeOptions::default(), shutdown)
    }

    /// The same with other limits.
    pub fn serve_with(
        &self,
        listener: TcpListener,
        tls: TlsMaterial,
        options: ServeOptions,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, io::Result<()>> {
        let pipeline = self.inner.pipeline.clone();
        Box::pin(listener::serve(pipeline, listener, tls, options, shutdown))
    }

    /// Waits until the server can store nothing any more, and never will: the text says why, and the
    /// process has to end. A disk that is only full is waited for; `/readyz` tells of it.
    pub async fn failed(&self) -> Arc<str> {
        self.inner.context.store.failed().await
    }

    /// Why nothing can be stored now, if that is so.
    pub fn trouble(&self) -> Option<Arc<str>> {
        match self.inner.context.store.health() {
            Health::Good => None,
            Health::Failing(reason) | Health::Failed(reason) => Some(reason),
        }
    }

    /// Adds the server's metrics to a registry.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.inner.pipeline.metrics().register(registry);
    }

    /// Stops the controllers and closes the store: all watches end, later writes are refused, and
    /// the data directory is free for the next one.
    pub fn close(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.inner.stop.cancel();
            self.inner.controllers.wait().await;
            self.inner.context.store.clone().close().await;
        })
    }
}

/// The files of a data directory without which its objects are worth little: credentials that were
/// given out are good only as long as these are the same. A backup has them.
pub const KEY_FILES: [&str; 3] = ["admin-token", "token-signing-key", "pki/authority.json"];

/// The file of a data directory with the objects.
pub const OBJECTS: &str = "objects.redb";

/// What a backup of a server that does not run is of, and its objects.
pub fn backup_header(page: &store::Page, now: jiff::Timestamp) -> crate::backup::Header {
    backup::header(page, now)
}

/// Where a server keeps its certificates.
fn pki_directory(data: &Path) -> PathBuf {
    data.join("pki")
}
