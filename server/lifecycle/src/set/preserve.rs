//! Auto-preservation: some Failed Machines are kept for examination although no user asked for it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use ostler_api::{
    Machine, MachineSet,
    machine::MachinePhase,
    names::annotation::{LAST_NODE_PRESERVE, PRESERVE},
};
use serde_json::Value;

/// The value by which a set preserves.
pub(super) const AUTO: &str = "auto-preserved";

/// The wish of a Machine's Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeWish {
    /// The value of its annotation; `None`: it has none, or there is no Node.
    Known(Option<String>),
    /// The Node cannot be read.
    Unknown,
}

/// Machines to annotate, and Machines to lose the annotation, by UID.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Preserved {
    add: BTreeSet<String>,
    remove: BTreeSet<String>,
}

impl Preserved {
    /// The new value of the annotation of a Machine, null to remove it; `None`: it does not change.
    pub(super) fn change(&self, uid: &str) -> Option<Value> {
        match (self.add.contains(uid), self.remove.contains(uid)) {
            (true, _) => Some(AUTO.into()),
            (false, true) => Some(Value::Null),
            (false, false) => None,
        }
    }

    pub(super) fn adds(&self, uid: &str) -> bool {
        self.add.contains(uid)
    }
}

/// Whether a Failed Machine is to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Keep,
    Refuse,
    /// There is no value that has a meaning.
    None,
    /// The Node cannot be read, and may say something.
    Unknown,
}

/// The wish: the Node's, while the Node has or had one; else the Machine's.
pub(super) fn wish(machine: &Machine, node: Option<&NodeWish>) -> Wish {
    let own = machine.annotation(PRESERVE).unwrap_or_default();
    let last = machine.annotation(LAST_NODE_PRESERVE).unwrap_or_default();
    let value = match node {
        Some(NodeWish::Unknown) => return Wish::Unknown,
        Some(NodeWish::Known(value)) => {
            let value = value.as_deref().unwrap_or_default();
            if value.is_empty() && last.is_empty() { own } else { value }
        }
        None => own,
    };
    match value {
        "now" | "when-failed" | AUTO => Wish::Keep,
        "false" => Wish::Refuse,
        _ => Wish::None,
    }
}

/// Until when a Machine is preserved.
pub(super) fn until(machine: &Machine) -> Option<Timestamp> {
    let current = machine.status.as_ref()?.current_status.as_ref()?;
    current.preserve_expiry_time.as_ref().map(|time| time.0)
}

/// Counts the Machines preserved now, never the number in an earlier status (#1059, #1092).
pub(super) fn decide(
    set: &MachineSet,
    claimed: &[Arc<Machine>],
    wishes: &BTreeMap<String, NodeWish>,
) -> Preserved {
    let most = set.spec.auto_preserve_failed_machine_max.unwrap_or(0);
    let most = usize::try_from(most).unwrap_or(0);
    let living = || claimed.iter().filter(|machine| !machine.is_deleting());
    let is_auto = |machine: &Machine| machine.annotation(PRESERVE) == Some(AUTO);
    let mut auto: Vec<_> = living().filter(|machine| is_auto(machine)).collect();
    let mut preserved = Preserved::default();
    if auto.len() > most {
        auto.sort_by_key(|machine| age(machine));
        let surplus = auto.iter().take(auto.len() - most);
        preserved.remove = surplus.map(|machine| machine.uid().to_owned()).collect();
        return preserved;
    }
    let mut free: Vec<_> = living()
        .filter(|machine| machine.phase() == MachinePhase::Failed && until(machine).is_none())
        .filter(|machine| wish(machine, wishes.get(machine.uid())) == Wish::None)
        .collect();
    free.sort_by_key(|machine| Reverse(age(machine)));
    let chosen = free.iter().take(most - auto.len());
    preserved.add = chosen.map(|machine| machine.uid().to_owned()).collect();
    preserved
}

/// In a total order.
fn age(machine: &Machine) -> (Option<Timestamp>, String) {
    let created = machine.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (created, machine.name().to_owned())
}
