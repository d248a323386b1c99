//! Instances that were there before their Machines: restored, migrated, or made by another controller.

use ostler_api::ProviderId;
use ostler_api::Uid;
use ostler_api::{
    Machine,
    driver::{Certainty, ErrorCode, OperationKind as Kind},
    machine::{MachineAddress, MachineConditionType, MachinePhase, MachineStep, WaitReason},
    names,
};
use ostler_lifecycle::{
    cluster::ClusterIds,
    operation::{InstanceRecord, Request, Success},
    plan::EventReason,
};
use serde_json::json;

use crate::machine::world::{Instance, NODE, PROVIDER_ID, UID, World};

/// The instance of a life before, under this UID.
fn instance(uid: &str) -> Instance {
    Instance { initialized: true, foreign: Some(uid.to_owned()), ..Instance::default() }
}

fn with_instance(uid: &str) -> World {
    let mut world = World::new();
    world.instances.push(instance(uid));
    world
}

/// A Machine that runs already, as a restore or another controller left it.
fn running(uid: &str, status: &serde_json::Value) -> World {
    let mut world = with_instance(uid);
    let machine = world.machine_mut();
    machine.spec.provider_id = Some(PROVIDER_ID.into());
    machine.metadata.labels = Some([(names::label::NODE.to_owned(), NODE.to_owned())].into());
    machine.metadata.finalizers = Some(vec![names::finalizer::MACHINE.to_owned()]);
    let class = world.class.as_ref().unwrap().spec.provider_spec.to_string();
    let applied = names::annotation::LAST_APPLIED_PROVIDER_SPEC.to_owned();
    world.machine_mut().metadata.annotations = Some([(applied, class)].into());
    let mut whole = json!({ "currentStatus": { "phase": "Running" } });
    whole.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    world.machine_mut().status = serde_json::from_value(whole).unwrap();
    world.join();
    world
}

fn by_name(world: &mut World, value: &str) {
    let class = world.class.as_mut().unwrap();
    let key = names::annotation::ADOPT_BY_NAME.to_owned();
    class.metadata.annotations = Some([(key, value.to_owned())].into());
}

fn condition(machine: &Machine, type_: &MachineConditionType) -> Option<(String, String)> {
    let all = &machine.status.as_ref()?.conditions;
    let one = all.iter().find(|one| one.type_ == type_.as_str())?;
    Some((one.status.clone(), one.reason.clone().unwrap_or_default()))
}

fn adopting_creates(world: &World) -> Vec<&str> {
    let creates = world.sent.iter().filter_map(|one| match &one.request {
        Request::Create { provider_id, .. } => Some(provider_id.as_str()),
        _ => None,
    });
    creates.collect()
}

#[test]
fn a_restored_machine_takes_its_instance_over_and_puts_its_new_uid_on_it() {
    let mut world = with_instance("uid of the life before");
    world.machine_mut().spec.provider_id = Some(PROVIDER_ID.into());
    world.settle();
    assert_eq!(world.kinds_sent(), [Kind::GetMachineStatus, Kind::CreateMachine]);
    assert_eq!(adopting_creates(&world), [PROVIDER_ID]);
    assert_eq!((world.instances.len(), &world.instances[0].foreign), (1, &None));
    assert_eq!(world.status().instance_uid.as_ref().map(Uid::as_str), Some(UID));
    assert_eq!(world.step(), Some(MachineStep::JoinNode), "it was initialized long ago");
    let made = condition(world.machine(), &MachineConditionType::InstanceCreated);
    assert_eq!(made, Some(("True".to_owned(), "Adopted".to_owned())));
    assert_eq!(world.applied(), None, "the driver did not say that it has the spec of its class");
    assert!(world.happened(EventReason::InstanceAdopted));
    assert!(!world.happened(EventReason::InstanceCreated));
}

#[test]
fn a_create_that_adopts_and_whose_outcome_is_lost_is_looked_up_and_sent_again() {
    for applied in [true, false] {
        let mut world = with_instance("uid of the life before");
        world.machine_mut().spec.provider_id = Some(PROVIDER_ID.into());
        world.pass();
        world.answer();
        world.pass();
        if applied {
            let _lost = world.carry_out();
        }
        world.lose_operation();
        world.settle();
        assert_eq!((world.instances.len(), &world.instances[0].foreign), (1, &None));
        assert_eq!(world.count(Kind::CreateMachine), if applied { 1 } else { 2 });
        assert_eq!(world.step(), Some(MachineStep::JoinNode));
    }
}

