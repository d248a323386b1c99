//! Deletions that another machine-controller began.

use ostler_api::{
    driver::OperationKind as Kind,
    machine::{LastOperation, MachineOperationType, MachinePhase},
};
use ostler_lifecycle::{plan::EventReason, snapshot::Observed};

use crate::world::{PROVIDER_ID, World, pod};

/// A machine as machine-controller leaves it in the middle of a deletion.
fn left(description: &str) -> World {
    let mut world = World::running();
    world.pods = Observed::Known(vec![pod("web")]);
    world.delete();
    let status = world.machine_mut().status.as_mut().unwrap();
    let mut current = status.current_status.take().unwrap();
    current.phase = Some(MachinePhase::Terminating);
    *status = ostler_api::machine::MachineStatus {
        current_status: Some(current),
        last_operation: Some(LastOperation {
            description: Some(description.to_owned()),
            type_: Some(MachineOperationType::Delete),
            ..LastOperation::default()
        }),
        ..Default::default()
    };
    world
}

#[test]
fn a_deletion_that_was_not_drained_yet_is_drained() {
    for text in [
        "Set machine status to termination. Now, getting VM Status",
        "Drain failed due to - timeout. Will retry in next sync. Initiate node drain",
        "Deleting machine from cloud provider",
        "the provider says Initiate VM deletion, and more",
    ] {
        let mut world = left(text);
        world.settle();
        assert_eq!(world.count(Kind::DeleteMachine), 0, "{text}");
        world.pods_end();
        world.settle();
        assert!(world.machine.is_none(), "{text}");
        assert!(world.happened(EventReason::Drained), "{text}");
    }
}

#[test]
fn a_deletion_that_was_drained_is_not_drained_again() {
    for text in [
        "Drain successful. Initiate VM deletion",
        "Drain failed due to - x. However, since it's a force deletion shall continue deletion of VM. Delete Volume Attachments",
        "VM deletion was successful. Initiate node object deletion",
        "Deletion of Node Object n is successful. Initiate machine object finalizer removal",
    ] {
        let mut world = left(text);
        world.settle();
        assert!(!world.happened(EventReason::DrainStarted), "{text}");
        assert_eq!(world.count(Kind::DeleteMachine), 1, "a driver says that it is gone (INV-3)");
        assert!(world.machine.is_none(), "{text}");
    }
}

#[test]
fn a_machine_that_is_terminating_and_was_never_deleted_comes_back_to_life() {
    let mut world = World::running();
    let status = world.machine_mut().status.as_mut().unwrap();
    status.current_status.as_mut().unwrap().phase = Some(MachinePhase::Terminating);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert_eq!(world.machine().provider_id(), Some(PROVIDER_ID));
    assert_eq!(world.creates, 1);
}
