//! Executes the plan. No policy: a match over actions.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Api;
use ostler_api::Machine;
use ostler_api::names::finalizer;
use ostler_lifecycle::hot_update::{Question, SlotUse};
use ostler_lifecycle::plan::{
    Action, BootstrapPatch, MachinePatch, OnFailure, OwnConfig, Performed, Plan,
};
use ostler_lifecycle::snapshot::{Observed, Snapshot};
use serde_json::{Map, Value, json};
use tracing::info;

use super::{Machines, PassError};
use crate::audit;
use crate::bootstrap::CONFIG;
use crate::client::{Deletion, WriteError};
use crate::kind::Kind as _;
use crate::queue::Priority;
use crate::stores::MachineIndex;
use crate::target::{Target, TargetOf};
use crate::watch::{Author, ObjectName};

/// Results of the actions.
pub(crate) struct Executed {
    /// A result for each action, in order.
    pub(super) performed: Vec<Performed>,
    /// The machine as of the last write.
    pub(super) machine: Arc<Machine>,
    /// The resource versions of Nodes as of the last write, by name.
    pub(super) node_versions: BTreeMap<String, String>,
    /// True if a write may change the next plan.
    pub(super) changed: bool,
    /// True if an action failed that is not allowed to.
    pub(super) failed: bool,
}

impl Executed {
    /// Nothing yet of this machine.
    pub(super) fn of(machine: Arc<Machine>) -> Self {
        let (performed, node_versions) = (Vec::new(), BTreeMap::new());
        Self { performed, machine, node_versions, changed: false, failed: false }
    }
}

impl Machines {
    /// Performs the actions in order. Stops at the first failure, unless the action may fail.
    pub(super) async fn perform_all(
        &self,
        snapshot: &Snapshot,
        plan: &Plan,
    ) -> Result<Executed, PassError> {
        let mut done = Executed::of(Arc::clone(&snapshot.machine));
        let mut rest = plan.actions.as_slice();
        while let Some((action, others)) = rest.split_first() {
            if done.failed {
                done.performed.push(Performed::Skipped);
                rest = others;
                continue;
            }
            let pods = rest.iter().take_while(|action| action.pod().is_some()).count();
            if pods > 0 {
                let (leaving, others) = rest.split_at(pods);
                done.performed.extend(self.evict_all(snapshot, leaving).await);
                rest = others;
                continue;
            }
            let (performed, others) = match others.split_first() {
                Some((token, others)) if action.goes_beside(token) => {
                    (self.perform_both(snapshot, &mut done, action, token).await?, others)
                }
                _ => (vec![self.perform(snapshot, &mut done, action).await?], others),
            };
            for (performed, action) in performed.into_iter().zip(rest) {
                done.failed |= matches!(performed, Performed::Failed(_))
                    && action.on_failure() == OnFailure::Stop;
                if let Performed::Failed(reason) = &performed {
                    let machine = snapshot.machine.name();
                    info!(machine, action = action.name(), reason, "an action failed");
                }
                done.performed.push(performed);
            }
            rest = others;
        }
        Ok(done)
    }

    /// Performs an action and at the same time the request for the bootstrap token.
    async fn perform_both(
        &self,
        snapshot: &Snapshot,
        done: &mut Executed,
        action: &Action,
        token: &Action,
    ) -> Result<Vec<Performed>, PassError> {
        let (first, second) =
            tokio::join!(self.perform(snapshot, done, action), self.on_token(snapshot, token));
        let unrecorded = matches!(action, Action::PatchMachine(_))
            && !matches!(first, Ok(Performed::Done))
            && snapshot.bootstrap_token == Observed::Absent;
        if let (true, Action::EnsureBootstrapToken(made), Ok(())) = (unrecorded, token, &second) {
            // No record of the token exists yet, so nothing would delete the token if the Machine went now. If the
            // deletion fails too, the token expires by itself: no instance has it.
            let (id, on_failure) = (made.id.clone(), OnFailure::GoOn);
            let undo = Action::DeleteBootstrapToken { id, on_failure };
            drop(self.on_token(snapshot, &undo).await);
        }
        Ok(vec![first?, performed(second, token)?])
    }

