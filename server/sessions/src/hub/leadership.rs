//! Whether this core leads: only then are drivers taken, and only then is anything sent to them.

use ostler_proto::v1alpha1::CoreDraining;
use tokio::time::Instant;

use super::timers::Timer;
use super::{Hub, SessionKey};
use crate::Term;
use crate::session::outbox::Room;
use crate::session::{Close, Frame, frames};

/// In whose name the core acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Leadership {
    /// Another core leads, as far as is known.
    Waiting,
    /// This one does, until then at the latest if there is an end.
    Leads { term: Term, until: Option<Instant> },
    /// It did or it will not: this core goes.
    Over,
}

impl Hub {
    /// This core leads, in this term.
    pub(crate) fn lead(&mut self, now: Instant, term: Term) {
        if self.leadership != Leadership::Over {
            self.leadership = Leadership::Leads { term, until: None };
            self.open_adoption(now);
        }
    }

    /// The Lease is ours until then. Nothing is sent after that, whatever else runs late: another
    /// core may lead by then.
    pub(crate) fn lease_until(&mut self, end: Instant) {
        if let Leadership::Leads { until, .. } = &mut self.leadership {
            *until = Some(end);
        }
    }

    /// Whether drivers are to dial in here.
    pub(crate) fn leads(&self) -> Result<(), Close> {
        match self.leadership {
            Leadership::Leads { .. } => Ok(()),
            Leadership::Waiting => Err(Close::not_leader()),
            Leadership::Over => Err(Close::core_stopping()),
        }
    }

    /// Whether operations may be sent.
    pub(super) fn may_send(&self, now: Instant) -> bool {
        match self.leadership {
            Leadership::Leads { until, .. } => until.is_none_or(|until| now < until),
            Leadership::Waiting | Leadership::Over => false,
        }
    }

    /// The term that frames carry.
    pub(crate) fn term(&self) -> Term {
        match &self.leadership {
            Leadership::Leads { term, .. } => term.clone(),
            Leadership::Waiting | Leadership::Over => Term::default(),
        }
    }

    /// This core goes: nothing is sent from here on, drivers are told, and every stream ends.
    pub(crate) fn stop(&mut self, now: Instant) {
        self.leadership = Leadership::Over;
        self.timers.clear(&Timer::Adoption);
        let spread = self.options.timing.reconnect_spread;
        let sessions: Vec<SessionKey> = self.sessions.keys().copied().collect();
        for key in sessions {
            let id = self.sessions.get(&key).map(|session| session.id.as_str());
            // Else all of them would be at the next core in the same moment.
            let reconnect_after = spread.mul_f64(frames::part_of(id.unwrap_or_default()));
            let draining = Frame::Draining(CoreDraining {
                reason: "core stops".to_owned(),
                reconnect_after: Some(frames::duration(reconnect_after)),
                close_after: None,
            });
            self.send_frame(key, draining, Room::Reserved);
            self.close(now, key, Close::core_stopping());
        }
        let guests: Vec<SessionKey> = self.guests.keys().copied().collect();
        for key in guests {
            self.close(now, key, Close::core_stopping());
        }
    }
}
