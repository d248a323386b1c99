//! Checks whether the API servers answer. While an API server does not answer, the health of Nodes is unknown and no
//! Machine fails for it; [`ostler_lifecycle::outage`] decides.
//!
//! The servers are checked periodically, and immediately after a watch or a write failed.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{try_join, try_join_all};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use ostler_api::Machine;
use ostler_lifecycle::outage::{ApiView, Reachability};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::clock::{Clock, DebugClock};
use crate::watch::{ObjectName, causes};

/// Name of an object that does not exist: "not found" counts as an answer.
const ABSENT: &str = "ostler-api-check";

/// Most characters kept of a check's failure.
const CAUSE: usize = 300;

/// When the API servers are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiCheck {
    /// How long they may be silent before the outage is reported. During the silence, a check runs every fifteenth of
    /// this time.
    pub timeout: Duration,
    /// The period of checks while the servers answer.
    pub period: Duration,
}

impl Default for ApiCheck {
    /// Upstream's defaults: 30 s and 1 min.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), period: Duration::from_mins(1) }
    }
}

impl ApiCheck {
    fn when_down(self) -> Duration {
        self.timeout / 15
    }
}

/// The APIs to check.
#[derive(Debug, Clone)]
pub(crate) struct Probes {
    /// The API of the Machines, if checked.
    pub(crate) control: Option<Api<Machine>>,
    /// The APIs that serve the Nodes.
    pub(crate) targets: Vec<Api<Node>>,
}

impl Probes {
    /// # Errors
    /// Whether all servers answered, or the failure.
    async fn answer(&self, patience: Duration) -> Result<(), String> {
        let targets = try_join_all(self.targets.iter().map(|target| target.get_opt(ABSENT)));
        let control = async {
            match &self.control {
                Some(control) => control.get_opt(ABSENT).await.map(drop),
                None => Ok(()),
            }
        };
        match timeout(patience, try_join(control, targets)).await {
            Ok(answers) => answers.map(drop).map_err(|failure| causes(&failure)),
            Err(_) => Err(format!("no answer within {}s", patience.as_secs())),
        }
    }
}

/// A change of health that controllers have to react to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApiTransition {
    /// The servers answer again.
    Back,
    /// The servers have been silent for the timeout.
    Frozen,
    /// The servers answer, and Nodes had time to report.
    Unfrozen,
}

/// The health of API servers. All controllers share one, for the control cluster and a single target cluster. Each of
/// several target clusters has its own.
#[derive(Debug)]
pub(crate) struct ApiHealth {
    /// The name in the log.
    name: String,
    check: ApiCheck,
    clock: DebugClock,
    known: Mutex<Reachability>,
    /// The failure of the last check.
    cause: Mutex<Option<Arc<str>>>,
    check_now: Notify,
    frozen: Gauge,
    outages: Counter,
}

impl ApiHealth {
    /// The health is unknown until this [runs](Self::run).
    pub(crate) fn new(check: ApiCheck, clock: Clock, registry: &mut Registry) -> Self {
        let (frozen, outages) = (Gauge::default(), Counter::default());
        registry.register(
            "mcm_machine_controller_frozen",
            "1 while no machine fails because an API server does not answer",
            frozen.clone(),
        );
        registry.register(
            "ostler_api_outages",
            "Checks that an API server did not answer",
            outages.clone(),
        );
        let known = Mutex::new(Reachability::new(check.timeout, None, clock()));
        let (name, check_now) = ("all".to_owned(), Notify::new());
        let (clock, cause) = (DebugClock(clock), Mutex::default());
        Self { name, check, clock, known, cause, check_now, frozen, outages }
    }

    /// The health of one of several target clusters, only for Machines of the cluster. The cluster counts as down until
    /// [`Self::ask`] runs.
    pub(crate) fn of_target(&self, cluster: &ObjectName) -> Self {
        let now = (self.clock.0)();
        let mut known = Reachability::new(self.check.timeout, Some(now), now);
        known.silent(now);
        Self {
            name: cluster.to_string(),
            check: self.check,
            clock: self.clock.clone(),
            known: Mutex::new(known),
            cause: Mutex::default(),
            check_now: Notify::new(),
            frozen: Gauge::default(),
            outages: self.outages.clone(),
        }
    }

    /// The cluster cannot be checked any more.
    pub(crate) fn lost(&self) {
        self.known.lock().silent((self.clock.0)());
    }

    /// The view for a decision.
    pub(crate) fn view(&self, now: Timestamp) -> ApiView {
        ApiView { cause: self.cause(), ..self.known.lock().view(now) }
    }

    /// The failure in place of an answer to the last check.
    pub(crate) fn cause(&self) -> Option<Arc<str>> {
        self.cause.lock().clone()
    }

    /// A request got no answer: check immediately.
    pub(crate) fn check_again(&self) {
        self.check_now.notify_one();
    }

    /// Checks for ever and reports every transition. `before`: when the previous core was last known to be served.
    pub(crate) async fn run(
        self: Arc<Self>,
        probes: Probes,
        before: Option<Timestamp>,
        on_transition: impl Fn(ApiTransition),
    ) {
        *self.known.lock() = Reachability::new(self.check.timeout, before, (self.clock.0)());
        self.ask(probes, on_transition).await;
    }

    /// As [`Self::run`], but keeps the current state.
    pub(crate) async fn ask(
        self: Arc<Self>,
        probes: Probes,
        on_transition: impl Fn(ApiTransition),
    ) {
        let mut frozen = false;
        loop {
            self.pause().await;
            let asked = (self.clock.0)();
            let answer = probes.answer(self.check.timeout).await;
            let now = (self.clock.0)();
            if self.record_answer(&answer, asked, now) {
                on_transition(ApiTransition::Back);
            }
            let view = self.view(now);
            if view.frozen != frozen {
                frozen = view.frozen;
                self.frozen.set(i64::from(frozen));
                on_transition(if frozen { ApiTransition::Frozen } else { ApiTransition::Unfrozen });
            }
        }
    }

    /// Waits for the next check. [`Self::check_again`] never checks more often than a silent server is checked. The
    /// fast rhythm continues for a while after an outage: an outage counts from the last answer, so answers between
    /// two outages in a row must be noticed.
    async fn pause(&self) {
        sleep(self.check.when_down()).await;
        let view = self.view((self.clock.0)());
        let calm = view.calm_for((self.clock.0)()).is_some_and(|calm| calm >= self.check.period);
        if !calm {
            return;
        }
        tokio::select! {
            () = sleep(self.check.period) => {}
            () = self.check_now.notified() => {}
        }
    }

    /// True: an outage has ended.
    pub(crate) fn record_answer(
        &self,
        answer: &Result<(), String>,
        asked: Timestamp,
        now: Timestamp,
    ) -> bool {
        let mut known = self.known.lock();
        let was_down = known.is_down();
        match answer {
            Ok(()) => known.answered(now),
            Err(_) => known.silent(asked),
        }
        drop(known);
        // It becomes part of statuses, and the API server may be that of a tenant.
        let cause =
            answer.as_ref().err().map(|error| error.chars().take(CAUSE).collect::<String>());
        *self.cause.lock() = cause.map(Into::into);
        match (was_down, answer) {
            (false, Err(error)) => {
                self.outages.inc();
                let of = &self.name;
                warn!(of, error, "an API server does not answer; no machine fails meanwhile");
            }
            (true, Ok(())) => info!(of = self.name, "the API servers answer again"),
            (false, Ok(())) | (true, Err(_)) => {}
        }
        was_down && answer.is_ok()
    }
}

#[cfg(test)]
#[path = "api_health_tests.rs"]
mod tests;
