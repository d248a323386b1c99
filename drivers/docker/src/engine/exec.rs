//! Commands in a container.

use bollard::exec::{StartExecOptions, StartExecResults};
use bollard::models::ExecConfig;
use futures::StreamExt as _;

use super::{Call, Engine, EngineError};

impl Engine {
    /// Runs a command to its end and says how it ended. What it prints is left behind.
    pub async fn execute(&self, container: &str, command: &[String]) -> Result<i64, EngineError> {
        let docker = self.docker().await?;
        let config = ExecConfig {
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            cmd: Some(command.to_vec()),
            ..ExecConfig::default()
        };
        let id = self.checked(Call::Execute, docker.create_exec(container, config).await)?.id;
        let options = StartExecOptions::default();
        let started = docker.start_exec(&id, Some(options)).await;
        if let StartExecResults::Attached { mut output, .. } =
            self.checked(Call::Execute, started)?
        {
            while let Some(line) = output.next().await {
                self.checked(Call::Execute, line)?;
            }
        }
        let ended = self.checked(Call::Execute, docker.inspect_exec(&id).await)?;
        Ok(ended.exit_code.unwrap_or(-1))
    }
}
