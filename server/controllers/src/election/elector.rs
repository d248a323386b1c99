//! Takes, keeps and releases the Lease.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client};
use ostler_api::names::CLUSTER_ID_CONFIG_MAP;
use ostler_lifecycle::home::{self, Need};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::ElectionSettings;
use super::record::{self, Move, Observed, Predecessor};
use super::running::Running;
use crate::clock::{Clock, DebugClock};
use crate::home_namespace::HomeNamespace;
use crate::watch::causes;
use ostler_api::operation::Term;

/// How often in a row a write is tried when other clients edit the Lease meanwhile; afterwards the next renewal tries.
const WRITES: usize = 5;

/// Why leadership ended or could not be acquired.
#[derive(Debug, thiserror::Error)]
pub enum ElectionError {
    /// The API server did not let the lease be renewed in time; another process may lead by now. This process must end.
    #[error(
        "lost the lease {lease:?}: not renewed for {}s, {}{}", after.as_secs(),
        said.as_ref().map_or_else(
            || "the API server did not answer".to_owned(), |said| format!("the API server said: {said}")
        ),
        besides(*stood_still)
    )]
    Lost {
        /// The lease.
        lease: &'static str,
        /// How long, without the time in which the process stood still.
        after: Duration,
        /// The API server's last answer; `None`: no answer.
        said: Option<String>,
        /// For how long this process stood still meanwhile.
        stood_still: Duration,
    },
    /// Another process holds the lease before ours expired.
    #[error(
        "another core, {holder:?}, took the lease {lease:?} from this one{}, {}",
        since.map(|since| format!(" at {since}")).unwrap_or_default(),
        why_taken(*stood_still)
    )]
    Taken {
        /// The lease.
        lease: &'static str,
        /// The other holder.
        holder: String,
        /// When the holder took the lease, by the holder's clock.
        since: Option<Timestamp>,
        /// How long the process stood still before the discovery.
        stood_still: Duration,
    },
    /// The API server has an older state of the lease than before. All other knowledge of this process is of no use
    /// either.
    #[error(
        "the API server has an earlier state of the lease {lease:?} than before: it was restored from a backup under this \
         core, which ends, to read everything anew. See docs/backup.md"
    )]
    Restored {
        /// The lease.
        lease: &'static str,
    },
    /// The cluster id is not beside the lease any more: the leader took both to another namespace, since this namespace
    /// ends.
    #[error(
        "the cluster id is not in namespace {namespace:?} any more, where this core waited for the lease {lease:?}; it ends, to look \
         for them in the other namespaces that it serves"
    )]
    Moved {
        /// The lease.
        lease: &'static str,
        /// The namespace without the Lease.
        namespace: String,
    },
    /// The namespace of the lease takes no new lease: the namespace is gone, or its deletion is almost done.
    #[error(
        "the lease {lease:?} is gone, and namespace {namespace:?} takes no new one, since it is gone or terminating; this core ends"
    )]
    HomeGone {
        /// The lease.
        lease: &'static str,
        /// Its namespace.
        namespace: String,
    },
    /// Another process had the lease, and has it no more.
    #[error(
        "another core had the lease {lease:?} meanwhile, and gave it up{}; this one ends, to read everything anew",
        besides(*stood_still)
    )]
    Freed {
        /// The lease.
        lease: &'static str,
        /// How long the process stood still before the discovery.
        stood_still: Duration,
    },
}

/// Text about the time in which this process stood still.
fn besides(stood_still: Duration) -> String {
    match stood_still.as_secs() {
        0 => String::new(),
        seconds => format!(" (this process stood still for {seconds}s besides)"),
    }
}

fn why_taken(stood_still: Duration) -> String {
    match stood_still.as_secs() {
        0 => "as --leader-elect=false lets it; this one ends. Run one core, or all of them with --leader-elect=true".to_owned(),
        seconds => format!(
            "which stood still for {seconds}s (stopped, suspended, or without a processor) and could not renew it; this one ends"
        ),
    }
}

