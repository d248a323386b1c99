//! Adoption of a container that is older than its Machine.

use ostler_driver_sdk::DriverError;

use super::DockerDriver;
use super::files::twice;
use super::find::Found;
use super::make::Plan;
use crate::errors::{Left, driver_error};
use crate::spec::CLAIM_FILE;

impl DockerDriver {
    /// Puts identity and tags of the machine on the container. Docker changes no label: a file in
    /// the container says it, and stands before the labels.
    pub(super) async fn adopt(&self, plan: &Plan, found: &mut Found) -> Result<(), DriverError> {
        let mut claim = plan.tags.clone();
        claim.extend(plan.identity.tags());
        let written = self.engine.write_files(found.name(), &twice(CLAIM_FILE, &claim)).await;
        written.map_err(|error| driver_error(&error, Left::Nothing))?;
        found.claim = claim;
        let machine = &plan.identity.machine_name;
        tracing::info!(%machine, container = found.name(), "adopted a container");
        Ok(())
    }
}
