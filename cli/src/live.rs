//! The deployments, pools and machines as they are now, at the bottom of the terminal: of `ostler up`, and of `ostler status -w`
//! for any cluster.

use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use jiff::Timestamp;
use kube::Client;
use nix::sys::signal::Signal;
use ostler_api::{Machine, MachineDeployment, MachinePool, MachineReserve, MachineSet};
use ostler_controllers::Namespaces;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::groups::{self, Group};
use crate::watched::{Seen, watch};
use crate::{screen, table, waits};

/// Between two drawings: fast enough to follow, slow enough to read.
const EVERY: Duration = Duration::from_millis(250);

/// Ages are redrawn this often though nothing happens.
const AGES: Duration = Duration::from_secs(1);

/// Deployments and pools that are shown; more are counted.
const MOST_GROUPS: usize = 5;

/// The shown objects, and their place.
#[derive(Debug)]
pub(crate) struct Scope {
    /// Only objects of this namespace.
    pub(crate) namespace: Option<String>,
    /// The namespaces that a core serves, where that is known.
    pub(crate) served: Option<Namespaces>,
    /// Lines of the terminal that stay with the story.
    pub(crate) story_lines: usize,
    /// Whether the table is taken away at the end.
    pub(crate) clears: bool,
}

/// Draws deployments, pools and machines until the end.
pub(crate) async fn follow(client: Client, scope: Scope, end: CancellationToken) {
    let place = scope.namespace.as_deref();
    let mut of_deployments = pin!(watch::<MachineDeployment>(&client, place));
    let mut of_sets = pin!(watch::<MachineSet>(&client, place));
    let mut of_pools = pin!(watch::<MachinePool>(&client, place));
    let mut of_reserves = pin!(watch::<MachineReserve>(&client, place));
    let mut of_machines = pin!(watch::<Machine>(&client, place));
    let mut all = All::default();
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
                    all.draw(&scope);
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
            Some(event) = of_deployments.next() => changed |= all.deployments.take(event),
            Some(event) = of_sets.next() => changed |= all.sets.take(event),
            Some(event) = of_pools.next() => changed |= all.pools.take(event),
            Some(event) = of_reserves.next() => changed |= all.reserves.take(event),
            Some(event) = of_machines.next() => changed |= all.machines.take(event),
        }
    }
    if scope.clears {
        screen::keep_at_bottom(Vec::new());
    }
    screen::echo(true);
}

/// Each signal of this kind; none where it cannot be handled.
fn signals(kind: SignalKind) -> impl Stream<Item = ()> {
    stream::iter(signal(kind)).flat_map(|signals| {
        stream::unfold(signals, |mut it| async { it.recv().await.map(|()| ((), it)) })
    })
}

/// Everything that is shown.
#[derive(Default)]
struct All {
    deployments: Seen<MachineDeployment>,
    sets: Seen<MachineSet>,
    pools: Seen<MachinePool>,
    reserves: Seen<MachineReserve>,
    machines: Seen<Machine>,
}

impl All {
    fn draw(&self, scope: &Scope) {
        let (rows, columns) = screen::size();
        let deployments = self.deployments.objects.values().map(Group::of_deployment);
        let sets = self.sets.objects.values().filter_map(Group::of_set);
        let pools = self.pools.objects.values().map(Group::of_pool);
        let reserves = self.reserves.objects.values().map(Group::of_reserve);
        let groups: Vec<_> = deployments.chain(sets).chain(pools).chain(reserves).collect();
        let groups = groups.into_iter().map(|group| served_only(group, scope.served.as_ref()));
        let mut lines = of_groups(groups.collect(), columns);
        let room = rows.saturating_sub(scope.story_lines + lines.len());
        let machines: Vec<_> = self.machines.objects.values().collect();
        lines.extend(of_machines(&machines, Timestamp::now(), room, columns));
        let cut = |line: String| console::truncate_str(&line, columns, "…").into_owned();
        screen::keep_at_bottom(lines.into_iter().map(cut).collect());
    }
}

/// That it does not get on where no core serves its namespace.
fn served_only(mut group: Group, served: Option<&Namespaces>) -> Group {
    if served.is_some_and(|served| !served.contains(&group.namespace)) {
        group.progress = format!("no core serves namespace {}", group.namespace);
        group.state = "NotServed";
    }
    group
}

/// The table of deployments and pools, with an empty line below it.
fn of_groups(groups: Vec<Group>, columns: usize) -> Vec<String> {
    if groups.is_empty() {
        return Vec::new();
    }
    let (shown, surplus) = groups::table(groups, MOST_GROUPS);
    let text = table::fit(shown, columns, &groups::LESS);
    let more = (surplus > 0).then(|| format!("… and {surplus} more"));
    text.lines().map(str::to_owned).chain(more).chain([String::new()]).collect()
}

/// The table of machines, at most so many lines of it.
fn of_machines(machines: &[&Machine], now: Timestamp, most: usize, columns: usize) -> Vec<String> {
    if machines.is_empty() || most < 3 {
        return Vec::new();
    }
    let (shown, left) = waits::table(machines, now, most);
    let text = if shown.rows.is_empty() {
        String::new()
    } else {
        table::fit(shown, columns, &waits::LESS)
    };
    text.lines().map(str::to_owned).chain(left).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_tables_fit_into_the_lines_that_there_are() {
        let machine = |at: usize| -> Machine {
            let reason = format!("R{}", at / 2);
            serde_json::from_value(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
                "metadata": { "name": format!("m-{at}") },
                "spec": {}, "status": { "waitingFor": { "reason": reason } }
            }))
            .unwrap()
        };
        let machines: Vec<_> = (0..50).map(machine).collect();
        let machines: Vec<_> = machines.iter().collect();
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        let lines = of_machines(&machines, now, 10, 80);
        assert_eq!((lines.len(), lines[9].as_str()), (10, "… and 42 more rows"));
        assert!(of_machines(&[], now, 10, 80).is_empty());
        assert!(of_groups(Vec::new(), 80).is_empty());
    }
}
