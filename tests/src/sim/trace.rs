//! The trace of a life, line by line, and its hash; and the violations.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Kept violations; the first matters.
const MOST_VIOLATIONS: usize = 10;

/// Lines of the longest life that goes anywhere: the longest so far have a tenth of it.
const MOST_LINES: u64 = 200_000;

/// Everything that any party saw. Clones write the same one.
#[derive(Clone, Debug)]
pub struct Trace {
    start: Instant,
    inner: Arc<Mutex<Inner>>,
    full: Arc<Notify>,
}

#[derive(Debug)]
struct Inner {
    hash: u64,
    lines: u64,
    /// The text, if it will be read.
    kept: Option<Vec<String>>,
    violations: Vec<String>,
    /// How often something was seen, such as a fault in a state.
    seen: BTreeMap<String, u64>,
}

impl Trace {
    /// An empty trace that begins now. Lines are kept only if `keep`.
    pub fn new(keep: bool) -> Self {
        let inner = Inner {
            hash: 0xcbf2_9ce4_8422_2325,
            lines: 0,
            kept: keep.then(Vec::new),
            violations: Vec::new(),
            seen: BTreeMap::new(),
        };
        Self { start: Instant::now(), inner: Arc::new(Mutex::new(inner)), full: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When it began.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// Time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Something happened to `party`.
    pub fn note(&self, party: &str, what: impl fmt::Display) {
        let now = self.elapsed();
        let line = format!("{:>5}.{:03} {party:<10} {what}", now.as_secs(), now.subsec_millis());
        let mut inner = self.lock();
        for byte in line.bytes() {
            inner.hash = (inner.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        inner.lines += 1;
        if inner.lines == MOST_LINES {
            self.full.notify_one();
        }
        if let Some(kept) = &mut inner.kept {
            kept.push(line);
        }
    }

    /// Becomes ready when more happened than in any life that goes anywhere.
    pub async fn round_in_circles(&self) {
        self.full.notified().await;
    }

    /// Something happened that must not.
    pub fn violation(&self, what: impl fmt::Display) {
        let text = format!("{what}");
        self.note("ORACLE", format_args!("VIOLATION {text}"));
        let at = self.elapsed().as_secs_f64();
        let mut inner = self.lock();
        if inner.violations.len() < MOST_VIOLATIONS {
            inner.violations.push(format!("at {at:.3} s: {text}"));
        }
    }

    /// Counts something, for the coverage.
    pub fn count(&self, what: String) {
        *self.lock().seen.entry(what).or_default() += 1;
    }

    /// The hash of all events.
    pub fn hash(&self) -> u64 {
        self.lock().hash
    }

    /// How many lines there are.
    pub fn length(&self) -> u64 {
        self.lock().lines
    }

    /// The lines, if they were kept.
    pub fn lines(&self) -> Vec<String> {
        self.lock().kept.clone().unwrap_or_default()
    }

    /// The broken rules.
    pub fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    /// What was counted.
    pub fn seen(&self) -> BTreeMap<String, u64> {
        self.lock().seen.clone()
    }
}
