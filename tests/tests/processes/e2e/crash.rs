//! SIGKILL for every part in creation and in deletion: one instance per machine while it lives, none afterwards.

use ostler_tests::stack::{Part, Stack};

use crate::e2e::manifests::{apply_examples, class, machine, pod};

/// Slow enough for kubectl to see each step. A Node joins while its instance is still being initialized, hence the eight seconds.
const SLOW: &str = r#"{"region":"local","image":"fake-1.0","initialize":true,"latency":{"create":"5s","initialize":"2s","join":"8s","delete":"2s"}}"#;

fn stack_without(part: Part) -> Option<Stack> {
    match part {
        Part::Api => Stack::with_own_api("it kills the API server"),
        Part::Core | Part::Driver => Stack::start(),
    }
}

/// The step at which this run kills: other runs take others, and the tests of `lifecycle` and the simulation take all.
fn one_of<const N: usize>(steps: [&'static str; N]) -> &'static str {
    steps.into_iter().cycle().nth(std::process::id() as usize % N).unwrap()
}

fn is_killed_in_creation_and_in_deletion(part: Part) {
    let Some(mut stack) = stack_without(part) else { return };
    apply_examples(stack.kubectl());
    stack.kubectl().apply(&class("slow", SLOW));
    let up = one_of(["CreateInstance", "InitializeInstance", "JoinNode"]);
    stack.kubectl().apply(&machine("m", "slow"));
    stack.kubectl().wait("machine", "m", ".status.step", up);
    stack.kill(part);
    stack.restart(part);
    stack.kubectl().wait("machine", "m", ".status.currentStatus.phase", "Running");
    assert_eq!(stack.instances_of("m").len(), 1, "killed at {up}: exactly one instance");
    stack.kubectl().apply(&pod("m", "m", 2));
    stack.kubectl().wait("pod", "m", ".status.phase", "Running");
    let down = one_of(["DrainNode", "DeleteInstance"]);
    stack.kubectl().run(["delete", "machine", "m", "--wait=false"]);
    stack.kubectl().wait("machine", "m", ".status.step", down);
    stack.kill(part);
    stack.restart(part);
    stack.kubectl().wait_gone("machine", "m");
    stack.kubectl().wait_gone("node", "m");
    assert_eq!(stack.instances_of("m").len(), 0, "killed at {down}: no instance is left");
}

#[test]
fn the_driver_is_killed_at_a_step_of_creation_and_at_one_of_deletion() {
    is_killed_in_creation_and_in_deletion(Part::Driver);
}

#[test]
fn the_core_is_killed_at_a_step_of_creation_and_at_one_of_deletion() {
    is_killed_in_creation_and_in_deletion(Part::Core);
}

#[test]
fn the_api_server_is_killed_at_a_step_of_creation_and_at_one_of_deletion() {
    is_killed_in_creation_and_in_deletion(Part::Api);
}

#[test]
fn a_driver_that_dies_right_after_it_made_the_instance_leaves_exactly_one() {
    let Some(mut stack) = Stack::start() else { return };
    apply_examples(stack.kubectl());
    let crash = r#"{"region":"local","image":"fake-1.0","faults":[{"operation":"CreateMachine","call":1,"crashAfterEffect":true}]}"#;
    stack.kubectl().apply(&class("crash", crash));
    stack.kubectl().apply(&machine("once", "crash"));
    stack.wait_for_exit(Part::Driver);
    let made = stack.instances_of("once").len();
    assert_eq!(made, 1, "the instance was made before the crash");
    stack.restart(Part::Driver);
    stack.kubectl().wait("machine", "once", ".status.currentStatus.phase", "Running");
    let mine = stack.instances_of("once").len();
    assert_eq!(mine, 1);
}
