//! Refusals of the driver, and the ends of the waits.

use jiff::SignedDuration;
use ostler_api::{
    driver::{ErrorCode, OperationKind},
    operation::OperationView,
};
use ostler_lifecycle::snapshot::{SecretFacts, SecretView};
use serde_json::{Value, json};

use crate::pool::updates::{UPDATE, asked, id, retag, updating};
use crate::pool::world::{World, failure, not_hot};

/// Each refusal pushed an older one out, and that was asked about again: without end, and without a wait.
#[test]
fn of_more_old_models_than_are_remembered_some_are_asked_about_once_and_all_are_replaced() {
    let mut world = World::running(12, json!({}));
    world.driver = updating();
    world.pass();
    retag(&mut world, "b");
    let group = world.group.as_mut().unwrap();
    let (fixed, _) = group.model_hash.as_str().split_once('-').unwrap();
    for (number, instance) in group.instances.iter_mut().enumerate() {
        instance.model_hash = format!("{fixed}-{number}").into();
    }
    for number in 1..=10 {
        assert_eq!(asked(&world.pass()), Some((id(number), false)));
        world.answer(UPDATE, not_hot());
        world.pass();
        world.operation = OperationView::Idle;
        // The surge for the replacements.
        world.group.as_mut().unwrap().desired = 13;
    }
    assert_eq!(asked(&world.pass()), None, "the others count as refused");
    // Some are replaced: of a model that no instance has, nothing is remembered.
    let group = world.group.as_mut().unwrap();
    for instance in &mut group.instances[..4] {
        instance.model_hash = group.model_hash.clone();
    }
    assert_eq!(asked(&world.pass()), Some((id(11), false)), "there is room again");
    assert_eq!(world.pool.status.as_ref().unwrap().hot_update.as_ref().unwrap().refused.len(), 6);
}

/// A pool whose class has a secret, and whose last request was refused so.
fn refused(mut world: World, code: ErrorCode) -> World {
    has_secret(&mut world, "s1");
    let kind = world.pass().dispatch.unwrap().kind();
    world.answer(kind, failure(code));
    world.pass();
    world.operation = OperationView::Idle;
    world.pass();
    world
}

fn has_secret(world: &mut World, revision: &str) {
    let facts = SecretFacts { revision: revision.into(), user_data: None };
    world.secret = SecretView::Known(facts);
}

fn edit(world: &mut World, change: &Value) {
    let mut spec = serde_json::to_value(&world.pool.spec).unwrap();
    json_patch::merge(&mut spec, change);
    world.pool.spec = serde_json::from_value(spec).unwrap();
}

/// Only another class ended it: the pool stayed Failed with the message of a mistake that was corrected.
#[test]
fn what_was_refused_is_asked_again_when_the_pool_or_the_secret_is_corrected() {
    use ErrorCode::{InvalidArgument, PermissionDenied};
    let zones = json!({ "failureDomains": ["b"] });
    let data = json!({ "template": { "spec": { "bootstrap": { "data": "join" } } } });
    let size = json!({ "replicas": 5 });
    for (code, change, secret, asks) in [
        (InvalidArgument, json!({}), "s1", false),
        (InvalidArgument, json!({ "deletePolicy": "Oldest" }), "s1", false),
        (InvalidArgument, zones.clone(), "s1", true),
        (InvalidArgument, data.clone(), "s1", true),
        (InvalidArgument, size.clone(), "s1", true),
        (InvalidArgument, json!({}), "s2", true),
        (PermissionDenied, json!({}), "s1", false),
        (PermissionDenied, size, "s1", false),
        (PermissionDenied, data, "s1", true),
        (PermissionDenied, json!({}), "s2", true),
    ] {
        let mut larger = World::running(2, json!({}));
        larger.pool.spec.replicas = Some(10_000);
        for (kind, world) in [
            (OperationKind::CreatePool, World::new(3, json!({}))),
            (OperationKind::UpdatePool, larger),
        ] {
            let mut world = refused(world, code);
            world.now += SignedDuration::from_secs(100);
            edit(&mut world, &change);
            has_secret(&mut world, secret);
            let asked = world.plan().dispatch.map(|it| it.kind());
            assert_eq!(asked, asks.then_some(kind), "{code} {kind} {change} {secret}");
        }
    }
}

#[test]
fn a_refusal_is_asked_again_if_the_pool_was_corrected_before_it_came_or_was_written_by_an_older_core()
 {
    let zones = json!({ "failureDomains": ["b"] });
    let larger = json!({ "replicas": 5 });
    for (change, secret, is_written, asks) in [
        (json!({}), "s1", true, false),
        (zones, "s1", true, true),
        (larger.clone(), "s1", true, true),
        (json!({}), "s2", true, true),
        // An older CRD: it is not sent again and again.
        (larger, "s1", false, false),
    ] {
        let mut world = World::new(3, json!({}));
        has_secret(&mut world, "s1");
        world.pass();
        let sent = world.pool.status.as_mut().unwrap().operation.as_mut().unwrap();
        sent.basis.take_if(|_| !is_written);
        edit(&mut world, &change);
        has_secret(&mut world, secret);
        world.answer(OperationKind::CreatePool, failure(ErrorCode::InvalidArgument));
        world.pass();
        world.operation = OperationView::Idle;
        assert_eq!(world.plan().dispatch.is_some(), asks, "{change} {secret}");
    }
    let mut world = refused(World::new(3, json!({})), ErrorCode::InvalidArgument);
    assert!(world.plan().dispatch.is_none());
    world.secret = SecretView::Unknown;
    assert!(world.plan().dispatch.is_none(), "the secret was not read yet");
    has_secret(&mut world, "s1");
    world.pool.status.as_mut().unwrap().retries[0].secret_revision = None;
    assert!(world.plan().dispatch.is_some());
}
