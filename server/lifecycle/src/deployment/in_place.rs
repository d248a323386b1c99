//! InPlaceUpdate: Machines stay, and move from the old sets to the new set once their Nodes are updated.
//!
//! The Machine side (cordon, drain, the result) is in [`crate::machine`]; labels on the Node are what both sides see.
//! One write hands a Machine over, with a label that keeps the new set from deleting the Machine. The replicas of the
//! sets follow from their Machines, so the next pass continues a pass that ended early: old sets create nothing
//! meanwhile, and the label is removed only when the new set wants as many Machines as it has, or will never want more.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use ostler_api::machine::MachinePhase;
use ostler_api::machine_deployment::StrategyType;
use ostler_api::names::{annotation, label, node_condition, taint};
use ostler_api::{Machine, MachineSet};
use serde_json::{Value, json};

use super::counts::{Counts, Fleet, SetSizes, narrow};
use super::fenceposts;
use super::invariants::inv_12_enough_stay_available;
use super::pass::Pass;
use super::scaling;
use super::snapshot::{MachineView, SetView};
use crate::digest;
use crate::node::has_critical_components;
use crate::owner::controller;
use crate::set::{Policy, Rank, owner_reference};

/// The value of the labels.
const TRUE: &str = "true";
/// The label's value on an updated Node, and on a Machine that was handed over.
const SUCCESSFUL: &str = "successful";
/// A provider spec of so many bytes is noted at most: a Machine has up to three of them, and 256 KiB of annotations in all.
const MOST_NOTED: usize = 48 * 1024;

fn node_label<'a>(view: &'a MachineView, key: &str) -> Option<&'a str> {
    view.node.as_ref()?.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Whether its Node is updated and everybody has said so.
fn is_updated(view: &MachineView) -> bool {
    let condition = view.node.as_ref().and_then(|node| {
        let all = node.status.as_ref()?.conditions.as_ref()?;
        all.iter().find(|one| one.type_ == node_condition::IN_PLACE_UPDATE)?.reason.as_deref()
    });
    condition == Some("UpdateSuccessful")
        && node_label(view, label::UPDATE_RESULT) == Some(SUCCESSFUL)
        && view.machine.phase() != MachinePhase::InPlaceUpdating
        && !view.machine.is_deleting()
}

/// Whether the Node is selected and its update is not done. The Machine side ignores a selected Node that is no
/// candidate: a user selected the Node before there was anything to update.
fn is_undergoing(view: &MachineView) -> bool {
    node_label(view, label::CANDIDATE_FOR_UPDATE).is_some()
        && node_label(view, label::SELECTED_FOR_UPDATE).is_some()
        && !is_updated(view)
}

/// Whether its update is still to begin.
pub(super) fn waits(view: &MachineView) -> bool {
    !view.machine.is_deleting() && !is_undergoing(view) && !is_updated(view)
}

/// Whether the Machine has a Node without the selection label.
pub(super) fn is_unselected(view: &MachineView) -> bool {
    view.node.is_some() && node_label(view, label::SELECTED_FOR_UPDATE).is_none()
}

/// Whether an update handed the Machine to its current set, whose replicas may not count the
/// Machine yet.
fn is_handed_over(view: &MachineView) -> bool {
    view.machine.label(label::UPDATE_RESULT).is_some()
}

/// Whether a set creates nothing already. An old set's replicas must not follow its Machines before
/// the set is held.
fn is_held(view: &SetView) -> bool {
    view.set.label(label::SCALE_UP_DISABLED).is_some()
}

/// How many Machines may be selected now, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// Machines of old sets that are not selected and available.
    pub healthy: i32,
    /// Unavailable Machines.
    pub unhealthy: i32,
    /// Machines that are selected already.
    pub undergoing: i32,
}

/// How many unavailable and how many available Machines are selected next.
pub fn select(fleet: &Fleet, selection: Selection) -> (i32, i32) {
    let Selection { healthy, unhealthy, undergoing } = selection;
    let (new, now) = (fleet.newest(), fleet.as_it_is());
    let missing = (new.wanted - new.available_of(new.wanted)).max(0);
    let total = narrow(now.total());
    let possible = total - fleet.min_available() - missing - undergoing;
    let left = possible.min(fleet.replicas - new.wanted - undergoing).max(0);
    let first = left.min(unhealthy);
    // INV-12: of sets that together want too many, some are about to go.
    let surplus = narrow((now.total() - fleet.ceiling()).max(0));
    let budget = (fleet.available_with(&now) - fleet.min_available()).saturating_sub(surplus);
    let then = (left - first).min(budget).min(healthy).max(0);
    debug_assert!(
        then == 0 || fleet.available_with(&now) - then >= fleet.min_available(),
        "{fleet:?} {then}"
    );
    (first, then)
}

