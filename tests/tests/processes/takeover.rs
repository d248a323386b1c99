//! The sets of machine-controller-manager, by its own binary, and ours: each takes over a rollout that the other one began.
//!
//! Not for InPlaceUpdate: `stack/taken_over.rs` has that.
//!
//! Without Go, or without its modules, the tests say `skipped`.

#![expect(clippy::unwrap_used, clippy::unwrap_in_result, reason = "tests")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ostler_driver_fake::fault::Verb;
use ostler_tests::ports::free_port;
use ostler_tests::process::Process;
use ostler_tests::stack::Stack;
use ostler_tests::tools;
use serde_json::Value;

use crate::e2e::manifests::{apply_class, class};

const MODULE: &str = "tests/upstream";
const PACKAGE: &str =
    "github.com/gardener/machine-controller-manager/cmd/machine-controller-manager";
/// A rollout of three takes some time.
const SPEC: &str =
    r#"{"region":"local","image":"fake-1.0","latency":{"create":"3s","delete":"1s"}}"#;

const ROLLING: &str = "{ type: RollingUpdate, rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } }";

const DEPLOYMENT: &str = "apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineDeployment
metadata: { name: workers, namespace: default }
spec:
  replicas: 3
  selector: { matchLabels: { app: workers } }
  strategy: STRATEGY
  template:
    metadata: { labels: { app: workers } }
    spec: { class: { kind: MachineClass, name: one } }
";

fn build() -> Option<PathBuf> {
    let go = tools::find("go", &["go"])?;
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("machine-controller-manager");
    let build = ["build", "-o", binary.to_str().unwrap(), PACKAGE];
    let output = Command::new(go).args(build).current_dir(tools::root().join(MODULE)).output();
    let output = output.unwrap();
    if !output.status.success() {
        tools::skip(&format!("{MODULE}: {}", String::from_utf8_lossy(&output.stderr)));
        return None;
    }
    Some(binary)
}

fn upstream(stack: &Stack, binary: &Path) -> Process {
    let kubeconfig = stack.kubeconfig().to_str().unwrap();
    let port = free_port().to_string();
    let args = [
        "--control-kubeconfig",
        kubeconfig,
        "--target-kubeconfig",
        kubeconfig,
        "--namespace=default",
        "--port",
        &port,
        // Nothing but the death of the other one keeps the two apart.
        "--leader-elect=false",
        "--kube-api-content-type=application/json",
    ];
    Process::start(binary.to_str().unwrap(), args, &[])
}

fn core(stack: &mut Stack, controllers: &str) {
    let admin = format!("--controllers={controllers}");
    stack.core_args([admin.as_str()]);
    stack.replace_core();
}

/// So many machines of the deployment are of its template and available.
fn until_updated(stack: &Stack, updated: u32) {
    let kubectl = stack.kubectl();
    kubectl.wait("machinedeployment", "workers", ".status.updatedReplicas", &updated.to_string());
}

fn until_complete(stack: &Stack, class: &str) {
    until_updated(stack, 3);
    for field in [".status.replicas", ".status.availableReplicas"] {
        stack.kubectl().wait("machinedeployment", "workers", field, "3");
    }
    let machines = stack.kubectl().list("machines");
    let all_of_it =
        machines.iter().all(|it| it.pointer("/spec/class/name").is_some_and(|it| it == class));
    assert!(machines.len() == 3 && all_of_it, "{machines:#?}");
}

/// A stack with classes, and a deployment of three of the first one that upstream's controller made.
fn made_by_upstream(binary: &Path, strategy: &str) -> Option<(Stack, Process)> {
    let mut stack = Stack::with_own_api("runs another controller in it")?;
    core(&mut stack, "machine");
    apply_class(stack.kubectl());
    let mut classes = String::new();
    for name in ["one", "two", "three"] {
        let _infallible = writeln!(classes, "---\n{}", class(name, SPEC));
    }
    stack.kubectl().apply(&classes);
    let theirs = upstream(&stack, binary);
    stack.kubectl().apply(&DEPLOYMENT.replace("STRATEGY", strategy));
    until_complete(&stack, "one");
    Some((stack, theirs))
}

