//! Several processes share one cloud in a state file.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use ostler_driver_fake::cloud::{Bootstrap, Clock, Cloud, Identity, NewInstance};
use ostler_driver_fake::spec::ProviderSpec;
use serde_json::Value;

const PROCESSES: usize = 3;
const MACHINES: usize = 200;
const STATE_FILE: &str = "OSTLER_TEST_STATE_FILE";

fn new(machine: usize) -> NewInstance {
    let spec: ProviderSpec = serde_json::from_str(r#"{"region":"eu-1","image":"linux"}"#).unwrap();
    let identity = Identity {
        cluster_id: "c".to_owned(),
        machine_name: format!("m-{machine}"),
        machine_uid: format!("uid-{machine}"),
    };
    let bootstrap = Bootstrap::read(b"some user data");
    let identity_tags = [("ostler.dev/machine-uid".to_owned(), format!("uid-{machine}"))].into();
    NewInstance {
        identity,
        class: "small".to_owned(),
        spec,
        identity_tags,
        bootstrap,
        previous: None,
        by_name: None,
        previous_clusters: Vec::new(),
    }
}

/// The main function of the other processes: this test runs itself again for each.
#[test]
fn makes_all_machines_when_it_is_a_process_of_another_test() {
    let Some(path) = std::env::var_os(STATE_FILE) else { return };
    let cloud = Cloud::open(Path::new(&path), Clock::system()).unwrap();
    for machine in 0..MACHINES {
        cloud.create(&new(machine)).unwrap();
        cloud.count("creates").unwrap();
    }
}

fn process(state_file: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["processes::makes_all_machines_when_it_is_a_process_of_another_test", "--exact"])
        .env(STATE_FILE, state_file)
        .spawn()
        .unwrap()
}

fn probe(state_file: &Path, words: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_ostler-driver-fake"))
        .args(["probe", "--state-file"])
        .arg(state_file)
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn in_a_directory() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cloud");
    (dir, path)
}

#[test]
fn processes_that_create_the_same_machines_at_once_make_one_instance_of_each() {
    let (_dir, path) = in_a_directory();
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| process(&path)).collect();
    for process in &mut processes {
        assert!(process.wait().unwrap().success());
    }
    let state = Cloud::read(&path).unwrap();
    assert_eq!(state.instances().count(), MACHINES);
    assert_eq!(state.counter("creates"), u64::try_from(PROCESSES * MACHINES).unwrap());
}

#[test]
fn the_probe_tells_what_the_conformance_suite_asks() {
    let (_dir, path) = in_a_directory();
    let cloud = Cloud::open(&path, Clock::system()).unwrap();
    let made = cloud.create(&new(1)).unwrap();
    let instances = probe(&path, &["instances"]);
    let instance = instances.get(0).unwrap();
    let id = made.provider_id.as_str();
    assert_eq!(instance.get("providerId").unwrap(), id);
    assert_eq!(instance.get("uid").unwrap(), "uid-1");
    assert_eq!(instance.get("clusterId").unwrap(), "");
    assert_eq!(instance.get("userData").unwrap(), "c29tZSB1c2VyIGRhdGE=");
    let kinds: Vec<_> = probe(&path, &["resources"])
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part.get("kind").unwrap().as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["instance", "disk", "network"]);

    let before = probe(&path, &["journal-length"]).as_u64().unwrap();
    cloud.find(&new(1).identity, None).unwrap();
    drop(Cloud::open(&path, Clock::system()).unwrap());
    assert_eq!(probe(&path, &["journal-length"]), before, "nothing was changed");
    probe(&path, &["add-foreign-tag", id, "team=other"]);
    assert_eq!(probe(&path, &["journal-length"]), before + 1);
    let tags = probe(&path, &["instances"]);
    assert_eq!(tags.pointer("/0/tags/team").unwrap(), "other");
    assert_eq!(cloud.instance(id).unwrap().unwrap().vm.tags.get("team").unwrap(), "other");
}
