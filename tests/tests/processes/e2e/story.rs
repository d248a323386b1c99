//! One machine's life, seen by a newcomer.

use ostler_api::names::annotation::TOKEN_OF;
use ostler_tests::process::binaries;
use ostler_tests::stack::Stack;
use serde_json::Value;

use crate::e2e::manifests::{apply_examples, pod};

#[test]
fn a_machine_is_created_joins_is_drained_and_goes() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_examples(kubectl);
    kubectl.wait("machine", "fake-1", ".status.currentStatus.phase", "Running");

    let machine = kubectl.get("machine", "fake-1");
    assert_eq!(machine["status"]["phase"], "Running");
    assert_eq!(machine["status"]["lastOperation"]["type"], "Create");
    assert_eq!(machine["status"]["lastOperation"]["state"], "Successful");
    assert_eq!(machine["status"]["waitingFor"], Value::Null, "it waits for nothing");
    assert_eq!(machine["metadata"]["annotations"]["machinepriority.machine.sapcloud.io"], "3");

    let instances = stack.instances();
    assert_eq!(instances.len(), 1);
    assert_eq!(machine["spec"]["providerID"], instances[0].provider_id.as_str());

    let node_name = machine["metadata"]["labels"]["node"].as_str().unwrap().to_owned();
    let node = kubectl.get("node", &node_name);
    assert_eq!(node["spec"]["providerID"], machine["spec"]["providerID"]);
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    assert!(
        taints.iter().all(|taint| taint["key"] != "node.machine.sapcloud.io/instance-not-ready"),
        "a Running machine takes pods: {taints:?}"
    );
    // Of other tokens a cluster may have some.
    let own =
        |secret: &Value| secret["metadata"]["annotations"][TOKEN_OF] == machine["metadata"]["uid"];
    let secrets = kubectl.list("secrets");
    assert!(!secrets.iter().any(own), "the token went when the node joined");

    kubectl.apply(&pod("app", &node_name, 1));
    kubectl.wait("pod", "app", ".status.phase", "Running");
    kubectl.run(["delete", "machine", "fake-1", "--wait=false"]);
    kubectl.wait_gone("machine", "fake-1");
    kubectl.wait_gone("pod", "app");
    kubectl.wait_gone("node", &node_name);
    assert!(stack.instances().is_empty(), "the cloud holds nothing");
}

#[test]
fn kubectl_get_tells_the_story_in_columns() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_examples(kubectl);
    kubectl.wait("machine", "fake-1", ".status.currentStatus.phase", "Running");
    let table = kubectl.run(["get", "mc", "-o", "wide"]);
    let (header, row) = table.split_once('\n').unwrap();
    for column in ["NAME", "STATUS", "NODE", "AGE", "PROVIDERID", "CLASS"] {
        assert!(header.contains(column), "{header}");
    }
    for cell in ["fake-1", "Running", "fake:///"] {
        assert!(row.contains(cell), "{row}");
    }
    let story = describe(&stack, "fake-1");
    for part in ["Waits for nothing", "CreateInstance", "CreateMachine       OK", "NodeJoined"] {
        assert!(story.contains(part), "{part:?} is not in\n{story}");
    }
    let events = kubectl.run(["events", "--for", "machine/fake-1"]);
    // After a quick join, NodeJoined also tells that the instance was made.
    assert!(events.contains("NodeJoined"), "the events tell what happened:\n{events}");
}

/// What `ostler describe machine` says.
fn describe(stack: &Stack, name: &str) -> String {
    let output = std::process::Command::new(binaries().join("ostler"))
        .args(["describe", "machine", name, "--kubeconfig"])
        .arg(stack.kubeconfig())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
