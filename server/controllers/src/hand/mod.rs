//! The only writer for every kind of the fleet: `apply` executes the writes of a plan, `record` writes the status and
//! then makes the requests that must not come earlier. Both decide nothing.

mod apply;
mod copies;
mod record;
#[cfg(test)]
mod tests;
mod tokens;

use std::time::Duration;

use kube::Resource as _;
use ostler_lifecycle::each;
use ostler_lifecycle::plan::Event;
use ostler_lifecycle::write::{Next, Object, Part, Tried, Write};
use ostler_sessions::Sessions;

use crate::client::{WriteError, Writer};
use crate::events::Recorder;
use crate::kind::Passed;
use crate::queue::Outcome;
use crate::stores::Stores;
use crate::telling::tell;

/// The writes of a pass over an object.
pub(crate) struct Hand<'a> {
    pub(crate) writer: &'a Writer,
    pub(crate) stores: &'a Stores,
    pub(crate) recorder: &'a Recorder,
    pub(crate) sessions: &'a Sessions,
    /// The author of the writes.
    pub(crate) by: &'static str,
    /// The object of the pass.
    pub(crate) own: Object,
}

/// Notes of a kind on its writes, besides the writes that are awaited in the cache.
pub(crate) trait Notes: Sync {
    /// The write is about to be sent.
    fn sends(&self, _part: Part, _write: &Write) {}
    /// The answer to the write.
    fn answered(&self, _part: Part, _write: &Write, _answer: Result<(), &WriteError>) {}
}

impl Notes for () {}

/// The results of a plan's writes.
#[derive(Debug)]
pub(crate) struct Applied {
    /// How each of them went.
    pub(crate) tried: Tried,
    /// The object of the pass after the writes.
    pub(crate) own: Object,
    /// Whether one has to be made again.
    pub(crate) failed: bool,
    /// When the key comes again at the latest, and at the earliest.
    next_by: Option<Duration>,
    not_before: Option<Duration>,
}

impl Applied {
    fn passed(&self, next: Next) -> Passed {
        if self.failed {
            return Passed::Settled(Outcome::Failed);
        }
        if let Some(wait) = self.not_before {
            return Passed::Settled(Outcome::Again(wait));
        }
        let wait = match next {
            Next::Now => Some(Duration::ZERO),
            Next::After(wait) => Some(self.next_by.map_or(wait, |by| by.min(wait))),
            Next::OnChange => self.next_by,
        };
        match wait {
            Some(Duration::ZERO) => Passed::Changed,
            wait => Passed::Settled(wait.map_or(Outcome::Done, Outcome::Again)),
        }
    }
}

impl Hand<'_> {
    /// Tells people what happened to an object.
    pub(crate) fn tell(&self, of: &Object, event: Event) {
        tell(self.recorder, each!(of, it => it.object_ref(&())), event);
    }
}
