//! DeleteMachine: the container, then its networks and volumes.

use std::collections::BTreeSet;
use std::time::Duration;

use ostler_driver_sdk::{Context, DeleteMachine, Deletion, DriverError};

use super::DockerDriver;
use crate::engine::{EngineError, Part};
use crate::errors::{Left, driver_error};
use crate::identity::{CLUSTER, INSTANCE, Identity, MACHINE, UID, instance_of};

/// How often it is asked whether a container is gone that somebody else removes.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl DockerDriver {
    pub(super) async fn delete(&self, request: DeleteMachine) -> Result<Deletion, DriverError> {
        let DeleteMachine { ctx, provider_id } = request;
        let identity = Identity::of(&ctx);
        let _turn = self.busy.turn(&identity)?;
        let (found, not_ours) = self.look(&identity, provider_id.as_deref()).await?;
        let mut ended = Deletion::WasAbsent;
        let mut left = Left::Nothing;
        let mut instances = BTreeSet::from([identity.instance()]);
        if let Some(found) = found {
            ctx.progress("RemoveContainer", format!("removing container {}", found.name()));
            self.remove_container(&ctx, &found.container.summary.id).await?;
            left = Left::Something;
            ended = Deletion::Deleted;
            instances.insert(found.name().to_owned());
        }
        // Networks and volumes of a container that is gone already.
        let named = provider_id.as_deref().and_then(instance_of);
        instances.extend(named.map(str::to_owned));
        for instance in &instances {
            if self.remove_parts(&ctx, &identity, instance, left).await? {
                ended = Deletion::Deleted;
            }
        }
        if let Some(provider_id) = not_ours {
            return Ok(Deletion::NotOurs { provider_id });
        }
        let machine = &identity.machine_name;
        tracing::info!(%machine, "nothing is left of the machine");
        Ok(ended)
    }

    /// Removes the parts of one container, if that is gone and they are of this machine; whether
    /// there were any.
    async fn remove_parts(
        &self,
        ctx: &Context,
        identity: &Identity,
        instance: &str,
        mut left: Left,
    ) -> Result<bool, DriverError> {
        let labels = [(CLUSTER, identity.cluster_id.as_str()), (INSTANCE, instance)];
        let failed = |error: EngineError, left| driver_error(&error, left);
        let networks = self.engine.networks(&labels).await.map_err(|error| failed(error, left))?;
        let volumes = self.engine.volumes(&labels).await.map_err(|error| failed(error, left))?;
        let ours = |part: &Part| is_of(part, identity, instance);
        let (networks, volumes): (Vec<Part>, Vec<Part>) = (
            networks.into_iter().filter(ours).collect(),
            volumes.into_iter().filter(ours).collect(),
        );
        if networks.is_empty() && volumes.is_empty() {
            return Ok(false);
        }
        let there = self.engine.container(instance).await.map_err(|error| failed(error, left))?;
        if there.is_some() {
            // Another machine took the container over: its parts are that one's.
            return Ok(false);
        }
        ctx.progress("RemoveParts", "removing networks and volumes");
        for network in networks {
            let removed = self.engine.remove_network(&network.id).await;
            removed.map_err(|error| failed(error, left))?;
            left = Left::Something;
        }
        for volume in volumes {
            let removed = self.engine.remove_volume(&volume.id).await;
            removed.map_err(|error| failed(error, left))?;
            left = Left::Something;
        }
        Ok(true)
    }

    /// Removes a container, and is done when it is gone.
    async fn remove_container(&self, ctx: &Context, id: &str) -> Result<(), DriverError> {
        loop {
            let error = match self.engine.remove(id).await {
                Ok(()) => return Ok(()),
                Err(error) => driver_error(&error, Left::Nothing),
            };
            if error.reason_word() != "REMOVAL_IN_PROGRESS" {
                return Err(error);
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = ctx.cancelled() => return Err(error.partial()),
            }
        }
    }
}

/// Parts of a life before this one have another UID, and the same name of the machine.
fn is_of(part: &Part, identity: &Identity, instance: &str) -> bool {
    let label = |key| part.labels.get(key).map_or("", String::as_str);
    let own = label(UID) == identity.machine_uid || instance != identity.instance();
    own && label(MACHINE) == identity.machine_name
}
