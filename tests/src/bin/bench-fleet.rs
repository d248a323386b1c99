//! Measures MachineDeployments and MachinePools against bare Machines, in rounds that take turns, on real processes: API server, core
//! and fake driver with no latency.
//!
//! `cargo run --release -p ostler-tests --bin bench-fleet -- [MACHINES] [ROUNDS] [LARGE] [POOL]`

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and stops where it cannot measure"
)]

use std::time::{Duration, Instant};

use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent};
use kube::{Client, ResourceExt as _};
use ostler_api::machine::Machine;
use ostler_api::{MachineDeployment, MachinePool, MachineSet};
use ostler_tests::bench::{
    Kind, apply, apply_class, client, create, delete, follow, revision, row, watch_from,
};
use ostler_tests::stack::{Part, Stack};
use serde_json::json;

/// The deployment, and the pool.
const NAME: &str = "fleet";
/// Changes of one machine.
const CHANGES: usize = 100;
/// Between two changes that nothing is to come of.
const PAUSE: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).map(|it| it.parse().expect("a number"));
    let machines = numbers.next().unwrap_or(1000);
    let rounds = numbers.next().unwrap_or(3);
    let large = numbers.next().unwrap_or(5000);
    let pool = numbers.next().unwrap_or(10_000);
    let Some(mut stack) = Stack::start() else { return };
    stack.core_args(["--controllers=*"]);
    stack.replace_core();
    apply_class(&stack);
    let client = client(&stack).await;
    let mut fleet = Fleet { client, stack };

    let names: Vec<String> = (0..machines).map(|index| format!("bare-{index:05}")).collect();
    let (mut bare, mut made, mut rolled) = (Vec::new(), Vec::new(), Vec::new());
    let mut grown = Vec::new();
    for _ in 0..rounds {
        let from = fleet.read().await;
        create(&fleet.client, &names).await;
        bare.push(fleet.read().await.since(&from));
        delete(&fleet.client, &names).await;

        let from = fleet.read().await;
        fleet.make(machines).await;
        made.push(fleet.read().await.since(&from));
        let from = fleet.read().await;
        fleet.roll().await;
        rolled.push(fleet.read().await.since(&from));
        fleet.remove::<MachineDeployment>().await;

        let from = fleet.read().await;
        fleet.grow(machines).await;
        grown.push(fleet.read().await.since(&from));
        fleet.remove::<MachinePool>().await;
    }
    for (what, costs) in [
        (format!("{machines} bare machines, until all run"), &mut bare),
        (format!("a deployment of {machines}, until all are available"), &mut made),
        (format!("a rollout of {machines} with 10% surge"), &mut rolled),
        (format!("a pool of {machines}, until all are available"), &mut grown),
    ] {
        show(&what, costs, machines);
    }
    for size in [100, large] {
        fleet.changes(size).await;
    }
    fleet.large_pool(pool).await;
}

struct Fleet {
    client: Client,
    stack: Stack,
}

/// The cost so far, or of an interval.
#[derive(Debug, Clone, Copy)]
struct Cost {
    at: Instant,
    time: Duration,
    writes: u64,
    core: Duration,
    api: Duration,
    set_passes: f64,
    set_writes: f64,
    deployment_passes: f64,
    deployment_writes: f64,
}

impl Cost {
    fn since(self, before: &Self) -> Self {
        Self {
            at: self.at,
            time: self.at.saturating_duration_since(before.at),
            writes: self.writes - before.writes,
            core: self.core.saturating_sub(before.core),
            api: self.api.saturating_sub(before.api),
            set_passes: self.set_passes - before.set_passes,
            set_writes: self.set_writes - before.set_writes,
            deployment_passes: self.deployment_passes - before.deployment_passes,
            deployment_writes: self.deployment_writes - before.deployment_writes,
        }
    }
}

impl Fleet {
    async fn read(&mut self) -> Cost {
        let at = Instant::now();
        let metric = |name: &str| self.stack.metric(name);
        Cost {
            at,
            time: Duration::ZERO,
            writes: revision(&self.client).await,
            set_passes: metric("mcm_workqueue_work_duration_seconds_count{name=\"machineset\""),
            set_writes: metric("ostler_api_writes_total{kind=\"MachineSet\""),
            deployment_passes: metric(
                "mcm_workqueue_work_duration_seconds_count{name=\"machinedeployment\"",
            ),
            deployment_writes: metric("ostler_api_writes_total{kind=\"MachineDeployment\""),
            core: self.stack.cpu(Part::Core),
            api: self.stack.cpu(Part::Api),
        }
    }

