//! Carries out the plan for a pool.

use std::sync::Arc;

use futures::future::join_all;
use kube::Api;
use kube::api::Patch;
use ostler_api::names::{annotation::INSTANCE_GONE, finalizer, label};
use ostler_api::{Machine, MachinePool};
use ostler_lifecycle::class::Hold;
use ostler_lifecycle::owner::{controller, is_controlled_by};
use ostler_lifecycle::pool::{Plan, Snapshot, Victim, owner_reference};
use ostler_lifecycle::write::finalizer_patch;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{info, warn};

use super::groups::Group;
use super::{Done, Pools, Wrote, namespace_of};
use crate::client::{Deletion, WriteError};
use crate::events::Severity;
use crate::kind::Kind as _;
use crate::kind::PassError;
use crate::watch::{Author, ObjectName};

impl Pools {
    pub(super) async fn carry_out(
        &self,
        snapshot: &Snapshot,
        plan: &Plan,
    ) -> Result<Done, PassError> {
        let pool = &snapshot.pool;
        if plan.finalizer == Hold::Add {
            self.change_finalizer(pool, plan.finalizer).await?;
            return Ok(Done { changed: true, ..Done::default() });
        }
        if let Some(replicas) = plan.replicas {
            let version = &pool.metadata.resource_version;
            let patch = json!({
                "metadata": { "resourceVersion": version }, "spec": { "replicas": replicas }
            });
            self.change(pool, &patch).await?;
            self.tell_news(pool, plan.reset.as_slice());
            return Ok(Done { changed: true, ..Done::default() });
        }
        if !plan.create.is_empty() || !plan.delete.is_empty() {
            self.is_current(pool).await?;
        }
        let api = self.writer.api::<Machine>(namespace_of(pool));
        let mut wrote = self.patch_all(pool, &api, plan).await;
        let gone = plan.gone.iter().map(|machine| self.mark_gone(pool, &api, machine));
        wrote.extend(join_all(gone).await);
        let deleted = plan.delete.iter().map(|victim| self.delete_one(pool, &api, victim));
        wrote.extend(join_all(deleted).await);
        let created = plan.create.iter().map(|machine| self.create_one(pool, &api, machine));
        wrote.extend(join_all(created).await);
        Ok(Done { changed: false, wrote: wrote.into_iter().max().unwrap_or_default() })
    }

    pub(super) async fn patch_all(
        &self,
        pool: &MachinePool,
        api: &Api<Machine>,
        plan: &Plan,
    ) -> Vec<Wrote> {
        let patched = plan.patches.iter().map(async |(machine, patch)| {
            let written = self.writer.patch::<Machine>(api, machine.name(), patch).await;
            self.took(pool, machine, written)
        });
        let said = plan.instances.iter().map(async |(machine, instance)| {
            let version = &machine.metadata.resource_version;
            let id = machine.instance_id();
            let patch = json!({
                "metadata": { "resourceVersion": version },
                "status": { "instance": instance, "instanceProviderID": id },
            });
            let patch = Patch::Merge(&patch);
            let written = self.writer.patch_status::<Machine>(api, machine.name(), patch).await;
            self.took(pool, machine, written)
        });
        let mut wrote = join_all(patched).await;
        wrote.extend(join_all(said).await);
        wrote
    }

    /// Puts an answer into the cache.
    fn took(
        &self,
        pool: &MachinePool,
        machine: &Machine,
        written: Result<Machine, WriteError>,
    ) -> Wrote {
        match written {
            Ok(written) => {
                self.stores.machines.update(written, Author::new(Self::NAME, pool));
                Wrote::Fine
            }
            Err(WriteError::NotFound) => Wrote::Fine,
            Err(WriteError::Conflict) => Wrote::Outdated,
            Err(error) => {
                warn!(machine = machine.name(), %error, "cannot update a machine of a pool");
                Wrote::Failed
            }
        }
    }

    async fn mark_gone(&self, pool: &MachinePool, api: &Api<Machine>, machine: &Machine) -> Wrote {
        let id = machine.instance_id().map(ToString::to_string).unwrap_or_default();
        let version = &machine.metadata.resource_version;
        let patch = json!({
            "metadata": { "resourceVersion": version, "annotations": { INSTANCE_GONE: id } }
        });
        let written = self.writer.patch::<Machine>(api, machine.name(), &patch).await;
        if written.is_ok() {
            info!(pool = pool.name(), machine = machine.name(), "the instance is gone");
        }
        self.took(pool, machine, written)
    }

