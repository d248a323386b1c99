//! Another process that runs our sets without their Lease, as machine-controller-manager with `--leader-elect=false`
//! does. A Machine that this process neither created nor adopted in a set shows the other process. Two processes that
//! fill the same set fill it twice, so this core creates no Machines for the set until a user says who runs the set,
//! or the other process is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use ostler_api::machine::Machine;
use ostler_api::machine_set::MachineSet;
use ostler_api::names::annotation::RUN_BY;

use crate::time::after;

/// Value of [`RUN_BY`]: this core runs the set.
pub const US: &str = "ostler";

/// Another controller creates missing Machines within seconds. A process that made no Machine for so
/// long is gone.
const GONE: Duration = Duration::from_mins(10);

/// Known Machines of the sets since this process leads.
#[derive(Debug, Default)]
pub struct Roll {
    /// Namespace and name.
    known: BTreeSet<(String, String)>,
    /// By UID of the set.
    sighted: BTreeMap<String, Sighting>,
}

/// The last foreign Machine of a set.
#[derive(Debug)]
struct Sighting {
    machine: String,
    at: Timestamp,
}

/// Why a set creates nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Foreign {
    /// Another process made a Machine of the set.
    Appeared {
        /// The Machine.
        machine: String,
        /// When the process counts as gone, unless it makes another Machine.
        until: Timestamp,
    },
    /// An annotation of the set names another controller as the set's.
    Named(String),
}

impl Foreign {
    /// For people.
    pub fn message(&self) -> String {
        match self {
            Self::Appeared { machine, .. } => format!(
                "machine {machine} was made by another process, which runs this set without the lease \
                 machine-controller-manager; no machine is created until annotation {RUN_BY} says who runs it \
                 ({US:?}, or the name of the other one), or the other one made none for {} minutes",
                GONE.as_secs() / 60
            ),
            Self::Named(who) => format!("annotation {RUN_BY} says that {who} runs this set"),
        }
    }
}

fn key(machine: &Machine) -> (String, String) {
    (machine.metadata.namespace.clone().unwrap_or_default(), machine.name().to_owned())
}

impl Roll {
    /// A Machine present when the term began, or created or adopted by this process.
    pub fn ours(&mut self, machine: &Machine) {
        self.known.insert(key(machine));
    }

    /// A Machine that was there when the term began, and could not be read.
    pub fn was_there(&mut self, namespace: &str, name: &str) {
        self.known.insert((namespace.to_owned(), name.to_owned()));
    }

    /// Forgets deleted Machines and sets.
    pub fn prune(&mut self, machine_exists: impl Fn(&str, &str) -> bool, sets: &[&str]) {
        self.known.retain(|(namespace, name)| machine_exists(namespace, name));
        self.sighted.retain(|set, _| sets.contains(&set.as_str()));
    }

    /// How many Machines are known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no Machine is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Looks at the Machines of a set; this process created the ones in `created`. A result keeps the set from creating
    /// Machines.
    pub fn look<'a>(
        &mut self,
        set: &MachineSet,
        machines: impl IntoIterator<Item = &'a Machine>,
        created: &BTreeSet<String>,
        now: Timestamp,
    ) -> Option<Foreign> {
        let is_new = |machine: &&Machine| self.known.insert(key(machine));
        let strange = machines.into_iter().filter(is_new).filter(|it| !created.contains(it.name()));
        let strange = strange.last().map(|machine| machine.name().to_owned());
        match set.annotation(RUN_BY) {
            Some(US) => {
                self.sighted.remove(set.uid());
                return None;
            }
            Some(other) => return Some(Foreign::Named(other.to_owned())),
            None => {}
        }
        if let Some(machine) = strange {
            self.sighted.insert(set.uid().to_owned(), Sighting { machine, at: now });
        }
        let Sighting { machine, at } = self.sighted.get(set.uid())?;
        let until = after(*at, GONE);
        if now >= until {
            self.sighted.remove(set.uid());
            return None;
        }
        Some(Foreign::Appeared { machine: machine.clone(), until })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(name: &str) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": name, "namespace": "default" }, "spec": {}
        }))
        .unwrap()
    }

    fn set(run_by: Option<&str>) -> MachineSet {
        let annotations = run_by.map(|who| json!({ RUN_BY: who }));
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
            "metadata": { "name": "s", "uid": "u", "annotations": annotations }, "spec": {}
        }))
        .unwrap()
    }

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(minutes * 60).unwrap()
    }

    fn appeared(machine: &str, until: i64) -> Foreign {
        Foreign::Appeared { machine: machine.to_owned(), until: at(until) }
    }

    fn look(roll: &mut Roll, set: &MachineSet, machines: &[&Machine], now: i64) -> Option<Foreign> {
        roll.look(set, machines.iter().copied(), &BTreeSet::from(["made".to_owned()]), at(now))
    }

    #[test]
    fn machines_from_before_and_those_that_this_process_made_are_its_own() {
        let (mut roll, before, made) = (Roll::default(), machine("before"), machine("made"));
        roll.ours(&before);
        assert_eq!(look(&mut roll, &set(None), &[&before, &made], 0), None);
        let later = roll.look(&set(None), [&before, &made], &BTreeSet::new(), at(1));
        assert_eq!(later, None, "once it was seen, its creation may be forgotten");
        roll.was_there("default", "unread");
        assert_eq!(look(&mut roll, &set(None), &[&machine("unread")], 2), None, "it is fixed");
    }

    #[test]
    fn a_machine_of_another_process_stops_the_set_until_that_one_made_none_for_a_while() {
        let mut roll = Roll::default();
        let (set, first, second) = (set(None), machine("a"), machine("b"));
        assert_eq!(look(&mut roll, &set, &[&first], 0), Some(appeared("a", 10)));
        assert_eq!(look(&mut roll, &set, &[&first], 5), Some(appeared("a", 10)));
        assert_eq!(look(&mut roll, &set, &[&first, &second], 6), Some(appeared("b", 16)));
        assert_eq!(look(&mut roll, &set, &[&first, &second], 16), None);
        assert_eq!(look(&mut roll, &set, &[&first, &second], 17), None);
    }

    #[test]
    fn an_annotation_says_who_runs_the_set() {
        let mut roll = Roll::default();
        let strange = [&machine("a")];
        assert!(look(&mut roll, &set(None), &strange, 0).is_some());
        assert_eq!(look(&mut roll, &set(Some(US)), &strange, 1), None);
        assert_eq!(look(&mut roll, &set(None), &strange, 2), None, "its machines are known now");
        let named = look(&mut roll, &set(Some("mcm")), &strange, 3);
        assert_eq!(named, Some(Foreign::Named("mcm".to_owned())));
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let (mut roll, one) = (Roll::default(), machine("a"));
        look(&mut roll, &set(None), &[&one], 0);
        roll.prune(|_, _| true, &["u"]);
        assert_eq!((roll.len(), roll.sighted.len()), (1, 1));
        roll.prune(|_, _| false, &[]);
        assert!(roll.is_empty() && roll.sighted.is_empty());
    }
}
