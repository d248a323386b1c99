//! Machines live and go through an old driver as through any other.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use ostler_api::MachineClass;
use ostler_api::machine::WaitReason;
use ostler_server::GivenIds;
use ostler_tests::legacy_driver::OldCloud;
use ostler_tests::world::Setup;
use serde_json::json;

use crate::legacy::scene::{
    class, create, delete, driver, get, gone, has_instance, join, running, secret, waits_for,
    world, world_with,
};

#[tokio::test(start_paused = true)]
async fn a_machine_is_made_runs_and_goes() {
    let world = world().await;
    let cloud = OldCloud::default();
    let _driver = driver(&world, &cloud);
    create(&world, "m", "old").await;
    world.until("m", "made", has_instance).await;
    let vms = cloud.vms();
    assert_eq!((vms.len(), vms[0].name.as_str(), vms[0].id.as_str()), (1, "m", "old:///eu/i-1"));
    assert_eq!(vms[0].access_key, "key-of-old");
    let user_data = vms[0].user_data.as_str();
    assert!(user_data.starts_with("name=m token=") && !user_data.contains("<<"), "{user_data}");
    join(&world, "ip-10-0-0-1", "old:///eu/i-1").await;
    world.until("m", "Running", running).await;
    assert_eq!(get(&world, "m").await.provider_id(), Some(&"old:///eu/i-1".into()));
    delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    assert_eq!(cloud.vms(), []);
    assert_eq!(cloud.asked().iter().filter(|it| *it == "delete").count(), 1);
    world.stop().await;
}

/// Such a driver reads no tags: it is taken by a core whose cluster had another id before, too.
#[tokio::test(start_paused = true)]
async fn an_instance_that_no_machine_stands_for_is_reported_and_stays_whatever_the_flags_say() {
    let world = world_with(Setup::tuned(|options| {
        options.cluster =
            GivenIds { id: Some("now".to_owned()), previous: vec!["before".to_owned()] };
        options.settings.orphans.delete_untagged = true;
    }))
    .await;
    let cloud = OldCloud::default();
    let _driver = driver(&world, &cloud);
    create(&world, "m", "old").await;
    world.until("m", "made", has_instance).await;
    cloud.plant("lost");
    let found = async || {
        let events = Api::<Event>::default_namespaced(world.client());
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(|event| event.reason.as_deref() == Some("OrphanFound"))
    };
    let event = loop {
        match found().await {
            Some(event) => break event,
            None => tokio::time::sleep(Duration::from_mins(1)).await,
        }
    };
    let note = event.note.unwrap();
    assert!(note.contains("by their names alone"), "{note}");
    tokio::time::sleep(Duration::from_hours(2)).await;
    assert_eq!(cloud.vms().len(), 2);
    assert!(!cloud.asked().contains(&"delete".to_owned()), "{:?}", cloud.asked());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn each_machine_gets_its_own_user_data() {
    let world = world().await;
    let cloud = OldCloud::default();
    let _driver = driver(&world, &cloud);
    for name in ["a", "b", "c"] {
        create(&world, name, if name == "c" { "other" } else { "old" }).await;
    }
    for name in ["a", "b", "c"] {
        world.until(name, "made", has_instance).await;
    }
    let vms = cloud.vms();
    assert_eq!(vms.len(), 3);
    for vm in &vms {
        assert!(vm.user_data.starts_with(&format!("name={} token=", vm.name)), "{vm:?}");
        let key = if vm.name == "c" { "key-of-other" } else { "key-of-old" };
        assert_eq!(vm.access_key, key);
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_class_without_the_cluster_tags_is_refused_before_the_driver_is_asked() {
    let world = world().await;
    let cloud = OldCloud::default();
    let _driver = driver(&world, &cloud);
    let tags = json!({ "kubernetes.io/cluster/dev": "1" });
    world.apply::<Secret>(secret("untagged")).await;
    world.apply::<MachineClass>(class("untagged", &tags)).await;
    create(&world, "m", "untagged").await;
    world.until("m", "refused", waits_for(WaitReason::ActionNeeded)).await;
    let status = get(&world, "m").await.status.unwrap();
    let told = status.waiting_for.unwrap().message.unwrap();
    assert!(told.contains("kubernetes.io/role/"), "{told}");
    assert_eq!(cloud.asked(), ["register"]);
}

#[tokio::test(start_paused = true)]
async fn a_core_that_crashes_while_an_instance_is_made_finds_it_and_makes_no_second_one() {
    let mut world = world().await;
    let cloud = OldCloud::default();
    let first = driver(&world, &cloud);
    create(&world, "m", "old").await;
    cloud.hold(true);
    cloud.until_made(1).await;
    world.crash_core();
    first.abort();
    cloud.hold(false);
    world.start_core().await;
    let _second = driver(&world, &cloud);
    world.until("m", "made", has_instance).await;
    assert_eq!((cloud.made(), cloud.vms().len()), (1, 1));
    delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    assert_eq!(cloud.vms(), []);
    world.stop().await;
}
