//! Lives one plan and reports.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::oracle::Oracle;
use super::plan::Plan;
use super::settled::{leftovers, unsettled};
use super::trace::Trace;
use super::world::World;

/// How long settling may take once all faults are over. The longest way is a creation that times out, and a second
/// creation.
const PATIENCE: Duration = Duration::from_mins(45);
/// How often that is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// How a life went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// A hash of all events.
    pub hash: u64,
    /// Lines of the trace.
    pub lines: u64,
    /// Simulated seconds.
    pub seconds: f64,
    /// Broken rules.
    pub violations: Vec<String>,
    /// How often what was seen.
    pub seen: BTreeMap<String, u64>,
    /// The trace, if it was asked for.
    pub timeline: Vec<String>,
}

/// Panics of any task.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note_panics() {
    std::panic::set_hook(Box::new(|info| {
        PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{info}"));
    }));
}

fn panics() -> Vec<String> {
    std::mem::take(&mut *PANICS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs a plan in a process that was made for it: all its randomness is taken over.
///
/// # Panics
/// If the system gives no thread.
pub fn run(plan: &Plan, keep: bool) -> Report {
    ostler_entropy::seed(plan.seed);
    note_panics();
    // On a thread of its own: what is drawn once for each thread, such as the keys of hash maps, is
    // drawn from the seed then.
    std::thread::scope(|scope| {
        let life = std::thread::Builder::new()
            .name("life".to_owned())
            .spawn_scoped(scope, || catch_unwind(AssertUnwindSafe(|| in_runtime(plan, keep))));
        let ended = life.expect("the system has room for a thread").join();
        if let Ok(Ok(report)) = ended {
            return report;
        }
        let why = format!("the simulation broke off: {:?}", panics());
        Report { seed: plan.seed, violations: vec![why], ..Report::default() }
    })
}

fn in_runtime(plan: &Plan, keep: bool) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing");
    runtime.block_on(async {
        let trace = Trace::new(keep);
        tokio::select! {
            biased;
            () = trace.round_in_circles() => {
                trace.violation("liveness: everything goes round in circles");
            }
            () = Box::pin(life(plan, &trace)) => {}
        }
        for panic in panics() {
            trace.violation(format_args!("panic: {panic}"));
        }
        Report {
            seed: plan.seed,
            hash: trace.hash(),
            lines: trace.length(),
            seconds: trace.elapsed().as_secs_f64(),
            violations: trace.violations(),
            seen: trace.seen(),
            timeline: trace.lines(),
        }
    })
}

async fn life(plan: &Plan, trace: &Trace) {
    let mut world = World::start(plan.clone(), trace.clone()).await;
    world.live().await;
    world.heal().await;
    reach(&world, "is not as it is wanted", Oracle::is_busy, async |world| unsettled(world).await)
        .await;
    world.delete_all().await;
    trace.note("PLAN", "everything is deleted");
    let lives_left = |oracle: &Oracle| !oracle.lives().is_empty();
    reach(&world, "is left", lives_left, async |world| leftovers(world).await).await;
}

/// Liveness: what `look` finds becomes nothing in time. Gives up at the first violation, after which
/// nothing can be expected. As long as it is `clearly` not so, the checks are coarse.
async fn reach(
    world: &World,
    what: &str,
    clearly: impl Fn(&Oracle) -> bool,
    look: impl AsyncFn(&World) -> Vec<String>,
) {
    let trace = &world.around.trace;
    let begin = trace.elapsed();
    loop {
        let late = trace.elapsed().saturating_sub(begin) > PATIENCE;
        if !trace.violations().is_empty() {
            return;
        }
        if late || !clearly(&world.around.oracle) {
            let found = look(world).await;
            if found.is_empty() {
                return;
            }
            if late {
                trace
                    .violation(format_args!("liveness: after {PATIENCE:?} this {what}: {found:?}"));
                return;
            }
        }
        sleep(LOOK).await;
    }
}