    pub(super) async fn delete_one(
        &self,
        pool: &MachinePool,
        api: &Api<Machine>,
        Victim { machine, cause }: &Victim,
    ) -> Wrote {
        let (name, uid) = (machine.name(), machine.uid());
        // One that changed since it was chosen may have become ready, or be another's: the pool chooses again.
        let version = machine.metadata.resource_version.as_deref().filter(|_| cause.is_choice());
        let only = Deletion { uid: Some(uid), version, ..Deletion::default() };
        // Before it is sent: it may happen although no answer comes.
        self.groups.with(pool, |group| {
            group.deleted.insert(uid.to_owned(), Instant::now());
        });
        match self.writer.delete(api, name, only).await {
            Ok(()) => {
                info!(pool = pool.name(), machine = name, ?cause, "deleted");
                let note = format!("Deleted machine: {name} ({cause:?})");
                self.tell(pool, Severity::Normal, "SuccessfulDelete", "Delete", note);
                Wrote::Fine
            }
            Err(WriteError::NotFound) => Wrote::Fine,
            Err(error) => {
                if !error.may_have_happened() {
                    self.groups.with(pool, |group| group.deleted.remove(uid));
                }
                if matches!(error, WriteError::Conflict) {
                    return Wrote::Outdated;
                }
                let note = format!("cannot delete machine {name}: {error}");
                self.tell(pool, Severity::Warning, "FailedDelete", "Delete", note);
                Wrote::Failed
            }
        }
    }

    /// The name follows from the instance, so what is repeated makes no second Machine.
    pub(super) async fn create_one(
        &self,
        pool: &MachinePool,
        api: &Api<Machine>,
        machine: &Machine,
    ) -> Wrote {
        let name = machine.name();
        let mut answer = match self.of_another(machine) {
            Some(other) => Err(WriteError::Invalid(format!("its instance is that of {other}"))),
            None => self.writer.create(api, &self.with_own_node(machine)).await,
        };
        if matches!(answer, Err(WriteError::Conflict)) {
            // There is one of that name: ours, which the cache does not show, or a stranger's.
            answer = match self.writer.get(api, name).await {
                Ok(Some(found)) if has_lost_its_id(pool, &found) => {
                    let version = &found.metadata.resource_version;
                    let spec = json!({ "providerID": machine.provider_id() });
                    let patch = json!({ "metadata": { "resourceVersion": version }, "spec": spec });
                    self.writer.patch(api, name, &patch).await
                }
                Ok(Some(found)) if found.instance_id() != machine.provider_id() => {
                    if is_controlled_by(&found.metadata, pool.uid()) {
                        // Of an instance before it that had the same name, and goes: it is tried again after a while.
                        self.made(pool, machine);
                        self.tell_of_namesake(pool, machine, &found);
                        return Wrote::Fine;
                    }
                    Err(WriteError::Invalid(format!("{name} is the machine of another instance")))
                }
                Ok(Some(found)) if is_controlled_by(&found.metadata, pool.uid()) => Ok(found),
                Ok(Some(found)) => Box::pin(self.take_back(pool, api, &found)).await,
                Ok(None) => return Wrote::Outdated,
                Err(error) => Err(error),
            };
        }
        let refused = matches!(answer, Err(WriteError::Forbidden(_) | WriteError::Invalid(_)));
        self.groups.with(pool, |group| group.refused_machines = refused);
        match answer {
            Ok(made) => {
                self.made(pool, machine);
                self.stores.machines.update(made, Author::new(Self::NAME, pool));
                let note = format!("Created Machine: {name}");
                self.tell(pool, Severity::Normal, "SuccessfulCreate", "Create", note);
                Wrote::Fine
            }
            Err(error) => {
                let note = format!("cannot create a machine: {error}");
                self.tell(pool, Severity::Warning, "FailedCreate", "Create", note);
                Wrote::Failed
            }
        }
    }