    fn api<K: Kind>(&self) -> Api<K> {
        Api::default_namespaced(self.client.clone())
    }

    /// Creates the deployment, and waits until all of its machines are available.
    async fn make(&self, machines: usize) {
        let api = self.api::<MachineDeployment>();
        let from = watch_from(&api).await;
        let deployment = serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1",
            "kind": "MachineDeployment",
            "metadata": { "name": NAME },
            "spec": {
                "replicas": machines,
                "selector": { "matchLabels": { "app": NAME } },
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": { "maxSurge": "10%", "maxUnavailable": 0 },
                },
                "template": {
                    "metadata": { "labels": { "app": NAME, "seen": "yes" } },
                    "spec": { "class": { "kind": "MachineClass", "name": "fake" } },
                },
            },
        }));
        let deployment = deployment.expect("the manifest is a MachineDeployment");
        api.create(&PostParams::default(), &deployment).await.expect("it is accepted");
        follow(&api, &from, |event| is_complete(&event)).await;
    }

    /// Changes the template, and waits until only machines of the new one are left.
    async fn roll(&self) {
        let api = self.api::<MachineDeployment>();
        let patch =
            json!({ "spec": { "template": { "metadata": { "labels": { "new": "yes" } } } } });
        let params = PatchParams::default();
        let written = api.patch(NAME, &params, &Patch::Merge(&patch)).await;
        let from = written.expect("it is accepted").resource_version().expect("it has a version");
        follow(&api, &from, |event| is_complete(&event)).await;
    }

    async fn remove<K: Kind>(&self) {
        let api = self.api::<K>();
        let from = watch_from(&api).await;
        api.delete(NAME, &DeleteParams::default()).await.expect("it can be deleted");
        follow(&api, &from, |event| matches!(event, WatchEvent::Deleted(_))).await;
    }

    /// Measures the cost of one change of one machine, by the size of its set.
    async fn changes(&mut self, machines: usize) {
        self.make(machines).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let resident = self.stack.resident_kib(Part::Core) / 1024;
        println!("{machines} machines in a deployment: the core has {resident} MiB");
        let machine = self.api::<Machine>().list(&ListParams::default().limit(1)).await;
        let machine = machine.expect("lists are answered").items.first().map(Machine::name_any);
        let machine = machine.expect("there are machines");
        self.seen_changes(&machine, machines).await;
        let api = self.api::<Machine>();
        self.quiet_changes(&api, &machine, machines, "machineset").await;
        self.remove::<MachineDeployment>().await;
    }

    /// Creates the pool, and waits until all of its machines are available.
    async fn grow(&self, machines: usize) {
        apply(&self.stack, "pool", &["secret.yaml", "class.yaml"]);
        let api = self.api::<MachinePool>();
        let from = watch_from(&api).await;
        let pool = serde_json::from_value(json!({
            "apiVersion": "ostler.dev/v1alpha1",
            "kind": "MachinePool",
            "metadata": { "name": NAME },
            "spec": {
                "replicas": machines,
                "template": { "spec": { "class": { "kind": "MachineClass", "name": "pool" } } },
            },
        }));
        let pool = pool.expect("the manifest is a MachinePool");
        api.create(&PostParams::default(), &pool).await.expect("it is accepted");
        follow(&api, &from, |event| {
            let (WatchEvent::Modified(it) | WatchEvent::Added(it)) = event else { return false };
            let status = it.status.unwrap_or_default();
            let all = [status.replicas, status.available_replicas];
            all.iter().all(|count| usize::try_from(*count) == Ok(machines))
        })
        .await;
    }

    /// Measures the cost of a large pool: its object, and a change of one of its machines.
    async fn large_pool(&mut self, machines: usize) {
        let started = Instant::now();
        self.grow(machines).await;
        let took = started.elapsed();
        println!("a pool of {machines}, until all are available: {took:.1?}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let pool = self.api::<MachinePool>().get(NAME).await.expect("it is there");
        let bytes = serde_json::to_vec(&pool).expect("it is JSON").len();
        let resident = self.stack.resident_kib(Part::Core) / 1024;
        println!(
            "{machines} machines in a pool: its object has {bytes} bytes, the core {resident} MiB"
        );
        let machine = self.api::<Machine>().list(&ListParams::default().limit(1)).await;
        let machine = machine.expect("lists are answered").items.first().map(Machine::name_any);
        let machine = machine.expect("there are machines");
        let (api, pools) = (self.api::<Machine>(), self.api::<MachinePool>());
        self.quiet_changes(&api, &machine, machines, "machinepool").await;
        self.quiet_changes(&pools, NAME, machines, "machinepool").await;
        self.remove::<MachinePool>().await;
    }

    /// The status of the set shows each change.
    async fn seen_changes(&mut self, machine: &str, machines: usize) {
        let (api, sets) = (self.api::<Machine>(), self.api::<MachineSet>());
        let before = self.stack.cpu(Part::Core);
        let mut times = Vec::new();
        for change in 0..CHANGES {
            let (seen, labelled) =
                if change % 2 == 0 { ("no", machines - 1) } else { ("yes", machines) };
            let from = watch_from(&sets).await;
            let started = Instant::now();
            patch(&api, machine, json!({ "labels": { "seen": seen } })).await;
            follow(&sets, &from, |event| {
                let WatchEvent::Modified(set) = event else { return false };
                let status = set.status.unwrap_or_default();
                usize::try_from(status.fully_labeled_replicas) == Ok(labelled)
            })
            .await;
            times.push(started.elapsed());
        }
        let cpu = self.stack.cpu(Part::Core).saturating_sub(before);
        println!(
            "{}",
            row(&format!("{machines}: change of a machine to status of its set"), &mut times)
        );
        println!("{machines}: {:.1?} of CPU of the core for such a change", each(cpu));
    }

    /// Nothing comes of a change but a pass.
    async fn quiet_changes<K: Kind>(
        &mut self,
        api: &Api<K>,
        changed: &str,
        machines: usize,
        queue: &str,
    ) {
        let kind = K::kind(&());
        let name = |what: &str, queue: &str| {
            format!("mcm_workqueue_work_duration_seconds_{what}{{name=\"{queue}\"")
        };
        let passes = |stack: &Stack, what| stack.metric(&name(what, queue));
        let (sum, count) = (passes(&self.stack, "sum"), passes(&self.stack, "count"));
        let before = self.stack.cpu(Part::Core);
        for _ in 0..CHANGES {
            tokio::time::sleep(PAUSE).await;
        }
        let idle = self.stack.cpu(Part::Core).saturating_sub(before);
        let before = self.stack.cpu(Part::Core);
        for change in 0..CHANGES {
            patch(api, changed, json!({ "annotations": { "quiet": change.to_string() } })).await;
            tokio::time::sleep(PAUSE).await;
        }
        let cpu = self.stack.cpu(Part::Core).saturating_sub(before).saturating_sub(idle);
        let passed = passes(&self.stack, "count") - count;
        let pass = (passes(&self.stack, "sum") - sum) / passed.max(1.0);
        println!(
            "{machines}: {:.1?} of CPU of the core for a change of a {kind} that nothing comes of",
            each(cpu)
        );
        println!("{machines}: {passed} passes of {queue}, {:.2} ms each", pass * 1e3);
    }
}

