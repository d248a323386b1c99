//! Whether the engine is there.

use std::time::Duration;

use super::DockerDriver;

/// How often an engine that is there is asked.
const CALM: Duration = Duration::from_secs(5);
/// How often an engine that is away is looked for.
const EAGER: Duration = Duration::from_secs(1);

impl DockerDriver {
    /// Asks the engine again and again, and tells the core whether it is there. Never ends.
    pub async fn watch(self) {
        let mut was_there = true;
        loop {
            let answer = self.engine.ping().await;
            let pause = match &answer {
                Ok(()) => {
                    self.readiness.ready();
                    CALM
                }
                Err(error) => {
                    self.readiness.not_ready(error.to_string());
                    EAGER
                }
            };
            match answer {
                Ok(()) if !was_there => {
                    tracing::info!(host = %self.engine.host(), "the engine is there again");
                }
                Err(error) if was_there => {
                    tracing::warn!(%error, host = %self.engine.host(), "waiting for the engine");
                }
                Ok(()) | Err(_) => {}
            }
            was_there = pause == CALM;
            tokio::time::sleep(pause).await;
        }
    }
}
