//! Another process that runs our sets without their Lease, as machine-controller-manager with `--leader-elect=false`
//! does. It shows itself by Machines under a set that this process neither created nor adopted. Two that fill the same
//! set fill it twice, so this one stops creating for it until a user says who runs it, or the other one is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use ostler_api::machine::Machine;
use ostler_api::machine_set::MachineSet;
use ostler_api::names::annotation::RUN_BY;

use crate::machine::pass::after;

/// Value of [`RUN_BY`]: this core runs the set.
pub const US: &str = "ostler";

/// Another controller creates missing Machines within seconds. One that made none for so long is gone.
const GONE: Duration = Duration::from_mins(10);

/// What this process knows of the Machines of its sets since it leads.
#[derive(Debug, Default)]
pub struct Roll {
    known: BTreeSet<(String, String)>,
    sighted: BTreeMap<String, Sighting>,
}

/// The last foreign Machine of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// Its name.
    pub machine: String,
    /// When it was seen first.
    pub at: Timestamp,
}

/// Why a set creates nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Foreign {
    /// Another process made a Machine of it.
    Appeared {
        /// The Machine.
        machine: String,
        /// That process counts as gone then, unless it makes another one.
        until: Timestamp,
        /// It was seen just now: an event is due.
        is_news: bool,
    },
    /// The set says who runs it, and that is not this core.
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
    /// Begins a term: what is there now was made before it.
    pub fn new<'a>(machines: impl IntoIterator<Item = &'a Machine>) -> Self {
        Self { known: machines.into_iter().map(key).collect(), sighted: BTreeMap::new() }
    }

    /// This process is about to create a Machine of this name, or to adopt it.
    pub fn ours(&mut self, namespace: &str, name: &str) {
        self.known.insert((namespace.to_owned(), name.to_owned()));
    }

    /// A Machine is gone.
    pub fn gone(&mut self, machine: &Machine) {
        self.known.remove(&key(machine));
    }

    /// A set is gone.
    pub fn set_gone(&mut self, set: &MachineSet) {
        self.sighted.remove(set.uid());
    }

    /// Looks at the Machines that a set controls. What it returns keeps the set from creating any.
    pub fn look<'a>(
        &mut self,
        set: &MachineSet,
        machines: impl IntoIterator<Item = &'a Machine>,
        now: Timestamp,
    ) -> Option<Foreign> {
        // Each is news once.
        let strange = machines.into_iter().filter(|machine| self.known.insert(key(machine))).last();
        match set.annotation(RUN_BY) {
            Some(US) => {
                self.sighted.remove(set.uid());
                return None;
            }
            Some(other) => return Some(Foreign::Named(other.to_owned())),
            None => {}
        }
        if let Some(machine) = strange {
            let sighting = Sighting { machine: machine.name().to_owned(), at: now };
            self.sighted.insert(set.uid().to_owned(), sighting);
        }
        let Sighting { machine, at } = self.sighted.get(set.uid())?;
        let until = after(*at, GONE);
        if now >= until {
            self.sighted.remove(set.uid());
            return None;
        }
        Some(Foreign::Appeared { machine: machine.clone(), until, is_news: strange.is_some() })
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

    fn appeared(machine: &str, until: i64, is_news: bool) -> Foreign {
        Foreign::Appeared { machine: machine.to_owned(), until: at(until), is_news }
    }

    #[test]
    fn machines_from_before_and_those_that_this_process_made_are_its_own() {
        let before = machine("before");
        let mut roll = Roll::new([&before]);
        roll.ours("default", "made");
        assert_eq!(roll.look(&set(None), &[before, machine("made")], at(0)), None);
    }

    #[test]
    fn a_machine_of_another_process_stops_the_set_until_that_one_made_none_for_a_while() {
        let mut roll = Roll::default();
        let (set, first, second) = (set(None), machine("a"), machine("b"));
        assert_eq!(roll.look(&set, [&first], at(0)), Some(appeared("a", 10, true)));
        assert_eq!(
            roll.look(&set, [&first], at(5)),
            Some(appeared("a", 10, false)),
            "one event each"
        );
        assert_eq!(roll.look(&set, [&first, &second], at(6)), Some(appeared("b", 16, true)));
        assert_eq!(roll.look(&set, [&first, &second], at(16)), None);
        assert_eq!(roll.look(&set, [&first, &second], at(17)), None);
    }

    #[test]
    fn an_annotation_says_who_runs_the_set() {
        let mut roll = Roll::default();
        let strange = [machine("a")];
        assert!(roll.look(&set(None), &strange, at(0)).is_some());
        assert_eq!(roll.look(&set(Some(US)), &strange, at(1)), None);
        assert_eq!(roll.look(&set(None), &strange, at(2)), None, "its machines are known now");
        let named = roll.look(&set(Some("mcm")), &strange, at(3));
        assert_eq!(named, Some(Foreign::Named("mcm".to_owned())));
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let (mut roll, one) = (Roll::default(), machine("a"));
        roll.look(&set(None), [&one], at(0));
        roll.gone(&one);
        roll.set_gone(&set(None));
        assert_eq!((roll.known.len(), roll.sighted.len()), (0, 0));
    }
}
