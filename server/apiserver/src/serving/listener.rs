//! HTTPS: connections, their limits, and how they end.

use std::{io, sync::Arc, time::Duration};

use axum::body::Body;
use futures::StreamExt;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::service_fn;

use super::{
    PkiError, TlsMaterial, compress,
    pipeline::{Origin, Pipeline},
};
use crate::certificates::ClientCertificate;

/// Connections at once; further ones wait in the operating system's queue.
const CONNECTIONS: usize = 512;
/// Streams at once on one HTTP/2 connection: each watch of a client is one.
const STREAMS: u32 = 1000;
/// Bytes of headers of one request.
const HEADERS: usize = 64 << 10;
/// How long a client may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may take for a request's head, and how long an idle connection is kept:
/// longer than clients keep theirs, so that it is the client who ends it.
const HEAD: Duration = Duration::from_mins(3);
/// How often an idle HTTP/2 connection is probed.
const PROBE: Duration = Duration::from_secs(30);
/// How long requests may go on after the shutdown has begun.
const GRACE: Duration = Duration::from_secs(10);
/// How long to wait after the operating system refused a connection, usually for lack of files.
const REFUSED: Duration = Duration::from_millis(100);

/// What all connections share.
#[derive(Clone)]
struct Server {
    pipeline: Pipeline,
    acceptor: TlsAcceptor,
    shutdown: CancellationToken,
}

pub(super) async fn serve(
    pipeline: Pipeline,
    listener: TcpListener,
    tls: TlsMaterial,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let config = tls.server_config(pipeline.clock()).map_err(PkiError::into_io)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let server = Server { pipeline, acceptor, shutdown: shutdown.clone() };
    let (connections, slots) = (TaskTracker::new(), Arc::new(Semaphore::new(CONNECTIONS)));
    while let Some(slot) = shutdown.run_until_cancelled(free(&slots)).await {
        let Some(slot) = slot else { break };
        let Some(accepted) = shutdown.run_until_cancelled(listener.accept()).await else { break };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(server.clone().connection(stream, slot));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(REFUSED).await;
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
    Ok(())
}

async fn free(slots: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(slots).acquire_owned().await.ok()
}

impl Server {
    async fn connection(self, stream: TcpStream, _slot: OwnedSemaphorePermit) {
        stream.set_nodelay(true).ok();
        if let Err(error) = self.converse(stream).await {
            tracing::debug!(%error, "connection ended");
        }
    }

    /// Shakes hands and answers requests until the client or the shutdown ends it.
    async fn converse(
        self,
        stream: TcpStream,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let stream = timeout(HANDSHAKE, self.acceptor.accept(stream)).await??;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let origin = Origin::Connection(shown.and_then(ClientCertificate::read).map(Arc::new));
        let answering = self.clone();
        let service = service_fn(move |request| answering.clone().answer(origin.clone(), request));
        let service = TowerToHyperService::new(compress::large_answers(service));
        let builder = builder();
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let ended = self.shutdown.run_until_cancelled(connection.as_mut()).await;
        if let Some(ended) = ended {
            return ended;
        }
        connection.as_mut().graceful_shutdown();
        timeout(GRACE, connection).await?
    }

    async fn answer(
        self,
        origin: Origin,
        request: Request<Incoming>,
    ) -> io::Result<Response<Body>> {
        let response = self.pipeline.handle(origin, request.map(Body::new)).await;
        if http_body::Body::size_hint(response.body()).exact().is_some() {
            return Ok(response);
        }
        Ok(response.map(|body| end_with(body, self.shutdown)))
    }
}

/// A stream whose end is open, which is a watch: the shutdown ends it.
fn end_with(body: Body, shutdown: CancellationToken) -> Body {
    let stream = body.into_data_stream().take_until(shutdown.cancelled_owned());
    Body::from_stream(stream)
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEADERS)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(HEADERS).unwrap_or(u32::MAX))
        .keep_alive_interval(PROBE);
    builder
}
