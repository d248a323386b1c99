//! Machines of a pool: the pool makes and deletes the instance, everything between is as for any Machine.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use ostler_api::{
    driver::OperationKind,
    machine::{
        InstanceStatus, MachineOperationType, MachinePhase, MachineState, MachineStep, WaitReason,
    },
    names::{
        self,
        annotation::{INSTANCE_GONE, UPDATE_BEGUN},
    },
};
use ostler_lifecycle::{
    plan::{Action, Next},
    snapshot::{Observed, OwnPool, TargetView},
};

use crate::machine::{
    in_place::is_cordoned,
    target::cut_off,
    world::{PROVIDER_ID, World, pod},
};

/// A Machine just made by its pool for an instance.
fn pooled() -> World {
    let mut world = World::new();
    world.hold();
    let machine = world.machine_mut();
    machine.spec.provider_id = Some(PROVIDER_ID.into());
    machine.metadata.owner_references = Some(vec![OwnerReference {
        api_version: names::OWN_API_VERSION.to_owned(),
        kind: names::MACHINE_POOL.to_owned(),
        name: "p".to_owned(),
        uid: "pool-uid".to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    let of_machines = |kind: &OperationKind| !kind.is_of_pools();
    let kinds: Vec<_> = world.kinds.iter().copied().filter(of_machines).collect();
    // As `DriverView::of_pooled` leaves it.
    for kind in kinds {
        world.kinds.remove(&kind);
    }
    says(&mut world, "Succeeded", true);
    world
}

fn running() -> World {
    let mut world = pooled();
    world.settle();
    world.join();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    world
}

/// The running operation, as shown on the Machine.
fn operation(world: &World) -> Option<(MachineOperationType, MachineState)> {
    let last = world.status().last_operation?;
    last.type_.zip(last.state)
}

fn told_gone(world: &mut World) {
    let marks = world.machine_mut().metadata.annotations.get_or_insert_default();
    marks.insert(INSTANCE_GONE.to_owned(), PROVIDER_ID.to_owned());
}

#[test]
fn it_is_nothing_before_its_pool_says_that_it_has_the_instance() {
    let mut world = pooled();
    world.machine_mut().status = None;
    world.join();
    let before = world.node().clone();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::InstanceNotReady));
    world.delete();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::InstanceNotReady));
    world.pool = OwnPool::Whole;
    world.machine_mut().metadata.annotations =
        Some([(names::annotation::POOL_DELETED.to_owned(), "true".to_owned())].into());
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::InstanceNotReady));
    world.pool = OwnPool::Gone(1);
    world.settle();
    assert_eq!(world.node(), &before);
}

#[test]
fn it_waits_for_its_node_and_no_driver_is_asked_for_anything() {
    let mut world = pooled();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::NodeNotJoined));
    world.join();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert!(world.sent.is_empty(), "{:?}", world.sent);
}

#[test]
fn its_deletion_drains_and_then_waits_until_the_pool_says_that_the_instance_is_gone() {
    let mut world = running();
    world.delete();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::PoolDeletion));
    let status = world.machine().status.clone().unwrap();
    assert_eq!(status.step, Some(MachineStep::DeleteInstance));
    assert_eq!(operation(&world), Some((MachineOperationType::Delete, MachineState::Processing)));
    assert!(status.drain.is_none_or(|drain| drain.finished));
    told_gone(&mut world);
    world.settle();
    assert!(world.machine.is_none(), "it is gone, and its Node with it");
    assert!(world.sent.is_empty(), "{:?}", world.sent);
}

#[test]
fn its_deletion_waits_for_a_target_cluster_out_of_sight_no_longer_than_a_drain_may_take() {
    let mut world = cut_off(running(), WaitReason::TargetNotReached);
    world.later(7199);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::TargetNotReached));
    world.later(2);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::PoolDeletion));
    told_gone(&mut world);
    world.settle();
    assert!(world.machine.is_none() && world.sent.is_empty(), "{:?}", world.sent);
}

