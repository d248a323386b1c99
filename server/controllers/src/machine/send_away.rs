//! Asks pods to leave, and finds out what holds those that may not.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::core::{Selector, SelectorExt};
use ostler_lifecycle::plan::{Action, Performed, PodRef};
use ostler_lifecycle::snapshot::{BudgetFacts, Refusal, RefusalCause, Snapshot};
use tracing::debug;

use super::Machines;
use crate::memory::Refused;
use crate::stores::BudgetIndex;
use crate::target::Target;
use crate::watch::ObjectName;
use crate::writes::{Deletion, WriteError};

/// Pods of one machine that are asked to leave at the same time.
const AT_ONCE: usize = 8;

/// Labels of a pod.
pub(crate) type Labels = BTreeMap<String, String>;

impl Machines {
    /// Asks pods to leave, several at a time: a Node full of pods takes a short pass as well.
    pub(super) async fn send_away(
        &self,
        snapshot: &Snapshot,
        actions: &[Action],
    ) -> Vec<Performed> {
        let requests: Vec<_> =
            actions.iter().map(|action| self.send_one_away(snapshot, action)).collect();
        stream::iter(requests).buffered(AT_ONCE).collect().await
    }

    async fn send_one_away(&self, snapshot: &Snapshot, action: &Action) -> Performed {
        let Some(pod) = action.pod() else { return Performed::Skipped };
        let target = match self.target(snapshot) {
            Ok(target) => target,
            Err(lacking) => return Performed::Failed(lacking.to_string()),
        };
        let writer = self.writer.to(&target);
        let result = if matches!(action, Action::Evict(_)) {
            writer.evict(&ObjectName::new(&pod.namespace, &pod.name), &pod.uid).await
        } else {
            let api: Api<Pod> = writer.api(&pod.namespace);
            let at_once = matches!(action, Action::DeletePod(_));
            writer.delete(&api, &pod.name, Deletion { uid: Some(&pod.uid), at_once }).await
        };
        match result {
            Ok(()) => Performed::Done,
            Err(WriteError::NotFound | WriteError::Conflict) => Performed::Gone,
            Err(failure) => self.refused(snapshot, &target, pod, failure).await,
        }
    }

    async fn refused(
        &self,
        snapshot: &Snapshot,
        target: &Target,
        pod: &PodRef,
        failure: WriteError,
    ) -> Performed {
        let before = self.memory.refused_pod(&pod.uid);
        let retry_after = failure.retry_after();
        let may_be_budgets =
            matches!(failure, WriteError::TooManyRequests { .. } | WriteError::Internal(_));
        let labels = match before.as_ref().and_then(|before| before.labels.clone()) {
            None if may_be_budgets => self.labels_of(target, pod).await,
            known => known,
        };
        let budgets = labels.as_deref().map(|labels| budgets_of(target, &pod.namespace, labels));
        let budgets = budgets.unwrap_or_default();
        // The API server has no word of its own for a pod that several budgets select: it breaks.
        let by_budget = matches!(failure, WriteError::TooManyRequests { .. })
            || (may_be_budgets && budgets.len() > 1);
        let cause =
            if by_budget { RefusalCause::Budgets(budgets.clone()) } else { RefusalCause::Failed };
        let attempts = before.map_or(0, |before| before.refusal.attempts).saturating_add(1);
        let refusal = Refusal { at: snapshot.now, attempts, retry_after, cause };
        let machine = ObjectName::of(snapshot.machine.as_ref());
        self.memory.keep_refused_pod(&pod.uid, Refused { refusal, labels, machine });
        debug!(pod = pod.name, namespace = pod.namespace, attempts, %failure, "does not leave");
        if by_budget { Performed::Refused(budgets) } else { Performed::Failed(failure.to_string()) }
    }

    /// How the eviction of a pod was last tried in vain, with its budgets as they are now.
    pub(super) fn refusal_of(&self, target: &Target, pod: &Pod, uid: &str) -> Option<Refusal> {
        let Refused { mut refusal, labels, .. } = self.memory.refused_pod(uid)?;
        if let (RefusalCause::Budgets(budgets), Some(labels)) = (&mut refusal.cause, labels) {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            *budgets = budgets_of(target, namespace, &labels);
        }
        Some(refusal)
    }

    /// Read from the API: the mirror of pods has no labels, for there are many pods and few refusals.
    async fn labels_of(&self, target: &Target, pod: &PodRef) -> Option<Arc<Labels>> {
        let writer = self.writer.to(target);
        let api: Api<Pod> = writer.api(&pod.namespace);
        let found = writer.get(&api, &pod.name).await.ok().flatten()?;
        let same = found.metadata.uid.as_deref() == Some(pod.uid.as_str());
        same.then(|| Arc::new(found.metadata.labels.unwrap_or_default()))
    }
}

/// The budgets that select a pod, as far as they were observed.
fn budgets_of(target: &Target, namespace: &str, labels: &Labels) -> Vec<BudgetFacts> {
    let Some(budgets) = target.budgets.get() else { return Vec::new() };
    let all = budgets.find(BudgetIndex::Namespace, namespace);
    all.iter().filter(|one| selects(one, labels)).map(|one| BudgetFacts::of(one)).collect()
}

/// An empty selector selects every pod, an absent one none.
fn selects(budget: &PodDisruptionBudget, labels: &Labels) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
    selector.and_then(|it| Selector::try_from(it).ok()).is_some_and(|it| it.matches(labels))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn budget(selector: &Value) -> PodDisruptionBudget {
        serde_json::from_value(json!({ "metadata": {}, "spec": { "selector": selector } })).unwrap()
    }

    #[test]
    fn a_budget_selects_by_labels_and_expressions_and_without_a_selector_nothing() {
        let labels = Labels::from([("app".to_owned(), "db".to_owned())]);
        assert!(selects(&budget(&json!({})), &labels), "the empty selector is everything");
        assert!(!selects(&budget(&Value::Null), &labels));
        assert!(selects(&budget(&json!({ "matchLabels": { "app": "db" } })), &labels));
        assert!(!selects(&budget(&json!({ "matchLabels": { "app": "web" } })), &labels));
        let expression = json!({ "matchExpressions": [
            { "key": "app", "operator": "In", "values": ["db", "web"] },
            { "key": "canary", "operator": "DoesNotExist" }
        ] });
        assert!(selects(&budget(&expression), &labels));
    }
}
