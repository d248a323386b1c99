//! `ostler up`, `reset` and `crds` as real processes.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ostler_tests::kubectl::Kubectl;
use ostler_tests::process::{Process, binaries};
use ostler_tests::tools;
use tempfile::TempDir;

use crate::e2e::manifests::one_machine;
use crate::e2e::pools::{has, scale};

/// Ports that the kernel chooses.
const FREE_PORTS: [&str; 4] = ["--api-listen", "127.0.0.1:0", "--drivers-listen", "127.0.0.1:0"];

fn spawn(data: &Path, more: &[&str]) -> Process {
    let args = ["up", "--data-dir", data.to_str().unwrap()].into_iter().chain(FREE_PORTS);
    Process::start("ostler", args.chain(more.iter().copied()), &[])
}

fn up(data: &Path, more: &[&str]) -> Process {
    let mut process = spawn(data, more);
    process.line("`ready`", |line| line.starts_with("ready"));
    process
}

fn ostler(args: &[&str]) -> Output {
    Command::new(binaries().join("ostler")).args(args).output().unwrap()
}

/// Runs `reset` and returns its output.
fn reset(data: &Path, flags: &[&str]) -> String {
    let output = ostler(&[&["reset", "--data-dir", data.to_str().unwrap()], flags].concat());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", stderr(&output));
    assert!(!data.exists(), "reset leaves nothing");
    said
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `up` with one machine, `fake-1`.
fn up_with_one(data: &Path, more: &[&str]) -> Process {
    let files = one_machine();
    let files = files.iter().flat_map(|file| ["--apply", file]);
    up(data, &more.iter().copied().chain(files).collect::<Vec<_>>())
}

fn taken_port() -> (TcpListener, String) {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    (taken, address)
}

#[test]
fn a_taken_port_is_named_with_its_flag() {
    let dir = TempDir::new().unwrap();
    let (_taken, address) = taken_port();
    let data = dir.path().to_str().unwrap();
    let output = ostler(&["up", "--data-dir", data, "--api-listen", &address]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains(&format!("--api-listen {address}")), "{}", stderr(&output));
}

#[test]
fn a_listener_beyond_loopback_is_refused_without_tls_before_any_port_is_tried() {
    let dir = TempDir::new().unwrap();
    let (_taken, address) = taken_port();
    let data = dir.path().to_str().unwrap();
    let output = ostler(&[
        "up",
        "--data-dir",
        data,
        "--api-listen",
        &address,
        "--drivers-listen",
        "0.0.0.0:0",
    ]);
    assert!(!output.status.success());
    let said = stderr(&output);
    assert!(said.contains("--drivers-listen 0.0.0.0:0 is not a loopback address"), "{said}");
}

#[test]
fn an_unknown_driver_is_refused_before_anything_starts() {
    let output = ostler(&["up", "--driver", "dokcer"]);
    assert!(stderr(&output).contains("`dokcer`"), "{}", stderr(&output));
}

#[test]
fn a_second_up_and_a_reset_on_a_directory_in_use_are_refused() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let _first = up(&data, &["--driver", "none"]);
    for (command, flags) in [("up", &FREE_PORTS[..]), ("reset", &[])] {
        let output = ostler(&[&[command, "--data-dir", data.to_str().unwrap()], flags].concat());
        assert!(!output.status.success());
        assert!(stderr(&output).contains("in use by another"), "{}", stderr(&output));
    }
}

#[test]
fn a_driver_that_cannot_be_executed_is_refused_and_not_tried_for_ever() {
    let dir = TempDir::new().unwrap();
    let program = dir.path().join("my-driver");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let data = dir.path().join("data");
    let choice = program.to_str().unwrap();
    let args = ["up", "--data-dir", data.to_str().unwrap(), "--driver", choice];
    let output = ostler(&[&args[..], &FREE_PORTS[..]].concat());
    assert!(!output.status.success());
    assert!(stderr(&output).contains(&format!("run `chmod +x {choice}`")), "{}", stderr(&output));
}

