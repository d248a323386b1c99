//! The driver: verbs of the protocol, each a few questions to the cloud.

mod answer;
mod call;
mod events;
mod pools;
mod throttle;
mod verbs;

pub(crate) use answer::internal_ip;

use std::fmt;
use std::sync::Arc;

use ostler_driver_sdk::{Cutter, Events};

use self::throttle::Throttle;
use crate::calls::CallLog;
use crate::cloud::{Cloud, Instance};
use crate::control::ControlFile;

/// The value of `MachineClass.provider` for this driver.
pub const PROVIDER: &str = "fake.ostler.dev";

/// The driver. Clones share cloud and call log.
#[derive(Clone)]
pub struct FakeDriver {
    cloud: Cloud,
    calls: CallLog,
    control: Option<ControlFile>,
    crash: Arc<dyn Fn() + Send + Sync>,
    cutter: Option<Cutter>,
    throttle: Arc<Throttle>,
    events: Events,
}

impl FakeDriver {
    /// A driver for `cloud`, with a call log in memory, without control file.
    pub fn new(cloud: Cloud) -> Self {
        let calls = CallLog::in_memory(cloud.clock().clone());
        Self {
            cloud,
            calls,
            control: None,
            crash: Arc::new(|| std::process::abort()),
            cutter: None,
            throttle: Arc::default(),
            events: Events::default(),
        }
    }

    /// Writes this call log.
    #[must_use]
    pub fn call_log(mut self, calls: CallLog) -> Self {
        self.calls = calls;
        self
    }

    /// Reads faults from this file, at every call.
    #[must_use]
    pub fn control_file(mut self, control: ControlFile) -> Self {
        self.control = Some(control);
        self
    }

    /// Replaces the abort of the process for a crash fault. The call that hits the fault never ends.
    #[must_use]
    pub fn on_crash(mut self, crash: impl Fn() + Send + Sync + 'static) -> Self {
        self.crash = Arc::new(crash);
        self
    }

    /// Cuts the session together with a lost reply. Without a cutter, a lost reply is only silence.
    #[must_use]
    pub fn cutter(mut self, cutter: Cutter) -> Self {
        self.cutter = Some(cutter);
        self
    }

    /// The cloud.
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// The driver's answer about an instance.
    pub fn answer(&self, instance: &Instance) -> ostler_driver_sdk::Instance {
        answer::answer(instance, self.cloud.clock())
    }

    /// The call log.
    pub fn calls(&self) -> &CallLog {
        &self.calls
    }
}

impl fmt::Debug for FakeDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeDriver")
            .field("cloud", &self.cloud)
            .field("calls", &self.calls)
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}
