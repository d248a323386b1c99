//! Groups of no pool. On a paused clock.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use ostler_api::MachinePool;
use ostler_driver_fake::cloud::{GroupLookup, NewGroup, Seen};
use ostler_driver_sdk::PoolIdentity;
use ostler_server::CoreOptions;
use ostler_tests::world::{Setup, World};

use crate::pools::{machines, pool, start, start_with, until_runs};

/// A group like that of the pool, of another pool or cluster.
fn plant(world: &World, cluster: Option<&str>, uid: &str) -> String {
    let mut all = world.cloud().groups(|_| true).unwrap().into_iter();
    let Seen { group, .. } = all.find(|it| it.group.identity.pool_name == "p").unwrap();
    let cluster_id = cluster.unwrap_or(&group.identity.cluster_id).to_owned();
    let identity =
        PoolIdentity { cluster_id, pool_name: "lost".to_owned(), pool_uid: uid.to_owned() };
    let lookup = GroupLookup {
        provider_id: None,
        identity: &identity,
        previous_clusters: &[],
        region: None,
    };
    let tags = group.tags.into_iter().chain(identity.tags()).collect();
    let new = NewGroup { tags, class: group.class, desired: 2, model: group.model };
    world.cloud().create_group(lookup, new).unwrap().group.provider_id
}

fn names(world: &World) -> Vec<String> {
    let all = world.cloud().groups(|_| true).unwrap();
    let mut names: Vec<_> = all.into_iter().map(|it| it.group.provider_id).collect();
    names.sort();
    names
}

async fn notes(world: &World, reason: &str) -> Vec<String> {
    let all = Api::<Event>::all(world.client()).list(&ListParams::default()).await.unwrap().items;
    let of_reason = all.into_iter().filter(|it| it.reason.as_deref() == Some(reason));
    of_reason.filter_map(|it| it.note).collect()
}

#[tokio::test(start_paused = true)]
async fn a_group_of_no_pool_is_deleted_after_a_second_look_and_no_other_one_is_touched() {
    let world = start().await;
    world.apply::<MachinePool>(pool("p", 2)).await;
    until_runs(&world, 2).await;
    let own = names(&world).remove(0);
    let other = plant(&world, Some("another"), "uid-1");
    let lost = plant(&world, None, "uid-2");
    let began = world.now();
    let took = || world.now().duration_since(began).as_secs();
    while names(&world).contains(&lost) {
        assert!(took() < 1800, "{:?}", notes(&world, "OrphanDeleteFailed").await);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert!(took() >= 600, "after the grace: {} s", took());
    for reason in ["OrphanFound", "OrphanDeleted"] {
        let told = notes(&world, reason).await;
        assert_eq!(told.len(), 1, "{reason}");
        assert!(told[0].contains(&format!("group {lost} of machinepool lost")), "{told:?}");
    }
    tokio::time::sleep(Duration::from_mins(40)).await;
    let mut left = vec![own, other];
    left.sort();
    assert_eq!((names(&world), machines(&world).await.len()), (left, 2));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn report_only_tells_of_a_group_and_deletes_nothing() {
    let report = |options: &mut CoreOptions| {
        options.settings.orphans.mode = "report".parse().unwrap();
    };
    let world = start_with(Setup::tuned(report)).await;
    world.apply::<MachinePool>(pool("p", 1)).await;
    until_runs(&world, 1).await;
    let lost = plant(&world, None, "uid-2");
    while notes(&world, "OrphanFound").await.is_empty() {
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    tokio::time::sleep(Duration::from_mins(50)).await;
    assert!(names(&world).contains(&lost));
    assert!(notes(&world, "OrphanDeleted").await.is_empty());
    world.stop().await;
}
