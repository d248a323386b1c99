//! Decisions about classes and their secrets: both carry a finalizer while the core needs them to delete
//! instances, and the core keeps a copy of both.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use ostler_api::{Machine, MachineClass, MachinePool, Revision, machine::MachineSpec, names};
use serde_json::Value;

use crate::{class_rules, class_status, last_known::LastKnown, numbered};
pub use crate::{
    class_snapshot::{Snapshot, StoredCopy},
    hold::FinalizerChange,
};

/// Most users of a class or a secret that are named, of each kind.
const MOST_NAMED: usize = 3;

/// What to do about a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The wanted finalizer.
    pub hold: FinalizerChange,
    /// The broken rules, for people; empty: none.
    pub broken: String,
    /// Whether the deletion waits for users of the class.
    pub awaited: bool,
    /// The decision about the stored copy.
    pub keep: CopyChange,
    /// The patch of the status; `None`: no change.
    pub status: Option<Value>,
}

/// The decision about the stored copy of a class.
#[derive(Clone, PartialEq, Eq)]
pub enum CopyChange {
    /// It is as it has to be, or a part is missing: then the last state stays.
    Leave,
    /// Another Secret is in its place.
    Blocked,
    /// There is too much to keep, or a key of the secret is too long for it.
    TooLarge,
    /// Write this data.
    Write(BTreeMap<String, Vec<u8>>),
    /// Delete the copy.
    Drop,
}

impl CopyChange {
    /// A word for logs, which never shows the copy with its credentials.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Leave => "Leave",
            Self::Blocked => "Blocked",
            Self::TooLarge => "TooLarge",
            Self::Write(_) => "Write",
            Self::Drop => "Drop",
        }
    }
}

impl std::fmt::Debug for CopyChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Decides what to do about a class.
pub fn plan(snapshot: &Snapshot) -> Plan {
    let class = snapshot.class.as_deref();
    Plan {
        hold: class.map_or(FinalizerChange::Keep, |class| hold_class(class, snapshot.used)),
        broken: class.map(|class| class_rules::broken(class).join("; ")).unwrap_or_default(),
        awaited: snapshot.used && class.is_some_and(MachineClass::is_deleting),
        keep: keep(snapshot),
        status: class_status::patch(snapshot),
    }
}

/// A class is kept while Machines use it. For a class that is gone or lacks a secret, the last state stays.
fn keep(snapshot: &Snapshot) -> CopyChange {
    let here = match &snapshot.kept {
        Some(StoredCopy::Foreign) => return CopyChange::Blocked,
        Some(StoredCopy::Ours(data)) => Some(data),
        None => None,
    };
    match (snapshot.used, &snapshot.known, here) {
        (false, _, Some(_)) => CopyChange::Drop,
        (true, Some(known), here) => {
            let before = here.and_then(LastKnown::decode);
            match known.clone().after(before, &snapshot.open).encode() {
                None => CopyChange::TooLarge,
                Some(data) if here == Some(&data) => CopyChange::Leave,
                Some(data) => CopyChange::Write(data),
            }
        }
        (false, _, None) | (true, None, _) => CopyChange::Leave,
    }
}

/// A class is held while a Machine names it. One that is being deleted takes no new finalizer: the
/// API server refuses that, and no Machine can be made with it any more.
fn hold_class(class: &MachineClass, in_use: bool) -> FinalizerChange {
    hold(class.has_finalizer(), class.metadata.deletion_timestamp.is_some(), in_use)
}

/// The decision about a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretPlan {
    /// The wanted finalizer.
    pub hold: FinalizerChange,
    /// Whether the deletion waits for classes that name the secret.
    pub awaited: bool,
}

/// A secret is held while a class names it.
pub fn plan_secret(secret: &Secret, in_use: bool) -> SecretPlan {
    let finalizers = secret.metadata.finalizers.as_deref().unwrap_or_default();
    let held = finalizers.iter().any(|name| name == names::finalizer::SECRET);
    let deleting = secret.metadata.deletion_timestamp.is_some();
    SecretPlan { hold: hold(held, deleting, in_use), awaited: held && deleting && in_use }
}

const fn hold(held: bool, deleting: bool, in_use: bool) -> FinalizerChange {
    match (held, in_use) {
        (false, true) if !deleting => FinalizerChange::Add,
        (true, false) => FinalizerChange::Remove,
        (_, _) => FinalizerChange::Keep,
    }
}

/// Whether a Machine names the class of this name in its own namespace.
pub fn uses_class(machine: &Machine, namespace: &str, class: &str) -> bool {
    machine.namespace() == namespace && names_class(&machine.spec, class)
}

/// Whether the spec of a Machine, or a template's, names the class.
pub fn names_class(spec: &MachineSpec, class: &str) -> bool {
    spec.class.kind == names::MACHINE_CLASS && spec.class.name == class
}

/// The revision of the class with which the operation of this Machine was begun, while its provider id is not known.
pub fn unresolved(machine: &Machine) -> Option<Revision> {
    if machine.provider_id().is_some() {
        return None;
    }
    machine.intent()?.class_revision
}

/// The same of the group of a pool.
pub fn unresolved_of_pool(pool: &MachinePool) -> Option<Revision> {
    let status = pool.status.as_ref().filter(|status| status.provider_id.is_none())?;
    status.operation.as_ref()?.intent.class_revision.clone()
}

