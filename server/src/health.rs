//! `/metrics`, `/healthz` and `/readyz` over plain HTTP on loopback.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
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

const PLAIN: [(header::HeaderName, &str); 1] =
    [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
const NOT_STARTED: &str = "the API server has not answered yet";

/// How long a connection lives: clients do not authenticate here. Scrapers connect again.
const CONNECTION_LIFE: Duration = Duration::from_mins(5);

/// What the listener shows: nothing yet while the core waits for the API server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health(Arc<OnceLock<Shown>>);

#[derive(Debug)]
struct Shown {
    registry: Registry,
    synced: watch::Receiver<bool>,
}

impl Health {
    /// The core has started. `registry` has every metric of this process, and `synced` becomes true once the watches are
    /// synced. It does not depend on leadership: a rollout of two replicas would never end.
    pub(crate) fn show(&self, registry: Registry, synced: watch::Receiver<bool>) {
        let _first = self.0.set(Shown { registry, synced });
    }
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
    let Some(Shown { registry, .. }) = health.0.get() else {
        return (StatusCode::SERVICE_UNAVAILABLE, PLAIN, NOT_STARTED.to_owned());
    };
    match prometheus_client::encoding::text::encode(&mut text, registry) {
        Ok(()) => (
            StatusCode::OK,
            [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")],
            text,
        ),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, PLAIN, error.to_string()),
    }
}

async fn ready(State(health): State<Health>) -> (StatusCode, &'static str) {
    match health.0.get().map(|shown| *shown.synced.borrow()) {
        Some(true) => (StatusCode::OK, "ok"),
        Some(false) => (StatusCode::SERVICE_UNAVAILABLE, "watches are not synced yet"),
        None => (StatusCode::SERVICE_UNAVAILABLE, NOT_STARTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_ready_once_the_watches_are_synced() {
        let (synced, watched) = watch::channel(false);
        let health = Health::default();
        let (before, _) = ready(State(health.clone())).await;
        health.show(Registry::default(), watched);
        let (started, _) = ready(State(health.clone())).await;
        assert_eq!([before, started], [StatusCode::SERVICE_UNAVAILABLE; 2]);
        synced.send(true).unwrap();
        assert_eq!(ready(State(health)).await, (StatusCode::OK, "ok"));
    }
}
