//! The life of one kubelet, from the boot of its instance on.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::api::NodeApi;
use super::board::{Board, Subscription};
use super::node::{credential, lease, node, readiness, ready_condition, renewal, status};
use super::pods::{Action, PodView, PodWork};
use super::watch::TokenView;
use crate::cloud::{Cloud, CloudError, Instance};
use crate::driver::internal_ip;
use crate::spec::{Join, KubeletSpec};

/// Between attempts after a failed request: the first wait, and the longest.
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// What all kubelets share.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub(super) cloud: Cloud,
    pub(super) api: NodeApi,
    pub(super) pods: Arc<Board<PodView>>,
    pub(super) tokens: Arc<Board<TokenView>>,
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
    around: Surroundings,
    instance: Instance,
    behaviour: watch::Receiver<Behaviour>,
    /// The driver was restarted since the instance was made.
    recovered: bool,
}

/// What went wrong in one attempt; the next one may do better.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the API server refused or did not answer")]
    Api(#[from] kube::Error),
    #[error("the cloud refused")]
    Cloud(#[from] CloudError),
    #[error("a Node of this name belongs to {0}")]
    NameTaken(String),
    #[error("an object cannot be built")]
    Object(#[from] serde_json::Error),
}

impl Kubelet {
    pub(super) fn new(
        around: Surroundings,
        instance: Instance,
        behaviour: watch::Receiver<Behaviour>,
        recovered: bool,
    ) -> Self {
        Self { around, instance, behaviour, recovered }
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
        self.around.cloud.clock().now()
    }

    async fn boot(&self) {
        sleep(until(self.now(), self.instance.boots_at)).await;
    }

    /// Joins, however long it takes; when it did.
    async fn join(&mut self) -> Timestamp {
        sleep(self.instance.join_latency.0).await;
        let mut backoff = FIRST_BACKOFF;
        loop {
            if !(self.recovered && self.is_registered().await) {
                self.admission().await;
            }
            match self.register().await {
                Ok(at) => return at,
                Err(error) => {
                    let node = self.name();
                    tracing::warn!(node, error = %chain(&error), "kubelet cannot join yet");
                }
            }
            sleep(backoff).await;
            backoff = (backoff * 2).min(LONGEST_BACKOFF);
        }
    }

    /// Whether it had joined, and the driver ended before that was noted.
    async fn is_registered(&self) -> bool {
        let found = self.around.api.get_node(self.name()).await;
        found.is_ok_and(|node| node.is_some_and(|node| provider_id(&node) == self.provider_id()))
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
                    let known = self.around.tokens.subscribe(&token.id);
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
            // Whoever decides on behaviour is gone, and this kubelet will be, too.
            std::future::pending::<()>().await;
        }
    }

    async fn register(&self) -> Result<Timestamp, Trouble> {
        let now = self.now();
        let wanted = node(&self.instance, now)?;
        let made = self.around.api.create_node(&wanted).await?;
        if made.is_none() {
            self.take_over_node().await?;
        }
        // Not every API server takes the status of a Node along when it is created.
        if !made.as_ref().is_some_and(is_ready) {
            let status = status(&self.instance, now);
            self.around.api.patch_node_status(self.name(), status).await?;
        }
        if let Some(uid) = made.and_then(|node| node.metadata.uid) {
            self.around.api.create_lease(&lease(self.name(), &uid, now)?).await?;
        }
        Ok(self.around.cloud.joined(self.provider_id())?)
    }

    /// Uses the Node that is there, if it is this instance's or nobody's.
    async fn take_over_node(&self) -> Result<(), Trouble> {
        let Some(found) = self.around.api.get_node(self.name()).await? else {
            return Err(Trouble::NameTaken("somebody who just left".to_owned()));
        };
        match provider_id(&found) {
            "" => Ok(self.around.api.claim_node(self.name(), self.provider_id()).await?),
            own if own == self.provider_id() => Ok(()),
            other => Err(Trouble::NameTaken(other.to_owned())),
        }
    }

    async fn serve(mut self, joined_at: Timestamp) {
        let pods = self.around.pods.subscribe(self.name());
        let mut work = Work {
            pods: PodWork::default(),
            lease_due: Instant::now() + self.first_renewal(),
            // A Node that was just registered is ready; an older one has to be asked.
            said_ready: (self.instance.joined_at.is_none()).then_some(true),
        };
        let mut backoff = FIRST_BACKOFF;
        loop {
            let next = match self.turn(&mut work, &pods, joined_at).await {
                Ok(next) => {
                    backoff = FIRST_BACKOFF;
                    next
                }
                Err(error) => {
                    let node = self.name();
                    tracing::warn!(node, error = %chain(&error), "kubelet tries again");
                    sleep(backoff).await;
                    backoff = (backoff * 2).min(LONGEST_BACKOFF);
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
    ) -> Result<Instant, Trouble> {
        let behaviour = self.behaviour.borrow_and_update().clone();
        if work.lease_due <= Instant::now() {
            self.renew().await?;
            work.lease_due = Instant::now() + self.around.renewal;
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

    async fn serve_pod(&self, action: &Action) -> Result<(), Trouble> {
        match action {
            Action::Start(pod) => {
                let host_ip = internal_ip(self.provider_id()).to_string();
                let patch = pod.running(self.now(), &host_ip);
                Ok(self.around.api.start_pod(pod, patch).await?)
            }
            Action::End(pod) => Ok(self.around.api.end_pod(pod).await?),
        }
    }

    async fn say_readiness(
        &self,
        work: &mut Work,
        behaviour: &Behaviour,
        joined_at: Timestamp,
    ) -> Result<Option<Instant>, Trouble> {
        let now = self.now();
        let (by_spec, changes_at) = readiness(&behaviour.spec, joined_at, now);
        let ready = behaviour.ready.unwrap_or(by_spec);
        let said = match work.said_ready {
            Some(said) => said,
            None => self.around.api.get_node(self.name()).await?.is_none_or(|n| is_ready(&n)),
        };
        if said != ready {
            let conditions = serde_json::json!({"conditions": [ready_condition(ready, now)]});
            self.around.api.patch_node_status(self.name(), conditions).await?;
        }
        work.said_ready = Some(ready);
        Ok(changes_at.map(|at| Instant::now() + until(now, at)))
    }

    async fn renew(&self) -> Result<(), Trouble> {
        let now = self.now();
        if self.around.api.renew_lease(self.name(), renewal(self.name(), now)).await? {
            return Ok(());
        }
        // It goes with its Node, and comes back only with one.
        let found = self.around.api.get_node(self.name()).await?;
        let ours = found.filter(|node| provider_id(node) == self.provider_id());
        if let Some(uid) = ours.and_then(|node| node.metadata.uid) {
            self.around.api.create_lease(&lease(self.name(), &uid, now)?).await?;
        }
        Ok(())
    }

    /// Spread over half the interval, so that a thousand kubelets that start at once do not renew
    /// at once.
    fn first_renewal(&self) -> Duration {
        let [.., last] = internal_ip(self.provider_id()).octets();
        let half = self.around.renewal / 2;
        half + half * u32::from(last) / u32::from(u8::MAX)
    }
}

/// What a serving kubelet remembers.
struct Work {
    pods: PodWork,
    lease_due: Instant,
    said_ready: Option<bool>,
}

fn provider_id(node: &Node) -> &str {
    node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default()
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

fn until(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or_default()
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
