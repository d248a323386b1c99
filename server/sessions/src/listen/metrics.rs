//! The counters at the door.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::tls::ServerTls;

/// Why a connection got no further than the door.
#[derive(Debug, thiserror::Error)]
pub(super) enum Rejection {
    #[error("it speaks plaintext to a port that speaks TLS; it must dial https://")]
    Plaintext,
    #[error("the TLS handshake failed: {0}")]
    Handshake(io::Error),
    #[error("it does not speak HTTP/2 (ALPN h2)")]
    NotHttp2,
    #[error("its certificate has no name; it needs one SPIFFE id, a DNS name or a common name")]
    Nameless,
    #[error("it said nothing")]
    Silent,
    #[error("the TLS handshake took too long")]
    Timeout,
    #[error("too many concurrent TLS handshakes, and this one was the oldest")]
    Crowded,
}

impl Rejection {
    fn reason(&self) -> &'static str {
        match self {
            Self::Plaintext => "Plaintext",
            Self::Handshake(_) => "Handshake",
            Self::NotHttp2 => "NotHttp2",
            Self::Nameless => "Nameless",
            Self::Silent => "Silent",
            Self::Timeout => "Timeout",
            Self::Crowded => "Crowded",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReason {
    reason: &'static str,
}

/// Counters of all listeners of drivers. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Metrics {
    rejected: Family<OfReason, Counter>,
}

impl Metrics {
    pub(super) fn rejected(&self, address: SocketAddr, why: &Rejection) {
        self.rejected.get_or_create(&OfReason { reason: why.reason() }).inc();
        // Probes of load balancers say nothing; they are no news.
        if matches!(why, Rejection::Silent) {
            tracing::debug!(peer = %address, reason = %why, "connection ended at the door");
        } else {
            tracing::warn!(peer = %address, reason = %why, "connection refused at the door");
        }
    }

    pub(super) fn register(&self, tls: Option<&Arc<ServerTls>>, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("ostler_driver_listener");
        registry.register(
            "rejected",
            "Connections that ended before any call, by reason",
            self.rejected.clone(),
        );
        if let Some(tls) = tls {
            registry.register_collector(Box::new(OfCertificate(Arc::downgrade(tls))));
        }
    }
}

/// The state of the certificate at the time of a scrape.
#[derive(Debug)]
struct OfCertificate(Weak<ServerTls>);

impl Collector for OfCertificate {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(tls) = self.0.upgrade() else { return Ok(()) };
        let ends = ConstGauge::new(tls.not_after());
        let help = "When the certificate that drivers see ends, in seconds since 1970";
        let name = "certificate_expiry_timestamp_seconds";
        let metric = encoder.encode_descriptor(name, help, None, ends.metric_type())?;
        ends.encode(metric)?;
        let failures = ConstCounter::new(tls.failures());
        let help = "Looks at the certificate's files that found something unusable";
        let name = "certificate_reload_failures";
        let metric = encoder.encode_descriptor(name, help, None, failures.metric_type())?;
        failures.encode(metric)
    }
}