/// The old sets without `most` dispensable Machines; the `busy` Machines of each set stay in any case, since they are
/// on their way to the new set.
pub fn let_go(fleet: &Fleet, mut targets: SetSizes, most: i32, busy: &[i32]) -> SetSizes {
    let before = targets.clone();
    let old = targets.old.iter().zip(&fleet.old).zip(busy).map(|((wanted, counts), busy)| {
        let idle = (wanted - busy).max(0);
        Counts { wanted: idle, available: counts.available.min(idle), updating: 0, ..*counts }
    });
    let idle = Fleet { old: old.collect(), ..fleet.clone() };
    let mut left = idle.as_it_is();
    let budget = fleet.available_with(&targets) - fleet.min_available();
    idle.shrink_old(&mut left, most, budget);
    for ((wanted, before), after) in targets.old.iter_mut().zip(&idle.old).zip(&left.old) {
        *wanted -= before.wanted - after;
    }
    debug_assert!(
        inv_12_enough_stay_available(fleet, &before, &targets, false),
        "{fleet:?} {targets:?}"
    );
    targets
}

/// Takes back what would leave too few available while Nodes are updated, which do not go first: until that ends, there
/// are more Machines than are wanted.
pub fn spare_available(fleet: &Fleet, targets: &mut SetSizes) {
    let now = fleet.as_it_is();
    let promised = fleet.min_available().min(fleet.available_with(&now));
    let newest = (fleet.newest(), now.new, &mut targets.new);
    let old = fleet.old.iter().zip(&now.old).zip(&mut targets.old);
    let old = old.map(|((set, now), wanted)| (*set, *now, wanted));
    let mut sets: Vec<_> = std::iter::once(newest).chain(old).collect();
    let available = |(set, _, wanted): &(Counts, i32, &mut i32)| set.available_of(**wanted);
    let mut missing = promised - sets.iter().map(available).sum::<i32>();
    for (set, now, wanted) in sets.iter_mut().filter(|(set, ..)| set.updating > 0) {
        let before = set.available_of(**wanted);
        let last = (set.kept + set.updating - **wanted).max(0);
        if missing > 0 && set.available_of(*now) > before {
            **wanted = (**wanted + last + missing).min(*now);
            missing -= set.available_of(**wanted) - before;
        }
    }
}

impl<'a> Pass<'a> {
    pub(super) fn old_views(&self) -> impl Iterator<Item = &'a SetView> + use<'a> {
        let new = self.new;
        let views = self.views.clone();
        views.into_iter().enumerate().filter(move |(it, _)| Some(*it) != new).map(|(_, view)| view)
    }

    /// Counts the Machines whose Nodes are updated.
    pub(super) fn count_updates(&self, fleet: &mut Fleet) {
        let chosen = self.marks.due(&self.snapshot.deployment);
        let stays =
            |one: &&MachineView| !one.machine.is_deleting() && !chosen.contains(one.machine.name());
        for (counts, view) in fleet.old.iter_mut().zip(self.old_views()) {
            let kept = view.kept(&chosen, self.snapshot.now);
            let all = view.machines.iter().filter(stays);
            let all = all.filter(|one| !kept.contains(one.machine.name()));
            let undergoing = all.clone().filter(|one| is_undergoing(one));
            counts.updating =
                count(all.filter(|one| is_undergoing(one) || one.is_in_update()).count());
            // The Machine is drained any moment now, whatever its phase says.
            counts.available -= count(undergoing.filter(|one| one.is_available()).count());
        }
        let new = self.new.and_then(|index| self.views.get(index));
        if let (Some(counts), Some(view)) = (&mut fleet.new, new) {
            // After a rollback: their updates go on, or failed.
            let updating = view.machines.iter().filter(stays).filter(|one| one.is_in_update());
            counts.updating = count(updating.count());
        }
    }

    /// Whether the strategy is InPlaceUpdate, or was until now: Machines handed over get their place before the next
    /// strategy goes on.
    pub(super) fn hands_over(&self) -> bool {
        let handed = |one: &MachineView| !one.machine.is_deleting() && is_handed_over(one);
        self.is_in_place() || self.all_machines().any(handed)
    }

    fn is_in_place(&self) -> bool {
        self.snapshot.deployment.spec.strategy.type_ == Some(StrategyType::InPlaceUpdate)
    }

