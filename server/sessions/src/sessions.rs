//! The handle that everything else uses.

use std::sync::Arc;
use std::time::Duration;

use ostler_api::driver::{Certainty, ErrorCode};
use ostler_api::operation::{Dispatch, Failure, OperationView, Outcome, Reason, Target};
use ostler_api::{OperationId, ProviderName, Uid};
use ostler_proto::v1alpha1::{ListOperationsRequest, OperationInfo};
use ostler_proto::{scrub, scrub_bootstrap_tokens};
use prometheus_client::registry::Registry;
use tokio::sync::{broadcast, oneshot};
use tokio::time::Instant;
use tonic::service::Routes;

use crate::hub::{Answer, Count, Owner, creation};
use crate::operation::Order;
use crate::scrape;
use crate::service::{self, Health};
use crate::shell::Shell;
use crate::{
    Authenticator, ClassSource, IdComparisons, ProviderState, SessionEvent, SessionsOptions,
    SubmitError, Term, convert,
};

/// All driver sessions. Cheap to clone; every clone is the same.
#[derive(Debug, Clone)]
pub struct Sessions {
    pub(crate) shell: Arc<Shell>,
    pub(crate) health: Health,
}

impl Sessions {
    /// No sessions yet. Must be called on a tokio runtime.
    pub fn new(
        options: SessionsOptions,
        classes: Arc<dyn ClassSource>,
        tokens: Arc<dyn Authenticator>,
    ) -> Self {
        let shell = Shell::start(options, classes, tokens);
        let health = Health::start(&shell);
        Self { shell, health }
    }

    /// The gRPC services: DriverService, health, reflection v1 and v1alpha. Register,
    /// GetMachineClass and GetSecret need a bearer token; health and reflection do not.
    pub fn service(&self) -> Routes {
        service::routes(&self.shell, &self.health)
    }

    /// This core leads from now on, in this term: drivers are taken, and operations carry the term. Before, drivers are
    /// told `NOT_LEADER`.
    pub fn lead(&self, term: Term) {
        self.shell.lead(term);
    }

    /// This process leads nothing, and asks drivers all the same: GetMachineStatus, ListMachines and ValidateClass
    /// alone, outside fencing. Operations that drivers hold for the leading core stay theirs: nothing is ruled on, and
    /// only results of such questions are acknowledged.
    pub fn look(&self) {
        self.shell.look();
    }

    /// The Lease is ours until then: without another word, nothing is sent after it.
    pub fn lease_until(&self, end: Instant) {
        self.shell.with(|hub, _| hub.lease_until(end));
    }

    /// The cluster that every operation is for.
    pub fn cluster_id(&self) -> &str {
        &self.shell.options.cluster_id
    }

    /// Previous ids of the cluster.
    pub fn previous_cluster_ids(&self) -> &[String] {
        &self.shell.options.previous_cluster_ids
    }

    /// Whether drivers may still come back with operations that this core does
    /// not know, because it began to lead only lately. Until then it is unknown what still runs for
    /// a target with an intent of an earlier term, nor whom an instance belongs to.
    pub fn adoption_open(&self) -> bool {
        self.adoption_left().is_some()
    }

    /// For how long [`Self::adoption_open`] holds.
    pub fn adoption_left(&self) -> Option<Duration> {
        self.shell.with(|hub, now| hub.adoption_left(now))
    }

    /// Asks the driver of a session to dial again. A ready standby takes over immediately; what
    /// runs may finish on the old session for `close_after` ([`crate::Timing::drain`] by default).
    /// `false`: there is no session of this id.
    pub fn drain_session(&self, session_id: &str, close_after: Option<Duration>) -> bool {
        let close_after = close_after.unwrap_or(self.shell.options.timing.drain);
        self.shell.with(|hub, now| hub.drain_session(now, session_id, close_after))
    }

    /// Registers the metrics, once.
    pub fn register_metrics(&self, registry: &mut Registry) {
        scrape::register(&self.shell, registry);
    }

    /// Providers with sessions here, or with operations waiting for one, by name.
    pub fn providers(&self) -> Vec<ProviderState> {
        self.shell.with(|hub, now| hub.provider_states(now))
    }

    /// A provider of [`Self::providers`].
    pub fn provider(&self, name: &ProviderName) -> Option<ProviderState> {
        self.shell.with(|hub, now| hub.state_of(now, name))
    }

    /// How drivers compare provider ids, kept up to date.
    pub fn comparisons(&self) -> IdComparisons {
        self.shell.with(|hub, _| hub.comparisons())
    }

    /// The events from now on. A subscriber that lags loses events, see [`SessionEvent`].
    pub fn subscribe(&self) -> broadcast::Receiver<SessionEvent> {
        self.shell.events.subscribe()
    }

    /// Accepts an operation for dispatch; never waits for the driver. Its outcome is shown by
    /// [`Self::view`] and stays until [`Self::acknowledge`]; for 15 minutes at most, because a
    /// target may be gone without an event that said so.
    pub fn submit(&self, request: Dispatch) -> Result<(), SubmitError> {
        self.order(convert::order(request, self.cluster_id()), Owner::Target)
    }

