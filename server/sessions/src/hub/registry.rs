//! Streams come, introduce themselves, and go.

use ostler_api::ProviderName;
use std::collections::BTreeSet;
use std::time::Duration;

use ostler_api::driver::{Certainty, ErrorCode};
use ostler_api::operation::Reason;
use ostler_proto::v1alpha1::{
    CoreCapability, DriverCapability, DriverState, Heartbeat, Hello, OperationAccepted, Readiness,
    RoleKind, Welcome, register_request,
};
use tokio::time::Instant;

use super::operations::Place;
use super::session::{Guest, Lost, Provider, Session};
use super::timers::Timer;
use super::{Count, Effect, Hub, OperationId, SessionKey};
use crate::session::frames::{self, FRAME_BYTES};
use crate::session::hello::{self, Introduction};
use crate::session::outbox::Room;
use crate::session::{Close, Frame};
use crate::{Principal, SessionEvent};

impl Hub {
    /// A stream was opened.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        principal: Principal,
        peer: String,
    ) -> Result<SessionKey, Close> {
        self.takes_drivers()?;
        let close = if self.guests.len() >= self.options.limits.arrivals {
            Some(Close::too_many_arrivals())
        } else {
            self.arrivals.enter(now, &principal.name).err().map(Close::too_many_connects)
        };
        if let Some(close) = close {
            self.count(Count::TurnedAway { reason: close.reason });
            return Err(close);
        }
        if self.guests.len() + self.sessions.len() >= self.options.limits.sessions {
            return Err(Close::crowded("too many drivers are connected"));
        }
        let key = self.next;
        self.next += 1;
        self.guests.insert(key, Guest { principal, peer });
        self.timers.set(Timer::Hello(key), now + self.options.timing.hello);
        Ok(key)
    }

    /// A frame came in. `None`: a frame of an unknown kind, which is ignored.
    pub(crate) fn frame(
        &mut self,
        now: Instant,
        key: SessionKey,
        frame: Option<register_request::Frame>,
    ) {
        use register_request::Frame;
        let limit = self.options.limits.held;
        let Some(session) = self.sessions.get_mut(&key) else {
            return self.introduced(now, key, frame);
        };
        match frame {
            None => {}
            Some(Frame::Hello(_)) => {
                let message = "Hello must come once; open another stream to say it again";
                self.close(now, key, Close::violation("SECOND_HELLO", message));
            }
            Some(
                Frame::Accepted(OperationAccepted { operation_ids: ids })
                | Frame::Heartbeat(Heartbeat { running: ids, .. }),
            ) if ids.len() > limit => {
                let message =
                    format!("a frame lists {} operations, the limit is {limit}", ids.len());
                self.close(now, key, Close::violation("TOO_MANY_HELD", message));
            }
            Some(Frame::Accepted(accepted)) => {
                for id in &accepted.operation_ids {
                    self.accepted(now, key, &id.as_str().into());
                }
            }
            Some(Frame::Progress(progress)) => self.progressed(now, key, *progress),
            Some(Frame::Page(page)) => self.paged(now, key, page),
            Some(Frame::Completed(completed)) => self.completed(now, key, completed),
            Some(Frame::State(state)) => self.state(now, key, &state),
            Some(Frame::Heartbeat(heartbeat)) => {
                session.unanswered = 0;
                self.on_heartbeat(now, key, &heartbeat.running);
            }
            Some(Frame::Event(event)) => self.hinted(now, key, *event),
        }
    }

    /// The first frame of a stream.
    fn introduced(
        &mut self,
        now: Instant,
        key: SessionKey,
        frame: Option<register_request::Frame>,
    ) {
        if !self.guests.contains_key(&key) {
            return;
        }
        let introduced = match frame {
            Some(register_request::Frame::Hello(hello)) => self.hello(now, key, *hello),
            _ => Err(Close::violation("HELLO_EXPECTED", "the first frame must be Hello")),
        };
        if let Err(close) = introduced {
            self.close(now, key, close);
        }
    }

    fn hello(&mut self, now: Instant, key: SessionKey, hello: Hello) -> Result<(), Close> {
        self.takes_drivers()?;
        let mut driver = hello::check(hello, self.options.limits.held)?;
        let Some(guest) = self.guests.get(&key) else { return Ok(()) };
        let principal = guest.principal.clone();
        self.may_claim(&principal, &driver)?;
        let Some(guest) = self.guests.remove(&key) else { return Ok(()) };
        self.timers.clear(&Timer::Hello(key));

        let held = std::mem::take(&mut driver.held);
        let provider = driver.provider.clone();
        self.supersede(now, &driver);
        if driver.lost.is_none() {
            self.succeed(now, &driver, &principal.name);
        }
        let role = self.first_role(&provider, key);
        let id = uuid::Uuid::new_v4().to_string();
        tracing::info!(
            provider = provider.as_str(),
            session = id,
            instance = driver.instance_id,
            driver = driver.driver,
            peer = guest.peer,
            principal = principal.name,
            role = role.as_str_name(),
            held = held.len(),
            "driver registered"
        );
        crate::audit::opened(&principal.name, &guest.peer, &driver, &id);
        let (credit, retains) = (self.credit(driver.max_in_flight), driver.retains);
        let session = Session {
            credit,
            ..Session::begun(now, principal.name, guest.peer, id.clone(), driver, role)
        };
        self.sessions.insert(key, session);
        let max_age = self.max_age(&id, principal.expires_in, retains);
        let (resume_outcome, verdicts) = self.resume(now, key, held);
        let welcome = Welcome {
            session_id: id,
            resume_outcome: resume_outcome.into(),
            verdicts,
            role: role.into(),
            session_max_age: max_age.map(frames::duration),
            ..self.welcome()
        };
        self.send_frame(key, Frame::Welcome(Box::new(welcome)), Room::Reserved);
        self.start_timers(now, key, max_age);
        self.assign_role(now, &provider);
        Ok(())
    }

    /// Without an active session, the new one is active.
    fn first_role(&mut self, provider: &ProviderName, key: SessionKey) -> RoleKind {
        let rate = self.options.rate(provider);
        let former = &mut self.former;
        let at = || former.pop(provider).unwrap_or_else(|| Provider::at(rate));
        let active = &mut self.providers.entry(provider.to_owned()).or_insert_with(at).active;
        let role = if active.is_none() { RoleKind::Active } else { RoleKind::Standby };
        active.get_or_insert(key);
        role
    }

    fn start_timers(&mut self, now: Instant, key: SessionKey, max_age: Option<Duration>) {
        if let Some(max_age) = max_age {
            self.timers.set(Timer::Age(key), now + max_age);
        }
        self.timers.set(Timer::Heartbeat(key), now + self.options.timing.heartbeat);
    }

    /// The welcome for every driver.
    fn welcome(&self) -> Welcome {
        let timing = &self.options.timing;
        Welcome {
            fencing_term: self.term().0.into(),
            capabilities: vec![
                CoreCapability::Resume.into(),
                CoreCapability::CacheInvalidation.into(),
            ],
            heartbeat_interval: Some(frames::duration(timing.heartbeat)),
            resume_window: Some(frames::duration(timing.resume_window)),
            max_frame_bytes: FRAME_BYTES,
            max_in_flight: self.options.limits.in_flight,
            core_instance: self.options.core_instance.clone(),
            core_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Welcome::default()
        }
    }

    /// Whether the principal may act as this driver.
    fn may_claim(&mut self, principal: &Principal, driver: &Introduction) -> Result<(), Close> {
        let provider = &driver.provider;
        if !principal.providers.allow(provider.as_str()) {
            tracing::warn!(
                principal = principal.name,
                provider = provider.as_str(),
                "foreign provider claimed"
            );
            self.publish(SessionEvent::ForeignProvider {
                principal: principal.name.clone(),
                provider: provider.clone(),
                serves: principal.providers.to_string(),
            });
            let Principal { name, providers, .. } = principal;
            let message = format!("{name} serves {providers}, and may not serve {provider:?}");
            return Err(Close::denied("FOREIGN_PROVIDER", message));
        }
        let has_more = !self.options.previous_cluster_ids.is_empty();
        // A driver that finds instances by name finds them under any cluster id.
        let finds = [DriverCapability::PreviousClusterIds, DriverCapability::IdentityByName];
        if has_more && !finds.into_iter().any(|it| driver.has(it)) {
            return Err(Close::unknown_cluster_ids());
        }
        let siblings = self.sessions.values().filter(|it| it.driver.provider == *provider);
        let (same, others): (Vec<_>, Vec<_>) =
            siblings.partition(|it| it.driver.instance_id == driver.instance_id);
        if same.iter().any(|session| session.principal != principal.name) {
            let message = "another principal is connected with this instance_id";
            return Err(Close::denied("FOREIGN_INSTANCE", message));
        }
        if others.len() >= self.options.limits.sessions_per_provider {
            let message = format!("provider {provider:?} has {} sessions", others.len());
            return Err(Close::crowded(message));
        }
        Ok(())
    }

    /// The same process came back: its old stream, if it is still there, is of no use.
    fn supersede(&mut self, now: Instant, driver: &Introduction) {
        let old = self.sessions.iter().find(|(_, session)| {
            session.driver.provider == driver.provider
                && session.driver.instance_id == driver.instance_id
        });
        if let Some(key) = old.map(|(key, _)| *key) {
            self.close(now, key, Close::superseded());
        }
    }

    /// A new process came: its predecessor in the pod, or on the host, is dead if its stream ended,
    /// and the core does not wait for a return. Nothing follows for drivers of other names: all
    /// streams may have ended for one reason, and the others come back in a moment.
    fn succeed(&mut self, now: Instant, driver: &Introduction, principal: &str) {
        let dead = self.lost.iter().filter(|(_, lost)| {
            lost.stream_ended
                && lost.provider == driver.provider
                && lost.principal == principal
                && lost.instance_id != driver.instance_id
                && lost.instance_name == driver.instance_name
                && !lost.instance_name.is_empty()
        });
        let dead: Vec<SessionKey> = dead.map(|(key, _)| *key).collect();
        for key in dead {
            self.not_resumed(now, key);
        }
    }

    fn state(&mut self, now: Instant, key: SessionKey, state: &DriverState) {
        let readiness = Readiness::try_from(state.readiness).unwrap_or_default();
        if readiness == Readiness::Unspecified {
            return self.close(now, key, Close::violation("BAD_STATE", "readiness must be set"));
        }
        let credit = self.credit(state.max_in_flight);
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let provider = session.driver.provider.clone();
        if session.is_ready() && readiness != Readiness::Ready {
            session.unready = Some(now);
        }
        session.readiness = readiness;
        session.credit = credit;
        session.reason = hello::shortened(&state.reason);
        self.driver_drains(now, key, state);
        self.assign_role(now, &provider);
    }

    fn credit(&self, theirs: u32) -> usize {
        usize::try_from(theirs.min(self.options.limits.in_flight)).unwrap_or(usize::MAX)
    }

    /// Ends a stream.
    pub(crate) fn close(&mut self, now: Instant, key: SessionKey, close: Close) {
        let peer = match (self.guests.get(&key), self.sessions.get(&key)) {
            (Some(guest), _) => guest.peer.clone(),
            (None, Some(session)) => session.peer.clone(),
            (None, None) => return,
        };
        tracing::warn!(peer, reason = close.reason, message = close.message, "session closed");
        let reason = close.reason;
        self.effects.push(Effect::Close(key, close));
        self.gone(now, key, reason, false);
    }

    /// A stream ended by itself.
    pub(crate) fn ended(&mut self, now: Instant, key: SessionKey) {
        self.gone(now, key, "STREAM_ENDED", true);
    }

    /// A driver ended its stream in order. A drained driver has said everything: unaccepted
    /// operations were not begun.
    pub(crate) fn left(&mut self, now: Instant, key: SessionKey) {
        let session = self.sessions.get(&key);
        let drained = session.filter(|session| session.readiness == Readiness::Draining);
        let sent: Vec<OperationId> =
            drained.into_iter().flat_map(|it| it.in_flight.ids()).cloned().collect();
        for id in sent {
            self.take_back(now, key, &id);
        }
        self.ended(now, key);
    }

    /// A stream is no more. Reads in flight fail; mutations wait for the driver's return.
    fn gone(&mut self, now: Instant, key: SessionKey, reason: &'static str, stream_ended: bool) {
        self.timers.clear(&Timer::Hello(key));
        self.timers.clear(&Timer::Heartbeat(key));
        self.timers.clear(&Timer::Age(key));
        self.timers.clear(&Timer::Drained(key));
        if let Some(guest) = self.guests.remove(&key) {
            crate::audit::refused(&guest.principal.name, &guest.peer, reason);
        }
        let Some(session) = self.sessions.remove(&key) else { return };
        let Session { principal, peer, driver, id, .. } = &session;
        crate::audit::closed(principal, peer, driver.provider.as_str(), id, reason);
        let Introduction { provider, instance_id, instance_name, .. } = session.driver;
        let mut operations = BTreeSet::new();
        for id in session.in_flight.ids().cloned() {
            self.timers.clear(&Timer::Stall(id.clone()));
            let Some(operation) = self.operations.get_mut(&id) else { continue };
            operation.accept_by = None;
            if operation.kind.is_mutation() {
                operation.place = Place::Away(key);
                operations.insert(id);
            } else {
                self.fail_lost(now, &id);
            }
        }
        tracing::info!(
            provider = provider.as_str(),
            session = session.id,
            reason,
            away = operations.len(),
            "session ended"
        );
        self.count(Count::Closed { provider: provider.clone(), reason });
        if !operations.is_empty() {
            let window = now + self.options.timing.resume_window;
            // An ending driver does not come back after its end.
            let until = session.ends.map_or(window, |ends| ends.min(window));
            self.timers.set(Timer::Resume(key), until);
            let principal = session.principal;
            let provider = provider.clone();
            let lost =
                Lost { provider, principal, instance_id, instance_name, operations, stream_ended };
            let ids: Vec<_> = lost.operations.iter().cloned().collect();
            self.lost.insert(key, lost);
            for id in ids {
                self.tell_loss(&id, true);
            }
        }
        self.assign_role(now, &provider);
    }

    /// A lost driver does not come back: the outcome of its operations is unknown.
    pub(super) fn not_resumed(&mut self, now: Instant, key: SessionKey) {
        self.timers.clear(&Timer::Resume(key));
        let Some(lost) = self.lost.remove(&key) else { return };
        for id in lost.operations {
            self.fail_lost(now, &id);
        }
        self.assign_role(now, &lost.provider);
    }

    /// The session of an operation was lost.
    pub(super) fn fail_lost(&mut self, now: Instant, id: &OperationId) {
        let message = "the session of the driver was lost";
        let why = (ErrorCode::Unavailable, Reason::CoreSessionLost, message);
        self.fail(now, id, why, Certainty::Unknown);
    }
}
