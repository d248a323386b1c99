//! The deployments, pools and machines as they are now, at the bottom of the terminal.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use jiff::Timestamp;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource};
use nix::sys::signal::Signal;
use ostler_api::machine::{MachinePhase, MachineStep};
use ostler_api::{Machine, MachineDeployment, MachinePool};
use ostler_controllers::Namespaces;
use serde::de::DeserializeOwned;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::progress::{self, Progress};
use crate::screen;
use crate::table::{self, Table};

/// Between two drawings: fast enough to follow, slow enough to read.
const EVERY: Duration = Duration::from_millis(250);

/// Ages are redrawn this often though nothing happens.
const AGES: Duration = Duration::from_secs(1);

/// Deployments and pools that are shown; more are counted.
const MOST_GROUPS: usize = 5;

/// Lines of the terminal that stay with the story.
const STORY_LINES: usize = 8;

/// Draws deployments, pools and machines until the end, then takes them away.
pub(crate) async fn follow(client: Client, served: Option<Namespaces>, end: CancellationToken) {
    let mut of_deployments = pin!(watch_all::<MachineDeployment>(&client));
    let mut of_pools = pin!(watch_all::<MachinePool>(&client));
    let mut of_machines = pin!(watch_all::<Machine>(&client));
    let (mut deployments, mut pools, mut machines) =
        (Seen::default(), Seen::default(), Seen::default());
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // After both, the terminal is another than the one that was drawn to.
    let mut resized = pin!(signals(SignalKind::window_change()));
    let mut continued = pin!(signals(SignalKind::from_raw(Signal::SIGCONT as i32)));
    screen::echo(false);
    let (mut changed, mut drawn) = (true, Instant::now());
    loop {
        tokio::select! {
            () = end.cancelled() => break,
            _ = ticks.tick() => {
                if changed || drawn.elapsed() >= AGES {
                    draw(&deployments, &pools, &machines, served.as_ref());
                    (changed, drawn) = (false, Instant::now());
                }
            }
            Some(()) = resized.next() => {
                changed = true;
                ticks.reset_immediately();
            }
            Some(()) = continued.next() => {
                screen::echo(false);
                changed = true;
            }
            Some(event) = of_deployments.next() => changed |= deployments.take(event),
            Some(event) = of_pools.next() => changed |= pools.take(event),
            Some(event) = of_machines.next() => changed |= machines.take(event),
        }
    }
    screen::keep_at_bottom(Vec::new());
    screen::echo(true);
}

/// Each signal of this kind; none where it cannot be handled.
fn signals(kind: SignalKind) -> impl Stream<Item = ()> {
    stream::iter(signal(kind)).flat_map(|signals| {
        stream::unfold(signals, |mut it| async { it.recv().await.map(|()| ((), it)) })
    })
}

fn watch_all<K>(client: &Client) -> impl Stream<Item = watcher::Result<Event<K>>> + use<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watcher::watcher(Api::<K>::all(client.clone()), watcher::Config::default()).default_backoff()
}

fn draw(
    deployments: &Seen<MachineDeployment>,
    pools: &Seen<MachinePool>,
    machines: &Seen<Machine>,
    served: Option<&Namespaces>,
) {
    let (rows, columns) = screen::size();
    let groups =
        deployments.objects.values().map(|one| served_only(of_deployment(one), one, served));
    let of_pools = pools.objects.values().map(|one| served_only(of_pool(one), one, served));
    let mut lines = of_groups(groups.chain(of_pools).collect());
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

/// A deployment or pool: how far it is, its name, and how many machines are wanted, up to date, ready and available.
type Group = (Progress, String, [i32; 4]);

/// With its namespace where that is not the usual one; and that it does not get on where no core serves that.
fn served_only<K: Resource>(group: Group, one: &K, served: Option<&Namespaces>) -> Group {
    let (progress, name, numbers) = group;
    let namespace = one.meta().namespace.as_deref().unwrap_or_default();
    let name = match namespace {
        "" | "default" => name,
        other => format!("{name} -n {other}"),
    };
    match served {
        Some(served) if !served.contains(namespace) => {
            (Progress::GoesOn(format!("no core serves namespace {namespace}")), name, numbers)
        }
        Some(_) | None => (progress, name, numbers),
    }
}

fn of_deployment(one: &MachineDeployment) -> Group {
    let status = one.status.clone().unwrap_or_default();
    let (new, ready) = (status.updated_replicas, status.ready_replicas);
    let numbers = [one.spec.replicas(), new, ready, status.available_replicas];
    (progress::of(one), format!("machinedeployment/{}", one.name()), numbers)
}

fn of_pool(one: &MachinePool) -> Group {
    let status = one.status.clone().unwrap_or_default();
    let (new, ready) = (status.up_to_date_replicas, status.ready_replicas);
    let numbers = [one.replicas(), new, ready, status.available_replicas];
    (progress::of_pool(one), format!("machinepool/{}", one.name()), numbers)
}

/// The table of deployments and pools, with an empty line below it. Those that are not as wanted come first.
fn of_groups(mut groups: Vec<Group>) -> Vec<String> {
    if groups.is_empty() {
        return Vec::new();
    }
    let surplus = groups.len().saturating_sub(MOST_GROUPS);
    groups.sort_by_key(|(progress, ..)| progress.is_complete());
    let rows = groups.into_iter().take(MOST_GROUPS).map(|(progress, name, numbers)| {
        let progress = if progress.is_complete() { "complete" } else { progress.text() };
        let numbers = numbers.map(|number| number.to_string());
        std::iter::once(name).chain(numbers).chain([progress.to_owned()]).collect()
    });
    let heading = vec!["NAME", "WANTED", "UP-TO-DATE", "READY", "AVAILABLE", "PROGRESS"];
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
    fn deployments_and_pools_stand_above_the_machines_and_those_that_roll_come_first() {
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
        let pool = serde_json::from_value(json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
            "metadata": { "name": "p", "generation": 1 }, "spec": { "replicas": 2, "template": {} },
            "status": { "observedGeneration": 1, "replicas": 1, "readyReplicas": 1 }
        }));
        let groups = vec![of_deployment(&calm), of_deployment(&rolling), of_pool(&pool.unwrap())];
        let lines = of_groups(groups);
        for (line, name, progress) in [
            (1, "machinedeployment/b ", "1 of 3 machines are replaced"),
            (2, "machinepool/p ", "1 of 2 machines running"),
            (3, "machinedeployment/a ", "complete"),
        ] {
            assert!(lines[line].starts_with(name) && lines[line].ends_with(progress), "{lines:?}");
        }
        assert_eq!(lines[4], "");
        assert!(of_groups(Vec::new()).is_empty());
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
