//! A callback for every change of a cloud, in the moment it is made.

use std::fmt;
use std::sync::Arc;

use super::state::{Record, State};

type Hear = dyn Fn(&Record, &State) + Send + Sync;

/// Called for every change with the record, and with the state before it. The callback must not use the cloud itself, which
/// is locked meanwhile.
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