    async fn on_token(&self, snapshot: &Snapshot, action: &Action) -> Result<(), WriteError> {
        let target = self.target(snapshot)?;
        if let Action::EnsureBootstrapToken(request) = action {
            self.ensure_token(&target, request).await?;
        } else if let Action::DeleteBootstrapToken { id, .. } = action {
            self.delete_token(&target, snapshot.machine.uid(), id).await?;
        }
        Ok(())
    }

    async fn perform(
        &self,
        snapshot: &Snapshot,
        done: &mut Executed,
        action: &Action,
    ) -> Result<Performed, PassError> {
        let result = match action {
            Action::ConfirmNode { name, version } => {
                self.confirm_node(snapshot, name, version.as_deref()).await
            }
            Action::ClaimReplacement { deployment, seen } => {
                let ours = self.state.replacements.claim(deployment, *seen, snapshot.now);
                if ours { Ok(()) } else { Err(WriteError::Conflict) }
            }
            Action::UpdateSlot { wanted, limit } => self.update_slot(snapshot, *wanted, *limit),
            Action::AskReview(question) => {
                self.ask_review(snapshot, question);
                Ok(())
            }
            Action::RemoveFinalizer => self.remove_finalizer(done).await,
            Action::PatchMachine(patch) => {
                self.patch_machine(done, |machine| machine_change(machine, patch)).await
            }
            Action::OwnConfig(own) => self.own_config(done, own).await,
            Action::DeleteConfig { config, uid } => {
                let name = ObjectName::new(&config.kind.namespace, &config.name);
                let Some(resource) = self.configs.resource(&config.kind) else {
                    return Ok(Performed::Gone);
                };
                self.writer.delete_dynamic(CONFIG, (&resource, &name), uid.as_str()).await
            }
            Action::EnsureBootstrapToken(_) | Action::DeleteBootstrapToken { .. } => {
                self.on_token(snapshot, action).await
            }
            Action::PatchNode(patch) => self.patch_node(snapshot, done, patch).await,
            Action::PatchNodeStatus(patch) => self.patch_node_status(snapshot, done, patch).await,
            Action::DeleteNode { name, uid } => {
                let deleted = self.delete_in_target::<Node>(snapshot, name, uid).await;
                if matches!(deleted, Err(WriteError::Conflict)) {
                    return Ok(self.why_not_deleted(snapshot, name, uid).await);
                }
                deleted
            }
            Action::DeleteMachine => self.delete_machine(&done.machine).await,
            Action::MarkNode { name, cause } => self.mark_node(snapshot, done, name, cause).await,
            Action::DeleteAttachment { name, uid } => {
                self.delete_in_target::<VolumeAttachment>(snapshot, name, uid).await
            }
            // Performed by `evict_all`.
            Action::Evict(_) | Action::EndPod(_) | Action::DeletePod(_) => Ok(()),
        };
        performed(result, action)
    }

    /// Patches the machine on condition of the newest version that this pass has seen.
    async fn patch_machine(
        &self,
        done: &mut Executed,
        change: impl FnOnce(&Machine) -> Change,
    ) -> Result<(), WriteError> {
        let version = done.machine.metadata.resource_version.as_deref();
        let patch = change(&done.machine).on_condition(version);
        let api = self.writer.api(done.machine.namespace());
        let written: Machine = self.writer.patch(&api, done.machine.name(), &patch).await?;
        let author = Author::new(Self::NAME, &written);
        self.stores.machines.update(written.clone(), author);
        done.machine = Arc::new(written);
        done.changed = true;
        Ok(())
    }

