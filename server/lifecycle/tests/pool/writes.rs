//! The writes of a pool: conditions, and the owner of a Machine with the name of a new one.

use std::sync::Arc;

use jiff::SignedDuration;
use ostler_api::{
    Machine, ProviderId,
    driver::{Certainty, ErrorCode, OperationKind},
    machine::MachinePhase,
    operation::{OperationView, Success},
};
use ostler_lifecycle::{
    class::FinalizerChange,
    operation::Failure,
    plan::EventReason,
    pool::{machine, owner_reference, plan},
    write::{Next, Object, OfInstance, Only, Part, Taken, TakenName, Verb, Write},
};
use serde_json::{Value, json};

use crate::pool::world::{World, set_phase};

fn writes(world: &World, part: Part) -> Vec<Write> {
    let batches = plan(&world.snapshot()).writes.into_iter();
    batches.filter(|it| it.part == part).flat_map(|it| it.writes).collect()
}

#[test]
fn a_machine_that_was_chosen_goes_in_the_version_that_was_seen_and_a_lost_one_in_any() {
    let mut world = World::running(3, json!({}));
    world.pool.spec.replicas = Some(2);
    let chosen = writes(&world, Part::Delete);
    assert_eq!(chosen.iter().map(|it| &it.only).collect::<Vec<_>>(), [&Only::Seen]);
    let mut world = World::running(3, json!({}));
    let lost = world.group.as_mut().unwrap().instances.remove(0);
    let uid = world.machines[0].metadata.uid.clone().unwrap();
    assert_eq!(world.machines[0].provider_id(), Some(&lost.provider_id));
    world.group.as_mut().unwrap().absent.insert(uid, 2);
    let lost = writes(&world, Part::Delete);
    assert_eq!(
        lost.iter().map(|it| &it.only).collect::<Vec<_>>(),
        [&Only::Uid],
        "it is marked first"
    );
    assert_eq!(writes(&world, Part::Mark).len(), 1);
}

/// It was acknowledged before: a core that died in between had neither the result nor the pool.
#[test]
fn the_result_of_the_last_operation_is_acknowledged_after_the_finalizer_is_gone() {
    let mut world = World::running(0, json!({}));
    world.pool.metadata.deletion_timestamp = Some(world.now.into());
    world.pass();
    world.answer(OperationKind::DeletePool, Ok(Success::Deleted { was_absent: false }));
    assert_eq!(world.plan().finalizer, FinalizerChange::Remove);
    let plan = plan(&world.snapshot());
    let Verb::Patch(patch) = &plan.writes[0].writes[0].verb else { panic!("{plan:?}") };
    assert_eq!(patch["metadata"]["finalizers"], json!([]));
    assert_eq!(plan.acknowledge, Some("op-1".into()), "what is acknowledged follows the writes");
    assert!(plan.report.is_none() && plan.dispatch.is_none() && plan.next == Next::OnChange);
}

/// The driver was asked for a group that a creation may have made, and may show late.
#[test]
fn a_pool_that_is_held_after_its_group_is_gone_asks_for_no_second_deletion() {
    let mut world = World::new(2, json!({}));
    world.pass();
    let unknown = Failure::new(ErrorCode::Unavailable, Certainty::Unknown, "lost");
    world.answer(OperationKind::CreatePool, Err(unknown));
    world.pass();
    (world.operation, world.absent_looks) = (OperationView::Idle, 9);
    world.pool.metadata.deletion_timestamp = Some(world.now.into());
    assert!(world.pass().dispatch.is_some());
    world.answer(OperationKind::DeletePool, Ok(Success::Deleted { was_absent: false }));
    assert_eq!(world.plan().finalizer, FinalizerChange::Remove);
    world.operation = OperationView::Idle;
    world.pool.metadata.finalizers = Some(vec!["example.com/held".to_owned()]);
    for _ in 0..3 {
        world.now += SignedDuration::from_hours(1);
        let plan = plan(&world.snapshot());
        assert!(plan.dispatch.is_none() && plan.writes.is_empty(), "{plan:#?}");
    }
}

