//! Budgets are respected until the deadline, and grace is kept.

use ostler_tests::stack::Stack;
use serde_json::Value;

use crate::e2e::manifests::{apply_examples, blocking_budget, machine, pod};

#[test]
fn a_budget_blocks_a_drain_until_its_deadline_and_says_so() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_examples(kubectl);
    kubectl.apply(&machine("held", "fake").replace("spec:", "spec:\n  drainTimeout: 8s"));
    kubectl.wait("machine", "held", ".status.currentStatus.phase", "Running");
    kubectl.apply(&pod("guarded", "held", 1));
    kubectl.wait("pod", "guarded", ".status.phase", "Running");
    kubectl.apply(&blocking_budget("guarded"));
    kubectl.wait("pdb", "guarded", ".status.currentHealthy", "1");

    kubectl.run(["delete", "machine", "held", "--wait=false"]);
    kubectl.wait(
        "machine",
        "held",
        ".status.waitingFor.reason",
        "PodDisruptionBudgetMisconfigured",
    );
    let machine = kubectl.get("machine", "held");
    assert_eq!(machine["status"]["step"], "DrainNode");
    assert_eq!(machine["status"]["drain"]["blocked"], 1);
    assert_eq!(machine["status"]["drain"]["examples"][0], "default/guarded");
    assert_eq!(machine["status"]["drain"]["budgets"][0], "default/guarded");
    assert_eq!(kubectl.get("node", "held")["spec"]["unschedulable"], true, "it is cordoned");
    let held = kubectl.get("pod", "guarded");
    assert_eq!(held["metadata"]["deletionTimestamp"], Value::Null, "the budget holds the pod");
    assert_eq!(stack.instances_of("held").len(), 1);

    kubectl.wait_gone("machine", "held");
    kubectl.wait_gone("pod", "guarded");
    assert_eq!(stack.instances_of("held").len(), 0);
}

#[test]
fn a_drain_goes_on_when_the_budget_allows_it() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_examples(kubectl);
    kubectl.wait("machine", "fake-1", ".status.currentStatus.phase", "Running");
    kubectl.apply(&pod("guarded", "fake-1", 1));
    kubectl.wait("pod", "guarded", ".status.phase", "Running");
    kubectl.apply(&blocking_budget("guarded"));
    kubectl.wait("pdb", "guarded", ".status.currentHealthy", "1");
    kubectl.run(["delete", "machine", "fake-1", "--wait=false"]);
    kubectl.wait(
        "machine",
        "fake-1",
        ".status.waitingFor.reason",
        "PodDisruptionBudgetMisconfigured",
    );
    kubectl.run(["delete", "pdb", "guarded"]);
    kubectl.wait_gone("machine", "fake-1");
    assert!(stack.instances().is_empty());
}
