//! The fake driver keeps the whole contract, by the command line that its README has.

use std::path::Path;
use std::process::Command;

use ostler_tests::process::{Process, binaries};
use ostler_tests::tools::root;

fn documented(readme: &Path) -> String {
    let text = std::fs::read_to_string(readme).unwrap();
    let command = text.lines().find(|line| line.starts_with("ostler sanity "));
    assert!(command.is_some(), "{} has no such line", readme.display());
    command.unwrap_or_default().to_owned()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn the_fake_driver_passes_every_check_as_its_readme_says() {
    let driver = root().join("drivers/fake");
    let dir = tempfile::tempdir().unwrap();
    copy(&driver.join("conformance"), &dir.path().join("conformance"));
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("sh")
        .args(["-c", &format!("{} --json report.json", documented(&driver.join("README.md")))])
        .env("PATH", format!("{}:{path}", binaries().display()))
        .current_dir(dir.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    let report = std::fs::read(dir.path().join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    let counts = report.get("counts").unwrap();
    let count = |what: &str| counts.get(what).and_then(serde_json::Value::as_u64).unwrap();
    assert_eq!((count("failed"), count("warned")), (0, 0), "{printed}");
    // In runs with several concurrent checks the cloud changes all the time.
    assert_eq!(count("skipped"), 0, "{printed}");
    assert!(count("passed") >= 70, "{printed}");
}

#[test]
fn a_run_that_gets_sigterm_deletes_what_it_made_and_leaves_no_process_and_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    copy(&root().join("drivers/fake/conformance"), &dir.path().join("conformance"));
    let temporary = dir.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let (fake, path) = (binaries().join("ostler-driver-fake"), |name: &str| {
        dir.path().join(name).display().to_string()
    });
    let state = path("cloud.jsonl");
    let driver = format!("{} --state-file {state}", fake.display());
    let args = [
        "sanity".to_owned(),
        format!("--driver-cmd={driver}"),
        "--focus=^create/(basic|cancel)$".to_owned(),
        format!("--class={}", path("conformance/class.yaml")),
        format!("--slow-class={}", path("conformance/slow-class.yaml")),
        format!("--secret={}", path("conformance/secret.yaml")),
    ];
    let mut run = Process::start("ostler", args, &[("TMPDIR", &path("tmp"))]);
    run.line("the first check", |line| line.starts_with("✓ create/basic"));
    // The next one makes an instance for two seconds.
    run.terminate();
    assert_eq!(run.wait().code(), Some(1));
    let left: Vec<_> = std::fs::read_dir(&temporary).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    let probe = Command::new(&fake).args(["probe", "--state-file", &state, "instances"]).output();
    assert_eq!(String::from_utf8_lossy(&probe.unwrap().stdout).trim(), "[]");
}
