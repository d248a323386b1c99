//! The metrics of the server.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use http::{Response, StatusCode};
use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::{
    counted::{Answered, Asker, Labels},
    kind::Kind,
};
use crate::{
    auth::{Attributes, Target},
    rest::respond,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    verb: &'static str,
}

/// Why a request was refused or a connection ended. Closed, so the families are bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Why {
    /// Too many requests of one identity or of all, or no turn in time.
    Requests,
    /// Too many connections of one identity or of all.
    Connections,
    /// Too many bytes of requests are under way.
    Bodies,
    /// Too many bytes of answers are not read.
    Answers,
    /// Too many bytes are kept for watches, or for answers that are not written.
    Kept,
    /// A body did not come in time.
    SlowBody,
    /// The body is larger than its sender may send.
    LargeBody,
    /// The work took too long.
    SlowRequest,
    /// An answer was not read.
    Stalled,
    /// A connection showed no credentials in time.
    Unknown,
    /// A connection without credentials made room for a newer one.
    Crowded,
    /// Answers to refused requests were not read.
    Refusals,
}

impl EncodeLabelValue for Why {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        let text = match self {
            Self::Requests => "requests",
            Self::Connections => "connections",
            Self::Bodies => "request_bytes",
            Self::Answers => "answer_bytes",
            Self::Kept => "kept_bytes",
            Self::SlowBody => "slow_body",
            Self::LargeBody => "large_body",
            Self::SlowRequest => "slow_request",
            Self::Stalled => "stalled_answer",
            Self::Unknown => "no_credentials",
            Self::Crowded => "crowded",
            Self::Refusals => "unread_refusals",
        };
        text.encode(encoder)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: Why,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    kind: &'static str,
}

/// The server's metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    refused: Family<Reason, Counter>,
    ended: Family<Reason, Counter>,
    held: [Gauge; Kind::ALL.len()],
    held_family: Family<Of, Gauge>,
    strangers: Gauge,
    requests: Family<Answered, Counter>,
    labels: Arc<Mutex<Labels>>,
    seconds: Family<Asked, Histogram, fn() -> Histogram>,
    in_flight: Gauge,
}

/// From 100 us, an answer in process, to 10 s.
const BUCKETS: [f64; 11] = [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.05, 0.25, 1.0, 10.0];

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

impl Metrics {
    pub(super) fn new() -> Self {
        let held_family = Family::<Of, Gauge>::default();
        let held = |kind: Kind| held_family.get_or_create_owned(&Of { kind: kind.name() });
        Self {
            held: Kind::ALL.map(held),
            refused: Family::default(),
            ended: Family::default(),
            held_family,
            strangers: Gauge::default(),
            requests: Family::default(),
            labels: Arc::default(),
            seconds: Family::new_with_constructor(histogram),
            in_flight: Gauge::default(),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Requests answered, by verb, resource, HTTP code and user agent";
        registry.register("apiserver_request", help, self.requests.clone());
        let help = "Time until the answer began, by verb";
        registry.register("apiserver_request_duration_seconds", help, self.seconds.clone());
        let help = "Requests whose answer has not begun";
        registry.register("apiserver_current_inflight_requests", help, self.in_flight.clone());
        let help = "Requests refused for lack of room or time, by reason";
        registry.register("apiserver_refused", help, self.refused.clone());
        let help = "Answers and connections that the server ended, by reason";
        registry.register("apiserver_ended", help, self.ended.clone());
        let help = "Connections that have not shown valid credentials";
        registry.register("apiserver_unknown_connections", help, self.strangers.clone());
        let help = "Connections, requests, watches and bytes that clients over the network hold";
        registry.register("apiserver_held", help, self.held_family.clone());
    }

    /// Answers `GET /metrics`; none for other requests.
    pub(super) fn answer(&self, attributes: &Attributes) -> Option<Response<Body>> {
        let Target::Path(path) = &attributes.target else { return None };
        if path != "/metrics" || attributes.verb != "get" {
            return None;
        }
        let mut registry = Registry::default();
        self.register(&mut registry);
        let mut text = String::new();
        // a String takes everything
        encode(&mut text, &registry).ok()?;
        Some(respond::text(StatusCode::OK, text))
    }

    pub(super) fn refused(&self, reason: Why) {
        self.refused.get_or_create(&Reason { reason }).inc();
    }

    pub(super) fn ended(&self, reason: Why) {
        self.ended.get_or_create(&Reason { reason }).inc();
    }

    /// The gauge of held amounts of `kind`.
    pub(super) fn held(&self, kind: Kind) -> &Gauge {
        // The array has a place for each kind.
        self.held.get(kind as usize).unwrap_or(&self.strangers)
    }

    pub(super) fn strangers(&self) -> &Gauge {
        &self.strangers
    }

    /// Counts a request as being answered until the guard is dropped, which happens also when
    /// its client has gone.
    pub(super) fn begun(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    pub(super) fn answered(&self, asker: &Asker, code: StatusCode, took: Duration) {
        let answered = self.labels.lock().of(asker, code);
        self.seconds.get_or_create(&Asked { verb: answered.verb }).observe(took.as_secs_f64());
        self.requests.get_or_create(&answered).inc();
    }
}

/// A request whose answer has not begun.
pub(super) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}
