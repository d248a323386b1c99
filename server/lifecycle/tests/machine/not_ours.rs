//! Instances that exist and that the driver calls not ours: neither absent nor touched.

use ostler_api::ProviderId;
use ostler_api::{
    driver::{ErrorCode, OperationKind as Kind},
    machine::{MachineConditionType, MachinePhase, MachineStatus, WaitReason},
    names,
};
use ostler_lifecycle::{operation::Request, plan::EventReason, snapshot::NodeView};
use serde_json::json;

use crate::machine::world::{Instance, NODE, PROVIDER_ID, World};

/// A Machine that machine-controller-manager made, Running, with an instance that carries no tag of
/// ours.
fn made_by_another_controller() -> World {
    let mut world = World::new();
    world.not_ours = true;
    world.instances.push(Instance { initialized: true, ..Instance::default() });
    let machine = world.machine_mut();
    machine.spec.provider_id = Some(PROVIDER_ID.into());
    machine.metadata.labels = Some([(names::label::NODE.to_owned(), NODE.to_owned())].into());
    machine.metadata.finalizers = Some(vec![names::finalizer::MACHINE.to_owned()]);
    let status = json!({ "currentStatus": { "phase": "Running" } });
    machine.status = serde_json::from_value::<Option<MachineStatus>>(status).unwrap();
    world.join();
    world
}

fn annotate(world: &mut World, key: &str, value: &str) {
    let all = world.machine_mut().metadata.annotations.get_or_insert_default();
    all.insert(key.to_owned(), value.to_owned());
}

#[test]
fn a_machine_whose_instance_is_not_ours_keeps_its_finalizer_when_it_is_deleted() {
    let mut world = made_by_another_controller();
    world.settle();
    world.delete();
    world.settle();
    assert!(world.machine.is_some(), "the VM would run on and no Machine would know of it (INV-3)");
    assert_eq!(world.waits_for(), Some(WaitReason::InstanceNotOurs));
    assert!(world.happened(EventReason::InstanceNotOurs));
    assert!(!world.happened(EventReason::InstanceDeleted));
    let retry = world.status().retry.unwrap();
    assert_eq!(retry.provider_id.as_ref().map(ProviderId::as_str), Some(PROVIDER_ID));
    let asked = world.count(Kind::DeleteMachine);
    world.later(61);
    world.settle();
    assert_eq!(world.count(Kind::DeleteMachine), asked + 1, "it may have been adopted meanwhile");
}

#[test]
fn force_deletion_is_no_way_past_an_instance_that_is_not_ours() {
    let mut world = made_by_another_controller();
    world.settle();
    let labels = world.machine_mut().metadata.labels.get_or_insert_default();
    labels.insert(names::label::FORCE_DELETION.to_owned(), "True".to_owned());
    world.delete();
    world.settle();
    assert!(world.machine.is_some());
    assert_eq!(world.waits_for(), Some(WaitReason::InstanceNotOurs));
}

#[test]
fn the_operator_abandons_the_very_instance_that_the_driver_named_and_no_other() {
    for (named, goes) in [("", false), ("fake:///r/another", false), (PROVIDER_ID, true)] {
        let mut world = made_by_another_controller();
        world.settle();
        world.delete();
        world.settle();
        annotate(&mut world, names::annotation::ABANDON_INSTANCE, named);
        world.settle();
        assert_eq!(world.machine.is_none(), goes, "{named:?}");
        assert_eq!(world.happened(EventReason::InstanceAbandoned), goes, "{named:?}");
        assert_eq!(world.instances.len(), 1, "it stays in any case");
    }
}

#[test]
fn that_an_instance_is_abandoned_is_told_once_however_long_the_machine_is_held() {
    let mut world = made_by_another_controller();
    world.settle();
    world.delete();
    world.settle();
    annotate(&mut world, names::annotation::ABANDON_INSTANCE, PROVIDER_ID);
    let node = std::mem::replace(&mut world.node, NodeView::Unknown);
    for _ in 0..3 {
        world.later(60);
        world.settle();
    }
    assert!(world.machine.is_some(), "its node has not been looked up");
    world.node = node;
    world.settle();
    assert!(world.machine.is_none());
    let told = world.events.iter().filter(|it| it.reason == EventReason::InstanceAbandoned);
    assert_eq!(told.count(), 1);
}

