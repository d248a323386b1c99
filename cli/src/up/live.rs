//! The deployments and machines as they are now, at the bottom of the terminal.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Client, Resource};
use ostler_api::machine::{MachinePhase, MachineStep};
use ostler_api::{Machine, MachineDeployment};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::rollout::progress;
use crate::screen;
use crate::table::{self, Table};

/// Between two drawings: fast enough to follow, slow enough to read.
const EVERY: Duration = Duration::from_millis(250);

/// Ages are redrawn this often though nothing happens.
const AGES: Duration = Duration::from_secs(1);

/// Deployments that are shown; more are counted.
const MOST_DEPLOYMENTS: usize = 5;

/// Lines of the terminal that stay with the story.
const STORY_LINES: usize = 8;

/// Draws deployments and machines until the end, then takes them away.
pub(crate) async fn follow(client: Client, end: CancellationToken) {
    let fleet = Api::<MachineDeployment>::all(client.clone());
    let mut fleet = pin!(watch(fleet, watcher::Config::default()).default_backoff());
    let events = watch(Api::<Machine>::all(client), watcher::Config::default()).default_backoff();
    let mut events = pin!(events);
    let (mut deployments, mut machines) = (Seen::default(), Seen::default());
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut changed, mut drawn) = (true, Instant::now());
    loop {
        tokio::select! {
            () = end.cancelled() => break,
            _ = ticks.tick() => {
                if changed || drawn.elapsed() >= AGES {
                    draw(&deployments, &machines);
                    (changed, drawn) = (false, Instant::now());
                }
            }
            Some(event) = fleet.next() => changed |= deployments.take(event),
            Some(event) = events.next() => changed |= machines.take(event),
        }
    }
    screen::keep_at_bottom(Vec::new());
}

fn draw(deployments: &Seen<MachineDeployment>, machines: &Seen<Machine>) {
    let (rows, columns) = screen::size();
    let mut lines = of_deployments(&deployments.objects.values().collect::<Vec<_>>());
    let rows = rows.saturating_sub(STORY_LINES + lines.len());
    lines.extend(self::lines(machines.objects.values().collect(), Timestamp::now(), rows));
    let cut = |line: String| console::truncate_str(&line, columns, "…").into_owned();
    screen::keep_at_bottom(lines.into_iter().map(cut).collect());
}

type Objects<K> = BTreeMap<(String, String), K>;

/// The objects of a kind, and those of a list that has not ended.
struct Seen<K> {
    objects: Objects<K>,
    relisted: Objects<K>,
}

impl<K> Default for Seen<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), relisted: BTreeMap::new() }
    }
}

