//! When the engine last changed anything.

use std::time::{SystemTime, UNIX_EPOCH};

use bollard::query_parameters::EventsOptions;
use futures::StreamExt as _;

use super::{Call, Engine, EngineError};

/// Events of calls that only read. To read a file, the engine mounts the volumes of the container.
const READS: [&str; 6] = ["archive-path", "export", "top", "health_status", "mount", "unmount"];

impl Engine {
    /// The time of the last change that the engine remembers, in nanoseconds: it grows with every
    /// change, and only then.
    pub(crate) async fn last_change(&self) -> Result<i64, EngineError> {
        let docker = self.docker().await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let options = EventsOptions {
            since: Some("0".to_owned()),
            until: Some(format!("{}.{:09}", now.as_secs(), now.subsec_nanos())),
            ..EventsOptions::default()
        };
        let mut events = std::pin::pin!(docker.events(Some(options)));
        let mut last = 0;
        while let Some(event) = events.next().await {
            let event = self.checked(Call::Look, event)?;
            let action = event.action.unwrap_or_default();
            if !READS.iter().any(|read| action.starts_with(read)) {
                last = last.max(event.time_nano.unwrap_or_default());
            }
        }
        Ok(last)
    }
}
