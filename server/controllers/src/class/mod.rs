//! The class controller puts a finalizer on classes and secrets in use, because nothing that was created with them
//! could be deleted without them. [`ostler_lifecycle::class`] makes the decisions.

mod last_known;
mod secret;
mod told;
mod triggers;

pub(crate) use secret::Secrets;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::Patch;
use kube::core::NamespaceResourceScope;
use ostler_api::machine::MachineSpec;
use ostler_api::names::finalizer;
use ostler_api::{MachineClass, MachinePool, Revision};
use ostler_lifecycle::class::{
    FinalizerChange, Plan, Snapshot, names_class, plan, unresolved, unresolved_of_pool, users,
};
use ostler_lifecycle::hot_update::Question;
use ostler_lifecycle::plan::EventReason;
use ostler_lifecycle::write::finalizer_patch;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::client::{Typed, WriteError, Writer};
use crate::clock::Clock;
use crate::events::Recorder;
use crate::hot_update::Reviewer;
use crate::kind::{Kind, PassError, Passed};
use crate::queue::Outcome;
use crate::stores::{Stores, kept_in};
use crate::watch::{Found, ObjectName};
use told::Told;

/// When usage is checked again while a possible user cannot be read.
const UNSURE: Duration = Duration::from_mins(1);

/// How long an unused class stays held after its last user, unless deleted: the next user would wait for two requests.
const LINGER: Duration = Duration::from_secs(30);

/// Puts the finalizer on classes that machines use.
pub(crate) struct Classes {
    writer: Writer,
    stores: Stores,
    reviewer: Arc<Reviewer>,
    told: Told,
    clock: Clock,
    /// Since when a class is held that nothing uses; bounded by the classes.
    unused: Mutex<HashMap<ObjectName, Instant>>,
}

/// A class, and the Secret for its copy.
pub(crate) struct Observed {
    name: ObjectName,
    facts: Snapshot,
    /// The question for the driver; `None`: the driver answers none.
    question: Option<Question>,
    kept: Option<Arc<Secret>>,
    /// How much longer an unused class is held.
    lingers: Option<Duration>,
}

/// Results of the writes.
pub(crate) struct Done {
    finalizer: Result<(), WriteError>,
    status: Result<(), WriteError>,
    last_known: Result<(), WriteError>,
}

impl Kind for Classes {
    const NAME: &'static str = "MachineClass";
    type Key = ObjectName;
    type Snapshot = Observed;
    type Plan = Plan;
    type Done = Done;

    async fn observe(&self, name: &ObjectName) -> Result<Option<Observed>, PassError> {
        self.gather(name).await
    }

    fn plan(observed: &Observed) -> Plan {
        plan(&observed.facts)
    }

    fn describe(plan: &Plan) -> String {
        format!("{:?}, last known {}", plan.hold, plan.keep.name())
    }

    async fn execute(&self, observed: &Observed, plan: &Plan) -> Result<Done, PassError> {
        let Observed { name, facts, question, kept, .. } = observed;
        let finalizer = match facts.class.as_deref() {
            Some(class) => {
                if let Some(question) = question {
                    self.reviewer.ask(name, question);
                }
                change(&self.writer, class, name, finalizer::MACHINE, plan.hold).await
            }
            None => Ok(()),
        };
        let last_known = self.keep(name, &plan.keep, kept.as_deref()).await;
        let status = match &plan.status {
            Some(patch) => self.say(name, patch).await,
            None => Ok(()),
        };
        Ok(Done { finalizer, status, last_known })
    }

    async fn record(
        &self,
        observed: Observed,
        plan: Plan,
        done: Done,
    ) -> Result<Passed, PassError> {
        Ok(Passed::Settled(self.write_down(observed, plan, &done)))
    }
}

