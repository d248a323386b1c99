//! What an operator does after a damaged disk: with real processes, and a cloud that was not restored.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use ostler_driver_fake::fault::Verb;
use ostler_tests::process::{PATIENCE, binaries, pause};
use ostler_tests::stack::{Part, Stack};
use serde_json::Value;

use crate::chart::assert_that_alerts_and_dashboard_ask_for;
use crate::e2e::manifests::{apply_examples, machine};

fn ostler(args: &[&str]) -> Output {
    Command::new(binaries().join("ostler")).args(args).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn orphans(admin: &str) -> Value {
    let output = ostler(&["drivers", "orphans", "--admin", admin, "--output", "json"]);
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Waits until what is known of orphans is as it should be.
pub(crate) fn until_orphans(admin: &str, what: &str, enough: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = orphans(admin);
        if enough(&now) {
            return now;
        }
        assert!(Instant::now() < deadline, "never {what}: {now:#}");
        pause();
    }
}

fn all_listed(answer: &Value) -> bool {
    answer["notListed"].as_array().is_none_or(Vec::is_empty)
}

/// The number of looks that have ended, as the core counts what it was shown.
fn looks(stack: &Stack) -> usize {
    stack.calls().iter().filter(|call| call.operation == Verb::ListMachines).count()
}

fn damage(objects: &Path) {
    let mut bytes = std::fs::read(objects).unwrap();
    let middle = bytes.len() / 8;
    bytes.get_mut(..middle).unwrap().fill(0x5a);
    std::fs::write(objects, bytes).unwrap();
}

#[test]
fn a_machine_made_after_the_backup_survives_the_restore_until_it_is_accepted() {
    let Some(mut stack) = Stack::with_own_api("it damages the disk of the API server") else {
        return;
    };
    let path = |name: &str| stack.file(name).to_str().unwrap().to_owned();
    let (data, backup) = (path("data"), path("ostler.backup"));
    let admin = format!("unix:{}", path("admin.sock"));
    stack.core_args([
        "--machine-safety-orphan-vms-period=1s",
        "--machine-safety-orphan-vms-grace=0s",
        "--admin-listen",
        &admin,
    ]);
    stack.replace_core();
    apply_examples(stack.kubectl());
    stack.kubectl().wait("machine", "fake-1", ".status.currentStatus.phase", "Running");
    let taken = ostler(&["backup", &backup, "--data-dir", &data]);
    assert!(taken.status.success(), "{}", said(&taken));
    stack.kubectl().apply(&machine("late", "fake"));
    stack.kubectl().wait("machine", "late", ".status.currentStatus.phase", "Running");
    let late = stack.instances_of("late")[0].provider_id.clone();
    for part in [Part::Core, Part::Driver, Part::Api] {
        stack.kill(part);
    }
    damage(&stack.file("data/api/objects.redb"));
    let up = ["up", "--core", "none", "--driver", "none", "--api-listen", "127.0.0.1:0"];
    let refused = ostler(&[&up[..], &["--data-dir", &data]].concat());
    assert!(!refused.status.success());
    assert!(said(&refused).contains("ostler restore FILE --data-dir"), "{}", said(&refused));

    let restored = ostler(&["restore", &backup, "--data-dir", &data, "--force"]);
    assert!(restored.status.success(), "{}", said(&restored));
    for part in [Part::Api, Part::Core, Part::Driver] {
        stack.restart(part);
    }
    stack.kubectl().wait("machine", "fake-1", ".status.currentStatus.phase", "Running");
    let reported = until_orphans(&admin, "the late one confirmed", |now| {
        all_listed(now) && now["orphans"].as_array().is_some_and(|all| !all.is_empty())
    });
    assert!(reported["hold"]["reason"].as_str().unwrap().contains("restored from the backup"));
    assert_eq!(reported["orphans"][0]["providerIds"][0], late.as_str(), "{reported:#}");
    assert_eq!(reported["orphans"][0]["machineName"], "late");
    // More looks than it takes to confirm and to delete it.
    let enough = looks(&stack) + 4;
    let deadline = Instant::now() + PATIENCE;
    while looks(&stack) < enough {
        assert!(Instant::now() < deadline, "no scan comes any more");
        pause();
    }
    assert_eq!(stack.instances_of("late").len(), 1, "it survives");
    assert_eq!(stack.instances_of("fake-1").len(), 1);
    let events = stack.kubectl().run(["get", "events.events.k8s.io", "-o", "json"]);
    assert!(events.contains("OrphansHeld") && events.contains("it is kept until"), "{events}");

    let accepted = ostler(&["drivers", "orphans", "--admin", &admin, "--accept"]);
    assert!(accepted.status.success(), "{}", said(&accepted));
    let row = |line: &str| line.starts_with("fake.ostler.dev   instance ") && line.contains(&late);
    assert!(said(&accepted).lines().any(row), "a line of its own: {}", said(&accepted));
    let deadline = Instant::now() + PATIENCE;
    while !stack.instances_of("late").is_empty() {
        assert!(Instant::now() < deadline, "it is collected once it is accepted");
        pause();
    }
    assert_eq!(stack.instances_of("fake-1").len(), 1);
    stack.kubectl().apply(&machine("last", "fake"));
    stack.kubectl().wait("machine", "last", ".status.currentStatus.phase", "Running");
    assert_that_alerts_and_dashboard_ask_for(&stack.metrics());
}
