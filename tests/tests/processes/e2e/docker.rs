//! Machines that are containers on a real Docker Engine, with the node agent as their first process.

#![expect(clippy::indexing_slicing, reason = "tests")]

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ostler_tests::kubectl::Kubectl;
use ostler_tests::ports::free_port;
use ostler_tests::process::{PATIENCE, Process, as_from_a_shell, profile};
use ostler_tests::tools;
use serde_json::Value;
use tempfile::TempDir;

use crate::e2e::manifests::machine;

/// The world of a test; dropping it removes all containers.
pub(crate) struct World {
    docker: PathBuf,
    pub(crate) kubectl: Kubectl,
    dir: TempDir,
    api: String,
    up: Process,
    /// The beginning of the cluster id.
    cluster: String,
}

impl World {
    /// `ostler up --driver docker` with these files of the example applied; `None` without an engine or kubectl.
    pub(crate) fn start(files: &[&str]) -> Option<Self> {
        let (program, docker) = (tools::kubectl()?, tools::docker_engine()?);
        build_image();
        let dir = TempDir::new().unwrap();
        // At the gateway it is taken as well, where the kernel does not choose.
        let api = format!("127.0.0.1:{}", free_port());
        let up = up(&dir, &api, files);
        let kubectl = Kubectl::new(program, dir.path().join("data/kubeconfig"), dir.path());
        let cluster = uid(&kubectl.get("namespace", "kube-system")).to_owned();
        Some(Self { docker, kubectl, dir, api, up, cluster })
    }

    /// SIGKILL for `up`, which takes core and driver along.
    pub(crate) fn kill_up(&mut self) {
        self.up.kill();
    }

    /// A signal for the driver alone, e.g. `KILL`, after which `up` starts the driver again.
    pub(crate) fn signal_driver(&mut self, signal: &str) {
        let id = self.up.last_said("driver docker started, process ").unwrap();
        let sent = Command::new("kill").args([format!("-{signal}"), id]).status().unwrap();
        assert!(sent.success());
    }

    /// `up` again, after it was killed.
    pub(crate) fn restart_up(&mut self) {
        self.up = up(&self.dir, &self.api, &[]);
    }

