//! Real processes of the built binaries: started, listened to, killed.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::tools::root;

/// Long enough for a loaded machine; a test that gets here has failed.
pub const PATIENCE: Duration = Duration::from_mins(2);
/// Waits between two looks: a look without a pause takes a core from all other tests.
pub fn pause() {
    std::thread::park_timeout(Duration::from_millis(200));
}

/// Lines that a process may be ahead of its reader.
const LINES_AHEAD: usize = 10_000;

/// The directory of the built binaries, which are brought up to date once per test run: linked, and no more, as
/// `tests/tests/repository/tidy.rs` sees to it that cargo has all that is in them from the build of the tests. With
/// `OSTLER_TEST_BIN=DIR`, the binaries of another build, unchanged.
///
/// # Panics
/// If they do not build.
pub fn binaries() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        if let Some(given) = std::env::var_os("OSTLER_TEST_BIN") {
            return PathBuf::from(given);
        }
        let built = as_from_a_shell(&mut Command::new(env!("CARGO")))
            .args(["build", "--quiet", "--workspace", "--bins", "--profile", &profile()])
            .current_dir(root())
            .status()
            .expect("cargo runs");
        assert!(built.success(), "the binaries do not build");
        built_beside()
    })
}

/// The command without what cargo tells a test of its package. Build scripts look at it, that of ring for one: cargo would
/// take it for changed, and build ring and all that stands on it anew, and once more when the next one comes from a shell.
pub fn as_from_a_shell(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let told = name.to_string_lossy();
        if told.starts_with("CARGO_MANIFEST_") || told.starts_with("CARGO_PKG_") {
            command.env_remove(name);
        }
    }
    command
}

/// Where the binaries of the build are that this executable is of.
fn built_beside() -> PathBuf {
    let this = std::env::current_exe().expect("the path of this executable is known");
    let dir = this.parent().expect("executables are in a directory");
    // Tests are built one level below the binaries.
    dir.ancestors().find(|dir| !dir.ends_with("deps")).unwrap_or(dir).to_owned()
}

/// The profile of cargo that this executable was built with: its directory has the name.
pub fn profile() -> String {
    let dir = built_beside();
    let name = dir.file_name().expect("profiles have directories").to_string_lossy();
    if name == "debug" { "dev".to_owned() } else { name.into_owned() }
}

/// One process, killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Process {
    /// Starts one of our binaries.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start<I, S>(binary: &str, args: I, env: &[(&str, &str)]) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        let mut child = Command::new(binaries().join(binary))
            .args(args)
            // Intended failures need no log lines.
            .env("RUST_LOG", "off")
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap_or_else(|error| panic!("{binary} does not start: {error}"));
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = sync_channel(LINES_AHEAD);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // A reader that is gone or far behind does not stop the process.
                let _dropped = sender.try_send(line);
            }
        });
        Self { name: binary.to_owned(), child, lines, seen: Vec::new() }
    }

    /// Waits for a line on stdout for which `matches` is true, and returns it.
    ///
    /// # Panics
    /// If the process ends, or nothing matches for a long time; shows what was printed.
    pub fn line(&mut self, what: &str, matches: impl Fn(&str) -> bool) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if matches(&line) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => panic!(
                    "{} printed no line that is {what}; it printed:\n{}",
                    self.name,
                    self.seen.join("\n")
                ),
            }
        }
    }

    /// The rest of the last printed line that contains `what`.
    pub fn last_said(&mut self, what: &str) -> Option<String> {
        self.seen.extend(self.lines.try_iter());
        self.seen.iter().rev().find_map(|line| Some(line.split_once(what)?.1.to_owned()))
    }

    /// SIGKILL: no chance to do anything about it.
    pub fn kill(&mut self) {
        let _already_gone = self.child.kill();
        let _already_reaped = self.child.wait();
    }

    /// SIGTERM.
    ///
    /// # Panics
    /// If the process is not ours any more.
    pub fn terminate(&self) {
        kill(self.pid(), Signal::SIGTERM).expect("the process is ours");
    }

    /// Waits for the process to end by itself.
    ///
    /// # Panics
    /// If it does not.
    pub fn wait(&mut self) -> ExitStatus {
        // The end of its output is the end of the process.
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.seen.push(line);
        }
        assert!(
            self.lines.try_recv() == Err(TryRecvError::Disconnected),
            "{} does not end; it printed:\n{}",
            self.name,
            self.seen.join("\n")
        );
        self.child.wait().expect("the process is ours")
    }

    /// Resident memory, in KiB.
    ///
    /// # Panics
    /// If the process is gone.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .expect("the process is alive");
        status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok())
            .expect("the kernel tells the resident size")
    }

    /// How long the processors have worked for it, to ten milliseconds.
    ///
    /// # Panics
    /// If the process is gone.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))
            .expect("the process is alive");
        // The name, in parentheses, may hold spaces.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: u64 =
            fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 10)
    }

    /// Its number.
    ///
    /// # Panics
    /// Never: the numbers of processes fit.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("process ids fit"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cargo_inside_a_test_sees_what_one_from_a_shell_does() {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "cargo told this test");
        let output = as_from_a_shell(&mut Command::new("env")).output().expect("env runs");
        let seen = String::from_utf8_lossy(&output.stdout).into_owned();
        let told =
            |line: &&str| ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|it| line.starts_with(it));
        assert_eq!(seen.lines().find(told), None);
        assert!(seen.contains("PATH="), "the rest is as it was");
    }
}
