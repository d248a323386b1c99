//! How a driver reaches the core.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use thiserror::Error;
use tokio::sync::Notify;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// Makes a connection each time it is asked: one for every session.
///
/// A test gives its own, e.g. over an in-memory pipe; [`DriverArgs`](crate::DriverArgs) makes the
/// one that a deployed driver uses.
#[derive(Clone)]
pub struct Connector {
    dial: Arc<dyn Fn() -> BoxFuture<'static, Result<Connection, ConnectError>> + Send + Sync>,
}

impl Connector {
    /// A connector that calls `dial`.
    pub fn new<F, Fut>(dial: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Connection, ConnectError>> + Send + 'static,
    {
        Self { dial: Arc::new(move || Box::pin(dial())) }
    }

    /// Makes a further connection: for connectors that wrap another.
    pub fn connect(&self) -> BoxFuture<'static, Result<Connection, ConnectError>> {
        (self.dial)()
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

/// A channel to the core and the token to show there.
#[derive(Debug, Clone)]
pub struct Connection {
    pub(crate) channel: Channel,
    pub(crate) bearer: Bearer,
}

impl Connection {
    /// A connection without a token.
    pub fn new(channel: Channel) -> Self {
        Self { channel, bearer: Bearer(None) }
    }

    /// The channel, e.g. to stand between it and the driver.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// The same token, shown on another channel.
    #[must_use]
    pub fn through(self, channel: Channel) -> Self {
        Self { channel, ..self }
    }

    /// Shows `token` with every call.
    pub fn with_token(self, token: &str) -> Result<Self, ConnectError> {
        let mut header: MetadataValue<Ascii> =
            format!("Bearer {token}").parse().map_err(|_| ConnectError::TokenText)?;
        header.set_sensitive(true);
        Ok(Self { bearer: Bearer(Some(header)), ..self })
    }
}

/// Cuts the connection of a driver, as a broken network does: for tests of what is lost with it.
/// Clones cut the same one. Give it to [`Options::cutter`](crate::Options::cutter).
#[derive(Debug, Clone, Default)]
pub struct Cutter {
    inner: Arc<Cuts>,
}

#[derive(Debug, Default)]
struct Cuts {
    wanted: Notify,
    done: Notify,
}

impl Cutter {
    /// Cuts the connection; returns when it is gone. Waits for ever if no driver runs with it.
    pub async fn cut(&self) {
        let done = self.inner.done.notified();
        self.inner.wanted.notify_one();
        done.await;
    }

    pub(crate) async fn wanted(&self) {
        self.inner.wanted.notified().await;
    }

    pub(crate) fn done(&self) {
        self.inner.done.notify_waiters();
    }
}

/// Adds the token to every call. The header is marked sensitive, so that it is not printed.
#[derive(Debug, Clone)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(header) = &self.0 {
            request.metadata_mut().insert("authorization", header.clone());
        }
        Ok(request)
    }
}

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The endpoint is not a URL of a known scheme.
    #[error("endpoint {endpoint:?} is not usable: {problem}")]
    Endpoint {
        /// The endpoint as given.
        endpoint: String,
        /// The fault, and a valid form.
        problem: String,
    },
    /// A file that is needed for the connection cannot be read.
    #[error("cannot read {what} {}", path.display())]
    File {
        /// `token file`, `CA file`, `certificate file` or `key file`.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file has unusable content.
    #[error("{what} {} {problem}", path.display())]
    Content {
        /// As above.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The fault of the file.
        problem: &'static str,
    },
    /// TLS failed, and the remedy is known.
    #[error("cannot connect to {endpoint}: {remedy}")]
    Tls {
        /// The endpoint as given.
        endpoint: String,
        /// The cause in plain words, and the remedy.
        remedy: &'static str,
        /// The cause.
        #[source]
        source: tonic::transport::Error,
    },
    /// The token is no header text.
    #[error("the token contains characters that a header cannot carry")]
    TokenText,
    /// There was no answer.
    #[error("no connection in time")]
    Timeout,
    /// The core cannot be reached.
    #[error("cannot connect to {endpoint}")]
    Transport {
        /// The endpoint as given.
        endpoint: String,
        /// The cause.
        #[source]
        source: tonic::transport::Error,
    },
}
