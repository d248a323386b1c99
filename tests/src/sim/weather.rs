//! The current faults.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::dice::Dice;
use super::plan::{Lie, Party, Weather};

/// The weather of a world. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Sky {
    dice: Dice,
    inner: Arc<Mutex<Inner>>,
    /// Counts, for each party, how often its watches were cut.
    cuts: [Arc<watch::Sender<u64>>; 4],
}

#[derive(Debug, Default)]
struct Inner {
    fronts: Vec<Front>,
    calm: bool,
}

#[derive(Debug)]
struct Front {
    kind: Weather,
    until: Instant,
    percent: u8,
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Luck {
    /// Nothing.
    Fine,
    /// It does not reach the server.
    Down,
    /// The server refuses it.
    Code(u16),
    /// The server does it, and the client never hears of it.
    Lost,
}

/// The fate of a driver's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// Nothing.
    None,
    /// Takes longer, before its work.
    Slow(Duration),
    /// Fails before its work.
    Fails,
    /// Fails after its work.
    FailsAfter,
    /// Never answers, and does its work.
    HangsAfter,
    /// Never answers, and does nothing.
    Hangs,
}

impl Sky {
    /// A clear one.
    pub fn new(dice: Dice) -> Self {
        Self { dice, inner: Arc::default(), cuts: std::array::from_fn(|_| Arc::default()) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, for a while.
    pub fn begin(&self, kind: Weather, time: Duration, percent: u8) {
        self.lock().fronts.push(Front { kind, until: Instant::now() + time, percent });
    }

    /// All faults end.
    pub fn clear(&self) {
        let mut inner = self.lock();
        inner.fronts.clear();
        inner.calm = true;
    }

    /// Whether all faults have ended.
    pub fn is_calm(&self) -> bool {
        self.lock().calm
    }

    /// Chance, for each client that meets the weather.
    pub fn dice(&self) -> &Dice {
        &self.dice
    }

    /// The first kind that `matches` and strikes.
    fn strikes<T>(&self, matches: impl Fn(Weather) -> Option<T>) -> Option<(T, Instant)> {
        let now = Instant::now();
        let mut inner = self.lock();
        inner.fronts.retain(|front| front.until > now);
        let mut candidates = inner.fronts.iter();
        candidates.find_map(|front| {
            let found = matches(front.kind)?;
            self.dice.percent(u64::from(front.percent)).then_some((found, front.until))
        })
    }

    /// Whether weather of this very kind strikes.
    fn is(&self, wanted: Weather) -> bool {
        self.strikes(|kind| (kind == wanted).then_some(())).is_some()
    }

    /// The fate of a request of this party.
    pub fn request(&self, who: Party) -> Luck {
        let luck = self.strikes(|kind| {
            if let Weather::ApiDown(party) = kind {
                concerns(party, who).then_some(Luck::Down)
            } else if let Weather::ApiCode(party, code) = kind {
                concerns(party, who).then_some(Luck::Code(code))
            } else if let Weather::ApiLost(party) = kind {
                concerns(party, who).then_some(Luck::Lost)
            } else {
                None
            }
        });
        luck.map_or(Luck::Fine, |(luck, _)| luck)
    }

    /// Whether a watch of this party gets 410.
    pub fn expired(&self, who: Party) -> bool {
        let matches = |kind| matches!(kind, Weather::ApiExpired(party) if concerns(party, who));
        self.strikes(|kind| matches(kind).then_some(())).is_some()
    }

    /// How long a request of this party takes, one way.
    pub fn request_delay(&self, who: Party) -> Duration {
        let slow = self.strikes(|kind| {
            let Weather::ApiSlow(party, most) = kind else { return None };
            concerns(party, who).then_some(most)
        });
        match slow {
            Some((most, _)) => self.dice.millis(0, u64::from(most)),
            // Most take no time worth a timer; the others let everything else come in between.
            None if self.dice.percent(50) => Duration::ZERO,
            None => self.dice.millis(1, 12),
        }
    }

    /// How much later a change that this party asks for is made, whatever becomes of the party.
    pub fn request_late(&self, who: Party) -> Option<Duration> {
        let (most, _) = self.strikes(|kind| {
            let Weather::ApiLate(party, most) = kind else { return None };
            concerns(party, who).then_some(most)
        })?;
        Some(self.dice.millis(0, u64::from(most)))
    }

    /// How late an event of a watch of this party comes.
    pub fn watch_delay(&self, who: Party) -> Duration {
        let slow = self.strikes(|kind| {
            let Weather::WatchSlow(party, most) = kind else { return None };
            concerns(party, who).then_some(most)
        });
        match slow {
            Some((most, _)) => self.dice.millis(0, u64::from(most)),
            None if self.dice.percent(70) => Duration::ZERO,
            None => self.dice.millis(1, 30),
        }
    }

    /// How long bytes take on a link.
    pub fn link_delay(&self) -> Duration {
        let slow = self.strikes(|kind| {
            let Weather::LinkSlow(most) = kind else { return None };
            Some(most)
        });
        match slow {
            Some((most, _)) => self.dice.millis(0, u64::from(most)),
            None if self.dice.percent(50) => Duration::ZERO,
            None => self.dice.millis(1, 8),
        }
    }

    /// Until when a link carries nothing, if it does not.
    pub fn link_silent(&self) -> Option<Instant> {
        self.strikes(|kind| (kind == Weather::LinkSilent).then_some(())).map(|((), until)| until)
    }

    /// Chooses the fate of a driver's call.
    pub fn call(&self) -> Mishap {
        let mishap = self.strikes(|kind| match kind {
            Weather::CloudSlow(seconds) => Some(Mishap::Slow(Duration::from_secs(seconds.into()))),
            Weather::CloudFails => Some(Mishap::Fails),
            Weather::CloudFailsAfter => Some(Mishap::FailsAfter),
            Weather::CloudHangsAfter => Some(Mishap::HangsAfter),
            Weather::CloudHangs => Some(Mishap::Hangs),
            Weather::ApiDown(_)
            | Weather::ApiCode(..)
            | Weather::ApiLost(_)
            | Weather::ApiSlow(..)
            | Weather::ApiLate(..)
            | Weather::ApiExpired(_)
            | Weather::WatchSlow(..)
            | Weather::LinkSlow(_)
            | Weather::LinkSilent
            | Weather::LinkTwice
            | Weather::CloudFull
            | Weather::CloudLate
            | Weather::CloudBlind
            | Weather::CloudHalf
            | Weather::CloudLies(_)
            | Weather::CloudStale => None,
        });
        match mishap {
            Some((Mishap::Slow(most), _)) => {
                Mishap::Slow(self.dice.millis(0, u64::try_from(most.as_millis()).unwrap_or(1)))
            }
            Some((mishap, _)) => mishap,
            None => Mishap::None,
        }
    }

    /// The current lie of drivers, if any.
    pub fn lie(&self) -> Option<Lie> {
        let lie = self.strikes(|kind| {
            let Weather::CloudLies(lie) = kind else { return None };
            Some(lie)
        });
        lie.map(|(lie, _)| lie)
    }

    /// How much later something is done that everybody has given up by then.
    pub fn late(&self) -> Option<Duration> {
        self.strikes(|kind| (kind == Weather::CloudLate).then_some(()))?;
        Some(self.dice.millis(5_000, 200_000))
    }

    /// Whether there is no room for another instance.
    pub fn full(&self) -> bool {
        self.is(Weather::CloudFull)
    }

    /// Whether the infrastructure hides new instances.
    pub fn blind(&self) -> bool {
        self.is(Weather::CloudBlind)
    }

    /// Whether an update stops in the middle.
    pub fn half(&self) -> bool {
        self.is(Weather::CloudHalf)
    }

    /// Whether a message comes twice.
    pub fn link_twice(&self) -> bool {
        self.is(Weather::LinkTwice)
    }

    /// Whether a list is an old one.
    pub fn stale(&self) -> bool {
        self.is(Weather::CloudStale)
    }

    /// Cuts the watches of a party.
    pub fn cut_watches(&self, party: Party) {
        for (index, cut) in self.cuts.iter().enumerate() {
            if concerns(party, party_of(index)) {
                cut.send_modify(|count| *count += 1);
            }
        }
    }

    /// Becomes ready when the watches of a party are cut.
    pub fn cuts(&self, who: Party) -> watch::Receiver<u64> {
        let index = (0..self.cuts.len()).find(|index| party_of(*index) == who);
        self.cuts[index.unwrap_or_default()].subscribe()
    }
}

fn party_of(index: usize) -> Party {
    match index {
        3 => Party::Kubelets,
        core => Party::Core(u8::try_from(core).unwrap_or_default()),
    }
}

fn concerns(party: Party, who: Party) -> bool {
    match (party, who) {
        (Party::Cores, Party::Core(_) | Party::Cores) | (Party::Kubelets, Party::Kubelets) => true,
        (Party::Core(one), Party::Core(other)) => one == other,
        (Party::Cores | Party::Core(_) | Party::Kubelets, _) => false,
    }
}
