//! Deletions that another machine-controller began.

use ostler_api::ProviderId;
use ostler_api::{
    driver::{ErrorCode, OperationKind as Kind},
    machine::{LastOperation, MachineOperationType, MachinePhase, MachineState},
    names,
};
use ostler_lifecycle::{
    plan::EventReason,
    snapshot::{NodeView, Observed},
};

use crate::machine::world::{PROVIDER_ID, World, pod};

/// The reaction of machine-controller to a description: the first entry of the list found in the description decides.
const UPSTREAM: [(&str, &str); 6] = [
    ("Set machine status to termination. Now, getting VM Status", "finds the node"),
    ("Initiate node drain", "drains"),
    ("Delete Volume Attachments", "takes the volumes"),
    ("Initiate VM deletion", "deletes the instance"),
    ("Initiate node object deletion", "deletes the node"),
    ("Initiate machine object finalizer removal", "lets the machine go"),
];

fn goes_on(status: &ostler_api::machine::MachineStatus) -> &'static str {
    let last = status.last_operation.as_ref().unwrap();
    assert_eq!(last.type_, Some(MachineOperationType::Delete));
    let text = last.description.as_deref().unwrap();
    let row = UPSTREAM.iter().find(|(words, _)| text.contains(words));
    row.map_or_else(|| panic!("it begins anew: {text}"), |(_, does)| does)
}

#[test]
fn a_node_whose_id_the_cloud_writes_in_another_way_stays_that_of_the_machine_and_is_drained() {
    let mut world = World::running();
    let mut node = world.node().clone();
    node.spec.as_mut().unwrap().provider_id = Some("fake:///zone-a/i-1".to_owned());
    world.node = NodeView::Known(node.into());
    world.later(3600);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    world.pods = Observed::Known(vec![pod("web")]);
    world.delete();
    world.settle_pods();
    assert_eq!(world.instances.len(), 1, "the pod has to leave first");
    world.pods_end();
    world.settle();
    assert!(world.machine.is_none());
}

/// A running machine with a pod that was deleted, one pass later.
fn deleted() -> World {
    let mut world = World::running();
    world.pods = Observed::Known(vec![pod("web")]);
    world.delete();
    world.settle();
    world
}

#[test]
fn machine_controller_goes_on_where_a_deletion_of_ours_was_left() {
    let mut world = deleted();
    assert_eq!(goes_on(&world.status()), "finds the node", "and drains it: pods are left");
    world.pods_end();
    world.volumes = Observed::Known(vec!["pv-1".to_owned()]);
    world.pass();
    assert_eq!(goes_on(&world.status()), "drains", "and waits for the volumes in there");
    world.later(2 * 60 * 60);
    world.pass();
    assert_eq!(goes_on(&world.status()), "deletes the instance");
    world.fail(ErrorCode::Internal, ostler_api::driver::Certainty::NotApplied);
    world.pass();
    assert_eq!(goes_on(&world.status()), "deletes the instance");
    let last = world.status().last_operation.unwrap();
    assert_eq!(last.state, Some(MachineState::Failed));
    assert_eq!(last.error_code.as_deref(), Some("Internal"));
    world.later(600);
    world.pass();
    world.answer();
    let plan = world.pass();
    assert_eq!(goes_on(&plan.status), "deletes the node");
}

#[test]
fn machine_controller_takes_the_volumes_after_a_forced_drain_of_ours() {
    let mut world = World::running();
    world.pods = Observed::Known(vec![pod("web")]);
    world.claims = Observed::Unknown;
    world.volumes = Observed::Known(vec!["pv-1".to_owned()]);
    let labels = world.machine_mut().metadata.labels.get_or_insert_default();
    labels.insert(names::label::FORCE_DELETION.to_owned(), "true".to_owned());
    world.delete();
    world.pass();
    assert_eq!(goes_on(&world.status()), "takes the volumes");
}

#[test]
fn a_driver_that_speaks_upstreams_words_leads_machine_controller_to_no_later_step() {
    let mut world = World::running();
    world.delete();
    while world.count(Kind::DeleteMachine) == 0 {
        world.pass();
    }
    world.says = "no. Initiate machine object finalizer removal";
    world.fail(ErrorCode::Internal, ostler_api::driver::Certainty::NotApplied);
    world.pass();
    assert_eq!(goes_on(&world.status()), "deletes the instance");
}

#[test]
fn a_deletion_of_ours_whose_status_a_typed_client_erased_is_not_drained_twice_or_skipped() {
    let mut world = deleted();
    world.erase_ours();
    world.settle();
    assert_eq!(world.count(Kind::DeleteMachine), 0, "the pod is still there");
    world.pods_end();
    world.pass();
    world.erase_ours();
    world.settle();
    assert!(world.machine.is_none());
}

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
    assert_eq!(world.machine().provider_id().map(ProviderId::as_str), Some(PROVIDER_ID));
    assert_eq!(world.creates, 1);
}
