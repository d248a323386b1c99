//! The process above a tree: it ends with the last of it, and ends it when the host is gone.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::Instant;

use crate::processes;
use crate::tree::{ENDED, KILL, PROCESS, TERMINATE};

/// Between two kills of the tree: meanwhile, its processes may have started more.
const AGAIN: Duration = Duration::from_millis(50);

/// A program, and how it is kept together with all that it starts. Standard input is the line to the host.
#[derive(Debug, clap::Args)]
pub struct Keep {
    /// For how long what is left may go on after SIGTERM, once the program has ended or the host is gone
    #[arg(long, value_name = "MS")]
    grace: u64,
    /// End everything with SIGKILL once the host is gone
    #[arg(long)]
    kill: bool,
    /// Give the program an input, which ends before SIGTERM
    #[arg(long)]
    input: bool,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Keep {
    /// Runs the program to the end of all that it started. `exec`: where this executable has [`crate::Exec`]. On the
    /// main thread, since the program is killed with the thread that started it.
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn run(self, exec: &[&str]) -> anyhow::Result<()> {
        set_child_subreaper(true).context("orphans of the program cannot be taken")?;
        let mut child = signal(SignalKind::child())?;
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let mut asked = kinds.map(signal).into_iter().collect::<io::Result<Vec<_>>>()?;
        let mut host = Some(host().context("standard input is no line to a host")?);
        let mut tree = self.start(exec)?;
        tell(&mut host, format!("{PROCESS}{}\n", tree.program)).await;
        let grace = Duration::from_millis(self.grace);
        while tree.is_left() {
            if tree.ended.is_some() && !tree.asked {
                tree.terminate(Some(grace));
            }
            tokio::select! {
                _ = child.recv() => {}
                () = any(&mut asked) => tree.terminate(Some(grace)),
                word = heard(&mut host) => match word {
                    Some(TERMINATE) => tree.terminate(None),
                    Some(KILL) => tree.kill_at = Some(Instant::now()),
                    Some(_) => {}
                    None => {
                        host = None;
                        if self.kill {
                            tree.kill_at = Some(Instant::now());
                        } else {
                            tree.terminate(Some(grace));
                        }
                    }
                },
                () = until(tree.kill_at) => tree.kill(),
            }
        }
        tell(&mut host, format!("{ENDED}{}\n", tree.ended.unwrap_or_default())).await;
        Ok(())
    }

    fn start(&self, exec: &[&str]) -> anyhow::Result<Kept> {
        let this = std::env::current_exe().context("the path of this executable is not known")?;
        let mut started = Command::new(this)
            .args(exec)
            .args(["--parent", &std::process::id().to_string(), "--"])
            .args(&self.command)
            .stdin(if self.input { Stdio::piped() } else { Stdio::null() })
            .spawn()
            .context("the program cannot be started")?;
        let program = i32::try_from(started.id()).unwrap_or(i32::MAX);
        Ok(Kept { program, ended: None, input: started.stdin.take(), asked: false, kill_at: None })
    }
}

/// The state of a tree.
struct Kept {
    /// The process of the program.
    program: i32,
    /// The exit status of the program, if it has ended.
    ended: Option<i32>,
    input: Option<ChildStdin>,
    /// SIGTERM was sent.
    asked: bool,
    /// When what is left is killed.
    kill_at: Option<Instant>,
}

impl Kept {
    /// Reaps processes that have ended. Whether any process of the tree is left: this process is an ancestor of them
    /// all, since orphans become its children.
    fn is_left(&mut self) -> bool {
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return true,
                Ok(status) => status,
                Err(Errno::EINTR) => continue,
                Err(_) => return false,
            };
            if status.pid().is_some_and(|pid| pid.as_raw() == self.program) {
                self.ended = match status {
                    WaitStatus::Exited(_, code) => Some(code << 8),
                    WaitStatus::Signaled(_, signal, _) => Some(signal as i32),
                    WaitStatus::Stopped(..)
                    | WaitStatus::PtraceEvent(..)
                    | WaitStatus::PtraceSyscall(_)
                    | WaitStatus::Continued(_)
                    | WaitStatus::StillAlive => None,
                };
            }
        }
    }

    /// Sends SIGTERM once; SIGKILL follows after `grace`.
    fn terminate(&mut self, grace: Option<Duration>) {
        drop(self.input.take());
        if !std::mem::replace(&mut self.asked, true) {
            self.signal(Signal::TERM);
        }
        if let Some(grace) = grace {
            self.kill_at.get_or_insert_with(|| Instant::now() + grace);
        }
    }

    fn signal(&self, signal: Signal) {
        let all = processes::of_this_one();
        // Without /proc the program is all that is known.
        if all.is_empty()
            && self.ended.is_none()
            && let Some(program) = rustix::process::Pid::from_raw(self.program)
        {
            let _gone = rustix::process::kill_process(program, signal);
        }
        for process in all {
            // A process that cannot be signalled, as another user's, is waited for.
            let _refused = process.signal(signal);
        }
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.asked = true;
        self.kill_at = Some(Instant::now() + AGAIN);
    }
}

fn host() -> io::Result<UnixStream> {
    let line = io::stdin().as_fd().try_clone_to_owned()?;
    let line = std::os::unix::net::UnixStream::from(line);
    line.set_nonblocking(true)?;
    UnixStream::from_std(line)
}

async fn tell(host: &mut Option<UnixStream>, line: String) {
    if let Some(host) = host {
        // `heard` sees that the host is gone.
        let _gone = host.write_all(line.as_bytes()).await;
    }
}

/// The next word of the host; `None`: it is gone. Never, once that was seen.
async fn heard(host: &mut Option<UnixStream>) -> Option<u8> {
    match host {
        Some(line) => line.read_u8().await.ok(),
        None => std::future::pending().await,
    }
}

async fn any(signals: &mut [Signals]) {
    std::future::poll_fn(|context| {
        let ready = signals.iter_mut().any(|it| it.poll_recv(context).is_ready());
        if ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
