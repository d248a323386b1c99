//! Measures the main job on real processes: API server, core and fake driver with no latency.
//!
//! `cargo run --release -p ostler-tests --bin bench -- [MACHINES]`

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::time::Duration;

use kube::Client;
use ostler_tests::bench::{apply_class, client, create, delete, revision, row};
use ostler_tests::stack::{Part, Stack};

/// Single machines measured one after the other.
const SINGLES: usize = 20;

#[tokio::main]
async fn main() {
    let machines = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1000);
    let Some(mut stack) = Stack::start() else { return };
    apply_class(&stack);
    let client = client(&stack).await;

    let (mut up, mut down) = (Vec::new(), Vec::new());
    for index in 0..SINGLES {
        let (running, gone) = life(&client, &[format!("single-{index}")]).await;
        up.push(running);
        down.push(gone);
    }
    println!("{}", row("1 machine, apply to Running", &mut up));
    println!("{}", row("1 machine, delete to gone", &mut down));

    let names: Vec<String> = (0..machines).map(|index| format!("many-{index:05}")).collect();
    let idle = stack.resident_kib(Part::Core);
    let before = revision(&client).await;
    let running = create(&client, &names).await;
    let resident = stack.resident_kib(Part::Core);
    let written_up = revision(&client).await - before;
    let gone = delete(&client, &names).await;
    let written = revision(&client).await - before;
    println!("{}", row(&format!("{machines} machines, apply to Running"), &mut [running]));
    println!("{}", row(&format!("{machines} machines, delete to gone"), &mut [gone]));
    println!(
        "API writes per machine, all parties: {:.1} to Running, {:.1} per life",
        each(written_up, machines),
        each(written, machines)
    );
    println!(
        "memory of the core: {} MiB idle, {} MiB with {machines} machines",
        idle / 1024,
        resident / 1024
    );
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn each(total: u64, machines: usize) -> f64 {
    total as f64 / machines as f64
}

async fn life(client: &Client, names: &[String]) -> (Duration, Duration) {
    (create(client, names).await, delete(client, names).await)
}
