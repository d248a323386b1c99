//! InitializeMachine: what is done once, after the container runs.

use ostler_driver_sdk::{Context, DriverError, InitializeMachine, Instance};

use super::DockerDriver;
use super::answer::instance;
use super::find::Found;
use crate::engine::{EngineError, Life};
use crate::errors::{Left, driver_error};
use crate::spec::{Delivery, ProviderSpec};

impl DockerDriver {
    pub(super) async fn initialize(
        &self,
        request: InitializeMachine,
    ) -> Result<Instance, DriverError> {
        let InitializeMachine { ctx, provider_id, .. } = request;
        let spec = self.spec(&*ctx.class().await?)?;
        let identity = ctx.identity();
        let _turn = self.busy.turn(&identity)?;
        let found = self.find(&ctx, Some(&provider_id)).await?.filter(Found::is_made);
        let gone = || DriverError::not_found("the engine has no container of this machine");
        let mut found = found.ok_or_else(|| gone().not_applied())?;
        self.bring_up(&ctx, &spec, &mut found).await?;
        Ok(instance(&found))
    }

    /// Does what is done once.
    pub(super) async fn bring_up(
        &self,
        ctx: &Context,
        spec: &ProviderSpec,
        found: &mut Found,
    ) -> Result<(), DriverError> {
        if found.tags.driver.initialized {
            return Ok(());
        }
        if found.container.summary.life != Life::Running {
            let message =
                format!("container {} does not run: look at its log, or start it", found.name());
            return Err(DriverError::uninitialized(message).reason("NOT_RUNNING").not_applied());
        }
        let name = found.name().to_owned();
        self.connect_networks(ctx, spec, found).await?;
        if spec.user_data.delivery == Delivery::Executed {
            let command = [spec.user_data.path.clone()];
            self.execute(ctx, &name, "UserData", &command).await?;
        }
        for command in &spec.initialize {
            self.execute(ctx, &name, "Commands", command).await?;
        }
        found.tags.driver.initialized = true;
        self.write_tags(&name, &found.tags).await.map_err(|error| partial(&error))
    }

    /// The first network is that of the container since it was made.
    async fn connect_networks(
        &self,
        ctx: &Context,
        spec: &ProviderSpec,
        found: &Found,
    ) -> Result<(), DriverError> {
        for network in spec.networks.iter().skip(1) {
            let name = super::make::network_name(found.name(), network);
            if found.container.networks.contains(&name) {
                continue;
            }
            ctx.progress("ConnectNetworks", format!("connecting to network {name}"));
            self.engine.connect(&name, found.name()).await.map_err(|error| partial(&error))?;
        }
        Ok(())
    }

    /// What a command prints may be secret and is not told.
    async fn execute(
        &self,
        ctx: &Context,
        container: &str,
        stage: &str,
        command: &[String],
    ) -> Result<(), DriverError> {
        let program = command.first().map_or("", String::as_str);
        ctx.progress(stage, format!("running {program}"));
        let ended = tokio::select! {
            ended = self.engine.execute(container, command) => ended.map_err(|error| partial(&error))?,
            () = ctx.cancelled() => {
                let message = format!("stopped waiting for {program}, which may run still");
                return Err(DriverError::canceled(message).partial());
            }
        };
        if ended == 0 {
            return Ok(());
        }
        let message = format!(
            "{program} in container {container} ended with status {ended}: run it with `docker exec` to see what it says"
        );
        Err(DriverError::failed_precondition(message).reason("COMMAND_FAILED").partial())
    }
}

/// What was done before may be done again.
fn partial(error: &EngineError) -> DriverError {
    driver_error(error, Left::Something)
}