    /// The strategy is another one now: no Node is updated, and all sets create Machines.
    pub(super) fn end_updates(&mut self) {
        for set in &mut self.sets {
            set.metadata.labels.get_or_insert_default().remove(label::SCALE_UP_DISABLED);
        }
        for view in self.all_machines().filter(|one| !one.machine.is_deleting()) {
            self.end_candidacy(view);
        }
    }

    /// Ends the candidacy of the Machine's Node, if the Node is a candidate.
    fn end_candidacy(&mut self, view: &'a MachineView) -> bool {
        let node = view.node.as_ref();
        let candidate = node.filter(|_| node_label(view, label::CANDIDATE_FOR_UPDATE).is_some());
        if let Some(node) = candidate {
            self.write_to_nodes(vec![(view, finished_node(view, node))]);
        }
        candidate.is_some()
    }

    /// A step of an update in place, or of scaling.
    pub(super) fn update_in_place(&mut self) {
        let fleet = self.fleet();
        let moved = self.hand_over();
        let scales = self.new.is_some() && scaling::is_due(&fleet);
        let counted = self.counting_hand_overs(&fleet, &moved);
        let mut targets = if scales {
            scaling::scale(&counted, scaling::Growth::Largest)
        } else {
            self.numbers(&fleet, &moved)
        };
        spare_available(&counted, &mut targets);
        // How many Nodes may be selected follows from the numbers of the sets, which are written first.
        let settled = moved.is_empty() && !scales && targets.old == fleet.as_it_is().old;
        if settled && targets.new < fleet.replicas && self.is_in_place() {
            self.select_nodes(&fleet);
        }
        if !scales && targets.new >= fleet.replicas {
            self.end_needless_hand_overs(&targets);
        }
        self.hold_old_sets(&fleet);
        self.write(&fleet, &targets, true);
    }

    /// The fleet with the `moved` Machines counted in the new set. An old set also counts the Machines that it received
    /// just before.
    fn counting_hand_overs(&self, fleet: &Fleet, moved: &BTreeSet<&str>) -> Fleet {
        let mut fleet = fleet.clone();
        let mut new = fleet.newest();
        for (counts, view) in fleet.old.iter_mut().zip(self.old_views()) {
            let handed = count(view.machines.iter().filter(|one| is_handed_over(one)).count());
            let counted = counts.wanted.saturating_add(handed);
            counts.wanted = counts.wanted.max(counted.min(counts.living));
            for one in view.machines.iter().filter(|one| moved.contains(one.machine.name())) {
                let available = i32::from(one.is_available());
                counts.machines -= 1;
                counts.living -= 1;
                counts.wanted = counts.wanted.min(counts.living);
                counts.available -= available;
                new.wanted += 1;
                new.machines += 1;
                new.living += 1;
                new.available += available;
            }
        }
        fleet.new = fleet.new.map(|_| new);
        fleet
    }

    /// The numbers of the sets follow their Machines; missing Machines are created in the new set.
    fn numbers(&self, fleet: &Fleet, moved: &BTreeSet<&str>) -> SetSizes {
        let chosen = self.marks.due(&self.snapshot.deployment);
        let living = |view: &SetView| {
            let stays = |one: &&MachineView| {
                let name = one.machine.name();
                !one.machine.is_deleting() && !moved.contains(name) && !chosen.contains(name)
            };
            count(view.machines.iter().filter(stays).count())
        };
        let mut targets = fleet.as_it_is();
        for (wanted, view) in targets.old.iter_mut().zip(self.old_views()) {
            if is_held(view) {
                // A set may become old before its replicas count the Machines handed over to it.
                let handed = view.machines.iter().filter(|one| is_handed_over(one)).count();
                let counted = wanted.saturating_add(count(handed));
                *wanted = living(view).min(counted);
            }
        }
        let own = self.new.and_then(|index| self.views.get(index)).map_or(0, |view| living(view));
        targets.new = targets.new.max(own + count(moved.len())).min(fleet.replicas);
        let missing = narrow(fleet.ceiling() - targets.total().max(fleet.present()));
        targets.new += missing.clamp(0, (fleet.replicas - targets.new).max(0));
        // Before the new set is complete, only surplus goes: a Machine handed over as the sets were scaled counts
        // twice.
        let over = narrow(targets.total() - fleet.ceiling());
        let most = if targets.new < fleet.replicas { over } else { i32::MAX };
        // Updates and hand-overs in progress are finished.
        let is_busy = |one: &&MachineView| is_undergoing(one) || is_handed_over(one);
        let busy = |view: &SetView| count(view.machines.iter().filter(is_busy).count());
        let busy: Vec<_> = self.old_views().map(busy).collect();
        let_go(fleet, targets, most, &busy)
    }