#[test]
fn without_a_target_cluster_a_machine_is_available_once_its_instance_is_initialized() {
    let Some(program) = tools::kubectl() else { return };
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let kubectl = Kubectl::new(program, data.join("kubeconfig"), dir.path());
    let _up = up_with_one(&data, &["--target", "none"]);
    kubectl.wait("machine", "fake-1", ".status.currentStatus.phase", "Available");
    assert_eq!(kubectl.list("nodes"), Vec::<serde_json::Value>::new());
    kubectl.run(["delete", "machine", "--all"]);
    kubectl.wait_gone("machine", "fake-1");
}

#[test]
fn a_driver_that_dials_in_itself_runs_machines_by_its_path() {
    let Some(program) = tools::kubectl() else { return };
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let kubectl = Kubectl::new(program, data.join("kubeconfig"), dir.path());
    let driver = binaries().join("ostler-driver-fake");
    let driver = format!("fake.ostler.dev={}", driver.display());
    let files = one_machine();
    let args = ["up", "--data-dir", data.to_str().unwrap(), "--driver", &driver];
    let args =
        args.into_iter().chain(FREE_PORTS).chain(files.iter().flat_map(|it| ["--apply", it]));
    let nodes = data.join("kubeconfig");
    let env = [("OSTLER_FAKE_NODE_KUBECONFIG", nodes.to_str().unwrap())];
    let mut up = Process::start("ostler", args, &env);
    up.line("`ready`", |line| line.starts_with("ready"));
    kubectl.wait("machine", "fake-1", ".status.currentStatus.phase", "Running");
    kubectl.run(["delete", "machine", "--all", "--wait=false"]);
    kubectl.wait_gone("machine", "fake-1");
}

#[test]
fn a_class_may_name_a_provider_by_an_alias_and_reset_remembers_it() {
    let Some(program) = tools::kubectl() else { return };
    let dir = TempDir::new().unwrap();
    let (data, manifests) = (dir.path().join("data"), dir.path().join("manifests"));
    let kubectl = Kubectl::new(program, data.join("kubeconfig"), dir.path());
    std::fs::create_dir(&manifests).unwrap();
    for file in one_machine() {
        let text = std::fs::read_to_string(&file).unwrap();
        let text = text.replace("provider: fake.ostler.dev", "provider: Fake");
        std::fs::write(manifests.join(Path::new(&file).file_name().unwrap()), text).unwrap();
    }
    let alias = ["--provider-alias", "Fake=fake.ostler.dev", "--apply"];
    let mut running = up(&data, &[&alias[..], &[manifests.to_str().unwrap()]].concat());
    kubectl.wait("machine", "fake-1", ".status.currentStatus.phase", "Running");
    assert_eq!(kubectl.get("machineclass", "fake")["provider"], "Fake");
    running.terminate();
    assert!(running.wait().success());

    reset(&data, &[]);
}

