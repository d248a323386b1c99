//! Sockets of `ostler up` and `ostler-server`: in deep directories, and after their files were removed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ostler_tests::process::{PATIENCE, Process, binaries};

const DRIVER: &str = "fake.ostler.dev";

/// The output of `ostler drivers ls` in a directory.
fn drivers(admin: &str, directory: &Path) -> Result<String, String> {
    let output = Command::new(binaries().join("ostler"))
        .args(["drivers", "ls", "--admin", admin])
        .current_dir(directory)
        .output()
        .map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[expect(clippy::disallowed_methods, reason = "nothing else runs on this thread meanwhile")]
fn until_listed(admin: &str, directory: &Path) {
    let from = Instant::now();
    loop {
        match drivers(admin, directory) {
            Ok(listed) if listed.contains(DRIVER) => return,
            said => assert!(from.elapsed() < PATIENCE, "{said:?}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn the_admin_socket_is_found_in_a_deep_directory_and_made_again_when_somebody_removed_it() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
    fs::create_dir_all(&deep).unwrap();
    let data = deep.join(".ostler").display().to_string();
    let ports = ["--api-listen", "127.0.0.1:0", "--drivers-listen", "127.0.0.1:0"];
    let args = ["up", "--data-dir", &data].into_iter().chain(ports);
    let mut up = Process::start("ostler", args, &[]);
    let told = up.line("the admin socket", |line| line.contains("ostler drivers ls --admin "));
    let told = told.split_once("--admin ").unwrap().1.to_owned();
    up.line("`ready`", |line| line.starts_with("ready"));
    for admin in ["unix:./.ostler/admin.sock", &told] {
        until_listed(admin, &deep);
    }
    fs::remove_file(deep.join(".ostler/admin.sock")).unwrap();
    until_listed(&told, &deep);
    up.terminate();
    assert!(up.wait().success());
    assert!(!deep.join(".ostler/admin.sock").exists());
}

#[test]
fn a_driver_finds_the_core_through_a_socket_with_a_long_path_that_was_removed_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("d".repeat(120));
    fs::create_dir_all(&deep).unwrap();
    let data = dir.path().join("data");
    let flags = ["--driver", "none", "--core", "none", "--api-listen", "127.0.0.1:0"];
    let args = ["up", "--data-dir", data.to_str().unwrap()].into_iter().chain(flags);
    let mut api = Process::start("ostler", args, &[]);
    api.line("`ready`", |line| line.starts_with("ready"));
    let kubeconfig = data.join("kubeconfig").display().to_string();
    let token = dir.path().join("token");
    fs::write(&token, "token-of-a-driver").unwrap();
    let socket = |name: &str| format!("unix:{}", deep.join(name).display());
    let (core, admin) = (socket("core.sock"), socket("admin.sock"));
    let bound = format!("{DRIVER}={}", token.display());
    let args = [
        "--control-kubeconfig",
        &kubeconfig,
        "--drivers-listen",
        &core,
        "--admin-listen",
        &admin,
        "--driver-token",
        &bound,
        "--metrics-listen",
        "127.0.0.1:0",
    ];
    let _server = Process::start("ostler-server", args, &[]);
    let driver = || {
        let args = ["--endpoint", &core, "--token-file", token.to_str().unwrap()];
        Process::start("ostler-driver-fake", args, &[])
    };
    let first = driver();
    until_listed(&admin, dir.path());
    drop(first);
    for name in ["core.sock", "admin.sock"] {
        fs::remove_file(deep.join(name)).unwrap();
    }
    let _second = driver();
    until_listed(&admin, dir.path());
}