    /// Old sets create no Machines while the Machines are handed over.
    fn hold_old_sets(&mut self, fleet: &Fleet) {
        let over = fleet.old.iter().all(|set| set.present() == 0);
        for (index, set) in self.sets.iter_mut().enumerate() {
            let labels = set.metadata.labels.get_or_insert_default();
            if Some(index) == self.new || over {
                labels.remove(label::SCALE_UP_DISABLED);
            } else {
                labels.insert(label::SCALE_UP_DISABLED.to_owned(), TRUE.to_owned());
            }
        }
    }

    /// Hands the updated Machines over to the new set. Returns the names of the moved Machines.
    fn hand_over(&mut self) -> BTreeSet<&'a str> {
        let mut moved = BTreeSet::new();
        let new = self.new.and_then(|index| self.views.get(index).copied());
        let Some(new) = new.filter(|new| !new.set.uid().is_empty()) else { return moved };
        // The old set deletes a Machine chosen by an autoscaler, without replacement.
        let chosen = self.marks.due(&self.snapshot.deployment);
        let finished = |view: &&MachineView| {
            is_updated(view) && !is_handed_over(view) && !chosen.contains(view.machine.name())
        };
        let spec = new.class.as_ref().map(|class| digest::canonical(&class.spec.provider_spec));
        let spec = spec.filter(|text| text.len() <= MOST_NOTED);
        // A set that is not held would replace a Machine that was handed over.
        let held = self.old_views().filter(|view| is_held(view));
        for view in held.flat_map(|set| set.machines.iter().filter(finished)) {
            self.write_to_machine(&view.machine, handed_over(&view.machine, new, spec.as_deref()));
            moved.insert(view.machine.name());
        }
        for set in self.views.clone() {
            self.finish_hand_over(set, set.set.uid() == new.set.uid());
        }
        moved
    }

    /// Finishes the Nodes of Machines handed over to this set, and then removes the Machines' labels.
    fn finish_hand_over(&mut self, set: &'a SetView, is_new: bool) {
        let covered = set.set.spec.replicas();
        let own = set.machines.iter().filter(|one| !one.machine.is_deleting());
        let is_covered = is_new && covered >= self.snapshot.deployment.spec.replicas()
            || count(own.clone().count()) <= covered;
        for view in own.filter(|one| is_new || is_handed_over(one)) {
            // Before the Machine's label is removed: the label means that the Node is not finished.
            if !self.end_candidacy(view) && is_covered && is_handed_over(view) {
                self.end_hand_over(set, view);
            }
        }
    }

    /// The set may delete the Machine like any other.
    fn end_hand_over(&mut self, set: &SetView, view: &MachineView) {
        let patch = json!({
            "metadata": {
                "resourceVersion": view.machine.metadata.resource_version,
                "labels": { label::UPDATE_RESULT: null },
            },
            // Another controller may have left the class and version of before (#1153).
            "spec": class_and_version(&set.set),
        });
        self.write_to_machine(&view.machine, patch);
    }

    /// The rollout after a hand-over is complete: the old set has its final replicas, which do not count the Machines
    /// protected by the hand-over. The set would wait for these Machines, and the Machines for the replicas of the set.
    fn end_needless_hand_overs(&mut self, targets: &SetSizes) {
        for (wanted, set) in targets.old.iter().zip(self.old_views()) {
            let own = set.machines.iter().filter(|one| !one.machine.is_deleting());
            let is_last =
                *wanted == set.set.spec.replicas() && count(own.clone().count()) > *wanted;
            let finished = |one: &&MachineView| {
                is_handed_over(one) && node_label(one, label::CANDIDATE_FOR_UPDATE).is_none()
            };
            for view in own.filter(finished).filter(|_| is_last) {
                self.end_hand_over(set, view);
            }
        }
    }

    /// Old Nodes become candidates, and some of them are selected.
    fn select_nodes(&mut self, fleet: &Fleet) {
        let manual = fenceposts::is_manual(&self.snapshot.deployment.spec);
        let old: Vec<_> =
            self.old_views().flat_map(|set| last_to_go_first(set, self.snapshot.now)).collect();
        let (healthy, unhealthy): (Vec<_>, Vec<_>) = old
            .iter()
            .copied()
            .filter(|it| waits(it) && it.node.is_some())
            .partition(|it| it.is_available());
        let selection = Selection {
            healthy: count(healthy.len()),
            unhealthy: count(unhealthy.len()),
            undergoing: count(old.iter().filter(|it| is_undergoing(it)).count()),
        };
        let (first, then) = if manual { (0, 0) } else { select(fleet, selection) };
        let number = |many: i32| usize::try_from(many).unwrap_or_default();
        let mut writes = Vec::new();
        for (views, many) in [(unhealthy, number(first)), (healthy, number(then))] {
            for (index, view) in views.into_iter().enumerate() {
                let mut labels = serde_json::Map::new();
                if node_label(view, label::CANDIDATE_FOR_UPDATE).is_none() {
                    labels.insert(label::CANDIDATE_FOR_UPDATE.to_owned(), json!(TRUE));
                    // An existing result is from an update that was taken back.
                    labels.insert(label::UPDATE_RESULT.to_owned(), Value::Null);
                }
                if index < many {
                    labels.insert(label::SELECTED_FOR_UPDATE.to_owned(), json!(TRUE));
                } else if !manual && node_label(view, label::SELECTED_FOR_UPDATE).is_some() {
                    labels.insert(label::SELECTED_FOR_UPDATE.to_owned(), Value::Null);
                }
                let node = view.node.as_ref().filter(|_| !labels.is_empty());
                if let Some(node) = node {
                    let version = &node.metadata.resource_version;
                    let patch =
                        json!({ "metadata": { "resourceVersion": version, "labels": labels } });
                    writes.push((view, patch));
                }
            }
        }
        self.write_to_nodes(writes);
    }
}