    pub(crate) fn docker(&self, args: &[&str]) -> String {
        let output = Command::new(&self.docker).args(args).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "docker {args:?}: {shown}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Name of the container of a machine, from its provider id.
    pub(crate) fn container(&self, machine: &str) -> String {
        let id = self.kubectl.get("machine", machine)["spec"]["providerID"].clone();
        id.as_str().unwrap().strip_prefix("docker:///").unwrap().to_owned()
    }

    fn containers(&self, machine: &str) -> Vec<String> {
        let filter = format!("label=ostler.dev/machine-name={machine}");
        let found = self.docker(&["ps", "-a", "--filter", &filter, "--format", "{{.Names}}"]);
        found.lines().map(str::to_owned).collect()
    }

    /// Containers, networks and volumes that carry the name of this cluster.
    pub(crate) fn of_cluster(&self) -> Vec<String> {
        let format = "{{.Name}} {{.Label \"ostler.dev/cluster-id\"}}";
        let containers = format.replace(".Name}", ".Names}");
        let label = ["--filter", "label=ostler.dev/cluster-id", "--format"];
        let mut found = Vec::new();
        for (words, format) in [
            (["ps", "-a"].as_slice(), containers.as_str()),
            (&["volume", "ls"], format),
            (&["network", "ls"], format),
        ] {
            let printed = self.docker(&[words, &label, &[format]].concat());
            let ours = printed.lines().filter(|line| line.contains(&self.cluster));
            found.extend(ours.map(str::to_owned));
        }
        found
    }

    fn wait_running(&self, number: u8) {
        let (machine, pod) = (format!("docker-{number}"), format!("web-docker-{number}"));
        let kubectl = &self.kubectl;
        kubectl.wait("machine", &machine, ".status.currentStatus.phase", "Running");
        kubectl.wait("node", &machine, READY, "True");
        kubectl.wait("pod", &pod, ".status.phase", "Running");
        kubectl.wait("pod", &pod, READY, "True");
    }

    /// Removes the container of a machine; how long that takes, and how long until a watch shows the machine as failed.
    fn noticed(&self, machine: &str) -> (Duration, Duration) {
        let (container, path) = (self.container(machine), "{.status.currentStatus.phase}{'\\n'}");
        let mut watch = self
            .kubectl
            .command(["get", "machine", machine, "--watch", "-o", &format!("jsonpath={path}")])
            .arg(format!("--request-timeout={}s", PATIENCE.as_secs()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut phases = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert_eq!(phases.next().as_deref(), Some("Running"));
        let began = Instant::now();
        self.docker(&["rm", "--force", &container]);
        let removed = began.elapsed();
        let failed = phases.any(|phase| phase == "Failed");
        let took = began.elapsed();
        let _already_gone = watch.kill();
        let _already_reaped = watch.wait();
        let shown = self.kubectl.get("machine", machine);
        assert!(failed, "{shown}");
        (removed, took)
    }

    /// The watch events of a pod until its end.
    fn watch_pod(&self, pod: &str) -> Watch {
        let file = self.dir.path().join(format!("{pod}.watch"));
        let out = std::fs::File::create(&file).unwrap();
        let child = self
            .kubectl
            .command(["get", "pod", pod, "--watch", "--output-watch-events", "-o", "json"])
            .stdout(out)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Watch { child, file }
    }
}

fn sigkill(process: &str) {
    let killed = Command::new("kill").args(["-KILL", process]).status().unwrap();
    assert!(killed.success());
}

fn up(dir: &TempDir, api: &str, files: &[&str]) -> Process {
    let data = dir.path().join("data").display().to_string();
    let example = |file: &&str| tools::root().join("deploy/examples/docker").join(file);
    let files: Vec<String> = files.iter().map(|it| example(it).display().to_string()).collect();
    let args = ["up", "--driver", "docker", "--data-dir", &data, "--api-listen", api];
    let args = args.into_iter().chain(["--drivers-listen", "127.0.0.1:0"]);
    let args = args.chain(files.iter().flat_map(|file| ["--apply", file]));
    let mut up = Process::start("ostler", args, &[]);
    up.line("`ready`", |line| line.starts_with("ready"));
    up
}

impl Drop for World {
    fn drop(&mut self) {
        self.up.kill();
        // The engine is shared with others, so only what carries the name of this cluster goes.
        let format = "{{.Names}} {{.Label \"ostler.dev/cluster-id\"}}";
        let args = ["ps", "-a", "--filter", "label=ostler.dev/cluster-id", "--format", format];
        let listed = Command::new(&self.docker).args(args).output();
        let listed = listed.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
        for line in listed.unwrap_or_default().lines() {
            let Some((name, cluster)) = line.split_once(' ') else { continue };
            if cluster.contains(&self.cluster) {
                let args = ["rm", "--force", "--volumes", name];
                let _gone = Command::new(&self.docker).args(args).output();
            }
        }
    }
}

const READY: &str = ".status.conditions[?(@.type==\"Ready\")].status";

struct Watch {
    child: Child,
    file: PathBuf,
}

impl Watch {
    /// All that was seen.
    fn end(mut self) -> Vec<Value> {
        let _already_gone = self.child.kill();
        let _already_reaped = self.child.wait();
        let text = std::fs::read_to_string(&self.file).unwrap();
        let events = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        // The last one may be cut off.
        events.map_while(Result::ok).collect()
    }
}

/// The image, with the agent as the tests were built.
fn build_image() {
    let built = as_from_a_shell(&mut Command::new(tools::root().join("deploy/images/node/build")))
        .args(["--workspace", "--profile", &profile()])
        .current_dir(tools::root())
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

fn condition<'a>(node: &'a Value, kind: &str) -> &'a Value {
    let conditions = node["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|it| it["type"] == kind).unwrap_or(&Value::Null)
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

fn file_of(world: &World, container: &str, path: &str) -> Option<String> {
    let args = ["exec", container, "cat", path];
    let output = Command::new(&world.docker).args(args).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

/// A machine of the class of the example, whose Node has its label.
fn labelled(name: &str) -> String {
    let node = "  nodeTemplate: { metadata: { labels: { example: docker } } }\n";
    machine(name, "docker") + node
}

#[test]
fn three_containers_join_as_nodes_run_pods_and_go_after_their_pods() {
    let Some(world) = World::start(&["class.yaml", "secret.yaml"]) else { return };
    let kubectl = &world.kubectl;
    let pod = std::fs::read_to_string(tools::root().join("deploy/examples/docker/pods/web.yaml"));
    let pod = pod.unwrap();
    for number in 1..=3 {
        let name = format!("docker-{number}");
        kubectl.apply(&labelled(&name));
        kubectl.apply(&pod.replace("<<NODE>>", &name));
    }
    for number in 1..=3 {
        world.wait_running(number);
    }
    nodes_are_what_their_containers_are(&world);
    a_deleted_machine_is_drained_and_its_container_goes_last(&world);
    a_restarted_machine_comes_back_as_itself(&world, "docker-2", "web-docker-2", |container| {
        world.docker(&["restart", container]);
    });
    a_restarted_machine_comes_back_as_itself(&world, "docker-3", "web-docker-3", |container| {
        let pid = world.docker(&["inspect", "--format", "{{.State.Pid}}", container]);
        sigkill(&pid);
    });
    capacity_follows_the_class(&world);
    kubectl.run(["delete", "machine", "docker-2", "docker-3"]);
    assert!(kubectl.list("node").is_empty());
}

/// The driver hears it from the engine, and the core from the driver: no one waits for a kubelet to be silent.
#[test]
fn a_container_that_a_person_removes_fails_its_machine_as_soon_as_the_engine_tells() {
    let Some(world) = World::start(&["class.yaml", "secret.yaml"]) else { return };
    let machines = ["docker-1", "docker-2", "docker-3"];
    for machine in machines {
        world.kubectl.apply(&labelled(machine));
    }
    let took = machines.map(|machine| {
        world.kubectl.wait("machine", machine, ".status.currentStatus.phase", "Running");
        world.noticed(machine)
    });
    println!("from `docker rm -f` to its end and to phase Failed: {took:?}");
}

fn nodes_are_what_their_containers_are(world: &World) {
    let kubectl = &world.kubectl;
    for number in 1..=3 {
        let name = format!("docker-{number}");
        let (node, container) = (kubectl.get("node", &name), world.container(&name));
        assert_eq!(node["spec"]["providerID"], format!("docker:///{container}"));
        assert_eq!(node["status"]["capacity"]["cpu"], "1");
        assert_eq!(node["status"]["capacity"]["memory"], "256Mi");
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], *name);
        assert_eq!(node["metadata"]["labels"]["example"], "docker", "of the Machine");
        assert_eq!(condition(&node, "MemoryPressure")["status"], "False");
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let waits = "node.machine.sapcloud.io/instance-not-ready";
        assert!(taints.iter().all(|it| it["key"] != waits), "the core took it away: {taints:?}");
        let address = "{{.NetworkSettings.IPAddress}}";
        let address = world.docker(&["inspect", "--format", address, &container]);
        let pod = kubectl.get("pod", &format!("web-{name}"));
        assert_eq!(pod["status"]["podIP"], *address);
        assert_eq!(
            file_of(world, &container, "/etc/ostler/user-data"),
            None,
            "the token is gone after joining"
        );
        let log = format!("/var/log/pods/default_web-{name}_{}/web/current.log", uid(&pod));
        let said = file_of(world, &container, &log);
        assert_eq!(said, Some(format!("web-{name} runs on {name}\n")));
    }
}

fn capacity_follows_the_class(world: &World) {
    let kubectl = &world.kubectl;
    let patch = r#"{"providerSpec": {"memory": "300Mi", "cpu": "500m"}}"#;
    kubectl.run(["patch", "machineclass", "docker", "--type", "merge", "--patch", patch]);
    for machine in ["docker-2", "docker-3"] {
        kubectl.wait("node", machine, ".status.capacity.memory", "300Mi");
        assert_eq!(kubectl.get("node", machine)["status"]["capacity"]["cpu"], "500m");
    }
}

fn a_deleted_machine_is_drained_and_its_container_goes_last(world: &World) {
    let kubectl = &world.kubectl;
    assert_eq!(world.containers("docker-1").len(), 1);
    let watch = world.watch_pod("web-docker-1");
    kubectl.run(["delete", "machine", "docker-1", "--wait=false"]);
    kubectl.wait_gone("pod", "web-docker-1");
    kubectl.wait_gone("machine", "docker-1");
    assert!(world.containers("docker-1").is_empty());
    assert_eq!(kubectl.get("node", "docker-1"), Value::Null);

    let codes: Vec<i64> = watch
        .end()
        .iter()
        .filter_map(|event| {
            let containers = event["object"]["status"]["containerStatuses"].as_array()?;
            let web = containers.iter().find(|it| it["name"] == "web")?;
            web["state"]["terminated"]["exitCode"].as_i64()
        })
        .collect();
    assert!(!codes.is_empty(), "its end was told");
    assert!(codes.iter().all(|code| *code == 0), "it was asked and had its time: {codes:?}");
}

fn a_restarted_machine_comes_back_as_itself(
    world: &World,
    machine: &str,
    pod: &str,
    restart: impl Fn(&str),
) {
    let kubectl = &world.kubectl;
    let container = world.container(machine);
    let key = "/var/lib/ostler/pki/client.pem";
    let (node, identity) = (kubectl.get("node", machine), file_of(world, &container, key));
    let requests = kubectl.list("csr").len();
    restart(&container);
    kubectl.wait("pod", pod, ".status.containerStatuses[0].restartCount", "1");
    kubectl.wait("pod", pod, READY, "True");
    kubectl.wait("node", machine, READY, "True");

    let again = kubectl.get("node", machine);
    assert_eq!(uid(&again), uid(&node));
    assert_eq!(again["spec"]["providerID"], node["spec"]["providerID"]);
    assert_eq!(file_of(world, &container, key), identity, "the certificate it had");
    assert_eq!(kubectl.list("csr").len(), requests, "it asked for no other");
    assert_eq!(world.containers(machine), [container]);
    kubectl.wait("machine", machine, ".status.currentStatus.phase", "Running");
}
