//! The combined secret of a class: `secretRef`, then `credentialsSecretRef`, later keys win.

use ostler_api::Revision;
use std::collections::BTreeMap;

use ostler_api::MachineClass;
use ostler_api::names::bootstrap::USER_DATA_KEY;

use super::Stores;
use crate::watch::ObjectName;

/// The result of merging.
pub(crate) enum MergedSecret {
    /// The class names no secret.
    NotReferenced,
    /// The secrets in a namespace that is not served.
    NamespaceDenied(Vec<ObjectName>),
    /// The named secrets do not exist.
    Missing(Vec<ObjectName>),
    /// The secret.
    Merged {
        /// Combines the resource versions of both.
        revision: Revision,
        /// Without the user data.
        data: BTreeMap<String, Vec<u8>>,
        /// The user data, which is passed separately.
        user_data: Option<Vec<u8>>,
    },
}

/// Merges the secrets of `class`.
pub(crate) fn merge(stores: &Stores, class: &MachineClass) -> MergedSecret {
    let refs = class.secret_refs().into_iter();
    let refs: Vec<ObjectName> = refs.map(|(space, name)| ObjectName::new(space, name)).collect();
    if refs.is_empty() {
        return MergedSecret::NotReferenced;
    }
    let served = class.metadata.namespace.clone().unwrap_or_default();
    let denied: Vec<_> = refs.iter().filter(|name| name.namespace != served).cloned().collect();
    if !denied.is_empty() {
        return MergedSecret::NamespaceDenied(denied);
    }
    let (mut data, mut revisions, mut missing) = (BTreeMap::new(), Vec::new(), Vec::new());
    for name in refs {
        let Some(secret) = stores.secrets.get(&name) else {
            missing.push(name);
            continue;
        };
        revisions.push(secret.metadata.resource_version.clone().unwrap_or_default());
        let pairs = secret.data.iter().flatten();
        data.extend(pairs.map(|(key, value)| (key.clone(), value.0.clone())));
    }
    if !missing.is_empty() {
        return MergedSecret::Missing(missing);
    }
    let user_data = data.remove(USER_DATA_KEY);
    MergedSecret::Merged { revision: revisions.join(".").into(), data, user_data }
}
