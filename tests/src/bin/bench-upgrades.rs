//! Measures what an upgrade costs, on real processes: API server, core, and replicas of the fake driver.
//!
//! `cargo run --release -p ostler-tests --bin bench-upgrades`

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and stops where it cannot measure"
)]

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ostler_tests::kubectl::Kubectl;
use ostler_tests::stack::{Part, Stack};
use ostler_tests::tools::root;

/// How often each thing is done.
const TIMES: usize = 10;
/// Operations that a driver holds while the core is away: creates take at most seven eighths of its 640.
const HELD: usize = 500;

fn main() {
    let Some(mut stack) = Stack::start() else { return };
    let examples = root().join("deploy/examples/fake");
    for file in ["secret.yaml", "class.yaml"] {
        let path = examples.join(file);
        stack.kubectl().run(["apply", "-f", path.to_str().expect("our paths are UTF-8")]);
    }
    stack.kubectl().apply(&class("slow", "10m"));
    handover(&mut stack);
    recovery(&mut stack);
}

/// From SIGTERM for the active driver to the first operation on the standby.
fn handover(stack: &mut Stack) {
    let stop = Arc::new(AtomicBool::new(false));
    let users = users(stack.kubectl().clone(), Arc::clone(&stop));
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let told = stack.replace_driver();
        let first = stack.first_call_of_the_new_driver();
        times.push(first.duration_since(told));
        stack.wait_for_replaced_drivers();
    }
    stop.store(true, Ordering::Relaxed);
    users.join().expect("kubectl goes on");
    let mut times: Vec<Duration> =
        times.into_iter().map(|it| Duration::try_from(it).unwrap_or_default()).collect();
    row("SIGTERM for the active driver to the first operation on the standby", &mut times);
}

/// Users make machines all the time, twenty at a time.
fn users(kubectl: Kubectl, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut next = 0;
        while !stop.load(Ordering::Relaxed) {
            let names = (next..next + 20).map(|index| format!("user-{index:05}"));
            kubectl.apply(&machines(names, "fake"));
            next += 20;
        }
    })
}

/// From the start of a new core, after SIGKILL for the one before, until every operation that the driver holds
/// is the new core's.
fn recovery(stack: &mut Stack) {
    let names = (0..HELD).map(|index| format!("held-{index:04}"));
    stack.kubectl().apply(&machines(names, "slow"));
    let all = |count: f64| count >= 500.0;
    stack.wait_for_metric("ostler_driver_in_flight{", all);
    let mut times = Vec::new();
    for _ in 0..TIMES {
        stack.kill(Part::Core);
        let started = Instant::now();
        stack.restart(Part::Core);
        stack.wait_for_metric("ostler_driver_in_flight{", all);
        times.push(started.elapsed());
    }
    row(&format!("start of a core to {HELD} held operations recovered"), &mut times);
}

fn class(name: &str, create: &str) -> String {
    format!(
        "apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineClass
metadata: {{ name: {name} }}
provider: fake.ostler.dev
providerSpec: {{ region: local, image: fake-1.0, latency: {{ create: {create} }} }}
secretRef: {{ name: fake, namespace: default }}
"
    )
}

fn machines(names: impl Iterator<Item = String>, class: &str) -> String {
    let mut manifests = String::new();
    for name in names {
        let _infallible = writeln!(
            manifests,
            "---
apiVersion: machine.sapcloud.io/v1alpha1
kind: Machine
metadata: {{ name: {name} }}
spec: {{ class: {{ kind: MachineClass, name: {class} }} }}"
        );
    }
    manifests
}

fn row(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let pick = |index: usize| times.get(index).copied().unwrap_or_default();
    println!(
        "{what}: median {:.1?}, min {:.1?}, max {:.1?} (n={})",
        pick(times.len() / 2),
        pick(0),
        pick(times.len().saturating_sub(1)),
        times.len()
    );
}
