//! `ostler up` on a terminal, which tmux plays: what a person sees there, types there and does to its window.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use ostler_tests::process::{PATIENCE, binaries, pause};
use ostler_tests::tools;
use tempfile::TempDir;

/// A class whose creations last, and a machine of it.
const SLOW: &str = "\
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineClass
metadata: {name: slow}
provider: fake.ostler.dev
providerSpec: {region: local, image: linux-1, latency: {create: 1h}}
secretRef: {name: slow, namespace: default}
---
apiVersion: v1
kind: Secret
metadata: {name: slow}
stringData: {userData: none}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: Machine
metadata: {name: slow-1}
spec: {class: {kind: MachineClass, name: slow}}
";

struct Terminal {
    tmux: PathBuf,
    dir: TempDir,
}

impl Terminal {
    /// A terminal in which `script` runs in a shell.
    fn start(tmux: PathBuf, dir: TempDir, script: &str) -> Self {
        let terminal = Self { tmux, dir };
        let (wide, high) = ("-x100", "-y30");
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", wide, high, "sh", "-c", script]);
        terminal
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.tmux);
        command.arg("-S").arg(self.dir.path().join("tmux")).args(args);
        command.env_remove("RUST_LOG").env_remove("TMUX");
        command
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// All lines that it shows, and showed before, whole although they are wider than the window.
    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-J", "-p", "-S", "-"])
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn resize(&self, columns: &str) {
        self.tmux(&["resize-window", "-x", columns]);
    }

    fn until(&self, what: &str, shows: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if shows(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not show {what}:\n{screen}");
            pause();
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The server may have ended with its last window.
        let _ended = self.command(&["kill-server"]).output();
    }
}

/// The heading of the table of machines, which may stand there once.
fn heading(screen: &str) -> Option<&str> {
    let all: Vec<_> = screen.lines().filter(|line| line.starts_with("MACHINE ")).collect();
    assert!(all.len() <= 1, "the table left something:\n{screen}");
    all.first().copied()
}

#[test]
fn typed_text_a_narrower_window_and_ctrl_c_leave_nothing_of_the_table_and_a_second_one_ends_it() {
    let Some(tmux) = tools::find("tmux", &["tmux"]) else { return };
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("slow.yaml"), SLOW).unwrap();
    let (ostler, path) = (binaries().join("ostler"), dir.path().display().to_string());
    let ports = ["api", "drivers", "autoscaler"].map(|it| format!("--{it}-listen 127.0.0.1:0"));
    let script = format!(
        "trap : INT; cd {path}; {} up --data-dir d --apply slow.yaml {}; echo ended $?; exec cat",
        ostler.display(),
        ports.join(" ")
    );
    let terminal = Terminal::start(tmux, dir, &script);
    let row = |screen: &str| screen.contains("slow-1") && screen.contains("DriverWorking");
    let wide = terminal.until("the machine", row);
    assert!(heading(&wide).is_some_and(|it| it.contains("AGE")), "{wide}");
    assert!(wide.contains("Pending"), "{wide}");

    terminal.keys(&["typed text", "Enter"]);
    terminal.resize("45");
    let less = |screen: &str| heading(screen).is_some_and(|it| !it.contains("AGE"));
    let narrow = terminal.until("fewer columns", less);
    assert!(row(&narrow), "{narrow}");
    terminal.resize("120");
    let wide = terminal.until("all columns", |it| heading(it).is_some_and(|it| it.contains("AGE")));
    assert!(!wide.contains("typed text"), "{wide}");

    terminal.keys(&["C-c"]);
    let asked = "driver fake.ostler.dev: createMachine of slow-1, for";
    let said = terminal.until("what it waits for", |screen| screen.contains(asked));
    assert_eq!(heading(&said), None, "{said}");
    assert!(said.contains("Ctrl-C again ends it immediately"), "{said}");
    terminal.keys(&["C-c"]);
    terminal.keys(&["seen again", "Enter"]);
    let end = terminal.until("the end", |screen| screen.contains("ended 0"));
    for rubbish in ["WARN", "ERROR", "^[", "[0m", "?2026"] {
        assert!(!end.contains(rubbish), "{rubbish}:\n{end}");
    }
    terminal.until("what is typed", |screen| screen.contains("seen again"));
}
