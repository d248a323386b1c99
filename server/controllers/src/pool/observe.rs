//! What a pass over a pool reads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ostler_api::driver::OperationKind;
use ostler_api::names::MACHINE_CLASS;
use ostler_api::operation::PoolRecord;
use ostler_api::{Machine, MachineClass, MachinePool, ProviderName};
use ostler_lifecycle::class::unresolved_of_pool;
use ostler_lifecycle::operation::{Failure, OperationView, Request, Success, UserData};
use ostler_lifecycle::owner::controller;
use ostler_lifecycle::pool::{
    DataSecret, Reading, Snapshot, holder, is_absent, secret_name, target_of,
};
use ostler_lifecycle::snapshot::{ClassFacts, ClassView, DriverView, SecretView};
use tokio::time::Instant;
use tracing::debug;

use super::groups::Group;
use super::{Pools, namespace_of};
use crate::client::{PATIENCE, WriteError};
use crate::cluster_id::ids_of;
use crate::hot_update::driver_of;
use crate::kind::PassError;
use crate::stores::{MachineIndex, PoolIndex};
use crate::watch::{Found, ObjectName};

/// When a pool comes again while as many groups of its provider are read as may be.
const READ_AGAIN: Duration = Duration::from_secs(2);

/// Key of the user data in a Secret that a template names.
const VALUE: &str = "value";

impl Pools {
    pub(super) async fn gather(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        let Some(pool) = self.stores.pools.get(name) else {
            self.groups.forget(name);
            return Ok(None);
        };
        let pool = self.first_live(pool).await?;
        let machines = self.machines_of(&pool).await?;
        let class = self.class_of(&pool);
        let live = self.stores.classes.get(&class_name(&pool)).filter(|_| names_class(&pool));
        let content = live.clone().or_else(|| self.kept(&pool));
        let driver = match content.as_deref() {
            Some(class) => driver_of(&self.sessions, &self.settings, class.provider()),
            None => DriverView::Unavailable,
        };
        let operation = self.operation_of(&pool);
        self.take_success(&pool, &machines, &operation);
        let facts = content.as_deref().map(ClassFacts::of);
        let secret = self.stores.secret_view(content.as_deref());
        let elsewhere = facts.as_ref().and_then(|facts| self.elsewhere(&pool, facts));
        if let (Some(facts), DriverView::Ready(driver)) = (&facts, &driver)
            && driver.has(OperationKind::GetPoolStatus)
            && elsewhere.is_none()
            // Without its secret a driver can look at nothing. What the pool waits for is that, and no failure.
            && !matches!(secret, SecretView::Missing(_))
            && !matches!(operation, OperationView::Finished(_))
        {
            let before = unresolved_of_pool(&pool);
            let before = before.and_then(|it| self.stores.class_before(&class_name(&pool), &it));
            let before = before.as_ref().map(ClassFacts::of);
            let with = before.as_ref().unwrap_or(facts);
            self.read_if_due(&pool, &machines, (with, &secret)).await?;
        }
        let (deleted, created) = self.groups.with(&pool, |group| {
            group.listed = true;
            if !group.deleted.is_empty() {
                let live = machines.iter().filter(|it| !it.is_deleting());
                let live: BTreeSet<_> = live.map(|it| it.uid()).collect();
                // One that got no answer may not have happened.
                group
                    .deleted
                    .retain(|uid, at| at.elapsed() < 2 * PATIENCE && live.contains(uid.as_str()));
            }
            if !group.created.is_empty() {
                let seen: BTreeSet<_> = machines.iter().filter_map(|it| it.instance_id()).collect();
                // One that is never seen was deleted meanwhile.
                group.created.retain(|id, at| at.elapsed() < 2 * PATIENCE && !seen.contains(id));
            }
            (group.deleted.keys().cloned().collect(), group.created.keys().cloned().collect())
        });
        Ok(Some(Snapshot {
            secret,
            data: self.data_of(&pool),
            group: self.groups.with(&pool, |group| group.view.clone()),
            // It may have ended while the group was read.
            operation,
            done: self.groups.with(&pool, |group| group.done.clone()),
            operation_id: uuid::Uuid::new_v4().to_string().into(),
            term: self.term.0.into(),
            now: (self.clock.0)(),
            machines,
            deleted,
            created,
            refused_machines: self.groups.with(&pool, |group| group.refused_machines),
            class,
            driver,
            elsewhere,
            cluster: ids_of(&self.sessions),
            pool,
        }))
    }

