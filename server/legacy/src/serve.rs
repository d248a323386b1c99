//! The listener for drivers of the first proposal.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, TryStreamExt as _};
use ostler_proto::legacy::infra::infragrpc_server::{InfragrpcServer, SERVICE_NAME as INFRA};
use ostler_proto::legacy::service::servicegrpc_server::SERVICE_NAME as SERVICE;
use ostler_sessions::{ServeError, Sessions, bounded_server};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tonic::codegen::http::{Request, Uri};
use tower::util::MapRequestLayer;

use crate::connection::Connections;
use crate::service::Service;
use crate::{LegacyMetrics, LegacyOptions};

/// Pings find a peer that is gone without a word; half-open links of legacy drivers are known to
/// have blocked their successors for hours.
const PING: Duration = Duration::from_secs(20);
const PONG: Duration = Duration::from_secs(10);
/// Largest message of a driver: what gRPC libraries allow by default. A longer list ends the stream.
const MESSAGE_BYTES: usize = 4 << 20;
/// Concurrent calls on a connection: the stream, a class, a secret, and calls given up meanwhile.
const CALLS: usize = 16;

/// Serves drivers of the first proposal on a stream of connections until `shutdown` resolves.
/// Callers are trusted: give the server only connections from this host.
pub async fn serve<I, IO, E>(
    sessions: &Sessions,
    incoming: I,
    options: LegacyOptions,
    metrics: LegacyMetrics,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError>
where
    I: Stream<Item = Result<IO, E>>,
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (end, stop) = (CancellationToken::new(), CancellationToken::new());
    let connections = Arc::new(Connections::default());
    let service =
        Service::new(sessions.clone(), options, metrics, Arc::clone(&connections), end.clone());
    let infra = InfragrpcServer::new(service).max_decoding_message_size(MESSAGE_BYTES);
    let server = bounded_server()
        .http2_keepalive_interval(Some(PING))
        .http2_keepalive_timeout(Some(PONG))
        .concurrency_limit_per_connection(CALLS)
        .layer(MapRequestLayer::new(by_its_first_name))
        .add_service(infra)
        .serve_with_incoming_shutdown(
            incoming.map_ok(|io| connections.admit(io)),
            stop.cancelled(),
        );
    let mut server = Box::pin(server);
    tokio::select! {
        ended = &mut server => return Ok(ended?),
        () = shutdown => {}
    }
    // The streams must end first: the server waits for them without a limit.
    end.cancel();
    stop.cancel();
    if let Ok(ended) = tokio::time::timeout(sessions.options().timing.shutdown, server).await {
        return Ok(ended?);
    }
    tracing::warn!("some connections of legacy drivers did not end in time");
    Ok(())
}

/// Both services are one: only the name in the path differs.
fn by_its_first_name<B>(mut request: Request<B>) -> Request<B> {
    let method = request.uri().path().strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE));
    let renamed = method.and_then(|method| format!("/{INFRA}{method}").parse::<Uri>().ok());
    if let Some(uri) = renamed {
        *request.uri_mut() = uri;
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_name_of_the_service_leads_to_the_first() {
        let cases = [
            ("/service.Servicegrpc/Register", "/infra.Infragrpc/Register"),
            ("http://localhost/service.Servicegrpc/GetSecret", "/infra.Infragrpc/GetSecret"),
            ("/infra.Infragrpc/Register", "/infra.Infragrpc/Register"),
            (
                "/ostler.driver.v1alpha1.DriverService/Register",
                "/ostler.driver.v1alpha1.DriverService/Register",
            ),
        ];
        for (from, to) in cases {
            let request = Request::builder().uri(from).body(()).unwrap();
            assert_eq!(by_its_first_name(request).uri().path(), to);
        }
    }
}
