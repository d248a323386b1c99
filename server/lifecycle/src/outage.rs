//! Time in which Nodes could not report, because an API server did not answer. No Node is judged by
//! such time: it is added to every timeout that waits for a Node.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};

use crate::time::after;

/// How long after an outage Nodes are given to report again: a kubelet does so every ten seconds.
pub const SETTLE: Duration = Duration::from_secs(10);

/// Most outages remembered. One outage a minute for most of a day; beyond the limit the two oldest outages become one,
/// which makes timeouts longer and never shorter.
const MOST_OUTAGES: usize = 1024;

/// An API server did not answer, from one time to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// When it last answered before.
    pub from: Timestamp,
    /// When the API server answered again.
    pub to: Timestamp,
}

/// The known state of the API servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiView {
    /// Since when an API server does not answer; `None`: all answer.
    pub down_since: Option<Timestamp>,
    /// The failure in place of an answer, if known.
    pub cause: Option<Arc<str>>,
    /// Whether that lasts for longer than a moment, or ended only just now.
    pub frozen: bool,
    /// Earlier outages, by beginning.
    pub outages: Arc<[Outage]>,
}

impl ApiView {
    /// Whether an API server has not answered for longer than a moment.
    pub fn is_down_for_long(&self) -> bool {
        self.frozen && self.down_since.is_some()
    }

    /// The outage, for people: the API server may just reject our credentials.
    pub fn describe(&self) -> String {
        let cause = self.cause.as_ref().map(|cause| format!(" ({cause})"));
        format!("an API server does not answer{}", cause.unwrap_or_default())
    }

    /// How much of the time from `since` to `now` was lost.
    pub fn lost(&self, since: Timestamp, now: Timestamp) -> Duration {
        let mut seen = since;
        let mut lost = SignedDuration::ZERO;
        let present = self.down_since.map(|from| Outage { from, to: now });
        let begun = |outage: &Outage| present.is_none_or(|present| outage.from <= present.from);
        let (before, since_then) = self.outages.split_at(self.outages.partition_point(begun));
        for outage in before.iter().copied().chain(present).chain(since_then.iter().copied()) {
            let (from, to) = (outage.from.max(seen), after(outage.to, SETTLE).min(now));
            if to > from {
                lost = lost.saturating_add(to.duration_since(from));
                seen = to;
            }
        }
        Duration::try_from(lost).unwrap_or_default()
    }

    /// The same for what began at `since`. An outage that was over by then cost nothing: no kubelet of the Machine was
    /// silent for it.
    pub fn lost_to_new(&self, since: Timestamp, now: Timestamp) -> Duration {
        let outages = self.outages.iter().copied().filter(|it| it.to > since).collect();
        Self { outages, ..self.clone() }.lost(since, now)
    }

    /// The combined view of two: the control cluster, and the target cluster of a Machine.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut outages: Vec<Outage> =
            self.outages.iter().chain(other.outages.iter()).copied().collect();
        outages.sort_by_key(|outage| outage.from);
        Self {
            down_since: [self.down_since, other.down_since].into_iter().flatten().min(),
            cause: self.cause.clone().or_else(|| other.cause.clone()),
            frozen: self.frozen || other.frozen,
            outages: outages.into(),
        }
    }

    /// When the last outage ended that is over.
    fn last_end(&self) -> Option<Timestamp> {
        self.outages.iter().map(|outage| outage.to).max()
    }

    /// For how long there was no outage; `None`: there is one.
    pub fn calm_for(&self, now: Timestamp) -> Option<Duration> {
        let last = self.last_end().unwrap_or(Timestamp::MIN);
        let calm = || Duration::try_from(now.duration_since(last)).unwrap_or_default();
        self.down_since.is_none().then(calm)
    }

    /// Until when Nodes are given time to report after the last outage; `None`: that time is over.
    pub fn settles_at(&self, now: Timestamp) -> Option<Timestamp> {
        let until = after(self.last_end()?, SETTLE);
        (now < until).then_some(until)
    }
}

/// The results so far of the checks of the API servers.
#[derive(Debug, Clone)]
pub struct Reachability {
    patience: Duration,
    answered_at: Timestamp,
    down: Option<Down>,
    /// Whether the last outage lasted for longer than `patience`.
    was_long: bool,
    outages: VecDeque<Outage>,
    /// The same, for the views: it changes seldom and is looked at often.
    shared: Arc<[Outage]>,
}

/// An outage that is not over.
#[derive(Debug, Clone, Copy)]
struct Down {
    /// The last answer before.
    since: Timestamp,
    /// When the first check without one was made.
    noticed: Timestamp,
}

impl Reachability {
    /// The API servers answer. `patience`: how long an outage lasts before it is logged. `before`: when a client was
    /// last known to be served, so that the time since then counts as an outage; `None`: it is unknown, and all time
    /// before counts as one.
    pub fn new(patience: Duration, before: Option<Timestamp>, now: Timestamp) -> Self {
        let first = Outage { from: before.unwrap_or(Timestamp::MIN).min(now), to: now };
        Self {
            patience,
            answered_at: now,
            down: None,
            was_long: false,
            outages: [first].into(),
            shared: [first].into(),
        }
    }

    /// All of them answered a check.
    pub fn answered(&mut self, now: Timestamp) {
        self.answered_at = now;
        let Some(down) = self.down.take() else { return };
        self.was_long = self.is_long(down, now);
        self.outages.push_back(Outage { from: down.since, to: now });
        if self.outages.len() > MOST_OUTAGES
            && let Some(oldest) = self.outages.pop_front()
            && let Some(next) = self.outages.front_mut()
        {
            next.from = oldest.from;
        }
        self.shared = self.outages.iter().copied().collect();
    }