    /// A provider that has another name in MCM is the same one.
    pub(super) fn elsewhere(&self, pool: &MachinePool, class: &ClassFacts) -> Option<ProviderName> {
        let holder = holder(pool)?;
        let driver = |provider| self.settings.driver_name(provider);
        (driver(holder) != driver(class.provider.as_str())).then(|| holder.into())
    }

    /// The first time, the pool as the API server has it: the cache may not show the intent that the process that led
    /// before wrote last.
    async fn first_live(&self, pool: Arc<MachinePool>) -> Result<Arc<MachinePool>, PassError> {
        if self.groups.with(&pool, |group| group.listed) {
            return Ok(pool);
        }
        let api = self.writer.api::<MachinePool>(namespace_of(&pool));
        let live = self.writer.get(&api, pool.name()).await;
        let live = live.map_err(|source| PassError::Api { what: "cannot read a pool", source })?;
        let live = live.filter(|live| live.uid() == pool.uid()).ok_or(PassError::Gone)?;
        Ok(Arc::new(live))
    }

    /// The Machines of a pool. Those of all pools are listed once: the cache may not show what the process that led before
    /// did last.
    pub(super) async fn machines_of(
        &self,
        pool: &MachinePool,
    ) -> Result<Vec<Arc<Machine>>, PassError> {
        if !self.groups.with(pool, |group| group.listed) {
            let parts = self.settings.namespaces.parts();
            let seen = |found: &Found<Machine>| {
                found.objects.iter().for_each(|machine| self.await_in_cache(machine));
            };
            let failed =
                |source| PassError::Api { what: "cannot list the machines of pools", source };
            let wait = self.handover.wait(&self.writer, &parts, seen).await.map_err(failed)?;
            if let Some(left) = wait {
                return Err(PassError::NotYet(left));
            }
            if let Some(broken) = self.stores.machines.unreadable_in(namespace_of(pool)) {
                return Err(failed(WriteError::Other(broken)));
            }
        }
        Ok(self.stores.machines.find(MachineIndex::Controller, pool.uid()))
    }

    /// Awaits in the cache what the list shows, as what this process did itself.
    fn await_in_cache(&self, machine: &Machine) {
        let Some(owner) = controller(&machine.metadata) else { return };
        let cached = self.stores.machines.get(&ObjectName::of(machine));
        let cached = cached.filter(|it| it.uid() == machine.uid());
        for pool in self.stores.pools.find(PoolIndex::Uid, &owner.uid) {
            self.groups.with(&pool, |group| match (&cached, machine.instance_id()) {
                (None, Some(id)) => {
                    group.created.insert(id.clone(), Instant::now());
                }
                (Some(cached), _) if machine.is_deleting() && !cached.is_deleting() => {
                    group.deleted.insert(machine.uid().to_owned(), Instant::now());
                }
                (None, None) | (Some(_), _) => {}
            });
        }
    }

    fn class_of(&self, pool: &MachinePool) -> ClassView {
        if !names_class(pool) {
            return ClassView::Missing;
        }
        let name = class_name(pool);
        match (self.stores.classes.get(&name), self.kept(pool)) {
            (Some(class), _) if !class.has_finalizer() && !pool.is_deleting() => {
                let why = self.stores.unheld.why(&name);
                ClassView::NotHeld(why.unwrap_or_else(|| "it is being put there".to_owned()))
            }
            (Some(class), _) => ClassView::Known(ClassFacts::of(&class)),
            (None, Some(kept)) => ClassView::LastKnown(ClassFacts::of(&kept)),
            (None, None) => ClassView::Missing,
        }
    }

    /// The kept copy of the class, if the class is gone.
    fn kept(&self, pool: &MachinePool) -> Option<Arc<MachineClass>> {
        self.stores.last_known(&class_name(pool)).map(|kept| Arc::new(kept.class))
    }

    fn data_of(&self, pool: &MachinePool) -> DataSecret {
        let Some(name) = secret_name(pool) else { return DataSecret::NotNamed };
        let name = ObjectName::new(namespace_of(pool), name);
        let Some(secret) = self.stores.secrets.get(&name) else {
            return DataSecret::Missing(format!("secret {name} does not exist"));
        };
        match secret.data.as_ref().and_then(|data| data.get(VALUE)) {
            Some(value) => DataSecret::Known(UserData::new(value.0.clone())),
            None => DataSecret::Missing(format!("secret {name} has no key {VALUE}")),
        }
    }

