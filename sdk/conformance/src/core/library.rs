//! The classes and secrets that the suite serves, and who asked for them.

use std::collections::{BTreeMap, HashMap};

use ostler_proto::v1alpha1 as proto;
use proto::{GetMachineClassResponse, GetSecretResponse, MachineShape, ObjectRevision};
use sha2::Digest as _;

/// Calls that are remembered; no check makes a driver ask more often.
const CALLS: usize = 100_000;

/// The content of a class at one revision.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClassContent {
    pub(crate) provider_spec_json: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) shape: Option<MachineShape>,
}

/// Name to value.
pub(crate) type SecretData = BTreeMap<String, Vec<u8>>;

/// A call of the driver beside its stream.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) kind: CallKind,
    pub(crate) wanted: ObjectRevision,
}

/// The name of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallKind {
    Class,
    Secret { operation_id: String },
}

/// All classes by name.
#[derive(Debug, Default)]
pub(crate) struct Library {
    classes: HashMap<String, Published>,
    calls: Vec<Call>,
}

#[derive(Debug, Default)]
struct Published {
    /// Oldest first; the last is the newest.
    contents: Vec<(String, ClassContent)>,
    secret: Option<(String, SecretData)>,
}

impl Library {
    /// A class at a revision, the newest from now on.
    pub(crate) fn put_class(&mut self, name: &str, revision: &str, content: ClassContent) {
        let published = self.classes.entry(name.to_owned()).or_default();
        published.contents.push((revision.to_owned(), content));
    }

    /// The secret of a class from now on.
    pub(crate) fn put_secret(&mut self, name: &str, revision: &str, data: Option<SecretData>) {
        let published = self.classes.entry(name.to_owned()).or_default();
        published.secret = data.map(|data| (revision.to_owned(), data));
    }

    /// Forgets a revision of a class.
    pub(crate) fn withdraw(&mut self, name: &str, revision: &str) {
        if let Some(published) = self.classes.get_mut(name) {
            published.contents.retain(|(known, _)| known != revision);
        }
    }

    pub(crate) fn note(&mut self, kind: CallKind, wanted: ObjectRevision) {
        if self.calls.len() < CALLS {
            self.calls.push(Call { kind, wanted });
        }
    }

    /// Whether a class names a secret.
    pub(crate) fn has_secret(&self, name: &str) -> bool {
        self.classes.get(name).is_some_and(|published| published.secret.is_some())
    }

    pub(crate) fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// A class as the driver gets it.
    pub(super) fn class(
        &self,
        wanted: &ObjectRevision,
        provider: &str,
    ) -> Result<GetMachineClassResponse, Missing> {
        let published = self.classes.get(&wanted.name).ok_or(Missing::Name)?;
        let found = if wanted.revision.is_empty() {
            published.contents.last()
        } else {
            published.contents.iter().find(|(revision, _)| *revision == wanted.revision)
        };
        let (revision, content) = found.ok_or(Missing::Revision)?;
        let secret = published
            .secret
            .as_ref()
            .map(|(revision, _)| ObjectRevision { revision: revision.clone(), ..wanted.clone() });
        Ok(GetMachineClassResponse {
            r#ref: Some(ObjectRevision { revision: revision.clone(), ..wanted.clone() }),
            provider: provider.to_owned(),
            format: String::new(),
            provider_spec_sha256: hex::encode(sha2::Sha256::digest(&content.provider_spec_json)),
            provider_spec_json: content.provider_spec_json.clone(),
            secret,
            labels: content.labels.clone().into_iter().collect(),
            shape: content.shape.clone(),
        })
    }

    /// The secret of a class as the driver gets it.
    pub(super) fn secret(&self, wanted: &ObjectRevision) -> Result<GetSecretResponse, Missing> {
        let published = self.classes.get(&wanted.name).ok_or(Missing::Name)?;
        let (revision, data) = published.secret.as_ref().ok_or(Missing::Name)?;
        if !wanted.revision.is_empty() && wanted.revision != *revision {
            return Err(Missing::Revision);
        }
        Ok(GetSecretResponse {
            r#ref: Some(ObjectRevision { revision: revision.clone(), ..wanted.clone() }),
            data: data.clone().into_iter().collect(),
            cache_for: Some(prost_types::Duration { seconds: 300, nanos: 0 }),
        })
    }
}

/// Why there is nothing to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Name,
    Revision,
}
