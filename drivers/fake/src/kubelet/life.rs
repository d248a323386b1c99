//! The life of one kubelet, from the boot of its instance on.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeStatus;
use kube::api::Patch;
use ostler_kubelet::node::{LEASE, provider_id};
use ostler_kubelet::{KubeletApi, RequestError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::cache::{KeyedCache, Subscription};
use super::node::{credential, node, readiness, ready_condition, wrong};
use super::pods::{Action, PodView, PodWork};
use super::watch::TokenView;
use crate::cloud::{Cloud, Instance};
use crate::driver::internal_ip;
use crate::spec::{Join, KubeletSpec};

/// Between attempts after a failed request: the first wait, and the longest.
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// The parts that all kubelets share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) cloud: Cloud,
    pub(super) api: KubeletApi,
    pub(super) pods: Arc<KeyedCache<PodView>>,
    pub(super) tokens: Arc<KeyedCache<TokenView>>,
    /// Between two renewals of a Lease.
    pub(super) renewal: Duration,
}

/// How a kubelet behaves at present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Behaviour {
    pub(super) spec: KubeletSpec,
    /// Whether it says Ready, whatever the spec says.
    pub(super) ready: Option<bool>,
}

/// One kubelet.
pub(super) struct Kubelet {
    shared: Shared,
    instance: Instance,
    behaviour: watch::Receiver<Behaviour>,
    /// The driver was restarted since the instance was made.
    recovered: bool,
    /// The provider id of its Node.
    node_id: String,
}

impl Kubelet {
    pub(super) fn new(
        shared: Shared,
        instance: Instance,
        behaviour: watch::Receiver<Behaviour>,
        recovered: bool,
    ) -> Self {
        let id = &instance.provider_id;
        let capitals = behaviour.borrow().spec.capitals;
        let node_id = if capitals { id.to_uppercase() } else { id.clone() };
        Self { shared, instance, behaviour, recovered, node_id }
    }

    /// Lives until it is dropped.
    pub(super) async fn run(mut self) {
        self.boot().await;
        let joined_at = match self.instance.joined_at {
            Some(at) => at,
            None => self.join().await,
        };
        tracing::info!(node = self.name(), "kubelet serves its node");
        self.serve(joined_at).await;
    }

    fn name(&self) -> &str {
        &self.instance.identity.machine_name
    }

    fn now(&self) -> Timestamp {
        self.shared.cloud.clock().now()
    }

    async fn boot(&self) {
        sleep(until(self.now(), self.instance.boots_at)).await;
    }

    /// Joins, however long that takes; returns the time.
    async fn join(&mut self) -> Timestamp {
        sleep(self.instance.join_latency.0).await;
        let mut waits = waits();
        loop {
            if !(self.recovered && self.is_registered().await) {
                self.admission().await;
            }
            match self.register().await {
                Ok(at) => return at,
                Err(error) => {
                    let (node, error) = (self.name(), format!("{error:#}"));
                    tracing::warn!(node, error, "kubelet cannot join yet");
                }
            }
            sleep(waits.next().unwrap_or(LONGEST_BACKOFF)).await;
        }
    }

    /// Whether it had joined, and the driver ended before that was noted.
    async fn is_registered(&self) -> bool {
        let found = self.shared.api.node(self.name()).await;
        found.is_ok_and(|node| node.is_some_and(|node| provider_id(&node) == Some(&*self.node_id)))
    }

    fn provider_id(&self) -> &str {
        &self.instance.provider_id
    }

    /// Returns when the API server would let it in.
    async fn admission(&mut self) {
        loop {
            let join = self.behaviour.borrow_and_update().spec.join;
            let token = credential(&self.instance, join == Join::ForeignToken);
            match token.filter(|_| join != Join::Never) {
                None => self.behaviour_changed().await,
                Some(token) => {
                    let known = self.shared.tokens.subscribe(&token.id);
                    let now = self.now();
                    if known.values().iter().any(|view| view.admits(&token.secret, now)) {
                        return;
                    }
                    tracing::debug!(node = self.name(), token = token.id, "no such token yet");
                    tokio::select! {
                        () = known.changed() => {}
                        () = self.behaviour_changed() => {}
                    }
                }
            }
        }
    }

    async fn behaviour_changed(&mut self) {
        if self.behaviour.changed().await.is_err() {
            // The fleet is being dropped, and this kubelet with it.
            std::future::pending::<()>().await;
        }
    }

    async fn register(&self) -> anyhow::Result<Timestamp> {
        let now = self.now();
        self.shared.api.register(&node(&self.instance, &self.node_id, now), now).await?;
        Ok(self.shared.cloud.joined(self.provider_id())?)
    }

