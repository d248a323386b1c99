//! Evicts pods, and finds the budgets that refuse.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::core::{Selector, SelectorExt};
use ostler_lifecycle::plan::{Action, Performed, PodRef};
use ostler_lifecycle::pod::EvictionAnswer;
use ostler_lifecycle::snapshot::{BudgetFacts, EvictionRefusal, RefusalCause, Snapshot};
use parking_lot::Mutex;
use tracing::debug;

use super::Machines;
use crate::client::{Deletion, WriteError};
use crate::stores::BudgetIndex;
use crate::target::Target;
use crate::watch::ObjectName;

/// Concurrent evictions of pods of a machine.
const AT_ONCE: usize = 8;

/// Labels of a pod.
type Labels = BTreeMap<String, String>;

/// A pod whose eviction the API server refused.
#[derive(Debug, Clone)]
struct Refused {
    /// The kind of refusal, and how often it was refused.
    refusal: EvictionRefusal,
    /// The pod's labels, if needed and readable.
    labels: Option<Arc<Labels>>,
    /// The machine whose Node is being drained of the pod.
    machine: ObjectName,
    /// The cluster of the pod, as [`Target::cluster`] names it: two clusters may have budgets of the same name.
    cluster: Option<ObjectName>,
}

impl Refused {
    /// Whether the eviction waits for this budget, and has not been released yet.
    fn waits_for(&self, cluster: Option<&ObjectName>, budget: &str) -> bool {
        self.cluster.as_ref() == cluster
            && !self.refusal.lifted
            && match &self.refusal.cause {
                RefusalCause::Budgets(budgets) => budgets.iter().any(|one| one.name == budget),
                RefusalCause::Failed(_) => false,
            }
    }
}

/// Refused evictions, by UID of the pod. Bounded by the pods on Nodes that are being drained: the watch reports
/// deleted pods.
#[derive(Debug, Default)]
pub(crate) struct Evictions(Mutex<HashMap<String, Refused>>);

impl Evictions {
    /// A budget of a cluster allows this many evictions: as many of the pods that it holds, those first whose last try
    /// is longest ago, are evicted again without backoff. Returns the machines whose Nodes are being drained of these
    /// pods.
    pub(crate) fn retry_held_by(
        &self,
        cluster: Option<&ObjectName>,
        budget: &str,
        pods: usize,
    ) -> Vec<ObjectName> {
        let mut refused = self.0.lock();
        let held = refused.values_mut().filter(|refused| refused.waits_for(cluster, budget));
        let mut held: Vec<_> = held.collect();
        held.sort_by_key(|refused| refused.refusal.at);
        let lift = |refused: &mut Refused| {
            refused.refusal.lifted = true;
            refused.machine.clone()
        };
        held.into_iter().take(pods).map(lift).collect()
    }

    /// A pod is gone.
    pub(crate) fn forget(&self, pod_uid: &str) {
        self.0.lock().remove(pod_uid);
    }

    /// Keeps the refusal of a pod, unless it went while the answer was awaited.
    fn keep(&self, target: &Target, pod: &PodRef, refusal: Refused) {
        let mut refused = self.0.lock();
        // Looked at under the lock: if it goes now, `forget` comes after this.
        let there = target.pods.get(&ObjectName::new(&pod.namespace, &pod.name));
        if there.is_some_and(|there| there.metadata.uid.as_deref() == Some(pod.uid.as_str())) {
            refused.insert(pod.uid.clone().into(), refusal);
        }
    }

    fn of(&self, pod_uid: &str) -> Option<Refused> {
        self.0.lock().get(pod_uid).cloned()
    }
}

impl Machines {
    /// Evicts pods, several at a time, so that a pass over a full Node stays short.
    pub(super) async fn evict_all(
        &self,
        snapshot: &Snapshot,
        actions: &[Action],
    ) -> Vec<Performed> {
        let requests: Vec<_> = actions.iter().map(|action| self.evict(snapshot, action)).collect();
        stream::iter(requests).buffered(AT_ONCE).collect().await
    }

    async fn evict(&self, snapshot: &Snapshot, action: &Action) -> Performed {
        let Some(pod) = action.pod() else { return Performed::Skipped };
        let target = match self.target(snapshot) {
            Ok(target) => target,
            Err(lacking) => return Performed::Failed(lacking.to_string()),
        };
        let writer = self.writer.to(&target.client);
        let result = if matches!(action, Action::Evict(_)) {
            writer.evict(&ObjectName::new(&pod.namespace, &pod.name), pod.uid.as_str()).await
        } else {
            let api: Api<Pod> = writer.api(&pod.namespace);
            let force = matches!(action, Action::DeletePod(_));
            writer
                .delete(
                    &api,
                    &pod.name,
                    Deletion { uid: Some(pod.uid.as_str()), force, ..Deletion::default() },
                )
                .await
        };
        match result {
            Ok(()) => {
                // The pod leaves, and waits for no budget any more.
                self.state.evictions.forget(pod.uid.as_str());
                Performed::Done
            }
            Err(WriteError::NotFound | WriteError::Conflict) => Performed::Gone,
            Err(failure) => self.refused(snapshot, &target, pod, failure).await,
        }
    }