    /// Both instances are in the group, and their names differ only in what the name of an object cannot have: one of them
    /// gets no Machine while the other is there.
    fn tell_of_namesake(&self, pool: &MachinePool, machine: &Machine, found: &Machine) {
        let (Some(id), Some(other)) = (machine.provider_id(), found.instance_id()) else { return };
        let is_there = |group: &mut Group| {
            let all = group.view.known().map(|reading| &reading.instances);
            all.into_iter().flatten().any(|it| it.provider_id == *other && !it.is_going())
        };
        if self.groups.with(pool, is_there) {
            let name = found.name();
            let note = format!("cannot create a machine for {id}: {name} is that of {other}");
            self.tell(pool, Severity::Warning, "FailedCreate", "Create", note);
        }
    }

    /// For a while no Machine is created for its instance.
    fn made(&self, pool: &MachinePool, machine: &Machine) {
        if let Some(id) = machine.provider_id().cloned() {
            self.groups.with(pool, |group| group.created.insert(id, Instant::now()));
        }
    }

    /// Another Machine that has this instance. One of the same name may be this very one.
    fn of_another(&self, machine: &Machine) -> Option<ObjectName> {
        let holder = self.stores.holder_of(machine, machine.provider_id()?)?;
        Some(ObjectName::of(&*holder))
    }

    /// Without a Node that another Machine has: what a driver says of one instance never drains the Node of another.
    fn with_own_node(&self, machine: &Machine) -> Machine {
        let mut machine = machine.clone();
        if let Some(node) = machine.node_name().map(str::to_owned)
            && let Some(other) = self.stores.other_with_node(&machine, &node)
        {
            let (name, node) = (machine.name(), node.escape_debug());
            warn!(machine = name, %node, other, "the driver names the node of another machine");
            machine.metadata.labels.get_or_insert_default().remove(label::NODE);
        }
        machine
    }

    /// The Machine of this very instance, whose reference to the pool was removed, as a deletion does that is to leave
    /// dependents alone. Its Node is to be drained before its instance goes, so it is the pool's again.
    async fn take_back(
        &self,
        pool: &MachinePool,
        api: &Api<Machine>,
        found: &Machine,
    ) -> Result<Machine, WriteError> {
        let name = found.name();
        if let Some(other) = controller(&found.metadata) {
            let who = format!("{}/{}", other.kind, other.name);
            return Err(WriteError::Other(format!("{name} has the instance, and is of {who}")));
        }
        let mut owners = found.metadata.owner_references.clone().unwrap_or_default();
        owners.push(owner_reference(pool));
        let version = &found.metadata.resource_version;
        let patch = json!({
            "metadata": { "resourceVersion": version, "ownerReferences": owners }
        });
        let taken = self.writer.patch(api, name, &patch).await?;
        info!(pool = pool.name(), machine = name, "its machine again");
        Ok(taken)
    }

    /// Reads the pool before anything is created or deleted for it: the cache may lag.
    async fn is_current(&self, pool: &MachinePool) -> Result<(), PassError> {
        let api = self.writer.api::<MachinePool>(namespace_of(pool));
        let live = self.writer.get(&api, pool.name()).await;
        let live = live.map_err(|source| PassError::Api { what: "cannot read a pool", source })?;
        let Some(live) = live else { return Err(PassError::Gone) };
        PassError::unless_same(&live.metadata, &pool.metadata)
    }

    pub(super) async fn change_finalizer(
        &self,
        pool: &Arc<MachinePool>,
        hold: Hold,
    ) -> Result<(), PassError> {
        match finalizer_patch(&pool.metadata, finalizer::POOL, hold) {
            Some(patch) => self.change(pool, &patch).await,
            None => Ok(()),
        }
    }

    async fn change(&self, pool: &Arc<MachinePool>, patch: &Value) -> Result<(), PassError> {
        let api = self.writer.api::<MachinePool>(namespace_of(pool));
        let written = self.writer.patch::<MachinePool>(&api, pool.name(), patch).await;
        let what = "cannot change a pool";
        let written = written.map_err(|error| PassError::of_write(what, error))?;
        self.stores.pools.update(written, Author::new(Self::NAME, pool.as_ref()));
        Ok(())
    }
}

/// Of one that goes it is not known whose it is: the instance may be the next one of that name, whose Node was not drained.
fn has_lost_its_id(pool: &MachinePool, found: &Machine) -> bool {
    let is_ours = is_controlled_by(&found.metadata, pool.uid());
    is_ours && found.instance_id().is_none() && !found.is_deleting()
}
