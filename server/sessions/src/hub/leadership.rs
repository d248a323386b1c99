//! Whether this core leads: only then are drivers taken, and only then is anything sent to them. A looking core takes
//! drivers too, outside fencing, and sends no mutation.

use ostler_api::ProviderName;
use ostler_api::driver::{Certainty, ErrorCode, OperationKind};
use ostler_api::operation::Reason;
use ostler_proto::v1alpha1::CoreDraining;
use tokio::time::Instant;

use super::operations::{Op, Place};
use super::queue::Ticket;
use super::timers::Timer;
use super::{Hub, OperationId, SessionKey};
use crate::session::outbox::Room;
use crate::session::{Close, Frame, frames};
use crate::{SubmitError, Term};

/// In whose name the core acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Leadership {
    /// Another core leads, as far as is known.
    Waiting,
    /// The core leads.
    Leads { term: Term },
    /// It still does, for a moment: nothing is sent any more, and what drivers look up they may answer.
    Ends { term: Term },
    /// The core leads nothing: drivers are only asked for their instances.
    Looks,
    /// The core is going: it led, or never will.
    Over,
}

impl Hub {
    /// The core leads, in the given term.
    pub(crate) fn lead(&mut self, now: Instant, term: Term) {
        let goes = matches!(self.leadership, Leadership::Ends { .. } | Leadership::Over);
        if !goes {
            self.leadership = Leadership::Leads { term };
            self.open_adoption(now);
        }
    }

    /// The core is about to go. It sends no more operations, and takes no new driver; connected drivers may still get
    /// the class that a read needs, and answer the read. The next core would cancel the read as unknown. Mutations are
    /// not waited for: the next core finds them recorded.
    pub(crate) fn wind_down(&mut self, now: Instant) {
        let Leadership::Leads { term } = self.leadership else { return };
        self.leadership = Leadership::Ends { term };
        self.give_back_calls(now);
    }

    /// Tells callers of queued operations that no send will follow: otherwise they would wait for the whole timeout.
    fn give_back_calls(&mut self, now: Instant) {
        let queued = |it: &Op| match it.place {
            Place::Queued(ticket) if it.is_call() => Some(ticket),
            Place::Queued(_) | Place::Sent(_) | Place::Away(_) | Place::Finished { .. } => None,
        };
        let all = self.operations.iter();
        let calls = all.filter_map(|(id, it)| queued(it).map(|ticket| (id.clone(), ticket)));
        let calls: Vec<(OperationId, Ticket)> = calls.collect();
        for (id, ticket) in calls {
            let provider = self.operations.get(&id).map(|it| it.provider.clone());
            if let Some(record) = provider.and_then(|provider| self.providers.get_mut(&provider)) {
                record.queue.remove(ticket);
            }
            let message = "the core stops before the operation was sent";
            let why = (ErrorCode::Unavailable, Reason::CoreNoSession, message);
            self.fail(now, &id, why, Certainty::NotApplied);
        }
    }

    /// Whether no driver looks anything up for this ending core.
    pub(crate) fn is_wound_down(&self) -> bool {
        let reads = |it: &Op| matches!(it.place, Place::Sent(_)) && !it.kind.is_mutation();
        match self.leadership {
            Leadership::Leads { .. } | Leadership::Looks => false,
            Leadership::Ends { .. } => !self.operations.values().any(|it| reads(it)),
            Leadership::Waiting | Leadership::Over => true,
        }
    }

    /// The core asks, and leads nothing. Operations held by drivers do not concern such a core.
    pub(crate) fn look(&mut self) {
        if self.leadership == Leadership::Waiting {
            self.leadership = Leadership::Looks;
        }
    }

    /// Whether this core only asks.
    pub(super) fn looks(&self) -> bool {
        self.leadership == Leadership::Looks
    }

    /// Whether an operation of this kind for this provider may be sent at all.
    pub(super) fn may_ask(
        &self,
        kind: OperationKind,
        provider: &ProviderName,
    ) -> Result<(), SubmitError> {
        if matches!(self.leadership, Leadership::Ends { .. }) {
            return Err(SubmitError::NoDriver { provider: provider.clone() });
        }
        let is_look = matches!(
            kind,
            OperationKind::GetMachineStatus
                | OperationKind::ListMachines
                | OperationKind::GetPoolStatus
                | OperationKind::ListPools
                | OperationKind::ValidateClass
        );
        if self.looks() && !is_look { Err(SubmitError::LooksOnly { kind }) } else { Ok(()) }
    }

    /// The Lease is ours until then. Nothing is sent after that, whatever else runs late: another
    /// core may lead by then.
    pub(crate) fn lease_until(&mut self, end: Instant) {
        self.lease_end = Some(end);
    }

    /// Whether drivers are to dial in here.
    pub(super) fn takes_drivers(&self) -> Result<(), Close> {
        let ends = matches!(self.leadership, Leadership::Ends { .. });
        if ends { Err(Close::core_stopping()) } else { self.leads() }
    }

    /// Whether drivers are served here.
    pub(crate) fn leads(&self) -> Result<(), Close> {
        match self.leadership {
            Leadership::Leads { .. } | Leadership::Ends { .. } | Leadership::Looks => Ok(()),
            Leadership::Waiting => Err(Close::not_leader()),
            Leadership::Over => Err(Close::core_stopping()),
        }
    }

    /// Whether operations may be sent.
    pub(super) fn may_send(&self, now: Instant) -> bool {
        match self.leadership {
            Leadership::Leads { .. } => self.lease_end.is_none_or(|end| now < end),
            Leadership::Looks => true,
            Leadership::Waiting | Leadership::Ends { .. } | Leadership::Over => false,
        }
    }

    /// The term that frames carry.
    pub(crate) fn term(&self) -> Term {
        match self.leadership {
            Leadership::Leads { term } | Leadership::Ends { term } => term,
            Leadership::Waiting | Leadership::Looks | Leadership::Over => Term::default(),
        }
    }

    /// This core goes: nothing is sent from here on, drivers are told, and every stream ends.
    pub(crate) fn stop(&mut self, now: Instant) {
        self.leadership = Leadership::Over;
        self.give_back_calls(now);
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
