//! Many machines at the same time.

use futures::{StreamExt as _, TryStreamExt as _};
use ostler_driver_docker::DockerDriver;
use serde_json::json;

use crate::daemon::Daemon;
use crate::machine::Machine;

/// As many operations as the driver runs at the same time.
const AT_ONCE: usize = 32;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_machines_made_and_deleted_in_parallel_leave_nothing_behind() {
    let Some(daemon) = Daemon::start().await else { return };
    let docker = daemon.docker();
    let driver = DockerDriver::new(docker.engine());
    let first = Machine::new(
        "m-0",
        &json!({
            "networks": [{"name": "net", "own": true, "internal": true}],
            "volumes": [{"name": "data", "path": "/data"}],
            "memory": "16Mi",
        }),
    );
    let machines: Vec<Machine> =
        (0..100).map(|number| first.sibling(&format!("m-{number}"))).collect();
    let before = docker.everything();
    let begun = std::time::Instant::now();
    futures::stream::iter(&machines)
        .map(|machine| machine.create(&driver))
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<_>>()
        .await
        .unwrap();
    let made = begun.elapsed();
    assert_eq!(docker.everything().len(), before.len() + 300);
    let listed = first.list(&driver).await.unwrap();
    assert_eq!(listed.len(), 100);
    let listing = begun.elapsed().saturating_sub(made);
    futures::stream::iter(&machines)
        .map(|machine| machine.delete(&driver))
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<_>>()
        .await
        .unwrap();
    println!("made in {made:?}, listed in {listing:?}, all gone after {:?}", begun.elapsed());
    assert_eq!(docker.everything(), before);
}
