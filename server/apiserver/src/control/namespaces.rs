//! The end of a namespace: its contents go first, then the namespace.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    kinds::{
        access::{items, number, object_in, set, text},
        conditions::{self, Condition},
    },
    store::{Key, Prefix, Record},
};

use super::{Controller, Outcome, Plane, Queue, holds, is_deleting, settled};

/// Holds a namespace in `spec.finalizers` until its contents are gone.
const FINALIZER: &str = "kubernetes";

/// Sees the deletion of namespaces through.
#[derive(Debug)]
pub(super) struct Namespaces {
    plane: Plane,
    terminating: BTreeSet<String>,
}

/// What is left in a namespace: objects by resource, and how many of them each finalizer holds.
#[derive(Debug, Default)]
struct Remaining {
    resources: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
    /// A deletion was refused, with this text.
    failure: Option<String>,
}

impl Namespaces {
    pub(super) fn new(plane: Plane) -> Self {
        Self { plane, terminating: BTreeSet::new() }
    }

    /// Deletes what is not being deleted yet, pods before everything else, and counts what is left.
    async fn empty(&self, namespace: &str) -> Remaining {
        let pods = self.sweep(namespace, is_pod).await;
        if !pods.resources.is_empty() {
            let mut all = self.count(namespace, |key| !is_pod(key));
            all.resources.extend(pods.resources);
            for (finalizer, objects) in pods.finalizers {
                *all.finalizers.entry(finalizer).or_default() += objects;
            }
            all.failure = pods.failure;
            return all;
        }
        self.sweep(namespace, |_| true).await
    }

    async fn sweep(&self, namespace: &str, which: impl Fn(&Key) -> bool) -> Remaining {
        let mut failure = None;
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions",
            "propagationPolicy": "Background"});
        for record in self.contents(namespace).filter(|record| which(&record.key)) {
            // A pod that is marked without grace has nothing to wait for: its deletion was cut short.
            let goes = |object: &Value| {
                let grace = number(object, "/metadata/deletionGracePeriodSeconds");
                is_deleting(object) && !(is_pod(&record.key) && grace == Some(0))
            };
            if record.readable().as_ref().is_some_and(goes) {
                continue;
            }
            let Some(path) = self.plane.path(&record.key) else { continue };
            let reply = self.plane.loopback.delete(&path, &options).await;
            if settled(reply.code) != Outcome::Done {
                failure = Some(text(&reply.body, "/message").to_owned());
            }
        }
        Remaining { failure, ..self.count(namespace, which) }
    }

    fn count(&self, namespace: &str, which: impl Fn(&Key) -> bool) -> Remaining {
        let mut remaining = Remaining::default();
        for record in self.contents(namespace).filter(|record| which(&record.key)) {
            let resource = format!("{}.{}", record.key.resource(), record.key.group());
            *remaining.resources.entry(resource).or_default() += 1;
            let object = record.readable().unwrap_or_default();
            let finalizers = items(&object, "/metadata/finalizers").iter();
            for finalizer in finalizers.filter_map(Value::as_str) {
                *remaining.finalizers.entry(finalizer.to_owned()).or_default() += 1;
            }
        }
        remaining
    }

    /// Everything in a namespace, resource by resource.
    fn contents(&self, namespace: &str) -> impl Iterator<Item = Record> {
        let stored = self.plane.served.registry().stored();
        let store = self.plane.context.store.clone();
        let namespace = namespace.to_owned();
        stored.into_iter().filter(|(_, resource)| resource.namespaced).flat_map(
            move |(storage, _)| {
                let range = Prefix::namespace(&storage.group, &storage.plural, &namespace);
                store.list(&range, None, None).records
            },
        )
    }

    /// Writes the conditions, if they say something new.
    async fn report(&self, namespace: &mut Value, remaining: &Remaining) -> Outcome {
        let now = conditions::stamp((self.plane.context.clock)());
        let status = object_in(namespace, "status").and_then(Value::as_object_mut);
        let Some(status) = status else { return Outcome::Done };
        let conditions = wanted(remaining);
        let changed =
            conditions.iter().filter(|wanted| conditions::set(status, wanted, &now)).count();
        if changed == 0 {
            return Outcome::Done;
        }
        self.put(namespace, "status").await
    }

    /// Lets the namespace go.
    async fn finalize(&self, name: &str) -> Outcome {
        let Some(mut namespace) = self.read(name) else { return Outcome::Done };
        let finalizers = namespace.pointer_mut("/spec/finalizers").and_then(Value::as_array_mut);
        let Some(finalizers) = finalizers else { return Outcome::Done };
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        self.put(&mut namespace, "finalize").await
    }

    async fn put(&self, namespace: &mut Value, subresource: &str) -> Outcome {
        set(namespace, "apiVersion", "v1");
        set(namespace, "kind", "Namespace");
        let name = text(namespace, "/metadata/name");
        let path = format!("/api/v1/namespaces/{name}/{subresource}");
        settled(self.plane.loopback.replace(&path, namespace).await.code)
    }

    /// An unreadable namespace exists all the same.
    fn record(&self, name: &str) -> Option<Record> {
        self.plane.context.store.get(&Key::new("", "namespaces", "", name))
    }

    fn read(&self, name: &str) -> Option<Value> {
        self.record(name)?.readable()
    }
}

