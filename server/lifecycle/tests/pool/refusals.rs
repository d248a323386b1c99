//! What the driver refuses for running instances, of more old models than are remembered.

use ostler_api::operation::OperationView;
use serde_json::json;

use crate::updates::{UPDATE, asked, id, retag, updating};
use crate::world::{World, not_hot};

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
        // The surge for those that are to be replaced.
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
