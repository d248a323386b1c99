//! Puts a finalizer on the secrets of classes, and reports a secret whose deletion waits for classes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use ostler_api::names::finalizer;
use ostler_lifecycle::class::{SecretPlan, plan_secret, users};

use super::told::Told;
use super::{UNSURE, change};
use crate::client::{WriteError, Writer};
use crate::events::Recorder;
use crate::kind::{Kind, PassError, Passed};
use crate::queue::Outcome;
use crate::stores::{MachineIndex, Stores, kept_in};
use crate::target::{Targets, cluster_by};
use crate::watch::ObjectName;
use ostler_lifecycle::plan::EventReason;

/// Puts a finalizer on the secrets that classes name.
pub(crate) struct Secrets {
    writer: Writer,
    stores: Stores,
    told: Told,
}

/// The event about a secret whose deletion waits.
const IN_USE: EventReason = EventReason::SecretInUse;

/// A secret and its users, by kind.
pub(crate) struct Observed {
    name: ObjectName,
    secret: Arc<Secret>,
    users: Vec<(&'static str, Vec<String>)>,
}

impl Secrets {
    pub(crate) fn new(writer: Writer, stores: Stores, recorder: Recorder) -> Self {
        Self { writer, stores, told: Told::new(recorder) }
    }

    /// The users of a secret: the classes with its name; for a kubeconfig the machines of its cluster; for the copy of
    /// a class the users of the class.
    fn users(&self, name: &ObjectName, secret: &Secret) -> Vec<(&'static str, Vec<String>)> {
        let names = |all: Vec<ObjectName>| all.into_iter().map(|it| it.name).collect::<Vec<_>>();
        let kept = kept_in(secret).map(|kept| ObjectName::of(&kept.class));
        let of_copy = |of: fn(&Stores, &ObjectName) -> Vec<ObjectName>| {
            kept.as_ref().map(|class| of(&self.stores, class)).unwrap_or_default()
        };
        let mut machines = of_copy(Stores::users);
        if let (Targets::Several(_), Some(cluster)) = (&self.stores.targets, cluster_by(name)) {
            let index = MachineIndex::Cluster;
            machines.extend(self.stores.machines.find_names(index, &cluster.to_string()));
        }
        let all = [
            ("machineclass", names(self.stores.namers(name))),
            ("machinepool", names(of_copy(Stores::pools_of))),
            ("machine", names(machines)),
        ];
        all.into_iter().filter(|(_, names)| !names.is_empty()).collect()
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
        let users = self.users(name, &secret);
        // An unreadable class may name the secret, and an unreadable machine its cluster.
        let Stores { classes, machines, .. } = &self.stores;
        if users.is_empty() && (classes.has_unreadable() || machines.has_unreadable()) {
            return Err(PassError::NotYet(UNSURE));
        }
        Ok(Some(Observed { name: name.clone(), secret, users }))
    }

    fn plan(observed: &Observed) -> SecretPlan {
        plan_secret(&observed.secret, !observed.users.is_empty())
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
        let Observed { name, secret, users: of } = observed;
        let awaited = plan.awaited.then(|| secret.metadata.uid.clone().unwrap_or_default());
        self.told.report((&name, Some(secret.as_ref())), IN_USE, awaited, |_| {
            format!("its deletion waits for what names it: {}", users(&of))
        });
        Ok(Passed::Settled(if done.is_ok() { Outcome::Done } else { Outcome::Failed }))
    }
}
