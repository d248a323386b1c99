//! From a bounded queue to the collector. Nobody who has a span waits.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use ostler_dial::{Dial, Proxies};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::TraceContext;

/// Spans that wait: those of some seconds of a busy core.
const QUEUE: usize = 8192;
/// Spans of one request.
const BATCH: usize = 512;
/// For how long spans are gathered.
const GATHER: Duration = Duration::from_millis(500);
/// For the last spans of a process that ends.
const FLUSH: Duration = Duration::from_secs(2);
/// For a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Where spans go.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TraceArgs {
    /// Send a span of each operation to this collector, e.g. http://127.0.0.1:4317 (OTLP over gRPC); off by default
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
}

/// Why spans cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The endpoint is no URL that can be dialled.
    #[error(
        "--otlp-endpoint (OTEL_EXPORTER_OTLP_ENDPOINT) {endpoint:?} is not usable: {problem}; write http://HOST:4317 or https://HOST:PORT"
    )]
    Endpoint {
        /// The endpoint as given.
        endpoint: String,
        /// The fault.
        problem: String,
    },
}

/// An action with a beginning and an end. Its attributes never hold a spec, user data, a secret or the text of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// A verb, or a step.
    pub name: Cow<'static, str>,
    /// Its ids.
    pub context: TraceContext,
    /// The span that it is a part of, in the same trace.
    pub parent: Option<TraceContext>,
    /// How the span stands to its parent.
    pub role: Role,
    /// How long it took until now.
    pub took: Duration,
    /// The stable word of the error that it ended with.
    pub failed: Option<Cow<'static, str>>,
    /// Facts.
    pub attributes: Vec<(&'static str, String)>,
}

/// A span, and when it ended.
type Ended = (Span, SystemTime);

/// How a span stands to its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It has parts, and no parent.
    Whole,
    /// It asks another process.
    Asks,
    /// It serves another process, whose span is the parent.
    Serves,
}

/// Where spans are put. Cheap to clone; off by default.
#[derive(Debug, Clone, Default)]
pub struct Traces {
    on: Option<On>,
}

#[derive(Debug, Clone)]
struct On {
    queue: mpsc::Sender<Ended>,
    lost: Arc<AtomicU64>,
    end: CancellationToken,
    ended: CancellationToken,
}

impl Traces {
    /// Sends spans of the program `service` over `channel`. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// Other variables of the exporter are wrong.
    pub fn over(channel: Channel, service: &str) -> Result<Self, ExporterBuildError> {
        let exporter = SpanExporter::builder().with_tonic().with_channel(channel);
        let mut exporter = exporter.build()?;
        let mut resource = Resource::builder()
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name(service.to_owned());
        }
        exporter.set_resource(&resource.build());
        let (queue, spans) = mpsc::channel(QUEUE);
        let on = On { queue, lost: <_>::default(), end: <_>::default(), ended: <_>::default() };
        let sending = Sending { exporter, spans, lost: Arc::clone(&on.lost), failing: false };
        let (end, ended) = (on.end.clone(), on.ended.clone().drop_guard());
        tokio::spawn(async move {
            sending.run(end).await;
            drop(ended);
        });
        Ok(Self { on: Some(on) })
    }

    /// Whether spans are recorded.
    pub const fn is_on(&self) -> bool {
        self.on.is_some()
    }

    /// Takes a span that ends now. Never waits: a span for which there is no room is lost.
    pub fn record(&self, span: Span) {
        if let Some(on) = &self.on
            && on.queue.try_send((span, SystemTime::now())).is_err()
        {
            on.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes no more spans, and sends those that it has, for two seconds at most.
    pub async fn finish(&self) {
        let Some(on) = &self.on else { return };
        on.end.cancel();
        if timeout(FLUSH, on.ended.cancelled()).await.is_err() {
            tracing::warn!("the collector of traces does not answer; the last spans are lost");
        }
    }

    /// Spans that no collector got.
    pub fn lost(&self) -> u64 {
        self.on.as_ref().map_or(0, |on| on.lost.load(Ordering::Relaxed))
    }
}

impl TraceArgs {
    /// Begins to send spans of the program `service`, if a collector was given. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// The endpoint cannot be dialled. A collector that does not answer is no error.
    pub fn start(&self, service: &str) -> Result<Traces, TraceError> {
        let endpoint = self.otlp_endpoint.as_deref().map_or("", str::trim);
        if endpoint.is_empty() {
            return Ok(Traces::default());
        }
        let unusable =
            |problem: String| TraceError::Endpoint { endpoint: endpoint.to_owned(), problem };
        let channel = channel(endpoint).map_err(unusable)?;
        Traces::over(channel, service).map_err(|error| unusable(error.to_string()))
    }
}

/// Connects with the first request, and again after each loss.
fn channel(endpoint: &str) -> Result<Channel, String> {
    let to = Endpoint::from_shared(endpoint.to_owned()).map_err(|error| error.to_string())?;
    let mut to = to.connect_timeout(CONNECT);
    match to.uri().scheme_str() {
        Some("http") => {}
        Some("https") => to = to.tls_config(tls()?).map_err(|error| error.to_string())?,
        _ => return Err("it has no scheme http or https".to_owned()),
    }
    Ok(to.connect_with_connector_lazy(Dial::new(Proxies::of_environment())))
}

/// Trusts the certificates of OTEL_EXPORTER_OTLP_CERTIFICATE, else those of this system.
fn tls() -> Result<ClientTlsConfig, String> {
    let trusted = if let Some(file) = std::env::var_os("OTEL_EXPORTER_OTLP_CERTIFICATE") {
        std::fs::read(&file).map_err(|error| {
            format!("OTEL_EXPORTER_OTLP_CERTIFICATE {}: {error}", file.display())
        })?
    } else {
        let all = rustls_native_certs::load_native_certs().certs;
        let all: Vec<_> = all.iter().map(|it| pem::Pem::new("CERTIFICATE", it.to_vec())).collect();
        pem::encode_many(&all).into_bytes()
    };
    Ok(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(trusted)))
}

