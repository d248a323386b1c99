//! Accepted names and the end of CustomResourceDefinitions.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    kinds::{
        access::{is_true, items, text},
        conditions::{self, Condition},
        definition::{FINALIZER, GROUP, PLURAL, status_mut},
    },
    store::{Key, Prefix},
};

use super::{Controller, Outcome, Plane, Queue, holds, is_deleting, settled};

/// Accepts the names of definitions and sees their deletion through.
#[derive(Debug)]
pub(super) struct Definitions {
    plane: Plane,
    /// Group and plural of the definitions that are being deleted.
    terminating: BTreeSet<(String, String)>,
}

impl Definitions {
    pub(super) fn new(plane: Plane) -> Self {
        Self { plane, terminating: BTreeSet::new() }
    }

    fn all(&self) -> Vec<Value> {
        let page = self.plane.context.store.list(&Prefix::resource(GROUP, PLURAL), None, None);
        page.records.iter().filter_map(crate::store::Record::readable).collect()
    }

    /// Names that other definitions of the group hold.
    fn taken(&self, definition: &Value) -> Taken {
        let mut taken = Taken::default();
        let (name, group) = (text(definition, "/metadata/name"), text(definition, "/spec/group"));
        let others = self.all().into_iter().filter(|other| {
            text(other, "/spec/group") == group && text(other, "/metadata/name") != name
        });
        for other in others {
            let names = other.pointer("/status/acceptedNames");
            taken.resources.extend(
                ["plural", "singular", "shortNames"].map(|name| texts(names, name)).concat(),
            );
            taken.kinds.extend(["kind", "listKind"].map(|name| texts(names, name)).concat());
        }
        taken
    }

    /// Accepts what names are free, and establishes the definition once all are.
    async fn accept(&self, mut definition: Value) -> Outcome {
        let taken = self.taken(&definition);
        let spec = definition.pointer("/spec/names").cloned().unwrap_or_default();
        let now = conditions::stamp((self.plane.context.clock)());
        let is_established = is_true(&definition, "Established");
        let Some(status) = status_mut(&mut definition) else { return Outcome::Done };
        let before = status.clone();
        let accepted = status.get("acceptedNames").cloned().unwrap_or_default();
        let (names, conflict) = judge(&spec, accepted, &taken);
        status.insert("acceptedNames".to_owned(), names);
        conditions::set(status, &names_accepted(conflict.as_ref()), &now);
        if !is_established {
            conditions::set(status, &established(conflict.is_none()), &now);
        }
        if *status == before {
            return Outcome::Done;
        }
        self.write(&definition).await
    }

    /// Deletes the objects of a definition that is being deleted, then lets it go.
    async fn dissolve(&self, mut definition: Value) -> Outcome {
        let (group, plural) =
            (text(&definition, "/spec/group"), text(&definition, "/spec/names/plural"));
        let left = self.sweep(group, plural).await;
        let (status, reason, message) = match left {
            Some(0) => (false, "InstanceDeletionCompleted", "removed all instances"),
            Some(_) => {
                (true, "InstanceDeletionInProgress", "CustomResource deletion is in progress")
            }
            None => (true, "InstanceDeletionFailed", "could not delete all instances"),
        };
        let now = conditions::stamp((self.plane.context.clock)());
        let wanted = Condition { kind: "Terminating", status, reason, message: message.to_owned() };
        let Some(fields) = status_mut(&mut definition) else { return Outcome::Done };
        if conditions::set(fields, &wanted, &now) {
            // The write changes the definition and so queues the key again.
            return self.write(&definition).await;
        }
        match left {
            Some(0) => self.release(&definition).await,
            Some(_) => Outcome::Done,
            None => Outcome::Retry,
        }
    }

    /// Deletes all objects of a resource; how many are left, if none was refused.
    async fn sweep(&self, group: &str, plural: &str) -> Option<usize> {
        let store = &self.plane.context.store;
        let range = Prefix::resource(group, plural);
        let mut refused = false;
        for record in store.list(&range, None, None).records {
            if record.readable().is_some_and(|object| is_deleting(&object)) {
                continue;
            }
            let Some(path) = self.plane.path(&record.key) else {
                // A kind that was never established has no address, nor has it objects.
                continue;
            };
            let reply = self.plane.loopback.delete(&path, &json!({})).await;
            refused |= settled(reply.code) != Outcome::Done;
        }
        (!refused).then(|| store.list(&range, None, None).records.len())
    }

    async fn release(&self, definition: &Value) -> Outcome {
        let finalizers = items(definition, "/metadata/finalizers").iter();
        let kept: Vec<&Value> = finalizers.filter(|finalizer| **finalizer != FINALIZER).collect();
        let version = text(definition, "/metadata/resourceVersion");
        let patch = json!({"metadata": {"finalizers": kept, "resourceVersion": version}});
        settled(self.plane.loopback.merge(&address(definition), &patch).await.code)
    }

