//! Read-only views of the hub.

use ostler_api::ProviderName;
use ostler_api::Uid;
use std::collections::HashMap;
use std::time::Duration;

use ostler_api::operation::{self, Finished, InFlight, LONGEST_WAIT, OperationView, PoolTraits};
use ostler_proto::v1alpha1::{DriverCapability, ObjectRevision};
use tokio::time::Instant;

use super::operations::{Op, Place};
use super::queue::Rank;
use super::session::{Provider, Session};
use super::timers::Timer;
use super::{Hub, OperationId, SessionKey};
use crate::{IdComparisons, ProviderState};

/// The rights that an operation in flight gives its driver.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scope {
    /// The provider of the session, by the name that drivers use.
    pub(crate) provider: ProviderName,
    /// The class, as the core has it.
    class: Option<ObjectRevision>,
}

impl Scope {
    fn of(session: &Session, operation: &Op) -> Self {
        let class = operation.request.machine_class.clone();
        Self { provider: session.driver.provider.clone(), class }
    }

    /// The operation's class, if wanted.
    pub(crate) fn covering(&self, wanted: &ObjectRevision) -> Option<&ObjectRevision> {
        let same =
            |own: &&ObjectRevision| own.namespace == wanted.namespace && own.name == wanted.name;
        self.class.as_ref().filter(same)
    }
}

/// Why a driver gets no class or secret, as far as its own session is the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The principal has no such session.
    SessionOver,
    /// The Welcome of the session cancelled the operation.
    OperationCancelled,
    /// No operation in flight on the session concerns the requested object.
    NotInFlight,
}

impl Denial {
    /// As the contract has it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::SessionOver => "SESSION_OVER",
            Self::OperationCancelled => "OPERATION_CANCELLED",
            Self::NotInFlight => "NOT_IN_FLIGHT",
        }
    }
}

impl Hub {
    /// Why a request of `principal` in a session is denied. `about`: whether the request concerns an operation or
    /// class.
    pub(crate) fn denial(
        &self,
        principal: &str,
        session: &str,
        about: impl Fn(&OperationId, Option<&ObjectRevision>) -> bool,
    ) -> Denial {
        let mut own = self.sessions.values().filter(|it| it.principal == principal);
        let Some(live) = own.find(|it| it.id == session) else { return Denial::SessionOver };
        let cancelled = live.dismissed.iter().any(|(id, class)| about(id, class.as_ref()));
        if cancelled { Denial::OperationCancelled } else { Denial::NotInFlight }
    }

    /// The operation of a target.
    pub(crate) fn view(&self, now: Instant, target_uid: &str) -> OperationView {
        let found = self.slots.get(target_uid).and_then(|id| self.operations.get_key_value(id));
        let Some((id, operation)) = found else { return OperationView::Idle };
        let id = id.clone();
        let idempotency_key = operation.request.idempotency_key.clone();
        let (kind, provider) = (operation.kind, operation.provider.clone());
        match &operation.place {
            Place::Finished { outcome, checkpoint, .. } => OperationView::Finished(Finished {
                id,
                provider,
                kind,
                idempotency_key,
                outcome: outcome.as_ref().clone(),
                checkpoint: Some(checkpoint.clone()),
            }),
            Place::Queued(_) | Place::Sent(_) | Place::Away(_) => {
                OperationView::InFlight(InFlight {
                    id,
                    provider,
                    kind,
                    idempotency_key,
                    place: self.place_of(now, operation),
                    age: now - operation.placed,
                    cancelled: operation.cancelled,
                    progress: operation.progress.clone(),
                    stalled: operation.stalled,
                })
            }
        }
    }

    fn place_of(&self, now: Instant, operation: &Op) -> operation::Place {
        let left = |until: Option<Instant>| until.map_or(Duration::ZERO, |until| until - now);
        match &operation.place {
            Place::Away(key) => operation::Place::Lost(left(self.timers.due(&Timer::Resume(*key)))),
            Place::Sent(_) | Place::Finished { .. } => operation::Place::Sent,
            Place::Queued(_) => {
                let record = self.providers.get(&operation.provider);
                let active = record.and_then(|record| self.sessions.get(&record.active?));
                let paused = record.and_then(|record| record.pace.paused_until(now));
                match paused.filter(|_| operation.kind.makes_instances()) {
                    _ if !active.is_some_and(Session::is_ready) => operation::Place::Unserved,
                    None => operation::Place::Queued,
                    until => operation::Place::Paused(left(until)),
                }
            }
        }
    }

    /// UIDs of all targets that are not idle.
    pub(crate) fn targets(&self) -> Vec<Uid> {
        self.slots.keys().cloned().collect()
    }

