//! `deploy/base` is taken by kubectl alone.

use ostler_tests::account::kubeconfig_of_the_core;
use ostler_tests::stack::Stack;
use ostler_tests::tools::root;
use serde_json::Value;

#[test]
fn the_deployment_is_applied_by_kubectl_alone_and_a_second_time_changes_nothing() {
    let Some(stack) = Stack::start() else { return };
    if stack.foreign_api() {
        // There the core of this test would run beside the deployed one.
        return;
    }
    let base = root().join("deploy/base");
    let base = base.to_str().unwrap();
    let first = stack.kubectl().run(["apply", "-k", base]);
    for made in [
        "serviceaccount/ostler created",
        "role.rbac.authorization.k8s.io/ostler created",
        "clusterrole.rbac.authorization.k8s.io/ostler created",
        "deployment.apps/ostler created",
    ] {
        assert!(first.contains(made), "{first}");
    }
    let second = stack.kubectl().run(["apply", "-k", base]);
    let changed: Vec<_> = second.lines().filter(|line| !line.ends_with(" unchanged")).collect();
    assert!(changed.is_empty(), "{changed:#?}");
    let roles = stack.kubectl().run(["get", "clusterrolebindings", "ostler", "-o", "wide"]);
    assert!(roles.contains("ClusterRole/ostler") && roles.contains("default/ostler"), "{roles}");
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
