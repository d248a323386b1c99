//! Conversations with kube-apiserver 1.36.2, replayed against the embedded API server.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use ostler_tests::process::Process;
use ostler_tests::tools;
use serde::Deserialize;

/// A row of `differences.yaml`; its other fields are for readers.
#[derive(Deserialize)]
struct Difference {
    scenario: String,
    step: String,
}

/// Scenario and step of each difference that the replay printed.
fn differences(printed: &str) -> BTreeSet<(String, String)> {
    let mut scenario = String::new();
    let mut all = BTreeSet::new();
    for line in printed.lines() {
        if let Some(name) = line.strip_prefix("FAIL ") {
            name.clone_into(&mut scenario);
        } else if let Some(step) = line.trim_start().strip_prefix("DIFF ") {
            let step = step.rsplit_once("  (").map_or(step, |(step, _seconds)| step);
            all.insert((scenario.clone(), step.to_owned()));
        }
    }
    all
}

#[test]
fn answers_differ_from_those_of_kube_apiserver_in_the_listed_steps_alone() {
    let Some(python) = tools::find("python3", &["python3"]) else { return };
    let here = tools::root().join("tests/fidelity");
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--driver", "none", "--core", "none", "--api-listen", "127.0.0.1:0"];
    let data = ["up", "--data-dir", dir.path().to_str().unwrap()];
    let mut api = Process::start("ostler", data.into_iter().chain(flags), &[]);
    api.line("`ready`", |line| line.starts_with("ready"));
    let replay = Command::new(python)
        .arg(here.join("replay.py"))
        .arg("--kubeconfig")
        .arg(dir.path().join("kubeconfig"))
        .args(["--quiet", "--parallel", "8"])
        .arg(here.join("scenarios"))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&replay.stdout);
    let listed = fs::read_to_string(here.join("differences.yaml")).unwrap();
    let listed: Vec<Difference> = serde_saphyr::from_str(&listed).unwrap();
    let listed = listed.into_iter().map(|it| (it.scenario, it.step)).collect();
    let all = replay.stderr.is_empty() && printed.contains(" passed, ");
    assert!(all, "{printed}{}", String::from_utf8_lossy(&replay.stderr));
    assert_eq!(differences(&printed), listed, "{printed}");
}