#[test]
fn up_ends_cleanly_at_sigterm_and_goes_on_where_it_was() {
    let Some(program) = tools::kubectl() else { return };
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let kubectl = Kubectl::new(program, data.join("kubeconfig"), dir.path());

    let mut first = up_with_one(&data, &[]);
    kubectl.wait("machine", "fake-1", ".status.currentStatus.phase", "Running");
    let mode = std::fs::metadata(data.join("kubeconfig")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let provider_id = kubectl.get("machine", "fake-1")["spec"]["providerID"].clone();
    first.terminate();
    assert!(first.wait().success());

    let mut second = up(&data, &["--driver", "none"]);
    let undriven = second.last_said("no driver for fake.ostler.dev is connected").unwrap();
    assert!(undriven.contains("machine fake-1 needs it: add --driver fake"), "{undriven}");
    // Ports were chosen anew, and the discovery cache of kubectl is keyed by them.
    let machine = kubectl.get("machine", "fake-1");
    assert_eq!(machine["spec"]["providerID"], provider_id);
    second.terminate();
    assert!(second.wait().success());

    reset(&data, &[]);
}

#[test]
fn reset_says_what_it_waits_for_and_ends_pods_without_grace_when_its_grace_is_over() {
    let Some(program) = tools::kubectl() else { return };
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let kubectl = Kubectl::new(program, data.join("kubeconfig"), dir.path());

    let mut first = up_with_one(&data, &[]);
    kubectl.wait("machine", "fake-1", ".status.currentStatus.phase", "Running");
    // No kubelet ends this pod: the drain sees it as the pod of a dead kubelet.
    kubectl.apply(
        r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stays", "finalizers": ["example.com/held"]},
        "spec": {"nodeName": "fake-1", "containers": [{"name": "c", "image": "c"}]}}"#,
    );
    first.terminate();
    assert!(first.wait().success());

    let said = reset(&data, &["--grace", "2"]);
    assert!(said.contains("default/stays"), "it names the pod: {said}");
    assert!(said.contains("--grace"), "it says why it forces: {said}");
}

#[test]
fn what_up_tells_of_a_pool_is_few_lines_and_no_warning_of_a_driver_that_is_starting() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let example = tools::root().join("deploy/examples/pool").display().to_string();
    let mut running = spawn(&data, &["--apply", &example]);
    running.line("that all run", |line| line.ends_with("machinepool pool: running: 3 machines"));
    running.terminate();
    assert!(running.wait().success());
    for told in ["DriverUnavailable", "machine pool-", "Created Machine"] {
        assert_eq!(running.last_said(told), None, "{told}");
    }
    reset(&data, &[]);
}

#[test]
fn a_warning_that_up_tells_is_not_logged_as_well() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let files = one_machine();
    let mut child = Command::new(binaries().join("ostler"))
        .args(["up", "--driver", "none", "--data-dir", data.to_str().unwrap()])
        .args(FREE_PORTS)
        .args(files.iter().flat_map(|file| ["--apply", file]))
        .env_remove("RUST_LOG")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let told = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(told.into_iter().any(|line| line.contains("DriverUnavailable")));
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(stderr(&output), "");
}

#[test]
fn reset_deletes_a_pool_with_its_group_also_if_that_has_no_machine() {
    let Some(program) = tools::kubectl() else { return };
    let dir = TempDir::new().unwrap();
    let example = tools::root().join("deploy/examples/pool").display().to_string();
    for replicas in [2, 0] {
        let data = dir.path().join(replicas.to_string());
        let kubectl = Kubectl::new(program.clone(), data.join("kubeconfig"), dir.path());
        let mut running = up(&data, &["--apply", &example]);
        has(&kubectl, "pool", 3);
        scale(&kubectl, "pool", replicas);
        has(&kubectl, "pool", replicas);
        running.terminate();
        assert!(running.wait().success());

        let said = reset(&data, &["--timeout", "120"]);
        assert!(said.contains("deleted: pool default/pool"), "{said}");
        assert_eq!(said.matches("deleted: machine default/").count(), replicas, "{said}");
    }
}

