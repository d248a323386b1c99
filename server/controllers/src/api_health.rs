//! Whether the API servers answer. While one of them does not, the health of Nodes is not known and
//! no Machine is given up for it; what that means is decided in [`ostler_lifecycle::outage`].
//!
//! A watch that breaks or a write that fails is a reason to ask at once; otherwise they are asked
//! every now and then.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
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
use crate::watch::ObjectName;

/// Name of an object that is not there: "not found" is an answer.
const ABSENT: &str = "ostler-api-check";

/// When the API servers are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiCheck {
    /// For how long they may be silent before that is said aloud. While they are, they are asked
    /// every fifteenth of this.
    pub timeout: Duration,
    /// How often they are asked while all is well.
    pub period: Duration,
}

impl Default for ApiCheck {
    /// Upstream's 30 s and 1 min.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), period: Duration::from_mins(1) }
    }
}

impl ApiCheck {
    fn when_down(self) -> Duration {
        self.timeout / 15
    }
}

/// Which APIs are asked.
#[derive(Debug, Clone)]
pub(crate) struct Probes {
    /// Where the Machines are, if that is asked.
    pub(crate) control: Option<Api<Machine>>,
    /// Where the Nodes are.
    pub(crate) targets: Vec<Api<Node>>,
}

impl Probes {
    async fn answer(&self, patience: Duration) -> bool {
        let targets = join_all(self.targets.iter().map(|target| target.get_opt(ABSENT)));
        let control = async {
            match &self.control {
                Some(control) => control.get_opt(ABSENT).await.is_ok(),
                None => true,
            }
        };
        let (control, targets) =
            tokio::join!(timeout(patience, control), timeout(patience, targets));
        let all_there = |answers: Vec<kube::Result<_>>| answers.iter().all(Result::is_ok);
        control.is_ok_and(|there| there) && targets.is_ok_and(all_there)
    }
}

/// What came of a check that somebody has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApiTransition {
    /// They answer again.
    Back,
    /// They were silent for long enough to say so.
    Frozen,
    /// They answer, and Nodes had time to report.
    Unfrozen,
}

/// What is known of API servers. One for all controllers: of the control cluster, and of the target
/// cluster if there is but one. Of several target clusters, each has its own.
#[derive(Debug)]
pub(crate) struct ApiHealth {
    /// Which, for the log.
    of: String,
    check: ApiCheck,
    clock: DebugClock,
    known: Mutex<Reachability>,
    asked: Notify,
    frozen: Gauge,
    outages: Counter,
}

impl ApiHealth {
    /// Nothing is known before it [runs](Self::run).
    pub(crate) fn new(check: ApiCheck, clock: Clock, registry: &mut Registry) -> Self {
        let (frozen, outages) = (Gauge::default(), Counter::default());
        registry.register(
            "mcm_machine_controller_frozen",
            "1 while no machine is given up because an API server does not answer",
            frozen.clone(),
        );
        registry.register(
            "ostler_api_outages",
            "How often an API server did not answer a check",
            outages.clone(),
        );
        let known = Mutex::new(Reachability::new(check.timeout, None, clock()));
        let (of, asked) = ("all".to_owned(), Notify::new());
        Self { of, check, clock: DebugClock(clock), known, asked, frozen, outages }
    }

    /// The same for one of several target clusters, whose outages are a matter of its own Machines
    /// only. It is down until somebody [asks](Self::ask).
    pub(crate) fn of_target(&self, cluster: &ObjectName) -> Self {
        let now = (self.clock.0)();
        let mut known = Reachability::new(self.check.timeout, Some(now), now);
        known.silent(now);
        Self {
            of: cluster.to_string(),
            check: self.check,
            clock: self.clock.clone(),
            known: Mutex::new(known),
            asked: Notify::new(),
            frozen: Gauge::default(),
            outages: self.outages.clone(),
        }
    }

    /// Nobody can ask any more.
    pub(crate) fn lost(&self) {
        self.known.lock().silent((self.clock.0)());
    }

    /// What a decision needs.
    pub(crate) fn view(&self, now: Timestamp) -> ApiView {
        self.known.lock().view(now)
    }

    /// Something was not answered: ask at once.
    pub(crate) fn check_again(&self) {
        self.asked.notify_one();
    }

    /// Asks for ever, and reports every transition. `before`: when the core before this one was last
    /// known to be served.
    pub(crate) async fn run(
        self: Arc<Self>,
        probes: Probes,
        before: Option<Timestamp>,
        told: impl Fn(ApiTransition),
    ) {
        *self.known.lock() = Reachability::new(self.check.timeout, before, (self.clock.0)());
        self.ask(probes, told).await;
    }

    /// The same, going on from what is known.
    pub(crate) async fn ask(self: Arc<Self>, probes: Probes, told: impl Fn(ApiTransition)) {
        let mut frozen = false;
        loop {
            self.pause().await;
            let asked = (self.clock.0)();
            let answer = probes.answer(self.check.timeout).await;
            let now = (self.clock.0)();
            if self.learn(answer, asked, now) {
                told(ApiTransition::Back);
            }
            let view = self.view(now);
            if view.frozen != frozen {
                frozen = view.frozen;
                self.frozen.set(i64::from(frozen));
                told(if frozen { ApiTransition::Frozen } else { ApiTransition::Unfrozen });
            }
        }
    }

    /// Until the next check. Doubts are heard at most as often as a silent server is asked. After
    /// an outage it is asked as often for a while: an outage counts from the last answer, and where
    /// one follows the other the time between them has to count for something.
    async fn pause(&self) {
        sleep(self.check.when_down()).await;
        let view = self.view((self.clock.0)());
        let calm = view.calm_for((self.clock.0)()).is_some_and(|calm| calm >= self.check.period);
        if !calm {
            return;
        }
        tokio::select! {
            () = sleep(self.check.period) => {}
            () = self.asked.notified() => {}
        }
    }

    /// True: an outage has ended.
    fn learn(&self, answer: bool, asked: Timestamp, now: Timestamp) -> bool {
        let mut known = self.known.lock();
        let was_down = known.is_down();
        if answer {
            known.answered(now);
        } else {
            known.silent(asked);
        }
        drop(known);
        match (was_down, answer) {
            (false, false) => {
                self.outages.inc();
                warn!(
                    of = self.of,
                    "an API server does not answer; no machine is given up meanwhile"
                );
            }
            (true, true) => info!(of = self.of, "the API servers answer again"),
            (false, true) | (true, false) => {}
        }
        was_down && answer
    }
}

#[cfg(test)]
#[path = "api_health_tests.rs"]
mod tests;
