//! The waits of machines, grouped: one problem is one line. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use ostler_api::Machine;
use ostler_api::machine::{MachinePhase, MachineStep};
use serde::Serialize;

use crate::describe::hint;
use crate::groups::are_several;
use crate::table::{Table, span};

/// The wait of one machine.
#[derive(Debug, Clone)]
pub(crate) struct Wait<'a> {
    pub(crate) reason: String,
    pub(crate) since: Option<Timestamp>,
    pub(crate) message: Option<&'a str>,
}

/// `None`: nothing. One whose driver has not answered yet waits for that, and a new one for the core.
pub(crate) fn wait(machine: &Machine) -> Option<Wait<'_>> {
    if let Some(wait) = machine.status.as_ref().and_then(|status| status.waiting_for.as_ref()) {
        let (since, message) = (wait.since.as_ref().map(|it| it.0), wait.message.as_deref());
        return Some(Wait { reason: wait.reason.to_string(), since, message });
    }
    if let Some(open) = machine.intent() {
        let since = open.started_at.as_ref().map(|it| it.0);
        return Some(Wait { reason: format!("the driver: {}", open.kind), since, message: None });
    }
    let since = machine.metadata.creation_timestamp.as_ref().map(|it| it.0);
    let new = || Wait { reason: "the core".to_owned(), since, message: None };
    machine.status.is_none().then(new)
}

/// Machines that wait for the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Waits {
    pub(crate) reason: String,
    pub(crate) machines: usize,
    /// The machine that waits longest.
    pub(crate) oldest: String,
    pub(crate) namespace: String,
    pub(crate) since: Option<Timestamp>,
    /// The message of that machine.
    pub(crate) message: Option<String>,
    /// The hint for a person.
    pub(crate) hint: Option<&'static str>,
}

