//! The bootstrap of a machine that does not take the user data of its class: every condition and
//! expectation of the preboot proposal.

use ostler_api::ProviderId;
use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeSystemInfo;
use ostler_api::{
    bootstrap::{BootstrapPhase, InfrastructurePhase},
    driver::{ErrorCode, OperationKind},
    machine::{FailureReason, LifecyclePhase, MachineAddress, MachinePhase, WaitReason},
    names::{API_VERSION, OWN_API_VERSION, annotation::PAUSED},
};
use ostler_lifecycle::{
    bootstrap::{ConfigFacts, ConfigView, DataSecretView},
    operation::{InstanceRecord, Request, Success, UserData},
    plan::EventReason,
    snapshot::NodeView,
};
use serde_json::{Value, json};

use crate::machine::in_place::put_into_a_set;
use crate::machine::world::{NODE, UID, World};

/// A world with `spec.bootstrap` in the Machine.
pub fn world(bootstrap: Value) -> World {
    let mut world = World::new();
    world.machine_mut().spec.bootstrap = serde_json::from_value(bootstrap).unwrap();
    world
}

pub fn config_ref() -> Value {
    json!({ "apiVersion": "bootstrap.example.com/v1", "kind": "Config", "name": "m1" })
}

/// The object of the bootstrap provider, with this status.
fn config(world: &mut World, status: &Value) {
    config_of(world, &json!([]), status);
}

fn config_of(world: &mut World, owners: &Value, status: &Value) {
    let metadata = json!({ "name": "m1", "resourceVersion": "7", "ownerReferences": owners });
    let metadata = serde_json::from_value(metadata).unwrap();
    let facts = ConfigFacts::of(&metadata, &json!({ "status": status }));
    world.bootstrap.config = ConfigView::Known(Arc::new(facts));
}

fn data_secret(world: &mut World, data: &[u8]) {
    let data = UserData::new(data.to_vec());
    world.bootstrap.secret = DataSecretView::Known { revision: "1".into(), data };
}

fn phase(world: &World) -> Option<LifecyclePhase> {
    world.status().phase
}

/// The user data of the create that was sent.
fn sent(world: &World) -> Option<String> {
    let mut creates = world.sent.iter().filter_map(|one| match &one.request {
        Request::Create { user_data, .. } => Some(user_data),
        _ => None,
    });
    let Some(user_data) = creates.next() else { panic!("nothing was created") };
    user_data.as_ref().map(|data| String::from_utf8(data.bytes().to_vec()).unwrap())
}

fn waits_and_asks_nobody(world: &mut World, reason: &WaitReason) {
    world.settle();
    assert_eq!(world.waits_for().as_ref(), Some(reason));
    assert_eq!(world.kinds_sent(), [], "{reason}");
    assert_eq!(phase(world), Some(LifecyclePhase::Pending), "{reason}");
    assert_eq!(world.status().bootstrap_ready, Some(false), "{reason}");
}

#[test]
fn without_a_bootstrap_the_user_data_are_those_of_the_class() {
    let mut world = World::new();
    world.settle();
    assert!(sent(&world).unwrap().starts_with("#!/bin/sh\njoin "));
    assert_eq!(world.status().bootstrap_ready, None);
    assert_eq!(world.status().bootstrap_phase, None);
}

#[test]
fn without_data_a_machine_stays_pending_and_says_so_and_no_driver_is_asked() {
    let mut world = world(json!({}));
    waits_and_asks_nobody(&mut world, &WaitReason::BootstrapDataMissing);
    assert_eq!(world.status().bootstrap_phase, Some(BootstrapPhase::Pending));
    assert_eq!(world.status().infrastructure_phase, Some(InfrastructurePhase::Pending));
    assert!(world.happened(EventReason::Waiting));
}