/// A candidate for leadership.
#[derive(Debug)]
pub(crate) struct Elector {
    pub(super) api: Api<Lease>,
    pub(super) settings: ElectionSettings,
    pub(super) clock: DebugClock,
    /// Whether the Lease has to stay until the end of all deletions.
    pub(super) need: watch::Receiver<Need>,
    pub(super) home: Arc<HomeNamespace>,
}

/// Leadership, until [`Leadership::hold`] ends.
#[derive(Debug)]
pub(crate) struct Leadership {
    pub(super) elector: Elector,
    pub(super) lease: Lease,
    renewed_at: Instant,
    before: Option<Timestamp>,
    predecessor: Predecessor,
    /// The Lease in the old namespace, until its release.
    pub(super) left: Option<(Api<Lease>, Lease)>,
    /// Observations of a Lease in the way there.
    pub(super) in_the_way: Observed,
}

impl Elector {
    /// A candidate.
    pub(crate) fn new(
        client: Client,
        settings: ElectionSettings,
        clock: Clock,
        need: watch::Receiver<Need>,
        home: Arc<HomeNamespace>,
    ) -> Self {
        let settings = ElectionSettings { namespace: home.current(), ..settings };
        let api = Api::namespaced(client, &settings.namespace);
        Self { api, settings, clock: DebugClock(clock), need, home }
    }

    /// Looks at the Lease without taking it, as often as a candidate does.
    pub(crate) async fn observe(&self, observed: &mut Observed) -> Infallible {
        loop {
            let read = self.api.get_opt(self.settings.lease);
            // A candidate reports the error; here the process only waits longer.
            if let Ok(Ok(Some(lease))) = timeout(self.settings.renew_deadline, read).await {
                observed.note(lease.spec.unwrap_or_default(), Instant::now());
            }
            sleep(self.settings.retry_period).await;
        }
    }

    /// Waits until this process leads; `observed`: earlier observations of the Lease. Returns `None` if `stop` comes
    /// first, and an error if this process cannot lead any more.
    pub(crate) async fn acquire(
        self,
        mut observed: Observed,
        stop: &CancellationToken,
    ) -> Result<Option<Leadership>, ElectionError> {
        let mut waiting_for = None;
        loop {
            let started = Instant::now();
            let attempt = tokio::select! {
                () = stop.cancelled() => return Ok(None),
                attempt = self.attempt(&mut observed) => attempt,
            };
            match attempt {
                Some(Attempt::Leads(lease, before, predecessor)) => {
                    let (lease, identity) = (*lease, &self.settings.identity);
                    info!(
                        identity,
                        lease = self.settings.lease,
                        term = record::term_of(&lease).0,
                        "leads"
                    );
                    return Ok(Some(Leadership {
                        elector: self,
                        lease,
                        renewed_at: started,
                        before,
                        predecessor,
                        left: None,
                        in_the_way: Observed::default(),
                    }));
                }
                Some(Attempt::Moved) => {
                    let (lease, namespace) = (self.settings.lease, self.settings.namespace);
                    return Err(ElectionError::Moved { lease, namespace });
                }
                Some(Attempt::Restored) => {
                    return Err(ElectionError::Restored { lease: self.settings.lease });
                }
                Some(Attempt::HeldBy(holder)) => self.tell_once(&mut waiting_for, holder),
                None => {}
            }
            tokio::select! {
                () = stop.cancelled() => return Ok(None),
                () = sleep(self.settings.retry_period) => {}
            }
        }
    }

    /// One attempt; `None` if the API server did not answer or refused.
    async fn attempt(&self, observed: &mut Observed) -> Option<Attempt> {
        match timeout(self.settings.renew_deadline, self.try_acquire(observed)).await {
            Ok(Ok(attempt)) => return Some(attempt),
            Ok(Err(failure)) => warn!(error = causes(&failure), "cannot read or write the lease"),
            Err(_) => warn!("reading or writing the lease takes too long"),
        }
        None
    }

