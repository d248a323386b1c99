//! The writes of Gardener's cluster-autoscaler, as its typed Go client sends them: the whole MachineDeployment by PUT,
//! with its status, and without what its types do not know. The types of machine-controller-manager v0.62.0 wrote the
//! body, with apimachinery v0.31.0: before v0.34 that puts `creationTimestamp: null` into the template.

#![expect(clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;

use jiff::{Timestamp, Unit};
use ostler_tests::kubectl::Kubectl;
use ostler_tests::stack::Stack;
use serde_json::{Value, json};

use crate::e2e::manifests::{apply_class, deployment};

const PUT: &str = include_str!("autoscaler/machinedeployment.json");
const API: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default";
const MARKS: &str = "node.machine.sapcloud.io/trigger-deletion-by-mcm";

/// The autoscaler, with what it writes into the deployment `pool`.
struct Autoscaler<'a> {
    kubectl: &'a Kubectl,
    marks: Vec<String>,
    changed: String,
}

fn now() -> String {
    let now = Timestamp::now().round(Unit::Second).unwrap();
    now.to_string()
}

impl Autoscaler<'_> {
    fn mark(&mut self, machines: &[&str]) {
        self.marks = machines.iter().map(|machine| format!("{machine}~{}", now())).collect();
    }

    /// Lowers or raises the replicas, and says when.
    fn put(&mut self, replicas: usize) {
        self.changed = now();
        self.put_again(replicas);
    }

    /// The same request until there is no conflict, as its client does it.
    fn put_again(&self, replicas: usize) {
        let path = format!("{API}/machinedeployments/pool");
        loop {
            let read = self.kubectl.get("machinedeployment", "pool");
            let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
            let revision = &read["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
            let body = PUT
                .replace("RESOURCE_VERSION", &text(&read["metadata"]["resourceVersion"]))
                .replace("UID", &text(&read["metadata"]["uid"]))
                .replace("CREATED", &text(&read["metadata"]["creationTimestamp"]))
                .replace("REVISION", &text(revision))
                .replace("MARKS", &self.marks.join(","))
                .replace("CHANGED", &self.changed)
                .replace("\"REPLICAS\"", &replicas.to_string());
            if self.replaced(&path, &body) {
                return;
            }
        }
    }

    /// What autoscalers before the list of marks wrote: a priority, by PUT of the Machine.
    fn put_priority(&self, machine: &str) {
        self.change(&format!("{API}/machines/{machine}"), |read| {
            let annotations = &mut read["metadata"]["annotations"];
            annotations["machinepriority.machine.sapcloud.io"] = "1".into();
        });
    }

    fn cordon(&self, node: &str) {
        self.change(&format!("/api/v1/nodes/{node}"), |read| {
            read["spec"]["unschedulable"] = true.into();
        });
    }

    /// Reads an object, if it is still there, and writes it.
    fn change(&self, path: &str, change: impl Fn(&mut Value)) {
        loop {
            let read = self.kubectl.output(["get", "--raw", path], None);
            if !read.status.success() {
                return;
            }
            let mut read = serde_json::from_slice(&read.stdout).unwrap();
            change(&mut read);
            if self.replaced(path, &read.to_string()) {
                return;
            }
        }
    }

    /// Whether nothing is left to do: it was taken, or the object is gone. It is refused if another client wrote meanwhile.
    fn replaced(&self, path: &str, body: &str) -> bool {
        let output = self.kubectl.output(["replace", "--raw", path, "-f", "-"], Some(body));
        let said = String::from_utf8_lossy(&output.stderr);
        let refused = said.contains("Conflict") || said.contains("modified");
        let done = output.status.success() || said.contains("NotFound");
        assert!(done || refused, "{said}");
        done
    }
}

