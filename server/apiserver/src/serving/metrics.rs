//! What the server counts.

use std::time::Duration;

use http::StatusCode;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// Labels of a finished request. The verb is one of a closed set, so the family is bounded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    verb: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    verb: &'static str,
}

/// The server's metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    requests: Family<Answered, Counter>,
    seconds: Family<Asked, Histogram, fn() -> Histogram>,
    in_flight: Gauge,
}

/// From 100 us, an answer in process, to 10 s.
const BUCKETS: [f64; 11] = [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.05, 0.25, 1.0, 10.0];

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

/// The verbs there are; anything else is counted as `other`.
const VERBS: [&str; 8] =
    ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

impl Metrics {
    pub(super) fn new() -> Self {
        Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            in_flight: Gauge::default(),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_request",
            "Requests answered, by verb and HTTP code",
            self.requests.clone(),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "Time until the answer began, by verb",
            self.seconds.clone(),
        );
        registry.register(
            "apiserver_current_inflight_requests",
            "Requests whose answer has not begun",
            self.in_flight.clone(),
        );
    }

    /// Counts a request as being answered until the guard is dropped, which happens also when
    /// its client has gone.
    pub(super) fn begun(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    pub(super) fn answered(&self, verb: &str, code: StatusCode, took: Duration) {
        let verb = VERBS.iter().find(|known| **known == verb).copied().unwrap_or("other");
        self.requests.get_or_create(&Answered { verb, code: code.as_u16() }).inc();
        self.seconds.get_or_create(&Asked { verb }).observe(took.as_secs_f64());
    }
}

/// A request whose answer has not begun.
pub(super) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_verb_and_code_and_unknown_verbs_together() {
        let metrics = Metrics::new();
        let in_flight = metrics.begun();
        assert_eq!(metrics.in_flight.get(), 1);
        metrics.answered("list", StatusCode::OK, Duration::from_millis(1));
        metrics.answered("brew", StatusCode::METHOD_NOT_ALLOWED, Duration::ZERO);
        drop(in_flight);
        assert_eq!(metrics.in_flight.get(), 0);
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"apiserver_request_total{verb="list",code="200"} 1"#,
            r#"apiserver_request_total{verb="other",code="405"} 1"#,
            "apiserver_current_inflight_requests 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