/// By reason, that of most machines first.
pub(crate) fn grouped<'a>(machines: impl Iterator<Item = &'a Machine>) -> Vec<Waits> {
    let mut by_reason = BTreeMap::<String, Vec<(&Machine, Wait<'_>)>>::new();
    for machine in machines {
        if let Some(wait) = wait(machine) {
            by_reason.entry(wait.reason.clone()).or_default().push((machine, wait));
        }
    }
    let group = |(reason, all): (String, Vec<(&Machine, Wait<'_>)>)| {
        let oldest = all.iter().min_by_key(|(_, it)| (it.since.is_none(), it.since))?;
        Some(Waits {
            hint: hint(&reason.as_str().into()),
            reason,
            machines: all.len(),
            oldest: oldest.0.name().to_owned(),
            namespace: oldest.0.metadata.namespace.clone().unwrap_or_default(),
            since: oldest.1.since,
            message: oldest.1.message.map(str::to_owned),
        })
    };
    let mut all: Vec<Waits> = by_reason.into_iter().filter_map(group).collect();
    all.sort_by_key(|it| std::cmp::Reverse(it.machines));
    all
}

/// At most so many machines at rest get a row each; more are counted.
const MOST_RESTING: usize = 5;
/// At most so many machines with the same trouble get a row each.
const MOST_ALIKE: usize = 2;

/// Columns in the order in which they are left out of a table that is too wide.
pub(crate) const LESS: [&str; 4] = ["NODE", "AGE", "STEP", "PHASE"];

/// Nothing is done for it, and nothing waited for.
pub(crate) fn rests(machine: &Machine) -> bool {
    let step = machine.status.as_ref().and_then(|status| status.step.as_ref());
    !machine.is_deleting()
        && matches!(machine.phase(), MachinePhase::Running | MachinePhase::Available)
        && step.is_none()
        && wait(machine).is_none()
}

/// The machines as a table of at most `most` rows, and the rest in words. Busy machines come first; machines with the same
/// trouble share one row.
pub(crate) fn table(machines: &[&Machine], now: Timestamp, most: usize) -> (Table, Vec<String>) {
    let several =
        are_several(machines.iter().map(|it| it.metadata.namespace.as_deref().unwrap_or("")));
    let mut alike = BTreeMap::<_, Vec<&Machine>>::new();
    let mut resting = Vec::new();
    for &machine in machines {
        if rests(machine) {
            resting.push(machine);
            continue;
        }
        let reason = wait(machine).map(|it| it.reason);
        let key = (reason.is_none(), reason, machine.phase().word().to_owned(), step(machine));
        alike.entry(key).or_default().push(machine);
    }
    let mut rows = Vec::new();
    for group in alike.values() {
        if let [first, ..] = group.as_slice()
            && group.len() > MOST_ALIKE
        {
            let oldest =
                group.iter().min_by_key(|it| wait(it).map(|it| (it.since.is_none(), it.since)));
            let mut row = row(oldest.unwrap_or(first), now, several);
            let same = |other: &&Machine| other.metadata.namespace == first.metadata.namespace;
            if let [name, namespace, ..] = row.as_mut_slice() {
                *name = format!("{} machines", group.len());
                if !group.iter().all(same) {
                    namespace.clear();
                }
            }
            row.truncate(NODE);
            row.extend([String::new(), String::new()]);
            rows.push(row);
        } else {
            rows.extend(group.iter().map(|machine| row(machine, now, several)));
        }
    }
    let few = resting.len() <= MOST_RESTING;
    if few {
        rows.extend(resting.drain(..).map(|machine| row(machine, now, several)));
    }
    let mut left = Vec::new();
    // The heading, and lines about those that are not shown.
    let room = most.saturating_sub(2 + usize::from(!few));
    if rows.len() > room {
        left.push(format!("… and {} more rows", rows.len() - room));
        rows.truncate(room);
    }
    if !resting.is_empty() {
        let all = if rows.is_empty() { "all " } else { "" };
        left.push(format!("{all}{} machines run, and nothing is to be done", resting.len()));
    }
    let heading = vec!["MACHINE", "NAMESPACE", "WAITS FOR", "FOR", "PHASE", "STEP", "NODE", "AGE"];
    (Table { heading, rows }, left)
}

/// The column of a Node, which many machines have not in common.
const NODE: usize = 6;

fn step(machine: &Machine) -> String {
    let step = machine.status.as_ref().and_then(|it| it.step.as_ref());
    step.map(MachineStep::as_str).unwrap_or_default().to_owned()
}

fn row(machine: &Machine, now: Timestamp, several: bool) -> Vec<String> {
    let wait = wait(machine);
    let ago = |at: Option<Timestamp>| at.map(|at| span(now.duration_since(at))).unwrap_or_default();
    let namespace = machine.metadata.namespace.clone().filter(|_| several);
    let node = machine.node_name().filter(|node| *node != machine.name());
    vec![
        machine.name().to_owned(),
        namespace.unwrap_or_default(),
        wait.as_ref().map(|it| it.reason.clone()).unwrap_or_default(),
        ago(wait.and_then(|it| it.since)),
        machine.phase().word().to_owned(),
        step(machine),
        node.unwrap_or_default().to_owned(),
        ago(machine.metadata.creation_timestamp.as_ref().map(|it| it.0)),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::table::fit;

    fn noon() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn machine(name: &str, status: &Value) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": name, "namespace": "default", "creationTimestamp": "2026-01-01T11:00:00Z"
            },
            "spec": {}, "status": status
        }))
        .unwrap()
    }

    fn waiting(name: &str, reason: &str, since: &str) -> Machine {
        let status = json!({
            "currentStatus": { "phase": "Pending" }, "step": "CreateInstance",
            "waitingFor": { "reason": reason, "since": since, "message": "vCPU quota" }
        });
        machine(name, &status)
    }

    fn all() -> Vec<Machine> {
        let running = json!({ "currentStatus": { "phase": "Running" } });
        let short = |at: usize| {
            let since = format!("2026-01-01T11:{at:02}:00Z");
            waiting(&format!("short-{at}"), "CapacityExhausted", &since)
        };
        let asked = json!({
            "currentStatus": { "phase": "Running" },
            "operation": {
                "id": "1", "kind": "UpdateMachine", "idempotencyKey": "k", "term": 1, "attempt": 1,
                "startedAt": "2026-01-01T11:59:48Z"
            }
        });
        let mut all: Vec<Machine> = (10..30).rev().map(short).collect();
        all.push(machine("asked", &asked));
        all.push(waiting("late", "NodeNotJoined", "2026-01-01T11:58:00Z"));
        all.extend((0..200).map(|at| machine(&format!("calm-{at}"), &running)));
        all
    }

    #[test]
    fn waits_are_counted_by_reason_with_the_machine_that_waits_longest() {
        let all = all();
        let said: Vec<_> = grouped(all.iter())
            .into_iter()
            .map(|it| format!("{} {} {}", it.reason, it.machines, it.oldest))
            .collect();
        let expected = [
            "CapacityExhausted 20 short-10",
            "NodeNotJoined 1 late",
            "the driver: UpdateMachine 1 asked",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn one_problem_is_one_row_and_machines_at_rest_are_counted() {
        let all = all();
        let (table, left) = table(&all.iter().collect::<Vec<_>>(), noon(), 10);
        assert_eq!(left, ["200 machines run, and nothing is to be done"]);
        insta::assert_snapshot!(fit(table, 100, &LESS), @r"
        MACHINE       WAITS FOR                   FOR     PHASE     STEP             AGE
        20 machines   CapacityExhausted           50m0s   Pending   CreateInstance   -
        late          NodeNotJoined               2m0s    Pending   CreateInstance   1h0m
        asked         the driver: UpdateMachine   12s     Running   -                1h0m
        ");
    }

    #[test]
    fn more_rows_than_lines_are_counted_and_what_goes_on_comes_first() {
        let mut all: Vec<_> = (0..30)
            .map(|at| waiting(&format!("m-{at}"), &format!("R{at:02}"), "2026-01-01T11:00:00Z"))
            .collect();
        all.insert(0, machine("calm", &json!({ "currentStatus": { "phase": "Running" } })));
        let (table, left) = table(&all.iter().collect::<Vec<_>>(), noon(), 10);
        assert_eq!((table.rows.len(), table.rows[0][0].as_str()), (8, "m-0"));
        assert_eq!(left, ["… and 23 more rows"]);
    }
}
