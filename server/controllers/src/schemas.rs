//! Whether the API server still keeps every field of ours. Somebody may apply older definitions while the core
//! runs, those of machine-controller-manager for one: then nothing is sent, since nobody could say later what was.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use kube::Client;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tracing::warn;

use crate::{SchemaError, check_schemas};

/// How often the definitions are looked at. What is lost in between shows in the answer to the next write.
const PERIOD: Duration = Duration::from_mins(5);
/// How often they are looked at while fields are dropped.
const PERIOD_OUTDATED: Duration = Duration::from_secs(5);

/// What the API server drops, as it was seen last.
#[derive(Debug, Default)]
pub(crate) struct Schemas {
    outdated: Mutex<Option<String>>,
    doubt: Notify,
    dropped: Gauge<i64, AtomicI64>,
}

impl Schemas {
    pub(crate) fn register(registry: &mut Registry) -> Arc<Self> {
        let schemas = Self::default();
        registry.register(
            "ostler_crd_fields_dropped",
            "Fields of ours that the CustomResourceDefinitions lack; nothing is asked of drivers meanwhile",
            schemas.dropped.clone(),
        );
        Arc::new(schemas)
    }

    /// What is dropped, and what to do about it.
    pub(crate) fn outdated(&self) -> Option<String> {
        self.outdated.lock().clone()
    }

    /// A write came back without what was written.
    pub(crate) fn check_again(&self) {
        let mut outdated = self.outdated.lock();
        outdated.get_or_insert_with(|| "the API server drops status.operation".to_owned());
        self.doubt.notify_one();
    }

    /// OrphanScans again and again, and says what changed.
    pub(crate) async fn run(self: Arc<Self>, client: Client, told: impl Fn(Option<&str>)) {
        loop {
            let period = if self.outdated().is_some() { PERIOD_OUTDATED } else { PERIOD };
            tokio::select! {
                () = tokio::time::sleep(period) => {}
                () = self.doubt.notified() => {}
            }
            let changed = match check_schemas(&client).await {
                Ok(()) => self.note(0, None),
                Err(SchemaError::Pruned(fields)) => {
                    self.note(fields.len(), Some(SchemaError::Pruned(fields).to_string()))
                }
                // Of a definition that cannot be read nothing new is known.
                Err(error @ SchemaError::Api { .. }) => {
                    warn!(%error, "the definitions could not be checked");
                    false
                }
            };
            if changed {
                told(self.outdated().as_deref());
            }
        }
    }

    /// Whether it is news: machines that were told of a doubt have to hear that it was none.
    fn note(&self, dropped: usize, outdated: Option<String>) -> bool {
        self.dropped.set(i64::try_from(dropped).unwrap_or(i64::MAX));
        let mut known = self.outdated.lock();
        let changed = *known != outdated;
        *known = outdated;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_that_was_none_is_news_and_the_same_twice_is_not() {
        let schemas = Schemas::default();
        assert!(!schemas.note(0, None));
        schemas.check_again();
        assert!(schemas.outdated().is_some());
        assert!(schemas.note(0, None), "machines wait for it");
        assert!(schemas.note(1, Some("a field".to_owned())));
        assert!(!schemas.note(1, Some("a field".to_owned())));
    }
}
