//! Outages of the cloud, for tests of a driver's errors. Only a cloud with a state file has outages: the file beside it
//! holds the number of changes before the outage.

use std::io;
use std::path::PathBuf;

use super::{Cloud, CloudError, Journal, Shared};

impl Cloud {
    /// Takes so many changes more, and then answers nothing until [`repair`](Self::repair).
    pub fn break_after(&self, changes: u64) -> io::Result<()> {
        match self.outage_file() {
            Some(file) => std::fs::write(file, changes.to_string()),
            None => Err(io::Error::other("a cloud without a state file cannot be taken away")),
        }
    }

    /// Answers again.
    pub fn repair(&self) -> io::Result<()> {
        match self.outage_file().map(std::fs::remove_file) {
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether it answers nothing now.
    pub fn is_away(&self) -> bool {
        self.inner.shared.lock().changes_left() == Some(0)
    }

    fn outage_file(&self) -> Option<PathBuf> {
        self.inner.shared.lock().journal.as_ref().map(Journal::outage_file)
    }
}

impl Shared {
    /// How many changes are taken until it is away; `None`: no end is in sight.
    fn changes_left(&self) -> Option<u64> {
        let file = self.journal.as_ref()?.outage_file();
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// Whether it answers.
    pub(super) fn answers(&self) -> Result<(), CloudError> {
        if self.changes_left() == Some(0) { Err(CloudError::Away) } else { Ok(()) }
    }

    /// Counts a change that was taken.
    pub(super) fn count_change(&self) {
        let (Some(left), Some(journal)) = (self.changes_left(), &self.journal) else { return };
        let left = left.saturating_sub(1).to_string();
        if let Err(error) = std::fs::write(journal.outage_file(), left) {
            tracing::warn!(%error, "a change before an outage was not counted");
        }
    }
}
