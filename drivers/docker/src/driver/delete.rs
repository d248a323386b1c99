//! DeleteMachine: the container, then its networks and volumes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ostler_driver_sdk::{Context, DeleteMachine, Deletion, DriverError};

use super::DockerDriver;
use super::find::NotOurs;
use crate::engine::{EngineError, Part};
use crate::errors::{Left, driver_error};
use crate::identity::{CLUSTER, INSTANCE, Identity, MACHINE, UID, instance_name, instance_of};

/// How often it is asked whether a container is gone that another client of the engine removes.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// For how long; a removal that takes longer is asked for again by the core.
const PATIENCE: Duration = Duration::from_secs(30);

impl DockerDriver {
    pub(super) async fn delete(&self, request: DeleteMachine) -> Result<Deletion, DriverError> {
        let DeleteMachine { ctx, provider_id } = request;
        let identity = ctx.identity();
        let _turn = self.busy.turn(&identity)?;
        let (all, not_ours) = self.look_for_all(&ctx, provider_id.as_deref()).await?;
        let mut ended = Deletion::WasAbsent;
        let mut left = Left::Nothing;
        let own = own_names(&ctx, &identity);
        let mut instances = own.clone();
        let mut claimed = BTreeSet::new();
        for found in all {
            ctx.progress("RemoveContainer", format!("removing container {}", found.name()));
            let removed = self.remove_container(&ctx, &found.container.summary.id).await;
            removed.map_err(|error| if claimed.is_empty() { error } else { error.partial() })?;
            left = Left::Something;
            ended = Deletion::Deleted;
            instances.insert(found.name().to_owned());
            claimed.insert(found.name().to_owned());
        }
        // Networks and volumes of a container that is gone already.
        let named = provider_id.as_deref().and_then(instance_of);
        instances.extend(named.map(str::to_owned));
        for instance in &instances {
            let parts = Parts {
                instance,
                claimed: claimed.contains(instance),
                any_uid: !own.contains(instance),
            };
            if self.remove_parts(&ctx, parts, left).await? {
                ended = Deletion::Deleted;
            }
        }
        if let Some(NotOurs { provider_id, cluster_id }) = not_ours {
            return Ok(Deletion::NotOurs { provider_id, cluster_id });
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
        parts: Parts<'_>,
        mut left: Left,
    ) -> Result<bool, DriverError> {
        let labels = [(MACHINE, ctx.target().name.as_str()), (INSTANCE, parts.instance)];
        let failed = |error: EngineError, left| driver_error(&error, left);
        let networks = self.engine.networks(&labels).await.map_err(|error| failed(error, left))?;
        let volumes = self.engine.volumes(&labels).await.map_err(|error| failed(error, left))?;
        let ours = |part: &Part| parts.contain(part, ctx);
        let (networks, volumes): (Vec<Part>, Vec<Part>) = (
            networks.into_iter().filter(ours).collect(),
            volumes.into_iter().filter(ours).collect(),
        );
        if networks.is_empty() && volumes.is_empty() {
            return Ok(false);
        }
        let there =
            self.engine.container(parts.instance).await.map_err(|error| failed(error, left))?;
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
    pub(super) async fn remove_container(
        &self,
        ctx: &Context,
        id: &str,
    ) -> Result<(), DriverError> {
        let until = Instant::now() + PATIENCE;
        loop {
            let error = match self.engine.remove(id).await {
                Ok(()) => return Ok(()),
                Err(error) => driver_error(&error, Left::Nothing),
            };
            if error.reason_word() != "REMOVAL_IN_PROGRESS" || until <= Instant::now() {
                return Err(error);
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = ctx.cancelled() => return Err(error.partial()),
            }
        }
    }
}

/// The names that a container of the machine got, under each id that the cluster had.
fn own_names(ctx: &Context, identity: &Identity) -> BTreeSet<String> {
    let before = ctx.previous_cluster_ids().iter();
    let before = before.map(|id| Identity { cluster_id: id.clone(), ..identity.clone() });
    before.chain([identity.clone()]).map(|identity| instance_name(&identity)).collect()
}

/// The networks and volumes of one container.
#[derive(Debug, Clone, Copy)]
struct Parts<'a> {
    /// Its name.
    instance: &'a str,
    /// It was the machine's a moment ago. Its parts may have an id of the cluster that the core does not
    /// tell any more, since an adoption changes no label.
    claimed: bool,
    /// It may be of a life before this one, with another UID and the same name of the machine.
    any_uid: bool,
}

impl Parts<'_> {
    fn contain(&self, part: &Part, ctx: &Context) -> bool {
        let label = |key| part.labels.get(key).map_or("", String::as_str);
        label(MACHINE) == ctx.target().name
            && (self.claimed || ctx.is_own_cluster(label(CLUSTER)))
            && (self.any_uid || label(UID) == ctx.target().uid)
    }
}

#[cfg(test)]
mod tests {
    use ostler_driver_sdk::testing::TestContext;

    use super::*;

    fn ctx() -> Context {
        let ctx = TestContext::new("m", "u").cluster_id("now").previous_cluster_ids(["before"]);
        ctx.build()
    }

    #[test]
    fn a_machine_has_a_name_for_its_container_under_each_id_of_its_cluster() {
        let identity = ctx().identity();
        let before = Identity { cluster_id: "before".to_owned(), ..identity.clone() };
        let names = own_names(&ctx(), &identity);
        assert_eq!(names, BTreeSet::from([instance_name(&identity), instance_name(&before)]));
    }

    #[test]
    fn parts_go_with_their_container_and_those_of_others_stay() {
        let (claimed, any_uid) = (true, true);
        for (cluster, name, uid, claimed, any_uid, goes) in [
            ("now", "m", "u", false, false, true),
            ("before", "m", "u", false, false, true),
            ("other", "m", "u", false, false, false),
            ("now", "m", "v", false, false, false),
            ("now", "m", "v", false, any_uid, true),
            ("now", "n", "u", claimed, any_uid, false),
            ("other", "m", "v", false, any_uid, false),
            ("older", "m", "v", claimed, any_uid, true),
        ] {
            let labels = [(CLUSTER, cluster), (MACHINE, name), (UID, uid)];
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
            let part = Part { id: String::new(), name: String::new(), labels };
            let parts = Parts { instance: "i", claimed, any_uid };
            assert_eq!(parts.contain(&part, &ctx()), goes, "{part:?} {parts:?}");
        }
    }
}
