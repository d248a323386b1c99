//! Classes and secrets that are in use are held by a finalizer: without them, nobody could delete
//! what was made with them.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Resource;
use kube::core::NamespaceResourceScope;
use ostler_api::MachineClass;
use ostler_api::names::finalizer;
use ostler_lifecycle::class::{Hold, hold_class, hold_secret, uses_class};
use ostler_lifecycle::class_rules;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::{debug, warn};

use crate::events::{Occurrence, Recorder, Severity};
use crate::hot_update::Reviewer;
use crate::queue::Outcome;
use crate::stores::Stores;
use crate::watch::{Mirrored, ObjectName};
use crate::writes::{WriteError, Writer};

/// How soon to look again whether something is used, while what may use it cannot be read.
const UNSURE: Duration = Duration::from_mins(1);

/// Holds classes that machines use, and secrets that classes name.
pub(crate) struct Holder {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    reviewer: Arc<Reviewer>,
    recorder: Recorder,
    /// Rules that people were told of, by class; bounded by the classes.
    told: Mutex<HashMap<ObjectName, String>>,
}

impl Holder {
    pub(crate) fn new(
        writer: Writer,
        stores: Stores,
        reviewer: Arc<Reviewer>,
        recorder: Recorder,
    ) -> Self {
        Self { writer, stores, reviewer, recorder, told: Mutex::default() }
    }

    pub(crate) async fn reconcile_class(&self, name: ObjectName) -> Outcome {
        let class = self.stores.classes.get(&name);
        let users = self.stores.users(&name);
        let used = users.iter().filter_map(|user| self.stores.machines.get(user));
        let used = used.into_iter().any(|one| uses_class(&one, &name.namespace, &name.name));
        // Any class may be that of a machine that cannot be read: nothing is let go of meanwhile.
        if !used && self.stores.machines.has_unreadable() {
            return Outcome::Again(UNSURE);
        }
        self.tell_broken_rules(&name, class.as_deref());
        let held = if let Some(class) = &class {
            self.reviewer.check(class);
            let hold = hold_class(class, used);
            let changed = self.change(class.as_ref(), &name, finalizer::MACHINE, hold).await;
            let failure = changed.as_ref().err().filter(|it| !matches!(it, WriteError::Conflict));
            self.stores.unheld.note(&name, failure.map(ToString::to_string));
            outcome(&changed)
        } else {
            self.stores.unheld.note(&name, None);
            Outcome::Done
        };
        match self.keep_last_known(&name, class.as_deref(), used).await {
            Ok(()) => held,
            Err(failure) => {
                warn!(class = %name, error = %failure, "cannot keep what the class says");
                Outcome::Failed
            }
        }
    }

    /// Says which rules a class breaks: once for each content of it.
    fn tell_broken_rules(&self, name: &ObjectName, class: Option<&MachineClass>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let broken = class.map(|class| class_rules::broken(class).join("; "));
        let Some((class, broken)) = class.zip(broken).filter(|(_, text)| !text.is_empty()) else {
            told.remove(name);
            return;
        };
        if told.get(name) == Some(&broken) {
            return;
        }
        told.insert(name.clone(), broken.clone());
        self.recorder.record(Occurrence {
            regarding: class.object_ref(&()),
            severity: Severity::Warning,
            reason: "ClassInvalid",
            action: "Check",
            note: broken,
        });
    }

    pub(crate) async fn reconcile_secret(&self, name: ObjectName) -> Outcome {
        let Some(secret) = self.stores.secrets.get(&name) else { return Outcome::Done };
        let used = !self.stores.namers(&name).is_empty();
        if !used && self.stores.classes.has_unreadable() {
            return Outcome::Again(UNSURE);
        }
        let hold = hold_secret(&secret, used);
        outcome(&self.change(secret.as_ref(), &name, finalizer::SECRET, hold).await)
    }

    async fn change<K>(
        &self,
        object: &K,
        name: &ObjectName,
        finalizer: &str,
        hold: Hold,
    ) -> Result<(), WriteError>
    where
        K: Mirrored + Debug + DeserializeOwned + Resource<Scope = NamespaceResourceScope>,
    {
        let Some(patch) = patch(object, finalizer, hold) else { return Ok(()) };
        let api = self.writer.api(&name.namespace);
        // Not absorbed: the event that follows wakes those who wait for the hold.
        match self.writer.patch::<K>(&api, &name.name, &patch).await {
            Ok(_) => {
                debug!(kind = K::KIND, object = %name, ?hold, "finalizer changed");
                Ok(())
            }
            Err(WriteError::NotFound) => Ok(()),
            Err(WriteError::Conflict) => Err(WriteError::Conflict),
            Err(failure) => {
                warn!(kind = K::KIND, object = %name, error = %failure, "cannot change the finalizer");
                Err(failure)
            }
        }
    }
}

fn outcome(changed: &Result<(), WriteError>) -> Outcome {
    if changed.is_ok() { Outcome::Done } else { Outcome::Failed }
}

/// The patch that puts `finalizer` on `object` or takes it away. It fails if the object is of
/// another version, so finalizers of others are never overwritten.
fn patch<K: Resource>(object: &K, finalizer: &str, hold: Hold) -> Option<Value> {
    let meta = object.meta();
    let mut all = meta.finalizers.clone().unwrap_or_default();
    match hold {
        Hold::Keep => return None,
        Hold::Add => all.push(finalizer.to_owned()),
        Hold::Remove => all.retain(|name| name != finalizer),
    }
    Some(json!({
        "metadata": { "resourceVersion": meta.resource_version, "finalizers": all }
    }))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;

    use super::*;

    #[test]
    fn finalizers_of_others_stay_and_nothing_is_written_when_all_is_well() {
        let secret = |finalizers: &[&str]| -> Secret {
            serde_json::from_value(json!({ "metadata": {
                "name": "s", "namespace": "default", "resourceVersion": "7",
                "finalizers": finalizers
            }}))
            .unwrap()
        };
        let expected = |finalizers: &[&str]| {
            Some(json!({ "metadata": { "resourceVersion": "7", "finalizers": finalizers } }))
        };
        let added = patch(&secret(&["other"]), "ours", Hold::Add);
        assert_eq!(added, expected(&["other", "ours"]));
        let removed = patch(&secret(&["ours", "other"]), "ours", Hold::Remove);
        assert_eq!(removed, expected(&["other"]));
        assert_eq!(patch(&secret(&["ours"]), "ours", Hold::Keep), None);
    }
}
