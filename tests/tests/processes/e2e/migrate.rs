//! `ostler migrate check`: what would become of everything, before anything is changed.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use ostler_driver_fake::calls::CallLog;
use ostler_driver_fake::cloud::{Clock, Cloud, Identity, Instance};
use ostler_driver_fake::fault::Verb;
use ostler_tests::process::binaries;
use ostler_tests::stack::{Part, Stack};
use serde_json::Value;

use crate::e2e::manifests::{apply_examples, class, deployment, machine};

/// With the tags that machine-controller-manager puts on its instances.
const SPEC: &str = r#"{ region: eu-1, image: linux-1, tags: { vm: { kubernetes.io/cluster/shoot: "1", kubernetes.io/role/node: "1" } } }"#;

/// Class without a driver of its provider's name, and without its secret.
const FOREIGN: &str = "apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineClass
metadata: { name: foreign, namespace: default }
provider: AWS
providerSpec: { region: eu-1, image: linux-1 }
secretRef: { name: gone, namespace: default }
";

const DEPLOYMENT: &str = "apiVersion: apps/v1
kind: Deployment
metadata: { name: mcm }
spec:
  selector: {}
  template:
    spec:
      containers:
      - name: machine-controller-manager
        command: [./machine-controller-manager, --safety-up=2]
      - name: provider
        command: [./machine-controller, --machine-drain-timeout=2h, --min-resync-period=12h]
";

/// Everything that the API server holds.
fn objects(stack: &Stack) -> String {
    let kinds = stack.kubectl().run(["api-resources", "--verbs=list", "-o", "name"]);
    let kinds = kinds.lines().collect::<Vec<_>>().join(",");
    stack.kubectl().run(["get", &kinds, "-A", "-o", "json"])
}

/// A machine as machine-controller-manager leaves it: its instance is known and joined long ago.
fn left_behind(stack: &Stack, name: &str, class: &str, provider_id: &str) {
    let spec = format!("{}  providerID: {provider_id}\n", machine(name, class));
    stack.kubectl().apply(&spec);
    let status = r#"{"status":{"currentStatus":{"phase":"Running"}}}"#;
    let patch = ["patch", "machine", name, "--subresource=status", "--type=merge", "-p", status];
    stack.kubectl().run(patch);
}

/// An instance like `like`, with another identity. Our tags are on it if it has a UID.
fn planted(like: &Instance, name: &str, cluster: &str, uid: &str) -> Instance {
    let mut instance = like.clone();
    instance.provider_id = format!("fake:///eu-1/i-{name}");
    let (cluster_id, machine_uid) = (cluster.to_owned(), uid.to_owned());
    instance.identity = Identity { cluster_id, machine_name: name.to_owned(), machine_uid };
    let ours = [("cluster-id", cluster), ("machine-name", name), ("machine-uid", uid)];
    for tags in [&mut instance.vm, &mut instance.network, &mut instance.disk] {
        tags.tags.retain(|key, _| !key.starts_with("ostler.dev/"));
        if !uid.is_empty() {
            let ours = ours.map(|(key, value)| (format!("ostler.dev/{key}"), value.to_owned()));
            tags.tags.extend(ours);
        }
    }
    instance
}

fn plant(stack: &Stack, instances: Vec<Instance>) {
    let cloud = Cloud::open(&stack.file("cloud.jsonl"), Clock::default()).unwrap();
    cloud.plant(instances).unwrap();
}

/// A driver as an executable of its own, on the cloud of the stack, without kubelets.
fn driver(stack: &Stack) -> PathBuf {
    let file = stack.file("their-driver");
    let program = binaries().join("ostler-driver-fake");
    let [state, calls] = ["cloud.jsonl", "calls-of-the-check.jsonl"].map(|it| stack.file(it));
    let script = format!(
        "#!/bin/sh\nexec '{}' --state-file '{}' --call-log '{}'\n",
        program.display(),
        state.display(),
        calls.display()
    );
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o700)).unwrap();
    file
}

fn check(stack: &Stack, args: &[&str]) -> (Output, Value) {
    let mut command = Command::new(binaries().join("ostler"));
    command.args(["migrate", "check", "--output", "json", "--kubeconfig"]).arg(stack.kubeconfig());
    let output = command.args(["--namespace", "default"]).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.stdout.is_empty(), "{said}");
    let report = serde_json::from_slice(&output.stdout).unwrap();
    (output, report)
}

