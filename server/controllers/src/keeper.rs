//! Keeps what a class says and its credentials while machines use it, so that they can be deleted
//! even if somebody tears both away, finalizers or not. It is a Secret in the same namespace: whoever
//! may read the credentials may read it too, and nobody else.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use ostler_api::MachineClass;
use ostler_lifecycle::last_known::{self, LastKnown, MOST_BYTES};
use tracing::{debug, warn};

use crate::holder::Holder;
use crate::stores::{MergedSecret, merge, plain};
use crate::watch::ObjectName;
use crate::writes::{Deletion, WriteError};

impl Holder {
    /// Writes down what is to be kept of a class that machines use, and drops it once none does.
    /// Of a class that is gone, or lacks a secret, the last state stays.
    pub(crate) async fn keep_last_known(
        &self,
        class: &ObjectName,
        live: Option<&MachineClass>,
        used: bool,
    ) -> Result<(), WriteError> {
        let name = ObjectName::new(&class.namespace, last_known::secret_name(&class.name));
        let here = self.stores.secrets.get(&name);
        if here.as_ref().is_some_and(|secret| secret.type_.as_deref() != Some(last_known::TYPE)) {
            warn!(secret = %name, "is in the way of what is to be kept of class {class}");
            return Ok(());
        }
        match (used, live, here.as_deref()) {
            (false, _, Some(secret)) => self.drop_kept(&name, secret).await,
            (true, Some(live), here) => self.write_kept(&name, live, here).await,
            (false, _, None) | (true, None, _) => Ok(()),
        }
    }

    async fn drop_kept(&self, name: &ObjectName, secret: &Secret) -> Result<(), WriteError> {
        let api: Api<Secret> = self.writer.api(&name.namespace);
        let only = Deletion { uid: secret.metadata.uid.as_deref(), at_once: false };
        match self.writer.delete(&api, &name.name, only).await {
            Err(WriteError::NotFound) => Ok(()),
            // A conflict may be another secret, or somebody who refuses: the next look says which.
            other => other,
        }
    }

    async fn write_kept(
        &self,
        name: &ObjectName,
        class: &MachineClass,
        here: Option<&Secret>,
    ) -> Result<(), WriteError> {
        let Some(known) = self.known(class) else { return Ok(()) };
        let Some(data) = known.encode() else {
            warn!(secret = %name, "with its secret a class has more than {MOST_BYTES} bytes, so it is not kept");
            return Ok(());
        };
        if here.is_some_and(|here| plain(here) == data) {
            return Ok(());
        }
        let api: Api<Secret> = self.writer.api(&name.namespace);
        let secret = secret(name, data, here);
        match here {
            Some(_) => self.writer.replace(&api, &name.name, &secret).await?,
            None => self.writer.create(&api, &secret).await?,
        };
        debug!(secret = %name, "kept what a class says");
        Ok(())
    }

    /// The class and its credentials; `None` while a part is missing.
    fn known(&self, class: &MachineClass) -> Option<LastKnown> {
        let (secret_revision, secret) = match merge(&self.stores, class) {
            MergedSecret::NotReferenced => (None, BTreeMap::new()),
            MergedSecret::Merged { revision, data, .. } => (Some(revision), data),
            MergedSecret::NamespaceDenied(_) | MergedSecret::Missing(_) => return None,
        };
        Some(LastKnown { class: class.clone(), secret_revision, secret })
    }
}

fn secret(name: &ObjectName, data: BTreeMap<String, Vec<u8>>, here: Option<&Secret>) -> Secret {
    let metadata = ObjectMeta {
        name: Some(name.name.clone()),
        namespace: Some(name.namespace.clone()),
        resource_version: here.and_then(|here| here.metadata.resource_version.clone()),
        ..ObjectMeta::default()
    };
    let data = data.into_iter().map(|(key, value)| (key, ByteString(value))).collect();
    Secret {
        metadata,
        type_: Some(last_known::TYPE.to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}
