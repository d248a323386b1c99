//! Machines that an autoscaler chose for deletion: an annotation of the deployment lists them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use ostler_api::machine::MachinePhase;
use ostler_api::names::annotation;
use ostler_api::{Machine, MachineDeployment};
use serde_json::{Value, json};

/// The priority of a Machine that goes first.
const FIRST: &str = "1";

/// The autoscaler's list as read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// The chosen Machines, and when they were chosen.
    pub chosen: BTreeMap<String, String>,
    /// Entries that cannot be read.
    pub malformed: Vec<String>,
    /// When the autoscaler changed the replicas, if the deployment does not say so yet.
    pub changed_at: Option<String>,
}

impl Marks {
    /// Reads the list. Machines that are gone, going or failed are not on it any more: the set deletes those anyway.
    pub fn read<'a>(
        deployment: &MachineDeployment,
        machines: impl Iterator<Item = &'a Machine>,
        now: Timestamp,
    ) -> Self {
        let mut marks = Self::default();
        let Some(list) = deployment.annotation(annotation::TRIGGER_DELETION) else { return marks };
        let waits = |one: &&Machine| !one.is_deleting() && one.phase() != MachinePhase::Failed;
        let names: BTreeSet<_> = machines.filter(waits).map(Machine::name).collect();
        for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (name, time) = match entry.split_once('~') {
                Some((name, time)) if time.parse::<Timestamp>().is_ok() => (name, time.to_owned()),
                // The old form.
                None => (entry, marks.change_time(deployment, now)),
                Some(_) => ("", String::new()),
            };
            if name.is_empty() || name.contains(char::is_whitespace) {
                marks.malformed.push(entry.to_owned());
            } else if names.contains(name) {
                marks.chosen.entry(name.to_owned()).or_insert(time);
            }
        }
        marks
    }

    fn change_time(&mut self, deployment: &MachineDeployment, now: Timestamp) -> String {
        let known = deployment.annotation(annotation::REPLICAS_CHANGED_BY_SCALER);
        if let Some(known) = known.filter(|text| text.parse::<Timestamp>().is_ok()) {
            return known.to_owned();
        }
        let now = format!("{now:.0}");
        self.changed_at.get_or_insert(now).clone()
    }

    /// The list as it is to be; `None`: nothing is on it.
    pub fn list(&self) -> Option<String> {
        let entries = self.chosen.iter().map(|(name, time)| format!("{name}~{time}"));
        let list = entries.collect::<Vec<_>>().join(",");
        (!list.is_empty()).then_some(list)
    }

    /// The patch of a Machine's annotations; `None`: no change. A Machine taken off the list before its deletion gets
    /// the default priority back.
    pub fn annotations(&self, machine: &Machine) -> Option<Value> {
        let priority = machine.annotation(annotation::PRIORITY);
        let marked = machine.annotation(annotation::MARKED_FOR_DELETION);
        match self.chosen.get(machine.name()) {
            Some(_) if priority == Some(FIRST) && marked.is_some() => None,
            Some(time) => Some(json!({
                annotation::PRIORITY: FIRST,
                annotation::MARKED_FOR_DELETION: marked.unwrap_or(time),
            })),
            None if marked.is_some() && is_undone(machine) => Some(json!({
                annotation::PRIORITY: annotation::DEFAULT_PRIORITY,
                annotation::MARKED_FOR_DELETION: null,
            })),
            None => None,
        }
    }

    /// Names of the chosen Machines whose deletion the autoscaler counted in the written replicas.
    pub fn due(&self, deployment: &MachineDeployment) -> BTreeSet<String> {
        let changed = self.changed_at.as_deref();
        let changed =
            changed.or_else(|| deployment.annotation(annotation::REPLICAS_CHANGED_BY_SCALER));
        let Some(changed) = changed.and_then(|text| text.parse::<Timestamp>().ok()) else {
            return BTreeSet::new();
        };
        let is_due = |time: &str| time.parse::<Timestamp>().is_ok_and(|time| time <= changed);
        self.chosen.iter().filter(|(_, time)| is_due(time)).map(|(name, _)| name.clone()).collect()
    }
}

fn is_undone(machine: &Machine) -> bool {
    let goes = machine.is_deleting() || machine.phase() == MachinePhase::Failed;
    machine.annotation(annotation::PRIORITY) == Some(FIRST) && !goes
}
