//! Checks whether the API server still keeps every field of ours. A user may apply older definitions while the core
//! runs, for example machine-controller-manager's. Then no operation is sent, since it could not be recorded: the first
//! write of a status with a missing field shows the loss, and an earlier first create stands in an annotation, with the
//! initialization after it.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use kube::Client;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tracing::warn;

use crate::{EnabledControllers, SchemaError, check_schemas};

/// How often the definitions are checked. The answer to a write shows fields that are lost in between.
const PERIOD: Duration = Duration::from_mins(5);
/// How often the definitions are checked while fields are dropped.
const PERIOD_OUTDATED: Duration = Duration::from_secs(5);

/// The result of the last check.
#[derive(Debug, Default)]
pub(crate) struct Schemas {
    controllers: EnabledControllers,
    outdated: Mutex<Option<String>>,
    check_now: Notify,
    dropped: Gauge<i64, AtomicI64>,
}

impl Schemas {
    pub(crate) fn register(registry: &mut Registry, controllers: EnabledControllers) -> Arc<Self> {
        let schemas = Self { controllers, ..Self::default() };
        registry.register(
            "ostler_crd_fields_dropped",
            "Fields of ours that the CustomResourceDefinitions lack; no operation is sent meanwhile",
            schemas.dropped.clone(),
        );
        Arc::new(schemas)
    }

    /// The fields that the API server drops, and what to do.
    pub(crate) fn outdated(&self) -> Option<String> {
        self.outdated.lock().clone()
    }

    /// The answer to a write lacks fields that were written.
    pub(crate) fn check_again(&self) {
        let mut outdated = self.outdated.lock();
        outdated.get_or_insert_with(|| "the API server drops status.operation".to_owned());
        self.check_now.notify_one();
    }

    /// Checks for ever and reports every change.
    pub(crate) async fn run(self: Arc<Self>, client: Client, on_change: impl Fn(Option<&str>)) {
        loop {
            let period = if self.outdated().is_some() { PERIOD_OUTDATED } else { PERIOD };
            tokio::select! {
                () = tokio::time::sleep(period) => {}
                () = self.check_now.notified() => {}
            }
            let changed = match check_schemas(&client, self.controllers).await {
                Ok(()) => self.note(0, None),
                Err(SchemaError::Pruned(fields)) => {
                    self.note(fields.len(), Some(SchemaError::Pruned(fields).to_string()))
                }
                // A definition that cannot be read changes nothing.
                Err(error @ SchemaError::Api { .. }) => {
                    warn!(%error, "the definitions could not be checked");
                    false
                }
            };
            if changed {
                on_change(self.outdated().as_deref());
            }
        }
    }

    /// Stores a result. Returns whether it is new: machines that wait because of [`Self::check_again`] must be woken.
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
    fn a_cleared_suspicion_is_a_change_and_a_repeated_result_is_none() {
        let schemas = Schemas::default();
        assert!(!schemas.note(0, None));
        schemas.check_again();
        assert!(schemas.outdated().is_some());
        assert!(schemas.note(0, None), "machines wait for it");
        assert!(schemas.note(1, Some("a field".to_owned())));
        assert!(!schemas.note(1, Some("a field".to_owned())));
    }
}