/// By machine: the verdict, and whether it stands in the way.
fn verdicts(report: &Value) -> BTreeMap<&str, (&str, bool)> {
    let rows = report["machines"].as_array().unwrap().iter();
    rows.map(|it| {
        let verdict = it["verdict"].as_str().unwrap();
        (it["name"].as_str().unwrap(), (verdict, it["standsInTheWay"].as_bool().unwrap()))
    })
    .collect()
}

/// The lacks of classes: class and word.
fn lacks(report: &Value) -> Vec<(&str, &str)> {
    let classes = report["classes"].as_array().unwrap().iter();
    classes
        .flat_map(|class| {
            let name = class["name"].as_str().unwrap();
            let findings = class["findings"].as_array().unwrap().iter();
            findings.map(move |it| (name, it["about"].as_str().unwrap()))
        })
        .collect()
}

#[test]
fn a_check_tells_what_would_become_of_everything_and_writes_neither_the_api_nor_the_cloud() {
    let Some(mut stack) = Stack::start() else { return };
    if stack.foreign_api() {
        // Other tests' objects in the cluster would be seen.
        return;
    }
    apply_examples(stack.kubectl());
    stack.kubectl().apply(&class("worker", SPEC));
    stack.kubectl().apply(&machine("ours", "worker"));
    stack.kubectl().wait("machine", "ours", ".status.currentStatus.phase", "Running");
    stack.kubectl().run(["delete", "machine", "fake-1"]);
    // From here on no process works on them: neither core nor kubelets.
    stack.kill(Part::Core);
    stack.kill(Part::Driver);
    let [ours] = &stack.instances_of("ours")[..] else { panic!("one instance") };
    plant(
        &stack,
        vec![
            planted(ours, "theirs", "", ""),
            planted(ours, "strange", "another cluster", "another machine"),
        ],
    );
    stack.kubectl().apply(FOREIGN);
    for name in ["theirs", "strange", "lost"] {
        left_behind(&stack, name, "worker", &format!("fake:///eu-1/i-{name}"));
    }
    stack.kubectl().apply(&machine("new", "worker"));
    stack.kubectl().apply(&machine("blind", "foreign"));
    let deployment = stack.file("mcm.yaml");
    std::fs::write(&deployment, DEPLOYMENT).unwrap();
    let driver = format!("fake.ostler.dev={}", driver(&stack).display());
    let args = ["--driver", &driver, "--from", deployment.to_str().unwrap()];

    let before = (objects(&stack), stack.instances());
    let (output, report) = check(&stack, &args);
    assert_eq!(output.status.code(), Some(1), "{report:#}");
    assert_eq!((objects(&stack), stack.instances()), before, "nothing was written");
    let expected = [
        ("blind", ("unknown", true)),
        ("lost", ("absent", true)),
        ("new", ("absent", false)),
        ("ours", ("found", false)),
        ("strange", ("not ours", true)),
        ("theirs", ("adoptable", true)),
    ];
    assert_eq!(verdicts(&report), BTreeMap::from(expected), "{report:#}");
    let missing = [("foreign", "provider"), ("foreign", "secret"), ("worker", "annotation")];
    assert_eq!(lacks(&report), missing, "{report:#}");
    let flags = report["commandLines"][1]["flags"].as_array().unwrap().iter();
    let flags: Vec<_> = flags.map(|it| it["becomes"].as_str().unwrap()).collect();
    assert_eq!(flags, ["the same", "no effect"], "{report:#}");

    stack.kubectl().run(["delete", "machine", "blind", "strange", "lost"]);
    stack.kubectl().run(["delete", "machineclass", "foreign"]);
    let allow = ["annotate", "machineclass", "worker", "ostler.dev/adopt-by-name=true"];
    stack.kubectl().run(allow);
    let before = (objects(&stack), stack.instances());
    let (output, report) = check(&stack, &args);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!((objects(&stack), stack.instances()), before, "nothing was written");
    assert_eq!(verdicts(&report)["theirs"], ("adoptable", false), "{report:#}");

    let calls = CallLog::read(&stack.file("calls-of-the-check.jsonl")).unwrap();
    assert!(!calls.is_empty());
    for call in calls {
        let reads = [Verb::GetMachineStatus, Verb::ListMachines, Verb::ValidateClass];
        assert!(reads.contains(&call.operation), "{call:?}");
    }
}

