//! Puts a finalizer on the secrets that classes name.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use ostler_api::names::finalizer;
use ostler_lifecycle::class::{Hold, hold_secret};

use super::{UNSURE, change};
use crate::queue::Outcome;
use crate::reconcile::{Kind, PassError, Passed};
use crate::stores::Stores;
use crate::watch::ObjectName;
use crate::writes::{WriteError, Writer};

/// Puts a finalizer on the secrets that classes name.
pub(crate) struct Secrets {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
}

/// A secret, and whether a class names it.
pub(crate) struct Observed {
    name: ObjectName,
    secret: Arc<Secret>,
    used: bool,
}

impl Kind for Secrets {
    const NAME: &'static str = "Secret";
    type Key = ObjectName;
    type Snapshot = Observed;
    type Plan = Hold;
    type Done = Result<(), WriteError>;

    async fn observe(&self, name: &ObjectName) -> Result<Option<Observed>, PassError> {
        let Some(secret) = self.stores.secrets.get(name) else { return Ok(None) };
        let used = !self.stores.namers(name).is_empty();
        // A class that cannot be read may name it.
        if !used && self.stores.classes.has_unreadable() {
            return Err(PassError::NotYet(UNSURE));
        }
        Ok(Some(Observed { name: name.clone(), secret, used }))
    }

    fn plan(observed: &Observed) -> Hold {
        hold_secret(&observed.secret, observed.used)
    }

    fn describe(hold: &Hold) -> String {
        format!("{hold:?}")
    }

    async fn execute(&self, observed: &Observed, hold: &Hold) -> Result<Self::Done, PassError> {
        let Observed { name, secret, .. } = observed;
        Ok(change(&self.writer, secret.as_ref(), name, finalizer::SECRET, *hold).await)
    }

    async fn record(&self, _: Observed, _: Hold, done: Self::Done) -> Result<Passed, PassError> {
        Ok(Passed::Settled(if done.is_ok() { Outcome::Done } else { Outcome::Failed }))
    }
}