#[test]
fn one_whose_instance_is_gone_goes_without_a_drain() {
    let mut world = running();
    told_gone(&mut world);
    world.delete();
    let plan = world.pass();
    assert!(plan.actions.contains(&Action::RemoveFinalizer), "{:?}", plan.actions);
    assert!(world.sent.is_empty());
}

#[test]
fn one_that_its_pool_left_is_drained_and_goes() {
    for verb in [Some(OperationKind::DeletePoolMachines), None] {
        let mut world = running();
        if verb.is_none() {
            world.kinds.remove(&OperationKind::DeletePoolMachines);
        }
        world.delete();
        world.pool = OwnPool::Gone(1);
        let plan = world.pass();
        assert!(plan.actions.iter().any(|it| matches!(it, Action::PatchNode(_))), "{plan:?}");
        world.settle();
        assert_eq!(world.waits_for(), Some(WaitReason::PoolDeletion), "its group may be there");
        assert!(matches!(world.next, Next::Wait { .. }), "{:?}", world.next);
        world.pool = OwnPool::Gone(2);
        world.settle();
        assert!(world.machine.is_none(), "nothing else would end its wait");
        assert!(world.sent.is_empty(), "{:?}", world.sent);
    }
}

#[test]
fn another_instance_that_is_gone_is_not_its_own() {
    let mut world = running();
    let marks = world.machine_mut().metadata.annotations.get_or_insert_default();
    marks.insert(INSTANCE_GONE.to_owned(), "fake:///another".to_owned());
    world.delete();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::PoolDeletion));
}

#[test]
fn where_no_driver_can_delete_one_instance_the_machine_stays_and_nothing_is_drained() {
    let mut world = running();
    world.kinds.remove(&OperationKind::DeletePoolMachines);
    world.delete();
    let plan = world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::DriverLacksVerb));
    assert!(plan.actions.iter().all(|action| !matches!(action, Action::PatchNode(_))));
    told_gone(&mut world);
    world.settle();
    assert!(world.machine.is_none(), "until its instance goes with the size of the group");
}

/// In the seconds before a driver dials in again, its pods were evicted.
#[test]
fn nor_while_that_driver_is_away_as_far_as_the_pool_says_what_it_could_do() {
    for (pool, drains) in [(OwnPool::Whole, false), (OwnPool::There, true)] {
        for not_ready in [None, Some("no engine")] {
            let mut world = running();
            world.pods = Observed::Known(vec![pod("web")]);
            world.pool = pool;
            (world.connected, world.not_ready) = (false, not_ready);
            world.delete();
            world.settle();
            assert_eq!(world.step() == Some(MachineStep::DrainNode), drains, "{pool:?}");
            assert_eq!(is_cordoned(&world), drains, "{pool:?}");
            let held = world.waits_for() == Some(WaitReason::DriverLacksVerb);
            assert_eq!(held, !drains, "{pool:?}");
        }
    }
}

#[test]
fn a_pool_says_that_one_instance_cannot_be_deleted_and_nothing_is_taken_for_that() {
    for (said, expected) in [
        (None, OwnPool::There),
        (Some("Unknown"), OwnPool::There),
        (Some("True"), OwnPool::There),
        (Some("False"), OwnPool::Whole),
    ] {
        let condition = |status: &str| {
            serde_json::json!({
                "type": "Deletable", "status": status, "reason": "r", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"
            })
        };
        let conditions: Vec<_> = said.into_iter().map(condition).collect();
        let pool = serde_json::json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool", "metadata": { "name": "p" },
            "spec": {}, "status": { "conditions": conditions }
        });
        assert_eq!(OwnPool::of(&serde_json::from_value(pool).unwrap()), expected, "{said:?}");
    }
}

#[test]
fn where_the_whole_group_goes_the_machine_is_drained_although_no_driver_can_delete_its_instance() {
    let mut world = running();
    world.kinds.remove(&OperationKind::DeletePoolMachines);
    let marks = world.machine_mut().metadata.annotations.get_or_insert_default();
    marks.insert("ostler.dev/pool-deleted".to_owned(), String::new());
    world.delete();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::PoolDeletion));
}