impl Classes {
    fn write_down(&self, observed: Observed, plan: Plan, done: &Done) -> Outcome {
        let Observed { name, facts, lingers, .. } = observed;
        let class = facts.class.as_deref();
        let broken = (!plan.broken.is_empty()).then_some(plan.broken);
        self.told.report((&name, class), EventReason::ClassInvalid, broken, str::to_owned);
        let awaited = class.filter(|_| plan.awaited).map(|class| class.uid().to_owned());
        self.told.report((&name, class), EventReason::ClassInUse, awaited, |_| {
            format!("cannot be deleted while in use by: {}", self.users(&name))
        });
        let is_no_conflict = |failure: &&WriteError| !matches!(failure, WriteError::Conflict);
        let failure = done.finalizer.as_ref().err().filter(is_no_conflict);
        self.stores.unheld.note(&name, failure.map(ToString::to_string));
        // A conflict: the cache does not have our last write yet, and the next pass sees it.
        if let Some(failure) = done.last_known.as_ref().err().filter(is_no_conflict) {
            warn!(class = %name, error = %failure, "cannot keep a copy of the class");
        }
        if let Some(failure) = done.status.as_ref().err() {
            warn!(class = %name, error = %failure, "the status of the class cannot be written");
        }
        let said = matches!(done.status, Ok(()) | Err(WriteError::Forbidden(_)));
        let all_done = done.finalizer.is_ok() && done.last_known.is_ok() && said;
        if !all_done {
            return Outcome::Failed;
        }
        lingers.map_or(Outcome::Done, Outcome::Again)
    }

    async fn gather(&self, name: &ObjectName) -> Result<Option<Observed>, PassError> {
        let class = self.stores.classes.get(name);
        let used = self.stores.is_used(name, |_| true) || !self.stores.pools_of(name).is_empty();
        // It may be the class of a machine or pool that cannot be read.
        let Stores { machines, pools, .. } = &self.stores;
        let there = &name.namespace;
        let unsure = machines.unreadable_in(there).or_else(|| pools.unreadable_in(there));
        if !used && unsure.is_some() {
            return Err(PassError::NotYet(UNSURE));
        }
        let goes = class.as_ref().is_none_or(|class| class.is_deleting());
        let used = used || goes && self.is_of_a_pool_that_is_not_listed_yet(name).await?;
        let kept = self.stores.secrets.get(&last_known::place(name));
        let lingers = self.lingers(name, class.as_deref(), used);
        let before = kept.as_deref().and_then(kept_in);
        let changed =
            class.as_ref().zip(before).is_some_and(|(now, before)| now.spec != before.class.spec);
        let (driver, question, review) =
            class.as_deref().map(|class| self.reviewer.review_of(class)).unwrap_or_default();
        let facts = Snapshot {
            used: used || lingers.is_some(),
            known: class.as_deref().and_then(|class| last_known::of(&self.stores, class)),
            open: if changed { self.unresolved(name) } else { BTreeSet::new() },
            kept: kept.as_deref().map(last_known::facts),
            secret: self.stores.secret_view(class.as_deref()),
            driver,
            connected: self.reviewer.connected(),
            review,
            settings: self.reviewer.settings().clone(),
            now: (self.clock)(),
            class,
        };
        Ok(Some(Observed { name: name.clone(), facts, question, kept, lingers }))
    }

    /// The other caches are complete before any pass, that of pools may not be: then the API itself is asked. Without a
    /// definition there are none, and without the right to read them none has a group.
    async fn is_of_a_pool_that_is_not_listed_yet(
        &self,
        name: &ObjectName,
    ) -> Result<bool, PassError> {
        if self.stores.pools.is_synced() {
            return Ok(false);
        }
        let pools = match self.writer.all::<MachinePool>(Some(&name.namespace)).await {
            Err(WriteError::NotFound | WriteError::Forbidden(_)) => return Ok(false),
            found => found.and_then(Found::complete),
        };
        let names = |pool: &Arc<MachinePool>| pool.spec.template.spec.class.name == name.name;
        pools.map(|pools| pools.iter().any(names)).map_err(|error| {
            warn!(%name, %error, "a class that goes waits, since the pools cannot be read");
            PassError::NotYet(UNSURE)
        })
    }

