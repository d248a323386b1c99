//! The ten integration specs of machine-controller-manager, in their order, with `ostler up` and kubectl.

#![expect(clippy::indexing_slicing, reason = "tests")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use ostler_driver_fake::cloud::Cloud;
use ostler_tests::kubectl::Kubectl;
use ostler_tests::process::{PATIENCE, Process};
use ostler_tests::tools;
use serde_json::Value;
use tempfile::TempDir;

use crate::e2e::manifests::{class, machine};

const NAME: &str = "test-machine-deployment";
const KIND: &str = "machinedeployment";
const V1: &str = r#"{"region":"local","image":"fake-1.0"}"#;
const V2: &str = r#"{"region":"local","image":"fake-2.0"}"#;

const DEPLOYMENT: &str = "apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineDeployment
metadata: { name: test-machine-deployment, namespace: default }
spec:
  replicas: 0
  minReadySeconds: 500
  selector: { matchLabels: { test-label: test-label } }
  strategy: { type: RollingUpdate, rollingUpdate: { maxSurge: 2, maxUnavailable: 1 } }
  template:
    metadata: { labels: { test-label: test-label } }
    spec: { class: { kind: MachineClass, name: test-mc-v1 } }
";

/// Nodes, and how many of them are ready.
fn nodes(kubectl: &Kubectl) -> (usize, usize) {
    let is_ready = |node: &&Value| {
        let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let all = kubectl.list("nodes");
    (all.len(), all.iter().filter(is_ready).count())
}

fn scale(kubectl: &Kubectl, replicas: &str) {
    kubectl.run(["scale", KIND, NAME, &format!("--replicas={replicas}")]);
    kubectl.wait(KIND, NAME, ".status.replicas", replicas);
    kubectl.wait(KIND, NAME, ".status.availableReplicas", replicas);
}

fn instances(data: &Path) -> usize {
    Cloud::read(&data.join("drivers/fake/cloud.jsonl")).unwrap().instances().count()
}

/// The events about freezes of a set, once it goes on.
fn freezes(kubectl: &Kubectl, set: &str) -> Vec<String> {
    let about = format!("involvedObject.name={set}");
    let mut watch = kubectl
        .command(["get", "events", "--watch", "--field-selector", &about])
        .args(["-o", r#"jsonpath={.reason}{"\n"}"#])
        .arg(format!("--request-timeout={}s", PATIENCE.as_secs()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
    let goes_on = told.any(|reason| reason == "UnfrozeMachineSet");
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(goes_on, "{set} stays frozen, or never was");
    let about = |it: &Value| it["involvedObject"]["name"] == set;
    let all = kubectl.list("events").into_iter().filter(about);
    let reasons = all.map(|it| it["reason"].as_str().unwrap_or_default().to_owned());
    let mut freezes: Vec<_> = reasons.filter(|it| it.ends_with("rozeMachineSet")).collect();
    freezes.sort();
    freezes
}

#[test]
fn the_ten_integration_specs_of_machine_controller_manager() {
    let Some(program) = tools::kubectl() else { return };
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let secret = tools::root().join("deploy/examples/fake/secret.yaml").display().to_string();
    let ports = ["--api-listen", "127.0.0.1:0", "--drivers-listen", "127.0.0.1:0"];
    let args = ["up", "--data-dir", data.to_str().unwrap(), "--apply", &secret];
    let mut up = Process::start("ostler", args.into_iter().chain(ports), &[]);
    up.line("`ready`", |line| line.starts_with("ready"));
    let kubectl = Kubectl::new(program, data.join("kubeconfig"), dir.path());
    kubectl.apply(&format!("{}---\n{}", class("test-mc-v1", V1), class("test-mc-v2", V2)));

    // 1: a machine becomes a ready Node, with the label of its template.
    let template = "  nodeTemplate: { metadata: { labels: { test-label: test-label } } }\n";
    kubectl.apply(&format!("{}{template}", machine("test-machine", "test-mc-v1")));
    kubectl.wait("machine", "test-machine", ".status.currentStatus.phase", "Running");
    assert_eq!(nodes(&kubectl), (1, 1));
    let labelled = kubectl.run(["get", "nodes", "-l", "test-label=test-label", "-o", "name"]);
    assert_eq!(labelled.lines().count(), 1, "{labelled}");

    // 2: the machine is deleted, with its Node.
    kubectl.run(["delete", "machine", "test-machine", "--timeout=120s"]);
    assert_eq!((kubectl.get("machine", "test-machine"), nodes(&kubectl)), (Value::Null, (0, 0)));

    // 3: there is none to delete.
    let none = kubectl.output(["delete", "machine", "test-machine-dummy"], None);
    assert!(!none.status.success());
    assert!(String::from_utf8_lossy(&none.stderr).contains("NotFound"), "{none:?}");
    assert_eq!(nodes(&kubectl), (0, 0));

    // 4: a deployment of none has one set, and of one exactly two conditions. `minReadySeconds` is not waited for.
    kubectl.apply(DEPLOYMENT);
    let progressing = r#".status.conditions[?(@.type=="Progressing")].reason"#;
    kubectl.wait(KIND, NAME, progressing, "NewMachineSetAvailable");
    let sets = kubectl.list("machinesets");
    assert_eq!(sets.len(), 1);
    assert_eq!(sets[0]["metadata"]["ownerReferences"][0]["name"], NAME);
    scale(&kubectl, "1");
    kubectl.wait(KIND, NAME, progressing, "NewMachineSetAvailable");
    let status = kubectl.get(KIND, NAME)["status"].clone();
    let conditions: Vec<_> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| ["type", "status", "reason"].map(|key| one[key].as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(
        conditions,
        [
            ["Available", "True", "MinimumReplicasAvailable"],
            ["Progressing", "True", "NewMachineSetAvailable"],
        ]
    );
    assert_eq!((&status["availableReplicas"], nodes(&kubectl)), (&Value::from(1), (1, 1)));

    // 5 and 6: more, and fewer.
    scale(&kubectl, "6");
    assert_eq!(nodes(&kubectl), (6, 6));
    scale(&kubectl, "2");
    assert_eq!(nodes(&kubectl), (2, 2));

    // 7: six machines of two were far too many: the set was frozen, once, and goes on after a period.
    let set = sets[0]["metadata"]["name"].as_str().unwrap();
    assert_eq!(freezes(&kubectl, set), ["FrozeMachineSet", "UnfrozeMachineSet"]);

    // 8: another class, and more machines in the middle of that.
    let both = r#"{"spec":{"replicas":4,"template":{"spec":{"class":{"name":"test-mc-v2"}}}}}"#;
    kubectl.run(["patch", KIND, NAME, "--type=merge", "-p", both]);
    kubectl.wait(KIND, NAME, ".status.updatedReplicas", "4");
    kubectl.wait(KIND, NAME, ".status.replicas", "4");
    kubectl.wait(KIND, NAME, ".status.availableReplicas", "4");
    assert_eq!(nodes(&kubectl), (4, 4));

    // 9: the deployment is deleted, with its dependents.
    kubectl.run(["delete", KIND, NAME, "--timeout=120s"]);
    assert_eq!((nodes(&kubectl), kubectl.list("machines").len()), ((0, 0), 0));

    // 10: nothing is left in the cloud.
    assert_eq!(instances(&data), 0);
}