fn names(kubectl: &Kubectl) -> BTreeSet<String> {
    let all = kubectl.list("machines");
    all.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn settled(kubectl: &Kubectl, replicas: usize) -> BTreeSet<String> {
    let settled = ["replicas", "updatedReplicas", "availableReplicas"];
    for count in settled {
        let path = format!(".status.{count}");
        kubectl.wait("machinedeployment", "pool", &path, &replicas.to_string());
    }
    names(kubectl)
}

#[test]
fn exactly_the_machines_go_that_gardeners_autoscaler_marked() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_class(kubectl);
    let mut first: Value = serde_json::from_str(&PUT.replace("\"REPLICAS\"", "5")).unwrap();
    first["metadata"] = json!({ "name": "pool", "namespace": "default" });
    kubectl.apply(&first.to_string());
    let all = settled(kubectl, 5);
    let chosen: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut autoscaler = Autoscaler { kubectl, marks: Vec::new(), changed: now() };

    // Two marks and the replicas in one write; the autoscaler cordons the Nodes afterwards.
    autoscaler.mark(&[chosen[1], chosen[3]]);
    autoscaler.put(3);
    autoscaler.cordon(chosen[1]);
    kubectl.wait_gone("machine", chosen[1]);
    kubectl.wait_gone("machine", chosen[3]);
    let left = settled(kubectl, 3);
    let expected = [chosen[0], chosen[2], chosen[4]].map(str::to_owned);
    assert_eq!(left, BTreeSet::from(expected));
    let read = kubectl.get("machinedeployment", "pool");
    assert_eq!(read["metadata"]["annotations"][MARKS], Value::Null, "its list is done with");

    // The priority first, the replicas later.
    autoscaler.marks.clear();
    autoscaler.put_priority(chosen[2]);
    autoscaler.put(2);
    kubectl.wait_gone("machine", chosen[2]);
    let left = settled(kubectl, 2);
    assert_eq!(left, BTreeSet::from([chosen[0], chosen[4]].map(str::to_owned)));

    // The mark first, the replicas with the next write.
    autoscaler.mark(&[chosen[4]]);
    autoscaler.put_again(2);
    autoscaler.put(1);
    kubectl.wait_gone("machine", chosen[4]);
    assert_eq!(settled(kubectl, 1), BTreeSet::from([chosen[0].to_owned()]));

    // It lowers and raises the replicas before anyone looks: the marked one goes, and another one comes.
    autoscaler.mark(&[chosen[0]]);
    autoscaler.put(1);
    kubectl.wait_gone("machine", chosen[0]);
    let left = settled(kubectl, 1);

    // The replicas grow, with the list of marks that is done with.
    autoscaler.put_again(4);
    let grown = settled(kubectl, 4);
    assert!(grown.is_superset(&left), "{left:?} {grown:?}");
    let sets = kubectl.list("machinesets").len();
    assert_eq!(sets, 1, "autoscaler#22: no PUT of the whole deployment started a rollout");
    kubectl.run(["delete", "machinedeployment", "pool", "--timeout=120s"]);
    assert!(stack.instances().is_empty());
}

/// That a group which is not there stops the scaling of all others is the autoscaler's own. The autoscaler needs from the
/// API the difference between a group that is gone, which answers NotFound, and an empty group, which exists and answers
/// so.
#[test]
fn a_group_that_does_not_exist_is_not_found_and_one_of_none_is_there_autoscaler_29() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_class(kubectl);
    let rolling = "{ type: RollingUpdate, rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } }";
    kubectl.apply(&deployment("pool", "fake", 0, rolling));
    kubectl.wait("machinedeployment", "pool", ".status.observedGeneration", "1");
    let path = format!("{API}/machinedeployments/gone");
    let gone = kubectl.output(["get", "--raw", &path], None);
    let said = String::from_utf8_lossy(&gone.stderr);
    assert!(!gone.status.success() && said.contains("NotFound"), "{said}");
    let read = kubectl.get("machinedeployment", "pool");
    assert_eq!(read["spec"]["replicas"], 0, "Go clients drop what is absent: it is there");
    kubectl.run(["scale", "machinedeployment", "pool", "--replicas=1"]);
    settled(kubectl, 1);
}

/// With the rights that each example gives to its autoscaler, and a core that takes the flags of its own.
#[test]
fn the_example_of_each_autoscaler_is_accepted_and_the_core_knows_its_flags() {
    let does = "installs cores and autoscalers of the examples";
    let Some(stack) = Stack::with_own_api(does) else { return };
    let kubectl = stack.kubectl();
    let examples = ostler_tests::tools::root().join("deploy/examples/autoscaler");
    apply_class(kubectl);
    kubectl.run(["apply", "-f", examples.join("workers.yaml").to_str().unwrap()]);
    for (name, provider) in
        [("externalgrpc", "externalgrpc"), ("clusterapi", "clusterapi"), ("gardener", "")]
    {
        let rendered = kubectl.run(["kustomize", examples.join(name).to_str().unwrap()]);
        let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
        for object in &objects {
            kubectl.apply(&object.to_string());
        }
        let read = kubectl.get("deployment", "cluster-autoscaler");
        let args = read["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
        assert!(args.contains(provider), "{args}");
        for object in &objects {
            let pod = &object["spec"]["template"]["spec"];
            let containers = pod["containers"].as_array().into_iter().flatten();
            for core in containers.filter(|it| it["name"] == "core") {
                let args = core["args"].as_array().unwrap().iter();
                let args = args.map(|it| it.as_str().unwrap().replace("$(NAMESPACE)", "default"));
                let line = ostler_server::command_line(args);
                let known = |it: &ostler_server::Flag| {
                    matches!(it.becomes, ostler_server::Becomes::Same(_))
                };
                assert!(line.flags.iter().all(known) && line.refused.is_none(), "{line:?}");
            }
        }
    }
    let read = kubectl.get("machinedeployment", "scaled");
    assert_eq!(read["spec"]["replicas"], 0);
}
