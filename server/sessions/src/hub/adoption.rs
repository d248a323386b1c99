//! The time after a core began to lead, in which drivers come back with operations of the core
//! before.
//!
//! The danger is an operation of the earlier core that still runs in a driver which is not back
//! yet, while another instance of that driver is: asked by a read, the other instance finds
//! nothing, and a second create would follow. Every mutation has its intent written down before it
//! is sent, so only targets with an intent of an earlier term are in that danger. For them the
//! controllers decide nothing while the window is open and no driver has resumed the operation;
//! once one has, it is adopted, and there is nothing left to wait for. All other targets go on
//! immediately.
//!
//! The window ends by time, not with the first session of the provider: of two driver instances the
//! second may hold the operation.

use ostler_api::ProviderName;
use std::time::Duration;

use tokio::time::Instant;

use super::Hub;
use super::timers::Timer;
use crate::SessionEvent;

impl Hub {
    /// Drivers may still come back with operations that this core does not know.
    pub(crate) fn adoption_open(&self) -> bool {
        self.timers.is_set(&Timer::Adoption)
    }

    /// For how long they may; `None`: not any more.
    pub(crate) fn adoption_left(&self, now: Instant) -> Option<Duration> {
        self.timers.due(&Timer::Adoption).map(|until| until - now)
    }

    /// A core begins to lead.
    pub(super) fn open_adoption(&mut self, now: Instant) {
        self.timers.set(Timer::Adoption, now + self.options.timing.adoption);
    }

    /// A driver that is not back by now is not waited for; the Machines that waited are reconciled.
    pub(super) fn adoption_over(&mut self) {
        let ready = self.providers.iter().filter(|(_, record)| record.announced);
        let ready: Vec<ProviderName> = ready.map(|(provider, _)| provider.clone()).collect();
        for provider in ready {
            self.publish(SessionEvent::ProviderReady { provider });
        }
    }
}
