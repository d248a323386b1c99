//! Every line of `docs/debugging.md`, run in order in one shell against a real `ostler up`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use ostler_tests::process::{PATIENCE, Process, binaries};
use ostler_tests::tools;
use tempfile::TempDir;

use crate::e2e::manifests::one_machine;

/// Matches any text in the expected output of a line.
const ANYTHING: char = '…';
/// Says that a command has ended, and how.
const MARK: &str = "@@@ ended with ";

/// A command of the page, and its output there.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    command: String,
    prints: String,
}

/// The lines after `$ ` in blocks of shell, each with the lines that follow it.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut shell = false;
    let mut open = false;
    for line in page.lines() {
        if line.starts_with("```") {
            shell = line == "```sh";
            open = false;
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| shell) {
            steps.push(Step { command: command.to_owned(), prints: String::new() });
            open = true;
        } else if let Some(step) = steps.last_mut().filter(|_| shell && open) {
            step.prints.push_str(line);
            step.prints.push('\n');
        }
    }
    steps
}

/// Whether `said` is what the page has, with anything in the place of every `…`. A line of nothing
/// else stands for any number of lines. Columns may be as wide as they like.
fn fits(expected: &str, said: &str) -> bool {
    let expected = squeezed(expected).replace("\n…\n", "\n…");
    let said = squeezed(said);
    let parts: Vec<&str> = expected.split(ANYTHING).collect();
    let Some((first, rest)) = parts.split_first() else { return false };
    let Some(mut left) = said.strip_prefix(first) else { return false };
    let Some((last, between)) = rest.split_last() else { return left.is_empty() };
    for part in between {
        let Some(at) = left.find(part) else { return false };
        left = left.get(at + part.len()..).unwrap_or_default();
    }
    left.ends_with(last)
}

/// Runs of blanks as one, none at the ends of lines, and no empty lines at the end.
fn squeezed(text: &str) -> String {
    let line = |line: &str| {
        let (indent, _) = line.split_at(line.len() - line.trim_start().len());
        indent.to_owned() + &line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    text.trim_end().lines().map(line).collect::<Vec<_>>().join("\n")
}

/// One bash for all commands, so that variables stay set.
struct Shell {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Shell {
    fn start(directory: &Path) -> Self {
        let path = std::env::var("PATH").unwrap();
        let mut child = Command::new("bash")
            .arg("--norc")
            .current_dir(directory)
            .env("PATH", format!("{}:{path}", binaries().display()))
            // Its cache is keyed by host and port, and ports are reused.
            .env("KUBECACHEDIR", directory.join("kubectl-cache"))
            .env("RUST_LOG", "off")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = sync_channel(10_000);
        let output = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "exec 2>&1").unwrap();
        Self { child, input, lines }
    }

    /// The output of a command, and whether it succeeds.
    fn run(&mut self, command: &str) -> (String, bool) {
        writeln!(self.input, "{command}\nprintf '\\n{MARK}%s\\n' $?").unwrap();
        let mut said = String::new();
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else {
                return (said + "and does not end", false);
            };
            if let Some(code) = line.strip_prefix(MARK) {
                return (said, code == "0");
            }
            said.push_str(&line);
            said.push('\n');
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _already_reaped = self.child.wait();
    }
}

#[test]
fn every_line_of_the_page_on_debugging_does_what_the_page_says() {
    let (Some(_), Some(_)) = (tools::find("grpcurl", &["grpcurl"]), tools::kubectl()) else {
        return;
    };
    let page = std::fs::read_to_string(tools::root().join("docs/debugging.md")).unwrap();
    let dir = TempDir::new().unwrap();
    let (data, files) = (dir.path().join(".ostler"), one_machine());
    let listen = "127.0.0.1:0";
    let args = ["up", "--api-listen", listen, "--drivers-listen", listen];
    let args = args.into_iter().chain(files.iter().flat_map(|file| ["--apply", file]));
    let args = args.chain(["--data-dir"]);
    let mut up = Process::start("ostler", args.chain([data.to_str().unwrap()]), &[]);
    let said = up.line("the drivers' address", |line| line.contains("takes drivers at"));
    let drivers = said.rsplit(' ').next().unwrap().to_owned();
    up.line("`ready`", |line| line.starts_with("ready"));

    let mut shell = Shell::start(dir.path());
    let steps = steps(&page);
    assert!(steps.len() > 30, "the page has lost its commands");
    for Step { command, prints } in steps {
        let (said, succeeded) = shell.run(&command.replace("127.0.0.1:5000", &drivers));
        let shows_error = prints.to_lowercase().lines().any(|line| line.starts_with("error"));
        assert!(
            succeeded || shows_error && !said.ends_with("does not end"),
            "`{command}` fails:\n{said}"
        );
        assert!(
            prints.is_empty() || fits(&prints, &said),
            "`{command}` prints\n{said}\nand the page says\n{prints}"
        );
    }
}

#[test]
fn a_page_is_read_and_compared_as_people_do() {
    let page = "text\n```sh\n$ one\n1\n…\n$ two\n```\n$ not this\n```json\n$ nor this\n```\n";
    let step = |command: &str, prints: &str| Step {
        command: command.to_owned(),
        prints: prints.to_owned(),
    };
    assert_eq!(steps(page), [step("one", "1\n…\n"), step("two", "")]);
    assert!(fits("a   b\n…\nz …\n", "a b\nz 1\n") && fits("a\n…\nz\n", "a\nb\nc\nz\n\n"));
    assert!(!fits("a\n", "a\nb\n") && !fits("a\n…\nz\n", "a\nb\n") && !fits("a…\n", "b\n"));
}
