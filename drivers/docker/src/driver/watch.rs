//! Whether the engine is there.

use std::time::Duration;

use super::DockerDriver;
use crate::engine::EngineError;

/// How often an engine that is there is asked.
const CALM: Duration = Duration::from_secs(5);
/// How often an engine that is away is looked for.
const EAGER: Duration = Duration::from_secs(1);

impl DockerDriver {
    /// Asks the engine again and again, and tells the core whether it is there. Never ends.
    pub async fn watch(self) {
        let mut was_there = true;
        loop {
            let away = self.engine.ping().await.err();
            self.tell(away.as_ref(), was_there);
            was_there = away.is_none();
            tokio::time::sleep(if was_there { CALM } else { EAGER }).await;
        }
    }

    fn tell(&self, away: Option<&EngineError>, was_there: bool) {
        let host = self.engine.host();
        let Some(error) = away else {
            if !was_there {
                tracing::info!(%host, "the engine is there again");
            }
            return self.readiness.ready();
        };
        if was_there {
            tracing::warn!(%error, %host, "waiting for the engine");
        }
        self.readiness.not_ready(error.to_string());
    }
}
