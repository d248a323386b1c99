//! A copy of each class and its credentials is kept while machines use it, so that their instances can be deleted
//! even if a user force-deletes both, finalizers or not. The copy is a Secret of the same namespace, so it is
//! readable only with the rights that reading the credentials takes.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use ostler_api::MachineClass;
use ostler_api::names::finalizer;
use ostler_lifecycle::class::{CopyChange, FinalizerChange, StoredCopy};
use ostler_lifecycle::last_known::{self, LastKnown};
use tracing::{debug, warn};

use super::{Classes, change};
use crate::client::{Deletion, WriteError};
use crate::stores::{MergedSecret, Stores, merge, plain};
use crate::watch::ObjectName;

/// The Secret that keeps a class.
pub(super) fn place(class: &ObjectName) -> ObjectName {
    ObjectName::new(&class.namespace, last_known::secret_name(&class.name))
}

/// The copy in the Secret.
pub(super) fn facts(secret: &Secret) -> StoredCopy {
    match secret.type_.as_deref() {
        Some(last_known::TYPE) => StoredCopy::Ours(plain(secret)),
        Some(_) | None => StoredCopy::Foreign,
    }
}

/// The class and its credentials; `None` while a part is missing.
pub(super) fn of(stores: &Stores, class: &MachineClass) -> Option<LastKnown> {
    let (secret_revision, secret) = match merge(stores, class) {
        MergedSecret::NotReferenced => (None, BTreeMap::new()),
        MergedSecret::Merged { revision, data, .. } => (Some(revision), data),
        MergedSecret::NamespaceDenied(_) | MergedSecret::Missing(_) => return None,
    };
    Some(LastKnown { class: class.clone(), secret_revision, secret, earlier: BTreeMap::new() })
}

impl Classes {
    /// Writes or deletes the Secret, on condition of the observed version.
    pub(super) async fn keep(
        &self,
        class: &ObjectName,
        keep: &CopyChange,
        here: Option<&Secret>,
    ) -> Result<(), WriteError> {
        let name = place(class);
        let api: Api<Secret> = self.writer.api(&name.namespace);
        match keep {
            CopyChange::Leave => {}
            CopyChange::Blocked => {
                warn_not_kept(class, "another secret has the name of the class copy");
            }
            CopyChange::TooLarge => {
                warn_not_kept(
                    class,
                    "the class with its secret is too large, or a key of that too long",
                );
            }
            CopyChange::Drop => {
                let uid = here.and_then(|here| here.metadata.uid.as_deref());
                if let Some(here) = here {
                    let (finalizer, hold) = (finalizer::SECRET, FinalizerChange::Remove);
                    change(&self.writer, here, &name, finalizer, hold).await?;
                }
                match self
                    .writer
                    .delete(&api, &name.name, Deletion { uid, ..Deletion::default() })
                    .await
                {
                    Err(WriteError::NotFound) => {}
                    // A conflict means another secret of that name, or a webhook that refuses: the next pass sees
                    // which.
                    other => other?,
                }
            }
            CopyChange::Write(data) => {
                let secret = secret(&name, data, here);
                match here {
                    Some(_) => self.writer.replace(&api, &name.name, &secret).await?,
                    None => self.writer.create(&api, &secret).await?,
                };
                debug!(secret = %name, "kept a copy of the class");
            }
        }
        Ok(())
    }
}

fn warn_not_kept(class: &ObjectName, why: &str) {
    warn!(%class, secret = %place(class), "no copy of the class is kept: {why}");
}

fn secret(name: &ObjectName, data: &BTreeMap<String, Vec<u8>>, here: Option<&Secret>) -> Secret {
    let metadata = ObjectMeta {
        name: Some(name.name.clone()),
        namespace: Some(name.namespace.clone()),
        resource_version: here.and_then(|here| here.metadata.resource_version.clone()),
        finalizers: match here {
            Some(here) => here.metadata.finalizers.clone(),
            // An owner in deletion with its namespace still needs the secret.
            None => Some(vec![finalizer::SECRET.to_owned()]),
        },
        ..ObjectMeta::default()
    };
    let data = data.iter().map(|(key, value)| (key.clone(), ByteString(value.clone()))).collect();
    Secret {
        metadata,
        type_: Some(last_known::TYPE.to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}
