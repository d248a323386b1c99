//! Copies of classes, kept in Secrets.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use ostler_api::{MachineClass, Revision};
use ostler_lifecycle::last_known::{self, LastKnown};
use ostler_lifecycle::operation::UserData;
use ostler_lifecycle::snapshot::{ClassFacts, SecretFacts, SecretView};

use super::{MergedSecret, Stores, merge};
use crate::watch::ObjectName;

/// The class that a Secret keeps; `None`: it is another kind of Secret.
pub(crate) fn kept_in(secret: &Secret) -> Option<LastKnown> {
    if secret.type_.as_deref() != Some(last_known::TYPE) {
        return None;
    }
    LastKnown::decode(&plain(secret))
}

/// The data of a Secret.
pub(crate) fn plain(secret: &Secret) -> BTreeMap<String, Vec<u8>> {
    let pairs = secret.data.iter().flatten();
    pairs.map(|(key, value)| (key.clone(), value.0.clone())).collect()
}

impl Stores {
    /// The kept copy of a class.
    pub(crate) fn last_known(&self, class: &ObjectName) -> Option<LastKnown> {
        let name = ObjectName::new(&class.namespace, last_known::secret_name(&class.name));
        let kept = kept_in(self.secrets.get(&name)?.as_ref())?;
        (ObjectName::of(&kept.class) == *class).then_some(kept)
    }

    /// A class, or its kept copy. Decisions use the copy only to delete objects created with the class.
    pub(crate) fn class_or_last_known(&self, name: &ObjectName) -> Option<Arc<MachineClass>> {
        let live = self.classes.get(name);
        live.or_else(|| self.last_known(name).map(|kept| Arc::new(kept.class)))
    }

    /// The former versions of a class by revision, as far as kept.
    pub(crate) fn earlier(&self, name: &ObjectName) -> BTreeMap<Revision, MachineClass> {
        let secret = self
            .secrets
            .get(&ObjectName::new(&name.namespace, last_known::secret_name(&name.name)));
        let ours = secret.filter(|it| it.type_.as_deref() == Some(last_known::TYPE));
        let mut earlier = ours.map_or_else(BTreeMap::new, |it| {
            let data = it.data.iter().flatten();
            last_known::earlier(data.map(|(key, value)| (key.as_str(), value.0.as_slice())))
        });
        earlier.retain(|_, class| ObjectName::of(class) == *name);
        earlier
    }

    /// The class at this revision, if the current one differs and the copy is kept. Nothing if another provider has the
    /// class now: the former driver must not get its secrets.
    pub(crate) fn class_before(
        &self,
        name: &ObjectName,
        revision: &Revision,
    ) -> Option<MachineClass> {
        let now = self.class_or_last_known(name)?;
        let is_of = |class: &MachineClass| ClassFacts::of(class).revision == *revision;
        if is_of(&now) {
            return None;
        }
        // The copy may be older than the class.
        let last = || self.last_known(name).map(|kept| kept.class).filter(is_of);
        let class = self.earlier(name).remove(revision).or_else(last)?;
        let same_provider = now.provider() == class.provider();
        same_provider.then(|| MachineClass { metadata: now.metadata.clone(), ..class })
    }

    /// The facts about a class's secrets for decisions; `None`: no class.
    pub(crate) fn secret_view(&self, class: Option<&MachineClass>) -> SecretView {
        let Some(class) = class else { return SecretView::Unknown };
        let texts = |names: Vec<ObjectName>| names.iter().map(ToString::to_string).collect();
        match merge(self, class) {
            MergedSecret::NotReferenced => SecretView::NotReferenced,
            MergedSecret::NamespaceDenied(names) => SecretView::NamespaceDenied(texts(names)),
            MergedSecret::Missing(names) => match self.secret_or_last_known(class) {
                MergedSecret::Merged { revision, .. } => {
                    let facts = SecretFacts { revision, user_data: None };
                    SecretView::LastKnown(facts, texts(names))
                }
                MergedSecret::NotReferenced
                | MergedSecret::NamespaceDenied(_)
                | MergedSecret::Missing(_) => SecretView::Missing(texts(names)),
            },
            MergedSecret::Merged { revision, user_data, .. } => {
                SecretView::Known(SecretFacts { revision, user_data: user_data.map(UserData::new) })
            }
        }
    }

    /// The merged secret of a class or, if a part is missing, the kept copy.
    pub(crate) fn secret_or_last_known(&self, class: &MachineClass) -> MergedSecret {
        let merged = merge(self, class);
        if !matches!(merged, MergedSecret::Missing(_)) {
            return merged;
        }
        let kept = self.last_known(&ObjectName::of(class));
        let kept = kept.filter(|kept| kept.class.secret_refs() == class.secret_refs());
        match kept.and_then(|kept| Some((kept.secret_revision?, kept.secret))) {
            Some((revision, data)) => MergedSecret::Merged { revision, data, user_data: None },
            None => merged,
        }
    }
}
