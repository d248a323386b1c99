//! How much history is kept.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::log::Opened;

/// Bounds of the history that watches and lists can go back to.
///
/// A revision is forgotten when it is both older than `min_age` and more than `min_revisions`
/// behind, or when either upper bound is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// History younger than this is kept, unless an upper bound is passed.
    pub min_age: Duration,
    /// At least this many revisions are kept, unless an upper bound is passed.
    pub min_revisions: u64,
    /// Never more revisions than this are kept.
    pub max_revisions: u64,
    /// Never more bytes of history than about this are kept.
    pub max_bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            min_age: Duration::from_mins(5),
            min_revisions: 10_000,
            max_revisions: 100_000,
            max_bytes: 256 << 20,
        }
    }
}

/// A point in the log: what was written when.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    revision: u64,
    bytes: u64,
}

/// Watches the log grow and says up to where it may be forgotten.
#[derive(Debug)]
pub(super) struct Gauge {
    retention: Retention,
    marks: VecDeque<Mark>,
    bytes: u64,
}

impl Gauge {
    /// Marks are this many revisions or [`Self::MARK_BYTES`] apart: at most
    /// `max_revisions / 256 + max_bytes / 4 MiB` of them exist, and those of history that an earlier
    /// process left. It is also the least that a compaction is worth.
    const MARK_REVISIONS: u64 = 256;
    const MARK_BYTES: u64 = 4 << 20;
    /// The most marks of history that an earlier process left.
    const MARKS_LEFT: u64 = 4096;
    /// Marks that one compaction takes: few, so that no commit waits long; more than one, so that compaction is faster
    /// than growth.
    const MARKS_AT_ONCE: usize = 4;

    /// History that an earlier process left counts as written now and its bytes as spread evenly: the log
    /// does not say more.
    pub(super) fn new(retention: Retention, opened: &Opened, revision: u64) -> Self {
        let (at, from) = (Instant::now(), opened.compacted);
        let each = opened.history / revision.saturating_sub(from).max(1);
        let apart = (revision.saturating_sub(from) / Self::MARKS_LEFT).max(Self::MARK_REVISIONS);
        let marks = (from..=revision).step_by(usize::try_from(apart).unwrap_or(usize::MAX));
        let marks = marks.map(|revision| Mark {
            at,
            revision,
            bytes: each.saturating_mul(revision - from),
        });
        Self { retention, marks: marks.collect(), bytes: opened.history }
    }

    /// Notes that the log reached `revision` with `bytes` more, and returns the revision up to
    /// which it may be compacted now, if any.
    pub(super) fn grown(&mut self, revision: u64, bytes: u64) -> Option<u64> {
        self.bytes += bytes;
        let now = Instant::now();
        let far = self.marks.back().is_none_or(|last| {
            revision >= last.revision + Self::MARK_REVISIONS
                || self.bytes >= last.bytes + Self::MARK_BYTES
        });
        if far {
            self.marks.push_back(Mark { at: now, revision, bytes: self.bytes });
        }
        let mut target = None;
        for _ in 0..Self::MARKS_AT_ONCE {
            let oldest = self.marks.front().filter(|mark| self.forgettable(mark, now, revision));
            let Some(mark) = oldest else { break };
            target = Some(mark.revision);
            self.marks.pop_front();
        }
        target
    }

    fn forgettable(&self, mark: &Mark, now: Instant, revision: u64) -> bool {
        let behind = revision.saturating_sub(mark.revision);
        let old = now.saturating_duration_since(mark.at) >= self.retention.min_age;
        (old && behind >= self.retention.min_revisions)
            || behind >= self.retention.max_revisions
            || self.bytes.saturating_sub(mark.bytes) >= self.retention.max_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn history_of_any_length_has_few_marks() {
        for (compacted, revision) in [(1, 1), (1, 10_000), (u64::MAX, u64::MAX), (1, u64::MAX)] {
            let opened = Opened { uid: uuid::Uuid::nil(), compacted, history: 1 << 40 };
            let gauge = Gauge::new(Retention::default(), &opened, revision);
            let marks = gauge.marks.len();
            assert!((1..=4098).contains(&marks), "{compacted}..{revision}: {marks}");
            assert_eq!(gauge.marks.front().map(|mark| mark.revision), Some(compacted));
        }
    }
}
