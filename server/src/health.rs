//! `/metrics`, `/healthz` and `/readyz` over plain HTTP on loopback.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use ostler_sessions::{Gate, GateRules, Guarded};
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long a connection lives: clients do not authenticate here. Scrapers connect again.
const CONNECTION_LIFE: Duration = Duration::from_mins(5);

/// What the listener shows.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    /// Every metric of this process.
    pub(crate) registry: Arc<Registry>,
    /// True once the watches are synced. Does not depend on leadership: a rollout of two replicas would never end.
    pub(crate) ready: watch::Receiver<bool>,
}

/// Listens; refuses anything but loopback, since it speaks no TLS, unless it was asked to be open.
pub(crate) async fn bind(address: SocketAddr, open: bool) -> anyhow::Result<TcpListener> {
    if !address.ip().is_loopback() && !open {
        bail!(
            "--metrics-listen {address} is not a loopback address, and this listener speaks no TLS; \
             give --address {} if everybody who reaches it may see the metrics",
            address.ip()
        );
    }
    TcpListener::bind(address)
        .await
        .with_context(|| format!("--metrics-listen {address} cannot be listened on"))
}

/// Serves until `end`.
pub(crate) async fn serve(
    listener: TcpListener,
    connections: usize,
    health: Health,
    end: CancellationToken,
) -> anyhow::Result<()> {
    let rules = GateRules { connections, first_call: CONNECTION_LIFE, unknown: CONNECTION_LIFE };
    let listener = Gated { listener, gate: Gate::new(rules) };
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .with_state(health);
    axum::serve(listener, routes)
        .with_graceful_shutdown(end.cancelled_owned())
        .await
        .context("the metrics listener failed")
}

/// A listener that always accepts: the oldest connection is closed when there are too many.
struct Gated {
    listener: TcpListener,
    gate: Gate,
}

impl axum::serve::Listener for Gated {
    type Io = Guarded<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            // Waits out want of descriptors.
            let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
            if let Some(guarded) = self.gate.take(stream) {
                return (guarded, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

async fn metrics(State(health): State<Health>) -> impl IntoResponse {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &health.registry) {
        Ok(()) => (
            StatusCode::OK,
            [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")],
            text,
        ),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            error.to_string(),
        ),
    }
}

async fn ready(State(health): State<Health>) -> (StatusCode, &'static str) {
    if *health.ready.borrow() {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "watches are not synced yet")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_ready_once_the_watches_are_synced() {
        let (synced, watched) = watch::channel(false);
        let health = Health { registry: Arc::default(), ready: watched };
        let (before, _) = ready(State(health.clone())).await;
        assert_eq!(before, StatusCode::SERVICE_UNAVAILABLE);
        synced.send(true).unwrap();
        assert_eq!(ready(State(health)).await, (StatusCode::OK, "ok"));
    }
}