#[test]
fn a_group_gets_neither_the_instance_nor_the_node_of_a_machine_of_another() {
    let mut world = World::running(1, json!({}));
    world.pool.spec.replicas = Some(2);
    world.group.as_mut().unwrap().desired = 2;
    world.boot();
    let label = |write: &Write| write.of.machine().unwrap().node_name().map(str::to_owned);
    assert_eq!(label(&writes(&world, Part::Create)[0]).as_deref(), Some("node-2"));
    world.others.nodes.insert("node-2".to_owned());
    let made = &writes(&world, Part::Create)[0];
    assert_eq!(label(made), None);
    assert!(matches!(made.verb, Verb::Create(_)));
    world.others.instances.insert("fake:///i-2".into(), "default/theirs".to_owned());
    let refused = &writes(&world, Part::Create)[0];
    assert_eq!(refused.verb, Verb::Refuse("its instance is that of default/theirs".to_owned()));
    assert_eq!(refused.refused.as_ref().unwrap().reason, EventReason::FailedCreate);
}

/// The judgement of a Machine with the name for instance `fake:///i-1`, of a group with these instances.
fn found(there: &[&str], change: Value) -> TakenName {
    let world = World::running(1, json!({}));
    let wanted = machine(&world.pool, &world.group.as_ref().unwrap().instances[0]);
    let mut found = serde_json::to_value(&wanted).unwrap();
    json_patch::merge(&mut found, &change);
    let found: Machine = serde_json::from_value(found).unwrap();
    let there = there.iter().map(|id| ProviderId::from(*id)).collect();
    let of = OfInstance { owner: owner_reference(&world.pool), there: Arc::new(there) };
    let object = |machine| Object::Machine(Arc::new(machine));
    Taken::Instance(of).judge(&object(wanted), Some(&object(found)))
}

fn owners(uid: &str, controller: bool) -> Value {
    json!([{ "apiVersion": "v1", "kind": "X", "name": "x", "uid": uid, "controller": controller }])
}

#[test]
fn a_machine_whose_reference_to_its_pool_was_removed_is_taken_back_and_no_other_one() {
    assert_eq!(found(&[], json!({})), TakenName::Ours);
    let TakenName::Patch(patch) =
        found(&[], json!({ "metadata": { "ownerReferences": owners("x", false) } }))
    else {
        panic!()
    };
    let of = |at: usize| patch["metadata"]["ownerReferences"][at]["uid"].clone();
    assert_eq!((of(0), of(1)), (json!("x"), json!("pool-uid")), "those of others stay");
    // The instance may have a Node: its group does not go meanwhile.
    let held = found(&[], json!({ "metadata": { "ownerReferences": owners("x", true) } }));
    assert_eq!(held, TakenName::Held("p-1 has the instance, and is of X/x".to_owned()));
    let other =
        json!({ "metadata": { "ownerReferences": [] }, "spec": { "providerID": "fake:///2" } });
    let refused = TakenName::Refused("p-1 is the machine of another instance".to_owned());
    assert_eq!(found(&[], other), refused);
}

/// The id was taken for the id of an earlier instance, and the Machine's instance had none.
#[test]
fn a_machine_of_the_pool_without_any_id_gets_that_of_its_instance_unless_it_is_being_deleted() {
    let lost = json!({ "spec": { "providerID": null } });
    let patch = TakenName::Patch(json!({ "spec": { "providerID": "fake:///i-1" } }));
    assert_eq!(found(&[], lost.clone()), patch);
    let mut deleted = lost.clone();
    deleted["metadata"] = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
    assert_eq!(found(&[], deleted), TakenName::Later(None));
    let mut theirs = lost;
    theirs["metadata"] = json!({ "ownerReferences": owners("x", true) });
    assert!(matches!(found(&[], theirs), TakenName::Refused(_)));
}

/// Of two instances whose names differ in letters that no object can have.
#[test]
fn an_instance_whose_machine_would_have_the_name_of_that_of_another_is_told_of() {
    let before = json!({ "spec": { "providerID": "fake:///2" } });
    let TakenName::Later(Some(event)) = found(&["fake:///i-1", "fake:///2"], before.clone()) else {
        panic!()
    };
    let text = "cannot create a machine for fake:///i-1: p-1 is that of fake:///2";
    assert_eq!((event.reason, event.message.as_str()), (EventReason::FailedCreate, text));
    assert_eq!(found(&["fake:///i-1"], before), TakenName::Later(None), "it goes");
}

#[test]
fn what_others_wrote_to_a_machine_meanwhile_is_looked_at_soon_and_is_no_failure() {
    let mut world = World::running(2, json!({}));
    set_phase(&mut world.machines[0], MachinePhase::Pending);
    world.group.as_mut().unwrap().instances[0].fault = Some("slow".to_owned());
    let plan = plan(&world.snapshot());
    let update = plan.writes.iter().find(|it| it.part == Part::Update).unwrap();
    let again = ostler_lifecycle::write::Then::Again(std::time::Duration::from_secs(1));
    assert_eq!(update.answers.conflict, again);
}