#[test]
fn waiting_for_data_costs_nothing_of_the_creation_timeout() {
    let mut world = world(json!({}));
    world.settle();
    world.later(7 * 24 * 3600);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::New);
    world.machine_mut().spec.bootstrap = serde_json::from_value(json!({ "data": "x" })).unwrap();
    world.settle();
    assert_eq!(world.creates, 1);
}

#[test]
fn data_that_somebody_puts_in_are_used_instead_of_those_of_the_class() {
    let mut world = world(json!({ "data": "#cloud-config for <<MACHINE_NAME>>" }));
    world.settle();
    assert_eq!(sent(&world).as_deref(), Some("#cloud-config for m1"));
    assert_eq!(world.status().bootstrap_ready, Some(true));
    assert_eq!(world.status().bootstrap_phase, Some(BootstrapPhase::Ready));
    assert!(!world.happened(EventReason::Waiting));
}

#[test]
fn data_that_ask_for_a_bootstrap_token_get_one() {
    let mut world = world(json!({ "data": "join <<BOOTSTRAP_TOKEN>>" }));
    world.settle();
    let text = sent(&world).unwrap();
    assert!(text.ends_with(".0123456789abcdef") && !text.contains('<'), "{text}");
}

#[test]
fn an_empty_string_says_that_no_data_are_needed() {
    for nothing in [json!({ "data": "" }), json!({ "dataSecretName": "" })] {
        let mut world = world(nothing);
        world.settle();
        assert_eq!(sent(&world), None);
        assert_eq!(world.status().bootstrap_ready, Some(true));
        assert_eq!(world.status().bootstrap_phase, Some(BootstrapPhase::NotNeeded));
    }
}

#[test]
fn a_secret_brings_the_data_once_it_is_there_with_its_key() {
    let mut world = world(json!({ "dataSecretName": "boot" }));
    waits_and_asks_nobody(&mut world, &WaitReason::NotObserved);
    world.bootstrap.secret = DataSecretView::Missing;
    waits_and_asks_nobody(&mut world, &WaitReason::BootstrapSecretMissing);
    world.bootstrap.secret = DataSecretView::WithoutValue;
    waits_and_asks_nobody(&mut world, &WaitReason::BootstrapSecretInvalid);
    data_secret(&mut world, b"from the secret");
    world.settle();
    assert_eq!(sent(&world).as_deref(), Some("from the secret"));
}

#[test]
fn data_that_are_too_large_are_named_with_their_field_and_size() {
    let many = "x".repeat(256 * 1024 + 1);
    let mut inline = world(json!({ "data": many }));
    waits_and_asks_nobody(&mut inline, &WaitReason::UserDataTooLarge);
    let message = inline.status().waiting_for.unwrap().message.unwrap();
    assert_eq!(message, "spec.bootstrap.data has 262145 bytes, at most 262144 can be sent");
    let mut secret = world(json!({ "dataSecretName": "boot" }));
    data_secret(&mut secret, many.as_bytes());
    waits_and_asks_nobody(&mut secret, &WaitReason::UserDataTooLarge);
    let message = secret.status().waiting_for.unwrap().message.unwrap();
    assert!(message.contains("key value of secret \"boot\" has 262145 bytes"), "{message}");
    let mut config = world(json!({ "configRef": config_ref() }));
    self::config(&mut config, &json!({ "ready": true, "bootstrapData": many }));
    waits_and_asks_nobody(&mut config, &WaitReason::UserDataTooLarge);
    let message = config.status().waiting_for.unwrap().message.unwrap();
    assert!(message.contains("status.bootstrapData of Config m1"), "{message}");
    assert_eq!(config.machine().spec.bootstrap.as_ref().unwrap().data, None);
}