/// The only set with replicas.
fn active_set(stack: &Stack) -> String {
    let sets = stack.kubectl().list("machinesets");
    let wants = |set: &&Value| set.pointer("/spec/replicas").is_some_and(|it| *it != 0);
    let active: Vec<_> = sets.iter().filter(wants).collect();
    assert_eq!(active.len(), 1, "{sets:#?}");
    active.first().unwrap().pointer("/metadata/name").unwrap().as_str().unwrap().to_owned()
}

fn roll_to(stack: &Stack, class: &str) {
    let patch = format!(r#"{{"spec":{{"template":{{"spec":{{"class":{{"name":"{class}"}}}}}}}}}}"#);
    let patch = ["patch", "machinedeployment", "workers", "--type=merge", "-p", &patch];
    stack.kubectl().run(patch);
}

fn names(objects: &[Value]) -> BTreeSet<String> {
    let name = |it: &Value| it.pointer("/metadata/name").unwrap().as_str().unwrap().to_owned();
    objects.iter().map(name).collect()
}

/// How many machines instances were asked for, ever.
fn created(stack: &Stack) -> usize {
    let calls = stack.calls().into_iter().filter(|call| call.operation == Verb::CreateMachine);
    calls.map(|call| call.uid).collect::<BTreeSet<_>>().len()
}

#[test]
fn a_rollout_that_the_other_controller_began_is_finished_by_ours_and_the_other_way_round() {
    let Some(binary) = build() else { return };
    let Some((mut stack, mut theirs)) = made_by_upstream(&binary, ROLLING) else { return };
    roll_to(&stack, "two");
    until_updated(&stack, 1);
    theirs.kill();
    let sets = names(&stack.kubectl().list("machinesets"));
    assert_eq!(sets.len(), 2);

    core(&mut stack, "*");
    until_complete(&stack, "two");
    assert_eq!(names(&stack.kubectl().list("machinesets")), sets, "they are recognised");
    assert_eq!((created(&stack), stack.instances().len()), (6, 3));

    roll_to(&stack, "three");
    until_updated(&stack, 1);
    core(&mut stack, "machine");
    let sets = names(&stack.kubectl().list("machinesets"));
    assert_eq!(sets.len(), 3);
    let _theirs = upstream(&stack, &binary);
    until_complete(&stack, "three");
    assert_eq!(names(&stack.kubectl().list("machinesets")), sets, "it recognises ours");
    assert_eq!((created(&stack), stack.instances().len()), (9, 3));
}

#[test]
fn a_recreate_that_the_other_controller_began_is_finished_by_ours_and_the_other_way_round() {
    let Some(binary) = build() else { return };
    let recreate = "{ type: Recreate }";
    let Some((mut stack, mut theirs)) = made_by_upstream(&binary, recreate) else { return };
    let old = active_set(&stack);
    roll_to(&stack, "two");
    // machine-controller-manager omits the number 0.
    stack.kubectl().wait("machineset", &old, ".metadata.generation", "2");
    theirs.kill();
    core(&mut stack, "*");
    until_complete(&stack, "two");
    assert_eq!(stack.kubectl().list("machinesets").len(), 2);
    assert_eq!((created(&stack), stack.instances().len()), (6, 3));

    let old = active_set(&stack);
    roll_to(&stack, "three");
    stack.kubectl().wait("machineset", &old, ".spec.replicas", "0");
    core(&mut stack, "machine");
    let _theirs = upstream(&stack, &binary);
    until_complete(&stack, "three");
    assert_eq!(stack.kubectl().list("machinesets").len(), 3);
    assert_eq!((created(&stack), stack.instances().len()), (9, 3));
}
