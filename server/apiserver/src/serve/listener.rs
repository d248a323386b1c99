//! HTTPS: the limits and the end of connections.

use std::{error::Error, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use futures::StreamExt;
use http::{Request, Response};
use http_body::Body as _;
use hyper::{body::Incoming, rt::Executor};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::service_fn;

use super::{
    PkiError, TlsMaterial, compress,
    door::{Door, Guest},
    limits::ServeOptions,
    metrics::Why,
    outflow::{Ends, Outflow, Terms},
    pipeline::{Origin, Pipeline, Visit},
};
use crate::auth::certificates::ClientCertificate;

/// Concurrent streams on one HTTP/2 connection, each of which may be a watch: Go's number.
const STREAMS: u32 = 250;
/// Unread bytes of one stream: the protocol's own default.
const STREAM_WINDOW: u32 = 64 << 10;
/// The same for a connection, so that one stream that is not read does not stop the others.
const CONNECTION_WINDOW: u32 = 128 << 10;
/// Bytes that a stream holds for a slow reader.
const SEND_BUFFER: usize = 64 << 10;
/// Streams that a client has reset before the server looked at them; more of them end the connection.
const PENDING_RESETS: usize = 20;
/// Streams that the server has reset and must remember; more of them end the connection.
const LOCAL_RESETS: usize = 256;
/// Bytes of headers of one request.
const HEADERS: usize = 64 << 10;
/// How long an idle HTTP/1 connection of a known client is kept, and with it how long the head of a
/// request may take: longer than clients keep theirs, so that it is the client who ends it.
const HEAD: Duration = Duration::from_mins(3);
/// How often an idle HTTP/2 connection is probed.
const PROBE: Duration = Duration::from_secs(30);
/// How long requests may go on after the shutdown has begun.
const GRACE: Duration = Duration::from_secs(10);
/// How long a connection that showed no credentials may take to end.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long to wait after the operating system refused a connection, usually for lack of files.
const REFUSED: Duration = Duration::from_millis(100);
/// Answers up to this length are not supervised for administrators.
const SMALL: u64 = 64 << 10;

/// The parts that all connections share.
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
    options: ServeOptions,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let config = tls.server_config(pipeline.clock()).map_err(PkiError::into_io)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let door = Door::new(options, pipeline.metrics().clone());
    let server = Server { pipeline, acceptor, shutdown: shutdown.clone() };
    let connections = TaskTracker::new();
    while let Some(accepted) = shutdown.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, peer)) => {
                let guest = shutdown.run_until_cancelled(door.admit(peer.ip())).await;
                let Some(guest) = guest.flatten() else { break };
                connections.spawn(server.clone().connection(stream, peer, guest));
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

type Failure = Box<dyn Error + Send + Sync>;

impl Server {
    async fn connection(self, stream: TcpStream, peer: SocketAddr, guest: Arc<Guest>) {
        stream.set_nodelay(true).ok();
        let (end, deadline) = (guest.end.clone(), Instant::now() + self.introduction());
        let Some(shaken) = end.run_until_cancelled(self.shake(stream, deadline)).await else {
            return;
        };
        let ended = match shaken {
            Ok(stream) => self.converse(stream, peer, guest, deadline).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection ended");
        }
    }

    fn introduction(&self) -> Duration {
        self.pipeline.gate().limits.introduction
    }

    async fn shake(
        &self,
        stream: TcpStream,
        deadline: Instant,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        Ok(timeout_at(deadline, self.acceptor.accept(stream)).await??)
    }

    /// Answers requests until the client, a limit or the shutdown ends it.
    async fn converse(
        self,
        stream: TlsStream<TcpStream>,
        peer: SocketAddr,
        guest: Arc<Guest>,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let certificate = shown.and_then(ClientCertificate::read).map(Arc::new);
        let visit = Visit { guest: Arc::clone(&guest), certificate };
        let answering = self.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            // for the audit
            request.extensions_mut().insert(peer);
            // Apart, so that it is gone when there is an answer: a stream, which a watch is for hours, has room for all of it.
            Box::pin(answering.clone().answer(visit.clone(), request))
        });
        let service = TowerToHyperService::new(compress::large_answers(service));
        let builder = builder();
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let grace = tokio::select! {
            ended = connection.as_mut() => return ended,
            () = guest.end.cancelled() => return Ok(()),
            () = guest.overdue(deadline) => {
                self.pipeline.metrics().ended(Why::Unknown);
                FAREWELL
            }
            () = self.shutdown.cancelled() => GRACE,
        };
        connection.as_mut().graceful_shutdown();
        match guest.end.run_until_cancelled(timeout(grace, connection)).await {
            Some(ended) => ended?,
            None => Ok(()),
        }
    }

    async fn answer(self, visit: Visit, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let (gate, metrics) = (self.pipeline.gate(), self.pipeline.metrics());
        let guest = Arc::clone(&visit.guest);
        let request = request.map(Body::new);
        let mut response = self.pipeline.handle(Origin::Connection(visit), request).await;
        let admitted = response.extensions_mut().remove();
        let refused = || guest.refusal().map(|refusal| gate.refused(refusal));
        let Some(ticket) = admitted.or_else(refused) else {
            metrics.ended(Why::Refusals);
            guest.end.cancel();
            return Err(io::Error::other("answers to refused requests are not read"));
        };
        let (whole, limited) = (response.body().size_hint().exact(), ticket.tenant().limited);
        if limited {
            response.extensions_mut().insert(compress::Plain);
        }
        let endless = ticket.is_watch() && whole.is_none();
        if endless && !limited {
            return Ok(response.map(|body| end_with(body, self.shutdown)));
        }
        if whole == Some(0) || (!limited && whole.is_some_and(|length| length <= SMALL)) {
            return Ok(response);
        }
        // An administrator on a slow line gets a long list as long as it goes on.
        let until = (!endless && limited).then(|| ticket.until());
        let terms = Terms { until, stall: gate.limits.stall };
        let stream = STREAM.try_with(CancellationToken::clone).ok();
        let ends = Ends { stream, connection: guest.end.clone() };
        let metrics = metrics.clone();
        Ok(response.map(|body| {
            let body = if endless { end_with(body, self.shutdown) } else { body };
            Body::new(Outflow::new(body, ticket, terms, ends, metrics))
        }))
    }
}

/// Ends a watch with the shutdown.
fn end_with(body: Body, shutdown: CancellationToken) -> Body {
    let stream = body.into_data_stream().take_until(shutdown.cancelled_owned());
    Body::from_stream(stream)
}

tokio::task_local! {
    /// Ends the HTTP/2 stream whose request is being answered.
    static STREAM: CancellationToken;
}

/// Runs the streams of HTTP/2 connections, each so that it can be ended alone: one that is dropped
/// is reset.
#[derive(Clone, Copy, Debug)]
struct Streams;

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let end = CancellationToken::new();
        tokio::spawn(STREAM.scope(end.clone(), async move {
            end.run_until_cancelled_owned(stream).await;
        }));
    }
}

fn builder() -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(Streams);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEADERS)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(LOCAL_RESETS)
        .max_header_list_size(u32::try_from(HEADERS).unwrap_or(u32::MAX))
        .keep_alive_interval(PROBE);
    builder
}
