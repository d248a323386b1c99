//! An engine of a test's own, that may be killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ostler_driver_docker::DockerHost;

use crate::docker::{Docker, has_programs, is_root, skip};

/// For an engine to start on a busy computer.
const START: Duration = Duration::from_mins(2);
/// One that was killed leaves its containerd running, and now and then the next one never gets an
/// answer of it: then both are started anew.
const HUNG: Duration = Duration::from_secs(20);

/// A dockerd with a disk and networks of its own.
pub(crate) struct Daemon {
    dir: tempfile::TempDir,
    process: Option<Child>,
    data: PathBuf,
    forgot: bool,
}

impl Daemon {
    /// Starts one, or skips.
    pub(crate) async fn start() -> Option<Self> {
        let daemon = Self::prepare()?;
        Some(daemon.up().await)
    }

    /// A folder for one that is not started yet, or a skip.
    pub(crate) fn prepare() -> Option<Self> {
        if !has_programs(&["docker", "dockerd", "unshare"]) {
            return None;
        }
        if !is_root() {
            skip("root, who may start a docker engine");
            return None;
        }
        // Paths of sockets are short.
        let dir = tempfile::Builder::new().prefix("od-").tempdir_in("/tmp").unwrap();
        let data = dir.path().join("data");
        Some(Self { dir, process: None, data, forgot: false })
    }

    /// The same with its disk somewhere else.
    pub(crate) fn disk(mut self, data: &Path) -> Self {
        data.clone_into(&mut self.data);
        self
    }

    pub(crate) async fn up(mut self) -> Self {
        self.restart().await;
        self.docker().load_image();
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn docker(&self) -> Docker {
        let host = format!("unix://{}/s", self.dir.path().display());
        Docker::at(host.parse::<DockerHost>().unwrap())
    }

    /// Starts it, again or for the first time, and waits until it answers. On a busy computer it
    /// may give up before its containerd answers, and is started once more.
    pub(crate) async fn restart(&mut self) {
        let ready = async {
            loop {
                let mut process = self.spawn();
                if tokio::time::timeout(HUNG, self.answers(&mut process)).await.is_ok() {
                    return process;
                }
                process.kill().unwrap();
                process.wait().unwrap();
                self.end_containerd();
            }
        };
        let process = tokio::time::timeout(START, ready).await;
        let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        self.process = Some(process.unwrap_or_else(|_| panic!("dockerd: {}", log())));
    }

    async fn answers(&mut self, process: &mut Child) {
        let docker = self.docker();
        while !docker.answers() {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if process.try_wait().unwrap().is_some() {
                self.forget_torn_networks();
                *process = self.spawn();
            }
        }
    }

    /// An engine that was killed while it made a network panics at every start, in `reservePools` of Docker 20.10, over
    /// a half-written network. For such an engine, a user removes the database of networks.
    fn forget_torn_networks(&mut self) {
        let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        if log.contains("libnetwork.(*controller).reservePools") {
            let _gone = std::fs::remove_file(self.data.join("network/files/local-kv.db"));
            self.forgot = true;
        }
    }

    /// Whether the engine lost its networks.
    pub(crate) fn forgot_networks(&self) -> bool {
        self.forgot
    }

    fn end_containerd(&self) {
        let file = self.dir.path().join("e/containerd/containerd.pid");
        let id = std::fs::read_to_string(file).unwrap_or_default();
        if let Ok(id) = id.trim().parse() {
            end(id, Signal::SIGKILL);
        }
    }

    fn spawn(&self) -> Child {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let log = std::fs::File::options().create(true).append(true).open(path("log")).unwrap();
        // In a network namespace of its own: an engine without a bridge would remove the bridge of the host.
        Command::new("unshare")
            .args(["--net", "dockerd"])
            .args(["--host", &self.docker().host().to_string()])
            .args(["--data-root", &self.data.display().to_string()])
            .args(["--exec-root", &path("e"), "--pidfile", &path("pid")])
            .args(["--bridge", "none", "--iptables=false", "--ip6tables=false"])
            .args(["--default-address-pool", "base=10.213.0.0/16,size=28"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// Kills the engine as a crash would, with its containerd: the next engine would wait some 15 s for the old
    /// containerd.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
            self.end_containerd();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // With SIGTERM: the engine then unmounts its mounts and ends its containerd.
            end(process.id().try_into().unwrap(), Signal::SIGTERM);
            let _ended = process.wait();
        }
        // Ends the rest of a killed engine after a failed test.
        let dir = self.dir.path().display().to_string();
        for left in started_with(&dir) {
            for child in children(left) {
                end(child, Signal::SIGKILL);
            }
            end(left, Signal::SIGKILL);
        }
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
        let paths = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        for path in paths.filter(|path| path.starts_with(&dir)) {
            drop(Command::new("umount").args(["-l", path]).status());
        }
    }
}

fn end(process: i32, signal: Signal) {
    let _gone = kill(Pid::from_raw(process), signal);
}

/// Processes with `dir` in their command line.
fn started_with(dir: &str) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ours = |id: &i32| {
        let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(dir)
    };
    ids.filter(ours).collect()
}

fn children(process: i32) -> Vec<i32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let printed = std::fs::read_to_string(path).unwrap_or_default();
    printed.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}