#[test]
fn every_obstacle_on_the_way_to_a_config_has_its_reason() {
    let table = [
        (ConfigView::Unknown, WaitReason::NotObserved),
        (ConfigView::KindMissing, WaitReason::BootstrapKindMissing),
        (ConfigView::KindWithoutNamespace, WaitReason::BootstrapConfigInvalid),
        (ConfigView::KindUnmarked, WaitReason::BootstrapKindUnmarked),
        (ConfigView::Unreadable("forbidden".into()), WaitReason::BootstrapKindUnreadable),
        (ConfigView::TooManyKinds, WaitReason::BootstrapKindUnreadable),
        (ConfigView::Absent, WaitReason::BootstrapConfigMissing),
    ];
    let mut world = world(json!({ "configRef": config_ref() }));
    for (view, reason) in table {
        world.bootstrap.config = view;
        waits_and_asks_nobody(&mut world, &reason);
    }
    config(&mut world, &json!({ "ready": true, "bootstrapData": "at last" }));
    world.settle();
    assert_eq!(sent(&world).as_deref(), Some("at last"));
}

#[test]
fn a_config_in_another_namespace_or_of_kubernetes_or_the_core_itself_is_refused() {
    let mut denied = config_ref();
    denied["namespace"] = json!("elsewhere");
    let mut world = world(json!({ "configRef": denied }));
    config(&mut world, &json!({ "ready": true, "bootstrapData": "x" }));
    waits_and_asks_nobody(&mut world, &WaitReason::BootstrapNamespaceDenied);
    for api_version in ["apps/v1", "storage.k8s.io/v1", API_VERSION, OWN_API_VERSION] {
        let mut not_theirs = config_ref();
        not_theirs["apiVersion"] = json!(api_version);
        world.machine_mut().spec.bootstrap =
            serde_json::from_value(json!({ "configRef": not_theirs })).unwrap();
        waits_and_asks_nobody(&mut world, &WaitReason::BootstrapConfigInvalid);
    }
    let ConfigView::Known(facts) = &world.bootstrap.config else { unreachable!() };
    assert!(facts.owner_references.is_empty(), "no object owns what may not be named");
}

#[test]
fn a_config_that_is_not_ready_is_waited_for_without_alarm() {
    let mut world = world(json!({ "configRef": config_ref() }));
    config(&mut world, &json!({ "phase": "Rendering" }));
    waits_and_asks_nobody(&mut world, &WaitReason::BootstrapNotReady);
    let word = world.status().bootstrap_phase.unwrap();
    assert_eq!(word.as_str(), "Rendering", "the word of the provider");
    assert!(!world.happened(EventReason::Waiting));
    config(&mut world, &json!({ "ready": true }));
    waits_and_asks_nobody(&mut world, &WaitReason::BootstrapDataMissing);
}

#[test]
fn data_alone_are_not_enough_while_the_config_is_not_ready() {
    let mut world = world(json!({ "configRef": config_ref(), "data": "x" }));
    config(&mut world, &json!({ "ready": false }));
    waits_and_asks_nobody(&mut world, &WaitReason::BootstrapNotReady);
    config(&mut world, &json!({ "ready": true }));
    world.settle();
    assert_eq!(sent(&world).as_deref(), Some("x"));
}

#[test]
fn every_form_of_the_contract_ends_in_the_machine() {
    let by_name = json!({ "ready": true, "dataSecretName": "boot", "bootstrapData": "unused" });
    let today =
        json!({ "initialization": { "dataSecretCreated": true }, "dataSecretName": "boot" });
    for status in [by_name, today] {
        let mut world = world(json!({ "configRef": config_ref() }));
        config(&mut world, &status);
        data_secret(&mut world, b"secret data");
        world.settle();
        let bootstrap = world.machine().spec.bootstrap.clone().unwrap();
        assert_eq!(bootstrap.data_secret_name.as_deref(), Some("boot"));
        assert_eq!(bootstrap.data, None);
        assert_eq!(sent(&world).as_deref(), Some("secret data"));
    }
    let mut world = world(json!({ "configRef": config_ref() }));
    config(&mut world, &json!({ "ready": true, "bootstrapData": "inline data" }));
    world.settle();
    let bootstrap = world.machine().spec.bootstrap.clone().unwrap();
    assert_eq!(bootstrap.data.unwrap().expose(), "inline data");
    assert_eq!(sent(&world).as_deref(), Some("inline data"));
}

