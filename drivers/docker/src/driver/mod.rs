//! The driver: verbs of the contract, each a few questions to the engine.

mod adopt;
mod answer;
mod busy;
mod create;
mod delete;
mod events;
mod files;
mod find;
mod groups;
mod initialize;
mod make;
mod read;
mod update;
mod verbs;
mod watch;

use std::fmt;

use ostler_driver_sdk::{Class, DriverError, Events, Readiness};

use self::busy::Busy;
use crate::engine::Engine;
use crate::errors::bad_spec;
use crate::spec::{Permissions, ProviderSpec, Refusal};

pub(crate) use find::{Found, claim, tag_file};

/// The value of `MachineClass.provider` for this driver.
pub const PROVIDER: &str = "docker.ostler.dev";

/// The driver. Clones share the engine.
#[derive(Clone)]
pub struct DockerDriver {
    engine: Engine,
    permissions: Permissions,
    busy: Busy,
    readiness: Readiness,
    events: Events,
}

impl DockerDriver {
    /// A driver for an engine. It gives classes nothing of the host.
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            permissions: Permissions::default(),
            busy: Busy::default(),
            readiness: Readiness::default(),
            events: Events::default(),
        }
    }

    /// Gives classes what they ask for of the host, as far as it is allowed here.
    #[must_use]
    pub fn allow(mut self, permissions: Permissions) -> Self {
        self.permissions = permissions;
        self
    }

    /// The spec of a class, read and checked.
    fn spec(&self, class: &Class) -> Result<ProviderSpec, DriverError> {
        let spec: ProviderSpec = class.spec()?;
        let violations = spec.violations();
        if !violations.is_empty() {
            return Err(bad_spec(&violations));
        }
        self.allows(&spec)?;
        Ok(spec)
    }

    /// Whether the operator of the driver allows what a spec asks for of the host.
    fn allows(&self, spec: &ProviderSpec) -> Result<(), DriverError> {
        let refusals = self.permissions.refusals(spec);
        if refusals.is_empty() { Ok(()) } else { Err(not_allowed(&refusals)) }
    }
}

/// The spec is good, and the operator of the driver does not allow it.
fn not_allowed(refusals: &[Refusal]) -> DriverError {
    let texts = refusals.iter().map(|Refusal { violation, .. }| {
        format!("providerSpec.{}: {}", violation.path, violation.description)
    });
    let error = DriverError::failed_precondition(texts.collect::<Vec<_>>().join("; "));
    let reason = refusals.first().map_or("NOT_ALLOWED", |first| first.reason);
    refusals.iter().fold(error.reason(reason).not_applied(), |error, Refusal { violation, .. }| {
        error.violation(violation.path.clone(), violation.description.clone())
    })
}

impl fmt::Debug for DockerDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DockerDriver").field("engine", &self.engine).finish_non_exhaustive()
    }
}
