//! Lookups for drivers, and about drivers: classes, secrets, and recorded operations.

use ostler_api::ProviderName;
use ostler_api::Revision;
use ostler_api::Uid;
use ostler_api::operation::ClassReference;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::RecordedOperation;

/// A machine class at one revision.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClassContent {
    /// UID of the class.
    pub uid: Uid,
    /// Changes whenever anything else here but `secret_revision` does; compared for equality only.
    pub revision: Revision,
    /// `MachineClass.provider`, as written there.
    pub provider: ProviderName,
    /// API version of the provider spec; may be empty.
    pub format: String,
    /// The provider spec, as JSON text.
    pub provider_spec_json: String,
    /// Revision of the merged secret; `None` if the class names no secret.
    pub secret_revision: Option<Revision>,
    /// Labels of the class.
    pub labels: BTreeMap<String, String>,
    /// `MachineClass.nodeTemplate`.
    pub shape: Option<MachineShape>,
}

impl ClassContent {
    /// Revision of the merged secret, empty if there is none.
    pub(crate) fn secret(&self) -> Revision {
        self.secret_revision.clone().unwrap_or_default()
    }
}

/// The shape of a class's instance for the scheduler: `MachineClass.nodeTemplate`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineShape {
    /// Resource name to Kubernetes quantity.
    pub capacity: BTreeMap<String, String>,
    /// Name of the instance type.
    pub instance_type: String,
    /// Region.
    pub region: String,
    /// Zone.
    pub zone: String,
    /// As in the label `kubernetes.io/arch`.
    pub architecture: String,
}

/// The merged secret of a class: `secretRef`, then `credentialsSecretRef`, without `userData`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SecretContent {
    /// Made of the resource versions of both secrets; compared for equality only.
    pub revision: Revision,
    /// Keys and decoded values.
    pub data: BTreeMap<String, Vec<u8>>,
}

impl fmt::Debug for SecretContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretContent")
            .field("revision", &self.revision)
            .field("data", &format_args!("<{} keys>", self.data.len()))
            .finish()
    }
}

/// Why a class or a secret cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClassError {
    /// No class has this name.
    #[error("not found")]
    NotFound,
    /// The namespace is not served by this core.
    #[error("the namespace is not served by this core")]
    NamespaceDenied,
    /// The class cannot be read for now.
    #[error("cannot be read for now: {0}")]
    Unavailable(String),
}

/// Classes and their secrets.
///
/// The drivers' name for the merged secret of a class is the namespace and name of the class
/// itself, so that a driver can ask for nothing else.
#[tonic::async_trait]
pub trait ClassSource: Send + Sync + 'static {
    /// The class as it is now, answered from memory. Called when an operation is submitted, to
    /// keep the revision that the operation refers to.
    fn class(&self, namespace: &str, name: &str) -> Result<ClassContent, ClassError>;

    /// The class at this revision, if the current one differs and the copy is kept. Answered from memory.
    fn earlier(&self, _class: &ClassReference) -> Option<ClassContent> {
        None
    }

    /// The current, merged content of the secrets named by the class at this revision; if the revision is not kept, or
    /// empty, of the currently named secrets. [`ClassError::NotFound`] if the class is missing, names no secret, or
    /// names a missing secret.
    async fn secret(&self, class: &ClassReference) -> Result<SecretContent, ClassError>;

    /// Everything confidential that drivers get for a class: the values of its secret, and user data. Drivers' messages
    /// are scrubbed of these values. Answered from memory.
    fn confidential(&self, _namespace: &str, _name: &str) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// The providers that classes name, as written there. Answered from memory.
    fn providers(&self) -> BTreeSet<ProviderName> {
        BTreeSet::new()
    }

    /// The recorded mutation of the target with this UID: without a record, no operation held by a driver is taken
    /// over. Answered from memory, which must have every record made before this core began to lead.
    fn recorded(&self, _target_uid: &str) -> Option<RecordedOperation> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_of_a_secret_shows_neither_keys_nor_values() {
        let data = BTreeMap::from([("canary-key".to_owned(), b"canary-value".to_vec())]);
        let shown = format!("{:?}", SecretContent { revision: "1.2".into(), data });
        assert!(shown.contains("<1 keys>") && !shown.contains("canary"), "{shown}");
    }
}
