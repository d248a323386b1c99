//! Commands in a container.

use bollard::exec::{StartExecOptions, StartExecResults};
use bollard::models::{ExecConfig, ExecInspectResponse};
use futures::StreamExt as _;

use super::{Call, Engine, EngineError};

/// The state of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// The command was not started, or the engine forgot the command.
    Unknown,
    /// It runs.
    Running,
    /// The command ended with this status.
    Ended(i64),
}

impl Engine {
    /// Prepares a command, and returns its id. The command does not run yet.
    pub(crate) async fn prepare(
        &self,
        container: &str,
        command: &[String],
    ) -> Result<String, EngineError> {
        let config = ExecConfig {
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            cmd: Some(command.to_vec()),
            ..ExecConfig::default()
        };
        let docker = self.docker().await?;
        Ok(self.checked(Call::Execute, docker.create_exec(container, config).await)?.id)
    }

    /// Runs a command to its end. The output of the command is thrown away.
    pub(crate) async fn execute(&self, id: &str) -> Result<(), EngineError> {
        let docker = self.docker().await?;
        let started = docker.start_exec(id, Some(StartExecOptions::default())).await;
        if let StartExecResults::Attached { mut output, .. } =
            self.checked(Call::Execute, started)?
        {
            while let Some(line) = output.next().await {
                self.checked(Call::Execute, line)?;
            }
        }
        Ok(())
    }

    /// Reads the state of a command.
    pub(crate) async fn command(&self, id: &str) -> Result<Command, EngineError> {
        let docker = self.docker().await?;
        match self.checked(Call::Look, docker.inspect_exec(id).await) {
            Ok(ExecInspectResponse { running: Some(true), .. }) => Ok(Command::Running),
            Ok(found) => Ok(found.exit_code.map_or(Command::Unknown, Command::Ended)),
            Err(error) if error.is_refusal(404) => Ok(Command::Unknown),
            Err(error) => Err(error),
        }
    }
}
