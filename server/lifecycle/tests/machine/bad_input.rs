use ostler_api::ProviderId;
use ostler_api::{
    bootstrap::Bootstrap,
    driver::{Certainty, ErrorCode, OperationKind as Kind},
    machine::{LifecyclePhase, MachinePhase, MachineStep, WaitReason},
};
use ostler_lifecycle::{
    operation::Success,
    plan::EventReason,
    snapshot::{ClassView, SecretFacts, SecretView},
};

use crate::machine::world::{World, secret};

/// The world lacks something: its reason shows, nothing is sent; once it is there, the machine goes
/// on.
fn waits_and_recovers(spoil: impl Fn(&mut World), reason: &WaitReason) {
    let mut world = World::new();
    spoil(&mut world);
    world.settle();
    assert_eq!(world.waits_for().as_ref(), Some(reason));
    assert_eq!(world.status().phase, Some(LifecyclePhase::Pending));
    assert_eq!(world.count(Kind::CreateMachine), 0);
    assert!(world.happened(EventReason::Waiting), "{reason}");
    let events = world.events.len();
    let before = world.machine.clone();
    world.later(3600);
    world.settle();
    assert_eq!(world.machine, before, "{reason}: waiting costs no writes");
    assert_eq!(world.events.len(), events, "{reason}: it is said once");

    let whole = World::new();
    world.class = whole.class;
    world.class_view = None;
    world.secret = whole.secret;
    world.connected = true;
    world.machine_mut().spec.class = whole.machine.unwrap().spec.class;
    world.settle();
    assert_eq!(world.creates, 1, "{reason}");
    assert_eq!(world.phase(), MachinePhase::Pending, "{reason}");
}

#[test]
fn every_missing_or_forbidden_thing_has_its_reason_and_is_waited_for() {
    waits_and_recovers(|world| world.class = None, &WaitReason::ClassMissing);
    waits_and_recovers(
        |world| world.class_view = Some(ClassView::NamespaceDenied),
        &WaitReason::ClassNamespaceDenied,
    );
    waits_and_recovers(
        |world| world.class_view = Some(ClassView::NotHeld("patch is forbidden".to_owned())),
        &WaitReason::ClassNotHeld,
    );
    waits_and_recovers(
        |world| world.machine_mut().spec.class.kind = "AWSMachineClass".to_owned(),
        &WaitReason::ClassRefInvalid,
    );
    waits_and_recovers(
        |world| world.machine_mut().spec.class.name = String::new(),
        &WaitReason::ClassRefInvalid,
    );
    waits_and_recovers(
        |world| world.secret = SecretView::Missing(vec!["default/s".to_owned()]),
        &WaitReason::SecretMissing,
    );
    waits_and_recovers(
        |world| world.secret = SecretView::NamespaceDenied(vec!["other/s".to_owned()]),
        &WaitReason::SecretNamespaceDenied,
    );
    waits_and_recovers(
        |world| {
            let template = serde_json::json!({ "capacity": { "cpu": 1 } });
            world.class.as_mut().unwrap().spec.node_template = Some(template);
        },
        &WaitReason::ClassInvalid,
    );
    waits_and_recovers(|world| world.connected = false, &WaitReason::DriverUnavailable);
    waits_and_recovers(
        |world| world.edit_class(serde_json::json!({ "blob": "x".repeat(129 * 1024) })),
        &WaitReason::ProviderSpecTooLarge,
    );
}

#[test]
fn a_driver_that_is_not_ready_says_why_in_its_own_words() {
    let mut world = World::new();
    world.connected = false;
    world.not_ready = Some("the engine is not there");
    world.settle();
    let waiting = world.status().waiting_for.unwrap();
    assert_eq!(waiting.reason, WaitReason::DriverUnavailable);
    let message = waiting.message.unwrap();
    assert!(message.ends_with("not ready: the engine is not there"), "{message}");
    assert_eq!(world.count(Kind::CreateMachine), 0);
}

#[test]
fn user_data_over_its_limit_is_not_sent() {
    let mut world = World::new();
    world.secret = secret(&vec![b'x'; 256 * 1024 + 1]);
    world.pass();
    world.answer();
    world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::UserDataTooLarge));
    assert_eq!(world.count(Kind::CreateMachine), 0);
    world.secret = secret(b"small");
    world.settle();
    assert_eq!(world.creates, 1);
}

#[test]
fn what_was_not_looked_up_yet_is_not_missing() {
    let mut world = World::new();
    world.class_view = Some(ClassView::Unknown);
    world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::NotObserved));
    assert!(!world.happened(EventReason::Waiting));
    world.hold();
    world.delete();
    world.pass();
    assert!(world.machine.is_some(), "no finalizer goes on a guess");
}

#[test]
fn a_spec_that_the_driver_refuses_waits_for_another_class() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world.refuse(ErrorCode::InvalidArgument);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::InvalidSpec));
    let sent = world.sent.len();
    world.later(300);
    world.settle();
    assert_eq!(world.sent.len(), sent, "the same again would fail again");
    world.edit_class(serde_json::json!({ "size": 2 }));
    world.settle();
    assert_eq!(world.creates, 1);
    assert_eq!(world.phase(), MachinePhase::Pending);
}

