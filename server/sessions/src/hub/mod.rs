//! The core's knowledge of drivers and operations, and every decision about them.
//!
//! Pure: time comes in, [`Effect`]s go out, nothing waits. The shell around it moves frames and runs the clock. Two
//! things are kept apart here: *sessions* (live streams, their roles, the losses with them) and *operations* (queued,
//! sent, away with a lost session, finished). An operation is always in exactly one of these places, and leaves the
//! place with an outcome (INV-8). A target has at most one slot, so never two mutations (INV-1). Everything here is
//! bounded by [`crate::Limits`] (INV-10). `model.rs` checks all invariants after every step of generated histories.

mod adoption;
mod answers;
mod arrivals;
#[cfg(test)]
mod diagram;
mod dispatch;
#[cfg(test)]
mod docs;
mod drain;
mod ended;
mod heartbeat;
mod hints;
mod leadership;
mod map;
#[cfg(test)]
mod model;
mod operations;
mod pace;
mod pages;
mod progress;
mod queue;
mod registry;
mod requeue;
mod resume;
mod roles;
mod session;
mod shown;
mod size;
mod timers;
mod trace;
mod views;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use ostler_api::driver::OperationKind;
use ostler_api::hint::HintKind;
use ostler_api::{ProviderName, Revision, Uid};
use tokio::time::Instant;

pub(crate) use self::answers::CHECKPOINT_BYTES;
use self::arrivals::Arrivals;
use self::ended::Ended;
use self::leadership::Leadership;
pub(crate) use self::map::Map;
pub(crate) use self::operations::{Answer, Op, Owner};
use self::session::{Guest, Lost, Provider, Session};
pub(crate) use self::shown::Selected;
pub(crate) use self::size::PROVIDER_SPEC;
use self::timers::{Timer, Timers};
pub(crate) use self::trace::creation;
pub(crate) use self::views::{Denial, Scope};
use crate::record::Records;
use crate::session::outbox::Room;
use crate::session::{Close, Frame};
use crate::{IdComparisons, SessionEvent, SessionsOptions};

/// One Register stream; grows with every stream.
pub(crate) type SessionKey = u64;
/// A lost session, by its former key.
pub(crate) type LostKey = SessionKey;
/// The id of an operation.
pub(crate) use ostler_api::OperationId;

/// An action for the shell.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Send a frame.
    Send(SessionKey, Frame, Room),
    /// Send what waits for another frame.
    Flush(SessionKey),
    /// End a stream.
    Close(SessionKey, Close),
    /// See whether the driver reads its frames; if not, close.
    CheckReading(SessionKey),
    /// Tell the controllers.
    Publish(SessionEvent),
}

/// An action for the shell, in any order, once the hub is free for others.
#[derive(Debug)]
pub(crate) enum Later {
    /// Count an event.
    Count(Count),
    /// Give the outcome of an operation to its caller.
    Answer(Box<Op>, Box<Answer>),
    /// An operation ended: its span.
    Span(Box<ostler_trace::Span>),
    /// All that was known of an operation. To free it takes time.
    Forget(Box<Op>),
}