struct Sending {
    exporter: SpanExporter,
    spans: mpsc::Receiver<Ended>,
    lost: Arc<AtomicU64>,
    /// The log says so already.
    failing: bool,
}

impl Sending {
    async fn run(mut self, end: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            match end.run_until_cancelled(self.spans.recv_many(&mut batch, BATCH)).await {
                Some(0) => return,
                Some(_) => self.gather(&mut batch, &end).await,
                None => {
                    self.spans.close();
                    while self.spans.recv_many(&mut batch, BATCH).await > 0 {
                        self.send(&mut batch).await;
                    }
                    return;
                }
            }
            self.send(&mut batch).await;
        }
    }

    /// More spans, so that a request has those of a moment.
    async fn gather(&mut self, batch: &mut Vec<Ended>, end: &CancellationToken) {
        let until = Instant::now() + GATHER;
        while let Some(room @ 1..) = BATCH.checked_sub(batch.len()) {
            let more = timeout_at(until, self.spans.recv_many(batch, room));
            if !matches!(end.run_until_cancelled(more).await, Some(Ok(1..))) {
                return;
            }
        }
    }

    async fn send(&mut self, batch: &mut Vec<Ended>) {
        let count = batch.len();
        let batch = batch.drain(..).map(|(span, end)| data(span, end)).collect();
        match self.exporter.export(batch).await {
            Ok(()) if std::mem::take(&mut self.failing) => {
                tracing::info!("the collector of traces answers again");
            }
            Ok(()) => {}
            Err(error) => {
                self.lost.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(%error, "spans are lost: the collector of traces (--otlp-endpoint) does not take them");
                }
            }
        }
    }
}

fn data(span: Span, end_time: SystemTime) -> SpanData {
    let Span { name, context, parent, role, took, failed, attributes } = span;
    let TraceContext { trace, span } = context;
    let (trace, flags) = (TraceId::from(trace), TraceFlags::SAMPLED);
    let parent = parent.map_or(SpanId::INVALID, |parent| SpanId::from(parent.span));
    SpanData {
        span_context: SpanContext::new(trace, SpanId::from(span), flags, false, <_>::default()),
        parent_span_id: parent,
        parent_span_is_remote: role == Role::Serves,
        span_kind: match role {
            Role::Whole => SpanKind::Internal,
            Role::Asks => SpanKind::Client,
            Role::Serves => SpanKind::Server,
        },
        name,
        start_time: end_time.checked_sub(took).unwrap_or(end_time),
        end_time,
        attributes: attributes.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect(),
        dropped_attributes_count: 0,
        events: <_>::default(),
        links: <_>::default(),
        status: failed.map_or(Status::Ok, |word| Status::Error { description: word }),
        instrumentation_scope: InstrumentationScope::builder("ostler").build(),
    }
}