    async fn try_acquire(&self, observed: &mut Observed) -> kube::Result<Attempt> {
        let wall = (self.clock.0)();
        let found = self.api.get_opt(self.settings.lease).await?;
        if found.as_ref().is_some_and(|lease| observed.went_back(lease)) {
            return Ok(Attempt::Restored);
        }
        let is_here =
            found.as_ref().is_some_and(|lease| lease.metadata.deletion_timestamp.is_none());
        if !is_here && !self.has_cluster_id().await? {
            return Ok(Attempt::Moved);
        }
        let found = match found {
            Some(lease) if self.was_deleted(&lease).await => {
                // A user declared the Lease free.
                observed.note(lease.spec.clone().unwrap_or_default(), Instant::now());
                if let_go(&self.api, lease).await?.is_none() {
                    return Ok(Attempt::HeldBy("another process".to_owned()));
                }
                None
            }
            found => found,
        };
        let (mut before, mut predecessor) = (None, observed.of_none());
        let written = match found {
            None => {
                let lease = record::new_lease(observed, &self.settings, wall);
                self.api.create(&PostParams::default(), &lease).await
            }
            Some(lease) => {
                before = record::renewed_at(&lease);
                predecessor = Predecessor::of(&lease);
                match observed.decide(lease.clone(), &self.settings, Instant::now(), wall) {
                    Move::Wait => return Ok(Attempt::HeldBy(holder(&lease))),
                    Move::Take(lease) => {
                        self.api.replace(self.settings.lease, &PostParams::default(), &lease).await
                    }
                }
            }
        };
        match written {
            Ok(lease) if observed.went_back(&lease) => Ok(Attempt::Restored),
            Ok(lease) => Ok(Attempt::Leads(Box::new(lease), before, predecessor)),
            // Another candidate was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                Ok(Attempt::HeldBy("another process".to_owned()))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Whether the cluster id is where the Lease is, or was: a leader takes both to another namespace if theirs ends.
    async fn has_cluster_id(&self) -> kube::Result<bool> {
        let maps = self.home.maps(&self.settings.namespace);
        Ok(maps.get_opt(CLUSTER_ID_CONFIG_MAP).await?.is_some())
    }

    /// Whether a user deleted a Lease that is held: it goes, and is made again. A Lease in an ending namespace is still
    /// needed there.
    async fn was_deleted(&self, lease: &Lease) -> bool {
        home::is_going(&lease.metadata) && self.home.stays(&self.settings.namespace).await
    }

    fn tell_once(&self, waiting_for: &mut Option<String>, holder: String) {
        if waiting_for.as_ref() != Some(&holder) {
            info!(holder, lease = self.settings.lease, "waiting for the lease");
            *waiting_for = Some(holder);
        }
    }
}

enum Attempt {
    Leads(Box<Lease>, Option<Timestamp>, Predecessor),
    HeldBy(String),
    Restored,
    Moved,
}

fn holder(lease: &Lease) -> String {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default()
}

impl Leadership {
    /// The current term.
    pub(crate) fn term(&self) -> Term {
        record::term_of(&self.lease)
    }

    /// UID of the Lease.
    pub(crate) fn lease_uid(&self) -> String {
        self.lease.metadata.uid.clone().unwrap_or_default()
    }

    /// When the previous leader last renewed, by its own clock; `None`: there was none.
    pub(crate) const fn before(&self) -> Option<Timestamp> {
        self.before
    }

    /// The abilities left to the previous leader.
    pub(crate) const fn predecessor(&self) -> Predecessor {
        self.predecessor
    }

    /// Renews the lease until `stop`, then releases it, so that the next leader need not wait. Cancel `stop` only after
    /// everything that acts as the leader has ended. An error means that another process may lead: everything that acts
    /// as the leader must end immediately. `until` receives the latest time for that, now and after every renewal.
    /// `answered` says at the end whether all requests of this leadership were: then the next leader need not wait for
    /// their effects either.
    pub(crate) async fn hold(
        mut self,
        stop: &CancellationToken,
        until: impl Fn(Instant),
        answered: impl Fn() -> bool,
    ) -> Result<(), ElectionError> {
        let ElectionSettings { lease, renew_deadline: deadline, retry_period: period, .. } =
            self.elector.settings;
        let mut running = Running::default();
        let mut said = None;
        loop {
            until(self.renewed_at + deadline);
            tokio::select! {
                () = stop.cancelled() => break,
                _over = running.within(period, need_changed(&mut self.elector.need)) => {}
            }
            // As client-go: who stood still tries once more, since perhaps no other process has taken the Lease. Nothing is
            // sent to a driver before that try was answered.
            let ran = self.renewed_at.elapsed().saturating_sub(running.stood_still());
            let left = deadline.saturating_sub(ran);
            let (started, before) = (Instant::now(), running.stood_still());
            let need = *self.elector.need.borrow_and_update();
            // Only a write of ours renews: candidates look at what we write, and not at what others edit.
            match running
                .within(left, self.write(|lease, wall| record::renewed(lease, need, wall)))
                .await
            {
                Some(Ok(Written::Done)) => {
                    self.renewed_at = started;
                    tell_of_stall(lease, running.stood_still(), deadline);
                    running.forget(before);
                    said = None;
                    let left = deadline.saturating_sub(started.elapsed());
                    if let Some(Err(over)) =
                        running.within(left, Box::pin(self.follow_home())).await
                    {
                        return Err(over);
                    }
                }
                Some(Ok(Written::Forestalled)) => {
                    said =
                        Some(not_renewed(lease, "other clients edit it all the time".to_owned()));
                }
                Some(Ok(Written::Over(why))) => return Err(why.after(running.stood_still())),
                Some(Ok(Written::Homeless(why))) => {
                    match running.within(left, Box::pin(self.relocate(true))).await {
                        Some(Ok(true)) => self.renewed_at = started,
                        _ => return Err(why),
                    }
                }
                Some(Err(failure)) => said = Some(not_renewed(lease, causes(&failure))),
                None => {
                    let stood_still = running.stood_still();
                    return Err(ElectionError::Lost { lease, after: deadline, said, stood_still });
                }
            }
        }
        self.release(answered()).await;
        Ok(())
    }

    /// Writes the Lease as `change` has it, also if others edited it meanwhile, but not once this term is over.
    async fn write(&mut self, change: impl Fn(Lease, Timestamp) -> Lease) -> kube::Result<Written> {
        let Elector { api, settings, clock, .. } = &self.elector;
        let mut gone = false;
        for _ in 0..WRITES {
            let lease = self.lease.clone();
            let lease = change(if gone { record::anew(lease) } else { lease }, (clock.0)());
            let written = if gone {
                api.create(&PostParams::default(), &lease).await
            } else {
                api.replace(settings.lease, &PostParams::default(), &lease).await
            };
            match written {
                Ok(lease) if gone && record::is_older(&lease, &self.lease) => {
                    return Ok(Written::Over(ElectionError::Restored { lease: settings.lease }));
                }
                Ok(lease) => {
                    let elector = &self.elector;
                    self.lease = lease;
                    if !elector.was_deleted(&self.lease).await {
                        return Ok(Written::Done);
                    }
                    let Some(lease) = let_go(api, self.lease.clone()).await? else { continue };
                    (self.lease, gone) = (lease, true);
                }
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    // Our own write whose answer was lost, a manual edit, or another holder. Leases may be created by a
                    // PUT, so a deleted Lease can be a conflict as well.
                    let now = api.get_opt(settings.lease).await?;
                    gone = now.is_none();
                    let Some(now) = now else { continue };
                    let lease = settings.lease;
                    if record::is_older(&now, &self.lease) {
                        return Ok(Written::Over(ElectionError::Restored { lease }));
                    }
                    let same_term = record::term_of(&now) == record::term_of(&self.lease);
                    let free = holder(&now).is_empty();
                    if !same_term || !(free || record::is_ours(&now, settings)) {
                        return Ok(Written::Over(taken(&now, lease)));
                    }
                    // No other process had the Lease since: a new holder begins another term.
                    self.lease = record::held(now, settings);
                }
                // A client deleted the Lease. As client-go: it is made again, unless another core was faster.
                Err(kube::Error::Api(status)) if status.code == 404 && !gone => gone = true,
                Err(kube::Error::Api(status)) if gone && takes_no_more(&status) => {
                    let (lease, namespace) = (settings.lease, settings.namespace.clone());
                    return Ok(Written::Homeless(ElectionError::HomeGone { lease, namespace }));
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(Written::Forestalled)
    }

    async fn release(mut self, answered: bool) {
        let ElectionSettings { lease, retry_period: patience, .. } = self.elector.settings;
        let write = self.write(|lease, wall| record::released(lease, answered, wall));
        let released = matches!(timeout(patience, write).await, Ok(Ok(Written::Done)));
        info!(released, answered, lease, "leadership ended");
    }
}

/// `deadline`: how long a holder may go without renewing. In a shorter stall, as of a busy computer, no other process takes the lease.
fn tell_of_stall(lease: &str, stood_still: Duration, deadline: Duration) {
    if stood_still >= deadline {
        warn!(
            lease,
            ?stood_still,
            "this process stood still; no other process took the lease, and it goes on"
        );
    }
}

fn not_renewed(lease: &str, why: String) -> String {
    warn!(lease, error = why, "cannot renew the lease");
    why
}

/// Returns when something else is needed than the last renewal wrote.
async fn need_changed(need: &mut watch::Receiver<Need>) {
    if need.changed().await.is_err() {
        pending::<()>().await;
    }
}

/// Whether the namespace is not there, or terminates.
fn takes_no_more(refused: &kube::core::Status) -> bool {
    let terminates = |it: &kube::core::response::StatusCause| it.reason == "NamespaceTerminating";
    let causes = refused.details.iter().flat_map(|details| &details.causes);
    refused.code == 404 || refused.code == 403 && causes.into_iter().any(terminates)
}

/// The result of a write of the Lease.
pub(super) enum Written {
    Done,
    /// Other clients edited the Lease before each of our writes.
    Forestalled,
    Over(ElectionError),
    /// The Lease is gone, and its namespace takes no new Lease.
    Homeless(ElectionError),
}

/// Takes our finalizer off a Lease. Returns it as it was at last; `None`: another client was faster.
pub(super) async fn let_go(api: &Api<Lease>, mut lease: Lease) -> kube::Result<Option<Lease>> {
    home::let_go(&mut lease.metadata);
    let name = lease.metadata.name.clone().unwrap_or_default();
    match api.replace(&name, &PostParams::default(), &lease).await {
        Ok(lease) => Ok(Some(lease)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Some(lease)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The error that names the new holder of our lease.
pub(super) fn taken(now: &Lease, lease: &'static str) -> ElectionError {
    let stood_still = Duration::ZERO;
    match holder(now) {
        holder if holder.is_empty() => ElectionError::Freed { lease, stood_still },
        holder => {
            ElectionError::Taken { lease, holder, since: record::acquired_at(now), stood_still }
        }
    }
}

impl ElectionError {
    /// The same, found out after this process had stood still for so long.
    fn after(mut self, time: Duration) -> Self {
        if let Self::Taken { stood_still, .. } | Self::Freed { stood_still, .. } = &mut self {
            *stood_still = time;
        }
        self
    }
}

#[cfg(test)]
#[path = "elector_tests.rs"]
mod tests;
