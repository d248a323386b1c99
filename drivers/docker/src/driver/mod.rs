//! The driver: verbs of the contract, each a few questions to the engine.

mod adopt;
mod answer;
mod busy;
mod create;
mod delete;
mod files;
mod find;
mod initialize;
mod make;
mod read;
mod update;
mod verbs;
mod watch;

use std::fmt;

use ostler_driver_sdk::{Class, DriverError, Readiness, Violation};

use self::busy::Busy;
use crate::engine::Engine;
use crate::errors::bad_spec;
use crate::spec::ProviderSpec;

pub(crate) use find::{Found, claim, tag_file};

/// What `MachineClass.provider` says for this driver.
pub const PROVIDER: &str = "docker.ostler.dev";

/// The driver. Clones share the engine.
#[derive(Clone)]
pub struct DockerDriver {
    engine: Engine,
    allow_privileged: bool,
    busy: Busy,
    readiness: Readiness,
}

impl DockerDriver {
    /// A driver for an engine. It refuses privileged containers.
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            allow_privileged: false,
            busy: Busy::default(),
            readiness: Readiness::default(),
        }
    }

    /// Makes privileged containers where a class asks for them: they are root of the host.
    #[must_use]
    pub fn allow_privileged(mut self, allowed: bool) -> Self {
        self.allow_privileged = allowed;
        self
    }

    /// The spec of a class, read and checked.
    fn spec(&self, class: &Class) -> Result<ProviderSpec, DriverError> {
        let spec: ProviderSpec = class.spec()?;
        let violations = spec.violations();
        if !violations.is_empty() {
            return Err(bad_spec(&violations));
        }
        match self.refusal(&spec) {
            None => Ok(spec),
            Some(violation) => {
                let message = format!("providerSpec.privileged: {}", violation.description);
                Err(DriverError::failed_precondition(message)
                    .reason("PRIVILEGED_NOT_ALLOWED")
                    .not_applied()
                    .violation(violation.path, violation.description))
            }
        }
    }

    /// What this driver does not do, although the spec is good.
    fn refusal(&self, spec: &ProviderSpec) -> Option<Violation> {
        let why = "the driver makes no privileged containers: start it with --allow-privileged, or leave it out";
        (spec.privileged && !self.allow_privileged).then(|| Violation::new("privileged", why))
    }
}

impl fmt::Debug for DockerDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DockerDriver").field("engine", &self.engine).finish_non_exhaustive()
    }
}
