//! What the judge is told of Nodes and their pods, and INV-4 about the grace of a pod.

use k8s_openapi::api::core::v1::{Node, Pod};
use ostler_driver_fake::cloud::Instance;
use serde_json::Value;
use tokio::time::Instant;

use super::{Books, Change, DRAIN_TIMEOUT, Life, Oracle, UNREACHABLE_AFTER, pools};
use crate::sim::dice::Dice;

impl Oracle {
    pub(super) fn pod(&self, change: &Change) {
        let Ok(pod) = serde_json::from_value::<Pod>(change.object.clone()) else { return };
        let name = pod.metadata.name.clone().unwrap_or_default();
        let mut books = self.lock();
        // Taken away for good: grace 0.
        let grace = change.sent.get("gracePeriodSeconds").and_then(Value::as_i64);
        if change.method == "DELETE" && change.by.starts_with("core") {
            self.check_meant(change, pod.metadata.uid.as_deref());
            self.check_grace(&books, &pod, grace);
        }
        if change.method == "DELETE" && grace == Some(0) {
            books.pods.remove(&name);
        } else {
            books.pods.insert(name, pod);
        }
    }

    /// INV-4: a pod gets less than its grace only after the deadline, from a Node that is lost, or by
    /// force.
    fn check_grace(&self, books: &Books, pod: &Pod, grace: Option<i64>) {
        let Some(spec) = pod.spec.as_ref() else { return };
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let finished = matches!(phase, Some("Succeeded" | "Failed"));
        let own = spec.termination_grace_period_seconds.unwrap_or(30);
        let node = spec.node_name.as_deref().unwrap_or_default();
        if grace.is_none_or(|grace| grace >= own) || node.is_empty() || finished {
            return;
        }
        let named = |it: &Instance| it.identity.machine_name == node;
        let excused = match books.lives.values().find(|life| life.name == node) {
            Some(life) => self.excused(books, life),
            // The request came late. It was forced; or nothing of this name is left, and no kubelet that could end the pod.
            None => {
                books.forced.contains(node)
                    || !books.nodes.contains_key(node) && !books.instances.values().any(named)
            }
        };
        if !excused {
            self.trace.violation(format_args!(
                "INV-4: pod {} of {node} gets {grace:?} s of its {own}",
                pod.metadata.name.as_deref().unwrap_or_default()
            ));
        }
    }

    /// Whether the pods of a machine may go immediately: after the deadline, from a Node that is
    /// lost, by force, or because there is no instance.
    pub(super) fn excused(&self, books: &Books, life: &Life) -> bool {
        let deleted = life.machine.metadata.deletion_timestamp.as_ref();
        let overdue = deleted.is_some_and(|at| self.now() + self.tolerance >= at.0 + DRAIN_TIMEOUT)
            || books
                .pools
                .updated_since(life.machine.uid())
                .is_some_and(|since| since.elapsed() + self.tolerance >= DRAIN_TIMEOUT);
        let since = books.unready.get(&life.name);
        let lost = since.is_some_and(|since| since.elapsed() + self.tolerance >= UNREACHABLE_AFTER);
        // No kubelet is there that could end a pod.
        let gone = !books.instances.values().any(|it| pools::is_of(it, &life.machine));
        overdue || lost || gone || (deleted.is_some() && life.machine.wants_force())
    }

    pub(super) fn node(&self, change: &Change) {
        let Ok(node) = serde_json::from_value::<Node>(change.object.clone()) else { return };
        let name = node.metadata.name.clone().unwrap_or_default();
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready =
            conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True");
        let mut books = self.lock();
        if ready {
            books.unready.remove(&name);
        } else {
            books.unready.entry(name.clone()).or_insert_with(Instant::now);
        }
        if change.method == "DELETE" && change.by.starts_with("core") {
            self.check_meant(change, node.metadata.uid.as_deref());
        }
        self.node_of_a_group(&mut books, change, &name, &node);
        books.checks.node(&name, &node, self.now());
        let leaves = change.method == "DELETE" || node.metadata.deletion_timestamp.is_some();
        if leaves && node.metadata.finalizers.as_ref().is_none_or(Vec::is_empty) {
            books.checks.node_gone(&name, self.now());
            books.nodes.remove(&name);
        } else {
            books.nodes.insert(name, node);
        }
    }

    /// A Node that takes a pod of this name, if it is not there: any that is Ready and not cordoned.
    pub fn room(&self, pod: &str, dice: &Dice) -> Option<String> {
        let books = self.lock();
        let takes = |(name, node): &(&String, &Node)| {
            let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
            let leaves = node.metadata.deletion_timestamp.is_some();
            !cordoned && !leaves && !books.unready.contains_key(*name)
        };
        if books.pods.contains_key(pod) {
            return None;
        }
        let nodes: Vec<&String> = books.nodes.iter().filter(takes).map(|(name, _)| name).collect();
        (!nodes.is_empty()).then(|| dice.pick(&nodes).clone())
    }
}