    /// The operation, as the sessions know it. A driver may still come back with one of an earlier core.
    fn operation_of(&self, pool: &MachinePool) -> OperationView {
        let view = self.sessions.view(pool.uid());
        let intent = pool.status.as_ref().and_then(|status| status.operation.as_ref());
        let foreign = intent.filter(|it| it.intent.term != i64::from(self.term.0));
        match (view, foreign, self.sessions.adoption_left()) {
            (OperationView::Idle, Some(_), Some(left)) => OperationView::Expected(left),
            (view, _, _) => view,
        }
    }

    /// Notes what the driver says that it has done.
    fn take_success(&self, pool: &MachinePool, machines: &[Arc<Machine>], view: &OperationView) {
        let OperationView::Finished(finished) = view else { return };
        let Ok(success) = &finished.outcome else { return };
        let intent = pool.status.as_ref().and_then(|status| status.operation.as_ref());
        let now = (self.clock.0)();
        self.groups.with(pool, |group| {
            group.succeeded(finished, success, (intent, machines), now);
        });
    }

    /// Reads the group unless it was read just now. A driver that is away, or fails, changes nothing but the view. If too
    /// many of its groups are being read, nothing is decided yet.
    async fn read_if_due(
        &self,
        pool: &MachinePool,
        machines: &[Arc<Machine>],
        (class, secret): (&ClassFacts, &SecretView),
    ) -> Result<(), PassError> {
        let with = (class.revision.clone(), secret.revision().cloned());
        if !self.groups.with(pool, |group| group.is_due(&with)) {
            return Ok(());
        }
        let Some(_running) = self.reads.begin(&class.provider) else {
            return Err(PassError::NotYet(READ_AGAIN));
        };
        self.groups.with(pool, Group::begin);
        let began = (self.clock.0)();
        let status = pool.status.as_ref();
        let provider_id = status.and_then(|status| status.provider_id.clone()).unwrap_or_default();
        let request = Request::PoolStatus { provider_id, with_instances: true };
        let id = uuid::Uuid::new_v4().to_string().into();
        let time = OperationKind::GetPoolStatus.usual_time();
        let dispatch = class.dispatch(id, target_of(pool), request, time);
        let answer = self.sessions.call(dispatch).await;
        let machines = expected(pool, machines);
        let failure = match answer {
            Ok(Success::PoolRead { pool: record, instances }) if is_usable(&record) => {
                let reading = Reading::new(record, instances, began);
                self.groups.with(pool, |group| group.found(reading, &machines));
                return Ok(());
            }
            Ok(_) => Failure::wrong_answer(),
            Err(failure) if is_absent(&failure) => {
                self.groups.with(pool, Group::missed);
                return Ok(());
            }
            Err(failure) => failure,
        };
        debug!(pool = pool.name(), code = %failure.code, "the group cannot be read");
        let room = self.settings.lifecycle.resource_exhausted_retry;
        self.groups.with(pool, |group| group.unreadable(failure, with, room));
        Ok(())
    }
}

/// The Machines whose instances a read is to name: a driver may make one anew while it updates it.
pub(super) fn expected<'a>(pool: &MachinePool, machines: &'a [Arc<Machine>]) -> Vec<&'a Machine> {
    let operation = pool.status.as_ref().and_then(|status| status.operation.as_ref());
    let kind = Some(OperationKind::UpdatePoolMachine);
    let updated = operation.filter(|it| it.intent.operation_kind() == kind);
    let updated = updated.map_or(&[][..], |it| &it.provider_ids);
    let is_expected = |it: &&Machine| it.instance_id().is_none_or(|id| !updated.contains(id));
    machines.iter().map(AsRef::as_ref).filter(is_expected).collect()
}

fn is_usable(record: &PoolRecord) -> bool {
    !record.provider_id.is_empty()
}

fn class_name(pool: &MachinePool) -> ObjectName {
    ObjectName::new(namespace_of(pool), &pool.spec.template.spec.class.name)
}

fn names_class(pool: &MachinePool) -> bool {
    pool.spec.template.spec.class.kind == MACHINE_CLASS
}