#[test]
fn an_abandoned_instance_keeps_its_node() {
    let mut world = made_by_another_controller();
    world.settle();
    world.delete();
    world.settle();
    annotate(&mut world, names::annotation::ABANDON_INSTANCE, PROVIDER_ID);
    world.settle();
    assert!(world.machine.is_none());
    assert_eq!(world.node().metadata.name.as_deref(), Some(NODE));
    assert_eq!(world.node().metadata.finalizers.clone().unwrap_or_default(), Vec::<String>::new());
}

#[test]
fn nobody_abandons_an_instance_before_the_driver_called_it_not_ours() {
    let mut world = World::running();
    annotate(&mut world, names::annotation::ABANDON_INSTANCE, PROVIDER_ID);
    world.delete();
    world.settle();
    assert!(world.machine.is_none() && world.instances.is_empty(), "it was deleted");
    assert!(!world.happened(EventReason::InstanceAbandoned));
}

#[test]
fn a_running_machine_whose_instance_is_not_ours_runs_on_and_says_so_once() {
    let mut world = made_by_another_controller();
    world.settle();
    assert_eq!((world.phase(), world.creates), (MachinePhase::Running, 0));
    let conditions = world.status().conditions;
    let adopted = MachineConditionType::InstanceAdopted;
    let shown = conditions.iter().find(|one| one.type_ == adopted.as_str()).unwrap();
    assert_eq!((shown.status.as_str(), shown.reason.as_deref()), ("False", Some("NotOurs")));
    let reads = world.count(Kind::GetMachineStatus);
    world.later(600);
    world.settle();
    assert_eq!(world.count(Kind::GetMachineStatus), reads, "until the class says more");
}

#[test]
fn an_unhealthy_node_of_an_instance_that_is_not_ours_fails_no_machine_at_its_first_look() {
    let mut world = made_by_another_controller();
    world.settle();
    world.node_is("Unknown");
    world.settle();
    assert_ne!(world.phase(), MachinePhase::Failed, "it waits for the health timeout");
}

/// As [`made_by_another_controller`], and the driver does not even see the instance.
fn unseen() -> World {
    let mut world = made_by_another_controller();
    world.not_ours = false;
    world.instances.clear();
    world
}

/// A user wrote the provider id of a Node into a Machine, and deleted it before a driver was asked.
fn named_by_its_spec_alone(mut world: World) -> World {
    world.machine_mut().status = None;
    world.delete();
    world
}

#[test]
fn a_node_that_only_the_spec_of_a_deleted_machine_calls_its_own_is_not_touched() {
    let mut world = named_by_its_spec_alone(unseen());
    world.settle();
    assert_eq!(world.count(Kind::GetMachineStatus), 1, "asked before anything is done to the node");
    world.later(61);
    world.settle();
    assert!(world.machine.is_none(), "none was said twice");
    assert_eq!(world.node().spec.as_ref().unwrap().unschedulable, None);
}

#[test]
fn a_node_whose_instance_the_driver_finds_is_drained_though_no_core_saw_it_before() {
    let mut world = made_by_another_controller();
    world.not_ours = false;
    let mut world = named_by_its_spec_alone(world);
    world.settle();
    assert!(world.machine.is_none() && world.instances.is_empty());
    assert_eq!(world.node, NodeView::Absent, "drained, then deleted");
}

#[test]
fn the_deletion_of_a_machine_that_was_never_adopted_ends_after_none_was_said_twice() {
    let mut world = unseen();
    world.settle();
    world.delete();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::AbsenceUnconfirmed));
    assert_eq!(world.count(Kind::DeleteMachine), 1);
    world.later(59);
    world.settle();
    assert_eq!(world.count(Kind::DeleteMachine), 1);
    world.later(1);
    world.settle();
    let asked = world.sent.iter().filter_map(|one| match &one.request {
        Request::Delete { provider_id } => Some(provider_id.as_str()),
        _ => None,
    });
    assert_eq!(asked.collect::<Vec<_>>(), [PROVIDER_ID, ""], "by id, then by name");
    assert!(world.machine.is_none());
}

