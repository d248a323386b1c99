//! Requests about one Machine of a set.

use std::sync::Arc;

use futures::future::join_all;
use kube::{Api, Resource};
use ostler_api::machine::{MachineOperationType, MachinePhase};
use ostler_api::names::annotation::RELEASED_BY;
use ostler_api::{Machine, MachineSet};
use ostler_lifecycle::set::{Victim, is_controlled_by, machine, machine_name, owner_reference};
use rand::RngExt;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::Sets;
use crate::events::{EventRecord, Severity};
use crate::watch::{Author, By, ObjectName};
use crate::writes::{Deletion, WriteError};

/// Letters of generated names, as Kubernetes has them: no vowels, and none that look alike.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Whether a set let this Machine go.
pub(super) fn was_released_by(machine: &Machine, set: &str) -> bool {
    machine.annotation(RELEASED_BY) == Some(set)
}

impl Sets {
    fn machines_of(&self, set: &MachineSet) -> Api<Machine> {
        self.writer.api(set.metadata.namespace.as_deref().unwrap_or_default())
    }

    /// Creates in batches of 1, 2, 4, …, and stops after the first one with a failure: what one creation is refused
    /// for, the next hundred are refused for as well. The names are chosen here and repeated until they are answered.
    pub(super) async fn create(
        &self,
        set: &MachineSet,
        names: Vec<String>,
    ) -> Result<(), WriteError> {
        let (mut rest, mut size) = (names.as_slice(), 1);
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(size.min(rest.len()));
            let answers = join_all(batch.iter().map(|name| self.create_one(set, name))).await;
            if let Some(error) = answers.into_iter().find_map(Result::err) {
                return Err(error);
            }
            (rest, size) = (later, size * 2);
        }
        Ok(())
    }

    /// New names that no Machine has.
    pub(super) fn new_names(&self, set: &MachineSet, count: usize) -> Vec<String> {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let mut random = rand::rng();
        let mut names = Vec::with_capacity(count);
        while names.len() < count {
            let letter = |_| LETTERS.get(random.random_range(0..LETTERS.len())).copied();
            let suffix: String = (0..5).filter_map(letter).map(char::from).collect();
            let name = machine_name(set.name(), &suffix);
            let taken = self.stores.machines.get(&ObjectName::new(namespace, &name)).is_some();
            if !taken && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    async fn create_one(&self, set: &MachineSet, name: &str) -> Result<(), WriteError> {
        let api = self.machines_of(set);
        self.pending.sent(set.uid(), name);
        let mut answer = self.writer.create(&api, &machine(set, name)).await.map(drop);
        if matches!(answer, Err(WriteError::Conflict)) {
            // There is one of that name: ours, from a request whose answer was lost, or a stranger's.
            answer = match self.writer.get(&api, name).await {
                Ok(Some(found)) if is_controlled_by(&found.metadata, set.uid()) => Ok(()),
                Ok(_) => Err(WriteError::Conflict),
                Err(_) => Err(WriteError::NoAnswer),
            };
        }
        match &answer {
            Ok(()) => {
                self.pending.confirmed(set.uid(), name);
                let note = format!("Created Machine: {name}");
                self.tell(set, Severity::Normal, "SuccessfulCreate", "Create", note);
            }
            // It may have happened: the name stays, and is repeated.
            Err(error) if error.may_have_happened() => {}
            Err(error) => {
                self.pending.refused(set.uid(), name);
                let note = format!("cannot create a machine: {error}");
                self.tell(set, Severity::Warning, "FailedCreate", "Create", note);
            }
        }
        answer
    }

    /// Deletes all of them at the same time; returns a failure, and `Conflict` only if there is no other. INV-12, INV-13:
    /// a Machine that changed since it was chosen may have become available, or have been released: it is looked at again.
    pub(super) async fn delete(
        &self,
        set: &MachineSet,
        victims: &[Victim],
    ) -> Result<(), WriteError> {
        let answers = join_all(victims.iter().map(|victim| self.delete_one(set, victim))).await;
        let failures = answers.into_iter().filter_map(Result::err);
        failures.min_by_key(|error| matches!(error, WriteError::Conflict)).map_or(Ok(()), Err)
    }

    async fn delete_one(
        &self,
        set: &MachineSet,
        Victim { machine, cause }: &Victim,
    ) -> Result<(), WriteError> {
        let api = self.machines_of(set);
        let (name, uid) = (machine.name(), machine.uid());
        let version = machine.metadata.resource_version.as_deref();
        let only = Deletion { uid: Some(uid), version, ..Deletion::default() };
        match self.writer.delete(&api, name, only).await {
            Ok(()) => {
                self.pending.deleted(set.uid(), uid);
                info!(set = set.name(), machine = name, ?cause, "deleted");
                let note = format!("Deleted machine: {name} ({cause:?})");
                self.tell(set, Severity::Normal, "SuccessfulDelete", "Delete", note);
                self.count_stale(machine);
                if !self.runs_machines {
                    self.show_deletion(&api, machine).await;
                }
                Ok(())
            }
            Err(WriteError::NotFound) => Ok(()),
            Err(WriteError::Conflict) => Err(WriteError::Conflict),
            Err(error) => {
                if error.may_have_happened() {
                    self.pending.may_be_deleted(set.uid(), uid);
                }
                let note = format!("cannot delete machine {name}: {error}");
                self.tell(set, Severity::Warning, "FailedDelete", "Delete", note);
                Err(error)
            }
        }
    }

    fn count_stale(&self, machine: &Machine) {
        let last = machine.status.as_ref().and_then(|status| status.last_operation.as_ref());
        let of_health =
            last.and_then(|it| it.type_.as_ref()) == Some(&MachineOperationType::HealthCheck);
        if machine.phase() == MachinePhase::Failed && of_health {
            self.metrics.stale.inc();
        }
    }

    /// As upstream's set controller does it for a machine controller of another process. A hint: nothing depends on it.
    async fn show_deletion(&self, api: &Api<Machine>, machine: &Machine) {
        let now = (self.clock.0)();
        let status = json!({ "status": {
            "currentStatus": { "phase": "Terminating", "lastUpdateTime": now },
            "lastOperation": {
                "type": "Delete", "state": "Processing", "lastUpdateTime": now,
                "description": "Deleting machine from cloud provider"
            }
        } });
        let patch = kube::api::Patch::Merge(&status);
        if let Err(error) = self.writer.patch_status(api, machine.name(), patch).await {
            warn!(machine = machine.name(), %error, "cannot show that a machine is being deleted");
        }
    }

    /// INV-13: makes the set the controller of a Machine that has none, and says so. References of others stay; the
    /// controller comes first, since autoscalers read the first one.
    pub(super) async fn adopt(
        &self,
        set: &MachineSet,
        machine: &Arc<Machine>,
    ) -> Result<(), WriteError> {
        self.roll.lock().ours(machine);
        let owner = json!(owner_reference(set));
        let mut patch = vec![test_version(machine)];
        if machine.metadata.owner_references.is_none() {
            patch.push(
                json!({ "op": "add", "path": "/metadata/ownerReferences", "value": [owner] }),
            );
        } else {
            let path = "/metadata/ownerReferences/0";
            patch.push(json!({ "op": "add", "path": path, "value": owner }));
        }
        if machine.annotation(RELEASED_BY).is_some() {
            patch.push(json!({ "op": "remove", "path": released_by() }));
        }
        self.writer.patch_json::<Machine>(&self.machines_of(set), machine.name(), patch).await?;
        let note = format!("adopted machine {}: its labels match", machine.name());
        self.tell(set, Severity::Normal, "AdoptedMachine", "Adopt", note);
        Ok(())
    }

    /// INV-13: lets a Machine go whose labels do not match any more, and says so.
    pub(super) async fn release(
        &self,
        set: &MachineSet,
        machine: &Arc<Machine>,
    ) -> Result<(), WriteError> {
        let owners = machine.metadata.owner_references.iter().flatten();
        let Some(at) = owners.into_iter().position(|owner| owner.uid == set.uid()) else {
            return Ok(());
        };
        let path = format!("/metadata/ownerReferences/{at}");
        let mut patch = vec![
            test_version(machine),
            json!({ "op": "test", "path": "/metadata/uid", "value": machine.uid() }),
            json!({ "op": "test", "path": format!("{path}/uid"), "value": set.uid() }),
            json!({ "op": "remove", "path": path }),
        ];
        if machine.metadata.annotations.is_none() {
            patch.push(json!({ "op": "add", "path": "/metadata/annotations", "value": {} }));
        }
        patch.push(json!({ "op": "add", "path": released_by(), "value": set.uid() }));
        self.writer.patch_json::<Machine>(&self.machines_of(set), machine.name(), patch).await?;
        let note = format!(
            "released Machine {}: its labels no longer match spec.selector",
            machine.name()
        );
        self.tell(set, Severity::Warning, "ReleasedMachine", "Release", note);
        Ok(())
    }

    /// Patches Machines at the same time. Whether all succeeded. One that changed meanwhile may have changed in what
    /// wakes no set.
    pub(super) async fn patch(&self, set: &MachineSet, patches: &[(Arc<Machine>, Value)]) -> bool {
        let api = self.machines_of(set);
        let one = |(machine, patch): &(Arc<Machine>, Value)| {
            let (api, name, patch) = (api.clone(), machine.name().to_owned(), patch.clone());
            async move {
                match self.writer.patch::<Machine>(&api, &name, &patch).await {
                    Ok(written) => {
                        self.stores.machines.update(written, Author::new(By::Set, set));
                        true
                    }
                    Err(WriteError::NotFound) => true,
                    Err(WriteError::Conflict) => false,
                    Err(error) => {
                        warn!(machine = name, %error, "cannot update a machine from its template");
                        false
                    }
                }
            }
        };
        join_all(patches.iter().map(one)).await.into_iter().all(|fine| fine)
    }

    pub(super) fn tell(
        &self,
        set: &MachineSet,
        severity: Severity,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        let regarding = set.object_ref(&());
        self.recorder.record(EventRecord { regarding, severity, reason, action, note });
    }
}

fn test_version(machine: &Machine) -> Value {
    let version = &machine.metadata.resource_version;
    json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version })
}

fn released_by() -> String {
    format!("/metadata/annotations/{}", RELEASED_BY.replace('/', "~1"))
}