    async fn own_config(&self, done: &mut Executed, own: &OwnConfig) -> Result<(), WriteError> {
        let kind = &own.config.kind;
        let Some(resource) = self.configs.resource(kind) else { return Err(WriteError::NotFound) };
        let patch = json!({ "metadata": {
            "resourceVersion": own.resource_version,
            "ownerReferences": own.owner_references,
        } });
        let name = ObjectName::new(&kind.namespace, &own.config.name);
        let written = self.writer.patch_dynamic(CONFIG, (&resource, &name), &patch).await?;
        self.configs.update(kind, &written);
        done.changed = true;
        Ok(())
    }

    pub(super) async fn remove_finalizer(&self, done: &mut Executed) -> Result<(), WriteError> {
        let uid = done.machine.uid().to_owned();
        // Before the request: the watch may report that the machine is gone before the answer comes.
        self.state.end(&uid);
        match self.patch_machine(done, without_finalizer).await {
            Ok(()) | Err(WriteError::NotFound) => {}
            Err(failure) => {
                self.state.not_ended(&uid);
                return Err(failure);
            }
        }
        audit::machine_released(&done.machine);
        Ok(())
    }

    /// The cluster of the Node and of its objects. If the API server is down for long, it is not asked: each request
    /// would keep a worker, which other clusters need, until the timeout.
    pub(super) fn target(&self, snapshot: &Snapshot) -> Result<Arc<Target>, WriteError> {
        match self.stores.targets.of(&snapshot.machine) {
            TargetOf::Cluster(_) if snapshot.api.is_down_for_long() => {
                Err(WriteError::Other(snapshot.api.describe()))
            }
            TargetOf::Cluster(target) => Ok(target),
            TargetOf::Lacking { message, .. } => Err(WriteError::Other(message)),
            TargetOf::None => Err(WriteError::NotFound),
        }
    }

    fn update_slot(
        &self,
        snapshot: &Snapshot,
        wanted: SlotUse,
        limit: Option<usize>,
    ) -> Result<(), WriteError> {
        let (machine, slots) = (&snapshot.machine, &self.state.slots);
        match wanted {
            SlotUse::Uses | SlotUse::Waits => {
                if !slots.take(machine, wanted == SlotUse::Waits, limit) {
                    return Err(WriteError::Conflict);
                }
                // If the Machine goes after this look, the watch frees the slot.
                if self.stores.machines.count(MachineIndex::Uid, machine.uid()) > 0 {
                    return Ok(());
                }
            }
            SlotUse::None | SlotUse::OfOtherClass => {}
        }
        for uid in slots.leave(machine.uid()) {
            for name in self.stores.machines.find_names(MachineIndex::Uid, &uid) {
                self.queue.add(name, Priority::Change);
            }
        }
        Ok(())
    }

    fn ask_review(&self, snapshot: &Snapshot, question: &Question) {
        if let Some(class) = snapshot.class.known() {
            let class = ObjectName::new(snapshot.machine.namespace(), &class.name);
            self.reviewer.ask(&class, question);
        }
    }

    async fn delete_machine(&self, machine: &Machine) -> Result<(), WriteError> {
        let api: Api<Machine> = self.writer.api(machine.namespace());
        let only = Deletion { uid: Some(machine.uid()), ..Deletion::default() };
        self.writer.delete(&api, machine.name(), only).await
    }
}

/// The result of an action.
fn performed(result: Result<(), WriteError>, action: &Action) -> Result<Performed, PassError> {
    match (result, action) {
        (Ok(()), _) => Ok(Performed::Done),
        (Err(WriteError::NotFound), Action::PatchMachine(_)) => Err(PassError::Gone),
        (Err(WriteError::NotFound), _) => Ok(Performed::Gone),
        (Err(WriteError::Conflict), _) => action.on_conflict().ok_or(PassError::Outdated),
        (Err(failure), _) => Ok(Performed::Failed(failure.to_string())),
    }
}

