//! Memory of an answer besides the text under way, for the accounting.

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

    /// Bytes of the sources of text that is still to be written.
    pub(crate) fn unwritten(&self) -> usize {
        self.unwritten.load(Relaxed)
    }

    /// Notes the bytes of the sources of text that is still to be written.
    pub(crate) fn set_unwritten(&self, bytes: usize) {
        self.unwritten.store(bytes, Relaxed);
    }
}
