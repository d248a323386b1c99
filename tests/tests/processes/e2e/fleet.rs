//! A MachineDeployment of 200 machines, while core and driver are killed.

#![expect(clippy::indexing_slicing, reason = "tests")]

use std::process::Command;

use ostler_api::names::annotation::TOKEN_OF;
use ostler_tests::kubectl::Kubectl;
use ostler_tests::process::binaries;
use ostler_tests::stack::{Part, Stack};
use serde_json::Value;

use crate::e2e::manifests::{apply_class, blocking_budget, class, deployment, pod};

const MACHINES: usize = 200;
const SPEC: &str =
    r#"{"region":"local","image":"fake-1.0","latency":{"create":"1s","delete":"1s"}}"#;
const STRATEGY: &str =
    "{ type: RollingUpdate, rollingUpdate: { maxSurge: 25%, maxUnavailable: 10% } }";
/// Machines that have a pod.
const LOADED: usize = 20;

fn wait(kubectl: &Kubectl, counts: &[&str], value: usize) {
    for count in counts {
        let path = format!("--for=jsonpath={{.status.{count}}}={value}");
        kubectl.run(["wait", "machinedeployment/many", &path, "--timeout=300s"]);
    }
}

/// Pods on the first machines, the last of which may not be evicted.
fn load(kubectl: &Kubectl) {
    let machines = kubectl.list("machines");
    let mut objects = Vec::new();
    for (index, machine) in machines.iter().take(LOADED).enumerate() {
        let node = machine.pointer("/metadata/labels/node").and_then(Value::as_str).unwrap();
        objects.push(pod(&format!("on-{node}"), node, 2));
        if index == LOADED - 1 {
            objects.push(blocking_budget(&format!("on-{node}")));
        }
    }
    kubectl.apply(&objects.join("\n---\n"));
}

#[test]
fn two_hundred_machines_roll_while_core_and_driver_are_killed_and_scale_to_none_and_back() {
    let Some(mut stack) = Stack::start() else { return };
    apply_class(stack.kubectl());
    stack.kubectl().apply(&class("one", SPEC));
    stack.kubectl().apply(&class("two", SPEC));
    stack.kubectl().apply(&deployment("many", "one", MACHINES, STRATEGY));
    wait(stack.kubectl(), &["availableReplicas"], MACHINES);
    assert_eq!(stack.instances().len(), MACHINES);
    load(stack.kubectl());

    let roll = r#"{"spec": {"template": {"spec": {"class": {"name": "two"}}}}}"#;
    stack.kubectl().run(["patch", "machinedeployment", "many", "--type=merge", "-p", roll]);
    // One machine cannot be drained yet, so the rollout cannot end before this.
    for part in [Part::Driver, Part::Core, Part::Driver] {
        stack.kill(part);
        stack.restart(part);
    }
    stack.start_spare();
    stack.kill(Part::Core);
    stack.kubectl().run(["delete", "pdb", "--all"]);
    // `rollout status` knows a status that is older than the change.
    let kubeconfig = stack.kubeconfig().to_str().unwrap();
    let status = ["rollout", "status", "many", "--timeout", "300", "--kubeconfig", kubeconfig];
    let rolled = Command::new(binaries().join("ostler")).args(status).status().unwrap();
    assert!(rolled.success());
    every_machine_has_one_instance(&stack);

    for replicas in [0, MACHINES / 4, 0] {
        let scale = format!("--replicas={replicas}");
        stack.kubectl().run(["scale", "machinedeployment", "many", &scale]);
        wait(stack.kubectl(), &["replicas", "availableReplicas"], replicas);
        assert_eq!(stack.instances().len(), replicas);
    }
    stack.kubectl().run(["delete", "machinedeployment", "many", "--timeout=120s"]);
    assert_eq!(stack.instances().len(), 0, "nothing is left in the cloud");
    let is_token = |it: &&Value| !it["metadata"]["annotations"][TOKEN_OF].is_null();
    let secrets = stack.kubectl().list("secrets");
    let tokens: Vec<_> = secrets.iter().filter(is_token).map(|it| &it["metadata"]).collect();
    assert!(tokens.is_empty(), "nor a token of a Machine that is gone: {tokens:#?}");
}

fn every_machine_has_one_instance(stack: &Stack) {
    let machines = stack.kubectl().list("machines");
    let mut ids: Vec<&str> =
        machines.iter().filter_map(|it| it["spec"]["providerID"].as_str()).collect();
    ids.sort_unstable();
    let instances = stack.instances();
    let mut there: Vec<&str> = instances.iter().map(|it| it.provider_id.as_str()).collect();
    there.sort_unstable();
    assert_eq!(ids, there);
    assert!(machines.iter().all(|it| it["spec"]["class"]["name"] == "two"), "all are rolled");
}
