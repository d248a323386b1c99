//! Contexts for tests of verbs, without a core.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::class::Class;
use crate::context::{Context, Facts, References};
use crate::identity::Target;
use crate::metadata::MachineMetadata;
use crate::secret::Secret;

/// Builds a [`Context`] by hand.
///
/// ```
/// use ostler_driver_sdk::testing::TestContext;
///
/// let ctx = TestContext::new("m-1", "uid-1").provider_spec(r#"{"size":"small"}"#).build();
/// assert_eq!(ctx.target().name, "m-1");
/// ```
#[derive(Debug)]
#[must_use]
pub struct TestContext {
    target: Target,
    cluster_id: String,
    previous_cluster_ids: Vec<String>,
    adopt_by_name: bool,
    machine: Option<MachineMetadata>,
    provider_spec_json: String,
    secret: Option<Secret>,
    checkpoint: Option<String>,
    timeout: Duration,
    cancelled: CancellationToken,
}

impl TestContext {
    /// A context for the machine `default/<name>` of cluster `test`, with an empty provider spec,
    /// no secret and one minute of time.
    pub fn new(name: impl Into<String>, uid: impl Into<String>) -> Self {
        let target = Target { namespace: "default".to_owned(), name: name.into(), uid: uid.into() };
        Self {
            target,
            cluster_id: "test".to_owned(),
            previous_cluster_ids: Vec::new(),
            adopt_by_name: false,
            machine: None,
            provider_spec_json: "{}".to_owned(),
            secret: None,
            checkpoint: None,
            timeout: Duration::from_mins(1),
            cancelled: CancellationToken::new(),
        }
    }

    /// Another cluster.
    pub fn cluster_id(mut self, id: impl Into<String>) -> Self {
        self.cluster_id = id.into();
        self
    }

    /// Ids that the cluster had before.
    pub fn previous_cluster_ids<I: Into<String>>(
        mut self,
        ids: impl IntoIterator<Item = I>,
    ) -> Self {
        self.previous_cluster_ids = ids.into_iter().map(Into::into).collect();
        self
    }

    /// The instance may be found by the name of the machine.
    pub fn adopt_by_name(mut self) -> Self {
        self.adopt_by_name = true;
        self
    }

    /// Sets the metadata of the Machine.
    pub fn machine(mut self, machine: MachineMetadata) -> Self {
        self.machine = Some(machine);
        self
    }

    /// The provider spec of the class.
    pub fn provider_spec(mut self, json: impl Into<String>) -> Self {
        self.provider_spec_json = json.into();
        self
    }

    /// The secret of the class.
    pub fn secret<K: Into<String>, V: Into<Vec<u8>>>(
        mut self,
        data: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.secret =
            Some(Secret::new(data.into_iter().map(|(key, value)| (key.into(), value.into()))));
        self
    }

    /// The checkpoint of an earlier attempt.
    pub fn checkpoint(mut self, text: impl Into<String>) -> Self {
        self.checkpoint = Some(text.into());
        self
    }

    /// The time that the verb has.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Cancel this to cancel the operation.
    pub fn cancellation(mut self, token: CancellationToken) -> Self {
        self.cancelled = token;
        self
    }

    /// The context. [`Context::saved_checkpoint`] says afterwards what the verb saved.
    pub fn build(self) -> Context {
        let class = Class {
            namespace: self.target.namespace.clone(),
            name: "class".to_owned(),
            uid: String::new(),
            revision: "1".to_owned(),
            provider_spec_json: self.provider_spec_json,
            provider: String::new(),
            provider_spec_sha256: String::new(),
            labels: BTreeMap::new(),
            shape: None,
            secret: self.secret.is_some().then(proto::ObjectRevision::default),
        };
        let facts = Facts {
            operation_id: uuid::Uuid::new_v4().to_string(),
            idempotency_key: format!("{}:t", self.target.uid),
            create_idempotency_key: format!("{}:c", self.target.uid),
            cluster_id: self.cluster_id,
            previous_cluster_ids: self.previous_cluster_ids,
            adopt_by_name: self.adopt_by_name,
            delivery: 1,
            checkpoint: self.checkpoint,
            traceparent: String::new(),
            deadline: Instant::now() + self.timeout,
            class: Some(proto::ObjectRevision {
                namespace: class.namespace.clone(),
                name: class.name.clone(),
                uid: class.uid.clone(),
                revision: class.revision.clone(),
            }),
            target: self.target,
            machine: self.machine,
        };
        let references = References::Given { class: Arc::new(class), secret: self.secret };
        Context::new(facts, references, self.cancelled, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_of_a_verb_sees_the_checkpoint_that_the_core_would_get() {
        let ctx = TestContext::new("m", "u").secret([("key", "canary-key")]).build();
        assert_eq!(ctx.saved_checkpoint(), None);
        for (saved, kept) in [("disk-1", "disk-1"), ("keys/canary-key", "disk-1")] {
            ctx.save_checkpoint(saved);
            assert_eq!(ctx.saved_checkpoint().as_deref(), Some(kept));
        }
    }
}
