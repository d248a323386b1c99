//! Input that is wrong, and an engine that is not there: typed codes with the engine's reason.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use ostler_driver_docker::DockerDriver;
use ostler_driver_docker::engine::Engine;
use ostler_driver_sdk::{Certainty, Code};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::docker::{Docker, is_root, skip};
use crate::machine::Machine;

/// Classes that the engine cannot serve, and the error of each.
#[tokio::test]
async fn every_class_that_the_engine_cannot_do_is_refused_with_its_path_and_nothing_is_left() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let cases: [(Value, &str, &str); 8] = [
        (json!({"image": "nobody-has:this"}), "IMAGE_UNKNOWN", "image"),
        (json!({"image": "Upper:1"}), "IMAGE_NAME", "image"),
        (json!({"command": ["/bin/nothing"]}), "COMMAND_NOT_FOUND", "command"),
        (json!({"memory": "4Mi"}), "INVALID_PROVIDER_SPEC", "memory"),
        (json!({"cpu": "1m"}), "INVALID_PROVIDER_SPEC", "cpu"),
        (json!({"cpu": "4096"}), "CPU_LIMIT", "cpu"),
        (json!({"networks": [{"name": "nobody-made-this"}]}), "NETWORK_UNKNOWN", "networks"),
        (json!({"unknown": 1}), "INVALID_PROVIDER_SPEC", "unknown"),
    ];
    for (more, reason, path) in cases {
        let machine = Machine::new("bad", &more);
        let _sweep = machine.swept(&docker);
        let error = machine.create(&driver).await.unwrap_err();
        assert_eq!(
            (error.code(), error.reason_word()),
            (Code::InvalidArgument, reason),
            "{more}: {error}"
        );
        assert_eq!(error.violations()[0].path, path, "{more}: {error}");
        if error.certainty() == Certainty::NotApplied {
            assert_eq!(docker.of_cluster(&machine.cluster), [""; 0], "{more}");
        }
        machine.delete(&driver).await.unwrap();
        assert_eq!(docker.of_cluster(&machine.cluster), [""; 0], "{more}");
    }
}

#[tokio::test]
async fn what_is_of_the_host_is_refused_before_the_engine_is_asked_unless_the_driver_allows_it() {
    // An engine that is not there: nothing is asked of it.
    let nowhere = "unix:///nobody/is/here.sock".parse().unwrap();
    let driver = DockerDriver::new(Engine::new(nowhere));
    for (more, reason, flag) in [
        (json!({"privileged": true}), "PRIVILEGED_NOT_ALLOWED", "--allow-privileged"),
        (
            json!({"networks": [{"name": "host"}]}),
            "HOST_NETWORK_NOT_ALLOWED",
            "networks[0].name: host is not allowed by this driver: start it with --allow-host-network",
        ),
        (
            json!({"volumes": [{"name": "keys", "path": "/keys", "shared": true}]}),
            "SHARED_VOLUME_NOT_ALLOWED",
            "--allow-shared-volumes",
        ),
        (
            json!({"ports": [{"containerPort": 80, "hostPort": 80, "hostAddress": "0.0.0.0"}]}),
            "HOST_PORT_NOT_ALLOWED",
            "--allow-host-ports",
        ),
    ] {
        let machine = Machine::new("part-of-the-host", &more);
        let error = machine.create(&driver).await.unwrap_err();
        assert_eq!(
            (error.code(), error.certainty(), error.reason_word()),
            (Code::FailedPrecondition, Certainty::NotApplied, reason)
        );
        assert!(error.message().contains(flag), "{error}");
        assert_eq!(error.violations().len(), 1, "{error}");
    }
}

#[tokio::test]
async fn a_machine_has_a_limit_of_processes_and_ports_on_loopback_unless_its_class_says_otherwise()
{
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let more = json!({"networks": [{"name": "bridge"}], "ports": [{"containerPort": 80}]});
    let machine = Machine::new("bounded", &more);
    let _sweep = machine.swept(&docker);
    drop(machine.create(&driver).await.unwrap());
    let (pids, address) = (
        "{{.HostConfig.PidsLimit}}",
        "{{range .NetworkSettings.Ports}}{{(index . 0).HostIp}}{{end}}",
    );
    assert_eq!(docker.run(&["inspect", "-f", pids, &machine.container()]), "4096");
    assert_eq!(docker.run(&["inspect", "-f", address, &machine.container()]), "127.0.0.1");
    let mut spec = more;
    spec["pids"] = json!(64);
    let fewer = machine.with(&spec);
    assert_eq!(fewer.update(&driver).await.unwrap().applied_paths, ["pids"]);
    assert_eq!(docker.run(&["inspect", "-f", pids, &machine.container()]), "64");
    machine.delete(&driver).await.unwrap();
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_and_the_machine_comes_once_it_is_free() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let machine = Machine::new(
        "listening",
        &json!({
            "networks": [{"name": "bridge"}],
            "ports": [{"containerPort": 80, "hostPort": port, "hostAddress": "127.0.0.1"}],
        }),
    );
    let _sweep = machine.swept(&docker);
    let error = machine.create(&driver).await.unwrap_err();
    assert_eq!(
        (error.code(), error.reason_word()),
        (Code::FailedPrecondition, "PORT_TAKEN"),
        "{error}"
    );
    assert_eq!(error.certainty(), Certainty::Partial);
    assert_eq!(machine.status(&driver).await.unwrap_err().code(), Code::NotFound);
    drop(taken);
    drop(machine.create(&driver).await.unwrap());
    machine.delete(&driver).await.unwrap();
    assert_eq!(docker.of_cluster(&machine.cluster), [""; 0]);
}