    /// Records why a pod was not evicted, which decides on its next eviction.
    async fn refused(
        &self,
        snapshot: &Snapshot,
        target: &Target,
        pod: &PodRef,
        failure: WriteError,
    ) -> Performed {
        let before = self.state.evictions.of(pod.uid.as_str());
        let answer = match &failure {
            WriteError::TooManyRequests { .. } => EvictionAnswer::Refused,
            WriteError::Internal(_) => EvictionAnswer::Broke,
            WriteError::Conflict
            | WriteError::NotFound
            | WriteError::NoAnswer
            | WriteError::Forbidden(_)
            | WriteError::Invalid(_)
            | WriteError::Lost(_)
            | WriteError::Other(_) => EvictionAnswer::Failed,
        };
        let labels = match before.as_ref().and_then(|before| before.labels.clone()) {
            None if answer.may_be_budgets() => self.labels_of(target, pod).await,
            known => known,
        };
        let budgets = labels.as_deref().map(|labels| budgets_of(target, &pod.namespace, labels));
        let last = before.as_ref().map(|before| &before.refusal.cause);
        let cause = answer.cause(budgets.unwrap_or_default(), &failure.to_string(), last);
        let drain = snapshot.stored_status().and_then(|status| status.drain.as_ref());
        let attempts = EvictionRefusal::count(before.as_ref().map(|it| &it.refusal), &cause, drain);
        debug!(pod = pod.name, namespace = pod.namespace, attempts, %failure, "eviction refused");
        let performed = match &cause {
            RefusalCause::Budgets(budgets) => Performed::Refused(budgets.clone()),
            RefusalCause::Failed(text) => Performed::Failed(text.clone()),
        };
        let retry_after = failure.retry_after();
        let refusal =
            EvictionRefusal { at: snapshot.now, lifted: false, attempts, retry_after, cause };
        let machine = ObjectName::of(snapshot.machine.as_ref());
        let refused = Refused { refusal, labels, machine, cluster: target.cluster.clone() };
        self.state.evictions.keep(target, pod, refused);
        performed
    }

    /// The last refusal for a pod, with its budgets as they are now.
    pub(super) fn refusal_of(
        &self,
        target: &Target,
        pod: &Pod,
        uid: &str,
    ) -> Option<EvictionRefusal> {
        let Refused { mut refusal, labels, .. } = self.state.evictions.of(uid)?;
        if let (RefusalCause::Budgets(budgets), Some(labels)) = (&mut refusal.cause, labels) {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            *budgets = budgets_of(target, namespace, &labels);
        }
        Some(refusal)
    }

    /// Labels are read from the API: the cache of pods drops them, since there are many pods and few refusals.
    async fn labels_of(&self, target: &Target, pod: &PodRef) -> Option<Arc<Labels>> {
        let writer = self.writer.to(&target.client);
        let api: Api<Pod> = writer.api(&pod.namespace);
        let found = writer.get(&api, &pod.name).await.ok().flatten()?;
        let same = found.metadata.uid.as_deref() == Some(pod.uid.as_str());
        same.then(|| Arc::new(found.metadata.labels.unwrap_or_default()))
    }
}

/// The observed budgets that select a pod.
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
    use crate::bench::{Bench, put};

    /// Records that a budget of the cluster refused this pod at `second`.
    fn refuse(evictions: &Evictions, target: &Target, pod: &str, second: i64) {
        let at = jiff::Timestamp::from_second(second).unwrap();
        let budgets = vec![BudgetFacts { name: "default/web".to_owned(), misconfigured: false }];
        let cause = RefusalCause::Budgets(budgets);
        let refusal = EvictionRefusal { at, lifted: false, attempts: 1, retry_after: None, cause };
        let (machine, cluster) = (ObjectName::new("default", pod), target.cluster.clone());
        let pod = PodRef { namespace: "default".into(), name: pod.into(), uid: pod.into() };
        evictions.keep(target, &pod, Refused { refusal, labels: None, machine, cluster });
    }

    fn cluster(name: &str, pods: &[&str]) -> Target {
        let name = ObjectName::new("default", name);
        let target = Target::of_cluster(Bench::new().client(), name);
        for pod in pods {
            let meta = json!({ "name": pod, "namespace": "default", "uid": pod });
            put(&target.pods, json!({ "metadata": meta }));
        }
        target
    }

    #[tokio::test]
    async fn a_budget_lets_those_go_that_wait_longest_in_its_own_cluster_and_each_once() {
        let evictions = Evictions::default();
        let (one, other) = (cluster("one", &["a", "b", "c"]), cluster("other", &["d"]));
        for (target, pod, second) in
            [(&one, "a", 3), (&one, "b", 1), (&one, "c", 2), (&other, "d", 0)]
        {
            refuse(&evictions, target, pod, second);
        }
        let freed = |pods| {
            let freed = evictions.retry_held_by(one.cluster.as_ref(), "default/web", pods);
            freed.into_iter().map(|machine| machine.name).collect::<Vec<_>>()
        };
        assert_eq!(freed(1), ["b"]);
        assert_eq!(freed(1), ["c"], "b may go already");
        assert_eq!(freed(9), ["a"]);
    }

    #[tokio::test]
    async fn no_refusal_is_kept_of_a_pod_that_went_meanwhile() {
        let (evictions, target) = (Evictions::default(), cluster("one", &["a"]));
        refuse(&evictions, &target, "a", 0);
        refuse(&evictions, &target, "gone", 0);
        assert!(evictions.of("a").is_some() && evictions.of("gone").is_none());
    }

    fn budget(selector: &Value) -> PodDisruptionBudget {
        serde_json::from_value(json!({ "metadata": {}, "spec": { "selector": selector } })).unwrap()
    }

    #[test]
    fn a_budget_selects_by_labels_and_expressions_and_without_a_selector_nothing() {
        let labels = Labels::from([("app".to_owned(), "db".to_owned())]);
        assert!(selects(&budget(&json!({})), &labels), "the empty selector selects everything");
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
