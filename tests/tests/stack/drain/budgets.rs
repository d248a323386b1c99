//! PodDisruptionBudgets hold a drain, are named, and wake it when they allow the eviction.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::Api;
use ostler_api::machine::WaitReason;
use ostler_tests::objects::{delete, get, gone, waits_for};
use ostler_tests::world::World;

use crate::drain::ground::{budget, events, pod, remove, running, runs};

#[tokio::test(start_paused = true)]
async fn a_budget_that_allows_nothing_is_named_and_a_second_one_is_not_fatal() {
    let world = World::start().await;
    running(&world, "m").await;
    runs(&world, pod("db", "m")).await;
    budget(&world, "one", "app", "db").await;
    delete(&world, "m").await;
    world.until("m", "held", waits_for(WaitReason::MisconfiguredBudget)).await;
    let status = get(&world, "m").await.status.unwrap();
    assert_eq!(status.drain.unwrap().budgets, ["default/one"]);
    let node = Api::<Node>::all(world.client()).get("m").await.unwrap();
    let conditions = node.status.unwrap().conditions.unwrap();
    let terminating = conditions.iter().find(|one| one.type_ == "Terminating").unwrap();
    assert_eq!(terminating.reason.as_deref(), Some("ScaleDown"));

    budget(&world, "two", "all", "yes").await;
    world.until("m", "held by both", waits_for(WaitReason::SeveralBudgets)).await;
    let status = get(&world, "m").await.status.unwrap();
    assert_eq!(status.drain.unwrap().budgets, ["default/one", "default/two"]);
    for _ in 0..2 {
        let told = events(&world, "Node", "m").await;
        if told.iter().any(|reason| reason == "DrainBlocked") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    }
    let told = events(&world, "Node", "m").await;
    assert!(["DrainStarted", "DrainBlocked"].iter().all(|it| told.iter().any(|one| one == it)));

    remove::<PodDisruptionBudget>(&world, "two").await;
    remove::<PodDisruptionBudget>(&world, "one").await;
    let began = world.now();
    world.until("m", "gone", gone).await;
    let took = world.now().duration_since(began);
    assert!(took.as_secs() < 32, "the grace of the pod and no poll of budgets: {took}");
    world.stop().await;
}