fn is_pod(key: &Key) -> bool {
    key.group().is_empty() && key.resource() == "pods"
}

/// All conditions of a namespace that is being deleted, in their order.
fn wanted(remaining: &Remaining) -> Vec<Condition<'static>> {
    let counted = |counts: &BTreeMap<String, usize>, word: &str| {
        let each =
            counts.iter().map(|(name, count)| format!("{name} {word} {count} resource instances"));
        each.collect::<Vec<_>>().join(", ")
    };
    let condition =
        |kind, status, reason, message: String| Condition { kind, status, reason, message };
    let fine = |kind, reason, message: &str| condition(kind, false, reason, message.to_owned());
    let content = match &remaining.failure {
        None => fine(
            "NamespaceDeletionContentFailure",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        Some(failure) => condition(
            "NamespaceDeletionContentFailure",
            true,
            "ContentDeletionFailed",
            format!("Failed to delete all resource types, 1 remaining: {failure}"),
        ),
    };
    let left = if remaining.resources.is_empty() {
        fine("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed")
    } else {
        let counts = counted(&remaining.resources, "has");
        let message = format!("Some resources are remaining: {counts}");
        condition("NamespaceContentRemaining", true, "SomeResourcesRemain", message)
    };
    let held = if remaining.finalizers.is_empty() {
        let message = "All content-preserving finalizers finished";
        fine("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", message)
    } else {
        let counts = counted(&remaining.finalizers, "in");
        let message = format!("Some content in the namespace has finalizers remaining: {counts}");
        condition("NamespaceFinalizersRemaining", true, "SomeFinalizersRemain", message)
    };
    let discovered = fine(
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    );
    let parsed = fine(
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    );
    vec![discovered, parsed, content, left, held]
}

impl Controller for Namespaces {
    type Key = String;

    fn plane(&self) -> &Plane {
        &self.plane
    }

    fn forget(&mut self) {
        self.terminating.clear();
    }

    fn note(&mut self, key: &Key, value: Option<&[u8]>, queue: &mut Queue<String>) {
        if !key.namespace().is_empty() {
            // A creation that was under way when its namespace went has left something behind.
            let stray = value.is_some() && self.record(key.namespace()).is_none();
            if stray || self.terminating.contains(key.namespace()) {
                queue.push(key.namespace().to_owned());
            }
            return;
        }
        if !key.group().is_empty() || key.resource() != "namespaces" {
            return;
        }
        let object: Value =
            value.and_then(|value| serde_json::from_slice(value).ok()).unwrap_or_default();
        if is_deleting(&object) {
            self.terminating.insert(key.name().to_owned());
            queue.push(key.name().to_owned());
        } else {
            self.terminating.remove(key.name());
        }
    }

    async fn act(&mut self, name: String) -> Outcome {
        let Some(record) = self.record(&name) else {
            self.sweep(&name, |_| true).await;
            return Outcome::Done;
        };
        let Some(namespace) = record.readable() else { return Outcome::Done };
        if !is_deleting(&namespace) || !holds(&namespace, "/spec/finalizers", FINALIZER) {
            return Outcome::Done;
        }
        let remaining = self.empty(&name).await;
        let Some(mut namespace) = self.read(&name) else { return Outcome::Done };
        let reported = self.report(&mut namespace, &remaining).await;
        if reported != Outcome::Done || remaining.failure.is_some() {
            return Outcome::Retry;
        }
        if remaining.resources.is_empty() { self.finalize(&name).await } else { Outcome::Done }
    }
}