#[test]
fn refused_credentials_are_tried_again_as_soon_as_the_secret_changes() {
    let mut world = World::new();
    world.pass();
    world.refuse(ErrorCode::Unauthenticated);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::CredentialsRefused));
    let SecretView::Known(old) = world.secret.clone() else { panic!() };
    world.secret = SecretView::Known(SecretFacts { revision: "s2".into(), ..old });
    world.settle();
    assert_eq!(world.creates, 1);
}

#[test]
fn an_empty_provider_id_is_not_believed_and_looked_at_again() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    let Ok(Success::Created(mut record)) = world.carry_out() else { panic!() };
    record.provider_id = ProviderId::default();
    world.reply(Ok(Success::Created(record)));
    world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::EmptyProviderId));
    assert_eq!(world.machine().provider_id(), None);
    assert!(world.status().operation.unwrap().outcome_unknown);
    world.later(60);
    world.settle();
    assert_eq!(world.creates, 1, "the read found it, with its id this time");
    assert_eq!(
        world.machine().provider_id().map(ProviderId::as_str),
        Some(crate::machine::world::PROVIDER_ID)
    );
}

#[test]
fn a_provider_id_that_another_machine_has_is_not_taken() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world.holder = Some("m0".to_owned());
    world.answer();
    world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::DuplicateProviderId));
    assert_eq!(world.machine().provider_id(), None);
    world.holder = None;
    world.later(60);
    world.settle();
    assert_eq!(
        world.machine().provider_id().map(ProviderId::as_str),
        Some(crate::machine::world::PROVIDER_ID)
    );
    assert_eq!(world.creates, 1);
}

#[test]
fn a_machine_for_which_nothing_was_ever_asked_can_always_be_deleted() {
    let goes = |mut world: World, goes: bool| {
        world.settle();
        world.delete();
        world.settle();
        assert_eq!(world.machine.is_none(), goes, "upstream may have asked");
        assert_eq!(world.happened(EventReason::InstanceNeverRequested), goes);
    };
    for spoil in [
        (|world| world.class = None) as fn(&mut World),
        |world| world.connected = false,
        |world| world.secret = SecretView::Missing(vec!["default/s".to_owned()]),
    ] {
        let mut world = World::new();
        spoil(&mut world);
        world.settle();
        assert!(!world.machine().has_finalizer(), "there is nothing to hold it for");
        world.hold();
        let upstreams = world.clone();
        // Where the core copies bootstrap objects, an older one held Machines before anything was asked.
        world.machine_mut().spec.bootstrap = Some(Bootstrap::default());
        goes(world, true);
        goes(upstreams, false);
    }
}

#[test]
fn a_machine_with_an_instance_waits_for_its_class_to_be_deleted() {
    let mut world = World::running();
    world.class = None;
    world.delete();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::ClassMissing));
    assert!(world.machine.is_some());
    assert_eq!(world.instances.len(), 1);
    world.class = World::new().class;
    world.settle();
    assert!(world.machine.is_none());
    assert!(world.instances.is_empty());
}

#[test]
fn an_instance_that_the_driver_spoke_of_and_takes_back_is_made() {
    let mut world = World::new();
    world.pass();
    world.fail(ErrorCode::Uninitialized, Certainty::NotApplied);
    world.pass();
    world.fail(ErrorCode::Unimplemented, Certainty::NotApplied);
    world.pass();
    assert_eq!(world.step(), Some(MachineStep::JoinNode), "the driver said that it is there");
    world.later(60);
    world.settle();
    assert_eq!(world.creates, 1);
    assert_eq!(world.instances.len(), 1);
    assert_eq!(world.phase(), MachinePhase::Pending);
}

#[test]
fn a_class_that_breaks_a_rule_does_not_hold_a_deletion_up() {
    let mut world = World::running();
    let template = serde_json::json!({ "capacity": {} });
    world.class.as_mut().unwrap().spec.node_template = Some(template);
    world.delete();
    world.settle();
    assert!(world.machine.is_none() && world.instances.is_empty());
}

#[test]
fn while_the_api_server_drops_fields_nothing_is_made_and_nothing_deleted() {
    let mut world = World::new();
    world.outdated = Some("the API server drops status.operation".to_owned());
    world.settle();
    assert_eq!((world.sent.len(), world.waits_for()), (0, Some(WaitReason::CrdsOutdated)));
    assert!(world.happened(EventReason::Waiting));
    world.outdated = None;
    world.settle();
    assert_eq!(world.creates, 1, "it goes on by itself");

    let (mut world, mut fresh) = (World::running(), World::new());
    fresh.hold();
    for world in [&mut world, &mut fresh] {
        world.outdated = Some("the API server drops status.operation".to_owned());
        world.delete();
        world.settle();
        assert_eq!(world.waits_for(), Some(WaitReason::CrdsOutdated));
        world.outdated = None;
        world.settle();
        // Of a Machine that is held without a record, the driver is asked twice.
        world.later(61);
        world.settle();
        assert!(world.machine.is_none() && world.instances.is_empty());
    }
}
