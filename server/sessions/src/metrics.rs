//! The counters of the sessions.

use std::time::Duration;

use ostler_api::ProviderName;
use ostler_api::driver::OperationKind;
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::hub::{Count, Map};

/// Seconds, from a fake driver to a slow cloud.
const SECONDS: [f64; 12] =
    [0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1200.0, 1800.0];

/// A provider as a label: cheap to clone, since some are made for every operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Named(ProviderName);

impl From<ProviderName> for Named {
    fn from(name: ProviderName) -> Self {
        Self(name)
    }
}

impl EncodeLabelValue for Named {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.as_str().encode(encoder)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfProvider {
    provider: Named,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfOperation {
    provider: Named,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfOutcome {
    provider: Named,
    kind: &'static str,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfEnd {
    provider: Named,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfEvent {
    provider: Named,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfInvocation {
    provider: String,
    kind: &'static str,
    result: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRequest {
    provider: Named,
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFailure {
    provider: Named,
    operation: &'static str,
    error_code: &'static str,
}

/// Name, help and metric in each row.
macro_rules! register {
    ($registry:ident; $($name:literal: $help:literal, $metric:expr;)*) => {
        $($registry.register($name, $help, $metric.clone());)*
    };
}
pub(crate) use register;

/// The counters of a provider's operations of one verb with a result: found without a search, for every operation needs
/// them once.
#[derive(Debug)]
struct Usual {
    queue_seconds: Histogram,
    operations: Counter,
    seconds: [Histogram; 2],
}

/// The same under the names that dashboards of machine-controller-manager know.
#[derive(Debug)]
struct UpstreamNames {
    seconds: Family<OfRequest, Histogram, fn() -> Histogram>,
    failed: Family<OfFailure, Counter>,
}

impl UpstreamNames {
    fn register(&self, registry: &mut Registry) {
        register! { registry;
            "mcm_cloud_api_driver_request_duration_seconds": "Time from submitting an operation to its outcome", self.seconds;
            "mcm_cloud_api_driver_requests_failed": "Operations that failed, by code", self.failed;
        }
    }

    fn failed(&self, provider: Named, operation: &'static str, code: &'static str, took: Duration) {
        let of = OfRequest { provider: provider.clone(), operation };
        self.seconds.get_or_create(&of).observe(took.as_secs_f64());
        let of = OfFailure { provider, operation, error_code: code };
        self.failed.get_or_create(&of).inc();
    }
}

/// The counters of one process.
#[derive(Debug)]
pub(crate) struct Metrics {
    usual: Mutex<Map<(ProviderName, OperationKind), Usual>>,
    operations: Family<OfOutcome, Counter>,
    upstream: UpstreamNames,
    seconds: Family<OfOperation, Histogram, fn() -> Histogram>,
    queue_seconds: Family<OfProvider, Histogram, fn() -> Histogram>,
    stalled: Family<OfOperation, Counter>,
    throttled: Family<OfProvider, Counter>,
    late: Family<OfProvider, Counter>,
    unclaimed: Family<OfProvider, Counter>,
    ended: Family<OfEnd, Counter>,
    invocations: Family<OfInvocation, Counter>,
    lost: Family<OfProvider, Counter>,
    events: Family<OfEvent, Counter>,
    events_dropped: Family<OfEnd, Counter>,
    turned_away: Family<OfReason, Counter>,
    refused: Family<OfReason, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(SECONDS);
        Self {
            usual: Mutex::default(),
            operations: Family::default(),
            upstream: UpstreamNames {
                seconds: Family::new_with_constructor(histogram),
                failed: Family::default(),
            },
            seconds: Family::new_with_constructor(histogram),
            queue_seconds: Family::new_with_constructor(histogram),
            stalled: Family::default(),
            throttled: Family::default(),
            late: Family::default(),
            unclaimed: Family::default(),
            ended: Family::default(),
            invocations: Family::default(),
            lost: Family::default(),
            events: Family::default(),
            events_dropped: Family::default(),
            turned_away: Family::default(),
            refused: Family::default(),
        }
    }
}

impl Metrics {
    /// Registers the counters.
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.upstream.register(registry);
        let registry = registry.sub_registry_with_prefix("ostler_driver");
        register! { registry;
            "operations": "Operations that ended, by code; OK is a result", self.operations;
            "operation_seconds": "Time from submitting an operation to its outcome", self.seconds;
            "queue_seconds": "Time that operations waited for credit before they were sent", self.queue_seconds;
            "stalled_operations": "Operations of which nothing was heard for too long", self.stalled;
            "throttled": "Times that the infrastructure throttled and creates paused", self.throttled;
            "late_results": "Results of operations that no controller waited for any more", self.late;
            "unclaimed_results": "Results dropped because no controller recorded them", self.unclaimed;
            "sessions_ended": "Sessions that ended, by reason", self.ended;
            "lost_operations": "Operations that a driver accepted and did not know any more", self.lost;
            "events": "Events of drivers about instances, by what they say", self.events;
            "events_dropped": "Events of drivers that led to no read, by reason", self.events_dropped;
            "turned_away": "Streams that were refused because too many came in a short time, by reason", self.turned_away;
            "calls_refused": "Calls whose caller was refused, by reason", self.refused;
            "debug_invocations": "Operations that people asked for by hand, by result", self.invocations;
        }
    }

    /// A caller was refused.
    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&OfReason { reason }).inc();
    }

    /// An operation was done by hand.
    pub(crate) fn invoked(&self, provider: &str, kind: OperationKind, result: &str) {
        let of = OfInvocation {
            provider: provider.to_owned(),
            kind: kind.name(),
            result: result.to_owned(),
        };
        self.invocations.get_or_create(&of).inc();
    }

    fn usual(&self, provider: &ProviderName, kind: OperationKind) -> Usual {
        let (provider, kind) = (Named(provider.clone()), kind.name());
        let of = OfOperation { provider: provider.clone(), kind };
        let seconds = self.seconds.get_or_create_owned(&of);
        let of = OfRequest { provider: provider.clone(), operation: kind };
        let upstream = self.upstream.seconds.get_or_create_owned(&of);
        let of = OfProvider { provider: provider.clone() };
        let queue_seconds = self.queue_seconds.get_or_create_owned(&of);
        let of = OfOutcome { provider, kind, code: "OK" };
        let operations = self.operations.get_or_create_owned(&of);
        Usual { queue_seconds, operations, seconds: [seconds, upstream] }
    }

    fn of_usual(&self, provider: ProviderName, kind: OperationKind, count: impl FnOnce(&Usual)) {
        let mut usual = self.usual.lock();
        let entry = usual.entry((provider, kind));
        count(entry.or_insert_with_key(|(provider, kind)| self.usual(provider, *kind)));
    }

    pub(crate) fn count(&self, count: Count) {
        match count {
            Count::Ended { provider, kind, code: "OK", took } => {
                self.of_usual(provider, kind, |of| {
                    of.seconds.iter().for_each(|it| it.observe(took.as_secs_f64()));
                    of.operations.inc();
                });
            }
            Count::Ended { provider, kind, code, took } => {
                self.upstream.failed(provider.clone().into(), kind.name(), code, took);
                let of = OfOperation { provider: provider.clone().into(), kind: kind.name() };
                self.seconds.get_or_create(&of).observe(took.as_secs_f64());
                let of = OfOutcome { provider: provider.into(), kind: kind.name(), code };
                self.operations.get_or_create(&of).inc();
            }
            Count::Sent { provider, kind, waited } => {
                self.of_usual(provider, kind, |of| of.queue_seconds.observe(waited.as_secs_f64()));
            }
            Count::Stalled { provider, kind } => {
                let of = OfOperation { provider: provider.into(), kind: kind.name() };
                self.stalled.get_or_create(&of).inc();
            }
            Count::Throttled { provider } => {
                self.throttled.get_or_create(&OfProvider { provider: provider.into() }).inc();
            }
            Count::Late { provider } => {
                self.late.get_or_create(&OfProvider { provider: provider.into() }).inc();
            }
            Count::Unclaimed { provider } => {
                self.unclaimed.get_or_create(&OfProvider { provider: provider.into() }).inc();
            }
            Count::Lost { provider } => {
                self.lost.get_or_create(&OfProvider { provider: provider.into() }).inc();
            }
            Count::Hinted { provider, kind } => {
                let of = OfEvent { provider: provider.into(), kind: kind.as_str() };
                self.events.get_or_create(&of).inc();
            }
            Count::HintDropped { provider, reason } => {
                self.events_dropped
                    .get_or_create(&OfEnd { provider: provider.into(), reason })
                    .inc();
            }
            Count::TurnedAway { reason } => {
                self.turned_away.get_or_create(&OfReason { reason }).inc();
            }
            Count::Closed { provider, reason } => {
                self.ended.get_or_create(&OfEnd { provider: provider.into(), reason }).inc();
            }
        }
    }
}
