//! The unary driver in plain Python, set up and started as its page says: it passes the conformance suite behind the
//! adapter, and `ostler up` runs machines with it. And a peer in `tests/stream_peer` that speaks the stream itself, as
//! only an author without the adapter would: a second implementation of the session keeps the contract honest.
//!
//! Without python3 and its venv module, or without the packages, these tests say `skipped`.

#![expect(clippy::unwrap_used, clippy::unwrap_in_result, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ostler_tests::kubectl::Kubectl;
use ostler_tests::process::{Process, binaries};
use ostler_tests::{repository, tools};
use serde_json::json;
use tempfile::TempDir;

/// A fresh clone in which the page's set-up was done; `None` if this machine cannot.
fn clone() -> Option<&'static Path> {
    static CLONE: OnceLock<Option<PathBuf>> = OnceLock::new();
    CLONE.get_or_init(set_up).as_deref()
}

fn set_up() -> Option<PathBuf> {
    let python = tools::python_with_venv()?;
    // One for all runs: what it had is replaced.
    let clone = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-driver");
    if clone.exists() {
        fs::remove_dir_all(&clone).unwrap();
    }
    for file in repository::files().unwrap() {
        if file.path.starts_with("proto")
            || file.path.starts_with("sdk/python")
            || file.path.starts_with("tests/stream_peer")
        {
            let copy = clone.join(&file.path);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(tools::root().join(&file.path), copy).unwrap();
        }
    }
    let commands = page_commands("-m venv").replace("python3", python.to_str().unwrap());
    let output = shell(&clone, &commands);
    if !output.0 {
        tools::skip(&format!("what sdk/python/requirements.txt names ({})", output.1.trim()));
        return None;
    }
    Some(clone)
}

/// The first block of commands on the page that has `mark` in it.
fn page_commands(mark: &str) -> String {
    let page = fs::read_to_string(tools::root().join("sdk/python/README.md")).unwrap();
    let mut blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.find(|block| block.contains(mark)).unwrap().to_owned()
}

/// Runs commands of the page; whether they succeeded, and what they said.
fn shell(clone: &Path, commands: &str) -> (bool, String) {
    let ostler = binaries().join("ostler");
    let commands = commands.replace("cargo run --release --", ostler.to_str().unwrap());
    let output = Command::new("sh").args(["-euc", &commands]).current_dir(clone).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn the_python_driver_passes_the_whole_suite() {
    let Some(clone) = clone() else { return };
    let (green, said) = shell(clone, &page_commands("sanity --unary"));
    assert!(green, "{said}");
}

#[test]
fn a_driver_that_speaks_the_stream_itself_passes_the_whole_suite() {
    let Some(clone) = clone() else { return };
    let peer =
        "env PYTHONPATH=sdk/python/stubs sdk/python/.venv/bin/python tests/stream_peer/driver.py";
    let suite = page_commands("sanity --unary").replace(
        "--unary --driver-cmd sdk/python/python-driver",
        &format!("--driver-cmd '{peer}'"),
    );
    let cloud = clone.join("stream-peer.sqlite3");
    let (green, said) = shell(clone, &format!("export CLOUD_FILE='{}'\n{suite}", cloud.display()));
    assert!(green, "{said}");
}

#[test]
fn a_machine_of_the_python_driver_lives_a_whole_life() {
    let (Some(clone), Some(program)) = (clone(), tools::kubectl()) else { return };
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let kubectl = Kubectl::new(program, data.join("kubeconfig"), dir.path());
    let cloud = dir.path().join("cloud.sqlite3").display().to_string();
    let driver = clone.join("sdk/python/python-driver");
    let up = [
        "up",
        "--data-dir",
        data.to_str().unwrap(),
        "--api-listen",
        "127.0.0.1:0",
        "--drivers-listen",
        "127.0.0.1:0",
        "--driver",
        &format!("python.ostler.dev={}", driver.display()),
        "--driver-env",
        "CLOUD_FILE",
        "--driver-env",
        "LOG_LEVEL",
    ];
    let mut process =
        Process::start("ostler", up, &[("CLOUD_FILE", &cloud), ("LOG_LEVEL", "ERROR")]);
    process.line("`ready`", |line| line.starts_with("ready"));
    let tags = || {
        let probe = Command::new(clone.join("sdk/python/.venv/bin/python"))
            .arg(clone.join("sdk/python/probe.py"))
            .arg("instances")
            .env("CLOUD_FILE", &cloud)
            .output()
            .unwrap();
        let instances: serde_json::Value = serde_json::from_slice(&probe.stdout).unwrap();
        let instances = instances.as_array().unwrap().iter();
        let mut tags: Vec<_> = instances.map(|it| it["tags"].clone()).collect();
        for tags in &mut tags {
            let identity = |key: &str| key.starts_with("ostler.dev/");
            tags.as_object_mut().unwrap().retain(|key, _| !identity(key));
        }
        tags
    };

    let example = clone.join("sdk/python/example");
    kubectl.run(["apply", "-f", example.to_str().unwrap()]);
    kubectl.wait("machine", "python-1", ".status.phase", "Provisioned");
    let id = kubectl.get("machine", "python-1")["spec"]["providerID"].clone();
    assert!(id.as_str().unwrap().starts_with("python:///"), "{id}");
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "python-1" }, "spec": { "providerID": id },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    kubectl.output(["create", "-f", "-"], Some(&node.to_string()));
    kubectl.wait("machine", "python-1", ".status.phase", "Running");
    assert_eq!(tags(), [json!({ "team": "stables" })]);

    let class = fs::read_to_string(example.join("class.yaml")).unwrap();
    kubectl.apply(&class.replace("team: stables", "team: mews"));
    let updated = r#".status.conditions[?(@.type=="HotUpdated")].status"#;
    kubectl.wait("machine", "python-1", updated, "True");
    assert_eq!(tags(), [json!({ "team": "mews" })]);

    kubectl.run(["delete", "machine", "python-1", "--wait=false"]);
    kubectl.wait_gone("machine", "python-1");
    assert!(tags().is_empty());
    process.terminate();
    assert!(process.wait().success());
}
