//! `/metrics`, `/healthz` and `/readyz` over plain HTTP on loopback.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

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
    health: Health,
    end: CancellationToken,
) -> anyhow::Result<()> {
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
