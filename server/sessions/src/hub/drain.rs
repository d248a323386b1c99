//! A session ends in band: no new operations, the running ones may finish, and then the session closes.

use std::time::Duration;

use ostler_api::driver::ErrorCode;
use ostler_api::operation::Reason;
use ostler_proto::v1alpha1::{CoreDraining, DriverState, Readiness};
use tokio::time::Instant;

use super::timers::Timer;
use super::{Hub, OperationId, SessionKey};
use crate::session::outbox::Room;
use crate::session::{Close, Frame, frames};

impl Hub {
    /// Asks the driver of this session to dial again. A ready standby takes over immediately; what
    /// runs may finish here for `close_after`, and is resumed by the driver's next session then.
    /// `false`: there is no such session.
    pub(crate) fn drain_session(&mut self, now: Instant, id: &str, close_after: Duration) -> bool {
        let key = self.key_of(id);
        if let Some(key) = key {
            self.retire(now, key, "asked for", close_after);
        }
        key.is_some()
    }

    fn key_of(&self, id: &str) -> Option<SessionKey> {
        self.sessions.iter().find(|(_, session)| session.id == id).map(|(key, _)| *key)
    }

    /// For how long a session may live: its credentials must be valid all the time, and not all sessions of a core may
    /// end in the same moment. `None`: nothing ends the session; a driver that forgets its operations at a loss would
    /// pay for a new session with them.
    pub(super) fn max_age(
        &self,
        id: &str,
        expires_in: Option<Duration>,
        retains: bool,
    ) -> Option<Duration> {
        let timing = &self.options.timing;
        let tenth = timing.max_age / 10;
        let age = timing.max_age.saturating_sub(tenth) + (2 * tenth).mul_f64(frames::part_of(id));
        let Some(expires_in) = expires_in else { return retains.then_some(age) };
        // A token that ends within the margin is used for half of the remaining time.
        let usable = expires_in.saturating_sub(timing.token_margin).max(expires_in / 2);
        Some(age.min(usable).max(MIN_AGE))
    }

    /// A session is old: the driver is to authenticate again.
    pub(super) fn aged(&mut self, now: Instant, key: SessionKey) {
        self.retire(now, key, "session max age", self.options.timing.aged_close);
    }

    fn retire(&mut self, now: Instant, key: SessionKey, reason: &str, close_after: Duration) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        if session.is_retired() {
            return;
        }
        session.closes = Some(now + close_after);
        let provider = session.driver.provider.clone();
        tracing::info!(
            provider = provider.as_str(),
            session = session.id,
            reason,
            "session drains"
        );
        let draining = Frame::Draining(CoreDraining {
            reason: reason.to_owned(),
            reconnect_after: Some(frames::duration(Duration::ZERO)),
            close_after: Some(frames::duration(close_after)),
        });
        self.send_frame(key, draining, Room::Reserved);
        self.timers.clear(&Timer::Age(key));
        self.time_drain(key);
        self.assign_role(now, &provider);
    }

    /// The driver announces its end and the time, or takes the announcement back.
    pub(super) fn driver_drains(&mut self, now: Instant, key: SessionKey, state: &DriverState) {
        let deadline = state.drain_deadline.and_then(|time| Duration::try_from(time).ok());
        let deadline = deadline.filter(|time| !time.is_zero()).map(|it| it.min(LONGEST_DRAIN));
        let ends = deadline.map(|it| now + it + self.options.timing.drain_grace);
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let drains = session.readiness == Readiness::Draining;
        session.ends = ends.or(session.ends).filter(|_| drains);
        self.time_drain(key);
    }

    /// A draining session is over at the core's deadline or the driver's own, whichever is earlier.
    fn time_drain(&mut self, key: SessionKey) {
        let session = self.sessions.get(&key);
        match session.and_then(|it| it.closes.into_iter().chain(it.ends).min()) {
            Some(at) => self.timers.set(Timer::Drained(key), at),
            None => self.timers.clear(&Timer::Drained(key)),
        }
    }

    /// The time of a drain is over. A driver that ends loses its unfinished operations with unknown outcome; a driver
    /// that the core asked to leave comes back with them.
    pub(super) fn drained(&mut self, now: Instant, key: SessionKey) {
        let Some(session) = self.sessions.get(&key) else { return };
        if session.ends.is_some_and(|ends| ends <= now) {
            let unfinished: Vec<OperationId> = session.in_flight.ids().cloned().collect();
            for id in unfinished {
                let message = "the driver ended before the operation did";
                let why = (ErrorCode::Unavailable, Reason::CoreSessionLost, message);
                self.give_up(now, key, &id, why);
            }
        }
        self.close(now, key, Close::drained());
    }
}

/// Limit of the time that a driver may announce for its end.
const LONGEST_DRAIN: Duration = Duration::from_hours(24);
/// However soon the token ends: a driver needs time to do anything at all.
const MIN_AGE: Duration = Duration::from_secs(1);
