//! Puts a finalizer on the secrets that classes name, and says of one whose deletion waits for them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use ostler_api::names::finalizer;
use ostler_lifecycle::class::{SecretPlan, plan_secret, users};

use super::told::Told;
use super::{UNSURE, change};
use crate::events::Recorder;
use crate::queue::Outcome;
use crate::reconcile::{Kind, PassError, Passed};
use crate::stores::Stores;
use crate::watch::ObjectName;
use crate::writes::{WriteError, Writer};

/// Puts a finalizer on the secrets that classes name.
pub(crate) struct Secrets {
    writer: Writer,
    stores: Stores,
    told: Told,
}

/// The event about a secret whose deletion waits.
const IN_USE: &str = "SecretInUse";

/// A secret, and the classes that name it.
pub(crate) struct Observed {
    name: ObjectName,
    secret: Arc<Secret>,
    namers: Vec<ObjectName>,
}

impl Secrets {
    pub(crate) fn new(writer: Writer, stores: Stores, recorder: Recorder) -> Self {
        Self { writer, stores, told: Told::new(recorder) }
    }
}

impl Kind for Secrets {
    const NAME: &'static str = "Secret";
    type Key = ObjectName;
    type Snapshot = Observed;
    type Plan = SecretPlan;
    type Done = Result<(), WriteError>;

    async fn observe(&self, name: &ObjectName) -> Result<Option<Observed>, PassError> {
        let Some(secret) = self.stores.secrets.get(name) else {
            self.told.over(name, IN_USE);
            return Ok(None);
        };
        let namers = self.stores.namers(name);
        // A class that cannot be read may name it.
        if namers.is_empty() && self.stores.classes.has_unreadable() {
            return Err(PassError::NotYet(UNSURE));
        }
        Ok(Some(Observed { name: name.clone(), secret, namers }))
    }

    fn plan(observed: &Observed) -> SecretPlan {
        plan_secret(&observed.secret, !observed.namers.is_empty())
    }

    fn describe(plan: &SecretPlan) -> String {
        format!("{:?}", plan.hold)
    }

    async fn execute(
        &self,
        observed: &Observed,
        plan: &SecretPlan,
    ) -> Result<Self::Done, PassError> {
        let Observed { name, secret, .. } = observed;
        Ok(change(&self.writer, secret.as_ref(), name, finalizer::SECRET, plan.hold).await)
    }

    async fn record(
        &self,
        observed: Observed,
        plan: SecretPlan,
        done: Self::Done,
    ) -> Result<Passed, PassError> {
        let Observed { name, secret, namers } = observed;
        let awaited = plan.awaited.then(|| secret.metadata.uid.clone().unwrap_or_default());
        self.told.report((&name, Some(secret.as_ref())), IN_USE, awaited, |_| {
            let classes = namers.into_iter().map(|it| it.name).collect();
            format!("its deletion waits for what names it: {}", users(&[("machineclass", classes)]))
        });
        Ok(Passed::Settled(if done.is_ok() { Outcome::Done } else { Outcome::Failed }))
    }
}
