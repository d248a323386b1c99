//! `deploy/base` is taken by kubectl alone.

use ostler_tests::account::kubeconfig_of_the_core;
use ostler_tests::stack::Stack;
use ostler_tests::tools::root;
use serde_json::Value;

#[test]
fn the_deployment_is_applied_by_kubectl_alone_and_a_second_time_changes_nothing() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    let base = root().join("deploy/base");
    let base = kubectl.run(["kustomize", base.to_str().unwrap()]);
    // No pod: in a cluster that runs pods, this core would run beside that of the test.
    let base = base.replace("  replicas: 1\n", "  replicas: 0\n");
    assert_eq!(base.matches("replicas: 0").count(), 1, "{base}");
    let first = kubectl.apply(&base);
    for made in [
        "serviceaccount/ostler ",
        "role.rbac.authorization.k8s.io/ostler ",
        "clusterrole.rbac.authorization.k8s.io/ostler ",
        "deployment.apps/ostler ",
        "networkpolicy.networking.k8s.io/ostler ",
    ] {
        assert!(first.lines().any(|line| line.starts_with(made)), "{made}: {first}");
    }
    let second = kubectl.apply(&base);
    let changed: Vec<_> = second.lines().filter(|line| !line.ends_with(" unchanged")).collect();
    assert!(changed.is_empty(), "{changed:#?}");
    let roles = kubectl.run(["get", "clusterrolebindings", "ostler", "-o", "wide"]);
    assert!(roles.contains("ClusterRole/ostler") && roles.contains("default/ostler"), "{roles}");
    // What the core of the next test needs stays, and what was there before.
    let made = first.lines().filter_map(|line| line.strip_suffix(" created"));
    let beside = made.filter(|it| {
        ["deployment", "networkpolicy", "configmap"].iter().any(|kind| it.starts_with(kind))
    });
    let beside: Vec<_> = beside.collect();
    if !beside.is_empty() {
        kubectl.run(["delete"].into_iter().chain(beside));
    }
}

#[test]
fn the_core_of_a_test_can_act_as_the_account_of_the_deployment() {
    let Some(stack) = Stack::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig_of_the_core(stack.kubectl(), directory.path());
    let question = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
    let address = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let ask = ["create", "--raw", address, "-f", "-", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let answer = stack.kubectl().output(ask, Some(question));
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!(answer["status"]["userInfo"]["username"], "system:serviceaccount:default:ostler");
}
