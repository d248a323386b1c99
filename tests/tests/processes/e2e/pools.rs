//! MachinePools with kubectl: on a Docker Engine, and on the fake cloud with a driver that dies in every operation.

#![expect(clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;

use ostler_driver_fake::cloud::Cloud;
use ostler_driver_fake::spec::Resource;
use ostler_tests::kubectl::Kubectl;
use ostler_tests::stack::{Part, Stack};
use ostler_tests::tools::root;
use serde_json::{Value, json};

use crate::e2e::docker::World;
use crate::e2e::manifests::class;

/// So many machines of the current model run, and nothing is left to do.
pub(crate) fn has(kubectl: &Kubectl, pool: &str, count: usize) {
    let generation = kubectl.get("machinepool", pool)["metadata"]["generation"].to_string();
    kubectl.wait("machinepool", pool, ".status.observedGeneration", &generation);
    let count = count.to_string();
    // In this order: the last machine of an old model goes when those of the new model are ready.
    for field in ["upToDateReplicas", "readyReplicas", "replicas"] {
        kubectl.wait("machinepool", pool, &format!(".status.{field}"), &count);
    }
}

pub(crate) fn names(kubectl: &Kubectl) -> BTreeSet<String> {
    let name = |it: &Value| it["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    kubectl.list("machines").iter().map(name).collect()
}

pub(crate) fn one(kubectl: &Kubectl) -> String {
    names(kubectl).pop_first().unwrap()
}

pub(crate) fn scale(kubectl: &Kubectl, pool: &str, count: usize) {
    kubectl.run(["scale", "machinepool", pool, &format!("--replicas={count}")]);
}

/// Each instance is to be another one, one more at a time.
pub(crate) fn upgrade(kubectl: &Kubectl) {
    let patch = r#"{"spec": {"template": {"spec": {"version": "v2"}}}}"#;
    kubectl.run(["patch", "machinepool", "pool", "--type", "merge", "--patch", patch]);
}

#[test]
fn a_group_of_containers_grows_shrinks_heals_rolls_and_leaves_nothing() {
    let Some(world) = World::start(&["pool/pool.yaml"]) else { return };
    let kubectl = &world.kubectl;
    has(kubectl, "pool", 2);
    assert_eq!(world.of_cluster().len(), 3, "two, and the one that stands for the group");
    scale(kubectl, "pool", 3);
    has(kubectl, "pool", 3);
    scale(kubectl, "pool", 2);
    has(kubectl, "pool", 2);
    assert_eq!(world.of_cluster().len(), 3);

    let deleted = one(kubectl);
    kubectl.run(["delete", "machine", &deleted]);
    has(kubectl, "pool", 2);
    let lost = one(kubectl);
    assert_ne!(lost, deleted);
    world.docker(&["rm", "--force", &world.container(&lost)]);
    kubectl.wait_gone("machine", &lost);
    has(kubectl, "pool", 2);

    let before = names(kubectl);
    upgrade(kubectl);
    has(kubectl, "pool", 2);
    assert!(names(kubectl).is_disjoint(&before), "each was replaced");

    kubectl.run(["delete", "machinepool", "pool", "--timeout=300s"]);
    assert_eq!(world.of_cluster(), [""; 0]);
    assert!(kubectl.list("machines").is_empty() && kubectl.list("nodes").is_empty());
}

#[test]
fn a_group_that_is_lost_is_made_anew_and_goes_also_if_the_driver_hangs_when_its_pool_is_deleted() {
    let Some(mut world) = World::start(&["pool/pool.yaml"]) else { return };
    has(&world.kubectl, "pool", 2);
    let (before, lost) = (names(&world.kubectl), world.of_cluster());
    let containers = lost.iter().filter_map(|line| line.split_whitespace().next());
    world.docker(&["rm", "--force"].into_iter().chain(containers).collect::<Vec<_>>());
    for machine in &before {
        world.kubectl.wait_gone("machine", machine);
    }
    has(&world.kubectl, "pool", 2);
    let made = world.of_cluster();
    // The container that stands for the group has its name from the pool.
    let same = made.iter().filter(|it| lost.contains(it)).count();
    assert_eq!((made.len(), same), (3, 1), "{lost:?}, then {made:?}");

    world.signal_driver("STOP");
    let reason = ".status.conditions[?(@.type==\"InfrastructureReady\")].reason";
    world.kubectl.wait("machinepool", "pool", reason, "DriverUnavailable");
    world.kubectl.run(["delete", "machinepool", "pool", "--wait=false"]);
    world.kubectl.wait("machinepool", "pool", ".status.phase", "Deleting");
    assert_eq!(world.of_cluster(), made, "nobody can ask for its deletion");
    world.signal_driver("CONT");
    world.kubectl.wait_gone("machinepool", "pool");
    assert_eq!(world.of_cluster(), [""; 0]);
}

#[test]
fn a_container_that_is_made_anew_in_its_place_is_the_same_node_again() {
    let Some(world) = World::start(&["pool/pool.yaml"]) else { return };
    let kubectl = &world.kubectl;
    has(kubectl, "pool", 2);
    let before = names(kubectl);
    let mut class = kubectl.get("machineclass", "docker-pool");
    class["metadata"] = json!({ "name": "other", "namespace": "default" });
    class["providerSpec"]["environment"] = json!({ "COLOUR": "bay" });
    kubectl.apply(&class.to_string());
    let strategy = json!({ "type": "InPlaceUpdate", "rollingUpdate": null });
    let template = json!({ "spec": { "class": { "name": "other" } } });
    let patch = json!({ "spec": { "strategy": strategy, "template": template } });
    let patch = patch.to_string();
    kubectl.run(["patch", "machinepool", "pool", "--type", "merge", "--patch", &patch]);
    for machine in &before {
        kubectl.wait("machine", machine, ".spec.class.name", "other");
    }
    has(kubectl, "pool", 2);
    assert_eq!(names(kubectl), before, "none was replaced");
    for machine in &before {
        let environment = ["inspect", &world.container(machine), "--format", "{{.Config.Env}}"];
        assert!(world.docker(&environment).contains("COLOUR=bay"), "{machine}");
        kubectl.wait("machine", machine, ".status.currentStatus.phase", "Running");
    }
}

fn class_of_pool(more: &Value) -> String {
    let mut spec = json!({ "region": "eu-1", "image": "linux-1" });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    class("pool", &spec.to_string()).replace("name: fake,", "name: pool,")
}

/// Applies what a pool of the fake cloud needs. Returns the pool, of two.
pub(crate) fn class_and_pool(kubectl: &Kubectl) -> String {
    let example = |file: &str| root().join("deploy/examples/pool").join(file);
    kubectl.run(["apply", "-f", &example("secret.yaml").display().to_string()]);
    kubectl.apply(&class_of_pool(&json!({})));
    let pool = std::fs::read_to_string(example("workers.yaml")).unwrap();
    pool.replace("replicas: 3", "replicas: 2")
}

/// The content of the cloud: sizes of groups, and the number of instances without those on their way out.
pub(crate) fn cloud(stack: &Stack) -> (Vec<i32>, usize) {
    let state = Cloud::read(&stack.file("cloud.jsonl")).unwrap();
    let sizes = state.groups().map(|group| group.desired).collect();
    (sizes, state.instances().filter(|it| !it.deleting).count())
}

#[test]
fn a_driver_that_is_killed_in_each_operation_on_a_group_loses_nothing_and_does_nothing_twice() {
    let Some(mut stack) = Stack::start() else { return };
    // A look for groups of no pool follows the one before.
    stack.core_args(["--machine-safety-orphan-vms-period", "1s"]);
    stack.replace_core();
    let pool = class_and_pool(stack.kubectl());

    die_in(&mut stack, "CreatePool", |kubectl| drop(kubectl.apply(&pool)));
    has(stack.kubectl(), "pool", 2);
    assert_eq!(cloud(&stack), (vec![2], 2));
    let before = names(stack.kubectl());
    die_in(&mut stack, "UpdatePoolMachine", |kubectl| {
        kubectl.apply(&class_of_pool(&json!({ "tags": { "vm": { "k": "2" } } })));
    });
    has(stack.kubectl(), "pool", 2);
    let tags = stack.instances().iter().map(|it| it.tags(Resource::Vm).tags["k"].clone()).collect();
    assert_eq!((names(stack.kubectl()), tags), (before, vec!["2".to_owned(); 2]));
    die_in(&mut stack, "UpdatePool", |kubectl| scale(kubectl, "pool", 3));
    has(stack.kubectl(), "pool", 3);
    assert_eq!(cloud(&stack), (vec![3], 3));
    die_in(&mut stack, "DeletePoolMachines", |kubectl| scale(kubectl, "pool", 2));
    has(stack.kubectl(), "pool", 2);
    assert_eq!(cloud(&stack), (vec![2], 2));
    die_in(&mut stack, "GetPoolStatus", |kubectl| scale(kubectl, "pool", 1));
    has(stack.kubectl(), "pool", 1);
    assert_eq!(cloud(&stack), (vec![1], 1));
    die_in(&mut stack, "ListPools", |_| {});
    a_check_has_one_replaced(stack.kubectl());
    assert_eq!(cloud(&stack), (vec![1], 1));
    die_in(&mut stack, "DeletePool", |kubectl| {
        kubectl.run(["delete", "machinepool", "pool", "--wait=false"]);
    });
    stack.kubectl().wait_gone("machinepool", "pool");
    assert_eq!(cloud(&stack), (Vec::new(), 0));
}

/// In the form of Cluster API's v1beta2.
const CHECK: &str = "apiVersion: ostler.dev/v1alpha1
kind: MachineHealthCheck
metadata: { name: pool }
spec:
  selector: { matchLabels: { cluster.x-k8s.io/pool-name: pool } }
  checks:
    nodeStartupTimeoutSeconds: 600
    unhealthyNodeConditions: [{ type: Ready, status: Unknown, timeoutSeconds: 300 }]
  remediation: { triggerIf: { unhealthyLessThanOrEqualTo: 100% } }
";

fn a_check_has_one_replaced(kubectl: &Kubectl) {
    kubectl.apply(CHECK);
    kubectl.wait("machinehealthcheck", "pool", ".status.currentHealthy", "1");
    let spec = &kubectl.get("machinehealthcheck", "pool")["spec"];
    assert_eq!(spec["checks"]["unhealthyNodeConditions"][0]["timeoutSeconds"], 300, "{spec}");
    let table = kubectl.run(["get", "mhc"]);
    let columns = ["EXPECTEDMACHINES", "CURRENTHEALTHY", "REMEDIATIONALLOWED", "True"];
    assert!(columns.iter().all(|column| table.contains(column)), "{table}");
    let first = one(kubectl);
    kubectl.run(["annotate", "machine", &first, "cluster.x-k8s.io/remediate-machine="]);
    kubectl.wait_gone("machine", &first);
    has(kubectl, "pool", 1);
    assert_ne!(one(kubectl), first);
    kubectl.run(["delete", "machinehealthcheck", "pool"]);
}

/// Acts, and lets the driver die after the effect of `operation` and before its answer.
fn die_in(stack: &mut Stack, operation: &str, act: impl FnOnce(&Kubectl)) {
    let fault = json!({ "operation": operation, "crashAfterEffect": true });
    stack.control(&json!({ "faults": [fault] }).to_string());
    act(stack.kubectl());
    stack.wait_for_exit(Part::Driver);
    stack.control("{}");
    stack.restart(Part::Driver);
}
