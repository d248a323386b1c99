//! What a request of a pool is made from: what a user corrects after a refusal.

use ostler_api::{Revision, SpecDigest, machine::Retry, machine_pool::PoolIntent};

use super::{ClassFacts, SecretView, Snapshot};
use crate::digest;

/// What a request is made from.
#[derive(Debug, Clone, Default)]
pub(super) struct Basis {
    pub(super) class: Option<Revision>,
    /// Of its secrets; `None`: they were not read yet.
    pub(super) secret: Option<Revision>,
    pub(super) user_data: Option<SpecDigest>,
    pub(super) model: SpecDigest,
    pub(super) replicas: i32,
}

impl Basis {
    pub(super) fn of(
        snap: &Snapshot,
        class: Option<&ClassFacts>,
        user_data: Option<SpecDigest>,
        model: SpecDigest,
    ) -> Self {
        let class = class.map(|class| class.revision.clone());
        let secret = (!matches!(snap.secret, SecretView::Unknown))
            .then(|| snap.secret.revision().cloned().unwrap_or_default());
        Self { class, secret, user_data, model, replicas: snap.pool.replicas() }
    }

    /// What was sent may be older than what is wanted now, and the driver did not see that.
    pub(super) fn sent_with(mut self, intent: Option<&PoolIntent>) -> Self {
        let Some(intent) = intent else { return self };
        self.class = intent.intent.class_revision.clone().or(self.class);
        self.user_data = intent.user_data_hash.clone().or(self.user_data);
        self.model = intent.model_hash.clone().unwrap_or(self.model);
        self
    }

    /// All but the class. The size counts where nothing but a change ends the wait: autoscalers change it all the time.
    pub(super) fn rest(&self, is_refused: bool) -> Option<Revision> {
        let size = is_refused.then_some(self.replicas);
        let (secret, data) = (self.secret.as_ref()?, &self.user_data);
        Some(digest::of_text(&format!("{secret} {data:?} {} {size:?}", self.model)).into())
    }

    /// Whether something else failed than what is wanted now. A refusal that an older core wrote down does not say what
    /// it was made from.
    pub(super) fn differs(&self, retry: &Retry) -> bool {
        let is_refused = retry.not_before.is_none();
        let rest = self.rest(is_refused);
        let other = rest.is_some() && retry.secret_revision != rest;
        retry.class_revision.is_some() && retry.class_revision != self.class
            || other && (is_refused || retry.secret_revision.is_some())
    }
}