/// An event to count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Count {
    /// An operation ended; `code` is `OK` or the name of an error code.
    Ended { provider: ProviderName, kind: OperationKind, code: &'static str, took: Duration },
    /// An operation was sent after so much time in the queue.
    Sent { provider: ProviderName, kind: OperationKind, waited: Duration },
    /// Nothing was heard of an operation for too long.
    Stalled { provider: ProviderName, kind: OperationKind },
    /// The infrastructure throttles.
    Throttled { provider: ProviderName },
    /// A result came for an operation that is not waited for.
    Late { provider: ProviderName },
    /// A result was dropped because it was not acknowledged in time.
    Unclaimed { provider: ProviderName },
    /// A driver accepted an operation and does not know it any more.
    Lost { provider: ProviderName },
    /// A driver reported an event of an instance.
    Hinted { provider: ProviderName, kind: HintKind },
    /// An event of a driver led to no read.
    HintDropped { provider: ProviderName, reason: &'static str },
    /// A stream was turned away before it said anything.
    TurnedAway { reason: &'static str },
    /// A session ended; `reason` is the core's, or `STREAM_ENDED`.
    Closed { provider: ProviderName, reason: &'static str },
}

/// More than a core has providers. A forgotten provider has its bursts again.
const FORMER: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// The core's knowledge of drivers and operations.
#[derive(Debug)]
pub(crate) struct Hub {
    options: SessionsOptions,
    records: Records,
    leadership: Leadership,
    /// Nothing is sent after it.
    lease_end: Option<Instant>,
    arrivals: Arrivals,
    next: SessionKey,
    /// Streams without a Hello.
    guests: Map<SessionKey, Guest>,
    sessions: BTreeMap<SessionKey, Session>,
    /// Sessions that ended with mutations in flight, for the resume window.
    lost: BTreeMap<LostKey, Lost>,
    providers: BTreeMap<ProviderName, Provider>,
    /// Providers with former sessions: a driver that comes back gains no rate over a driver that stayed.
    former: LruCache<ProviderName, Provider>,
    comparisons: IdComparisons,
    operations: Map<OperationId, Box<Op>>,
    /// The operation that occupies a target, by UID.
    slots: Map<Uid, OperationId>,
    /// By class: its secret when the class was last sent or read. A dropped entry costs only invalidations: a driver
    /// that asks for a stale secret is told so.
    secrets: LruCache<String, Revision>,
    ended: Ended,
    timers: Timers,
    effects: Vec<Effect>,
    later: Vec<Later>,
}

impl Hub {
    /// Nothing is known. `records`: the recorded operations.
    pub(crate) fn new(options: SessionsOptions, records: Records) -> Self {
        let timing = &options.timing;
        let classes = NonZeroUsize::new(options.limits.class_revisions);
        let classes = classes.unwrap_or(NonZeroUsize::MIN);
        let arrivals = Arrivals::new(timing.connect_interval, options.limits.connect_burst);
        Self {
            leadership: Leadership::Waiting,
            lease_end: None,
            arrivals,
            options,
            records,
            next: 1,
            guests: Map::default(),
            sessions: BTreeMap::new(),
            lost: BTreeMap::new(),
            providers: BTreeMap::new(),
            former: LruCache::new(FORMER),
            comparisons: IdComparisons::default(),
            operations: Map::default(),
            slots: Map::default(),
            secrets: LruCache::new(classes),
            ended: Ended::default(),
            timers: Timers::default(),
            effects: Vec::new(),
            later: Vec::new(),
        }
    }

    /// Swaps `done`, which is empty, with the effects since the last call. Two buffers go to and fro, so that none is
    /// made for every frame.
    pub(crate) fn swap_effects(&mut self, done: &mut Vec<Effect>) {
        std::mem::swap(&mut self.effects, done);
    }

    /// The actions for later, once the hub is free for others.
    pub(crate) fn take_later(&mut self) -> Vec<Later> {
        std::mem::take(&mut self.later)
    }

    /// Before this [`Self::expire`] has nothing to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Handles the timers that are due.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(timer) = self.timers.pop(now) {
            match timer {
                Timer::Hello(key) => self.close(now, key, Close::hello_timeout()),
                Timer::Heartbeat(key) => self.beat(now, key),
                Timer::Flush(key) => self.effects.push(Effect::Flush(key)),
                Timer::Operation(id) => self.operation_due(now, &id),
                Timer::Resume(key) => self.not_resumed(now, key),
                Timer::Stall(id) => self.stalled(&id),
                Timer::NotReady(provider) | Timer::Rate(provider) | Timer::Pause(provider) => {
                    self.assign_role(now, &provider);
                }
                Timer::Turned(provider) => {
                    self.turned(&provider);
                    self.assign_role(now, &provider);
                }
                Timer::Starved(provider) => self.starved(now, &provider),
                Timer::Adoption => self.adoption_over(),
                Timer::Age(key) => self.aged(now, key),
                Timer::Drained(key) => self.drained(now, key),
            }
        }
    }

    fn send_frame(&mut self, key: SessionKey, frame: Frame, room: Room) {
        self.effects.push(Effect::Send(key, frame, room));
    }

    fn publish(&mut self, event: SessionEvent) {
        self.effects.push(Effect::Publish(event));
    }

    fn count(&mut self, count: Count) {
        self.later.push(Later::Count(count));
    }
}
