//! Opens unix sockets.

use std::path::PathBuf;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tower::Service;

use crate::connector::DialError;
use crate::owner::Trusted;

/// Opens one unix socket for HTTP clients, whatever address they name.
#[derive(Debug, Clone)]
pub struct DialUnix {
    path: PathBuf,
    trusted: Trusted,
}

impl DialUnix {
    /// The socket at `path`, if one of `trusted` listens there.
    pub const fn new(path: PathBuf, trusted: Trusted) -> Self {
        Self { path, trusted }
    }
}

impl Service<Uri> for DialUnix {
    type Response = TokioIo<UnixStream>;
    type Error = DialError;
    type Future = BoxFuture<'static, Result<Self::Response, DialError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { path, trusted } = self.clone();
        Box::pin(async move {
            let stream = ostler_local::connect(&path).await;
            let stream = stream.map_err(|error| DialError::Direct(error.into()))?;
            trusted.check_unix(&path, &stream)?;
            Ok(TokioIo::new(stream))
        })
    }
}
