use ostler_api::ProviderId;
use ostler_api::{
    driver::OperationKind as Kind,
    machine::{LifecyclePhase, MachineOperationType, MachinePhase, MachineState, MachineStep},
    names,
};
use ostler_lifecycle::{
    operation::{Request, Success},
    plan::EventReason,
    snapshot::{NodeView, Observed},
    user_data::token_id,
};

use crate::machine::world::{NODE, PROVIDER_ID, UID, World, pod};

#[test]
fn the_life_of_a_machine_from_new_to_gone() {
    let mut world = World::new();
    is_looked_up(&mut world);
    is_created(&mut world);
    is_initialized(&mut world);
    joins(&mut world);
    rests(&mut world);
    is_drained(&mut world);
    is_deleted(&mut world);
    for reason in [
        EventReason::InstanceCreated,
        EventReason::NodeJoined,
        EventReason::DrainStarted,
        EventReason::Drained,
        EventReason::InstanceDeleted,
    ] {
        assert!(world.happened(reason), "{reason:?}");
    }
    let said = |reason| &world.events.iter().find(|it| it.reason == reason).unwrap().message;
    assert_eq!(said(EventReason::DrainStarted), &format!("draining node {NODE}: evicting 1 pod"));
    assert_eq!(said(EventReason::InstanceDeleted), &format!("instance {PROVIDER_ID} is gone"));
}

fn is_looked_up(world: &mut World) {
    world.pass();
    assert!(!world.machine().has_finalizer(), "a read leaves nothing behind");
    assert_eq!(world.kinds_sent(), [Kind::GetMachineStatus]);
    assert_eq!(world.machine().status, None, "a read alone is not worth a write");
}

fn is_created(world: &mut World) {
    world.answer();
    world.pass();
    assert!(world.machine().has_finalizer(), "nothing is made before the finalizer is there");
    assert_eq!(world.step(), Some(MachineStep::CreateInstance));
    assert_eq!(world.status().phase, Some(LifecyclePhase::Provisioning));
    let intent = world.status().operation.unwrap();
    assert_eq!(intent.idempotency_key, format!("{UID}:c"));
    let Request::Create { user_data, provider_id } = world.sent.last().unwrap().request.clone()
    else {
        panic!("{:?}", world.sent);
    };
    let expected = format!("#!/bin/sh\njoin {}.0123456789abcdef as m1", token_id(UID));
    assert_eq!(String::from_utf8(user_data.unwrap().into_bytes()).unwrap(), expected);
    assert_eq!(provider_id, "");
    assert!(matches!(world.token, Observed::Known(_)));
}

fn is_initialized(world: &mut World) {
    world.answer();
    world.pass();
    assert_eq!(world.machine().provider_id().map(ProviderId::as_str), Some(PROVIDER_ID));
    assert_eq!(world.machine().node_name(), Some(NODE));
    assert_eq!(world.machine().annotation(names::annotation::PRIORITY), Some("3"));
    assert_eq!(world.applied().unwrap(), r#"{"size":1,"tags":{"a":"1"}}"#);
    assert_eq!(world.step(), Some(MachineStep::InitializeInstance));
    assert_eq!(world.sent.last().unwrap().kind(), Kind::InitializeMachine);

    world.answer();
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Pending);
    assert_eq!(world.status().phase, Some(LifecyclePhase::Provisioned));
    assert_eq!(world.status().operation, None);
}

fn joins(world: &mut World) {
    world.join();
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert_eq!(world.status().phase, Some(LifecyclePhase::Running));
    assert_eq!(world.step(), None);
    let last = world.status().last_operation.unwrap();
    assert_eq!(last.type_, Some(MachineOperationType::Create));
    assert_eq!(last.state, Some(MachineState::Successful));
    assert_eq!(world.token, Observed::Absent, "the bootstrap token is not needed any more");
    let node = world.node();
    assert_eq!(node.spec.as_ref().unwrap().taints, None);
    assert_eq!(node.metadata.finalizers.as_ref().unwrap(), &[names::finalizer::NODE]);
}

fn rests(world: &mut World) {
    assert_eq!(world.status().waiting_for, None);
    let settled = world.pass();
    assert!(settled.actions.is_empty() && settled.dispatch.is_none(), "{settled:#?}");
    assert_eq!(Some(settled.status), world.machine().status, "a machine at rest is not written");
}

fn is_drained(world: &mut World) {
    world.pods = Observed::Known(vec![pod("web")]);
    world.delete();
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Terminating);
    assert_eq!(world.step(), Some(MachineStep::CordonNode));
    assert_eq!(world.node().spec.as_ref().unwrap().unschedulable, Some(true));

    world.pass();
    assert_eq!(world.step(), Some(MachineStep::DrainNode));
    assert_eq!(world.status().drain.unwrap().pods_left, 1);
    assert_eq!(world.count(Kind::DeleteMachine), 0, "the pod is still there");
}

fn is_deleted(world: &mut World) {
    world.pods_end();
    world.pass();
    assert_eq!(world.step(), Some(MachineStep::DeleteInstance));
    assert_eq!(world.count(Kind::DeleteMachine), 1);

    world.answer();
    world.pass();
    assert!(world.machine.is_none());
    assert!(matches!(world.node, NodeView::Absent));
    assert!(world.instances.is_empty());
}

#[test]
fn a_driver_with_create_and_delete_alone_is_enough() {
    let mut world = World::new();
    world.kinds = [Kind::CreateMachine, Kind::DeleteMachine].into();
    world.settle();
    world.join();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    world.delete();
    world.settle();
    assert!(world.machine.is_none());
    assert_eq!(world.kinds_sent(), [Kind::CreateMachine, Kind::DeleteMachine]);
}

#[test]
fn a_class_without_user_data_needs_no_token() {
    let mut world = World::new();
    world.secret = ostler_lifecycle::snapshot::SecretView::NotReferenced;
    world.settle();
    assert_eq!(world.creates, 1);
    assert_eq!(world.token, Observed::Absent);
}

#[test]
fn drivers_are_told_of_the_machine_with_all_that_is_asked_about_it_but_its_volumes() {
    let mut world = World::running();
    world.edit_class(serde_json::json!({ "size": 1, "tags": { "a": "2" } }));
    world.settle();
    world.delete();
    world.settle();
    let kinds: std::collections::BTreeSet<_> = world.kinds_sent().into_iter().collect();
    assert!(kinds.len() > 3, "{kinds:?}");
    for sent in &world.sent {
        let told = sent.kind() != Kind::GetVolumeIds;
        assert_eq!(sent.machine.is_some(), told, "{}", sent.kind());
    }
}

#[test]
fn a_create_that_reports_an_initialized_instance_goes_on_to_its_node() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    let Ok(Success::Created(mut record)) = world.carry_out() else { panic!() };
    record.initialized = Some(true);
    world.reply(Ok(Success::Created(record)));
    world.pass();
    assert_eq!(world.count(Kind::InitializeMachine), 0);
    assert_eq!(world.step(), Some(MachineStep::JoinNode));
    world.later(2);
    world.pass();
    assert!(world.happened(EventReason::InstanceCreated));
}
