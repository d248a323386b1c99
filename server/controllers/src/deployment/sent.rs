//! The open results of a deployment's own writes to its sets. A created set that is not seen, or a set that may still
//! grow, would not be counted: a pass for another template would want as many Machines once more.
//!
//! A pass for the same deployment repeats its writes: the name follows from the template, and each write is on
//! condition of the version. So only a deployment that changed has to wait. Safe to lose: a new leader awaits the
//! requests of the leader before.

use std::collections::HashMap;
use std::time::Duration;

use ostler_api::MachineDeployment;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::client::PATIENCE;

/// How long a request without an answer may still arrive.
const ARRIVES: Duration = PATIENCE.saturating_mul(2);

/// The version of a deployment when a write was sent for it.
type Version = (Option<i64>, bool);

/// Writes of one deployment.
#[derive(Debug)]
struct Writes {
    version: Version,
    /// A set that the API server has, and the cache may not show yet.
    created: Option<String>,
    /// When a request was sent last that got no answer.
    unanswered: Option<Instant>,
}

/// By UID of the deployment. Bounded by the existing deployments: finished writes are dropped.
#[derive(Debug, Default)]
pub(crate) struct Sent(Mutex<HashMap<String, Writes>>);

fn version(deployment: &MachineDeployment) -> Version {
    (deployment.metadata.generation, deployment.is_deleting())
}

impl Writes {
    fn is_over(&mut self, sees: impl Fn(&str) -> bool) -> bool {
        self.created.take_if(|set| sees(set));
        self.unanswered.take_if(|at| at.elapsed() >= ARRIVES);
        self.created.is_none() && self.unanswered.is_none()
    }
}

impl Sent {
    fn note(&self, deployment: &MachineDeployment, note: impl FnOnce(&mut Writes)) {
        let mut all = self.0.lock();
        all.retain(|_, writes| writes.created.is_some() || !writes.is_over(|_| false));
        let writes = all.entry(deployment.uid().to_owned()).or_insert_with(|| Writes {
            version: version(deployment),
            created: None,
            unanswered: None,
        });
        writes.version = version(deployment);
        note(writes);
    }

    /// The API server has a set of this name.
    pub(super) fn created(&self, deployment: &MachineDeployment, set: &str) {
        self.note(deployment, |writes| writes.created = Some(set.to_owned()));
    }

    /// A write to a set got no answer.
    pub(super) fn unanswered(&self, deployment: &MachineDeployment) {
        self.note(deployment, |writes| writes.unanswered = Some(Instant::now()));
    }

    /// The set of this name was created and is gone.
    pub(super) fn gone(&self, deployment: &MachineDeployment, set: &str) {
        if let Some(writes) = self.0.lock().get_mut(deployment.uid()) {
            writes.created.take_if(|created| created == set);
        }
    }

    /// Whether a pass has to wait; `sees` says whether the cache has a set.
    pub(super) fn wait(
        &self,
        deployment: &MachineDeployment,
        sees: impl Fn(&str) -> bool,
    ) -> Option<Wait> {
        let mut all = self.0.lock();
        let writes = all.get_mut(deployment.uid())?;
        if writes.is_over(sees) {
            all.remove(deployment.uid());
            return None;
        }
        if writes.version == version(deployment) {
            return None;
        }
        let left = writes.unanswered.map(|at| ARRIVES.saturating_sub(at.elapsed()));
        Some(
            left.map_or_else(
                || Wait::Cache(writes.created.clone().unwrap_or_default()),
                Wait::Answer,
            ),
        )
    }
}

/// The reason for a pass to wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The cache shows this set.
    Cache(String),
    /// A request can arrive no more, in this time.
    Answer(Duration),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(generation: i64) -> MachineDeployment {
        serde_json::from_value(json!({
            "metadata": { "name": "d", "uid": "u", "generation": generation },
            "spec": { "template": { "spec": { "class": { "kind": "MachineClass", "name": "c" } } } },
        }))
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_deployment_waits_until_its_last_set_is_seen() {
        let sent = Sent::default();
        sent.created(&deployment(1), "d-1");
        assert_eq!(sent.wait(&deployment(1), |_| false), None, "it would create the same one");
        let wait = Some(Wait::Cache("d-1".to_owned()));
        assert_eq!(sent.wait(&deployment(2), |_| false), wait);
        tokio::time::advance(ARRIVES).await;
        assert_eq!(sent.wait(&deployment(2), |_| false), wait, "however long that takes");
        assert_eq!(sent.wait(&deployment(2), |set| set == "d-1"), None);
        assert_eq!(sent.wait(&deployment(2), |_| false), None, "seen once is enough");
        sent.created(&deployment(2), "d-2");
        sent.gone(&deployment(2), "d-2");
        assert_eq!(sent.wait(&deployment(3), |_| false), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_deployment_waits_until_a_request_without_an_answer_can_arrive_no_more() {
        let sent = Sent::default();
        sent.unanswered(&deployment(1));
        assert_eq!(sent.wait(&deployment(1), |_| false), None, "it is repeated");
        assert_eq!(sent.wait(&deployment(2), |_| false), Some(Wait::Answer(ARRIVES)));
        tokio::time::advance(ARRIVES).await;
        assert_eq!(sent.wait(&deployment(2), |_| false), None);
    }
}
