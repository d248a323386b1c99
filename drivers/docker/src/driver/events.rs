//! Tells the core what happens to containers of machines, as the engine says.

use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use ostler_driver_sdk::Event;

use super::DockerDriver;
use crate::engine::{Happened, What};
use crate::identity::{CLUSTER, Identity, MACHINE, UID, provider_id};

/// Between two attempts to listen.
const AGAIN: Duration = Duration::from_secs(1);
/// What the engine is asked to tell again when it is listened to anew.
const OVERLAP: Duration = Duration::from_secs(2);

impl DockerDriver {
    /// Tells the core what the engine says of containers of machines. Never ends.
    pub async fn tell_events(self) {
        let mut since = SystemTime::now();
        loop {
            match self.engine.events(since).await {
                Ok(mut events) => {
                    while let Some(Ok(happened)) = events.next().await {
                        self.events.send(event(&happened));
                        // What is told twice costs a read, and what is not told may cost minutes.
                        since = SystemTime::now() - OVERLAP;
                    }
                    tracing::debug!("the engine tells no events any more");
                }
                Err(error) => tracing::debug!(%error, "the engine tells no events"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

fn event(Happened { what, container, labels }: &Happened) -> Event {
    let id = provider_id(container);
    let event = match what {
        What::Removed => Event::gone(id),
        What::Changed => Event::changed(id),
    };
    let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
    event.of(&Identity {
        cluster_id: label(CLUSTER),
        machine_name: label(MACHINE),
        machine_uid: label(UID),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_named_by_the_identity_on_its_labels_and_by_its_id() {
        let labels = [(CLUSTER, "c"), (MACHINE, "m"), (UID, "u")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let happened = Happened { what: What::Removed, container: "m-1".to_owned(), labels };
        let identity = Identity {
            cluster_id: "c".to_owned(),
            machine_name: "m".to_owned(),
            machine_uid: "u".to_owned(),
        };
        assert_eq!(event(&happened), Event::gone("docker:///m-1").of(&identity));
    }
}
