//! A tree of processes, seen by the process that started it.

use std::io::{self, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Plain;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::marks;

/// The host asks for SIGTERM, and for SIGKILL.
pub(crate) const TERMINATE: u8 = b't';
pub(crate) const KILL: u8 = b'k';
/// Begin of the lines that tell the host the number of the program's process, and how it ended (as wait(2) says it).
pub(crate) const PROCESS: &str = "process ";
pub(crate) const ENDED: &str = "ended ";

/// For a tree to end after SIGKILL.
const KILLED: Duration = Duration::from_secs(5);
/// For the number of the program's process.
const TOLD: Duration = Duration::from_secs(10);
/// Between two looks at a process group.
const LOOK: Duration = Duration::from_millis(50);

/// How a tree is known, and ended once its program has.
#[derive(Debug)]
pub(crate) struct Manner {
    pub(crate) mark: String,
    pub(crate) grace: Duration,
}

/// A program and all processes below it. Dropping the value ends the tree.
#[derive(Debug)]
pub struct Tree {
    line: Line,
    /// The process that was started: the one above, or the program.
    child: Option<Pid>,
    process: watch::Receiver<Option<u32>>,
    end: watch::Receiver<Option<Result<ExitStatus, io::ErrorKind>>>,
    output: Option<ChildStdout>,
    errors: Option<ChildStderr>,
    _watched: AbortOnDropHandle<()>,
}

/// How the tree is reached.
#[derive(Debug)]
enum Line {
    /// Through the process above it.
    Kept(Plain),
    /// As a group, with the input of its program.
    Group(Pid, Mutex<Option<ChildStdin>>),
}

impl Tree {
    /// The command starts [`crate::Keep`].
    pub(crate) fn kept(mut command: Command, manner: Manner) -> io::Result<Self> {
        let (ours, theirs) = Plain::pair()?;
        ours.set_nonblocking(true)?;
        let told = UnixStream::from_std(ours.try_clone()?)?;
        command.stdin(OwnedFd::from(theirs));
        let child = command.spawn()?;
        // The command holds the keeper's end of the line: if that end stayed open here, the keeper would never see this
        // process go.
        drop(command);
        Ok(Self::watched(child, Line::Kept(ours), Some(told), manner))
    }

    /// The command starts the program.
    pub(crate) fn grouped(mut command: Command, manner: Manner) -> io::Result<Self> {
        let mut child = command.spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or(i32::MAX);
        let input = Mutex::new(child.stdin.take());
        Ok(Self::watched(child, Line::Group(Pid::from_raw(id), input), None, manner))
    }

    fn watched(mut child: Child, line: Line, told: Option<UnixStream>, manner: Manner) -> Self {
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let id = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let (started, process) = watch::channel(None);
        let (ended, end) = watch::channel(None);
        let group = match &line {
            Line::Kept(_) => None,
            Line::Group(group, _) => Some(*group),
        };
        let watched = tokio::spawn(async move {
            let said = if let Some(told) = told {
                hear(told, &started).await
            } else {
                started.send_replace(child.id());
                None
            };
            let status = child.wait().await.map_err(|error| error.kind());
            if let Some(group) = group {
                end_group(group, manner.grace).await;
            }
            // Nothing was above the rest in its last moments.
            if said.is_none()
                && let Err(left) = marks::end(&manner.mark, false).await
            {
                tracing::error!(processes = ?left, "processes of a driver do not end");
                std::future::pending::<()>().await;
            }
            ended.send_replace(Some(said.map_or(status, Ok)));
        });
        let watched = AbortOnDropHandle::new(watched);
        Self { line, child: id, process, end, output, errors, _watched: watched }
    }

    /// The number of the program's process; `None`: it is not known.
    pub async fn process(&self) -> Option<u32> {
        let mut process = self.process.clone();
        let told = timeout(TOLD, process.wait_for(Option::is_some)).await;
        told.ok().and_then(Result::ok).and_then(|process| *process)
    }

    /// The stdout of the tree, if the command piped it.
    pub fn take_output(&mut self) -> Option<ChildStdout> {
        self.output.take()
    }

    /// The stderr of the tree, if the command piped it.
    pub fn take_errors(&mut self) -> Option<ChildStderr> {
        self.errors.take()
    }

    /// Sends SIGTERM to all of it.
    pub fn terminate(&self) {
        match &self.line {
            Line::Kept(line) => say(line, TERMINATE),
            Line::Group(group, input) => {
                drop(input.lock().take());
                self.signal(*group, Signal::SIGTERM);
            }
        }
    }

    /// Sends SIGKILL to all of it, until nothing is left.
    pub fn kill(&self) {
        match &self.line {
            Line::Kept(line) => say(line, KILL),
            Line::Group(group, _) => self.signal(*group, Signal::SIGKILL),
        }
    }

    fn signal(&self, group: Pid, signal: Signal) {
        if self.end.borrow().is_none() {
            let _gone = killpg(group, signal);
        }
    }

    /// Waits until all of it has ended; how the program did.
    ///
    /// # Errors
    /// The status is unknown.
    pub async fn wait(&self) -> io::Result<ExitStatus> {
        let mut end = self.end.clone();
        let ended = end.wait_for(Option::is_some).await.map_err(io::Error::other)?;
        ended.unwrap_or(Err(io::ErrorKind::Other)).map_err(Into::into)
    }

    /// Ends it: SIGTERM, and SIGKILL after `within`. Whether nothing is left.
    pub async fn stop(&self, within: Duration) -> bool {
        self.terminate();
        if timeout(within, self.wait()).await.is_ok() {
            return true;
        }
        self.kill();
        if timeout(KILLED, self.wait()).await.is_ok() {
            return true;
        }
        // The process above may be stopped: without it, the rest is killed by its marks.
        if let Some(child) = self.child.filter(|_| self.end.borrow().is_none()) {
            let _gone = kill(child, Signal::SIGKILL);
        }
        timeout(KILLED, self.wait()).await.is_ok()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        match &self.line {
            // The keeper sees the end of the line.
            Line::Kept(line) => drop(line.shutdown(Shutdown::Both)),
            Line::Group(group, _) => self.signal(*group, Signal::SIGKILL),
        }
    }
}

/// Sends a word to the keeper; a keeper that has ended hears nothing.
fn say(mut line: &Plain, word: u8) {
    if let Err(error) = line.write_all(&[word]) {
        tracing::debug!(%error, "the process above a driver is not reached");
    }
}

/// Reads the lines of the keeper, to its end. `None`: the keeper did not say how the program ended.
async fn hear(told: UnixStream, started: &watch::Sender<Option<u32>>) -> Option<ExitStatus> {
    let mut lines = BufReader::new(told).lines();
    let mut ended = None;
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(process) = line.strip_prefix(PROCESS).and_then(|it| it.parse().ok()) {
            started.send_replace(Some(process));
        }
        if let Some(status) = line.strip_prefix(ENDED).and_then(|it| it.parse().ok()) {
            ended = Some(ExitStatus::from_raw(status));
        }
    }
    ended
}

/// Ends what is left of a group whose first process has ended.
async fn end_group(group: Pid, grace: Duration) {
    let kill_at = Instant::now() + grace;
    let mut signal = Signal::SIGTERM;
    while killpg(group, None).is_ok() {
        if signal == Signal::SIGTERM || Instant::now() >= kill_at {
            let _gone = killpg(group, signal);
            signal = Signal::SIGKILL;
        }
        tokio::time::sleep(LOOK).await;
    }
}
