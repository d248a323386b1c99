//! The environment of drivers of `ostler up`, and that the drivers end with `up`.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A driver that tells its environment and its process id, and then looks at nothing any more.
const DRIVER: &str = "#!/bin/sh\nenv > env.part && mv env.part env\necho $$ > pid.part && mv pid.part pid\nexec sleep 1000\n";

struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "no {what} within a minute");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie has ended.
    !stat.is_empty() && !stat.contains(") Z ")
}

fn start(dir: &Path) -> Up {
    let driver = dir.join("mine");
    fs::write(&driver, DRIVER).unwrap();
    fs::set_permissions(&driver, Permissions::from_mode(0o700)).unwrap();
    let up = Command::new(env!("CARGO_BIN_EXE_ostler"))
        .args(["up", "--no-live", "--api-listen", "127.0.0.1:0", "--drivers-listen", "127.0.0.1:0"])
        .args(["--driver-env", "CLOUD_PROFILE", "--audit-log"])
        .arg(dir.join("audit.jsonl"))
        .arg("--driver")
        .arg(&driver)
        .arg("--data-dir")
        .arg(dir.join("data"))
        .env("CLOUD_PROFILE", "test")
        .env("SECRET_ACCESS_KEY", "canary")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Up(up)
}

#[test]
fn a_driver_gets_little_of_the_environment_and_ends_though_nobody_tells_it_to() {
    let dir = tempfile::tempdir().unwrap();
    let up = start(dir.path());
    let own = dir.path().join("data/drivers/mine");
    let pid = wait_for("driver", || fs::read_to_string(own.join("pid")).ok());
    let env = fs::read_to_string(own.join("env")).unwrap();
    let has = |name: &str| env.lines().any(|line| line.starts_with(&format!("{name}=")));
    for name in ["PATH", "CLOUD_PROFILE", "OSTLER_ENDPOINT", "OSTLER_TOKEN_FILE", "RUST_LOG"] {
        assert!(has(name), "{name} is not in\n{env}");
    }
    assert!(!has("SECRET_ACCESS_KEY") && !env.contains("canary"), "{env}");
    let audit = dir.path().join("audit.jsonl");
    assert_eq!(fs::metadata(audit).unwrap().permissions().mode() & 0o777, 0o600);
    let pid = pid.trim();
    assert!(runs(pid));
    // SIGKILL.
    drop(up);
    wait_for("end of the driver", || (!runs(pid)).then_some(()));
}

/// It is told where to listen and nothing of the core, is started again when it ends, and ends with its adapter.
#[test]
fn a_driver_of_the_adapter_gets_none_of_its_variables_and_no_longer_life() {
    let dir = tempfile::tempdir().unwrap();
    let driver = dir.path().join("mine");
    fs::write(&driver, DRIVER).unwrap();
    fs::set_permissions(&driver, Permissions::from_mode(0o700)).unwrap();
    let adapter = Command::new(env!("CARGO_BIN_EXE_ostler"))
        .args(["driver", "adapt", "--socket-parent"])
        .arg(dir.path())
        .arg("--")
        .arg(&driver)
        .current_dir(dir.path())
        .env("OSTLER_ENDPOINT", "http://127.0.0.1:9")
        .env("OSTLER_INSTANCE_NAME", "it")
        .env("CLOUD_PROFILE", "test")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let adapter = Up(adapter);
    let next = |before: &str| {
        wait_for("driver", || {
            let pid = fs::read_to_string(dir.path().join("pid")).ok()?.trim().to_owned();
            (pid != before).then_some(pid)
        })
    };
    let first = next("");
    let env = fs::read_to_string(dir.path().join("env")).unwrap();
    let names = |prefix: &str| -> Vec<String> {
        let names = env.lines().filter_map(|line| Some(line.split_once('=')?.0.to_owned()));
        names.filter(|name| name.starts_with(prefix)).collect()
    };
    // The mark by which all processes of the driver are found, and the socket on which the driver listens.
    assert_eq!(names("OSTLER_"), ["OSTLER_PROCESS_TREE", "OSTLER_DRIVER_SOCKET"]);
    assert_eq!(names("CLOUD_PROFILE"), ["CLOUD_PROFILE"]);
    kill(Pid::from_raw(first.parse().unwrap()), Signal::SIGKILL).unwrap();
    let second = next(&first);
    assert!(runs(&second));
    // SIGKILL.
    drop(adapter);
    wait_for("end of the driver", || (!runs(&second)).then_some(()));
}

fn ostler(args: &[&str], data: &Path, profile: Option<&str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ostler"));
    command.args(args).arg("--data-dir").arg(data).env_remove("CLOUD_PROFILE");
    command.envs(profile.map(|profile| ("CLOUD_PROFILE", profile)));
    command.stdin(Stdio::null());
    command
}

/// A driver that looks into another account finds no machine, and says that there is none.
#[test]
fn reset_refuses_to_run_drivers_without_the_variables_that_up_gave_them() {
    const GIVEN: [&str; 2] = ["--driver-env", "CLOUD_PROFILE"];
    let dir = tempfile::tempdir().unwrap();
    let name = "driver-env.json";
    for way_out in [&GIVEN[..], &["--without-driver-env"]] {
        let data = dir.path().join("data");
        let args = ["up", "--no-live", "--driver", "none", "--api-listen", "127.0.0.1:0"];
        let args = [&args[..], &["--drivers-listen", "127.0.0.1:0"], &GIVEN].concat();
        let mut up = ostler(&args, &data, Some("canary"));
        let up = Up(up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        wait_for("kubeconfig", || data.join("kubeconfig").exists().then_some(()));
        let kept = fs::read_to_string(data.join(name)).unwrap();
        assert!(kept.contains("CLOUD_PROFILE") && !kept.contains("canary"), "{kept}");
        drop(up);
        for (flags, profile, hint) in [
            (
                &[][..],
                Some("test"),
                "give --driver-env CLOUD_PROFILE; or give --without-driver-env",
            ),
            (&GIVEN, None, "after you have set CLOUD_PROFILE; or"),
        ] {
            let mut reset = ostler(&[&["reset"], flags].concat(), &data, profile);
            let output = reset.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && said.contains(hint), "{said}");
            assert!(data.join(name).exists());
        }
        let reset = ostler(&[&["reset"], way_out].concat(), &data, Some("test")).output().unwrap();
        let said = String::from_utf8_lossy(&reset.stderr).into_owned();
        assert!(reset.status.success() && !data.exists(), "{way_out:?}: {said}");
    }
}
