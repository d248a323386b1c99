//! CreateMachine: look, then make, then complete.

use ostler_driver_sdk::{Context, CreateMachine, DriverError, Instance};

use super::DockerDriver;
use super::answer::instance;
use super::find::Found;
use super::make::Plan;
use super::update::fixed_changes;
use crate::engine::{EngineError, Life, Summary};
use crate::errors::{Left, driver_error};
use crate::identity::instance_name;

impl DockerDriver {
    pub(super) async fn create(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        let user_data = request.user_data().to_vec();
        let CreateMachine { ctx, tags, provider_id, .. } = request;
        let spec = self.spec(&*ctx.class().await?)?;
        let identity = ctx.identity();
        let _turn = self.busy.turn(&identity)?;
        let found = self.find(&ctx, provider_id.as_deref()).await?;
        let instance = instance_name(&identity);
        let kept = Vec::new();
        let mut plan = Plan { identity, instance, spec, tags, user_data, kept, member: None };
        plan.user_data_text()?;
        match found {
            Some(found) if found.is_made() => self.take(&plan, found).await,
            Some(found) => {
                found.name().clone_into(&mut plan.instance);
                self.resume(&ctx, &plan, &found).await
            }
            None => self.make_and_complete(&ctx, &plan).await,
        }
    }

    /// A machine that exists: it is the wanted machine, or is adopted.
    async fn take(&self, plan: &Plan, mut found: Found) -> Result<Instance, DriverError> {
        stays(&found.container.summary)?;
        if !found.carries(&plan.identity) {
            self.adopt(plan, &mut found).await?;
            return Ok(instance(&found));
        }
        let differs = fixed_changes(&found, &plan.spec)?;
        if differs.is_empty() {
            return Ok(instance(&found));
        }
        let message = format!("container {} exists and was made of another class", found.name());
        let error = DriverError::already_exists(message).reason("INCOMPATIBLE_INSTANCE");
        Err(differs.into_iter().fold(error.not_applied(), |error, path| {
            error.violation(path, "differs from the container that exists")
        }))
    }

    /// Completes a create that was cut off; a rest that does not fit the spec is made anew.
    async fn resume(
        &self,
        ctx: &Context,
        plan: &Plan,
        found: &Found,
    ) -> Result<Instance, DriverError> {
        if fixed_changes(found, &plan.spec)?.is_empty() {
            match self.completed(ctx, plan).await {
                // An engine that was killed during the start of the container has forgotten the start.
                Err(error) if error.reason_word() == "START_STUCK" => {}
                done => return done,
            }
        }
        ctx.progress("RemoveContainer", "removing a container that never ran and never will");
        let removed = self.engine.remove(&found.container.summary.id).await;
        removed.map_err(|error| driver_error(&error, Left::Something))?;
        self.make_and_complete(ctx, plan).await
    }

    async fn make_and_complete(&self, ctx: &Context, plan: &Plan) -> Result<Instance, DriverError> {
        match self.make(ctx, plan).await {
            // The answer to an earlier call was lost, and its container came meanwhile.
            Err(error) if error.reason_word() == "NAME_TAKEN" => {
                match self.find(ctx, None).await?.filter(|it| it.name() == plan.instance) {
                    Some(found) if found.is_made() => return self.take(plan, found).await,
                    Some(_) => {}
                    None => return Err(error),
                }
            }
            made => made?,
        }
        self.completed(ctx, plan).await
    }

    async fn completed(&self, ctx: &Context, plan: &Plan) -> Result<Instance, DriverError> {
        self.complete(ctx, plan).await?;
        let failed = |error: EngineError| driver_error(&error, Left::Something);
        let found = self.inspect(&plan.instance).await.map_err(failed)?;
        let gone = || {
            let message = format!("container {} went as soon as it was started", plan.instance);
            DriverError::aborted(message).reason("CONTAINER_GONE").partial()
        };
        let mut found = found.ok_or_else(gone)?;
        // What a life before left half made has the tags of that life.
        if !found.carries(&plan.identity) {
            self.adopt(plan, &mut found).await.map_err(DriverError::partial)?;
        }
        let machine = &plan.identity.machine_name;
        tracing::info!(%machine, container = %plan.instance, "container runs");
        Ok(instance(&found))
    }
}

/// A container that another client of the engine is removing is no machine any more.
fn stays(found: &Summary) -> Result<(), DriverError> {
    if found.life != Life::Going {
        return Ok(());
    }
    let message = format!("container {} is being removed", found.name);
    Err(DriverError::aborted(message).reason("REMOVAL_IN_PROGRESS").not_applied())
}

#[cfg(test)]
mod tests {
    use ostler_driver_sdk::{Certainty, Code};

    use super::*;

    #[test]
    fn a_container_that_is_being_removed_is_nobodys_success() {
        let found = |life| Summary {
            id: String::new(),
            name: "m".to_owned(),
            labels: crate::engine::Labels::new(),
            life,
            addresses: Vec::new(),
            created_at: None,
        };
        for life in [Life::Running, Life::Stopped, Life::Dead] {
            assert_eq!(stays(&found(life)), Ok(()), "{life:?}");
        }
        let error = stays(&found(Life::Going)).unwrap_err();
        assert_eq!((error.code(), error.certainty()), (Code::Aborted, Certainty::NotApplied));
    }
}
