//! Real kubectl, as a user has it.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// How long a `kubectl wait` may take; a test that gets there has failed.
const PATIENCE: &str = "--timeout=300s";

/// kubectl against one kubeconfig, with a cache of its own: its discovery cache is keyed by host
/// and port, and ports are reused.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl Kubectl {
    /// `directory` takes the cache.
    pub fn new(program: PathBuf, kubeconfig: PathBuf, directory: &Path) -> Self {
        Self { program, kubeconfig, cache: directory.join("kubectl-cache") }
    }

    /// Runs kubectl and returns whatever it answers.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn output<I, S>(&self, args: I, input: Option<&str>) -> Output
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl starts");
        if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
            stdin.write_all(input.as_bytes()).expect("kubectl reads its input");
        }
        child.wait_with_output().expect("kubectl ends")
    }

    /// The command, for a caller that reads the output during the run.
    pub fn command<I, S>(&self, args: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).arg("--cache-dir").arg(&self.cache);
        command.args(args);
        command
    }

    /// Runs kubectl and returns its stdout.
    ///
    /// # Panics
    /// If kubectl fails; shows its output.
    pub fn run<I, S>(&self, args: I) -> String
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        text(&self.output(args, None))
    }

    /// `kubectl apply -f -`.
    ///
    /// # Panics
    /// If kubectl fails; shows its output.
    pub fn apply(&self, manifest: &str) -> String {
        text(&self.output(["apply", "-f", "-"], Some(manifest)))
    }

    /// The object as JSON, or `Null` if it is not there.
    ///
    /// # Panics
    /// If kubectl fails otherwise.
    pub fn get(&self, kind: &str, name: &str) -> Value {
        let found = self.run(["get", kind, name, "--ignore-not-found", "-o", "json"]);
        if found.trim().is_empty() {
            return Value::Null;
        }
        serde_json::from_str(&found).expect("kubectl prints JSON")
    }

    /// All objects of a kind, of all namespaces.
    ///
    /// # Panics
    /// If kubectl fails.
    pub fn list(&self, kind: &str) -> Vec<Value> {
        let found: Value = serde_json::from_str(&self.run(["get", kind, "-A", "-o", "json"]))
            .expect("kubectl prints JSON");
        found["items"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until a JSON path of the object has the value.
    ///
    /// # Panics
    /// If it does not within two minutes; shows the object.
    pub fn wait(&self, kind: &str, name: &str, path: &str, value: &str) {
        let condition = format!("--for=jsonpath={{{path}}}={value}");
        let output = self.output(["wait", &format!("{kind}/{name}"), &condition, PATIENCE], None);
        assert!(
            output.status.success(),
            "{kind}/{name} never had {path}={value}: {}\n{}",
            String::from_utf8_lossy(&output.stderr),
            self.run(["get", kind, name, "--ignore-not-found", "-o", "yaml"])
        );
    }

    /// Waits until the object is gone.
    ///
    /// # Panics
    /// If it is not within two minutes; shows the object.
    pub fn wait_gone(&self, kind: &str, name: &str) {
        let output =
            self.output(["wait", &format!("{kind}/{name}"), "--for=delete", PATIENCE], None);
        assert!(
            output.status.success(),
            "{kind}/{name} never went: {}\n{}",
            String::from_utf8_lossy(&output.stderr),
            self.run(["get", kind, name, "--ignore-not-found", "-o", "yaml"])
        );
    }
}

fn text(output: &Output) -> String {
    assert!(
        output.status.success(),
        "kubectl failed: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
