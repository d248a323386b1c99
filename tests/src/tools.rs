//! Tools that a test needs and a machine may not have.

use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Finds an executable on PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// True if the machine must have every tool: a skip is a failure there.
fn all_required() -> bool {
    std::env::var("OSTLER_TEST_REQUIRE").is_ok_and(|value| value == "all")
}

/// The first of `names` that is on PATH. Without one, the test is skipped with a line that says so.
///
/// # Panics
/// If no tool is found although `OSTLER_TEST_REQUIRE=all`.
pub fn find(what: &str, names: &[&str]) -> Option<PathBuf> {
    let found = names.iter().find_map(|name| on_path(name));
    if found.is_none() {
        skip(what);
    }
    found
}

/// Says that a tool is missing.
///
/// # Panics
/// If `OSTLER_TEST_REQUIRE=all`.
pub fn skip(what: &str) {
    assert!(!all_required(), "{what} not found, and OSTLER_TEST_REQUIRE=all asks for it");
    say_skipped(&format!("{what} not found"));
}

/// True, with a line that says so, if the tests run against a cluster that is not ours, of which a
/// test cannot have what it needs. Nothing is missing there, so `OSTLER_TEST_REQUIRE=all` is
/// content.
pub fn skips_foreign_cluster(what: &str) -> bool {
    let foreign = foreign_cluster().is_some();
    if foreign {
        say_skipped(&format!(
            "{what}, and OSTLER_TEST_KUBECONFIG names a cluster that is not ours"
        ));
    }
    foreign
}

/// The kubeconfig of a foreign cluster that the tests are to run against.
pub fn foreign_cluster() -> Option<PathBuf> {
    std::env::var_os("OSTLER_TEST_KUBECONFIG").map(PathBuf::from)
}

/// A line with the name of the test. `println!` would keep it back, as cargo shows what a test prints only if it fails.
pub fn say_skipped(why: &str) {
    let thread = std::thread::current();
    let _nobody_reads = match thread.name() {
        // One test at a time runs here, and its name has just been printed.
        None | Some("main") => writeln!(stdout(), "skipped: {why}"),
        Some(test) => writeln!(stdout(), "skipped: {test}: {why}"),
    };
}

/// kubectl, 1.32 or newer.
pub fn kubectl() -> Option<PathBuf> {
    find("kubectl", &["kubectl.1.33", "kubectl.1.32", "kubectl"])
}

/// The command `docker`, if it reaches an engine.
pub fn docker_engine() -> Option<PathBuf> {
    let what = "a Docker Engine and the command docker";
    let docker = find(what, &["docker"])?;
    let answered =
        Command::new(&docker).args(["version", "--format", "{{.Server.Version}}"]).output();
    if answered.is_ok_and(|output| output.status.success()) {
        return Some(docker);
    }
    skip(what);
    None
}

/// python3 with its module venv, which some distributions package apart.
pub fn python_with_venv() -> Option<PathBuf> {
    let what = "python3 with venv";
    let python = find(what, &["python3"])?;
    let works = Command::new(&python).args(["-c", "import ensurepip, venv"]).output();
    if works.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    skip(what);
    None
}

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new("."))
}
