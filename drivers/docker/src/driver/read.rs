//! GetMachineStatus and ListMachines.

use ostler_driver_sdk::{DriverError, GetMachineStatus, Instance, ListMachines};

use super::DockerDriver;
use super::answer::{instance, listed};
use crate::errors::{Left, driver_error};

impl DockerDriver {
    /// A container that never ran is no machine yet, only parts of one: the create that was cut off
    /// has to come again, and does when it hears that there is none. Delete removes parts as well.
    pub(super) async fn status(&self, request: GetMachineStatus) -> Result<Instance, DriverError> {
        let found = self.find(&request.ctx, request.provider_id.as_deref()).await?;
        match found.filter(super::Found::is_made) {
            Some(found) => Ok(instance(&found)),
            None => {
                Err(DriverError::not_found("the engine has no container of this machine")
                    .not_applied())
            }
        }
    }

    /// machine-controller-manager makes no containers here, so there are none without our tags.
    pub(super) async fn list(&self, request: ListMachines) -> Result<Vec<Instance>, DriverError> {
        let found = self.of_cluster(&request.ctx, &[]).await;
        let found = found.map_err(|error| driver_error(&error, Left::Nothing))?;
        Ok(found.iter().map(|(summary, claim)| listed(summary, claim)).collect())
    }
}
