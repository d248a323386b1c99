//! Volumes are waited for in order, and taken when they do not leave.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, DeleteParams};
use ostler_api::Machine;
use ostler_api::machine::{MachinePhase, MachineStep, WaitReason};
use ostler_driver_fake::fault::Verb;
use ostler_tests::objects::{at_step, delete, get, gone, in_phase, machine, waits_for};
use ostler_tests::world::World;
use serde_json::{Value, json};

use crate::drain::ground::{node_status, pod, running, runs};

/// A bound claim of this name, and its volume attached to the Node.
async fn volume(world: &World, name: &str, node: &str) {
    let csi = json!({ "driver": "fake.ostler.dev", "volumeHandle": format!("h-{name}") });
    let object = json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "csi": csi,
        },
    });
    world.create::<PersistentVolume>(&serde_json::from_value(object).unwrap()).await;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "volumeName": name,
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    world.apply::<PersistentVolumeClaim>(claim).await;
    let attachment = json!({
        "metadata": { "name": format!("csi-{name}") },
        "spec": {
            "attacher": "fake.ostler.dev", "nodeName": node,
            "source": { "persistentVolumeName": name },
        },
    });
    world.create::<VolumeAttachment>(&serde_json::from_value(attachment).unwrap()).await;
}

fn with_volume(name: &str, node: &str, priority: i32) -> Value {
    let mut pod = pod(name, node);
    pod["spec"]["priority"] = json!(priority);
    pod["spec"]["volumes"] =
        json!([{ "name": "data", "persistentVolumeClaim": { "claimName": name } }]);
    pod
}

async fn attached(world: &World, node: &str, volumes: &[&str]) {
    let entry = |name: &&str| {
        let plugin = "kubernetes.io/csi/fake.ostler.dev^h";
        json!({ "name": format!("{plugin}-{name}"), "devicePath": "" })
    };
    let entries: Vec<_> = volumes.iter().map(entry).collect();
    node_status(world, node, json!({ "volumesAttached": entries })).await;
}

async fn detach(world: &World, name: &str) {
    let api = Api::<VolumeAttachment>::all(world.client());
    api.delete(&format!("csi-{name}"), &DeleteParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pods_with_volumes_leave_in_order_and_their_volumes_before_the_instance() {
    let world = World::start().await;
    running(&world, "m").await;
    for name in ["first", "last"] {
        volume(&world, name, "m").await;
    }
    attached(&world, "m", &["first", "last"]).await;
    runs(&world, with_volume("first", "m", 100)).await;
    runs(&world, with_volume("last", "m", 0)).await;
    delete(&world, "m").await;
    world.until("m", "waiting for volumes", waits_for(WaitReason::VolumesAttached)).await;
    let drain = get(&world, "m").await.status.unwrap().drain.unwrap();
    assert_eq!((drain.pods_left, drain.queued), (1, 1), "the last waits for the first");
    let ids: Vec<_> = drain.volumes.iter().map(|one| one.id.as_deref().unwrap()).collect();
    assert_eq!(ids, ["h-first", "h-last"]);
    let asked = world.calls().iter().filter(|call| call.operation == Verb::GetVolumeIds).count();
    assert_eq!(asked, 1, "the driver was asked once for both");

    attached(&world, "m", &["last"]).await;
    detach(&world, "first").await;
    world.until("m", "at its last volumes", at_step(MachineStep::DetachVolumes)).await;
    detach(&world, "last").await;
    attached(&world, "m", &[]).await;
    let began = world.now();
    world.until("m", "gone", gone).await;
    assert!(world.now().duration_since(began).as_secs() < 5);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_does_not_leave_is_taken_after_its_time_and_that_is_said() {
    let world = World::start().await;
    let mut patient = machine("m", "fake");
    patient["spec"]["drainTimeout"] = json!("10m");
    world.apply::<Machine>(patient).await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    volume(&world, "stuck", "m").await;
    runs(&world, with_volume("stuck", "m", 0)).await;
    delete(&world, "m").await;
    world.until("m", "at its volumes", at_step(MachineStep::DetachVolumes)).await;
    let began = world.now();
    world.until("m", "gone", gone).await;
    let took = world.now().duration_since(began).as_secs();
    assert!(
        (540..660).contains(&took),
        "as long as the drain may take, counted from the deletion: {took} s"
    );
    let left = Api::<VolumeAttachment>::all(world.client()).get_opt("csi-stuck").await.unwrap();
    assert!(left.is_none(), "it is detached from the outside");
    let told = crate::drain::ground::events(&world, "Machine", "m").await;
    assert!(told.iter().any(|reason| reason == "VolumesForced"), "{told:?}");
    world.stop().await;
}
