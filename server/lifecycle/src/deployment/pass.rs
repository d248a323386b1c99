//! One pass: the wanted objects and the necessary writes.

use std::sync::Arc;

use jiff::Timestamp;
use ostler_api::machine_deployment::MachineDeploymentStatus;
use ostler_api::names::{annotation, finalizer};
use ostler_api::timeout::Timeout;
use ostler_api::{Machine, MachineDeployment, MachineSet};
use serde_json::{Value, json};

use super::edit::{annotate, owner};
use super::marks::Marks;
use super::plan::{Decision, NodeWrite, SetWrite};
use super::revisions::{self, Rollback};
use super::snapshot::{MachineView, SetView, Snapshot};
use super::status::{self, Sets};
use super::valid;
use crate::difference::merge_patch;
use crate::plan::{Event, EventReason};
use crate::selector;
use crate::template_identity::identity;

/// Most Nodes that one pass writes to; the next pass continues.
const NODES: usize = 50;

/// Overlaps of selectors that are told.
const OVERLAPS: usize = 3;

/// The garbage collector's finalizer for `--cascade=orphan`.
const ORPHAN: &str = "orphan";

pub(super) struct Pass<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// The sets, oldest first.
    pub(super) views: Vec<&'a SetView>,
    /// The same sets as they are to be.
    pub(super) sets: Vec<MachineSet>,
    /// Index of the set with the current template.
    pub(super) new: Option<usize>,
    /// The deployment as it is to be.
    pub(super) deployment: MachineDeployment,
    pub(super) status: MachineDeploymentStatus,
    pub(super) marks: Marks,
    pub(super) create: Option<MachineSet>,
    pub(super) next: Option<Timestamp>,
    plan: Decision,
    /// Sets to adopt in this pass.
    adopted: Vec<(Arc<MachineSet>, MachineSet)>,
}