#[test]
fn one_that_the_infrastructure_deletes_is_drained_although_no_driver_can_delete_its_instance() {
    let mut world = running();
    world.kinds.remove(&OperationKind::DeletePoolMachines);
    says(&mut world, "Deleting", true);
    world.pods = Observed::Known(vec![pod("web")]);
    world.delete();
    world.settle();
    assert_eq!(world.step(), Some(MachineStep::DrainNode));
    world.pods_end();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::PoolDeletion));
}

#[test]
fn another_class_spec_is_a_matter_of_the_group_and_not_of_a_hot_update() {
    let mut world = running();
    world.class.as_mut().unwrap().spec.provider_spec = serde_json::json!({ "size": 2 });
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert_eq!(world.waits_for(), None);
    assert!(world.sent.is_empty());
}

/// The pool's report on the instance.
fn says(world: &mut World, state: &str, current: bool) {
    let said = serde_json::json!({ "provisioningState": state, "latestModelApplied": current });
    let said: Box<InstanceStatus> = serde_json::from_value(said).unwrap();
    world.machine_mut().status.get_or_insert_default().instance = Some(said);
}

/// The pool begins or ends the update of the instance.
fn mark(world: &mut World, begun: bool) {
    let marks = world.machine_mut().metadata.annotations.get_or_insert_default();
    if begun {
        marks.insert(UPDATE_BEGUN.to_owned(), "model".to_owned());
    } else {
        marks.remove(UPDATE_BEGUN);
    }
}

#[test]
fn a_node_that_comes_while_the_instance_is_being_deleted_is_not_drained() {
    for (state, drains) in [("Deleting", false), ("Succeeded", true)] {
        let mut world = pooled();
        world.settle();
        world.delete();
        world.settle();
        assert_eq!(world.waits_for(), Some(WaitReason::PoolDeletion));
        says(&mut world, state, true);
        world.pods = Observed::Known(vec![pod("web")]);
        world.join();
        world.settle();
        let step = world.step();
        assert_eq!(step == Some(MachineStep::DeleteInstance), !drains, "{state}: {step:?}");
    }
}

/// The pool cannot know of it: it named the instance to the driver while the Machine had no Node.
#[test]
fn a_node_that_comes_after_the_deletion_was_sent_is_drained_and_holds_up_nothing() {
    let mut world = pooled();
    world.settle();
    world.delete();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::PoolDeletion));
    says(&mut world, "Succeeded", true);
    world.pods = Observed::Known(vec![pod("web")]);
    world.join();
    world.settle();
    assert_eq!(world.step(), Some(MachineStep::DrainNode), "no read has shown the deletion");
    told_gone(&mut world);
    world.settle();
    assert!(world.machine.is_none(), "wherever its drain is");
    assert!(world.sent.is_empty(), "{:?}", world.sent);
}

/// Its Node is drained, and the pool is to have the driver update the instance.
pub fn emptied() -> World {
    let mut world = running();
    says(&mut world, "Succeeded", false);
    world.pods = Observed::Known(vec![pod("web")]);
    mark(&mut world, true);
    world.settle();
    assert_eq!((world.phase(), is_cordoned(&world)), (MachinePhase::Running, true));
    assert_eq!(world.step(), Some(MachineStep::DrainNode), "its pods have to leave");
    world.pods_end();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdating);
    assert_eq!(world.step(), Some(MachineStep::UpdateInstance), "by that, the pool sees it");
    assert_eq!(world.waits_for(), Some(WaitReason::NodeUpdating));
    assert_eq!(operation(&world).map(|it| it.1), Some(MachineState::Processing));
    world
}

#[test]
fn its_pods_leave_before_its_instance_is_updated_and_its_node_takes_pods_again_afterwards() {
    let mut world = emptied();
    world.node_is("Unknown");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdating, "it boots");
    says(&mut world, "Succeeded", true);
    mark(&mut world, false);
    world.settle();
    assert_eq!((world.phase(), is_cordoned(&world)), (MachinePhase::InPlaceUpdating, true));
    world.node_is("True");
    world.settle();
    assert_eq!((world.phase(), is_cordoned(&world)), (MachinePhase::Running, false));
    assert_eq!((world.step(), world.status().drain), (None, None));
    assert!(world.sent.is_empty(), "the pool asks the driver");
}