#[test]
fn empty_bootstrap_data_of_a_config_say_that_none_are_needed() {
    let mut world = world(json!({ "configRef": config_ref() }));
    config(&mut world, &json!({ "ready": true, "bootstrapData": "" }));
    world.settle();
    assert_eq!(sent(&world), None);
    assert_eq!(world.status().bootstrap_phase, Some(BootstrapPhase::NotNeeded));
}

pub fn owners(world: &World) -> Vec<(String, bool)> {
    let ConfigView::Known(facts) = &world.bootstrap.config else { panic!("no config") };
    let owners = facts.owner_references.iter();
    owners.map(|owner| (owner.uid.clone(), owner.controller == Some(true))).collect()
}

#[test]
fn the_machine_becomes_the_owner_of_its_config() {
    let mut world = world(json!({ "configRef": config_ref() }));
    config(&mut world, &json!({}));
    let plan = world.pass();
    assert!(plan.actions.iter().any(|action| action.name() == "OwnConfig"));
    assert_eq!(owners(&world), [(UID.to_owned(), true)]);
    let again = world.pass();
    assert!(again.actions.is_empty(), "{:?}", again.actions);
}

#[test]
fn an_owner_reference_from_before_a_restore_is_replaced() {
    let mut world = world(json!({ "configRef": config_ref() }));
    let before = json!([{
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "name": "m1",
        "uid": "before", "controller": true
    }]);
    config_of(&mut world, &before, &json!({}));
    world.settle();
    assert_eq!(owners(&world), [(UID.to_owned(), true)]);
}

#[test]
fn a_config_that_has_another_owner_its_controller_or_not_is_left_alone() {
    for (kind, controller) in [("Machine", true), ("Machine", false), ("Cluster", false)] {
        let mut world = world(json!({ "configRef": config_ref() }));
        let other = json!([{
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "name": "m2",
            "uid": "other", "controller": controller
        }]);
        config_of(&mut world, &other, &json!({ "ready": true, "bootstrapData": "x" }));
        waits_and_asks_nobody(&mut world, &WaitReason::BootstrapConfigOwned);
        assert_eq!(owners(&world), [("other".to_owned(), controller)]);
    }
}

#[test]
fn an_object_that_others_are_made_from_is_never_owned() {
    let mut template = config_ref();
    template["apiVersion"] = json!("bootstrap.cluster.x-k8s.io/v1beta1");
    template["kind"] = json!("KubeadmConfigTemplate");
    let mut world = world(json!({ "configRef": template }));
    config(&mut world, &json!({ "ready": true, "bootstrapData": "x" }));
    waits_and_asks_nobody(&mut world, &WaitReason::BootstrapConfigInvalid);
    assert_eq!(owners(&world), []);
}

#[test]
fn a_failure_of_the_config_is_taken_over_and_final() {
    let mut world = world(json!({ "configRef": config_ref() }));
    let status = json!({ "failureReason": "NoTemplate", "failureMessage": "there is none" });
    config(&mut world, &status);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert_eq!(phase(&world), Some(LifecyclePhase::Failed));
    let status = world.status();
    assert_eq!(status.failure_reason.as_ref().map(FailureReason::as_str), Some("NoTemplate"));
    assert_eq!(status.failure_message.as_deref(), Some("Config m1 failed: there is none"));
    assert_eq!(status.bootstrap_phase, Some(BootstrapPhase::Failed));
    assert_eq!(world.kinds_sent(), []);
    config(&mut world, &json!({ "ready": true, "bootstrapData": "too late" }));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
    world.delete();
    world.settle();
    assert!(world.machine.is_none(), "nothing was ever asked of a driver");
}