/// The users of a class or a secret, for people: the number of each kind, and the first names. Empty: nothing.
pub fn users(kinds: &[(&str, Vec<String>)]) -> String {
    let some = kinds.iter().filter(|(_, names)| !names.is_empty());
    let shown = some.map(|(kind, names)| {
        let more = if names.len() > MOST_NAMED { ", …" } else { "" };
        let first = names.iter().take(MOST_NAMED).map(String::as_str);
        let first = first.collect::<Vec<_>>().join(", ");
        format!("{} ({first}{more})", numbered(names.len(), kind))
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::{
        class_facts::SecretView, driver::DriverView, hot_update::ReviewView, settings::Settings,
    };

    #[test]
    fn a_class_or_secret_is_held_exactly_while_it_is_used() {
        let table = [
            ((false, false, false), FinalizerChange::Keep),
            ((false, false, true), FinalizerChange::Add),
            ((false, true, true), FinalizerChange::Keep),
            ((true, false, true), FinalizerChange::Keep),
            ((true, true, true), FinalizerChange::Keep),
            ((true, false, false), FinalizerChange::Remove),
            ((true, true, false), FinalizerChange::Remove),
        ];
        for ((held, deleting, in_use), expected) in table {
            assert_eq!(hold(held, deleting, in_use), expected, "{held} {deleting} {in_use}");
        }
    }

    fn class() -> MachineClass {
        serde_json::from_value(json!({
            "apiVersion": names::API_VERSION, "kind": "MachineClass",
            "metadata": { "name": "c", "namespace": "default" },
            "provider": "a.example.com", "providerSpec": {}
        }))
        .unwrap()
    }

    #[test]
    fn users_are_counted_and_a_few_are_named() {
        let names = |all: &[&str]| all.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let all = [
            ("machine", names(&["a", "b", "c", "d"])),
            ("machineset", names(&[])),
            ("machinepool", names(&["p"])),
        ];
        assert_eq!(users(&all), "4 machines (a, b, c, …), 1 machinepool (p)");
        assert_eq!(users(&[]), "");
    }

    #[test]
    fn the_deletion_of_a_secret_waits_while_a_class_names_it_and_it_is_held() {
        for (finalizer, deleted, used, awaited) in [
            (names::finalizer::SECRET, true, true, true),
            (names::finalizer::SECRET, true, false, false),
            (names::finalizer::SECRET, false, true, false),
            ("other", true, true, false),
        ] {
            let mut secret = Secret::default();
            secret.metadata.finalizers = Some(vec![finalizer.to_owned()]);
            secret.metadata.deletion_timestamp =
                deleted.then(|| jiff::Timestamp::UNIX_EPOCH.into());
            assert_eq!(plan_secret(&secret, used).awaited, awaited, "{finalizer} {deleted} {used}");
        }
    }

    #[test]
    fn the_deletion_of_a_class_waits_while_it_is_used() {
        let plan = |used, deleting: bool| {
            let mut class = class();
            let at = jiff::Timestamp::UNIX_EPOCH;
            class.metadata.deletion_timestamp = deleting.then(|| at.into());
            let class = Some(Arc::new(class));
            super::plan(&Snapshot { class, ..snapshot(used, None) }).awaited
        };
        assert!(plan(true, true));
        assert!(!plan(true, false) && !plan(false, true));
    }

    fn snapshot(used: bool, kept: Option<StoredCopy>) -> Snapshot {
        let (secret, earlier) = (BTreeMap::new(), BTreeMap::new());
        let known = LastKnown { class: class(), secret_revision: None, secret, earlier };
        let class = Some(Arc::new(class()));
        Snapshot {
            class,
            used,
            known: Some(known),
            kept,
            open: BTreeSet::new(),
            secret: SecretView::NotReferenced,
            driver: DriverView::Unavailable,
            connected: Vec::new(),
            review: ReviewView::NotAsked,
            settings: Settings::default(),
            now: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_class_is_kept_while_it_is_used_and_the_last_state_stays_when_a_part_is_missing() {
        let data = snapshot(true, None).known.unwrap().encode().unwrap();
        let same = || Some(StoredCopy::Ours(data.clone()));
        let old = || Some(StoredCopy::Ours(BTreeMap::new()));
        assert_eq!(keep(&snapshot(true, None)), CopyChange::Write(data.clone()));
        assert_eq!(keep(&snapshot(true, old())), CopyChange::Write(data.clone()));
        assert_eq!(keep(&snapshot(true, same())), CopyChange::Leave);
        assert_eq!(keep(&snapshot(false, same())), CopyChange::Drop);
        assert_eq!(keep(&snapshot(false, None)), CopyChange::Leave);
        for used in [true, false] {
            assert_eq!(
                keep(&snapshot(used, Some(StoredCopy::Foreign))),
                CopyChange::Blocked,
                "left alone"
            );
        }
        let torn = Snapshot { class: None, known: None, ..snapshot(true, old()) };
        assert_eq!(keep(&torn), CopyChange::Leave, "its machines need it to be deleted");
        assert_eq!(plan(&torn).hold, FinalizerChange::Keep, "there is nothing to hold");
    }

    #[test]
    fn what_is_kept_is_never_shown() {
        let data = BTreeMap::from([("password".to_owned(), b"secret".to_vec())]);
        assert_eq!(format!("{:?}", CopyChange::Write(data.clone())), "Write");
        assert_eq!(format!("{:?}", StoredCopy::Ours(data)), "Ours");
    }

    #[test]
    fn a_machine_uses_a_class_of_its_own_namespace_only() {
        let machine: Machine = serde_json::from_value(json!({
            "apiVersion": names::API_VERSION, "kind": "Machine",
            "metadata": { "name": "m", "namespace": "default" },
            "spec": { "class": { "kind": "MachineClass", "name": "c" } }
        }))
        .unwrap();
        assert!(uses_class(&machine, "default", "c"));
        assert!(!uses_class(&machine, "other", "c"));
        assert!(!uses_class(&machine, "default", "d"));
    }
}
