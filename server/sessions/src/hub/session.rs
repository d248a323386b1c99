//! Records of streams, sessions and providers.

use ostler_api::ProviderName;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ostler_api::driver::OperationKind;
use ostler_proto::v1alpha1::{ObjectRevision, Readiness, RoleKind};
use tokio::time::Instant;

use super::hints::{HINT_BURST, HINT_EVERY};
use super::map::Set;
use super::pace::Pace;
use super::queue::{Queue, Rank};
use super::{OperationId, SessionKey};
use crate::session::hello::Introduction;
use crate::{Principal, Rate, TokenBucket};

/// A stream without a Hello.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) principal: Principal,
    pub(crate) peer: String,
}

/// A live session.
#[derive(Debug)]
pub(crate) struct Session {
    /// Heartbeats sent since the driver last answered one.
    pub(crate) unanswered: u32,
    /// Name of the principal.
    pub(crate) principal: String,
    pub(crate) peer: String,
    /// The id that the driver knows.
    pub(crate) id: String,
    pub(crate) driver: Introduction,
    pub(crate) role: RoleKind,
    pub(crate) readiness: Readiness,
    /// The driver's reason, for people.
    pub(crate) reason: String,
    /// Since when it is not ready any more; `None` if it never was.
    pub(crate) unready: Option<Instant>,
    /// How many operations may be in flight.
    pub(crate) credit: usize,
    pub(crate) since: Instant,
    /// When the driver last answered a heartbeat, or said Hello.
    pub(crate) last_seen: Instant,
    pub(crate) in_flight: Work,
    /// Bytes of unaccepted operations: the driver may not have read them.
    pub(crate) unaccepted: usize,
    /// When the core closes it, once asked by the core to dial again; it gets nothing new then.
    pub(crate) closes: Option<Instant>,
    /// When the process of the driver has ended, if it said so.
    pub(crate) ends: Option<Instant>,
    /// Accepted operations that the driver did not list last time.
    pub(crate) unlisted: Set<OperationId>,
    /// Operations that the driver brought and was told to cancel, with the class it named.
    pub(crate) dismissed: Vec<(OperationId, Option<ObjectRevision>)>,
    /// By how many milliseconds the driver's clock is ahead of ours, if the driver told its time.
    pub(crate) clock_ahead: Option<i64>,
    /// Operations in a row that were not accepted in time.
    pub(crate) not_accepted: u32,
}

/// The running operations of a driver.
#[derive(Debug, Default)]
pub(crate) struct Work {
    ids: Set<OperationId>,
    by_rank: BTreeMap<Rank, usize>,
}

impl Work {
    pub(crate) fn insert(&mut self, id: OperationId, kind: OperationKind) {
        if self.ids.insert(id) {
            *self.by_rank.entry(Rank::of(kind)).or_default() += 1;
        }
    }

    pub(crate) fn remove(&mut self, id: &OperationId, kind: OperationKind) {
        if self.ids.remove(id) {
            *self.by_rank.entry(Rank::of(kind)).or_default() -= 1;
        }
    }

    fn of_rank(&self, rank: Rank) -> usize {
        self.by_rank.get(&rank).copied().unwrap_or_default()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &OperationId> {
        self.ids.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }
}

/// Creates leave one in so many of the credit to everything else, and so do deletions, and changes: each may get stuck.
const NOT_FOR_ONE_RANK: usize = 8;

impl Session {
    /// The session of a driver that has just said Hello, without credit.
    pub(crate) fn begun(
        now: Instant,
        principal: String,
        peer: String,
        id: String,
        driver: Introduction,
        role: RoleKind,
    ) -> Self {
        Self {
            unanswered: 0,
            principal,
            peer,
            id,
            driver,
            role,
            readiness: Readiness::NotReady,
            reason: String::new(),
            unready: None,
            credit: 0,
            since: now,
            last_seen: now,
            in_flight: Work::default(),
            unaccepted: 0,
            closes: None,
            ends: None,
            unlisted: Set::default(),
            dismissed: Vec::new(),
            clock_ahead: None,
            not_accepted: 0,
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.readiness == Readiness::Ready && !self.is_retired()
    }

    /// Whether the core asked the driver to dial again.
    pub(crate) fn is_retired(&self) -> bool {
        self.closes.is_some()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_retired() || self.readiness == Readiness::Draining
    }

    /// Whether another operation may be sent, with at most `window` bytes unread.
    pub(crate) fn has_credit(&self, window: usize) -> bool {
        self.is_ready() && self.in_flight.len() < self.credit && self.unaccepted < window
    }

    /// An operation of which it may not have read so many bytes is not with it any more.
    pub(crate) fn leave(&mut self, id: &OperationId, kind: OperationKind, unread: usize) {
        self.in_flight.remove(id, kind);
        self.unaccepted = self.unaccepted.saturating_sub(unread);
    }

    /// Whether another operation of a rank leaves enough of the credit to the others. Reads are quick.
    fn has_credit_for(&self, rank: Rank) -> bool {
        let share = self.credit - self.credit / NOT_FOR_ONE_RANK;
        rank == Rank::Read || self.in_flight.of_rank(rank) < share
    }
}

/// A session that ended with mutations in flight.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) provider: ProviderName,
    pub(crate) principal: String,
    pub(crate) instance_id: String,
    pub(crate) instance_name: String,
    pub(crate) operations: BTreeSet<OperationId>,
    /// The stream itself ended, as it does when the driver's process dies.
    pub(crate) stream_ended: bool,
}

/// The controllers are told so often at most that a provider has a driver that is ready, or none.
const TURN_EVERY: Duration = Duration::from_secs(1);
/// So many times in a row after a rest: the start, restart or upgrade of a driver takes fewer.
const TURN_BURST: u32 = 10;

/// A provider that has sessions, or had some and still has operations.
#[derive(Debug)]
pub(crate) struct Provider {
    /// The session that gets operations.
    pub(crate) active: Option<SessionKey>,
    /// Whether the controllers were told that operations are sent.
    pub(crate) announced: bool,
    /// The active session's reason when the controllers were last told.
    pub(crate) reason: String,
    /// Limits how often the controllers are told.
    pub(crate) turns: TokenBucket,
    pub(crate) queue: Queue,
    pub(crate) pace: Pace,
    /// How many events of its drivers are passed on.
    pub(crate) hints: TokenBucket,
}

impl Default for Provider {
    fn default() -> Self {
        Self::at(None)
    }
}

impl Provider {
    /// A provider with a limit of operations a second.
    pub(crate) fn at(rate: Option<Rate>) -> Self {
        Self {
            active: None,
            announced: false,
            reason: String::new(),
            turns: TokenBucket::new(Rate::every(TURN_EVERY, TURN_BURST)),
            queue: Queue::default(),
            pace: Pace::new(rate),
            hints: TokenBucket::new(Rate::every(HINT_EVERY, HINT_BURST)),
        }
    }

    /// The operations that wait though `session` has credit.
    pub(crate) fn held<'a>(
        &self,
        now: Instant,
        session: &'a Session,
    ) -> impl Fn(Rank) -> bool + use<'a> {
        let pauses = self.pace.paused_until(now).is_some();
        move |rank| (pauses && rank == Rank::Create) || !session.has_credit_for(rank)
    }
}
