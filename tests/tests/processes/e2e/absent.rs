//! `kubectl apply` of a manifest that leaves the number of Machines out.

use ostler_tests::stack::Stack;

use crate::e2e::manifests::{apply_class, deployment};

const MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";

#[test]
fn a_manifest_without_replicas_leaves_them_to_an_autoscaler_or_says_that_they_are_0() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_class(kubectl);
    let with = deployment("web", "fake", 2, "{ type: Recreate }");
    let without = with.replace("  replicas: 2\n", "");
    kubectl.apply(&with);
    kubectl.wait("machinedeployment", "web", ".status.availableReplicas", "2");
    let machines = || kubectl.run(["get", "machines", "-l", "name=web", "-o", "name"]);
    let before = machines();

    kubectl.run(["annotate", "machinedeployment", "web", &format!("{MIN}=1")]);
    kubectl.apply(&without);
    kubectl.wait("machinedeployment", "web", ".spec.replicas", "2");
    kubectl.wait("machinedeployment", "web", ".status.availableReplicas", "2");
    assert_eq!(machines(), before);

    kubectl.run(["annotate", "machinedeployment", "web", &format!("{MIN}-")]);
    kubectl.apply(&with);
    kubectl.apply(&without);
    kubectl.wait("machinedeployment", "web", ".spec.replicas", "0");
    kubectl.wait("machinedeployment", "web", ".status.replicas", "0");
    let events = kubectl.run(["events", "--for", "machinedeployment/web"]);
    assert!(events.contains("counts as 0, so 2 Machines are deleted"), "{events}");
}