    /// The known state of the operation of the target with this UID.
    pub fn view(&self, target_uid: &str) -> OperationView {
        self.shell.with(|hub, now| hub.view(now, target_uid))
    }

    /// The operations that drivers have now, oldest first, at most `limit`.
    pub fn in_flight(&self, limit: usize) -> Vec<OperationInfo> {
        let all = ListOperationsRequest::default();
        let (mut shown, _) = self.shell.with(|hub, now| hub.operation_infos(now, &all, usize::MAX));
        shown.retain(|it| !it.session_id.is_empty());
        shown.truncate(limit);
        shown
    }

    /// UIDs of all targets that are not idle.
    pub fn targets(&self) -> Vec<Uid> {
        self.shell.with(|hub, _| hub.targets())
    }

    /// The outcome of this operation is durably recorded: the driver may forget it, and the
    /// target is free. Nothing happens if there is no such outcome.
    pub fn acknowledge(&self, operation_id: &OperationId) {
        self.shell.with(|hub, now| hub.acknowledge(now, operation_id));
    }

    /// The target with this UID is gone, so nothing will record the outcome of its operation: the driver may forget it
    /// as soon as it is there.
    pub fn abandon(&self, target_uid: &str) {
        self.shell.with(|hub, now| hub.abandon(now, target_uid));
    }

    /// Asks the driver to stop. The outcome still comes, and tells how the operation ended. An operation that was not
    /// sent yet ends immediately.
    pub fn cancel(&self, operation_id: &OperationId, reason: &str) {
        self.shell.with(|hub, now| hub.cancel(now, operation_id, reason));
    }

    /// Sends an operation and waits for its outcome, which needs no acknowledgement. Reads do not
    /// wait for the operation of their target; mutations fail if there is one. Dropping the
    /// future cancels the operation.
    pub fn call(&self, request: Dispatch) -> impl Future<Output = Outcome> + Send {
        let mut order = convert::order(request, self.cluster_id());
        let volumes = std::mem::take(&mut order.volumes);
        async move {
            let answer = self.try_call(order).await.map_err(|refused| refused.failure())?;
            (*answer).and_then(|response| convert::outcome(response, volumes))
        }
    }

    /// As [`Self::call`], with the answer as it came, and apart from refusals.
    pub(crate) async fn try_call(&self, order: Order) -> Result<Box<Answer>, SubmitError> {
        let (caller, answer) = oneshot::channel();
        let operation_id = order.id.clone();
        self.order(order, Owner::Caller(caller))?;
        let mut abandoned = Abandoned { sessions: self, operation_id: Some(operation_id) };
        let answer = answer.await;
        abandoned.operation_id = None;
        Ok(answer.unwrap_or_else(|_| {
            let (code, message) = (ErrorCode::Unavailable, "the core stops");
            let failure =
                Failure::by_core(code, Reason::CoreNoSession, message, Certainty::Unknown);
            Box::new(Err(failure))
        }))
    }

    /// Sends nothing more from here on, and takes no new sessions. Returns once drivers have the answers to their
    /// look-ups, after [`crate::Timing::finish`] at the latest. To be followed by [`Self::stop`]; only for a core that
    /// may still lead while it waits.
    pub async fn finish(&self) {
        self.shell.finish().await;
    }

    /// Sends nothing more from here on, tells every driver, and ends its session. No new sessions
    /// are taken. The first thing to do when leadership is lost.
    pub fn stop(&self) {
        self.shell.stop();
    }

    /// The creation of a machine is over, after so long: the span that its operations are parts of.
    pub fn created(&self, target: &Target, took: Duration, failed: Option<&'static str>) {
        let traces = &self.shell.options.traces;
        if traces.is_on() {
            traces.record(creation(target, took, failed));
        }
    }

    /// An event of a driver, see [`SessionEvent::Hint`], is not looked into, for this reason.
    pub fn hint_dropped(&self, provider: &str, reason: &'static str) {
        let provider = provider.to_owned();
        self.shell.metrics.count(Count::HintDropped { provider: provider.into(), reason });
    }

    /// `text` without the confidential values of a class.
    pub fn scrub(&self, namespace: &str, class: &str, text: &str) -> String {
        let confidential = self.shell.classes.confidential(namespace, class);
        scrub_bootstrap_tokens(&scrub(text, confidential.iter().map(Vec::as_slice)))
    }

    fn order(&self, mut order: Order, owner: Owner) -> Result<(), SubmitError> {
        let shell = &self.shell;
        let class = order.operation.machine_class.as_ref().filter(|class| !class.name.is_empty());
        if let Some(class) = class {
            (order.class, order.secret) = shell.revisions.pin(shell.classes.as_ref(), class);
        }
        if let (Some(named), Some(class)) = (&mut order.operation.machine_class, &order.class) {
            named.uid = class.uid.to_string();
        }
        shell.with(|hub, now| hub.submit(now, order, owner))
    }
}

/// Cancels the operation of a call whose future was dropped.
struct Abandoned<'a> {
    sessions: &'a Sessions,
    /// `None`: there is an answer.
    operation_id: Option<OperationId>,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if let Some(operation_id) = &self.operation_id {
            self.sessions.cancel(operation_id, "the caller is gone");
        }
    }
}
