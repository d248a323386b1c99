//! What is recorded when a write did not come through.

use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_api::{
    driver::OperationKind,
    machine::{FailureReason, MachineConditionType, MachinePhase, MachineStatus, WaitReason},
    names::{self, label},
};
use ostler_lifecycle::{
    machine,
    plan::{Action, EventReason, Next, OnFailure, Performed, Plan},
    record::{Recorded, record},
    unwritten::Unwritten,
};
use serde_json::{Value, json};

use crate::machine::world::{World, seconds};

/// A kept status has no news about fields that are written immediately. The end of a failure may wait with the rest,
/// and so may the first words about a Node that joins.
pub fn check_kept(kept: &Unwritten) {
    let of_node = |it: &&NodeCondition| !MachineConditionType::is_ours(&it.type_);
    let health = |status: &MachineStatus| {
        let current = status.current_status.clone().unwrap_or_default();
        let conditions: Vec<_> = status.conditions.iter().filter(of_node).cloned().collect();
        (conditions, current.preserve_expiry_time, status.failure_reason.clone())
    };
    let failures = |status: &MachineStatus| {
        let last = status.last_operation.clone().unwrap_or_default();
        [json!(status.retry), json!(last.error_code), json!(status.hot_update)]
    };
    let (stored, status) = (kept.stored.clone().unwrap_or_default(), &kept.status);
    assert!(kept.stored.is_none() || health(status) == health(&stored), "{kept:#?}");
    let same = |(new, old): (&Value, &Value)| new.is_null() || new == old;
    let (new, old) = (failures(status), failures(&stored));
    assert!(new.iter().zip(&old).all(same), "{new:?} after {old:?}: {kept:#?}");
}

/// The next pass, whose actions take so many seconds.
fn slow_pass(world: &mut World, takes: i64) -> (Plan, Recorded) {
    let snapshot = world.snapshot();
    let plan = machine::plan(&snapshot);
    let performed = vec![Performed::Done; plan.actions.len()];
    let recorded = record(&snapshot, &plan, &performed, seconds(world.now, takes));
    (plan, recorded)
}

#[test]
fn what_could_not_be_said_on_a_node_is_said_again_soon() {
    let mut world = World::running();
    let mut node = world.node().clone();
    let labels = node.metadata.labels.get_or_insert_default();
    labels.insert(label::CANDIDATE_FOR_UPDATE.to_owned(), "true".to_owned());
    world.node = ostler_lifecycle::snapshot::NodeView::Known(node.into());
    let snapshot = world.snapshot();
    let plan = machine::plan(&snapshot);
    assert!(matches!(plan.actions.as_slice(), [Action::PatchNodeStatus(_)]), "{:?}", plan.actions);
    assert_eq!(plan.next, Next::OnChange);
    for (performed, again) in [
        (Performed::Conflict, Some(2)),
        (Performed::Failed("500".to_owned()), Some(15)),
        (Performed::Done, None),
        (Performed::Gone, None),
    ] {
        let recorded = record(&snapshot, &plan, std::slice::from_ref(&performed), world.now);
        let expected = again.map_or(Next::OnChange, |again| Next::Wait {
            reason: WaitReason::ApiWriteFailed,
            until: seconds(world.now, again),
        });
        assert_eq!((recorded.proceed, recorded.next), (true, expected), "{performed:?}");
    }
}

#[test]
fn a_status_is_of_the_generation_that_the_own_patch_of_its_pass_made() {
    let mut world = World::new();
    world.pass();
    world.answer();
    let snapshot = world.snapshot();
    let plan = machine::plan(&snapshot);
    let performed = vec![Performed::Done; plan.actions.len()];
    let recorded = record(&snapshot, &plan, &performed, world.now).observing(Some(7));
    assert_eq!(recorded.unwritten.unwrap().status.observed_generation, Some(7));
    world.pass();
    world.later(2);
    let snapshot = world.snapshot();
    let plan = machine::plan(&snapshot);
    let recorded = record(&snapshot, &plan, &[], world.now).observing(Some(8));
    assert_eq!(recorded.status.unwrap()["observedGeneration"], 8);
}

#[test]
fn a_status_waits_from_the_end_of_the_actions_on_also_for_what_follows_from_the_operation_before() {
    let mut world = World::new();
    world.pass();
    world.answer();
    for kind in [OperationKind::CreateMachine, OperationKind::InitializeMachine] {
        let (plan, recorded) = slow_pass(&mut world, 3);
        assert_eq!(plan.dispatch.unwrap().kind(), kind);
        let (since, due) = (seconds(world.now, 3), seconds(world.now, 5));
        assert_eq!(recorded.unwritten.unwrap().since, since, "{kind}");
        assert!(matches!(recorded.next, Next::Wait { until, .. } if until <= due), "{kind}");
        world.pass();
        world.later(1);
        world.answer();
    }
}