    async fn write(&self, definition: &Value) -> Outcome {
        let path = format!("{}/status", address(definition));
        settled(self.plane.loopback.replace(&path, definition).await.code)
    }
}

fn address(definition: &Value) -> String {
    let name = text(definition, "/metadata/name");
    format!("/apis/{GROUP}/v1/{PLURAL}/{name}")
}

/// The texts in a field that holds a text or a list of texts.
fn texts(object: Option<&Value>, field: &str) -> Vec<String> {
    let value = object.and_then(|object| object.get(field));
    match value {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            Vec::new()
        }
    }
}

/// Names that are held in a group.
#[derive(Debug, Default)]
struct Taken {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

/// A name that another definition holds.
#[derive(Debug)]
struct Conflict {
    reason: &'static str,
    message: String,
}

/// The accepted names after looking at the wanted ones, and the last conflict, if there is one.
/// A name once accepted stays so.
fn judge(wanted: &Value, accepted: Value, taken: &Taken) -> (Value, Option<Conflict>) {
    let mut names = match accepted {
        Value::Object(names) => names,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    };
    let mut conflict = None;
    for (field, reason, used) in [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("shortNames", "ShortNamesConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
    ] {
        if names.get(field) == wanted.get(field) {
            continue;
        }
        if let Some(held) = texts(Some(wanted), field).into_iter().find(|name| used.contains(name))
        {
            conflict = Some(Conflict { reason, message: format!("{held:?} is already in use") });
        } else {
            take(&mut names, wanted, field);
        }
    }
    take(&mut names, wanted, "categories");
    (Value::Object(names), conflict)
}

fn take(names: &mut Map<String, Value>, wanted: &Value, field: &str) {
    match wanted.get(field) {
        Some(value) => names.insert(field.to_owned(), value.clone()),
        None => names.remove(field),
    };
}

fn names_accepted(conflict: Option<&Conflict>) -> Condition<'static> {
    let (reason, message) = match conflict {
        None => ("NoConflicts", "no conflicts found".to_owned()),
        Some(conflict) => (conflict.reason, conflict.message.clone()),
    };
    Condition { kind: "NamesAccepted", status: conflict.is_none(), reason, message }
}

fn established(accepted: bool) -> Condition<'static> {
    let (reason, message) = if accepted {
        ("InitialNamesAccepted", "the initial names have been accepted")
    } else {
        ("NotAccepted", "not all names are accepted")
    };
    Condition { kind: "Established", status: accepted, reason, message: message.to_owned() }
}

impl Controller for Definitions {
    type Key = String;

    fn plane(&self) -> &Plane {
        &self.plane
    }

    fn forget(&mut self) {
        self.terminating.clear();
    }

    fn note(&mut self, key: &Key, value: Option<&[u8]>, queue: &mut Queue<String>) {
        if key.group() != GROUP || key.resource() != PLURAL {
            let (group, plural) = (key.group(), key.resource());
            if self.terminating.contains(&(group.to_owned(), plural.to_owned())) {
                queue.push(format!("{plural}.{group}"));
            }
            return;
        }
        let definition: Value =
            value.and_then(|value| serde_json::from_slice(value).ok()).unwrap_or_default();
        let Some((plural, group)) = key.name().split_once('.') else { return };
        let served = (group.to_owned(), plural.to_owned());
        if value.is_some() && is_deleting(&definition) {
            self.terminating.insert(served);
        } else {
            self.terminating.remove(&served);
        }
        queue.push(key.name().to_owned());
        if value.is_none() {
            // Its names are free: others in the group may have waited for them.
            for other in self.all().iter().filter(|other| text(other, "/spec/group") == group) {
                queue.push(text(other, "/metadata/name").to_owned());
            }
        }
    }

    async fn act(&mut self, name: String) -> Outcome {
        let Some(definition) = self.plane.object(&Key::new(GROUP, PLURAL, "", &name)) else {
            return Outcome::Done;
        };
        let held = holds(&definition, "/metadata/finalizers", FINALIZER);
        match (is_deleting(&definition), held) {
            (true, true) => self.dissolve(definition).await,
            (true, false) => Outcome::Done,
            (false, _) => self.accept(definition).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_names_are_accepted_and_held_ones_are_named() {
        let wanted = json!({"plural": "gadgets", "singular": "widget", "kind": "Widget",
            "listKind": "WidgetList"});
        let (names, conflict) = judge(&wanted, Value::Null, &Taken::default());
        assert_eq!((names, conflict.is_none()), (wanted.clone(), true));

        let mut taken = Taken::default();
        taken.resources.insert("widget".to_owned());
        taken.kinds.extend(["Widget".to_owned(), "WidgetList".to_owned()]);
        let before = json!({"plural": "", "kind": ""});
        let (names, conflict) = judge(&wanted, before, &taken);
        let conflict = conflict.unwrap();
        assert_eq!(names, json!({"plural": "gadgets", "kind": ""}));
        assert_eq!(conflict.reason, "ListKindConflict");
        assert_eq!(conflict.message, "\"WidgetList\" is already in use");
    }
}
