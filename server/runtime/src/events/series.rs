//! Separates new events from repetitions. No I/O.

use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use tokio::time::Instant;

use super::{EventRecord, Severity};

/// A series ends when it was not repeated for this long, as in client-go.
const SERIES_ENDS_AFTER: Duration = Duration::from_mins(6);
/// Repetitions are written at most this often.
pub(super) const WRITE_EVERY: Duration = Duration::from_secs(10);
/// Most series kept; a repetition of a forgotten series becomes a new event, which is harmless.
const SERIES_KEPT: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// New events of the same reason that an object may have in a burst, as in client-go: notes contain driver messages,
/// and ever new ones would fill the API server.
const AT_ONCE: u32 = 25;
/// After the burst, one event per interval is written.
const ONE_EVERY: Duration = Duration::from_mins(5);

/// The remaining writes for a reason of an object.
#[derive(Debug)]
struct Allowance {
    left: u32,
    since: Instant,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SeriesKey {
    uid: String,
    severity: Severity,
    reason: &'static str,
    action: &'static str,
    note: String,
}

#[derive(Debug)]
struct Series<P> {
    place: P,
    event_name: String,
    count: i32,
    written: i32,
    last_seen: Instant,
}

/// A repetition that must be written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Repeated<P> {
    /// Where the event is.
    pub(super) place: P,
    pub(super) event_name: String,
    pub(super) count: i32,
    /// How long ago it happened last.
    pub(super) ago: Duration,
}

/// Events that may be repeated, each at a place of its own.
#[derive(Debug)]
pub(super) struct SeriesBook<P> {
    series: LruCache<SeriesKey, Series<P>>,
    /// By UID and reason.
    allowances: LruCache<(String, &'static str), Allowance>,
}

impl<P> Default for SeriesBook<P> {
    fn default() -> Self {
        Self { series: LruCache::new(SERIES_KEPT), allowances: LruCache::new(SERIES_KEPT) }
    }
}

/// The treatment of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Write the event.
    New,
    /// The event repeats an earlier event, and is counted.
    Repetition,
    /// The object had too many events of this reason recently.
    TooMany,
}

impl<P: Clone> SeriesBook<P> {
    /// Sorts an event, which will be written as `event_name` if it is new.
    pub(super) fn take(
        &mut self,
        event: &EventRecord,
        place: &P,
        event_name: &str,
        now: Instant,
    ) -> Sort {
        let key = SeriesKey {
            uid: event.regarding.uid.clone().unwrap_or_default(),
            severity: event.severity,
            reason: event.reason,
            action: event.action,
            note: event.note.clone(),
        };
        if let Some(series) = self.series.get_mut(&key)
            && now.saturating_duration_since(series.last_seen) < SERIES_ENDS_AFTER
        {
            series.count = series.count.saturating_add(1);
            series.last_seen = now;
            return Sort::Repetition;
        }
        if !self.allows(&key.uid, key.reason, now) {
            return Sort::TooMany;
        }
        let (place, event_name) = (place.clone(), event_name.to_owned());
        let series = Series { place, event_name, count: 1, written: 1, last_seen: now };
        self.series.put(key, series);
        Sort::New
    }

