//! The basis of a pool's requests: the parts that a user corrects after a refusal.

use ostler_api::{Revision, SpecDigest, machine::Retry, machine_pool::PoolIntent};

use super::{ClassFacts, SecretView, Snapshot};
use crate::digest;

/// The basis of a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Basis {
    pub(super) class: Option<Revision>,
    /// All but the class: a digest, and the size after a dash. `None`: the secrets were not read yet.
    pub(super) rest: Option<Revision>,
}

impl Basis {
    pub(super) fn of(
        snap: &Snapshot,
        class: Option<&ClassFacts>,
        user_data: Option<&SpecDigest>,
        model: &SpecDigest,
    ) -> Self {
        let rest = (!matches!(snap.secret, SecretView::Unknown)).then(|| {
            let secret = snap.secret.revision().cloned().unwrap_or_default();
            let digest = digest::of_text(&format!("{secret} {user_data:?} {model}"));
            format!("{digest}-{}", snap.pool.replicas()).into()
        });
        Self { class: class.map(|class| class.revision.clone()), rest }
    }

    /// The basis as sent, which may be older than the wanted basis. An older core, or a core with an older CRD, did not
    /// record it.
    pub(super) fn sent_with(&self, intent: &PoolIntent) -> Self {
        let class = intent.intent.class_revision.as_ref().or(self.class.as_ref());
        let rest = intent.basis.as_ref().or(self.rest.as_ref());
        Self { class: class.cloned(), rest: rest.cloned() }
    }

    /// Whether the failed basis differs from the current one. A refusal recorded by an older core does not tell its
    /// basis.
    pub(super) fn differs(&self, retry: &Retry) -> bool {
        let is_refused = retry.not_before.is_none();
        // The size counts where nothing but a change ends the wait: autoscalers change it all the time.
        let counts = |rest: &Revision| match rest.as_str().split_once('-') {
            Some((digest, _)) if !is_refused => digest.to_owned(),
            _ => rest.to_string(),
        };
        let failed = retry.secret_revision.as_ref().map(counts);
        let other = self.rest.as_ref().is_some_and(|rest| failed != Some(counts(rest)));
        retry.class_revision.is_some() && retry.class_revision != self.class
            || other && (is_refused || failed.is_some())
    }
}
