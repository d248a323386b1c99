//! Heartbeats: proof of life, running operations, and the driver's clock.

use std::collections::HashSet;

use ostler_api::driver::ErrorCode;
use ostler_api::operation::Reason;
use tokio::time::Instant;

use super::map::Set;
use super::timers::Timer;
use super::{Count, Effect, Hub, OperationId, SessionKey};
use crate::session::outbox::Room;
use crate::session::{Close, frames};

/// Clocks that differ by more are spoken of, in milliseconds.
const SKEW: i64 = 5_000;

impl Hub {
    /// A heartbeat is due.
    pub(super) fn beat(&mut self, now: Instant, key: SessionKey) {
        let missed = self.options.timing.heartbeats_missed;
        let Some(session) = self.sessions.get_mut(&key) else { return };
        if session.unanswered >= missed {
            let close = Close::heartbeat_lost(session.unanswered);
            return self.close(now, key, close);
        }
        session.unanswered += 1;
        self.effects.push(Effect::CheckReading(key));
        self.send_frame(key, frames::heartbeat(), Room::Limited);
        self.timers.set(Timer::Heartbeat(key), now + self.options.timing.heartbeat);
    }

    /// The driver answered a heartbeat with its running operations.
    ///
    /// The driver accepted every operation in its list. An operation that the driver accepted, did not complete and
    /// does not list twice in a row is lost: a completion under way would have come before the answer, on the same
    /// stream. Twice, because a driver may take an operation off its list a moment before sending the completion.
    pub(super) fn on_heartbeat(&mut self, now: Instant, key: SessionKey, running: &[String]) {
        for id in running {
            self.accepted(now, key, &id.as_str().into());
        }
        let Some(session) = self.sessions.get_mut(&key) else { return };
        session.last_seen = now;
        let running: HashSet<&str> = running.iter().map(String::as_str).collect();
        let accepted = |id: &OperationId| self.operations.get(id).is_some_and(|it| it.accepted());
        let silent = session.in_flight.ids().filter(|id| !running.contains(id.as_str()));
        let silent: Set<OperationId> = silent.filter(|id| accepted(id)).cloned().collect();
        let before = std::mem::replace(&mut session.unlisted, silent);
        let lost: Vec<OperationId> = session.unlisted.intersection(&before).cloned().collect();
        let provider = session.driver.provider.clone();
        for id in lost {
            tracing::warn!(provider = provider.as_str(), operation = %id, "the driver does not know the operation");
            self.send_cancel(key, &id, Reason::CoreOperationLost.word());
            let message = "the driver accepted the operation and does not work on it any more";
            let why = (ErrorCode::Unavailable, Reason::CoreOperationLost, message);
            self.give_up(now, key, &id, why);
            self.count(Count::Lost { provider: provider.clone() });
        }
    }

    /// By how many milliseconds the clock of the driver is ahead. Nothing is timed by it; but
    /// tokens and certificates are, and people compare logs.
    pub(crate) fn clock_is_off(&mut self, key: SessionKey, ahead: i64) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let known = session.clock_ahead.replace(ahead).is_some_and(|it| it.abs() > SKEW);
        if ahead.abs() > SKEW && !known {
            let (provider, session) = (&session.driver.provider, &session.id);
            tracing::warn!(
                provider = provider.as_str(),
                session,
                milliseconds = ahead,
                "the clock of the driver is off"
            );
        }
    }
}
