//! The node agent as an ordinary process: it joins the embedded API as a kubelet does, with nothing but a bootstrap token.

#![expect(clippy::indexing_slicing, reason = "tests")]

use std::path::{Path, PathBuf};

use ostler_tests::kubectl::Kubectl;
use ostler_tests::process::Process;
use ostler_tests::tools;
use serde_json::{Value, json};
use tempfile::TempDir;

const NAME: &str = "outside";
const READY: &str = ".status.conditions[?(@.type==\"Ready\")].status";

struct World {
    agent: Process,
    kubectl: Kubectl,
    dir: TempDir,
    _api: Process,
}

impl World {
    /// An API server and an agent with a bootstrap token for it; `None` without kubectl.
    fn start() -> Option<Self> {
        tools::kubectl().map(Self::with)
    }

    fn with(program: PathBuf) -> Self {
        let dir = TempDir::new().unwrap();
        let data = dir.path().join("data");
        let listen = ["--api-listen", "127.0.0.1:0", "--drivers-listen", "127.0.0.1:0"];
        let only_api = ["up", "--core", "none", "--driver", "none", "--data-dir"];
        let args = only_api.into_iter().chain([data.to_str().unwrap()]).chain(listen);
        let mut api = Process::start("ostler", args, &[]);
        api.line("`ready`", |line| line.starts_with("ready"));
        let kubectl = Kubectl::new(program, data.join("kubeconfig"), dir.path());
        kubectl.apply(
            "apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-abcdef, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData:
  token-id: abcdef
  token-secret: 0123456789abcdef
  usage-bootstrap-authentication: 'true'
",
        );
        std::fs::write(dir.path().join("user-data"), user_data(&kubectl)).unwrap();
        let agent = start_agent(dir.path());
        Self { agent, kubectl, dir, _api: api }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn restart(&mut self) {
        self.agent = start_agent(self.dir.path());
    }

    fn output(&self, pod: &Value, container: &str) -> String {
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        let name = pod["metadata"]["name"].as_str().unwrap();
        let file = format!("logs/default_{name}_{uid}/{container}/current.log");
        std::fs::read_to_string(self.path(&file)).unwrap()
    }
}

/// The kubeconfig of the administrator with a bootstrap token in place of the credential.
fn user_data(kubectl: &Kubectl) -> String {
    let shown = kubectl.run(["config", "view", "--raw", "--minify", "-o", "json"]);
    let mut config: Value = serde_json::from_str(&shown).unwrap();
    config["users"][0]["user"] = json!({"token": "abcdef.0123456789abcdef"});
    config.to_string()
}

fn start_agent(dir: &Path) -> Process {
    let path = |name: &str| dir.join(name).display().to_string();
    let flags = [
        ("--node-name", NAME.to_owned()),
        ("--provider-id", "test:///outside".to_owned()),
        ("--user-data-file", path("user-data")),
        ("--state-dir", path("state")),
        ("--log-dir", path("logs")),
        ("--shutdown-grace", "5".to_owned()),
    ];
    let args = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    Process::start("ostler-node", args, &[])
}

fn pod(name: &str, policy: &str, script: &str) -> String {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": NAME, "restartPolicy": policy, "terminationGracePeriodSeconds": 2,
            "containers": [{"name": "c", "image": "i", "command": ["sh", "-c", script]}],
        },
    });
    pod.to_string()
}

