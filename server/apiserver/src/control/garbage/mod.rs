//! Garbage collection by ownerReferences.
//!
//! `graph` has the owners and dependents; `decide` chooses the action for an object; this module acts.

mod decide;
mod graph;

use serde_json::{Value, json};

use crate::{
    kinds::access::{items, text},
    store::Change,
};

use super::{Controller, Outcome, Plane, Queue, Update, settled};
use decide::{Action, Policy, decide};
use graph::{Graph, Uid};

/// Deletes objects whose owners are gone, and sees foreground and orphaning deletions through.
#[derive(Debug)]
pub(super) struct Garbage {
    plane: Plane,
    graph: Graph,
}

impl Garbage {
    pub(super) fn new(plane: Plane) -> Self {
        Self { plane, graph: Graph::default() }
    }

    /// Whether a kind is known, and if so whether its objects live in namespaces.
    fn namespaced(&self, api_version: &str, kind: &str) -> Option<bool> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let registry = self.plane.served.registry();
        registry.by_kind(group, version, kind).map(|resource| resource.namespaced)
    }

    async fn carry_out(&self, action: Action) -> Outcome {
        match action {
            Action::Keep => Outcome::Done,
            Action::Delete { uid, policy } => self.delete(&uid, policy).await,
            Action::Disown { uid, owners } => self.disown(&uid, &owners).await,
            Action::Release { uid, finalizer } => self.release(&uid, finalizer).await,
            Action::Orphan { uid, dependents } => {
                for dependent in &dependents {
                    let outcome = self.disown(dependent, std::slice::from_ref(&uid)).await;
                    if outcome != Outcome::Done {
                        return outcome;
                    }
                }
                self.release(&uid, decide::ORPHAN).await
            }
        }
    }

    async fn delete(&self, uid: &Uid, policy: Policy) -> Outcome {
        let Some((path, object)) = self.find(uid) else { return Outcome::Done };
        if !self.is_judged(uid, &object) {
            return Outcome::Retry;
        }
        let version = text(&object, "/metadata/resourceVersion");
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions",
            "propagationPolicy": policy.name(),
            "preconditions": {"uid": uid, "resourceVersion": version}});
        settled(self.plane.loopback.delete(&path, &options).await.code)
    }

    /// Whether an object's owners are still those that were judged.
    fn is_judged(&self, uid: &Uid, object: &Value) -> bool {
        let judged =
            self.graph.node(uid).map(|node| node.owners.iter().map(|owner| owner.uid.as_str()));
        let now = items(object, "/metadata/ownerReferences").iter();
        let now = now.map(|owner| text(owner, "/uid"));
        judged.is_some_and(|judged| judged.eq(now))
    }

    /// Takes references to `owners` out of an object.
    async fn disown(&self, uid: &Uid, owners: &[Uid]) -> Outcome {
        self.edit(uid, "ownerReferences", |reference| {
            !owners.iter().any(|gone| gone == text(reference, "/uid"))
        })
        .await
    }

    async fn release(&self, uid: &Uid, finalizer: &str) -> Outcome {
        self.edit(uid, "finalizers", |found| found.as_str() != Some(finalizer)).await
    }

    /// Keeps of a list in an object's metadata only what `keep` says.
    async fn edit(&self, uid: &Uid, list: &str, keep: impl Fn(&Value) -> bool) -> Outcome {
        let Some((path, object)) = self.find(uid) else { return Outcome::Done };
        let found = items(&object, &format!("/metadata/{list}"));
        let kept: Vec<&Value> = found.iter().filter(|item| keep(item)).collect();
        if kept.len() == found.len() {
            return Outcome::Done;
        }
        let kept = if kept.is_empty() { Value::Null } else { json!(kept) };
        let version = text(&object, "/metadata/resourceVersion");
        let patch = json!({"metadata": {"uid": uid, "resourceVersion": version, list: kept}});
        settled(self.plane.loopback.merge(&path, &patch).await.code)
    }

    /// The address and the present state of an object, if it is still there and addressable.
    fn find(&self, uid: &Uid) -> Option<(String, Value)> {
        let key = &self.graph.node(uid)?.key;
        let object = self.plane.object(key)?;
        (text(&object, "/metadata/uid") == uid).then_some((self.plane.path(key)?, object))
    }
}

impl Controller for Garbage {
    type Key = Uid;

    fn plane(&self) -> &Plane {
        &self.plane
    }

    fn observe(&mut self, update: Update, queue: &mut Queue<Uid>) {
        let concerned = match update {
            Update::All(records) => self.graph.reset(&records),
            Update::Change(event) => match &event.change {
                Change::Put(value) => self.graph.put(&event.key, value),
                Change::Delete(_) => self.graph.remove(&event.key),
            },
        };
        for uid in concerned {
            queue.push(uid);
        }
    }

    async fn act(&mut self, uid: Uid) -> Outcome {
        let action = decide(&self.graph, &uid, |version, kind| self.namespaced(version, kind));
        self.carry_out(action).await
    }
}
