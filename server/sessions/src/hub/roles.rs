//! The session of a provider that gets the operations.

use ostler_api::driver::{Certainty, ErrorCode};
use ostler_api::operation::Reason;
use ostler_api::{ProviderName, differ_by_numbers_only};
use ostler_proto::v1alpha1::RoleKind;
use tokio::time::Instant;

use super::session::Session;
use super::timers::Timer;
use super::{Hub, SessionKey};
use crate::SessionEvent;
use crate::session::frames;
use crate::session::outbox::Room;

impl Hub {
    /// Settles who is active, tells drivers and controllers, and sends what waits.
    ///
    /// The first ready session is active, and stays so while it can: another session takes over when the active stream
    /// ends, when it drains, and when it is not ready for a while and the other one is.
    pub(super) fn assign_role(&mut self, now: Instant, provider: &ProviderName) {
        let Some(record) = self.providers.get(provider) else { return };
        let before = record.active;
        let chosen = self.choose(now, provider, before);
        if chosen != before {
            self.set_role(before, RoleKind::Standby);
            self.set_role(chosen, RoleKind::Active);
        }
        let session = chosen.and_then(|key| self.sessions.get(&key));
        let ready = session.is_some_and(Session::is_ready);
        let reason = session.map(|session| session.reason.clone()).unwrap_or_default();
        let provider_ids = session.map(|session| session.driver.provider_ids);
        let Some(record) = self.providers.get_mut(provider) else { return };
        record.active = chosen;
        if let Some(by) = provider_ids {
            self.comparisons.set(provider, by);
        }
        let announced = std::mem::replace(&mut record.announced, ready);
        // Each Machine that waits shows the reason.
        let differs = !differ_by_numbers_only(&record.reason, &reason);
        record.reason = reason;
        let waiting = record.queue.len() > 0;
        let turned = if ready { !announced || chosen != before } else { announced || differs };
        if turned && !self.timers.is_set(&Timer::Turned(provider.clone())) {
            match record.turns.take(now) {
                Ok(()) => self.turned(provider),
                Err(at) => self.timers.set(Timer::Turned(provider.clone()), at),
            }
        }
        if chosen.is_some() {
            self.timers.clear(&Timer::Starved(provider.clone()));
            self.pump(now, provider);
        } else if waiting {
            let at = now + self.options.timing.resume_window;
            self.timers.start(Timer::Starved(provider.clone()), at);
        } else {
            self.drop_idle(now, provider);
        }
    }

    /// Tells the controllers whether operations are sent to a provider now. Each event costs a look at all Machines of
    /// the provider, so of a driver that changes again and again the controllers hear the last state of a second.
    pub(super) fn turned(&mut self, provider: &ProviderName) {
        let ready = self.providers.get(provider).is_some_and(|record| record.announced);
        let provider = provider.clone();
        self.publish(if ready {
            SessionEvent::ProviderReady { provider }
        } else {
            SessionEvent::ProviderGone { provider }
        });
    }

    fn choose(
        &mut self,
        now: Instant,
        provider: &ProviderName,
        active: Option<SessionKey>,
    ) -> Option<SessionKey> {
        self.timers.clear(&Timer::NotReady(provider.clone()));
        if self.leads().is_err() {
            return None;
        }
        let candidates = || {
            self.sessions
                .iter()
                .filter(|(_, it)| it.driver.provider == *provider && !it.is_draining())
        };
        let current = candidates().find(|(key, _)| Some(**key) == active);
        let ready = candidates().find(|(_, it)| it.is_ready()).map(|(key, _)| *key);
        let Some((key, session)) = current else {
            return ready.or_else(|| candidates().next().map(|(key, _)| *key));
        };
        let patience = session.unready.map_or(now, |since| since + self.options.timing.not_ready);
        match ready {
            Some(other) if !session.is_ready() && now >= patience => Some(other),
            Some(_) if !session.is_ready() => {
                let key = *key;
                self.timers.set(Timer::NotReady(provider.clone()), patience);
                Some(key)
            }
            Some(_) | None => Some(*key),
        }
    }

    /// Gives a live session a role and tells its driver. A draining session keeps its role, and a core that goes sends
    /// no role: a role without a term would end a role from the next core.
    fn set_role(&mut self, key: Option<SessionKey>, role: RoleKind) {
        if self.leads().is_err() {
            return;
        }
        let term = self.term();
        let Some(key) = key else { return };
        let Some(session) = self.sessions.get_mut(&key) else { return };
        if session.is_draining() || session.role == role {
            return;
        }
        session.role = role;
        let provider = &session.driver.provider;
        tracing::info!(
            provider = provider.as_str(),
            session = session.id,
            role = role.as_str_name(),
            "role changed"
        );
        self.send_frame(key, frames::role(role, term), Room::Limited);
    }

    /// A provider has had no driver for the resume window: what waits for it is given back.
    pub(super) fn starved(&mut self, now: Instant, provider: &ProviderName) {
        while let Some(id) = self.providers.get_mut(provider).and_then(|it| it.queue.pop(|_| false))
        {
            let message = "the driver went away before the operation was sent";
            let why = (ErrorCode::Unavailable, Reason::CoreNoSession, message);
            self.fail(now, &id, why, Certainty::NotApplied);
        }
        self.drop_idle(now, provider);
    }

    /// A provider without sessions and operations is none any more, once its creates do not pause, and the controllers
    /// know: a driver that restarts does not end the pause. The record of the provider stays for its limits.
    fn drop_idle(&mut self, now: Instant, provider: &ProviderName) {
        let lives = self.sessions.values().any(|session| session.driver.provider == *provider);
        let record = self.providers.get(provider);
        let pauses = record.is_some_and(|record| record.pace.paused_until(now).is_some());
        if !lives
            && !pauses
            && !self.timers.is_set(&Timer::Turned(provider.clone()))
            && let Some((provider, record)) = self.providers.remove_entry(provider)
        {
            self.comparisons.left(&provider);
            self.former.put(provider, record);
        }
    }
}