#[test]
fn a_machine_that_was_restored_while_it_ran_goes_on_running_and_is_adopted() {
    let mut world = running("uid of the life before", &json!({ "instanceUID": "before" }));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert_eq!(adopting_creates(&world), [PROVIDER_ID]);
    assert_eq!(world.instances[0].foreign, None);
    assert_eq!(world.status().instance_uid.as_ref().map(Uid::as_str), Some(UID));
    assert!(world.node().spec.as_ref().unwrap().taints.is_none());
    let before = world.sent.len();
    world.later(600);
    world.settle();
    assert_eq!(world.sent.len(), before, "once");
}

#[test]
fn an_instance_without_uid_is_adopted_by_name_only_where_the_class_says_so() {
    for (value, creates) in [("true", 1), ("false", 0), ("yes", 0)] {
        let mut world = running("", &json!({}));
        by_name(&mut world, value);
        world.settle();
        assert_eq!(world.count(Kind::CreateMachine), creates, "{value}");
        assert_eq!(world.phase(), MachinePhase::Running);
        assert!(world.sent.iter().all(|one| one.adopt_by_name == (creates == 1)));
    }
}

#[test]
fn a_new_machine_whose_instance_is_found_by_name_makes_no_second_one() {
    let mut world = with_instance("");
    by_name(&mut world, "true");
    world.settle();
    assert_eq!(adopting_creates(&world), [PROVIDER_ID]);
    assert_eq!((world.instances.len(), &world.instances[0].foreign), (1, &None));
    assert_eq!(world.step(), Some(MachineStep::JoinNode));
}

#[test]
fn a_running_machine_that_the_driver_does_not_know_is_left_alone_and_said_once() {
    let mut world = running("", &json!({}));
    world.instances.clear();
    world.settle();
    assert_eq!((world.phase(), world.creates), (MachinePhase::Running, 0));
    let shown = condition(world.machine(), &MachineConditionType::InstanceAdopted);
    assert_eq!(shown, Some(("False".to_owned(), "NotFound".to_owned())));
    let reads = world.count(Kind::GetMachineStatus);
    world.later(600);
    world.settle();
    assert_eq!(world.count(Kind::GetMachineStatus), reads);
    // The class is annotated: now the driver may look by name.
    by_name(&mut world, "true");
    world.instances.push(instance(""));
    world.settle();
    assert_eq!(world.instances[0].foreign, None);
    assert_eq!(condition(world.machine(), &MachineConditionType::InstanceAdopted), None);
}

#[test]
fn an_adoption_that_fails_does_not_disturb_a_running_machine_and_is_tried_again() {
    let mut world = running("uid of the life before", &json!({ "instanceUID": "before" }));
    world.pass();
    world.answer();
    world.pass();
    world.fail(ErrorCode::Unavailable, Certainty::NotApplied);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Running);
    let shown = condition(world.machine(), &MachineConditionType::InstanceAdopted);
    assert_eq!(shown, Some(("False".to_owned(), "Unavailable".to_owned())));
    world.later(5);
    world.settle();
    assert_eq!(world.instances[0].foreign, None);
    assert_eq!(condition(world.machine(), &MachineConditionType::InstanceAdopted), None);
}

#[test]
fn a_running_machine_whose_instance_does_not_fit_its_class_keeps_running() {
    let mut world = running("uid of the life before", &json!({ "instanceUID": "before" }));
    world.pass();
    world.answer();
    world.pass();
    world.refuse(ErrorCode::AlreadyExists);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    let creates = world.count(Kind::CreateMachine);
    world.later(3600);
    world.settle();
    assert_eq!(world.count(Kind::CreateMachine), creates);
}

#[test]
fn addresses_of_an_instance_that_is_no_more_are_forgotten() {
    let mut world = World::new();
    world.settle();
    let address = |address: &str| {
        serde_json::from_value(json!({ "type": "InternalIP", "address": address })).unwrap()
    };
    world.machine_mut().status.as_mut().unwrap().addresses = vec![address("10.0.0.1")];
    world.machine_mut().spec.provider_id = Some("fake:///i-0".into());
    world.later(61);
    world.pass();
    world.answer();
    world.pass();
    assert_eq!(world.machine().provider_id().map(ProviderId::as_str), Some(PROVIDER_ID));
    assert!(world.status().addresses.is_empty());
}

