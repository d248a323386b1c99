//! Events of the engine reach the core.

use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use ostler_driver_docker::DockerDriver;
use ostler_driver_docker::engine::What;
use serde_json::json;

use crate::docker::Docker;
use crate::machine::Machine;

/// Only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_container_that_a_person_removes_is_told_of_within_two_seconds() {
    let Some(docker) = Docker::here() else { return };
    let driver = DockerDriver::new(docker.engine());
    let machine = Machine::new("told", &json!({}));
    let _sweep = machine.swept(&docker);
    drop(machine.create(&driver).await.unwrap());
    let mut events = docker.engine().events(SystemTime::now()).await.unwrap();
    let container = machine.container();
    let began = tokio::time::Instant::now();
    let remover = docker.clone();
    let name = container.clone();
    tokio::task::spawn_blocking(move || remover.run(&["rm", "-f", &name]));
    let removed = async {
        loop {
            let happened = events.next().await.unwrap().unwrap();
            if happened.container == container && happened.what == What::Removed {
                return happened;
            }
        }
    };
    let happened = tokio::time::timeout(PATIENCE, removed).await.unwrap();
    println!("told after {:?}, which includes the removal", began.elapsed());
    assert_eq!(happened.labels["ostler.dev/machine-uid"], machine.uid);
}