/// An API server without a core lets a machine go, and its instance runs on.
#[test]
fn reset_deletes_an_instance_that_no_machine_stands_for_or_keeps_the_directory() {
    let Some(program) = tools::kubectl() else { return };
    let dir = TempDir::new().unwrap();
    for held in [false, true] {
        let data = dir.path().join(held.to_string());
        let kubectl = Kubectl::new(program.clone(), data.join("kubeconfig"), dir.path());
        let mut first = up_with_one(&data, &[]);
        kubectl.wait("machine", "fake-1", ".status.currentStatus.phase", "Running");
        first.terminate();
        assert!(first.wait().success());
        let mut alone = spawn(&data, &["--core", "none", "--driver", "none"]);
        alone.line("`ready`", |line| line.starts_with("ready"));
        let free = r#"{"metadata": {"finalizers": null}}"#;
        kubectl.run(["patch", "machine", "fake-1", "--type=merge", "-p", free]);
        kubectl.run(["delete", "machine", "fake-1"]);
        if held {
            let hold = r#"{"data": {"orphans": "report-only"}}"#;
            kubectl.run(["patch", "configmap", "ostler-cluster-id", "--type=merge", "-p", hold]);
        }
        alone.terminate();
        assert!(alone.wait().success());

        if held {
            let output = ostler(&["reset", "--data-dir", data.to_str().unwrap()]);
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
            assert!(!output.status.success() && data.exists(), "{said}");
            assert!(said.contains("not deleted: orphan fake:///"), "{said}");
            assert!(said.contains("--leave-orphans"), "{said}");
            reset(&data, &["--leave-orphans"]);
        } else {
            let said = reset(&data, &[]);
            assert!(said.contains("deleted: orphan fake:///"), "{said}");
        }
    }
}

#[test]
fn a_crashed_driver_is_started_again() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let mut process = spawn(&data, &[]);
    let started =
        process.line("the start of the driver", |line| line.contains("driver fake started"));
    process.line("`ready`", |line| line.starts_with("ready"));
    let pid: i32 = started.rsplit(' ').next().unwrap().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
    process.line("the end of the driver", |line| line.contains("driver fake ended"));
    process.line("a new start", |line| line.contains("driver fake started"));
}

#[test]
fn three_rollouts_in_a_row_end_and_the_deployment_scales_and_goes() {
    let Some(program) = tools::kubectl() else { return };
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let config = data.join("kubeconfig").display().to_string();
    let kubectl = Kubectl::new(program, data.join("kubeconfig"), dir.path());
    let example = tools::root().join("deploy/examples/fake").display().to_string();
    let _up = up(&data, &["--apply", &example]);
    let rolled_out = || {
        let status = ["rollout", "status", "workers", "--timeout", "120", "--kubeconfig", &config];
        let output = ostler(&status);
        assert!(output.status.success(), "{}", stderr(&output));
    };
    rolled_out();
    for edit in ["1", "2", "3"] {
        let template = format!(r#"{{"metadata": {{"annotations": {{"edit": "{edit}"}}}}}}"#);
        let patch = format!(r#"{{"spec": {{"template": {template}}}}}"#);
        kubectl.run(["patch", "machinedeployment", "workers", "--type=merge", "-p", &patch]);
        rolled_out();
    }
    let rollout = |what: &str| {
        let output = ostler(&["rollout", what, "workers", "--kubeconfig", &config]);
        assert!(output.status.success(), "{what}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let history = rollout("history");
    let revisions = history.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    assert_eq!(revisions.collect::<Vec<_>>(), ["1", "2", "3", "4"], "{history}");
    let paused = || kubectl.list("machinedeployments")[0]["spec"]["paused"].clone();
    rollout("pause");
    assert_eq!(paused(), true);
    rollout("resume");
    assert_ne!(paused(), true);
    kubectl.run(["scale", "machinedeployment", "workers", "--replicas=1"]);
    kubectl.wait("machinedeployment", "workers", ".status.replicas", "1");
    kubectl.run(["delete", "machinedeployment", "workers", "--timeout=120s"]);
    assert_eq!(kubectl.list("machines"), Vec::<serde_json::Value>::new());
}

#[test]
fn crds_are_a_yaml_stream_that_names_every_kind() {
    let output = ostler(&["crds"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let crds: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).unwrap();
    let kinds: Vec<&str> =
        crds.iter().filter_map(|crd| crd["spec"]["names"]["kind"].as_str()).collect();
    let expected = [
        "Machine",
        "MachineClass",
        "MachineSet",
        "MachineDeployment",
        "MachinePool",
        "MachineHealthCheck",
        "MachineReserve",
    ];
    assert_eq!(kinds, expected);
}