#[test]
fn an_instance_that_only_the_second_look_finds_is_not_lost() {
    let mut world = unseen();
    world.settle();
    world.delete();
    world.settle();
    world.not_ours = true;
    world.later(60);
    world.settle();
    assert!(world.machine.is_some());
    assert_eq!(world.waits_for(), Some(WaitReason::InstanceNotOurs));
}

#[test]
fn a_deletion_ends_at_once_where_none_is_proof() {
    let mut never_made = World::new();
    never_made.pass();
    never_made.answer();
    never_made.pass();
    never_made.refuse(ErrorCode::ResourceExhausted);
    let mut made = World::running();
    made.instances.clear();
    let ends = |what: &str, mut world: World| {
        world.pass();
        world.delete();
        world.settle();
        assert!(world.machine.is_none(), "{what}: {:?}", world.waits_for());
    };
    ends("never made", never_made);
    ends("made", made);
    ends("fresh", World::new());
}

#[test]
fn a_node_that_falls_silent_fails_no_machine_whose_instance_the_driver_never_knew() {
    let mut world = unseen();
    world.settle();
    world.node_is("Unknown");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Unknown, "one blip of 50 Nodes would fail 50 Machines");
    world.later(601);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed, "the health timeout holds");
}

/// A Machine that another controller had begun to make: there may be an instance of its name.
fn begun_by_another_controller() -> World {
    let mut world = World::new();
    let status = json!({ "currentStatus": { "phase": "CrashLoopBackOff" } });
    world.machine_mut().status = serde_json::from_value(status).unwrap();
    world
}

#[test]
fn a_finalizer_without_a_record_says_that_another_controller_began() {
    let mut world = World::new();
    world.hold();
    world.settle();
    assert_eq!((world.creates, world.waits_for()), (0, Some(WaitReason::AdoptionUndecided)));
    world.delete();
    world.settle();
    assert!(world.machine.is_some(), "it is asked once more");
    world.connected = false;
    world.later(61);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::DriverUnavailable), "and not given up");
    world.connected = true;
    world.settle();
    assert!(world.machine.is_none());
}

fn adopt_by_name(world: &mut World, value: &str) {
    let key = names::annotation::ADOPT_BY_NAME.to_owned();
    world.class.as_mut().unwrap().metadata.annotations = Some([(key, value.to_owned())].into());
}

#[test]
fn a_machine_that_another_controller_began_waits_until_somebody_says_whether_to_adopt_by_name() {
    let mut world = begun_by_another_controller();
    world.settle();
    assert_eq!((world.creates, world.waits_for()), (0, Some(WaitReason::AdoptionUndecided)));
    assert!(world.happened(EventReason::Waiting), "an event has to say so");
    world.later(60);
    world.pass();
    world.refuse(ErrorCode::Unavailable);
    world.pass();
    world.later(60);
    world.settle();
    let still = (world.creates, world.waits_for());
    assert_eq!(still, (0, Some(WaitReason::AdoptionUndecided)), "a failed read proves nothing");
    adopt_by_name(&mut world, "false");
    world.later(60);
    world.settle();
    assert_eq!(world.creates, 1);
}

#[test]
fn what_another_controller_made_without_writing_its_id_down_is_adopted_and_never_doubled() {
    let mut world = begun_by_another_controller();
    let foreign = Some(String::new());
    world.instances.push(Instance { initialized: true, foreign, ..Instance::default() });
    world.settings.adopt_by_name = Some(true);
    world.settle();
    assert_eq!(world.instances.len(), 1);
    assert_eq!(world.instances[0].foreign, None, "it has our UID");
}

#[test]
fn nothing_is_created_while_the_id_of_the_machine_is_that_of_an_instance_not_ours() {
    let mut world = made_by_another_controller();
    world.machine_mut().status = None;
    world.node = ostler_lifecycle::snapshot::NodeView::Absent;
    world.settle();
    assert_eq!(world.count(Kind::CreateMachine), 0);
    assert_eq!(world.waits_for(), Some(WaitReason::InstanceNotOurs));
    assert_ne!(world.phase(), MachinePhase::Failed);
}