#[test]
fn a_failure_with_nothing_but_a_message_gets_our_reason() {
    let mut world = world(json!({ "configRef": config_ref() }));
    config(&mut world, &json!({ "failureMessage": "broken" }));
    world.settle();
    assert_eq!(world.status().failure_reason, Some(FailureReason::BootstrapFailed));
}

#[test]
fn a_config_that_becomes_ready_while_its_machine_is_paused_is_taken_over_afterwards() {
    let mut world = world(json!({ "configRef": config_ref() }));
    config(&mut world, &json!({}));
    world.settle();
    world.machine_mut().metadata.annotations = Some([(PAUSED.to_owned(), String::new())].into());
    config(&mut world, &json!({ "ready": true, "bootstrapData": "x" }));
    world.settle();
    let status = world.status();
    assert_eq!(status.bootstrap_ready, Some(false), "the config may not go yet");
    assert_eq!(status.bootstrap_phase, Some(BootstrapPhase::Pending));
    world.machine_mut().metadata.annotations = None;
    world.settle();
    assert_eq!(sent(&world).as_deref(), Some("x"));
}

#[test]
fn data_that_a_user_erased_before_the_create_are_taken_over_again() {
    let mut world = world(json!({ "configRef": config_ref() }));
    config(&mut world, &json!({ "ready": true, "bootstrapData": "x" }));
    world.pass();
    assert_eq!(world.status().bootstrap_ready, Some(true));
    world.machine_mut().spec.bootstrap.as_mut().unwrap().data = None;
    world.settle();
    assert_eq!(sent(&world).as_deref(), Some("x"));
}

#[test]
fn once_the_data_were_there_the_config_may_fail_or_go() {
    let mut world = world(json!({ "configRef": config_ref() }));
    config(&mut world, &json!({ "ready": true, "bootstrapData": "x" }));
    for _ in 0..4 {
        world.pass();
    }
    assert_eq!(world.status().bootstrap_ready, Some(true));
    world.answer();
    config(&mut world, &json!({ "failureReason": "Late" }));
    world.settle();
    assert_eq!(world.creates, 1);
    world.bootstrap.config = ConfigView::Absent;
    world.join();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert_eq!(world.status().bootstrap_ready, Some(true));
}

#[test]
fn an_instance_that_is_there_already_needs_no_data() {
    let mut world = world(json!({ "configRef": config_ref() }));
    world
        .instances
        .push(crate::machine::world::Instance { initialized: true, ..Default::default() });
    world.machine_mut().spec.provider_id = Some(crate::machine::world::PROVIDER_ID.into());
    world.bootstrap.config = ConfigView::KindMissing;
    world.join();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert_eq!(world.creates, 0);
}

#[test]
fn data_that_a_driver_refused_may_be_mended() {
    let mut world = world(json!({ "data": "bad" }));
    world.pass();
    world.answer();
    world.pass();
    world.refuse(ErrorCode::InvalidArgument);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::InvalidSpec));
    let creates = world.count(OperationKind::CreateMachine);
    let machine = world.machine_mut();
    machine.spec.bootstrap = serde_json::from_value(json!({ "data": "good" })).unwrap();
    machine.metadata.generation = Some(2);
    world.settle();
    assert_eq!(world.count(OperationKind::CreateMachine), creates + 1);
    assert_eq!(world.instances.len(), 1);
}

#[test]
fn a_life_goes_through_the_phases_of_the_proposal() {
    let mut world = world(json!({ "configRef": config_ref() }));
    config(&mut world, &json!({}));
    world.settle();
    let mut seen = vec![phase(&world).unwrap()];
    let mut note = |world: &World| {
        let now = phase(world).unwrap();
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    };
    config(&mut world, &json!({ "ready": true, "bootstrapData": "x" }));
    for _ in 0..20 {
        world.pass();
        note(&world);
        if matches!(world.operation, ostler_lifecycle::operation::OperationView::InFlight(_)) {
            world.answer();
        }
    }
    assert_eq!(world.status().infrastructure_ready, Some(true));
    assert_eq!(world.status().node_ref, None);
    world.join();
    world.settle();
    note(&world);
    world.node_is("Unknown");
    world.settle();
    note(&world);
    world.delete();
    world.pass();
    note(&world);
    let expected = [
        LifecyclePhase::Pending,
        LifecyclePhase::Provisioning,
        LifecyclePhase::Provisioned,
        LifecyclePhase::Running,
        LifecyclePhase::Deleting,
    ];
    assert_eq!(seen, expected);
}