/// In the reverse of the order in which the set deletes them: what goes next need not be updated.
fn last_to_go_first(set: &SetView, now: Timestamp) -> Vec<&MachineView> {
    let policy = Policy::of(&set.set);
    let mut all: Vec<_> = set.machines.iter().collect();
    all.sort_by_cached_key(|one| Reverse(Rank::of(&one.machine, policy, now)));
    all
}

fn count(views: usize) -> i32 {
    i32::try_from(views).unwrap_or(i32::MAX)
}

/// The changes of the update; `null` removes a version.
fn class_and_version(set: &MachineSet) -> Value {
    let template = &set.spec.template.spec;
    json!({ "class": { "name": template.class.name }, "version": template.version })
}

/// One write gives the Machine the controller, the labels, the class and the version of the new set. The write also
/// notes the spec to which the Node was updated.
fn handed_over(machine: &Arc<Machine>, new: &SetView, spec: Option<&str>) -> Value {
    let new = new.set.as_ref();
    let before = controller(&machine.metadata).map(|owner| owner.uid.clone());
    let others = machine.metadata.owner_references.iter().flatten();
    let others = others.filter(|one| Some(&one.uid) != before.as_ref()).cloned();
    let owners: Vec<_> = [owner_reference(new)].into_iter().chain(others).collect();
    let selector = new.spec.selector.as_ref().and_then(|selector| selector.match_labels.clone());
    let template = new.spec.template.metadata.as_ref().and_then(|it| it.labels.clone());
    let mut labels = template.unwrap_or_default();
    labels.extend(selector.unwrap_or_default());
    labels.insert(label::UPDATE_RESULT.to_owned(), SUCCESSFUL.to_owned());
    json!({
        "metadata": {
            "resourceVersion": machine.metadata.resource_version,
            "ownerReferences": owners,
            "labels": labels,
            "annotations": { annotation::IN_PLACE_PROVIDER_SPEC: spec },
        },
        "spec": class_and_version(new),
    })
}

/// The Node is no candidate any more. An updated Node takes pods again, once its critical components run; the Machine
/// side uncordons a Node that was cordoned for a cancelled update.
fn finished_node(view: &MachineView, node: &Node) -> Value {
    let mut patch = json!({ "metadata": {
        "resourceVersion": node.metadata.resource_version,
        "labels": {
            label::CANDIDATE_FOR_UPDATE: null,
            label::SELECTED_FOR_UPDATE: null,
            label::UPDATE_RESULT: null,
        },
        "annotations": { annotation::UPDATE_FAILED_REASON: null },
    }});
    if !is_updated(view) {
        return patch;
    }
    let key = taint::CRITICAL_COMPONENTS_NOT_READY;
    let mut taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    taints.retain(|one| one.key != annotation::PREFER_NO_SCHEDULE);
    if has_critical_components(node) && !taints.iter().any(|one| one.key == key) {
        let effect = "NoSchedule".to_owned();
        taints.push(Taint { key: key.to_owned(), effect, ..Taint::default() });
    }
    if let Some(fields) = patch.as_object_mut() {
        let spec = json!({ "unschedulable": null, "taints": taints });
        fields.insert("spec".to_owned(), spec);
    }
    patch
}