    fn allows(&mut self, uid: &str, reason: &'static str, now: Instant) -> bool {
        let full = || Allowance { left: AT_ONCE, since: now };
        let of = self.allowances.get_or_insert_mut((uid.to_owned(), reason), full);
        let earned = now.saturating_duration_since(of.since).as_secs() / ONE_EVERY.as_secs();
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            of.left = of.left.saturating_add(earned).min(AT_ONCE);
            of.since = now;
        }
        let allowed = of.left > 0;
        of.left = of.left.saturating_sub(1);
        allowed
    }

    /// The object is gone. Earlier repetitions are not reported afterwards, as if still happening.
    pub(super) fn forget(&mut self, uid: &str) {
        self.series.retain(|key, _| key.uid != uid);
        self.allowances.retain(|(of, _), _| of != uid);
    }

    /// The repetitions to write; forgets the series that ended.
    pub(super) fn take_unwritten(&mut self, now: Instant) -> Vec<Repeated<P>> {
        let mut repeated = Vec::new();
        self.series.retain(|_, series| {
            if series.count > series.written {
                series.written = series.count;
                repeated.push(Repeated {
                    place: series.place.clone(),
                    event_name: series.event_name.clone(),
                    count: series.count,
                    ago: now.saturating_duration_since(series.last_seen),
                });
            }
            now.saturating_duration_since(series.last_seen) < SERIES_ENDS_AFTER
        });
        repeated
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    fn event(uid: usize, note: &str) -> EventRecord {
        let uid = Some(uid.to_string());
        EventRecord {
            regarding: ObjectReference { uid, ..ObjectReference::default() },
            severity: Severity::Warning,
            reason: "CreateFailed",
            action: "Create",
            note: note.to_owned(),
        }
    }

    #[test]
    fn a_repetition_is_counted_and_written_once_for_all() {
        let (mut book, now) = (SeriesBook::default(), Instant::now());
        assert_eq!(book.take(&event(1, "no quota"), &"default", "m.1", now), Sort::New);
        assert!(book.take_unwritten(now).is_empty());
        for _ in 0..3 {
            let again = book.take(&event(1, "no quota"), &"default", "m.2", now);
            assert_eq!(again, Sort::Repetition);
        }
        let ago = Duration::from_secs(7);
        let repeated = book.take_unwritten(now + ago);
        let expected = Repeated { place: "default", event_name: "m.1".to_owned(), count: 4, ago };
        assert_eq!(repeated, [expected]);
        assert!(book.take_unwritten(now).is_empty());
    }

    #[test]
    fn repetitions_of_an_object_that_is_gone_are_not_told() {
        let (mut book, now) = (SeriesBook::default(), Instant::now());
        for uid in [1, 1, 2, 2] {
            book.take(&event(uid, "updated"), &"default", &format!("m-{uid}.1"), now);
        }
        book.forget("1");
        let told: Vec<_> = book.take_unwritten(now).into_iter().map(|it| it.event_name).collect();
        assert_eq!(told, ["m-2.1"]);
        book.forget("2");
        assert!(book.take_unwritten(now).is_empty() && book.allowances.is_empty());
    }

    #[test]
    fn another_text_another_object_and_a_long_silence_make_a_new_event() {
        let (mut book, now) = (SeriesBook::default(), Instant::now());
        let later = now + SERIES_ENDS_AFTER;
        for (uid, note, at) in [
            (1, "no quota", now),
            (1, "no network", now),
            (2, "no quota", now),
            (1, "no quota", later),
        ] {
            assert_eq!(
                book.take(&event(uid, note), &"default", "e", at),
                Sort::New,
                "{uid} {note}"
            );
        }
    }

    #[test]
    fn no_more_series_are_kept_than_allowed() {
        let (mut book, now) = (SeriesBook::default(), Instant::now());
        for uid in 0..SERIES_KEPT.get() + 10 {
            book.take(&event(uid, "x"), &"default", "n", now + Duration::from_millis(uid as u64));
        }
        assert_eq!(book.series.len(), SERIES_KEPT.get());
        let newest = SERIES_KEPT.get() + 9;
        let again = book.take(&event(newest, "x"), &"default", "n", now + Duration::from_secs(9));
        assert_eq!(again, Sort::Repetition);
        assert!(book.allowances.len() <= SERIES_KEPT.get());
    }

    #[test]
    fn ever_new_notes_of_one_reason_do_not_fill_the_api_server() {
        let (mut book, now) = (SeriesBook::default(), Instant::now());
        let mut take =
            |uid, n: u64, at| book.take(&event(uid, &n.to_string()), &"default", "e", at);
        let written = (0..1000).filter(|n| take(1, *n, now) == Sort::New).count();
        assert_eq!(written, 25);
        // Other objects are not limited, and after some time this object may have events again.
        assert_eq!(take(2, 0, now), Sort::New);
        assert_eq!(take(1, 1000, now + ONE_EVERY), Sort::New);
        assert_eq!(take(1, 1001, now + ONE_EVERY), Sort::TooMany);
    }
}
