//! The owner of a group: which provider, and which cluster id.

use ostler_api::{
    driver::{ErrorCode, OperationKind},
    operation::{OperationView, Request, Success},
};
use ostler_lifecycle::{
    class::FinalizerChange,
    cluster::ClusterIds,
    pool::{Decision, holder},
};
use serde_json::json;

use crate::pool::world::{World, changed, failure, request, victims};

fn infrastructure(plan: &Decision) -> (&str, &str) {
    let mut all = plan.status.conditions.iter();
    let said = all.find(|it| it.type_ == "InfrastructureReady").unwrap();
    (&said.reason, &said.message)
}

/// A pool of three machines, whose class has another provider now.
fn moved() -> World {
    moves(World::running(3, json!({})))
}

fn moves(mut world: World) -> World {
    world.pass();
    world.class.provider = "other.ostler.dev".into();
    world.elsewhere = Some("fake.ostler.dev".into());
    world
}

/// A group was made at the other provider, and the machines went without a drain while their instances ran on.
#[test]
fn what_the_driver_of_another_provider_says_of_a_group_is_nothing_and_it_is_asked_nothing() {
    for group in [None, World::running(0, json!({})).group] {
        let mut world = moved();
        world.group = group;
        world.absent_looks = 2;
        let absent = world.machines.iter().map(|it| (it.uid().to_owned(), 2)).collect();
        world.group.iter_mut().for_each(|it| it.absent.clone_from(&absent));
        let plan = world.pass();
        assert!(plan.dispatch.is_none() && plan.gone.is_empty() && plan.create.is_empty());
        assert_eq!(victims(&plan), [""; 0]);
        let status = &plan.status;
        assert_eq!(status.provider.as_deref(), Some("fake.ostler.dev"));
        assert_eq!(status.provider_id.as_ref().unwrap(), "fake:///group");
        let (reason, message) = infrastructure(&plan);
        assert_eq!(reason, "ProviderChanged");
        assert!(message.contains("name a class of \"fake.ostler.dev\" again"), "{message}");
        assert_eq!(plan.news.iter().filter(|it| it.reason.name() == "ProviderChanged").count(), 1);
    }
}

#[test]
fn a_pool_that_is_deleted_waits_for_a_class_of_the_provider_that_has_its_group() {
    let mut world = moved();
    world.pool.metadata.deletion_timestamp = Some(world.now.into());
    (world.group, world.absent_looks) = (None, 2);
    assert!(world.plan().gone.is_empty(), "that its group is gone is not known");
    world.machines.clear();
    assert_eq!(world.pass().finalizer, FinalizerChange::Keep);
    // An earlier word of the other driver counts.
    let mut told = World::running(0, json!({}));
    told.pool.metadata.deletion_timestamp = Some(world.now.into());
    let mut told = moves(told);
    told.answer(OperationKind::DeletePool, Ok(Success::Deleted { was_absent: false }));
    assert_eq!(told.plan().finalizer, FinalizerChange::Remove);
    world.elsewhere = None;
    assert_eq!(world.plan().finalizer, FinalizerChange::Remove);
}

/// The result of a creation belongs to the provider to which it was sent.
#[test]
fn a_provider_has_a_group_from_the_intent_to_make_one_on() {
    let mut world = World::new(2, json!({}));
    assert_eq!(holder(&world.pool), None);
    world.pass();
    assert_eq!(holder(&world.pool), Some("fake.ostler.dev"));
    let mut refused = world.clone();
    refused.answer(OperationKind::CreatePool, failure(ErrorCode::InvalidArgument));
    refused.pass();
    assert_eq!(holder(&refused.pool), None, "it made none: another one may");
    world.class.provider = "other.ostler.dev".into();
    world.elsewhere = Some("fake.ostler.dev".into());
    world.answer(OperationKind::CreatePool, changed());
    world.pass();
    assert_eq!(holder(&world.pool), Some("fake.ostler.dev"));
}

/// A group that carries a previous id of the cluster.
fn tagged_before(replicas: i32) -> World {
    let mut world = World::running(replicas, json!({}));
    world.cluster = ClusterIds { own: "now".to_owned(), previous: vec!["before".to_owned()] };
    world.group.as_mut().unwrap().cluster_id = "before".into();
    // What new instances join with goes first.
    world.pass();
    world.answer(OperationKind::UpdatePool, changed());
    world.pass();
    world.operation = OperationView::Idle;
    world.pool.status.as_mut().unwrap().operation = None;
    world
}

#[test]
fn a_group_with_a_previous_cluster_id_gets_the_tags_of_today_and_keeps_its_size() {
    let mut world = tagged_before(3);
    let mut scaled = world.clone();
    scaled.pool.spec.replicas = Some(5);
    let plan = scaled.plan();
    assert!(matches!(request(&plan), Some(Request::UpdatePool { .. })), "it holds up nothing");
    let plan = world.pass();
    let Some(Request::CreatePool { desired, provider_id, .. }) = request(&plan) else { panic!() };
    assert_eq!((*desired, provider_id.as_str()), (3, "fake:///group"));
    world.answer(OperationKind::CreatePool, changed());
    world.pass();
    world.operation = OperationView::Idle;
    for id in ["now", ""] {
        world.group.as_mut().unwrap().cluster_id = id.into();
        assert!(request(&world.plan()).is_none(), "{id:?}");
    }
}

#[test]
fn a_group_is_not_tagged_anew_in_its_deletion_nor_with_a_model_that_a_pause_keeps_off_it() {
    let asks = |change: fn(&mut World)| {
        let mut world = tagged_before(3);
        change(&mut world);
        matches!(request(&world.plan()), Some(Request::CreatePool { .. }))
    };
    assert!(asks(|world| world.pool.spec.paused = Some(true)));
    assert!(!asks(|world| {
        world.pool.spec.paused = Some(true);
        world.pool.spec.template.spec.version = Some("v2".to_owned());
    }));
    assert!(!asks(|world| world.pool.metadata.deletion_timestamp = Some(world.now.into())));
}