    async fn serve(mut self, joined_at: Timestamp) {
        let pods = self.shared.pods.subscribe(self.name());
        let (now, first, is_new) =
            (Instant::now(), self.first_renewal(), self.instance.joined_at.is_none());
        let mut work = Work {
            pods: PodWork::default(),
            // One that served before may be late already, and is spread after its first renewal.
            lease_due: if is_new { now + first } else { now },
            spread: (!is_new).then_some(first),
            // A Node that was just registered is ready; an older one has to be asked.
            said_ready: is_new.then_some(true),
            doubted_until: if is_new { now } else { now + LEASE },
        };
        let mut waits = waits();
        loop {
            let next = match self.turn(&mut work, &pods, joined_at).await {
                Ok(next) => {
                    waits = self::waits();
                    next
                }
                Err(error) => {
                    let (node, error) = (self.name(), format!("{:#}", anyhow::Error::from(error)));
                    tracing::warn!(node, error, "kubelet tries again");
                    // After a long silence the cluster may have marked the Node as unknown: report the status again.
                    work.said_ready = None;
                    sleep(waits.next().unwrap_or(LONGEST_BACKOFF)).await;
                    continue;
                }
            };
            tokio::select! {
                () = pods.changed() => {}
                () = self.behaviour_changed() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Does what is due; when to look again if nothing happens.
    async fn turn(
        &mut self,
        work: &mut Work,
        pods: &Subscription<PodView>,
        joined_at: Timestamp,
    ) -> Result<Instant, RequestError> {
        let behaviour = self.behaviour.borrow_and_update().clone();
        if work.lease_due <= Instant::now() {
            let now = Instant::now();
            if work.lease_due + self.shared.renewal < now || now < work.doubted_until {
                // The whole process stood still or was not there, and its Node may say so.
                work.said_ready = None;
            }
            let id = Some(&*self.node_id);
            self.shared.api.renew_lease(self.name(), id, self.now()).await?;
            let wait = work.spread.take().unwrap_or(self.shared.renewal);
            work.lease_due = Instant::now() + wait;
        }
        let readiness_due = self.say_readiness(work, &behaviour, joined_at).await?;
        let (actions, pods_due) = work.pods.plan(pods.values(), &behaviour.spec, Instant::now());
        let mut trouble = None;
        for action in actions {
            // A pod that cannot be served must not keep the others from it.
            match self.serve_pod(&action).await {
                Ok(()) => work.pods.done(&action),
                Err(error) => trouble = Some(error),
            }
        }
        if let Some(error) = trouble {
            return Err(error);
        }
        let due = [readiness_due, pods_due].into_iter().flatten();
        Ok(due.fold(work.lease_due, Instant::min))
    }

    async fn serve_pod(&self, action: &Action) -> Result<(), RequestError> {
        let api = &self.shared.api;
        match action {
            Action::Start(pod) => {
                let host_ip = internal_ip(self.provider_id()).to_string();
                let patch = Patch::Merge(pod.running(self.now(), &host_ip));
                api.patch_pod_status(&pod.namespace, &pod.name, &patch).await
            }
            Action::End(pod) => api.delete_pod(&pod.namespace, &pod.name, &pod.uid).await,
        }
    }

    async fn say_readiness(
        &self,
        work: &mut Work,
        behaviour: &Behaviour,
        joined_at: Timestamp,
    ) -> Result<Option<Instant>, RequestError> {
        let now = self.now();
        let (by_spec, changes_at) = readiness(&behaviour.spec, joined_at, now);
        let ready = behaviour.ready.unwrap_or(by_spec);
        let wrong = match work.said_ready {
            Some(said) if said == ready => Vec::new(),
            Some(_) => vec![ready_condition(ready, now)],
            None => {
                let node = self.shared.api.node(self.name()).await?;
                node.map(|node| wrong(&node, ready, now)).unwrap_or_default()
            }
        };
        if !wrong.is_empty() {
            let status = NodeStatus { conditions: Some(wrong), ..NodeStatus::default() };
            self.shared.api.patch_node_status(self.name(), &status).await?;
        }
        work.said_ready = Some(ready);
        Ok(changes_at.map(|at| Instant::now() + until(now, at)))
    }

    /// Spread over half the interval, so that a thousand kubelets that start together do not renew
    /// together.
    fn first_renewal(&self) -> Duration {
        let [.., last] = internal_ip(self.provider_id()).octets();
        let half = self.shared.renewal / 2;
        half + half * u32::from(last) / u32::from(u8::MAX)
    }
}

/// The memory of a serving kubelet.
struct Work {
    pods: PodWork,
    lease_due: Instant,
    /// Until the second renewal.
    spread: Option<Duration>,
    said_ready: Option<bool>,
    /// Until then what is said of the Node may be of the time before this kubelet started.
    doubted_until: Instant,
}

fn until(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or_default()
}

/// Waits that double between attempts, for ever.
fn waits() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(FIRST_BACKOFF)
        .with_max_delay(LONGEST_BACKOFF)
        .without_max_times()
        .build()
}
