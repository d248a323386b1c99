//! Lives of the whole system from seeds: the same ones at every run, and some new ones.
//!
//! `docs/simulation.md` says how to look into a life that failed.

#![expect(clippy::expect_used, clippy::print_stdout, reason = "tests")]

use std::io::Write as _;
use std::process::{Command, Output};

/// Seconds for each set of seeds. Without optimization a life takes half a second, so there are few of them;
/// `.ci/run` has more time.
fn seconds() -> String {
    std::env::var("OSTLER_SIM_SECONDS").unwrap_or_else(|_| "20".to_owned())
}

fn sim(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_sim")).args(arguments).output();
    let output = output.expect("the simulation starts");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    println!("{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn holds(arguments: &[&str]) {
    assert!(sim(arguments).status.success(), "sim {}", arguments.join(" "));
}

fn trace(seed: &str) -> String {
    let output = sim(&["--replay", seed, "--timeline"]);
    assert!(output.status.success(), "seed {seed} breaks no rule");
    String::from_utf8(output.stdout).expect("traces are text")
}

#[test]
fn the_same_seed_is_the_same_life_in_one_process_and_in_another() {
    holds(&["--seed", "2", "--seeds", "2", "--check-determinism", "3"]);
    let (first, second) = (trace("2"), trace("2"));
    assert!(first.lines().count() > 100, "something happened");
    assert!(first == second, "line by line");
    assert_ne!(first, trace("3"), "another seed is another life");
}

/// Plans that broke a rule once, by the name under which `tests/ledger/plans.yaml` tells of them.
#[test]
fn what_broke_a_rule_once_breaks_none_any_more() {
    let plans = concat!(env!("CARGO_MANIFEST_DIR"), "/plans");
    let plans: Vec<_> = std::fs::read_dir(plans).expect("there are plans").collect();
    assert!(!plans.is_empty());
    for plan in plans {
        let path = plan.expect("plans can be read").path();
        holds(&["--plan", path.to_str().expect("names are text")]);
    }
}

#[test]
fn the_seeds_that_everybody_runs_break_no_rule() {
    holds(&["--seed", "1", "--seeds", "4000", "--max-seconds", &seconds()]);
}

/// The first seeds whose plans may have sets, deployments and pools.
#[test]
fn the_seeds_with_fleets_that_everybody_runs_break_no_rule() {
    holds(&["--seed", "100000", "--seeds", "1000", "--max-seconds", &seconds()]);
}

/// The first seeds whose plans may have reserves.
#[test]
fn the_seeds_with_reserves_that_everybody_runs_break_no_rule() {
    holds(&["--seed", "20000000", "--seeds", "1000", "--max-seconds", &seconds()]);
}

/// A seed that fails here is a finding, and says nothing of the change at hand: where changes are judged,
/// it is told and fails nothing, and few are lived.
#[test]
fn seeds_that_nobody_ran_before_break_no_rule() {
    let judged = std::env::var_os("PROPTEST_RNG_SEED").is_some();
    let seconds = if judged { "10".to_owned() } else { seconds() };
    let fresh = sim(&["--seeds", "100000", "--max-seconds", &seconds]);
    if !fresh.status.success() {
        // Output of the print macros is dropped when the test passes.
        let told = std::io::stderr().write_all(&[fresh.stdout, fresh.stderr].concat());
        told.expect("stderr is open");
    }
    assert!(fresh.status.success() || judged, "a finding: see above");
}