#[tokio::test]
async fn names_of_any_length_make_machines_that_stay_apart() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let one = Machine::new(&format!("{}1", "x".repeat(200)), &json!({}));
    let _sweep = one.swept(&docker);
    let two = one.sibling(&format!("{}2", "x".repeat(200)));
    for machine in [&one, &two] {
        drop(machine.create(&driver).await.unwrap());
        let node = docker.exec(&machine.container(), "echo $OSTLER_NODE_NAME");
        assert_eq!(node, machine.name);
    }
    assert_eq!(docker.of_cluster(&one.cluster).len(), 2);
}

#[tokio::test]
async fn an_engine_that_is_not_there_is_an_error_of_every_verb_and_never_an_empty_list() {
    let dir = tempfile::tempdir().unwrap();
    let host = format!("unix://{}/nobody", dir.path().display());
    let driver = DockerDriver::new(Engine::new(host.parse().unwrap()));
    let machine = Machine::new("waiting", &json!({}));
    let errors = [
        machine.create(&driver).await.unwrap_err(),
        machine.status(&driver).await.unwrap_err(),
        machine.list(&driver).await.unwrap_err(),
        machine.initialize(&driver).await.unwrap_err(),
        machine.update(&driver).await.unwrap_err(),
        machine.delete(&driver).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.code(), error.reason_word()), (Code::Unavailable, "ENGINE_AWAY"));
        assert_eq!(error.certainty(), Certainty::NotApplied);
        assert!(error.message().contains("start it"), "{error}");
    }
}

#[tokio::test]
async fn a_socket_that_is_closed_to_the_driver_says_so() {
    let Some(docker) = Docker::here() else { return };
    if !is_root() {
        return skip("root, who may run as another user");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // Where no other user may look, no other user can start it.
    let driver = dir.path().join("driver");
    std::fs::copy(env!("CARGO_BIN_EXE_ostler-driver-docker"), &driver).unwrap();
    std::fs::set_permissions(&driver, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(&driver)
        .args(["probe", "--docker-host", &docker.host().to_string(), "instances"])
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(printed.contains("closed to this user"), "{printed}");
}

#[tokio::test]
async fn a_full_disk_is_told_and_the_machine_comes_once_there_is_room() {
    let Some(daemon) = Daemon::prepare() else { return };
    let disk = Disk::mount(daemon.path().join("disk"));
    let Some(disk) = disk else { return };
    let daemon = daemon.disk(&disk.0).up().await;
    let docker = daemon.docker();
    let driver = DockerDriver::new(docker.engine());
    let machine = Machine::new("cramped", &json!({}));
    let ballast = disk.0.join("ballast");
    let mut left = 64 << 20;
    std::fs::write(&ballast, []).unwrap();
    // Until nothing fits any more, in ever smaller pieces.
    while left > 0 {
        let mut file = std::fs::File::options().append(true).open(&ballast).unwrap();
        if std::io::Write::write_all(&mut file, &vec![0; left]).is_err() {
            left /= 2;
        }
    }
    let error = machine.create(&driver).await.unwrap_err();
    assert_eq!(
        (error.code(), error.reason_word()),
        (Code::ResourceExhausted, "DISK_FULL"),
        "{error}"
    );
    std::fs::remove_file(&ballast).unwrap();
    drop(machine.create(&driver).await.unwrap());
    machine.delete(&driver).await.unwrap();
    assert_eq!(docker.of_cluster(&machine.cluster), [""; 0]);
    drop(daemon);
}

/// A small disk in memory.
struct Disk(std::path::PathBuf);

impl Disk {
    fn mount(path: std::path::PathBuf) -> Option<Self> {
        std::fs::create_dir(&path).unwrap();
        let options = ["-t", "tmpfs", "-o", "size=64m", "tmpfs"];
        let mounted = Command::new("mount").args(options).arg(&path).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(path));
        }
        skip("right to mount a disk in memory");
        None
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).output());
    }
}

#[tokio::test]
async fn what_pods_do_to_the_files_of_one_machine_is_no_fault_of_the_others() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let bad = Machine::new("bad", &json!({}));
    let _sweep = bad.swept(&docker);
    let good = bad.sibling("good");
    for machine in [&bad, &good] {
        drop(machine.create(&driver).await.unwrap());
    }
    for file in ["claim.json", "tags.json"] {
        let spoil = format!("printf %05000000d 0 > /etc/ostler/{file}");
        docker.exec(&bad.container(), &spoil);
        assert_eq!(good.list(&driver).await.unwrap().len(), 2, "{file}");
        drop(bad.status(&driver).await.unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("claim.json");
    std::os::unix::fs::symlink("claim.json", &link).unwrap();
    let place = format!("{}:/etc/ostler/", bad.container());
    docker.run(&["cp", link.to_str().unwrap(), &place]);
    assert_eq!(good.list(&driver).await.unwrap().len(), 2, "a link to itself");
    bad.delete(&driver).await.unwrap();
    good.delete(&driver).await.unwrap();
    assert_eq!(docker.of_cluster(&bad.cluster), [""; 0]);
}
