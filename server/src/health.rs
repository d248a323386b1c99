//! `/metrics`, `/healthz` and `/readyz` over plain HTTP on loopback.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use ostler_sessions::{Gate, GateRules, Guarded};
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::process;

const PLAIN: [(header::HeaderName, &str); 1] =
    [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
const OPEN_METRICS: &str = "application/openmetrics-text";
const NOT_STARTED: &str = "the API server has not answered yet";

/// How long a connection lives: clients do not authenticate here. Scrapers connect again.
const CONNECTION_LIFE: Duration = Duration::from_mins(5);

/// The listener's content: nothing yet while the core waits for the API server.
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
    pub(crate) fn show(&self, mut registry: Registry, synced: watch::Receiver<bool>) {
        process::register(&mut registry);
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

async fn metrics(State(health): State<Health>, headers: HeaderMap) -> impl IntoResponse {
    let mut text = String::new();
    let Some(Shown { registry, .. }) = health.0.get() else {
        return (StatusCode::SERVICE_UNAVAILABLE, PLAIN, NOT_STARTED.to_owned());
    };
    let accept = headers.get(header::ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    match prometheus_client::encoding::text::encode(&mut text, registry) {
        Ok(()) if accept.contains(OPEN_METRICS) => {
            let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, [(header::CONTENT_TYPE, media_type)], text)
        }
        Ok(()) => {
            let media_type = "text/plain; version=0.0.4; charset=utf-8";
            (StatusCode::OK, [(header::CONTENT_TYPE, media_type)], older(&text))
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, PLAIN, error.to_string()),
    }
}

/// The text format from before OpenMetrics, in which a family has the name of its samples.
fn older(text: &str) -> String {
    let mut lines = Vec::new();
    // The name and the help of the family that begins.
    let mut begun = ("", "");
    for line in text.lines() {
        let Some(about) = line.strip_prefix("# ") else {
            lines.push(line.to_owned());
            continue;
        };
        let mut words = about.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("HELP"), Some(name), help) => begun = (name, help.unwrap_or_default()),
            (Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                lines.push(format!("# HELP {}{suffix} {}", begun.0, begun.1));
                lines.push(format!("# TYPE {name}{suffix} {kind}"));
            }
            // The unit, and the end.
            _ => {}
        }
    }
    lines.push(String::new());
    lines.join("\n")
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

    #[test]
    fn who_does_not_ask_for_open_metrics_gets_families_by_the_name_of_their_samples() {
        let open = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
            a_seconds_total{x=\"# y\"} 1\n# HELP b What.\n# TYPE b info\nb_info{v=\"1\"} 1\n\
            # HELP c How many.\n# TYPE c gauge\nc 2\n# EOF\n";
        let older_one = "# HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\n\
            a_seconds_total{x=\"# y\"} 1\n# HELP b_info What.\n# TYPE b_info gauge\nb_info{v=\"1\"} 1\n\
            # HELP c How many.\n# TYPE c gauge\nc 2\n";
        assert_eq!(older(open), older_one);
    }

    #[test]
    fn the_process_tells_of_itself() {
        let (mut registry, mut text) = (Registry::default(), String::new());
        process::register(&mut registry);
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for name in [
            "process_cpu_seconds_total",
            "process_start_time_seconds",
            "process_virtual_memory_bytes",
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_max_fds",
            "ostler_build_info",
        ] {
            assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
        }
    }

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