#[test]
fn a_status_that_is_due_says_that_the_driver_works_also_if_it_began_a_moment_later() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world.unwritten.as_mut().unwrap().since = seconds(world.now, -2);
    world.pass();
    assert_eq!((&world.unwritten, world.waits_for()), (&None, Some(WaitReason::DriverWorking)));
}

#[test]
fn an_event_that_waits_with_a_status_is_told_with_one_that_says_what_failed() {
    let mut world = World::new();
    world.kinds.remove(&OperationKind::InitializeMachine);
    for _ in 0..2 {
        world.pass();
        world.answer();
    }
    world.pass();
    assert_eq!(world.unwritten.as_ref().unwrap().events.len(), 1);
    world.later(1);
    world.delete();
    let snapshot = world.snapshot();
    let plan = machine::plan(&snapshot);
    assert!(plan.actions.iter().any(|action| action.on_failure() == OnFailure::Stop), "{plan:#?}");
    let told = |performed: Performed| {
        let performed = vec![performed; plan.actions.len()];
        let recorded = record(&snapshot, &plan, &performed, world.now);
        assert!(!recorded.proceed);
        recorded.events.iter().map(|event| event.reason).collect::<Vec<_>>()
    };
    let failed = Performed::Failed("500".to_owned());
    assert_eq!(told(failed), [EventReason::InstanceCreated]);
    assert_eq!(told(Performed::Conflict), [], "it is kept");
}

#[test]
fn who_set_which_field_of_a_machine_of_a_set_is_forgotten_unless_it_was_applied() {
    let key = names::annotation::LAST_APPLIED_CONFIGURATION;
    let owned = json!([{
        "apiVersion": "v1", "kind": "MachineSet", "name": "s", "uid": "1", "controller": true
    }]);
    let by = |operation: &str| json!([{ "operation": operation }]);
    for (metadata, forgets) in [
        (json!({ "managedFields": by("Update") }), false),
        (json!({ "ownerReferences": owned, "managedFields": by("Update") }), true),
        (
            json!({ "ownerReferences": owned, "finalizers": [names::finalizer::MACHINE],
                    "annotations": { names::annotation::OPERATION: "{}" } }),
            true,
        ),
        (json!({ "ownerReferences": owned, "annotations": { key: "{}" } }), false),
        (json!({ "ownerReferences": owned, "managedFields": by("Apply") }), false),
    ] {
        let mut world = World::new();
        let said: ObjectMeta = serde_json::from_value(metadata.clone()).unwrap();
        let machine = &mut world.machine_mut().metadata;
        machine.owner_references = said.owner_references;
        machine.finalizers = said.finalizers;
        machine.annotations = said.annotations;
        machine.managed_fields = said.managed_fields;
        world.pass();
        world.answer();
        let plan = world.pass();
        let patched = plan.actions.iter().find_map(|action| match action {
            Action::PatchMachine(patch) => Some(patch.forget_managers),
            _ => None,
        });
        assert_eq!(patched, Some(forgets), "{metadata}");
    }
}

/// A Machine whose template has a label that the Node lacks.
fn refused(mut world: World) -> World {
    let template = json!({ "metadata": { "labels": { "pool": "a" } } });
    world.machine_mut().spec.node_template = Some(serde_json::from_value(template).unwrap());
    world.fails = ["PatchNode"].into();
    world
}

#[test]
fn the_health_of_a_machine_does_not_wait_for_what_its_node_is_only_to_carry() {
    let mut world = refused(World::running());
    world.pass();
    let waiting = world.status().waiting_for.unwrap();
    assert_eq!(waiting.reason, WaitReason::ApiWriteFailed);
    assert_eq!(waiting.message.as_deref(), Some("PatchNode: denied"));
    world.node_is("False");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    assert_eq!(world.waits_for(), Some(WaitReason::NodeUnhealthy));
    world.node_is("True");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    world.node_is("False");
    world.settle();
    world.later(601);
    world.settle();
    assert_eq!(world.status().failure_reason, Some(FailureReason::HealthTimeout));
}

#[test]
fn the_creation_timeout_does_not_wait_for_what_a_node_is_only_to_carry() {
    let mut world = World::new();
    world.settle();
    world.join();
    world.node_is("False");
    let mut world = refused(world);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::NodeNotReady));
    world.later(1201);
    world.settle();
    assert_eq!(world.status().failure_reason, Some(FailureReason::JoinTimeout));
}

#[test]
fn a_machine_runs_only_once_its_node_can_take_pods_and_is_held() {
    let mut world = World::new();
    world.settle();
    world.join();
    let mut world = refused(world);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Pending);
    assert_eq!(world.waits_for(), Some(WaitReason::ApiWriteFailed));
}
