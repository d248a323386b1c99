//! Drivers as process trees: whatever ends `ostler up`, nothing of a driver is left, and none runs beside the next one.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ostler_tests::process::{PATIENCE, Process, binaries};
use ostler_tests::tools::root;

/// A start script that does not `exec`, with a helper in a session of its own. At its start the script notes which
/// processes still run.
const SCRIPT: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
for name in script helper driver; do
  if [ -f $name ] && grep -qs '^State:.[RSD]' /proc/$(cat $name)/status; then echo $name >> beside; fi
done
echo $$ > script
setsid sh -c 'echo $$ > helper; exec sleep 600' &
sh -c 'echo $$ > driver; exec DRIVER'
echo "the driver ended" >&2
"#;
const NAMES: [&str; 3] = ["script", "helper", "driver"];

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let driver = binaries().join("ostler-driver-fake");
        let script = SCRIPT.replace("DRIVER", driver.to_str().unwrap());
        fs::write(place.path("start.sh"), script).unwrap();
        fs::set_permissions(place.path("start.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn up(&self) -> Process {
        let driver = format!("fake.ostler.dev={}", self.path("start.sh").display());
        let data = self.path("data").display().to_string();
        let ports = ["--api-listen", "127.0.0.1:0", "--drivers-listen", "127.0.0.1:0"];
        let args = ["up", "--data-dir", &data, "--driver", &driver].into_iter().chain(ports);
        let mut up = Process::start("ostler", args, &[]);
        up.line("`ready`", |line| line.starts_with("ready"));
        up
    }

    /// The processes of the driver that was started last.
    fn tree(&self) -> Vec<i32> {
        let told = |name| fs::read_to_string(self.path(name)).ok()?.trim().parse().ok();
        until("the processes of the driver", || {
            let told: Option<Vec<i32>> = NAMES.into_iter().map(told).collect();
            told.filter(|all| running(all) == *all)
        })
    }

    fn none_ran_beside_another(&self) {
        let beside = fs::read_to_string(self.path("beside")).unwrap_or_default();
        assert_eq!(beside, "", "still ran when the next driver was started");
    }

    /// Directories of sockets.
    fn sockets(&self) -> usize {
        let of_driver = fs::read_dir(self.path("data/drivers/fake.ostler.dev")).unwrap();
        let names = of_driver.flatten().map(|it| it.file_name());
        names.filter(|name| name.to_string_lossy().starts_with("driver-")).count()
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing else runs on this thread meanwhile")]
fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let from = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(from.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether no thread runs: each goes on for a moment after the signal.
fn stopped(pid: i32) -> bool {
    let mut threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    threads.all(|thread| state_and_parent(&thread.path()).is_none_or(|(state, _)| state == 'T'))
}

fn stat(pid: i32) -> Option<(char, i32)> {
    state_and_parent(Path::new(&format!("/proc/{pid}")))
}

fn state_and_parent(process: &Path) -> Option<(char, i32)> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// The pids that run; a zombie has ended.
fn running(pids: &[i32]) -> Vec<i32> {
    let runs = |pid: &i32| stat(*pid).is_some_and(|(state, _)| state != 'Z');
    pids.iter().copied().filter(runs).collect()
}

fn end(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

#[test]
fn a_driver_behind_a_script_ends_with_up_and_with_its_script() {
    let place = Place::new();
    let mut up = place.up();
    let first = place.tree();
    end(first[0], Signal::SIGKILL);
    up.line("the end of the driver", |line| line.contains("ended: signal: 9"));
    assert_eq!(running(&first), [0; 0], "before another one is started");
    until("the next driver", || (place.tree() != first).then_some(()));
    let second = place.tree();
    up.terminate();
    assert!(up.wait().success());
    assert_eq!((running(&second), place.sockets()), (Vec::new(), 0));
    place.none_ran_beside_another();
}

#[test]
fn a_driver_ends_when_up_is_killed_and_the_next_up_starts_none_before() {
    let place = Place::new();
    let mut up = place.up();
    let first = place.tree();
    up.kill();
    assert_eq!(place.sockets(), 1, "nobody was left to remove it");
    let mut up = place.up();
    assert_eq!((running(&first), place.sockets()), (Vec::new(), 1));
    let second = place.tree();
    up.kill();
    until("the end of the driver", || running(&second).is_empty().then_some(()));
    place.none_ran_beside_another();
}

#[test]
fn the_next_up_ends_a_driver_of_which_everything_above_it_was_killed_and_no_stranger() {
    let place = Place::new();
    let mut up = place.up();
    let first = place.tree();
    let (_, above) = stat(first[0]).unwrap();
    // `up`, and not the process above, is stopped: the kernel continues what is stopped when its parent ends.
    let process = up.pid().as_raw();
    end(process, Signal::SIGSTOP);
    until("the stop of each thread of up", || stopped(process).then_some(()));
    end(above, Signal::SIGKILL);
    up.kill();
    assert!(running(&first).contains(&first[1]), "nothing ends what is in another session");
    let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
    let mut up = place.up();
    assert_eq!(up.last_said("were left, and were ended").as_deref(), Some(""));
    assert_eq!(running(&first), [0; 0]);
    assert_eq!(stranger.try_wait().unwrap(), None);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    place.none_ran_beside_another();
    up.terminate();
    assert!(up.wait().success());
}

#[test]
fn a_killed_suite_takes_the_driver_with_it() {
    let place = Place::new();
    let example = |name: &str| root().join("deploy/examples/fake").join(name);
    let mut suite = Command::new(binaries().join("ostler"))
        .args(["sanity", "--no-create", "--driver-cmd"])
        .arg(place.path("start.sh"))
        .arg("--class")
        .arg(example("class.yaml"))
        .arg("--secret")
        .arg(example("secret.yaml"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let tree = place.tree();
    suite.kill().unwrap();
    suite.wait().unwrap();
    until("the end of the driver", || running(&tree).is_empty().then_some(()));
}