    /// Every provider with sessions, or with operations waiting for one.
    pub(crate) fn provider_states(&self, now: Instant) -> Vec<ProviderState> {
        // One look at the sessions for all providers: there may be a thousand of both.
        let mut counts: HashMap<&str, (usize, usize)> = HashMap::new();
        for session in self.sessions.values() {
            let (sessions, in_flight) = counts.entry(session.driver.provider.as_str()).or_default();
            *sessions += 1;
            *in_flight += session.in_flight.len();
        }
        let count =
            |provider: &ProviderName| counts.get(provider.as_str()).copied().unwrap_or_default();
        let states = self.providers.keys();
        states.map(|provider| self.provider_state(now, provider, count(provider))).collect()
    }

    /// A provider with sessions, or with operations waiting for one.
    pub(crate) fn state_of(&self, now: Instant, name: &ProviderName) -> Option<ProviderState> {
        let (provider, _) = self.providers.get_key_value(name)?;
        let sessions = self.sessions.values().filter(|it| it.driver.provider == *provider);
        let (count, in_flight) =
            sessions.fold((0, 0), |(count, all), it| (count + 1, all + it.in_flight.len()));
        Some(self.provider_state(now, provider, (count, in_flight)))
    }

    /// How drivers compare provider ids.
    pub(crate) fn comparisons(&self) -> IdComparisons {
        self.comparisons.clone()
    }

    fn provider_state(
        &self,
        now: Instant,
        provider: &ProviderName,
        (sessions, in_flight): (usize, usize),
    ) -> ProviderState {
        let record = self.providers.get(provider);
        let active = record.and_then(|record| record.active);
        let active = active.and_then(|key: SessionKey| self.sessions.get(&key));
        let driver = active.map(|session| &session.driver);
        let has = |capability| driver.is_some_and(|it| it.has(capability));
        let ready = active.is_some_and(Session::is_ready);
        let wait = |(record, session)| self.oldest_wait(now, record, session);
        let oldest_wait = record.zip(active).map(wait);
        let oldest_wait = oldest_wait.unwrap_or_default();
        let paused = record.and_then(|record| record.pace.paused_until(now));
        ProviderState {
            provider: provider.clone(),
            ready,
            reason: active.map(|it| it.reason.clone()).unwrap_or_default(),
            sessions,
            principal: active.map(|it| it.principal.clone()).unwrap_or_default(),
            instance_id: driver.map(|it| it.instance_id.clone()).unwrap_or_default(),
            instance_name: driver.map(|it| it.instance_name.clone()).unwrap_or_default(),
            driver: driver.map(|it| it.driver.clone()).unwrap_or_default(),
            kinds: driver.map(|it| it.kinds.clone()).unwrap_or_default(),
            by_name: has(DriverCapability::IdentityByName),
            list_lag: driver.and_then(|it| it.list_lag).map(|lag| lag.min(LONGEST_WAIT)),
            pools: PoolTraits {
                surge: has(DriverCapability::PoolSurge),
                scales_in: has(DriverCapability::PoolScalesIn),
            },
            in_flight,
            queued: record.map_or(0, |record| record.queue.len()),
            oldest_wait,
            slow: record.zip(active).is_some_and(|(it, session)| self.is_slow(now, it, session)),
            paused: paused.map(|until| until - now),
            clock_ahead: active.and_then(|session| session.clock_ahead),
        }
    }

    /// Whether an operation in flight on a live session of `principal` entitles to a class.
    pub(crate) fn may_see(&self, principal: &str, class: &ObjectRevision) -> bool {
        let own = self.sessions.values().filter(|session| session.principal == principal);
        own.into_iter().any(|session| {
            let mut operations = session.in_flight.ids().filter_map(|id| self.operations.get(id));
            operations.any(|operation| Scope::of(session, operation).covering(class).is_some())
        })
    }

    /// The class of an operation of this stream.
    pub(crate) fn class_of(&self, key: SessionKey, operation: &str) -> Option<ObjectRevision> {
        let operation = self.operations.get(operation)?;
        matches!(operation.place, Place::Sent(session) if session == key)
            .then(|| operation.request.machine_class.clone())?
    }

    /// Whether operations wait longer for their credit than they should.
    pub(super) fn is_slow(&self, now: Instant, record: &Provider, session: &Session) -> bool {
        self.oldest_wait(now, record, session) > self.options.timing.slow
    }

    /// For how long the oldest operation has waited that is not held back.
    fn oldest_wait(&self, now: Instant, record: &Provider, session: &Session) -> Duration {
        let pauses = record.pace.paused_until(now).is_some();
        let held = |rank| pauses && rank == Rank::Create;
        let oldest = record.queue.peek_oldest(held).filter(|_| session.is_ready());
        let operation = oldest.and_then(|id| self.operations.get(id));
        operation.map_or(Duration::ZERO, |operation| now - operation.placed)
    }

    /// The data that `principal` may read for an operation in flight on its live session.
    pub(crate) fn scope(&self, principal: &str, session: &str, operation: &str) -> Option<Scope> {
        let operation = self.operations.get(operation)?;
        let Place::Sent(key) = operation.place else { return None };
        let live = self.sessions.get(&key)?;
        (live.id == session && live.principal == principal).then(|| Scope::of(live, operation))
    }
}
