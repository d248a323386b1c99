//! The first session of the README, command by command, with what it says there: names, numbers and times differ.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use ostler_tests::kubectl::Kubectl;
use ostler_tests::process::{Process, binaries};
use ostler_tests::tools;
use regex::Regex;
use tempfile::TempDir;

const CARGO: &str = "cargo run --release --";

/// A command of the page, and its output.
struct Shown {
    command: String,
    output: Vec<String>,
}

/// The consoles of a section, in order.
fn consoles(page: &str, section: &str) -> Vec<Shown> {
    let page = std::fs::read_to_string(tools::root().join(page)).unwrap();
    let section = page.split("\n## ").find(|it| it.starts_with(section)).unwrap();
    let blocks = section.split("```console\n").skip(1);
    let mut all: Vec<Shown> = Vec::new();
    for line in blocks.flat_map(|rest| rest.split("```").next().unwrap_or_default().lines()) {
        if let Some(command) = line.strip_prefix("$ ") {
            all.push(Shown { command: command.to_owned(), output: Vec::new() });
        } else if let Some(last) = all.last_mut().filter(|_| line != "…" && !line.is_empty()) {
            last.output.push(line.to_owned());
        }
    }
    all
}

/// The line without parts that differ between runs.
fn plain(line: &str) -> String {
    let line = Regex::new("ostler-up_[0-9a-f-]+").unwrap().replace_all(line, "ostler-up_ID");
    let line = Regex::new("workers-[a-z0-9]{5}").unwrap().replace_all(&line, "workers-SET");
    let line = Regex::new("workers-SET-[a-z0-9]{5}").unwrap().replace_all(&line, "workers-SET-M");
    let line = Regex::new("[0-9]+(m[0-9]+)?s?").unwrap().replace_all(&line, "N");
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A user's shell, in a directory that looks like the repository.
struct Shell<'a> {
    directory: &'a Path,
    path: OsString,
}

impl Shell<'_> {
    /// Runs a command as it is written on the page.
    fn run(&self, command: &str) -> String {
        let ostler = binaries().join("ostler").display().to_string();
        let kubeconfig = "export KUBECONFIG=$PWD/.ostler/kubeconfig";
        let script = format!("{kubeconfig}\n{}", command.replace(CARGO, &ostler));
        let output = Command::new("sh")
            .args(["-euc", &script])
            .current_dir(self.directory)
            .env("PATH", &self.path)
            .env("KUBECACHEDIR", self.directory.join("cache"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {said}{errors}");
        said
    }
}

/// What the page shows is printed, in this order; progress only as far as it is seen.
fn assert_shows(shown: &Shown, said: &str) {
    let said: Vec<_> = said.lines().map(plain).collect();
    let mut rest = said.iter();
    for line in shown.output.iter().map(|line| plain(line)) {
        if line.ends_with("machines are available") {
            continue;
        }
        let found = rest.any(|one| *one == line);
        assert!(found, "{}: no `{line}` in {said:#?}", shown.command);
    }
}

#[test]
fn a_stranger_who_follows_the_readme_sees_what_it_shows() {
    let Some(program) = tools::kubectl() else { return };
    let dir = TempDir::new().unwrap();
    let (data, bin) = (dir.path().join(".ostler"), dir.path().join("bin"));
    std::fs::create_dir(&bin).unwrap();
    symlink(&program, bin.join("kubectl")).unwrap();
    symlink(tools::root().join("deploy"), dir.path().join("deploy")).unwrap();
    let mut path = OsString::from(&bin);
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let shell = Shell { directory: dir.path(), path };
    let kubectl = Kubectl::new(program, data.join("kubeconfig"), dir.path());
    let start = || {
        let free = ["--api-listen", "127.0.0.1:0", "--drivers-listen", "127.0.0.1:0"];
        let args = ["up", "--data-dir", data.to_str().unwrap()].into_iter().chain(free);
        let mut up = Process::start("ostler", args, &[]);
        up.line("`ready`", |line| line == "ready: machines can be created");
        up
    };

    let mut session = consoles("README.md", "A first session").into_iter();
    let first = session.next().unwrap();
    assert_eq!(first.command, format!("{CARGO} up"));
    assert_eq!(first.output.last().unwrap(), "ready: machines can be created");
    let mut up = start();
    let mut commands = Vec::new();
    for shown in session {
        if shown.command.contains(" describe ") {
            // It shows a deployment at rest.
            shell.run(&format!("{CARGO} rollout status workers"));
        }
        assert_shows(&shown, &shell.run(&shown.command));
        if shown.command.ends_with("rollout restart workers") {
            let revision = r".metadata.annotations.deployment\.kubernetes\.io/revision";
            kubectl.wait("machinedeployment", "workers", revision, "2");
        }
        commands.push(shown.command);
    }
    for word in ["apply", "status", "scale", "restart", "undo", "describe"] {
        let followed = commands.iter().any(|command| command.contains(word));
        assert!(followed, "the page has no {word}: {commands:?}");
    }

    // Ctrl-C, and a later `up` continues from there.
    let instances = || {
        let machines = kubectl.list("machines");
        machines.iter().map(|it| it["spec"]["providerID"].clone()).collect::<Vec<_>>()
    };
    let before = instances();
    assert_eq!(before.len(), 5);
    up.terminate();
    assert!(up.wait().success());
    let mut up = start();
    shell.run(&format!("{CARGO} rollout status workers"));
    assert_eq!(instances(), before, "they are found, and none is made anew");
    up.terminate();
    assert!(up.wait().success());
    shell.run(&format!("{CARGO} reset"));
    assert!(!data.exists(), "reset leaves nothing");
}