    /// An API server did not answer a request of the given time. The outage may have begun right after the last check.
    pub fn silent(&mut self, asked: Timestamp) {
        self.down.get_or_insert(Down { since: self.answered_at, noticed: asked });
    }

    /// Whether an API server does not answer.
    pub const fn is_down(&self) -> bool {
        self.down.is_some()
    }

    fn is_long(&self, down: Down, now: Timestamp) -> bool {
        now >= after(down.noticed, self.patience)
    }

    /// The view for decisions.
    pub fn view(&self, now: Timestamp) -> ApiView {
        let mut view = ApiView {
            down_since: self.down.map(|down| down.since),
            cause: None,
            frozen: false,
            outages: Arc::clone(&self.shared),
        };
        view.frozen = match self.down {
            Some(down) => self.is_long(down, now),
            None => self.was_long && view.settles_at(now).is_some(),
        };
        view
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn lost(view: &ApiView, since: i64, now: i64) -> u64 {
        view.lost(at(since), at(now)).as_secs()
    }

    #[test]
    fn an_outage_is_lost_from_the_last_answer_until_nodes_had_time_to_report() {
        let mut api = Reachability::new(PATIENCE, Some(at(0)), at(0));
        api.answered(at(100));
        api.silent(at(102));
        api.silent(at(104));
        api.answered(at(160));
        let view = api.view(at(1000));
        assert_eq!(lost(&view, 50, 1000), 70);
        assert_eq!(lost(&view, 130, 1000), 40, "a timer that began in the middle of it");
        assert_eq!(lost(&view, 165, 1000), 5);
        assert_eq!(lost(&view, 170, 1000), 0);
        assert_eq!(lost(&view, 50, 120), 20, "only what has passed");
    }

    #[test]
    fn an_outage_that_lasts_is_lost_until_now() {
        let mut api = Reachability::new(PATIENCE, Some(at(0)), at(0));
        api.answered(at(100));
        api.silent(at(160));
        assert_eq!(lost(&api.view(at(400)), 50, 400), 300);
    }

    #[test]
    fn outages_that_follow_each_other_closely_are_not_counted_twice() {
        let mut api = Reachability::new(PATIENCE, Some(at(0)), at(0));
        for minute in 1..=10 {
            api.answered(at(minute * 60 + 15));
            api.silent(at(minute * 60 + 17));
            api.answered(at(minute * 60 + 60));
        }
        let view = api.view(at(900));
        // 45 s are silent and 10 s settle, ten times over.
        assert_eq!(lost(&view, 60, 900), 550);
    }

    #[test]
    fn what_happened_before_somebody_looked_is_lost() {
        let unseen = Reachability::new(PATIENCE, None, at(100)).view(at(500));
        assert_eq!(lost(&unseen, 0, 500), 110);
        let handed_over = Reachability::new(PATIENCE, Some(at(98)), at(100)).view(at(500));
        assert_eq!(lost(&handed_over, 0, 500), 12);
    }

    #[test]
    fn what_either_of_two_lost_counts_once() {
        let (mut control, mut target) = (
            Reachability::new(PATIENCE, Some(at(0)), at(0)),
            Reachability::new(PATIENCE, Some(at(0)), at(0)),
        );
        control.answered(at(100));
        target.answered(at(100));
        target.silent(at(101));
        control.answered(at(200));
        control.silent(at(201));
        control.answered(at(300));
        let now = at(400);
        let both = control.view(now).and(&target.view(now));
        assert_eq!(lost(&both, 50, 400), 300, "one is still down, the other was meanwhile");
        assert!(both.frozen && both.down_since == Some(at(100)));
        target.answered(at(400));
        let both = control.view(at(1000)).and(&target.view(at(1000)));
        assert_eq!(lost(&both, 50, 1000), 310);
        assert_eq!(both.settles_at(at(405)), Some(at(410)), "the longer one, not the later one");
        assert_eq!(both.calm_for(at(500)), Some(Duration::from_secs(100)));
        assert_eq!(lost(&control.view(at(1000)), 50, 1000), 110, "and no other machines");
    }

    #[test]
    fn a_blip_freezes_nothing_and_an_outage_does_until_it_settled() {
        let mut api = Reachability::new(PATIENCE, Some(at(0)), at(0));
        api.silent(at(60));
        assert!(!api.view(at(89)).frozen);
        assert!(api.view(at(90)).frozen);
        api.answered(at(100));
        assert!(api.view(at(109)).frozen);
        assert!(!api.view(at(110)).frozen);
        api.silent(at(160));
        api.answered(at(162));
        assert!(!api.view(at(163)).frozen, "dated a minute back, and noticed for two seconds");
    }

    #[test]
    fn however_often_it_flaps_the_memory_of_it_is_bounded_and_errs_to_longer() {
        let mut api = Reachability::new(PATIENCE, Some(at(0)), at(0));
        let rounds = 2 * i64::try_from(MOST_OUTAGES).unwrap();
        for round in 0..rounds {
            api.answered(at(round * 60 + 50));
            api.silent(at(round * 60 + 52));
            api.answered(at(round * 60 + 60));
        }
        let now = rounds * 60 + 60;
        let view = api.view(at(now));
        assert_eq!(view.outages.len(), MOST_OUTAGES);
        assert!(lost(&view, 0, now) >= u64::try_from(rounds).unwrap() * 20);
    }
}
