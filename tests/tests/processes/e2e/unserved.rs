//! A namespace without a core: the messages that nothing happens there.

use std::path::Path;
use std::process::Command;

use ostler_tests::kubectl::Kubectl;
use ostler_tests::process::{Process, binaries};
use ostler_tests::tools;
use tempfile::TempDir;

use crate::e2e::manifests::{deployment, one_machine};

fn up(data: &Path, more: &[&str]) -> Process {
    let ports = ["--api-listen", "127.0.0.1:0", "--drivers-listen", "127.0.0.1:0"];
    let args = ["up", "--data-dir", data.to_str().unwrap()].into_iter().chain(ports);
    Process::start("ostler", args.chain(more.iter().copied()), &[])
}

/// The output of a command about the namespace, on both streams.
fn said(data: &Path, args: &[&str]) -> String {
    let output = Command::new(binaries().join("ostler"))
        .args(args)
        .args(["-n", "shop", "--kubeconfig"])
        .arg(data.join("kubeconfig"))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn what_is_in_a_namespace_that_no_core_serves_is_told_and_up_serves_it_when_asked() {
    let Some(program) = tools::kubectl() else { return };
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let mut first = up(&data, &[]);
    first.line("which namespace it serves", |line| {
        line.contains("serves namespace default and no other")
    });
    first.line("`ready`", |line| line.starts_with("ready"));
    let kubectl = Kubectl::new(program, data.join("kubeconfig"), dir.path());
    kubectl.run(["create", "namespace", "shop"]);
    let there = |text: String| text.replace("namespace: default", "namespace: shop");
    for file in one_machine() {
        kubectl.apply(&there(std::fs::read_to_string(file).unwrap()));
    }
    kubectl.apply(&there(deployment("web", "fake", 1, "{ type: Recreate }")));
    kubectl.apply(
        "apiVersion: ostler.dev/v1alpha1
kind: MachineHealthCheck
metadata: {name: web, namespace: shop}
spec: {selector: {matchLabels: {name: web}}}
---
apiVersion: ostler.dev/v1alpha1
kind: MachineReserve
metadata: {name: web, namespace: shop}
spec: {replicas: 1, targetRef: {kind: MachineDeployment, name: web}}
---
apiVersion: ostler.dev/v1alpha1
kind: MachinePool
metadata: {name: pool, namespace: shop}
spec: {replicas: 1, template: {spec: {class: {kind: MachineClass, name: fake}}}}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineSet
metadata: {name: set, namespace: shop}
spec:
  replicas: 1
  selector: {matchLabels: {name: set}}
  template: {metadata: {labels: {name: set}}, spec: {class: {kind: MachineClass, name: fake}}}
",
    );
    let expected = "no core serves namespace shop";
    first.line("that nobody serves it", |line| {
        line.contains(expected) && line.contains("--namespace default,shop")
    });
    for (kind, name) in [
        ("machine", "fake-1"),
        ("machinedeployment", "web"),
        ("machineset", "set"),
        ("machinepool", "pool"),
        ("machineclass", "fake"),
        ("machinehealthcheck", "web"),
        ("machinereserve", "web"),
    ] {
        let page = said(&data, &["describe", kind, name]);
        let line = page.lines().find(|line| line.starts_with("Waits for")).unwrap_or_default();
        assert!(line.contains(expected) && line.contains("--namespace default,shop"), "{page}");
    }
    let progress = said(&data, &["rollout", "status", "web", "--no-watch"]);
    assert!(progress.contains(expected), "{progress}");
    first.terminate();
    assert!(first.wait().success());

    let mut second = up(&data, &["--namespace", "default,shop"]);
    second.line("`ready`", |line| line.starts_with("ready"));
    // Its API server listens elsewhere.
    let kubectl = Kubectl::new(tools::kubectl().unwrap(), data.join("kubeconfig"), dir.path());
    let running = "--for=jsonpath={.status.currentStatus.phase}=Running";
    kubectl.run(["wait", "machine/fake-1", "-n", "shop", running, "--timeout=120s"]);
    let page = said(&data, &["describe", "machinedeployment", "web"]);
    assert!(!page.contains(expected), "{page}");
    second.terminate();
    assert!(second.wait().success());
}
