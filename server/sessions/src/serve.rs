//! Listening, and stopping to listen.

use std::future::Future;
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::{Connected, TcpIncoming};

use crate::gate::{WINDOW, bounded_server};
use crate::{GateLayer, Sessions};

/// Pings find a peer that is gone without a word; they say nothing of a driver that hangs.
const PING: Duration = Duration::from_secs(20);
const PONG: Duration = Duration::from_secs(10);
/// Calls that the service authenticates, and the call with the stream of frames.
const OWN: &str = "/ostler.driver.v1alpha1.DriverService/";
const STREAM: &str = "/ostler.driver.v1alpha1.DriverService/Register";

/// Drivers cannot be served any more.
#[derive(Debug, thiserror::Error)]
#[error("the listener for drivers failed")]
pub struct ServeError(#[from] tonic::transport::Error);

impl Sessions {
    /// Serves drivers on a TCP listener until `shutdown` resolves, then as [`Self::serve`].
    pub async fn serve_tcp(
        &self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        // Without TCP_NODELAY every small frame waits for the acknowledgement of the frame before.
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        self.serve(incoming, shutdown).await
    }

    /// Serves drivers on a stream of connections until `shutdown` resolves; then tells them,
    /// ends every session of this handle, and returns once the connections ended, at the latest
    /// after [`crate::Timing::shutdown`].
    pub async fn serve<I, IO, E>(
        &self,
        incoming: I,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError>
    where
        I: Stream<Item = Result<IO, E>>,
        IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let stop = CancellationToken::new();
        let server = bounded_server()
            .http2_keepalive_interval(Some(PING))
            .http2_keepalive_timeout(Some(PONG))
            .initial_connection_window_size(WINDOW)
            .initial_stream_window_size(WINDOW)
            .layer(GateLayer::<IO::ConnectInfo>::new(OWN, STREAM))
            .add_routes(self.service())
            .serve_with_incoming_shutdown(self.shell.gate.guard(incoming), stop.cancelled());
        let mut server = Box::pin(server);
        tokio::select! {
            ended = &mut server => return Ok(ended?),
            () = shutdown => {}
        }
        // The streams must end first: the server waits for them without a limit.
        self.stop();
        stop.cancel();
        if let Ok(ended) = tokio::time::timeout(self.options().timing.shutdown, server).await {
            return Ok(ended?);
        }
        tracing::warn!("some connections of drivers did not end in time");
        Ok(())
    }
}
