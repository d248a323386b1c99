//! The engine dies in the middle.

use std::time::Duration;

use ostler_driver_docker::DockerDriver;
use ostler_driver_sdk::{Certainty, Code, Driver as _, DriverError};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::machine::{Machine, provider_id};

fn whole() -> Value {
    json!({
        "networks": [{"name": "net", "own": true}],
        "volumes": [{"name": "data", "path": "/data"}],
        "tags": {"container": {"team": "stables"}},
    })
}

/// What may be said of a call that an engine did not survive.
fn is_honest(error: &DriverError) {
    let codes = [Code::Unavailable, Code::DeadlineExceeded, Code::Unknown, Code::Aborted];
    assert!(codes.contains(&error.code()), "{error}");
    assert_ne!(error.certainty(), Certainty::Unspecified);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_killed_in_the_middle_of_a_create_leaves_one_machine_after_the_next() {
    let Some(mut daemon) = Daemon::start().await else { return };
    let docker = daemon.docker();
    let driver = DockerDriver::new(docker.engine());
    let before = docker.everything();
    for millis in [0, 30, 150, 500] {
        let machine = Machine::new("cut-off", &whole());
        let create = tokio::spawn({
            let (driver, machine) = (driver.clone(), machine.clone());
            async move { machine.create(&driver).await }
        });
        tokio::time::sleep(Duration::from_millis(millis)).await;
        daemon.kill();
        let answer = create.await.unwrap();
        if let Err(error) = &answer {
            is_honest(error);
        }
        let error = machine.list(&driver).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable, "an engine that is away is no empty list");
        daemon.restart().await;
        let there = machine.list(&driver).await.unwrap().len();
        let certainty = answer.as_ref().err().map(DriverError::certainty);
        if certainty == Some(Certainty::NotApplied) {
            assert_eq!(docker.of_cluster(&machine.cluster), [""; 0], "{answer:?}");
        }
        assert!(there <= 1, "{there} containers");
        let made = machine.create(&driver).await.unwrap();
        assert_eq!(provider_id(&made), machine.id());
        let whole = docker.of_cluster(&machine.cluster);
        // An engine that forgot its networks has only container and volume.
        assert!(whole.len() == 3 || daemon.forgot_networks() && whole.len() == 2, "{whole:?}");
        machine.delete(&driver).await.unwrap();
        assert_eq!(docker.everything(), before);
    }
}

/// An engine makes the directory of a volume first, and writes its labels down then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_whose_labels_a_killed_engine_did_not_write_goes_with_its_machine() {
    let Some(daemon) = Daemon::start().await else { return };
    let docker = daemon.docker();
    let driver = DockerDriver::new(docker.engine());
    let before = docker.everything();
    let machine = Machine::new("unlabelled", &whole());
    docker.run(&["volume", "create", &format!("{}-data", machine.container())]);
    drop(machine.create(&driver).await.unwrap());
    assert_eq!(docker.of_cluster(&machine.cluster).len(), 3);
    machine.delete(&driver).await.unwrap();
    assert_eq!(docker.everything(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_killed_in_the_middle_of_a_delete_leaves_nothing_after_the_next() {
    let Some(mut daemon) = Daemon::start().await else { return };
    let docker = daemon.docker();
    let driver = DockerDriver::new(docker.engine());
    let before = docker.everything();
    for millis in [0, 30, 100, 250] {
        let machine = Machine::new("going", &whole());
        drop(machine.create(&driver).await.unwrap());
        let delete = tokio::spawn({
            let (driver, machine) = (driver.clone(), machine.clone());
            async move { machine.delete(&driver).await }
        });
        tokio::time::sleep(Duration::from_millis(millis)).await;
        daemon.kill();
        if let Err(error) = delete.await.unwrap() {
            is_honest(&error);
        }
        let error = machine.status(&driver).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable, "an engine that is away is no absent machine");
        daemon.restart().await;
        machine.delete(&driver).await.unwrap();
        assert_eq!(docker.everything(), before, "killed after {millis} ms");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_come_back_as_themselves_when_the_engine_does_and_the_driver_notices_both() {
    let Some(mut daemon) = Daemon::start().await else { return };
    let docker = daemon.docker();
    let driver = DockerDriver::new(docker.engine());
    let watch = tokio::spawn(driver.clone().watch());
    let machine = Machine::new("lasting", &whole());
    drop(machine.create_with(&driver, "seed").await.unwrap());
    let readiness = driver.readiness();
    daemon.kill();
    becomes(|| !readiness.is_ready()).await;
    daemon.restart().await;
    becomes(|| readiness.is_ready()).await;
    let running = || docker.inspect(&machine.container())["State"]["Running"] == json!(true);
    becomes(running).await;
    let status = machine.status(&driver).await.unwrap();
    assert_eq!(provider_id(&status), machine.id());
    let seen = docker
        .exec(&machine.container(), "cat /etc/ostler/user-data; echo; echo $OSTLER_PROVIDER_ID");
    assert_eq!(seen, format!("seed\n{}", machine.id()));
    let again = machine.create(&driver).await.unwrap();
    assert_eq!(provider_id(&again), machine.id());
    machine.delete(&driver).await.unwrap();
    watch.abort();
}

/// Waits for what is sure to come.
async fn becomes(mut is: impl FnMut() -> bool) {
    while !is() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
