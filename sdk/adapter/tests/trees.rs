//! A driver is a tree of processes, and ends as a whole: with the real process above it, and with the adapter.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ostler_local::{Keeper, Tree};

/// Only a failing test waits that long.
const PATIENCE: Duration = Duration::from_mins(1);
const ADAPTER: &str = env!("CARGO_BIN_EXE_ostler-adapter");
/// Children of a start script: a process in the script's group, one in a group and session of its own, and one whose
/// parent has ended and whose environment is empty.
const HELPERS: &str = "\
sh -c 'echo $$ > grouped.part; mv grouped.part grouped; exec sleep 600' &
setsid sh -c 'echo $$ > apart.part; mv apart.part apart; exec sleep 600' &
setsid sh -c 'env -i /bin/sh -c \"echo \\$\\$ > hidden.part; mv hidden.part hidden; exec sleep 600\" &'
";
const NAMES: [&str; 3] = ["grouped", "apart", "hidden"];

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A start script that does not `exec`.
    fn script(&self, text: &str) -> PathBuf {
        let path = self.path("start.sh");
        let here = self.0.path().display();
        fs::write(&path, format!("#!/bin/sh\ncd {here}\n{text}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// The process id that a process wrote, once the file is there.
    fn told(&self, name: &str) -> i32 {
        until(name, || fs::read_to_string(self.path(name)).ok()?.trim().parse().ok())
    }

    fn all_told(&self) -> Vec<i32> {
        NAMES.map(|name| self.told(name)).into()
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing else runs on this thread meanwhile")]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let from = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(from.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process runs; one that only waits to be looked at has ended.
fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

fn running(pids: &[i32]) -> Vec<i32> {
    pids.iter().copied().filter(|pid| runs(*pid)).collect()
}

fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Whether no thread runs: each goes on for a moment after the signal.
fn stopped(pid: i32) -> bool {
    let mut threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    threads.all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_none_or(|rest| rest.starts_with(" T") || rest.is_empty())
    })
}

fn end(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

fn keeper() -> Keeper {
    Keeper::of(ADAPTER.into(), &["keep"])
}

fn start(keeper: &Keeper, script: &Path) -> Tree {
    keeper.start(keeper.command(script)).unwrap()
}

async fn ended(tree: &Tree) -> std::process::ExitStatus {
    tokio::time::timeout(PATIENCE, tree.wait()).await.unwrap().unwrap()
}

#[tokio::test]
async fn all_that_a_start_script_started_ends_with_it_also_what_left_its_group_and_hid() {
    let place = Place::new();
    let tree = start(&keeper(), &place.script(&format!("{HELPERS}wait")));
    let started = place.all_told();
    assert_eq!(running(&started), started);
    assert!(tree.stop(PATIENCE).await);
    assert_eq!(running(&started), [0; 0]);
}

#[tokio::test]
async fn a_driver_that_its_script_left_behind_is_ended_before_the_tree_counts_as_ended() {
    let place = Place::new();
    let tree = start(&keeper(), &place.script(&format!("{HELPERS}echo $$ > own\nexec sleep 600")));
    let started = place.all_told();
    end(place.told("own"), Signal::SIGKILL);
    let status = ended(&tree).await;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
    assert_eq!(running(&started), [0; 0]);
}

#[tokio::test]
async fn what_does_not_end_after_sigterm_is_killed_when_its_time_is_over() {
    let place = Place::new();
    let script = "sh -c 'trap \"\" TERM; echo $$ > deaf; while :; do sleep 1; done'\nexit 3";
    let tree = start(&keeper(), &place.script(script));
    let deaf = place.told("deaf");
    assert!(tree.stop(Duration::from_millis(300)).await);
    assert!(!runs(deaf));
}

#[tokio::test]
async fn how_the_program_ended_is_told_as_it_was() {
    let place = Place::new();
    let tree = start(&keeper(), &place.script("exit 3"));
    assert_eq!(ended(&tree).await.code(), Some(3));
    let tree = start(&keeper(), &place.script("kill -SEGV $$"));
    let status = ended(&tree).await;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(11), "{status}");
}

#[tokio::test]
async fn when_the_process_above_a_tree_is_killed_the_host_ends_the_rest() {
    let place = Place::new();
    let tree = start(&keeper(), &place.script(&format!("{HELPERS}echo $$ > own\nwait")));
    let started = place.all_told();
    end(parent(place.told("own")), Signal::SIGKILL);
    ended(&tree).await;
    let left = running(&started);
    assert_eq!(left, running(&[place.told("hidden")]), "only what hid from everybody is left");
    for pid in left {
        end(pid, Signal::SIGKILL);
    }
}

#[tokio::test]
async fn a_tree_ends_though_somebody_stopped_the_process_above_it() {
    let place = Place::new();
    let tree = start(&keeper(), &place.script(&format!("{HELPERS}echo $$ > own\nwait")));
    let started = place.all_told();
    end(parent(place.told("own")), Signal::SIGSTOP);
    end(place.told("hidden"), Signal::SIGKILL);
    assert!(tree.stop(Duration::from_millis(300)).await);
    assert_eq!(running(&started), [0; 0]);
}

#[tokio::test]
async fn without_a_process_above_it_a_tree_is_the_group_of_its_program() {
    let place = Place::new();
    let tree = start(&Keeper::default(), &place.script(&format!("{HELPERS}echo $$ > own")));
    let started = place.all_told();
    ended(&tree).await;
    let hidden = place.told("hidden");
    assert_eq!(running(&started), running(&[hidden]));
    end(hidden, Signal::SIGKILL);
}

/// The adapter with a driver that never listens.
struct Adapter(Child);

impl Adapter {
    fn start(place: &Place, script: &Path, more: &[&str]) -> Self {
        let child = Command::new(ADAPTER)
            .args(["--endpoint", "http://127.0.0.1:1", "--drain-timeout", "1s"])
            .arg("--socket-parent")
            .arg(place.0.path())
            .args(more)
            .arg("--")
            .arg(script)
            .env("RUST_LOG", "warn")
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn pid(&self) -> i32 {
        self.0.id().try_into().unwrap()
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

fn directories(place: &Place) -> usize {
    let names = fs::read_dir(place.0.path()).unwrap().flatten().map(|it| it.file_name());
    names.filter(|name| name.to_string_lossy().starts_with("driver-")).count()
}

const BODY: &str = "\
for name in grouped apart hidden own; do
  if [ -f $name ] && kill -0 $(cat $name) 2>/dev/null && ! grep -q '^State:.Z' /proc/$(cat $name)/status; then
    echo $name >> beside
  fi
done
rm -f grouped apart hidden
";

#[test]
fn sigterm_of_the_adapter_ends_the_whole_driver_and_removes_its_directory() {
    let place = Place::new();
    let script = place.script(&format!("{HELPERS}trap '' TERM\nwait\nsleep 600"));
    let mut adapter = Adapter::start(&place, &script, &[]);
    let started = place.all_told();
    assert_eq!(directories(&place), 1);
    end(adapter.pid(), Signal::SIGTERM);
    until("the end of the adapter", || adapter_ended(&mut adapter.0));
    assert_eq!((running(&started), directories(&place)), (Vec::new(), 0));
}

fn adapter_ended(child: &mut Child) -> Option<()> {
    child.try_wait().unwrap().map(|_| ())
}

#[test]
fn a_killed_adapter_takes_its_driver_with_it_and_the_next_one_removes_what_is_left() {
    let place = Place::new();
    let script = place.script(&format!("{BODY}{HELPERS}echo $$ > own\nwait"));
    let mut first = Adapter::start(&place, &script, &[]);
    let started = place.all_told();
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    until("the end of the driver", || running(&started).is_empty().then_some(()));
    assert_eq!(directories(&place), 1, "nobody was left to remove it");
    fs::remove_file(place.path("own")).unwrap();
    let _second = Adapter::start(&place, &script, &[]);
    place.told("own");
    assert_eq!(directories(&place), 1, "its own");
}

#[test]
fn the_next_adapter_ends_what_is_left_when_everything_above_the_driver_was_killed() {
    let place = Place::new();
    let script = place.script(&format!("{BODY}{HELPERS}echo $$ > own\nwait"));
    let socket = place.path("socket/s");
    for more in [vec![], vec!["--socket", socket.to_str().unwrap()]] {
        let mut first = Adapter::start(&place, &script, &more);
        place.told("own");
        let started = place.all_told();
        let above = parent(place.told("own"));
        // The adapter, and not the process above the driver, is stopped: the kernel continues what is stopped when its parent ends.
        let adapter = first.0.id().try_into().unwrap();
        end(adapter, Signal::SIGSTOP);
        until("the stop of each thread of the adapter", || stopped(adapter).then_some(()));
        end(above, Signal::SIGKILL);
        first.0.kill().unwrap();
        first.0.wait().unwrap();
        // Nobody finds `hidden` any more: its environment is empty, and the process above is gone.
        end(place.told("hidden"), Signal::SIGKILL);
        let stranger = Command::new("sleep").arg("600").spawn().unwrap();
        fs::remove_file(place.path("own")).unwrap();
        let second = Adapter::start(&place, &script, &more);
        place.told("own");
        assert_eq!(running(&started), [0; 0], "{more:?}");
        let beside = fs::read_to_string(place.path("beside"));
        assert!(beside.is_err(), "{beside:?} ran beside the next driver");
        let pid = stranger.id().try_into().unwrap();
        assert!(runs(pid));
        end(pid, Signal::SIGKILL);
        drop(Adapter(stranger));
        let again = place.all_told();
        drop(second);
        until("the end of the driver", || running(&again).is_empty().then_some(()));
        for name in NAMES.into_iter().chain(["own"]) {
            fs::remove_file(place.path(name)).unwrap();
        }
    }
}
