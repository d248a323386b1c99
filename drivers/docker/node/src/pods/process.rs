//! Processes: started, told, waited for.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::net::unix::pipe::Receiver;

use super::spec::Command;
use super::state::{Exit, ProcessId};

/// The `PATH` of every process, unless its container sets another. Nothing of the agent's own environment is passed on: it may
/// hold a credential.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// When memory is short, the kernel ends pods before the agent.
const FIRST_TO_GO: &str = "500";

/// Starts a process in a group of its own; its output comes out of the pipe.
pub(super) fn spawn(command: &Command, host: &str) -> io::Result<(ProcessId, Receiver)> {
    let (reader, writer) = io::pipe()?;
    let output = Receiver::from_owned_fd(OwnedFd::from(reader))?;
    let mut process = std::process::Command::new(&command.program);
    process
        .args(&command.args)
        .env_clear()
        .envs([("PATH", PATH), ("HOME", "/root"), ("HOSTNAME", host)])
        .envs(command.env.iter().map(|(key, value)| (key, value)))
        .current_dir(command.directory.as_deref().unwrap_or("/"))
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    if let Some(group) = command.group {
        process.gid(group);
    }
    if let Some(user) = command.user {
        process.uid(user);
    }
    let id = process.spawn()?.id();
    // A kernel that refuses has no say over who goes first.
    let _refused = std::fs::write(format!("/proc/{id}/oom_score_adj"), FIRST_TO_GO);
    let id = ProcessId::try_from(id).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok((id, output))
}

/// SIGTERM to the first process of a container, as every container runtime does it.
pub(super) fn tell(process: ProcessId) {
    report(kill(Pid::from_raw(process), Signal::SIGTERM), process);
}

/// SIGKILL to all of them.
pub(super) fn kill_all(process: ProcessId) {
    report(killpg(Pid::from_raw(process), Signal::SIGKILL), process);
}

fn report(outcome: Result<(), Errno>, process: ProcessId) {
    match outcome {
        // It ended meanwhile and is not waited for yet.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => tracing::warn!(process, %error, "cannot be signalled"),
    }
}

/// Reaps every child that has ended, orphans of containers included; returns the ended processes of ours. The rest of the process
/// group of such a process is killed with it.
pub(super) fn reap(is_ours: impl Fn(ProcessId) -> bool) -> Vec<(ProcessId, Exit)> {
    let mut ended = Vec::new();
    // Looks first and waits then: as long as it is not waited for, no other process can be in its group.
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(status) = waitid(Id::All, look) {
        let (pid, exit) = match status {
            WaitStatus::Exited(pid, code) => (pid, Exit::Code(code)),
            WaitStatus::Signaled(pid, signal, _) => (pid, Exit::Signal(signal as i32)),
            WaitStatus::Stopped(..)
            | WaitStatus::PtraceEvent(..)
            | WaitStatus::PtraceSyscall(_)
            | WaitStatus::Continued(_)
            | WaitStatus::StillAlive => break,
        };
        let ours = is_ours(pid.as_raw());
        if ours {
            kill_all(pid.as_raw());
        }
        if let Err(error) = waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
            tracing::warn!(process = pid.as_raw(), %error, "cannot be waited for");
            break;
        }
        if ours {
            ended.push((pid.as_raw(), exit));
        }
    }
    ended
}
