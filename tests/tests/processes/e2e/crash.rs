//! SIGKILL for every part at every step: one instance per machine while it lives, none afterwards.

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

fn is_killed_at_each_step_of_creation(part: Part) {
    let Some(mut stack) = stack_without(part) else { return };
    apply_examples(stack.kubectl());
    stack.kubectl().apply(&class("slow", SLOW));
    for (index, step) in ["CreateInstance", "InitializeInstance", "JoinNode"].iter().enumerate() {
        let name = format!("up-{index}");
        stack.kubectl().apply(&machine(&name, "slow"));
        stack.kubectl().wait("machine", &name, ".status.step", step);
        stack.kill(part);
        stack.restart(part);
        stack.kubectl().wait("machine", &name, ".status.currentStatus.phase", "Running");
        let mine = stack.instances_of(&name).len();
        assert_eq!(mine, 1, "killed at {step}: exactly one instance");
        stack.kubectl().run(["delete", "machine", &name, "--wait=false"]);
        stack.kubectl().wait_gone("machine", &name);
        let mine = stack.instances_of(&name).len();
        assert_eq!(mine, 0, "no instance is left of {name}");
    }
}

fn is_killed_at_each_step_of_deletion(part: Part) {
    let Some(mut stack) = stack_without(part) else { return };
    apply_examples(stack.kubectl());
    stack.kubectl().apply(&class("slow", SLOW));
    for (index, step) in ["DrainNode", "DeleteInstance"].iter().enumerate() {
        let name = format!("down-{index}");
        stack.kubectl().apply(&machine(&name, "slow"));
        stack.kubectl().wait("machine", &name, ".status.currentStatus.phase", "Running");
        stack.kubectl().apply(&pod(&name, &name, 2));
        stack.kubectl().wait("pod", &name, ".status.phase", "Running");
        stack.kubectl().run(["delete", "machine", &name, "--wait=false"]);
        stack.kubectl().wait("machine", &name, ".status.step", step);
        stack.kill(part);
        stack.restart(part);
        stack.kubectl().wait_gone("machine", &name);
        stack.kubectl().wait_gone("node", &name);
        let mine = stack.instances_of(&name).len();
        assert_eq!(mine, 0, "killed at {step}: no instance is left");
    }
}

#[test]
fn the_driver_is_killed_at_each_step_of_creation() {
    is_killed_at_each_step_of_creation(Part::Driver);
}

#[test]
fn the_core_is_killed_at_each_step_of_creation() {
    is_killed_at_each_step_of_creation(Part::Core);
}

#[test]
fn the_api_server_is_killed_at_each_step_of_creation() {
    is_killed_at_each_step_of_creation(Part::Api);
}

#[test]
fn the_driver_is_killed_at_each_step_of_deletion() {
    is_killed_at_each_step_of_deletion(Part::Driver);
}

#[test]
fn the_core_is_killed_at_each_step_of_deletion() {
    is_killed_at_each_step_of_deletion(Part::Core);
}

#[test]
fn the_api_server_is_killed_at_each_step_of_deletion() {
    is_killed_at_each_step_of_deletion(Part::Api);
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