async fn patch<K: Kind>(api: &Api<K>, name: &str, metadata: serde_json::Value) {
    let patch = json!({ "metadata": metadata });
    let written = api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    written.expect("it is accepted");
}

fn is_complete(event: &WatchEvent<MachineDeployment>) -> bool {
    let (WatchEvent::Modified(it) | WatchEvent::Added(it)) = event else { return false };
    let Some(status) = &it.status else { return false };
    let wanted = it.spec.replicas();
    [status.replicas, status.updated_replicas, status.available_replicas] == [wanted; 3]
        && status.observed_generation == it.metadata.generation
}

fn each(total: Duration) -> Duration {
    total / u32::try_from(CHANGES).unwrap_or(u32::MAX)
}

/// Medians over the rounds.
#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn show(what: &str, costs: &[Cost], machines: usize) {
    let median = |of: &dyn Fn(&Cost) -> f64| {
        let mut all: Vec<f64> = costs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default()
    };
    let each = |total: f64| total / machines as f64;
    println!("{what} (n={}):", costs.len());
    println!("  {:.1} s", median(&|it| it.time.as_secs_f64()));
    println!("  {:.2} API writes for each machine", each(median(&|it| it.writes as f64)));
    println!(
        "  {:.2} ms of CPU of the core for each machine, {:.2} of the API server",
        each(median(&|it| it.core.as_secs_f64() * 1e3)),
        each(median(&|it| it.api.as_secs_f64() * 1e3))
    );
    println!(
        "  sets: {} passes, {} writes; deployments: {} passes, {} writes",
        median(&|it| it.set_passes),
        median(&|it| it.set_writes),
        median(&|it| it.deployment_passes),
        median(&|it| it.deployment_writes)
    );
}
