//! Which events are new and which repeat an earlier one. No I/O.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{Occurrence, Severity};

/// A series ends when nothing repeated it for this long, as in client-go.
const SERIES_ENDS_AFTER: Duration = Duration::from_mins(6);
/// Repetitions are written this often at most.
pub(super) const WRITE_EVERY: Duration = Duration::from_secs(10);
/// Series remembered; a repetition of a forgotten one is a new event, which does no harm.
const SERIES_KEPT: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SeriesKey {
    uid: String,
    severity: Severity,
    reason: &'static str,
    action: &'static str,
    note: String,
}

#[derive(Debug)]
struct Series {
    namespace: String,
    event_name: String,
    count: i32,
    written: i32,
    last_seen: Instant,
}

/// A repetition to be written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Repeated {
    pub(super) namespace: String,
    pub(super) event_name: String,
    pub(super) count: i32,
}

#[derive(Debug, Default)]
pub(super) struct SeriesBook {
    series: HashMap<SeriesKey, Series>,
}

impl SeriesBook {
    /// Takes in an event. True: it is new and to be written under `event_name`. False: it repeats
    /// an earlier one and is counted.
    pub(super) fn is_new(
        &mut self,
        event: &Occurrence,
        namespace: &str,
        event_name: &str,
        now: Instant,
    ) -> bool {
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
            return false;
        }
        self.make_room();
        let (namespace, event_name) = (namespace.to_owned(), event_name.to_owned());
        let series = Series { namespace, event_name, count: 1, written: 1, last_seen: now };
        self.series.insert(key, series);
        true
    }

    fn make_room(&mut self) {
        while self.series.len() >= SERIES_KEPT {
            let oldest = self.series.iter().min_by_key(|(_, series)| series.last_seen);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else { return };
            self.series.remove(&key);
        }
    }

    /// Whether a repetition waits to be written.
    pub(super) fn has_unwritten(&self) -> bool {
        self.series.values().any(|series| series.count > series.written)
    }

    /// The repetitions to be written; forgets the series that ended.
    pub(super) fn take_unwritten(&mut self, now: Instant) -> Vec<Repeated> {
        let mut repeated = Vec::new();
        self.series.retain(|_, series| {
            if series.count > series.written {
                series.written = series.count;
                repeated.push(Repeated {
                    namespace: series.namespace.clone(),
                    event_name: series.event_name.clone(),
                    count: series.count,
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

    fn event(uid: usize, note: &str) -> Occurrence {
        let uid = Some(uid.to_string());
        Occurrence {
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
        assert!(book.is_new(&event(1, "no quota"), "default", "m.1", now));
        assert!(!book.has_unwritten());
        for _ in 0..3 {
            assert!(!book.is_new(&event(1, "no quota"), "default", "m.2", now));
        }
        let repeated = book.take_unwritten(now);
        let expected = Repeated { namespace: "default".into(), event_name: "m.1".into(), count: 4 };
        assert_eq!(repeated, [expected]);
        assert!(book.take_unwritten(now).is_empty());
    }

    #[test]
    fn another_text_another_object_and_a_long_silence_make_a_new_event() {
        let (mut book, now) = (SeriesBook::default(), Instant::now());
        assert!(book.is_new(&event(1, "no quota"), "default", "a", now));
        assert!(book.is_new(&event(1, "no network"), "default", "b", now));
        assert!(book.is_new(&event(2, "no quota"), "default", "c", now));
        assert!(book.is_new(&event(1, "no quota"), "default", "d", now + SERIES_ENDS_AFTER));
    }

    #[test]
    fn no_more_series_are_kept_than_allowed() {
        let (mut book, now) = (SeriesBook::default(), Instant::now());
        for uid in 0..SERIES_KEPT + 10 {
            book.is_new(&event(uid, "x"), "default", "n", now + Duration::from_millis(uid as u64));
        }
        assert_eq!(book.series.len(), SERIES_KEPT);
        let newest = SERIES_KEPT + 9;
        assert!(!book.is_new(&event(newest, "x"), "default", "n", now + Duration::from_secs(9)));
    }
}