#[test]
fn a_driver_that_served_a_core_answers_a_check_and_serves_the_next_core_as_before() {
    let Some(mut stack) = Stack::start() else { return };
    apply_examples(stack.kubectl());
    stack.kubectl().wait("machine", "fake-1", ".status.currentStatus.phase", "Running");
    stack.kill(Part::Core);
    // In the place of the core that the driver dials.
    let address = format!("127.0.0.1:{}", stack.core_port());
    let token = format!("fake.ostler.dev={}", stack.file("driver-token").display());
    let args = ["--drivers-listen", &address, "--driver-token", &token, "--wait", "2m"];
    let (output, report) = check(&stack, &args);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!(verdicts(&report)["fake-1"], ("found", false), "{report:#}");
    stack.restart(Part::Core);
    stack.kubectl().apply(&machine("fake-2", "fake"));
    stack.kubectl().wait("machine", "fake-2", ".status.currentStatus.phase", "Running");
}

#[test]
fn a_check_that_is_called_wrongly_says_so_and_asks_nobody() {
    for wrong in [
        &[][..],
        &["--driver", "fake"],
        &["--driver", "no.example.com=/no/such/driver"],
        &["--drivers-listen", "127.0.0.1:0", "--from", "/no/such/file"],
    ] {
        let mut command = Command::new(binaries().join("ostler"));
        let output = command.args(["migrate", "check"]).args(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

/// A set that belongs to no deployment, with what only a core of ours knows.
const SET: &str = "apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineSet
metadata: { name: alone, namespace: default, annotations: { ostler.dev/delete-policy: Newest } }
spec:
  replicas: 0
  selector: { matchLabels: { name: alone } }
  template:
    metadata: { labels: { name: alone } }
    spec: { class: { kind: MachineClass, name: fake }, version: 1.33.0 }
";

#[test]
fn a_check_tells_what_becomes_of_sets_and_deployments_on_the_way_in_and_on_the_way_back() {
    let Some(mut stack) = Stack::start() else { return };
    if stack.foreign_api() {
        return;
    }
    apply_examples(stack.kubectl());
    let rolling = "{ type: RollingUpdate, rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } }";
    stack.kubectl().apply(&deployment("plain", "fake", 1, rolling));
    stack.kubectl().apply(&deployment("own", "fake", 1, rolling));
    for name in ["plain", "own"] {
        stack.kubectl().wait("machinedeployment", name, ".status.availableReplicas", "1");
    }
    stack.kill(Part::Core);
    stack.kill(Part::Driver);
    stack.kubectl().apply(SET);
    stack.kubectl().run(["annotate", "machinedeployment", "own", "cluster.x-k8s.io/paused="]);
    let driver = format!("fake.ostler.dev={}", driver(&stack).display());
    let before = objects(&stack);
    let (output, report) = check(&stack, &["--driver", &driver]);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!(objects(&stack), before, "nothing was written");
    let told = |name: &str| {
        let row = report["fleet"].as_array().unwrap().iter().find(|row| row["name"] == name);
        let row = row.unwrap_or_else(|| panic!("{name}: {report:#}"));
        (row["kind"].as_str().unwrap(), row["becomes"].as_str().unwrap(), row["back"].to_string())
    };
    assert_eq!(told("plain"), ("machinedeployment", "taken over", "[]".to_owned()));
    let (kind, becomes, back) = told("own");
    assert_eq!((kind, becomes), ("machinedeployment", "taken over"));
    assert!(back.contains("spec.paused"), "{back}");
    let (kind, becomes, back) = told("alone");
    assert_eq!((kind, becomes), ("machineset", "taken over"));
    assert!(back.contains("version") && back.contains("ostler.dev/delete-policy"), "{back}");

    // The selector of a deployment that has sets: as a client of an old definition may have changed it.
    let selected = r#"{"spec":{"selector":{"matchLabels":{"name":"other"}},"template":{"metadata":{"labels":{"name":"other"}}}}}"#;
    stack.kubectl().run(["patch", "machinedeployment", "plain", "--type=merge", "-p", selected]);
    let (output, report) = check(&stack, &["--driver", &driver]);
    assert_eq!(output.status.code(), Some(1), "{report:#}");
    assert!(report["fleet"].to_string().contains("spec.selector was changed"), "{report:#}");
}
