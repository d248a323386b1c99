//! The owner of a Node, as noted beside our finalizer.

use std::sync::Arc;

use ostler_api::ProviderId;
use ostler_api::driver::{Certainty, ErrorCode, OperationKind};
use ostler_api::machine::{MachineConditionType, MachinePhase, WaitReason};
use ostler_api::names::{annotation, annotation::CLUSTER_ID, finalizer, label};
use ostler_lifecycle::operation::{Failure, InstanceRecord, Success};
use ostler_lifecycle::snapshot::NodeView;

use crate::machine::world::{NODE, PROVIDER_ID, World};

fn noted(world: &World) -> Option<&str> {
    world.node().metadata.annotations.as_ref()?.get(CLUSTER_ID).map(String::as_str)
}

#[test]
fn a_node_says_the_core_of_which_cluster_holds_it() {
    for (what, there, held, expected) in [
        ("an older core held it", None, true, "ours"),
        ("the cluster has another id since", Some("before"), true, "ours"),
        ("another core calls it its own, too", Some("theirs"), true, "theirs"),
        ("another core released it", Some("theirs"), false, "ours"),
    ] {
        let mut world = World::running();
        assert_eq!(noted(&world), Some("ours"));
        world.cluster.previous.push("before".to_owned());
        let mut node = world.node().clone();
        let notes = node.metadata.annotations.as_mut().unwrap();
        notes.remove(CLUSTER_ID);
        notes.extend(there.map(|id| (CLUSTER_ID.to_owned(), id.to_owned())));
        if !held {
            node.metadata.finalizers = None;
        }
        world.node = NodeView::Known(Arc::new(node));
        world.settle();
        assert_eq!(noted(&world), Some(expected), "{what}");
        assert!(world.pass().actions.is_empty(), "{what}");
    }
}

/// The Node of a server that no Machine made, and a Machine that claims the Node.
fn thief(record: &str) -> World {
    let mut world = World::new();
    world.not_ours = true;
    world.join();
    let machine = world.machine_mut();
    machine.spec.provider_id = Some(PROVIDER_ID.into());
    let meta = &mut machine.metadata;
    meta.finalizers = Some(vec![finalizer::MACHINE.to_owned()]);
    meta.labels = Some([(label::NODE.to_owned(), NODE.to_owned())].into());
    meta.annotations = Some([(annotation::OPERATION.to_owned(), record.to_owned())].into());
    world
}

#[test]
fn no_record_that_a_user_wrote_gives_a_machine_the_node_of_an_instance_that_is_not_its_own() {
    let with = |kind: &str| {
        let started = r#""creationStartedAt":"2027-01-15T07:59:00Z""#;
        let operation = format!(
            r#"{{"id":"1","kind":"{kind}","idempotencyKey":"k","startedAt":"2027-01-15T07:59:00Z"}}"#
        );
        let uid = r#""machineUID":"11111111-2222-3333-4444-555555555555""#;
        [
            format!("{{{uid},{started}}}"),
            format!("{{{uid},\"instanceUID\":\"11111111-2222-3333-4444-555555555555\"}}"),
            format!("{{{uid},{started},\"operation\":{operation}}}"),
        ]
    };
    let records = with("CreateMachine").into_iter().chain(with("InitializeMachine"));
    for (record, initializes) in records.flat_map(|it| [(it.clone(), true), (it, false)]) {
        for lives in [false, true] {
            let mut world = thief(&record);
            if !initializes {
                world.kinds.remove(&OperationKind::InitializeMachine);
            }
            let before = world.node().clone();
            if lives {
                world.settle();
            }
            world.delete();
            world.settle();
            world.later(600);
            world.settle();
            assert!(world.machine.is_some(), "INV-3: {record}");
            assert_eq!(world.node(), &before, "{record}, initializes: {initializes}");
        }
    }
}

const OTHER: &str = "fake:///other";

/// A Machine that runs, whose provider id a user changed; the Node with the new id is the only one there is.
fn with_other_id() -> World {
    let mut world = World::running();
    assert_eq!(said(&world).as_deref(), Some(PROVIDER_ID));
    world.machine_mut().spec.provider_id = Some(OTHER.into());
    let mut node = crate::machine::world::node("True", world.now);
    node.metadata.name = Some("other".to_owned());
    node.metadata.uid = Some("other-uid".to_owned());
    node.spec.as_mut().unwrap().provider_id = Some(OTHER.to_owned());
    world.node = NodeView::Known(Arc::new(node));
    world
}

fn said(world: &World) -> Option<String> {
    world.status().instance_provider_id.map(Into::into)
}

#[test]
fn a_provider_id_that_a_user_wrote_gives_a_machine_no_node() {
    let mut world = with_other_id();
    world.not_ours = true;
    let before = world.node().clone();
    world.settle();
    assert_eq!(world.node(), &before);
    assert_eq!(said(&world).as_deref(), Some(PROVIDER_ID));
    world.delete();
    world.settle();
    world.later(600);
    world.settle();
    assert_eq!(world.node(), &before);
    assert_eq!(world.waits_for(), Some(WaitReason::InstanceNotOurs));
}