impl<K: Resource> Seen<K> {
    /// Whether the objects are others now.
    fn take(&mut self, event: Result<Event<K>, watcher::Error>) -> bool {
        let key = |object: &K| {
            let meta = object.meta();
            (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
        };
        match event {
            // The watcher backs off and goes on by itself.
            Err(error) => tracing::debug!(%error, "a watch was interrupted"),
            Ok(Event::Init) => self.relisted.clear(),
            Ok(Event::InitApply(object)) => drop(self.relisted.insert(key(&object), object)),
            Ok(Event::InitDone) => {
                self.objects = std::mem::take(&mut self.relisted);
                return true;
            }
            Ok(Event::Apply(object)) => {
                self.objects.insert(key(&object), object);
                return true;
            }
            Ok(Event::Delete(object)) => return self.objects.remove(&key(&object)).is_some(),
        }
        false
    }
}

/// The table of the deployments, with an empty line below it. Those that are not rolled out come first.
fn of_deployments(deployments: &[&MachineDeployment]) -> Vec<String> {
    if deployments.is_empty() {
        return Vec::new();
    }
    let surplus = deployments.len().saturating_sub(MOST_DEPLOYMENTS);
    let mut shown: Vec<_> = deployments.iter().map(|one| (progress::of(one), *one)).collect();
    shown.sort_by_key(|(progress, _)| progress.is_complete());
    let rows = shown.iter().take(MOST_DEPLOYMENTS).map(|(progress, deployment)| {
        let status = deployment.status.clone().unwrap_or_default();
        let rollout = if progress.is_complete() { "complete" } else { progress.text() };
        vec![
            deployment.name().to_owned(),
            deployment.spec.replicas.to_string(),
            status.updated_replicas.to_string(),
            status.ready_replicas.to_string(),
            status.available_replicas.to_string(),
            rollout.to_owned(),
        ]
    });
    let heading = vec!["DEPLOYMENT", "WANTED", "UP-TO-DATE", "READY", "AVAILABLE", "ROLLOUT"];
    let text = table::render(&Table { heading, rows: rows.collect() });
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if surplus > 0 {
        lines.push(format!("… and {surplus} more"));
    }
    lines.push(String::new());
    lines
}

/// The table, at most so many lines of it. Machines on which something is going on come first.
fn lines(mut machines: Vec<&Machine>, now: Timestamp, most: usize) -> Vec<String> {
    if machines.is_empty() || most < 3 {
        return Vec::new();
    }
    machines.sort_by_key(|machine| rests(machine));
    // The heading, and a line about those that are not shown.
    let room = if machines.len() < most { machines.len() } else { most - 2 };
    let rows = machines.iter().take(room).map(|machine| row(machine, now)).collect();
    let heading = vec!["MACHINE", "PHASE", "STEP", "WAITS FOR", "NODE", "AGE"];
    let text = table::render(&Table { heading, rows });
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let left = machines.len().saturating_sub(room);
    if left > 0 {
        lines.push(format!("… and {left} more"));
    }
    lines
}

/// Nothing is done for it, and nothing waited for.
fn rests(machine: &Machine) -> bool {
    let status = machine.status.as_ref();
    !machine.is_deleting()
        && machine.phase() == MachinePhase::Running
        && status.is_none_or(|status| status.step.is_none() && status.waiting_for.is_none())
}

fn row(machine: &Machine, now: Timestamp) -> Vec<String> {
    let status = machine.status.as_ref();
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let made = machine.metadata.creation_timestamp.as_ref();
    let phase = machine.phase();
    vec![
        machine.name().to_owned(),
        phase.as_str().to_owned(),
        text(status.and_then(|it| it.step.as_ref()).map(MachineStep::as_str)),
        text(status.and_then(|it| it.waiting_for.as_ref()).map(|it| it.reason.as_str())),
        text(machine.node_name()),
        made.map(|made| table::span(now.duration_since(made.0))).unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn machine(name: &str, status: &Value) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": name, "creationTimestamp": "2026-01-01T11:59:00Z" },
            "spec": {}, "status": status
        }))
        .unwrap()
    }

    fn noon() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn machines_on_which_something_goes_on_come_first() {
        let calm = machine("a", &json!({ "currentStatus": { "phase": "Running" } }));
        let busy = machine(
            "b",
            &json!({
                "currentStatus": { "phase": "Pending" }, "step": "JoinNode",
                "waitingFor": { "reason": "NodeMissing" }
            }),
        );
        let lines = lines(vec![&calm, &busy], noon(), 20);
        assert!(lines[0].starts_with("MACHINE"), "{lines:?}");
        assert!(lines[1].starts_with("b ") && lines[1].contains("NodeMissing"), "{lines:?}");
        assert!(lines[2].starts_with("a ") && lines[2].ends_with("1m0s"), "{lines:?}");
    }

    #[test]
    fn deployments_stand_above_the_machines_and_those_that_roll_come_first() {
        let deployment = |name: &str, updated: i32| -> MachineDeployment {
            serde_json::from_value(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
                "metadata": { "name": name, "generation": 1 }, "spec": { "replicas": 3 },
                "status": {
                    "observedGeneration": 1, "replicas": 3, "updatedReplicas": updated,
                    "readyReplicas": 3, "availableReplicas": 3
                }
            }))
            .unwrap()
        };
        let (calm, rolling) = (deployment("a", 3), deployment("b", 1));
        let lines = of_deployments(&[&calm, &rolling]);
        assert!(
            lines[1].starts_with("b ") && lines[1].ends_with("1 of 3 machines are replaced"),
            "{lines:?}"
        );
        assert!(lines[2].starts_with("a ") && lines[2].ends_with("complete"), "{lines:?}");
        assert_eq!(lines[3], "");
        assert!(of_deployments(&[]).is_empty());
    }

    #[test]
    fn more_machines_than_lines_are_counted() {
        let machines: Vec<Machine> =
            (0..50).map(|index| machine(&format!("m-{index}"), &json!({}))).collect();
        let lines = lines(machines.iter().collect(), noon(), 10);
        assert_eq!(lines.len(), 10);
        assert_eq!(lines[9], "… and 42 more");
        assert!(super::lines(Vec::new(), noon(), 10).is_empty());
    }
}