#[test]
fn a_token_becomes_a_node_of_its_own_and_is_gone() {
    let Some(world) = World::start() else { return };
    let kubectl = &world.kubectl;
    kubectl.run(["wait", "--for=create", "node/outside", "--timeout=120s"]);
    kubectl.wait("node", NAME, READY, "True");
    let node = kubectl.get("node", NAME);
    assert_eq!(node["spec"]["providerID"], "test:///outside");
    assert_eq!(
        node["spec"]["taints"][0]["key"], "node.machine.sapcloud.io/instance-not-ready",
        "the core is to take it away"
    );
    assert!(!world.path("user-data").exists(), "the token did its work");

    let requests = kubectl.list("csr");
    assert_eq!(requests.len(), 1);
    let spec = &requests[0]["spec"];
    assert_eq!(spec["username"], "system:bootstrap:abcdef");
    assert_eq!(spec["signerName"], "kubernetes.io/kube-apiserver-client-kubelet");
    assert_eq!(spec["usages"], json!(["digital signature", "client auth"]));
    let lease = kubectl.run(["get", "lease", NAME, "-n", "kube-node-lease", "-o", "json"]);
    let lease: Value = serde_json::from_str(&lease).unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], NAME);
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
}

#[test]
fn pods_are_processes_that_end_with_their_grace() {
    let Some(world) = World::start() else { return };
    let kubectl = &world.kubectl;
    kubectl.run(["wait", "--for=create", "node/outside", "--timeout=120s"]);

    kubectl.apply(&pod("fails", "Never", "echo it fails; exit 3"));
    kubectl.wait("pod", "fails", ".status.phase", "Failed");
    let failed = kubectl.get("pod", "fails");
    let terminated = &failed["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&terminated["exitCode"], &terminated["reason"]), (&json!(3), &json!("Error")));
    assert_eq!(world.output(&failed, "c"), "it fails\n");
    kubectl.apply(&pod("works", "OnFailure", "exit 0"));
    kubectl.wait("pod", "works", ".status.phase", "Succeeded");

    kubectl.apply(&pod("crashes", "Always", "exit 1"));
    let waiting = ".status.containerStatuses[0].state.waiting.reason";
    kubectl.wait("pod", "crashes", waiting, "CrashLoopBackOff");

    let marker = world.path("marker");
    let script = format!("trap 'echo asked > {}; exit 0' TERM; sleep 600 & wait", marker.display());
    kubectl.apply(&pod("polite", "Always", &script));
    // Shell and child both ignore SIGTERM.
    kubectl.apply(&pod(
        "stubborn",
        "Always",
        "trap '' TERM; sleep 600 & while :; do sleep 1; done",
    ));
    for name in ["polite", "stubborn"] {
        kubectl.wait("pod", name, READY, "True");
    }
    kubectl.run(["delete", "pod", "polite", "stubborn", "fails", "works", "crashes"]);
    assert!(kubectl.list("pod").is_empty());
    assert_eq!(std::fs::read_to_string(marker).unwrap(), "asked\n");
}

#[test]
fn an_agent_that_is_started_again_is_the_same_node_and_says_goodbye_when_it_goes() {
    let Some(mut world) = World::start() else { return };
    let kubectl = world.kubectl.clone();
    kubectl.run(["wait", "--for=create", "node/outside", "--timeout=120s"]);
    kubectl.apply(&pod("stays", "Always", "sleep 600"));
    kubectl.apply(&pod("once", "Never", "sleep 600"));
    for name in ["stays", "once"] {
        kubectl.wait("pod", name, READY, "True");
    }
    let node = kubectl.get("node", NAME);

    world.agent.terminate();
    assert!(world.agent.wait().success());
    kubectl.wait("node", NAME, READY, "False");
    let stays = kubectl.get("pod", "stays");
    assert_eq!(stays["status"]["phase"], "Running", "it is to come back");

    world.restart();
    kubectl.wait("node", NAME, READY, "True");
    kubectl.wait("pod", "stays", ".status.containerStatuses[0].restartCount", "1");
    kubectl.wait("pod", "stays", READY, "True");
    kubectl.wait("pod", "once", ".status.phase", "Failed");
    assert_eq!(kubectl.get("node", NAME)["metadata"]["uid"], node["metadata"]["uid"]);
    assert_eq!(kubectl.list("csr").len(), 1, "it asked for no other certificate");

    world.agent.kill();
    world.restart();
    kubectl.wait("pod", "stays", ".status.containerStatuses[0].restartCount", "2");
}
