//! Classes and secrets that are in use are held by a finalizer: without them, nobody could delete
//! what was made with them.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::Secret;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use ostler_api::MachineClass;
use ostler_api::names::finalizer;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::{debug, warn};

use crate::queue::Outcome;
use crate::stores::Stores;
use crate::watch::{Mirror, Mirrored, ObjectName};
use crate::writes::{WriteError, Writer};

/// Holds classes that machines use, and secrets that classes name.
pub(crate) struct Holder {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
}

impl Holder {
    pub(crate) async fn reconcile_class(&self, name: ObjectName) -> Outcome {
        let used = !self.stores.users(&name).is_empty();
        self.hold::<MachineClass>(&self.stores.classes, &name, finalizer::MACHINE, used).await
    }

    pub(crate) async fn reconcile_secret(&self, name: ObjectName) -> Outcome {
        let used = !self.stores.namers(&name).is_empty();
        self.hold::<Secret>(&self.stores.secrets, &name, finalizer::SECRET, used).await
    }

    async fn hold<K>(
        &self,
        mirror: &Mirror<K>,
        name: &ObjectName,
        finalizer: &str,
        used: bool,
    ) -> Outcome
    where
        K: Mirrored + Debug + DeserializeOwned + Resource<Scope = NamespaceResourceScope>,
    {
        let Some(object) = mirror.get(name) else { return Outcome::Done };
        let Some(patch) = change(object.as_ref(), finalizer, used) else { return Outcome::Done };
        let api = self.writer.api(&name.namespace);
        // Not absorbed: the event that follows wakes those who wait for the hold.
        match self.writer.patch::<K>(&api, &name.name, &patch).await {
            Ok(_) => {
                debug!(kind = K::KIND, object = %name, held = used, "finalizer changed");
                Outcome::Done
            }
            Err(WriteError::NotFound) => Outcome::Done,
            Err(WriteError::Conflict) => Outcome::Failed,
            Err(failure) => {
                warn!(kind = K::KIND, object = %name, error = %failure, "cannot change the finalizer");
                Outcome::Failed
            }
        }
    }
}

/// The patch that puts `finalizer` on `object` or takes it away; none if it is as wanted, or if
/// the object is being deleted and cannot get one any more.
fn change<K: Resource>(object: &K, finalizer: &str, wanted: bool) -> Option<Value> {
    let meta = object.meta();
    let mut all = meta.finalizers.clone().unwrap_or_default();
    let held = all.iter().any(|name| name == finalizer);
    match (held, wanted) {
        (false, true) if meta.deletion_timestamp.is_none() => all.push(finalizer.to_owned()),
        (true, false) => all.retain(|name| name != finalizer),
        (false, true | false) | (true, true) => return None,
    }
    Some(json!({
        "metadata": { "resourceVersion": meta.resource_version, "finalizers": all }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(finalizers: &[&str], deleting: bool) -> Secret {
        let deleted_at = deleting.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({ "metadata": {
            "name": "s", "namespace": "default", "resourceVersion": "7",
            "finalizers": finalizers, "deletionTimestamp": deleted_at
        }}))
        .unwrap()
    }

    fn finalizers(object: &Secret, wanted: bool) -> Option<Value> {
        change(object, "ours", wanted).map(|mut patch| {
            assert_eq!(patch["metadata"]["resourceVersion"], "7");
            patch["metadata"]["finalizers"].take()
        })
    }

    #[test]
    fn what_is_in_use_is_held_and_what_is_not_is_let_go() {
        assert_eq!(finalizers(&secret(&["other"], false), true), Some(json!(["other", "ours"])));
        assert_eq!(finalizers(&secret(&["ours", "other"], true), false), Some(json!(["other"])));
    }

    #[test]
    fn nothing_is_written_when_it_is_as_wanted_or_too_late() {
        assert_eq!(finalizers(&secret(&["ours"], false), true), None);
        assert_eq!(finalizers(&secret(&[], false), false), None);
        assert_eq!(finalizers(&secret(&["other"], true), true), None);
    }
}