/// A merge patch of an object's metadata and spec.
#[derive(Debug, Default)]
pub(super) struct Change {
    metadata: Map<String, Value>,
    spec: Map<String, Value>,
}

impl Change {
    pub(super) fn metadata(mut self, field: &str, value: Value) -> Self {
        self.metadata.insert(field.to_owned(), value);
        self
    }

    pub(super) fn spec(mut self, field: &str, value: Value) -> Self {
        self.spec.insert(field.to_owned(), value);
        self
    }

    /// The patch, which fails if the object has another version. Its lists, finalizers and taints, were built from
    /// that very version, so changes of other clients are never overwritten.
    pub(super) fn on_condition(self, version: Option<&str>) -> Value {
        let Self { metadata, spec } = self.metadata("resourceVersion", json!(version));
        if spec.is_empty() {
            return json!({ "metadata": metadata });
        }
        json!({ "metadata": metadata, "spec": spec })
    }
}

fn without_finalizer(machine: &Machine) -> Change {
    let mut all = machine.metadata.finalizers.clone().unwrap_or_default();
    all.retain(|name| name != finalizer::MACHINE);
    Change::default().metadata("finalizers", json!(all))
}

fn machine_change(machine: &Machine, patch: &MachinePatch) -> Change {
    let mut change = Change::default();
    if patch.add_finalizer {
        let mut all = machine.metadata.finalizers.clone().unwrap_or_default();
        all.push(finalizer::MACHINE.to_owned());
        change = change.metadata("finalizers", json!(all));
    }
    if patch.forget_managers {
        // An empty list would change nothing; this list resets the field.
        change = change.metadata("managedFields", json!([{}]));
    }
    if !patch.labels.is_empty() {
        change = change.metadata("labels", json!(patch.labels));
    }
    if !patch.annotations.is_empty() {
        change = change.metadata("annotations", json!(patch.annotations));
    }
    change = match &patch.bootstrap {
        Some(BootstrapPatch::DataSecretName(name)) => {
            change.spec("bootstrap", json!({ "dataSecretName": name }))
        }
        Some(BootstrapPatch::Data(text)) => change.spec("bootstrap", json!({ "data": text })),
        None => change,
    };
    match &patch.provider_id {
        Some(id) => change.spec("providerID", json!(id)),
        None => change,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_patch_may_forget_who_set_the_fields() {
        let patch =
            MachinePatch { add_finalizer: true, forget_managers: true, ..MachinePatch::default() };
        let expected = json!({ "metadata": {
            "finalizers": [finalizer::MACHINE], "managedFields": [{}], "resourceVersion": "7"
        } });
        let change = machine_change(&Machine::default(), &patch);
        assert_eq!(change.on_condition(Some("7")), expected);
    }

    #[test]
    fn a_machine_patch_removes_an_annotation_with_null() {
        let patch = MachinePatch {
            provider_id: Some("fake:///1".into()),
            annotations: [("a".to_owned(), Some("1".to_owned())), ("b".to_owned(), None)].into(),
            ..MachinePatch::default()
        };
        let expected = json!({
            "metadata": { "annotations": { "a": "1", "b": null }, "resourceVersion": "7" },
            "spec": { "providerID": "fake:///1" }
        });
        let change = machine_change(&Machine::default(), &patch);
        assert_eq!(change.on_condition(Some("7")), expected);
    }

    #[test]
    fn finalizers_of_others_stay() {
        let machine: Machine = serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m", "finalizers": ["other/one"] }, "spec": {}
        }))
        .unwrap();
        let finalizers = |change: Change| change.metadata["finalizers"].clone();
        let patch = MachinePatch { add_finalizer: true, ..MachinePatch::default() };
        let with = finalizers(machine_change(&machine, &patch));
        assert_eq!(with, json!(["other/one", finalizer::MACHINE]));
        assert_eq!(finalizers(without_finalizer(&machine)), json!(["other/one"]));
    }
}