#[test]
fn deleted_is_said_while_finalizers_of_others_hold_the_object() {
    let mut world = World::running();
    let finalizers = world.machine_mut().metadata.finalizers.get_or_insert_default();
    finalizers.push("example.com/other".to_owned());
    world.delete();
    let mut last = None;
    for _ in 0..40 {
        let plan = world.pass();
        last = plan.status.phase.clone();
        if !world.machine().has_finalizer() {
            break;
        }
        if matches!(world.operation, ostler_lifecycle::operation::OperationView::InFlight(_)) {
            world.answer();
        }
    }
    assert_eq!(last, Some(LifecyclePhase::Deleted));
}

#[test]
fn the_addresses_and_the_provider_id_are_those_of_the_driver() {
    let mut world = World::new();
    while world.count(OperationKind::CreateMachine) == 0 {
        world.pass();
        if world.kinds_sent().last() == Some(&OperationKind::GetMachineStatus) {
            world.answer();
        }
    }
    let address = MachineAddress { type_: "InternalIP".to_owned(), address: "10.0.0.7".to_owned() };
    let record = InstanceRecord { addresses: vec![address.clone()], ..world.record() };
    world.reply(Ok(Success::Created(record)));
    world.settle();
    assert_eq!(world.status().addresses, [address]);
    assert_eq!(
        world.machine().provider_id().map(ProviderId::as_str),
        Some(crate::machine::world::PROVIDER_ID)
    );
}

#[test]
fn the_node_is_named_and_its_version_shown() {
    let mut world = World::running();
    let mut node = world.node().clone();
    let info = NodeSystemInfo { kubelet_version: "v1.34.1".to_owned(), ..Default::default() };
    node.status.as_mut().unwrap().node_info = Some(info);
    world.node = NodeView::Known(Arc::new(node));
    world.settle();
    let status = world.status();
    assert_eq!(status.version.as_deref(), Some("v1.34.1"));
    let found = status.node_ref.unwrap();
    assert_eq!((found.name.as_str(), found.uid.as_deref()), (NODE, Some("node-uid")));
    assert_eq!((found.kind.as_deref(), found.api_version.as_deref()), (Some("Node"), Some("v1")));
    world.node = NodeView::Absent;
    world.settle();
    assert_eq!(world.status().node_ref.map(|node| node.name).as_deref(), Some(NODE));
}

#[test]
fn a_failed_machine_says_why_in_words() {
    let mut world = World::new();
    world.settle();
    world.later(3600);
    world.settle();
    let status = world.status();
    assert_eq!(status.failure_reason, Some(FailureReason::JoinTimeout));
    assert!(status.failure_message.unwrap().contains("creation timeout"));
}

/// By `failureMessage` Cluster API's autoscaler lowers the replicas, while the set replaces the machine.
#[test]
fn a_failed_machine_that_a_set_replaces_has_no_failure_message_for_an_autoscaler() {
    let mut world = World::new();
    put_into_a_set(&mut world);
    world.settle();
    world.later(3600);
    world.settle();
    let status = world.status();
    assert_eq!(status.failure_reason, Some(FailureReason::JoinTimeout));
    assert_eq!((status.phase, status.failure_message), (Some(LifecyclePhase::Failed), None));
    let said = status.last_operation.unwrap().description.unwrap();
    assert!(said.contains("creation timeout"), "{said}");
}
