//! GetMachineStatus and ListMachines.

use std::collections::BTreeSet;

use ostler_driver_sdk::{Context, DriverError, GetMachineStatus, Instance, ListMachines, Part};

use super::DockerDriver;
use super::answer::{instance, listed};
use crate::engine::EngineError;
use crate::errors::{Left, driver_error};
use crate::identity::{CLUSTER, GROUP, INSTANCE, MACHINE, UID};

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

    /// Networks and volumes of machines whose container is not there: a create or a deletion broke off.
    pub(super) async fn parts(&self, request: ListMachines) -> Result<Vec<Part>, DriverError> {
        let found = self.parts_alone(&request.ctx).await;
        found.map_err(|error| driver_error(&error, Left::Nothing))
    }

    async fn parts_alone(&self, ctx: &Context) -> Result<Vec<Part>, EngineError> {
        let networks = self.engine.networks(&[]).await?.into_iter().map(|it| ("network", it));
        let volumes = self.engine.volumes(&[]).await?.into_iter().map(|it| ("volume", it));
        // After the parts: a container that is made for them meanwhile is seen.
        let containers = self.engine.containers(&[]).await?;
        let there: BTreeSet<&str> = containers.iter().map(|it| it.name.as_str()).collect();
        let part = |(kind, part): (&str, crate::engine::Part)| {
            let label = |key| part.labels.get(key).map_or("", String::as_str);
            let of_machine = !part.labels.contains_key(GROUP) && !label(INSTANCE).is_empty();
            let alone = of_machine && !there.contains(label(INSTANCE));
            (alone && ctx.is_own_cluster(label(CLUSTER))).then(|| {
                let told = Part::new(kind, part.id.clone()).machine(label(MACHINE), label(UID));
                told.cluster_id(label(CLUSTER))
            })
        };
        Ok(networks.chain(volumes).filter_map(part).collect())
    }
}
