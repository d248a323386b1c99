//! Somebody who is told of every change of a cloud, in the moment it is made.

use std::fmt;
use std::sync::Arc;

use super::state::{Record, State};

type Hear = dyn Fn(&Record, &State) + Send + Sync;

/// Told of every change: the record, and the state as it is before the record is taken in. Must not
/// ask the cloud itself, which is held meanwhile.
#[derive(Clone)]
pub struct Listener(Arc<Hear>);

impl Listener {
    /// Calls `hear` for every change.
    pub fn new(hear: impl Fn(&Record, &State) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }

    pub(super) fn hear(&self, record: &Record, before: &State) {
        (self.0)(record, before);
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}
