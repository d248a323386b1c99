//! `ostler class name`: the name changes exactly when machines have to be replaced.

use std::path::Path;
use std::process::{Command, Output};

use ostler_tests::process::binaries;
use tempfile::TempDir;

fn class(provider: &str, image: &str, tag: &str) -> String {
    format!(
        "apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\nmetadata: {{name: pool}}\n\
         provider: {provider}\nproviderSpec:\n  region: eu-1\n  image: {image}\n  tags: {{vm: {{team: {tag}}}}}\n"
    )
}

fn ask(dir: &Path, class: &str, flags: &[&str]) -> Output {
    let file = dir.join("class.yaml");
    std::fs::write(&file, class).unwrap();
    let mut command = Command::new(binaries().join("ostler"));
    command.args(["class", "name", "-f"]).arg(&file).args(flags).output().unwrap()
}

fn name(dir: &Path, class: &str, flags: &[&str]) -> String {
    let output = ask(dir, class, flags);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn the_name_of_a_class_changes_exactly_when_machines_have_to_be_replaced() {
    let dir = TempDir::new().unwrap();
    let fake =
        |image: &str, tag: &str| name(dir.path(), &class("fake.ostler.dev", image, tag), &[]);
    let first = fake("a", "blue");
    assert!(first.starts_with("pool-") && first.len() == "pool-".len() + 10, "{first}");
    assert_eq!(fake("a", "red"), first, "a tag reaches running instances");
    assert_ne!(fake("b", "blue"), first, "an image does not");
    let driver = binaries().join("ostler-driver-fake").display().to_string();
    let asked =
        name(dir.path(), &class("fake.ostler.dev", "a", "blue"), &["--driver-cmd", &driver]);
    assert_eq!(asked, first, "whichever user starts the driver");
    let based = name(dir.path(), &class("fake.ostler.dev", "a", "blue"), &["--base", "other"]);
    assert_eq!(based, first.replace("pool-", "other-"));
}

#[test]
fn a_class_that_nobody_can_judge_gets_no_name() {
    let dir = TempDir::new().unwrap();
    let unknown = ask(dir.path(), &class("cloud.example.com", "a", "blue"), &[]);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(!unknown.status.success() && said.contains("--driver-cmd"), "{said}");
    let wrong = ask(dir.path(), &class("fake.ostler.dev", "\"\"", "x"), &[]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(!wrong.status.success() && said.contains("image"), "{said}");
}
