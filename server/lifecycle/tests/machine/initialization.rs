//! Initialization is asked for until it is done, whichever process dies meanwhile and whatever a
//! read says.

use ostler_api::ProviderId;
use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind as Kind},
    machine::{MachinePhase, MachineStep},
    names,
};
use ostler_lifecycle::{
    operation::{InstanceRecord, Request, Success},
    snapshot::NodeView,
};
use serde_json::json;

use crate::machine::world::{PROVIDER_ID, World};

/// A driver that offers InitializeMachine and leaves `initialized` out of its records.
fn silent(world: &World) -> Success {
    Success::Read(InstanceRecord { initialized: None, ..world.record() })
}

fn in_flight(kind: Kind) -> World {
    let mut world = World::new();
    for _ in 0..10 {
        if world.sent.last().is_some_and(|last| last.kind() == kind) {
            return world;
        }
        if !world.sent.is_empty() {
            world.answer();
        }
        world.pass();
    }
    panic!("{kind} was never sent");
}

#[test]
fn an_initialization_brings_the_user_data_of_the_creation() {
    let world = in_flight(Kind::InitializeMachine);
    let user_data = world.sent.iter().filter_map(|sent| match &sent.request {
        Request::Create { user_data, .. } | Request::Initialize { user_data, .. } => {
            Some(user_data.clone().unwrap().into_bytes())
        }
        _ => None,
    });
    let user_data: Vec<_> = user_data.collect();
    assert_eq!(user_data.len(), 2);
    assert_eq!(user_data[0], user_data[1]);
}

#[test]
fn a_read_that_succeeds_after_a_lost_create_does_not_skip_initialization() {
    let mut world = in_flight(Kind::CreateMachine);
    let _lost = world.carry_out();
    world.lose_operation();
    world.pass();
    let answer = silent(&world);
    world.reply(Ok(answer));
    world.pass();
    assert_eq!(world.sent.last().unwrap().kind(), Kind::InitializeMachine);
}

#[test]
fn an_initialization_that_names_the_instance_of_another_machine_takes_nothing_of_it() {
    let mut world = in_flight(Kind::InitializeMachine);
    world.holder = Some("another".to_owned());
    let provider_id = "fake:///of-another".to_owned();
    let record = InstanceRecord {
        provider_id: provider_id.into(),
        initialized: Some(true),
        ..world.record()
    };
    world.reply(Ok(Success::Initialized(Some(record))));
    world.pass();
    assert_eq!(world.machine().provider_id().map(ProviderId::as_str), Some(PROVIDER_ID));
}

#[test]
fn a_read_that_succeeds_after_a_lost_initialization_does_not_skip_it() {
    let mut world = in_flight(Kind::InitializeMachine);
    world.lose_operation();
    world.pass();
    let answer = silent(&world);
    world.reply(Ok(answer));
    world.pass();
    assert_eq!(world.sent.last().unwrap().kind(), Kind::InitializeMachine);
    assert_eq!(world.count(Kind::InitializeMachine), 2);
}

#[test]
fn an_instance_that_is_found_again_after_a_failed_initialization_is_initialized() {
    let mut world = in_flight(Kind::InitializeMachine);
    world.refuse(ErrorCode::NotFound);
    world.pass();
    assert_eq!(world.step(), Some(MachineStep::CreateInstance));
    world.later(5);
    world.pass();
    let answer = silent(&world);
    world.reply(Ok(answer));
    world.pass();
    assert_eq!(world.sent.last().unwrap().kind(), Kind::InitializeMachine);
}

#[test]
fn an_instance_of_a_create_that_was_said_to_have_failed_is_initialized() {
    let mut world = in_flight(Kind::CreateMachine);
    let _made_all_the_same = world.carry_out();
    world.fail(ErrorCode::Internal, Certainty::Partial);
    world.pass();
    world.later(60);
    world.pass();
    let answer = silent(&world);
    world.reply(Ok(answer));
    world.pass();
    assert_eq!(world.sent.last().unwrap().kind(), Kind::InitializeMachine);
}

#[test]
fn a_failed_initialization_of_another_controller_is_gone_on_with() {
    for code in ["Uninitialized", "Initialization"] {
        let mut world = World::new();
        world.instances.push(crate::machine::world::Instance::default());
        let machine = world.machine_mut();
        machine.spec.provider_id = Some(PROVIDER_ID.into());
        machine.metadata.labels = Some([(names::label::NODE.to_owned(), "n".to_owned())].into());
        machine.status = serde_json::from_value(json!({
            "currentStatus": { "phase": "CrashLoopBackOff" },
            "lastOperation": { "type": "Create", "state": "Failed", "errorCode": code,
                               "description": "InstanceInitialization" }
        }))
        .unwrap();
        world.settle();
        assert_eq!(world.count(Kind::InitializeMachine), 1, "{code}");
        assert_eq!(world.creates, 0);
        assert!(world.instances[0].initialized);
        assert_eq!(world.step(), Some(MachineStep::JoinNode));
    }
}

#[test]
fn the_taint_of_an_instance_that_is_not_ready_stays_until_its_machine_runs() {
    let mut world = in_flight(Kind::InitializeMachine);
    world.join();
    let tainted = |world: &World| world.node().spec.as_ref().unwrap().taints.is_some();
    world.fail(ErrorCode::Uninitialized, Certainty::NotApplied);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::CrashLoopBackOff);
    assert!(tainted(&world), "the node is healthy, the instance is not initialized");
    world.later(5);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert!(!tainted(&world));
    assert!(matches!(world.node, NodeView::Known(_)));
}
