//! Answers autoscalers.

use super::{Controllers, Core};
use crate::autoscaler::Scaler;

impl Controllers {
    /// Answers autoscalers, whether this process leads or not.
    pub fn scaler(&self) -> Scaler {
        let Core { stores, writer, recorder, settings, clock, .. } = &self.core;
        Scaler::new((stores.clone(), writer.clone(), recorder.clone()), settings, clock)
    }
}