#[test]
fn an_update_that_the_pool_takes_back_gives_the_node_back_wherever_it_is() {
    let mut world = emptied();
    mark(&mut world, false);
    world.settle();
    assert_eq!((world.phase(), is_cordoned(&world)), (MachinePhase::Running, false));
    world.pods = Observed::Known(vec![pod("web")]);
    mark(&mut world, true);
    world.settle();
    assert!(is_cordoned(&world));
    mark(&mut world, false);
    world.settle();
    assert_eq!((world.phase(), is_cordoned(&world)), (MachinePhase::Running, false));
}

#[test]
fn an_update_of_its_instance_that_takes_too_long_has_failed_and_may_still_succeed() {
    let mut world = emptied();
    world.later(1199);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdating);
    world.later(1);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed);
    assert_eq!(world.waits_for(), Some(WaitReason::InPlaceUpdateFailed));
    assert_eq!(world.step(), Some(MachineStep::UpdateInstance), "the pool goes on asking");
    assert!(is_cordoned(&world));
    says(&mut world, "Succeeded", true);
    mark(&mut world, false);
    world.settle();
    assert_eq!((world.phase(), is_cordoned(&world)), (MachinePhase::Running, false));
}

#[test]
fn its_deletion_ends_an_update_and_drains_anew() {
    let mut world = emptied();
    world.delete();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::PoolDeletion));
    told_gone(&mut world);
    world.settle();
    assert!(world.machine.is_none());
}

/// Its pool just made it, and there is no cluster for Nodes.
fn without_nodes() -> World {
    let mut world = pooled();
    world.target = TargetView::None;
    world
}

#[test]
fn without_nodes_it_is_available_once_the_driver_says_that_its_instance_runs() {
    for state in ["Creating", "Failed", "Canceled"] {
        let mut world = without_nodes();
        world.machine_mut().status = None;
        world.settle();
        assert_eq!(
            world.waits_for(),
            Some(WaitReason::InstanceNotReady),
            "the pool says nothing yet"
        );
        says(&mut world, state, true);
        world.settle();
        assert_eq!(world.phase(), MachinePhase::Pending, "{state}");
        says(&mut world, "Succeeded", true);
        world.settle();
        assert_eq!(world.phase(), MachinePhase::Available);
        says(&mut world, state, true);
        world.settle();
        assert_eq!(world.phase(), MachinePhase::Available, "it ran once");
    }
}

#[test]
fn without_nodes_an_instance_that_never_runs_is_given_up_after_the_creation_timeout() {
    let mut world = without_nodes();
    says(&mut world, "Creating", true);
    world.settle();
    assert!(matches!(world.next, Next::Wait { .. }), "{:?}", world.next);
    world.later(20 * 60);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
}

#[test]
fn without_nodes_an_instance_is_updated_in_its_place_with_nothing_drained() {
    for current in [true, false] {
        let mut world = without_nodes();
        says(&mut world, "Succeeded", false);
        world.settle();
        assert_eq!(world.phase(), MachinePhase::Available);
        mark(&mut world, true);
        world.settle();
        assert_eq!(world.phase(), MachinePhase::InPlaceUpdating);
        assert_eq!(world.step(), Some(MachineStep::UpdateInstance), "by that, the pool sees it");
        assert_eq!(world.waits_for(), Some(WaitReason::NodeUpdating));
        says(&mut world, "Succeeded", current);
        mark(&mut world, false);
        world.settle();
        assert_eq!((world.phase(), world.step()), (MachinePhase::Available, None));
        assert_eq!(world.waits_for(), None);
        assert!(world.sent.is_empty(), "the pool asks the driver");
    }
}

#[test]
fn without_nodes_an_update_that_takes_too_long_has_failed_and_may_still_succeed() {
    let mut world = without_nodes();
    says(&mut world, "Succeeded", false);
    mark(&mut world, true);
    world.settle();
    world.later(1200);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed);
    says(&mut world, "Succeeded", true);
    mark(&mut world, false);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Available);
}