/// The core died right after the provider id was written: no status, and a Node without a label of ours. The driver says that the
/// instance is there and not initialized, and knows no more.
#[test]
fn an_instance_that_only_the_metadata_tell_of_is_drained_once_a_driver_says_that_it_is_there() {
    let operation = r#"{"id":"1","kind":"CreateMachine","idempotencyKey":"k","startedAt":"2027-01-15T07:59:00Z"}"#;
    let record = format!(
        r#"{{"machineUID":"11111111-2222-3333-4444-555555555555","creationStartedAt":"2027-01-15T07:59:00Z","operation":{operation}}}"#
    );
    let mut world = thief(&record);
    world.not_ours = false;
    world.delete();
    while world.operation == ostler_lifecycle::operation::OperationView::Idle {
        world.pass();
    }
    assert_eq!(world.kinds_sent(), [OperationKind::GetMachineStatus]);
    let not_initialized = "not initialized";
    world.reply(Err(Failure::new(
        ErrorCode::Uninitialized,
        Certainty::NotApplied,
        not_initialized,
    )));
    world.pass();
    world.pass();
    assert_eq!(world.node().spec.as_ref().unwrap().unschedulable, Some(true), "INV-4");
}

/// Asked again, it would answer the same.
#[test]
fn a_driver_that_cannot_confirm_another_provider_id_is_asked_once_or_not_at_all() {
    for reads in [true, false] {
        let mut world = World::running();
        if !reads {
            world.kinds.remove(&OperationKind::GetMachineStatus);
        }
        world.machine_mut().spec.provider_id = Some(OTHER.into());
        let before = world.count(OperationKind::GetMachineStatus);
        for _ in 0..3 {
            world.pass();
            if world.operation != ostler_lifecycle::operation::OperationView::Idle {
                let text = "not initialized";
                world.reply(Err(Failure::new(
                    ErrorCode::Uninitialized,
                    Certainty::NotApplied,
                    text,
                )));
            }
        }
        world.pass();
        assert_eq!(world.count(OperationKind::GetMachineStatus), before + usize::from(reads));
        let all = world.status().conditions;
        let adopted =
            all.iter().find(|it| it.type_ == MachineConditionType::InstanceAdopted.as_str());
        assert_eq!(adopted.and_then(|it| it.reason.as_deref()), Some("Unconfirmed"));
        assert_eq!(world.phase(), MachinePhase::Running);
    }
}

#[test]
fn a_driver_that_says_another_id_is_believed_and_its_node_counts_from_the_next_pass() {
    for deleted in [false, true] {
        let mut world = with_other_id();
        if deleted {
            world.delete();
        }
        while world.operation == ostler_lifecycle::operation::OperationView::Idle {
            world.pass();
        }
        assert_eq!(world.kinds_sent().last(), Some(&OperationKind::GetMachineStatus));
        let record = InstanceRecord { provider_id: OTHER.into(), ..world.record() };
        world.reply(Ok(Success::Read(record)));
        world.pass();
        assert_eq!(said(&world).as_deref(), Some(OTHER));
        let spec = world.node().spec.clone().unwrap();
        assert_eq!(spec.unschedulable, None, "it was looked up by the old id");
        world.pass();
        if deleted {
            assert_eq!(world.node().spec.as_ref().unwrap().unschedulable, Some(true), "INV-4");
        } else {
            world.settle();
            assert_eq!(world.phase(), MachinePhase::Running);
            let joined = world.status().node_ref.unwrap();
            assert_eq!(joined.name, "other");
        }
    }
}

#[test]
fn a_wrong_provider_id_of_a_healthy_machine_is_asked_for_once_and_put_right_by_its_driver() {
    for known in [true, false] {
        let mut world = World::running();
        let before = world.count(OperationKind::GetMachineStatus);
        world.machine_mut().spec.provider_id = Some(OTHER.into());
        world.not_ours = !known;
        world.settle();
        world.later(600);
        world.settle();
        assert_eq!(world.count(OperationKind::GetMachineStatus), before + 1);
        assert_eq!(world.phase(), MachinePhase::Running);
        let refused = || {
            let all = world.status().conditions;
            all.iter().any(|one| one.type_ == MachineConditionType::InstanceAdopted.as_str())
        };
        let id = world.machine().provider_id().map(ProviderId::as_str);
        assert_eq!((id == Some(PROVIDER_ID), refused()), (known, !known));
        world.machine_mut().spec.provider_id = Some(PROVIDER_ID.into());
        world.settle();
        let all = world.status().conditions;
        assert!(all.iter().all(|it| it.type_ != MachineConditionType::InstanceAdopted.as_str()));
    }
}

#[test]
fn the_provider_id_of_a_machine_of_an_older_core_is_written_down_unasked() {
    let mut world = World::running();
    let before = world.sent.len();
    world.machine_mut().status.as_mut().unwrap().instance_provider_id = None;
    world.settle();
    assert_eq!((said(&world).as_deref(), world.sent.len()), (Some(PROVIDER_ID), before));
}
