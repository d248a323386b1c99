//! InitializeMachine: what is done once, after the container runs.

use ostler_driver_sdk::{Context, DriverError, InitializeMachine, Instance};

use super::DockerDriver;
use super::answer::instance;
use super::find::Found;
use crate::engine::{Command, EngineError, Failure, Life};
use crate::errors::{Left, driver_error};
use crate::spec::{Delivery, ProviderSpec};
use crate::tags::Started;

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
        self.connect_networks(ctx, spec, found).await?;
        let executed = spec.user_data.delivery == Delivery::Executed;
        let executed = executed.then(|| ("UserData", vec![spec.user_data.path.clone()]));
        let commands = spec.initialize.iter().map(|command| ("Commands", command.clone()));
        let commands: Vec<_> = executed.into_iter().chain(commands).collect();
        let mut next = 0;
        if let Some(started) = found.tags.driver.command.clone() {
            next = started.number;
            match self.engine.command(&started.id).await.map_err(|error| partial(&error))? {
                Command::Unknown => {}
                Command::Running => return Err(runs_still(found.name())),
                Command::Ended(status) => {
                    let command = commands.get(next).map_or(&[][..], |(_, command)| command);
                    self.end(found, command, status).await?;
                    next += 1;
                }
            }
        }
        for (number, (stage, command)) in commands.iter().enumerate().skip(next) {
            self.execute(ctx, found, stage, number, command).await?;
        }
        found.tags.driver.command = None;
        found.tags.driver.initialized = true;
        self.note(found).await
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

    /// Runs a command. The command is noted before it starts, so that a caller that stopped waiting finds the command
    /// again instead of starting a second one.
    async fn execute(
        &self,
        ctx: &Context,
        found: &mut Found,
        stage: &str,
        number: usize,
        command: &[String],
    ) -> Result<(), DriverError> {
        let program = program(command);
        ctx.progress(stage, format!("running {program}"));
        let id = self.engine.prepare(found.name(), command).await;
        let id = id.map_err(|error| partial(&error))?;
        found.tags.driver.command = Some(Started { number, id: id.clone() });
        self.note(found).await?;
        let ran = tokio::select! {
            ran = self.engine.execute(&id) => ran,
            () = ctx.cancelled() => {
                let message = format!("stopped waiting for {program}, which may run still");
                return Err(DriverError::canceled(message).partial());
            }
        };
        if let Err(error) = ran {
            if matches!(error.failure, Failure::Refused { .. }) {
                found.tags.driver.command = None;
                self.note(found).await?;
            }
            return Err(partial(&error));
        }
        match self.engine.command(&id).await.map_err(|error| partial(&error))? {
            Command::Running => Err(runs_still(found.name())),
            Command::Unknown => self.end(found, command, -1).await,
            Command::Ended(status) => self.end(found, command, status).await,
        }
    }

    /// After a failure all commands are run again, from the first one on. The output of a command may be secret and is
    /// not reported.
    async fn end(
        &self,
        found: &mut Found,
        command: &[String],
        status: i64,
    ) -> Result<(), DriverError> {
        if status == 0 {
            return Ok(());
        }
        found.tags.driver.command = None;
        self.note(found).await?;
        let message = format!(
            "{} in container {} ended with status {status}: run it with `docker exec` to see what it says",
            program(command),
            found.name()
        );
        Err(DriverError::failed_precondition(message).reason("COMMAND_FAILED").partial())
    }

    async fn note(&self, found: &Found) -> Result<(), DriverError> {
        self.write_tags(found.name(), &found.tags).await.map_err(|error| partial(&error))
    }
}

fn program(command: &[String]) -> &str {
    command.first().map_or("", String::as_str)
}

/// It is looked for again with the next attempt.
pub(super) const STILL: &str = "COMMAND_RUNS";

pub(super) fn runs_still(container: &str) -> DriverError {
    let message = format!("the initialization of container {container} runs still");
    DriverError::uninitialized(message).reason(STILL).partial()
}

/// Earlier steps may be repeated.
fn partial(error: &EngineError) -> DriverError {
    driver_error(error, Left::Something)
}
