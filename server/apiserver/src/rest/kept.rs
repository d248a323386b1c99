//! What an answer keeps in memory besides the text that is under way, for those who count it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Bytes that an answer keeps. Clones are of the same answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    always: usize,
    unwritten: Arc<AtomicUsize>,
}

impl Kept {
    /// Of an answer that keeps `always` for as long as it goes on, and `unwritten` now.
    pub(crate) fn new(always: usize, unwritten: usize) -> Self {
        Self { always, unwritten: Arc::new(unwritten.into()) }
    }

    /// For as long as it goes on: selectors.
    pub(crate) fn always(&self) -> usize {
        self.always
    }

    /// What it is still to be written of.
    pub(crate) fn unwritten(&self) -> usize {
        self.unwritten.load(Relaxed)
    }

    /// Notes what it is still to be written of.
    pub(crate) fn set_unwritten(&self, bytes: usize) {
        self.unwritten.store(bytes, Relaxed);
    }
}
