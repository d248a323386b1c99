//! The Machines that belong to a set. INV-13: a Machine has one controller.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use ostler_api::{Machine, MachineSet, names};

use super::{Snapshot, broken};
use crate::owner::{controller, is_controlled_by};
use crate::selector;

/// The Machines of a set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Owners {
    /// Are its own and stay so.
    pub keep: Vec<Arc<Machine>>,
    /// Have no controller, match, and become its own.
    pub adopt: Vec<Arc<Machine>>,
    /// Are its own and do not match any more.
    pub release: Vec<Arc<Machine>>,
}

/// The reference that makes a set the controller of a Machine.
pub fn owner_reference(set: &MachineSet) -> OwnerReference {
    OwnerReference {
        api_version: names::API_VERSION.to_owned(),
        kind: names::MACHINE_SET.to_owned(),
        name: set.name().to_owned(),
        uid: set.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The Machines that the set controls, matching or not.
pub(super) fn controlled(snapshot: &Snapshot) -> Vec<Arc<Machine>> {
    let uid = snapshot.set.uid();
    let own = snapshot.machines.iter().filter(|it| is_controlled_by(&it.metadata, uid));
    own.cloned().collect()
}

/// Sorts the Machines of a set that is not being deleted.
pub(super) fn claim(snapshot: &Snapshot) -> Owners {
    let set = &snapshot.set;
    let mut owners = Owners::default();
    for machine in &snapshot.machines {
        let matches = wants(set, machine);
        match (controller(&machine.metadata), matches) {
            (Some(owner), true) if owner.uid == set.uid() => owners.keep.push(machine.clone()),
            // A Machine in deletion still counts, whatever its labels.
            (Some(owner), false) if owner.uid == set.uid() && machine.is_deleting() => {
                owners.keep.push(machine.clone());
            }
            (Some(owner), false) if owner.uid == set.uid() => owners.release.push(machine.clone()),
            (None, true) if !machine.is_deleting() && is_first(snapshot, machine) => {
                owners.adopt.push(machine.clone());
            }
            (Some(_) | None, _) => {}
        }
    }
    owners
}

fn wants(set: &MachineSet, machine: &Machine) -> bool {
    let labels = machine.metadata.labels.as_ref();
    set.spec.selector.as_ref().is_some_and(|selector| selector::matches(selector, labels))
}

/// Whether this set comes first: of sets that match a Machine, the oldest gets the Machine, then the first by name. A
/// refused set adopts nothing and is no rival.
fn is_first(snapshot: &Snapshot, machine: &Machine) -> bool {
    let age = |set: &MachineSet| {
        let created = set.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, set.name().to_owned())
    };
    let own = age(&snapshot.set);
    let others = snapshot.others.iter().filter(|other| other.uid() != snapshot.set.uid());
    let rivals = others.filter(|other| !other.is_deleting() && wants(other, machine));
    let mut older = rivals.filter(|other| age(other) < own);
    !older.any(|other| {
        let has_machines = other.status.as_ref().is_some_and(|status| status.replicas > 0);
        broken(other, has_machines).is_empty()
    })
}

/// A set of another deployment, or of none, whose selector selects this set's Machines or the other way round.
pub(super) fn overlap(snapshot: &Snapshot) -> Option<String> {
    let set = snapshot.set.as_ref();
    let owner = |set: &MachineSet| controller(&set.metadata).map(|owner| owner.uid.clone());
    let own = owner(set);
    let others = snapshot.others.iter().filter(|other| other.uid() != set.uid());
    let mut strangers = others.filter(|other| own.is_none() || owner(other) != own);
    let sides = (set.spec.selector.as_ref(), &set.spec.template);
    let found = strangers.find(|other| {
        !other.is_deleting()
            && selector::overlap(sides, (other.spec.selector.as_ref(), &other.spec.template))
    });
    found.map(|other| other.name().to_owned())
}
