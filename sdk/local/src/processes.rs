//! Processes as the kernel tells of them in `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

/// A process. Its number may be another's later; with the time of its start it is no other's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    parent: i32,
    started: u64,
}

impl Process {
    /// `None`: there is none of this number, or it has ended and its parent has not looked yet.
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything.
        let mut fields = text.rsplit(')').next()?.split_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let threads: u32 = fields.nth(15)?.parse().ok()?;
        let started = fields.nth(1)?.parse().ok()?;
        // The first thread of a process may end before the others.
        let ended = matches!(state, "Z" | "X") && threads <= 1;
        (!ended).then_some(Self { pid, parent, started })
    }

    /// Sends a signal, to this process and no other.
    pub(crate) fn signal(self, signal: Signal) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => Some(handle),
            Err(Errno::SRCH) => return Ok(()),
            // Old kernels, and sandboxes without pidfds.
            Err(Errno::NOSYS | Errno::PERM) => None,
            Err(error) => return Err(error.into()),
        };
        // Checks that the handle belongs to the process that was found.
        if Self::read(self.pid).is_none_or(|now| now.started != self.started) {
            return Ok(());
        }
        let sent = match handle {
            Some(handle) => pidfd_send_signal(handle, signal),
            None => kill_process(pid, signal),
        };
        match sent {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// All that run.
fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// All descendants of `roots`, without `roots`.
fn below(roots: BTreeSet<i32>, all: &[Process]) -> Vec<Process> {
    let mut known = roots;
    let mut found = Vec::new();
    loop {
        let new: Vec<Process> = all
            .iter()
            .filter(|it| known.contains(&it.parent) && !known.contains(&it.pid))
            .copied()
            .collect();
        if new.is_empty() {
            return found;
        }
        known.extend(new.iter().map(|it| it.pid));
        found.extend(new);
    }
}

/// All descendants of this process.
pub(crate) fn of_this_one() -> Vec<Process> {
    below([own()].into(), &all())
}

/// All processes with `mark` in `variable` of the environment, and their descendants; never this process.
pub(crate) fn marked(variable: &str, mark: &str) -> Vec<Process> {
    let all = all();
    let has = |it: &&Process| it.pid != own() && has_mark(it.pid, variable, mark);
    let mut found: Vec<Process> = all.iter().filter(has).copied().collect();
    let roots = found.iter().map(|it| it.pid).collect();
    found.extend(below(roots, &all));
    found
}

fn has_mark(pid: i32, variable: &str, mark: &str) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    let name = format!("{variable}=");
    environment.split(|byte| *byte == 0).any(|variable| {
        let value = variable.strip_prefix(name.as_bytes());
        value.is_some_and(|value| value.windows(mark.len()).any(|part| part == mark.as_bytes()))
    })
}

fn own() -> i32 {
    nix::unistd::getpid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    const VARIABLE: &str = "OSTLER_TEST_MARK";

    fn sleeper(mark: Option<&str>) -> Child {
        let mut command = Command::new("sleep");
        command.arg("60").envs(mark.map(|mark| (VARIABLE, mark)));
        command.spawn().unwrap()
    }

    fn process(child: &Child) -> Process {
        Process::read(i32::try_from(child.id()).unwrap()).unwrap()
    }

    #[test]
    fn a_signal_reaches_no_other_process_that_has_the_number_now() {
        let mut child = sleeper(None);
        let found = process(&child);
        let earlier = Process { started: found.started - 1, ..found };
        earlier.signal(Signal::KILL).unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        found.signal(Signal::KILL).unwrap();
        child.wait().unwrap();
        found.signal(Signal::KILL).unwrap();
    }

    #[test]
    fn a_process_is_found_by_a_part_of_its_mark_and_no_other_is() {
        let (mut own, mut other) = (sleeper(Some("a.1;b.10;")), sleeper(Some("a.1;b.1;")));
        // The mark is there once the program is.
        while marked(VARIABLE, "b.").len() < 2 {
            std::thread::yield_now();
        }
        assert_eq!(marked(VARIABLE, "b.10;"), [process(&own)]);
        assert_eq!(marked(VARIABLE, "c."), []);
        for child in [&mut own, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(marked(VARIABLE, "b."), []);
    }
}