#[test]
fn addresses_are_those_of_the_last_answer_that_has_some() {
    let mut world = World::new();
    world.settle();
    let mut read = |addresses: std::ops::Range<u8>| {
        let address =
            |at| MachineAddress { type_: "InternalIP".into(), address: format!("10.0.0.{at}") };
        world.later(61);
        world.pass();
        let addresses = addresses.map(address).collect();
        world.reply(Ok(Success::Read(InstanceRecord { addresses, ..world.record() })));
        world.pass();
        let shown = world.status().addresses;
        (shown.len(), shown.first().map(|it| it.address.clone()))
    };
    assert_eq!(read(1..3), (2, Some("10.0.0.1".to_owned())));
    assert_eq!(read(7..8), (1, Some("10.0.0.7".to_owned())));
    assert_eq!(read(0..0), (1, Some("10.0.0.7".to_owned())));
    assert_eq!(read(0..200).0, 64);
}

/// A cluster that moved, with `id` as previous id.
fn was(id: &str) -> ClusterIds {
    ClusterIds { own: "ours".to_owned(), previous: vec![id.to_owned()] }
}

/// A Machine that was restored with its UID, and runs; its instance carries a cluster id of before.
fn moved(status: &serde_json::Value) -> World {
    let mut whole = json!({ "instanceUID": UID });
    whole.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    let mut world = running("", &whole);
    for instance in &mut world.instances {
        (instance.foreign, instance.cluster) = (None, Some("before".to_owned()));
    }
    world
}

#[test]
fn a_machine_of_the_same_uid_is_adopted_once_from_the_previous_cluster_id() {
    for status in [json!({}), json!({ "instanceClusterID": "before" })] {
        let mut world = moved(&status);
        world.cluster = was("before");
        world.settle();
        assert_eq!(world.phase(), MachinePhase::Running);
        assert_eq!(adopting_creates(&world), [PROVIDER_ID]);
        assert_eq!((world.instances.len(), &world.instances[0].cluster), (1, &None));
        assert_eq!(world.status().instance_cluster_id.as_deref(), Some("ours"));
        let before = world.sent.len();
        world.later(600);
        world.settle();
        assert_eq!(world.sent.len(), before, "once");
    }
}

#[test]
fn without_a_previous_id_nobody_is_asked_and_nothing_is_written() {
    let mut world = running("", &json!({ "instanceUID": UID }));
    world.instances[0].foreign = None;
    world.settle();
    assert_eq!((world.sent.len(), world.status().instance_cluster_id), (0, None));
}

#[test]
fn what_carries_the_id_of_today_is_asked_for_once_and_not_made_again() {
    let mut world = moved(&json!({}));
    world.instances[0].cluster = None;
    world.cluster = was("before");
    world.settle();
    world.later(600);
    world.settle();
    assert_eq!(world.kinds_sent(), [Kind::GetMachineStatus]);
    assert_eq!(world.status().instance_cluster_id.as_deref(), Some("ours"));
}

#[test]
fn a_create_that_began_under_the_previous_cluster_id_is_finished_with_the_same_instance() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world.answer();
    world.instances[0].cluster = Some("before".to_owned());
    world.lose_operation();
    world.cluster = was("before");
    world.settle();
    assert_eq!((world.instances.len(), &world.instances[0].cluster), (1, &None));
    assert_eq!(world.step(), Some(MachineStep::JoinNode));
    assert_eq!(world.status().instance_cluster_id.as_deref(), Some("ours"));
}

#[test]
fn a_machine_that_is_deleted_needs_no_adoption_from_the_previous_cluster_id() {
    let mut world = moved(&json!({}));
    world.cluster = was("before");
    world.delete();
    world.settle();
    assert!(world.machine.is_none() && world.instances.is_empty());
    assert_eq!(world.count(Kind::CreateMachine), 0);
}