impl<'a> Pass<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let mut views: Vec<_> = snapshot.sets.iter().collect();
        views.sort_by_key(|view| age(&view.set));
        let wanted = identity(&snapshot.deployment.spec.template);
        let fits = |view: &&SetView| {
            !view.set.is_deleting() && identity(&view.set.spec.template) == wanted
        };
        Self {
            new: views.iter().position(fits),
            sets: views.iter().map(|view| view.set.as_ref().clone()).collect(),
            views,
            deployment: snapshot.deployment.as_ref().clone(),
            status: snapshot.deployment.status.clone().unwrap_or_default(),
            marks: Marks::default(),
            create: None,
            next: None,
            plan: Decision::default(),
            adopted: Vec::new(),
            snapshot,
        }
    }

    pub(super) fn say(&mut self, reason: EventReason, note: String) {
        self.plan.events.push(Event::normal(reason, note));
    }

    pub(super) fn warn(&mut self, reason: EventReason, note: String) {
        self.plan.events.push(Event::warning(reason, note));
    }

    fn seen(&self) -> &'a MachineDeployment {
        &self.snapshot.deployment
    }

    pub(super) fn all_machines(&self) -> impl Iterator<Item = &'a MachineView> + use<'a> {
        self.snapshot.sets.iter().flat_map(|view| &view.machines)
    }

    /// The sets and the new set as observed.
    fn with_sets<T>(&self, then: impl FnOnce(Sets<'_>) -> T) -> T {
        let all: Vec<_> = self.views.iter().map(|view| view.set.as_ref()).collect();
        let new = self.new.and_then(|index| all.get(index).copied());
        then(Sets { all: &all, new })
    }

    pub(super) fn count(&mut self) {
        self.status = self.with_sets(|sets| status::count(self.seen(), sets, self.snapshot.now));
    }

    pub(super) fn show_progress(&mut self) -> Option<Timestamp> {
        let mut status = std::mem::take(&mut self.status);
        let next = self.with_sets(|sets| {
            status::show_progress(self.seen(), sets, &mut status, self.snapshot.now)
        });
        self.status = status;
        next
    }

    pub(super) fn add_finalizer(&mut self) {
        let finalizers = self.deployment.metadata.finalizers.get_or_insert_default();
        finalizers.push(finalizer::MACHINE.to_owned());
    }

    /// The deployment is being deleted: first its sets, then the finalizer. With `--cascade=orphan` the garbage
    /// collector frees the sets before.
    pub(super) fn delete(&mut self) {
        self.count();
        let finalizers = self.seen().metadata.finalizers.as_deref().unwrap_or_default();
        if finalizers.iter().any(|name| name == ORPHAN) {
            return;
        }
        let sets = self.views.iter().filter(|view| !view.set.is_deleting());
        self.plan.delete = sets.map(|view| Arc::clone(&view.set)).collect();
        if self.views.is_empty() && self.deployment.has_finalizer() {
            let finalizers = self.deployment.metadata.finalizers.get_or_insert_default();
            finalizers.retain(|name| name != finalizer::MACHINE);
        }
    }

    /// Adopts and releases sets. Returns whether there was one.
    pub(super) fn claim(&mut self) -> bool {
        let Some(selector) = self.seen().spec.selector.as_ref() else { return false };
        let fits = |set: &&Arc<MachineSet>| {
            let metadata = set.spec.template.metadata.as_ref();
            // A set that makes other Machines would be shrunk as an old set, or keep the deployment refused.
            selector::matches(selector, metadata.and_then(|it| it.labels.as_ref()))
                && !valid::is_made_for_another(set, selector)
        };
        let free = self.snapshot.orphans.iter().filter(|set| !set.is_deleting());
        for set in free.filter(fits) {
            let mut owned = set.as_ref().clone();
            // The controller comes first: autoscalers look nowhere else.
            owned.metadata.owner_references.get_or_insert_default().insert(0, owner(self.seen()));
            self.adopted.push((Arc::clone(set), owned));
        }
        let mut released = Vec::new();
        for (view, set) in self.views.iter().zip(&mut self.sets) {
            let drifted = !selector::matches(selector, view.set.metadata.labels.as_ref());
            if drifted && !view.set.is_deleting() {
                let owners = set.metadata.owner_references.get_or_insert_default();
                owners.retain(|one| one.uid != self.snapshot.deployment.uid());
                released.push(view.set.name().to_owned());
            }
        }
        let any = !self.adopted.is_empty() || !released.is_empty();
        for name in released {
            let note = format!("machine set {name} lost the labels that the selector asks for");
            self.warn(EventReason::ReleasedMachineSet, note);
        }
        any
    }

    /// Warns once per generation of other deployments with an overlapping selector.
    pub(super) fn warn_of_overlaps(&mut self) {
        let seen = self.seen();
        if self.status.observed_generation == seen.metadata.generation {
            return;
        }
        let own = (seen.spec.selector.as_ref(), &seen.spec.template);
        let others = self.snapshot.others.iter().filter(|one| one.uid() != seen.uid());
        let overlaps = |one: &&Arc<MachineDeployment>| {
            selector::overlap(own, (one.spec.selector.as_ref(), &one.spec.template))
        };
        for other in others.filter(overlaps).take(OVERLAPS) {
            let note = format!(
                "spec.selector overlaps with that of machine deployment {}: each may adopt MachineSets that the other releases",
                other.name()
            );
            self.warn(EventReason::SelectorOverlap, note);
        }
    }

    /// Of an annotation that is no duration nothing follows, as in machine-controller-manager.
    pub(super) fn warn_of_timeout(&mut self) {
        let key = annotation::EFFECTIVE_CREATION_TIMEOUT;
        // Once: the newest set takes the annotation over.
        let new = self.new.and_then(|index| self.views.get(index));
        let told = new.and_then(|view| view.set.annotation(key));
        let text = self.seen().annotation(key).filter(|text| told != Some(*text));
        if let Some(text) = text.filter(|text| Timeout::from(*text).duration().is_none()) {
            let note = format!(
                "annotation {key} is \"{text}\", and no duration such as 20m: it is ignored"
            );
            self.warn(EventReason::ValidationFailed, note);
        }
    }

    /// Marks the Machines chosen by an autoscaler, and shortens the autoscaler's list.
    pub(super) fn mark_machines(&mut self) {
        let machines = || self.all_machines().map(|view| view.machine.as_ref());
        let marks = Marks::read(self.seen(), machines(), self.snapshot.now);
        for view in self.all_machines() {
            if let Some(annotations) = marks.annotations(&view.machine) {
                let patch = json!({ "metadata": {
                    "resourceVersion": view.machine.metadata.resource_version,
                    "annotations": annotations,
                }});
                self.write_to_machine(&view.machine, patch);
            }
        }
        for entry in &marks.malformed {
            let key = annotation::TRIGGER_DELETION;
            self.warn(EventReason::MarkMalformed, format!("{key}: \"{entry}\" is not name~time"));
        }
        if let Some(time) = &marks.changed_at {
            annotate(&mut self.deployment.metadata, annotation::REPLICAS_CHANGED_BY_SCALER, time);
        }
        let key = annotation::TRIGGER_DELETION;
        if let Some(list) = marks.list() {
            annotate(&mut self.deployment.metadata, key, &list);
        } else if let Some(annotations) = &mut self.deployment.metadata.annotations {
            annotations.remove(key);
        }
        self.marks = marks;
    }

    /// Takes the template of an earlier revision. The template and the end of the wish are one write.
    pub(super) fn roll_back(&mut self, revision: i64) {
        let sets: Vec<_> = self.views.iter().map(|view| view.set.as_ref()).collect();
        match revisions::find(self.seen(), &sets, revision) {
            Rollback::NotFound => {
                let note = format!("there is no revision {revision} to go back to");
                self.warn(EventReason::DeploymentRollbackRevisionNotFound, note);
            }
            Rollback::Unchanged(set) => {
                let note = format!("the template is that of machine set {} already", set.name());
                self.warn(EventReason::DeploymentRollbackTemplateUnchanged, note);
            }
            Rollback::To(set) => {
                revisions::go_back(&mut self.deployment, set);
                let (of, name) = (revisions::of(set), set.name());
                let note =
                    format!("Rolled back to revision {of}, the template of machine set {name}");
                self.say(EventReason::DeploymentRollback, note);
            }
        }
        self.deployment.spec.rollback_to = None;
    }

    /// Old sets beyond the history limit go, unless a rollout may still need them.
    pub(super) fn clean_up(&mut self) {
        let complete = status::is_complete(self.seen(), &self.status);
        if !complete && !status::is_paused(self.seen()) {
            return;
        }
        let old = self.views.iter().enumerate().filter(|(index, _)| Some(*index) != self.new);
        let old: Vec<_> = old.map(|(_, view)| view.set.as_ref()).collect();
        let gone: Vec<_> =
            revisions::superfluous(self.seen(), &old).into_iter().map(MachineSet::name).collect();
        let gone = self.views.iter().filter(|view| gone.contains(&view.set.name()));
        self.plan.delete = gone.map(|view| Arc::clone(&view.set)).collect();
    }

    pub(super) fn write_to_machine(&mut self, machine: &Arc<Machine>, patch: Value) {
        self.plan.machines.push((Arc::clone(machine), patch));
    }

    /// Adds writes to Nodes; writes beyond the limit of a pass wait for the next pass, and so does a second write to
    /// the same Node: it would be for the version before the first.
    pub(super) fn write_to_nodes(&mut self, writes: Vec<(&'a MachineView, Value)>) {
        for (view, patch) in writes {
            let Some(node) = view.node.clone() else { continue };
            let taken = self.plan.nodes.iter().any(|write| Arc::ptr_eq(&write.node, &node));
            if !taken && self.plan.nodes.len() < NODES {
                let machine = Arc::clone(&view.machine);
                self.plan.nodes.push(NodeWrite { machine, node, patch });
            }
        }
    }

    pub(super) fn finish(mut self) -> Decision {
        let seen = self.snapshot.deployment.as_ref();
        // Sets that shrink first: the sum never exceeds the wanted sum.
        let mut sets: Vec<_> = self.views.iter().zip(&self.sets).collect();
        sets.sort_by_key(|(view, set)| set.spec.replicas() > view.set.spec.replicas());
        for (view, set) in sets {
            let Some(patch) = change(
                json!(view.set.as_ref()),
                json!(set),
                view.set.metadata.resource_version.as_ref(),
            ) else {
                continue;
            };
            let (from, to) = (view.set.spec.replicas(), set.spec.replicas());
            let event = (from != to).then(|| scaling(set.name(), from, to));
            self.plan.sets.push(SetWrite { set: Arc::clone(&view.set), patch, event });
        }
        for (set, owned) in &self.adopted {
            let note = format!("machine set {} had no controller", set.name());
            let event = Event::normal(EventReason::AdoptedMachineSet, note);
            if let Some(patch) =
                change(json!(set.as_ref()), json!(owned), set.metadata.resource_version.as_ref())
            {
                let set = Arc::clone(set);
                self.plan.sets.push(SetWrite { set, patch, event: Some(event) });
            }
        }
        if let Some(set) = self.create.as_ref().filter(|set| set.spec.replicas() > 0) {
            self.plan.created = Some(scaling(set.name(), 0, set.spec.replicas()));
        }
        self.plan.deployment =
            change(json!(seen), json!(self.deployment), seen.metadata.resource_version.as_ref());
        self.plan.status = self.status;
        self.plan.create = self.create.map(Box::new);
        self.plan.next = self.next;
        self.plan
    }
}

fn age(set: &MachineSet) -> (Option<Timestamp>, String) {
    let born = set.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (born, set.name().to_owned())
}

/// The merge patch of metadata and spec that turns one object into another, on condition of the version.
fn change(old: Value, new: Value, version: Option<&String>) -> Option<Value> {
    let plain = |mut value: Value| {
        if let Some(map) = value.as_object_mut() {
            map.retain(|key, _| key == "metadata" || key == "spec");
        }
        // An emptied map equals an absent map: no second write.
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|_, it| *it != json!({}) && *it != json!([]));
        }
        value
    };
    let mut patch = merge_patch(&plain(old), &plain(new))?;
    let metadata = patch.as_object_mut()?.entry("metadata").or_insert_with(|| json!({}));
    metadata.as_object_mut()?.insert("resourceVersion".to_owned(), json!(version));
    Some(patch)
}

fn scaling(name: &str, from: i32, to: i32) -> Event {
    let direction = if to > from { "up" } else { "down" };
    let note = format!("Scaled {direction} machine set {name} to {to}");
    Event::normal(EventReason::ScalingMachineSet, note)
}