    pub(crate) fn new(
        writer: Writer,
        stores: Stores,
        reviewer: Arc<Reviewer>,
        recorder: Recorder,
        clock: Clock,
    ) -> Self {
        let (told, unused) = (Told::new(recorder), Mutex::default());
        Self { writer, stores, reviewer, told, clock, unused }
    }

    /// Says in the status of a class whether it is valid. A definition of machine-controller-manager has no place for it.
    async fn say(&self, class: &ObjectName, patch: &Value) -> Result<(), WriteError> {
        let api = self.writer.api::<MachineClass>(&class.namespace);
        match self.writer.patch_status(&api, &class.name, Patch::Merge(patch)).await {
            Ok(_) | Err(WriteError::NotFound) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// The revisions with which an instance or group may have been made that no object shows yet.
    fn unresolved(&self, class: &ObjectName) -> BTreeSet<Revision> {
        let (machines, pools) = (self.stores.users(class), self.stores.pools_of(class));
        let machines = machines.iter().filter_map(|name| self.stores.machines.get(name));
        let pools = pools.iter().filter_map(|name| self.stores.pools.get(name));
        let machines = machines.filter_map(|it| unresolved(&it));
        machines.chain(pools.filter_map(|it| unresolved_of_pool(&it))).collect()
    }

    fn lingers(
        &self,
        name: &ObjectName,
        class: Option<&MachineClass>,
        used: bool,
    ) -> Option<Duration> {
        let mut unused = self.unused.lock();
        if used || class.is_none_or(|class| !class.has_finalizer() || class.is_deleting()) {
            unused.remove(name);
            return None;
        }
        let since = *unused.entry(name.clone()).or_insert_with(Instant::now);
        let left = LINGER.saturating_sub(since.elapsed());
        (!left.is_zero()).then_some(left)
    }

    /// The users of a class; sets and deployments only if this process watches them.
    fn users(&self, of: &ObjectName) -> String {
        let place = |meta: &ObjectMeta| meta.namespace.as_deref() == Some(&of.namespace);
        let uses =
            |meta: &ObjectMeta, spec: &MachineSpec| place(meta) && names_class(spec, &of.name);
        let names = |all: Vec<ObjectName>| all.into_iter().map(|it| it.name).collect::<Vec<_>>();
        let all = self.stores.sets.all();
        let sets = all.iter().filter(|it| uses(&it.metadata, &it.spec.template.spec));
        let sets = sets.map(|it| it.name().to_owned()).collect();
        let all = self.stores.deployments.all();
        let deployments = all.iter().filter(|it| uses(&it.metadata, &it.spec.template.spec));
        let deployments = deployments.map(|it| it.name().to_owned()).collect();
        users(&[
            ("machinedeployment", deployments),
            ("machineset", sets),
            ("machinepool", names(self.stores.pools_of(of))),
            ("machine", names(self.stores.users(of))),
        ])
    }
}

/// Adds the finalizer to an object or removes it.
async fn change<K>(
    writer: &Writer,
    object: &K,
    name: &ObjectName,
    finalizer: &str,
    hold: FinalizerChange,
) -> Result<(), WriteError>
where
    K: Typed + Resource<Scope = NamespaceResourceScope>,
{
    let has = object.meta().finalizers.iter().flatten().any(|name| name == finalizer);
    let patch = finalizer_patch(object.meta(), finalizer, hold);
    let Some(patch) = patch.filter(|_| has != (hold == FinalizerChange::Add)) else {
        return Ok(());
    };
    let api = writer.api(&name.namespace);
    // The cache is not updated here: the event that follows wakes the machines that wait for the finalizer.
    match writer.patch::<K>(&api, &name.name, &patch).await {
        Ok(_) => {
            debug!(kind = %K::kind(&()), object = %name, ?hold, "finalizer changed");
            Ok(())
        }
        Err(WriteError::NotFound) => Ok(()),
        Err(WriteError::Conflict) => Err(WriteError::Conflict),
        Err(failure) => {
            warn!(kind = %K::kind(&()), object = %name, error = %failure, "cannot change the finalizer");
            Err(failure)
        }
    }
}

#[cfg(test)]
mod tests;