#[test]
fn an_instance_under_an_unknown_cluster_id_is_said_once_and_adopted_when_the_core_is_told() {
    let mut world = moved(&json!({ "instanceClusterID": "before" }));
    world.settle();
    assert_eq!((world.phase(), world.creates), (MachinePhase::Running, 0));
    let shown = condition(world.machine(), &MachineConditionType::InstanceAdopted);
    assert_eq!(shown, Some(("False".to_owned(), "ClusterIdChanged".to_owned())));
    let said = world.events.iter().find(|it| it.reason == EventReason::ClusterIdChanged).unwrap();
    for part in [PROVIDER_ID, "cluster id before", "ours", "--previous-cluster-ids before"] {
        assert!(said.message.contains(part), "{part}: {}", said.message);
    }
    let reads = world.count(Kind::GetMachineStatus);
    world.later(600);
    world.settle();
    assert_eq!(world.count(Kind::GetMachineStatus), reads, "once");
    world.cluster = was("another");
    world.settle();
    assert_eq!(world.count(Kind::GetMachineStatus), reads, "that one does not help");
    world.cluster = was("before");
    world.settle();
    assert_eq!((world.instances.len(), &world.instances[0].cluster), (1, &None));
    assert_eq!(condition(world.machine(), &MachineConditionType::InstanceAdopted), None);
}

#[test]
fn nothing_is_made_for_a_machine_whose_id_is_that_of_an_instance_under_an_unknown_cluster_id() {
    let mut world = with_instance("uid of the life before");
    world.instances[0].cluster = Some("before".to_owned());
    world.machine_mut().spec.provider_id = Some(PROVIDER_ID.into());
    world.settle();
    assert_eq!((world.creates, world.waits_for()), (0, Some(WaitReason::ClusterIdChanged)));
    let retry = world.status().retry.unwrap();
    assert_eq!(retry.provider_id.as_ref().map(ProviderId::as_str), Some(PROVIDER_ID));
    assert!(retry.message.unwrap().contains("--previous-cluster-ids before"));
}

#[test]
fn an_instance_that_has_only_the_name_is_not_called_the_machines_own() {
    let mut world = with_instance("uid of another machine");
    world.instances[0].cluster = Some("before".to_owned());
    world.settle();
    assert_eq!((world.creates, world.waits_for()), (0, Some(WaitReason::InstanceNotOurs)));
}

#[test]
fn a_deletion_under_an_unknown_cluster_id_keeps_the_machine_until_its_instance_is_abandoned() {
    let mut world = moved(&json!({}));
    world.delete();
    world.settle();
    assert!(world.machine.is_some(), "INV-3");
    assert_eq!(world.waits_for(), Some(WaitReason::ClusterIdChanged));
    assert!(world.happened(EventReason::ClusterIdChanged));
    let all = world.machine_mut().metadata.annotations.get_or_insert_default();
    all.insert(names::annotation::ABANDON_INSTANCE.to_owned(), PROVIDER_ID.to_owned());
    world.settle();
    assert!(world.machine.is_none());
    assert_eq!(world.instances.len(), 1, "it stays");
}

#[test]
fn a_deletion_goes_on_as_soon_as_the_core_is_told_of_the_id_of_the_instance() {
    let mut world = moved(&json!({}));
    world.delete();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::ClusterIdChanged));
    world.cluster = was("before");
    world.settle();
    assert!(world.machine.is_none() && world.instances.is_empty(), "{:?}", world.instances);
}

#[test]
fn none_is_no_proof_under_another_cluster_id_than_the_instance_was_made_with() {
    let mut world = moved(&json!({ "instanceClusterID": "before" }));
    world.instances.clear();
    world.node = ostler_lifecycle::snapshot::NodeView::Absent;
    let machine = world.machine_mut();
    machine.spec.provider_id = None;
    machine.status.as_mut().unwrap().current_status = None;
    world.settle();
    assert_eq!((world.creates, world.waits_for()), (0, Some(WaitReason::ClusterIdChanged)));
    world.cluster = was("before");
    world.later(61);
    world.settle();
    assert_eq!(world.creates, 1, "the driver looked for both ids");
}

#[test]
fn a_refusal_of_a_core_that_knew_no_previous_id_is_no_reason_not_to_ask_again() {
    let shown = json!({ "conditions": [
        { "type": "InstanceAdopted", "status": "False", "reason": "NotOurs" }
    ] });
    let mut world = moved(&shown);
    world.cluster = was("before");
    world.settle();
    assert_eq!(world.instances[0].cluster, None);
    let mut stranger = moved(&shown);
    stranger.cluster = was("another");
    stranger.not_ours = true;
    stranger.instances[0].cluster = None;
    stranger.settle();
    stranger.later(600);
    stranger.settle();
    assert_eq!(stranger.kinds_sent(), [Kind::GetMachineStatus], "once");
}
