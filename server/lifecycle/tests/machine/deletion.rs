use ostler_api::ProviderId;
use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind as Kind},
    machine::{MachineConditionType, MachinePhase, MachineStep, WaitReason},
    names::annotation::OPERATION,
};
use ostler_lifecycle::{
    operation::{OperationView, Request},
    plan::{Action, NodePatch},
    retry::{RetryAction, rule},
    snapshot::{NodeView, Observed},
};

use crate::machine::world::{Instance, PROVIDER_ID, World, looks_again};

#[test]
fn a_machine_deleted_while_it_is_created_cancels_waits_and_deletes_by_identity() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    let create = world.sent.last().unwrap().id.clone();
    world.delete();
    let plan = world.pass();
    assert_eq!(plan.cancel, Some(create.clone()));
    assert_eq!(plan.dispatch, None, "the opposite is not sent while the create may run (INV-1)");
    assert_eq!(world.phase(), MachinePhase::Terminating);

    let OperationView::InFlight(flight) = &mut world.operation else { panic!() };
    flight.cancelled = true;
    assert_eq!(world.pass().cancel, None, "once is enough");

    let _lost = world.carry_out();
    world.fail(ErrorCode::Canceled, Certainty::Unknown);
    world.settle();
    assert!(world.machine.is_none());
    assert!(world.instances.is_empty());
}

#[test]
fn a_create_that_ends_after_the_deletion_began_is_deleted_again() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world.delete();
    world.pass();
    world.answer();
    world.settle();
    assert_eq!(world.creates, 1);
    assert!(world.instances.is_empty());
    assert!(world.machine.is_none());
    let last = world.sent.last().unwrap();
    let expected = Request::Delete { provider_id: PROVIDER_ID.into() };
    assert_eq!(last.request, expected);
}

#[test]
fn a_cancelled_create_that_did_nothing_leaves_no_retry_behind() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world.delete();
    world.pass();
    world.fail(ErrorCode::Canceled, Certainty::NotApplied);
    world.settle();
    assert!(world.machine.is_none(), "{:#?}", world.status());
}

#[test]
fn the_wait_of_a_failed_create_does_not_hold_the_deletion_up() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world.refuse(ErrorCode::ResourceExhausted);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::CapacityExhausted));
    world.delete();
    world.settle();
    assert!(world.machine.is_none());
}

/// A world whose class is of another provider now, the driver of which finds nothing.
fn moved(mut world: World) -> World {
    world.class.as_mut().unwrap().spec.provider = Some("other.ostler.dev".to_owned());
    world.instances.clear();
    world
}

fn back(world: &mut World) {
    world.class.as_mut().unwrap().spec.provider = Some("fake.ostler.dev".to_owned());
    world.instances.push(Instance { initialized: true, ..Instance::default() });
}

#[test]
fn what_the_driver_of_another_provider_finds_deletes_no_machine_and_it_is_asked_nothing() {
    let mut world = moved(World::running());
    let sent = world.sent.len();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::ProviderChanged), "a machine that runs says so");
    world.node_is("Unknown");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Unknown, "its instance is not missed");
    world.delete();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::ProviderChanged));
    assert_eq!(world.sent.len(), sent);
    back(&mut world);
    world.settle();
    assert!(world.machine.is_none() && world.instances.is_empty());
}

/// A client that does not know the status erased it, and a user the id.
#[test]
fn whose_an_instance_is_survives_a_status_that_was_erased() {
    let mut world = moved(World::running());
    world.machine_mut().status = None;
    world.machine_mut().spec.provider_id = None;
    world.delete();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::ProviderChanged));
}

#[test]
fn a_create_without_an_answer_is_looked_for_at_its_own_provider_and_a_refused_one_may_move() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    let mut refused = world.clone();
    let _lost = world.carry_out();
    world.fail(ErrorCode::Canceled, Certainty::Unknown);
    let mut world = moved(world);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::ProviderChanged));
    back(&mut world);
    world.settle();
    assert_eq!(world.creates, 1, "found");
    refused.refuse(ErrorCode::InvalidArgument);
    refused.settle();
    let mut refused = moved(refused);
    refused.settle();
    assert_eq!(refused.sent.last().unwrap().provider.as_str(), "other.ostler.dev");
    refused.delete();
    refused.settle();
    assert!(refused.machine.is_none(), "{:#?}", refused.status());
}

/// A core before this rule, or another controller, wrote down no provider.
#[test]
fn a_machine_without_a_recorded_provider_is_its_class_s_until_a_driver_shows_the_instance() {
    let mut world = World::running();
    let annotations = world.machine_mut().metadata.annotations.as_mut().unwrap();
    let record = annotations.get_mut(OPERATION).unwrap();
    *record = record.replace(r#""provider":"fake.ostler.dev","#, "");
    assert!(!record.contains("fake.ostler.dev"), "{record}");
    let mut before = moved(world.clone());
    before.delete();
    before.settle();
    assert!(before.machine.is_none(), "as before");
    world.node_is("Unknown");
    world.settle();
    assert_eq!(world.kinds_sent().last(), Some(&Kind::GetMachineStatus));
    let mut world = moved(world);
    world.delete();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::ProviderChanged));
}

#[test]
fn every_code_of_a_failed_delete_keeps_the_finalizer_but_not_found() {
    for code in ErrorCode::ALL {
        let mut world = World::running();
        world.delete();
        for _ in 0..5 {
            if matches!(world.operation, OperationView::InFlight(_)) {
                break;
            }
            world.pass();
        }
        assert_eq!(world.sent.last().unwrap().kind(), Kind::DeleteMachine);
        world.refuse(code);
        let plan = world.pass();
        if code == ErrorCode::NotFound {
            assert!(world.machine.is_none());
            continue;
        }
        assert!(world.machine().has_finalizer(), "{code}");
        assert_eq!(world.phase(), MachinePhase::Terminating, "{code}");
        let type_ = MachineConditionType::InstanceDeleted;
        let status = world.status();
        let shown = status.conditions.iter().find(|one| one.type_ == type_.as_str()).unwrap();
        assert_eq!(shown.reason.as_deref(), Some(code.name()));
        let rule = rule(Kind::DeleteMachine, code, "", Certainty::NotApplied);
        assert!(!matches!(rule.then, RetryAction::OnClassChange), "{code}");
        let wait = looks_again(&world, &plan).unwrap();
        world.later(wait);
        world.settle();
        assert!(world.machine.is_none(), "{code}");
    }
}

#[test]
fn a_node_that_joined_unseen_is_drained_before_its_instance_goes() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    let _lost = world.carry_out();
    world.lose_operation();
    world.delete();
    world.pass();
    assert_eq!(world.sent.last().unwrap().kind(), Kind::GetMachineStatus);
    world.answer();
    world.pass();
    assert_eq!(world.count(Kind::DeleteMachine), 0, "its node was not looked for by that name");
    assert_eq!(world.machine().provider_id().map(ProviderId::as_str), Some(PROVIDER_ID));
    world.join();
    world.pods = Observed::Known(vec![crate::machine::world::pod("web")]);
    world.pass();
    world.pass();
    assert_eq!(world.step(), Some(MachineStep::DrainNode));
    assert_eq!(world.count(Kind::DeleteMachine), 0);
    world.pods_end();
    world.settle();
    assert!(world.machine.is_none());
    assert!(matches!(world.node, NodeView::Absent));
}

#[test]
fn a_node_that_comes_while_the_driver_is_away_is_drained_too() {
    let mut world = World::new();
    world.settle();
    world.delete();
    world.connected = false;
    world.settle();
    assert_eq!(world.step(), Some(MachineStep::DeleteInstance));
    world.join();
    world.pods = Observed::Known(vec![crate::machine::world::pod("web")]);
    world.connected = true;
    world.settle();
    assert_eq!(world.count(Kind::DeleteMachine), 0);
    assert_eq!(world.step(), Some(MachineStep::DrainNode));
    world.pods_end();
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn a_node_that_takes_pods_again_while_the_driver_is_away_is_drained_again() {
    // What a user did: whether they took the cordon back, and whether a pod came.
    for (uncordoned, came, again) in
        [(true, true, true), (true, false, true), (false, true, true), (false, false, false)]
    {
        let mut world = World::running();
        world.delete();
        world.connected = false;
        world.settle();
        assert_eq!(world.step(), Some(MachineStep::DeleteInstance));
        if uncordoned {
            world.patch_node(&NodePatch { uncordon: true, ..NodePatch::default() });
        }
        if came {
            world.pods = Observed::Known(vec![crate::machine::world::pod("web")]);
        }
        world.pass();
        let step = if again { MachineStep::CordonNode } else { MachineStep::DeleteInstance };
        let step = if !uncordoned && came { MachineStep::DrainNode } else { step };
        assert_eq!(world.step(), Some(step), "{uncordoned} {came}");
        world.connected = true;
        world.settle();
        assert_eq!(world.count(Kind::DeleteMachine) == 0, came, "{uncordoned} {came}");
        world.pods_end();
        world.settle();
        assert!(world.machine.is_none());
    }
}

#[test]
fn a_node_that_takes_pods_again_for_longer_than_the_drain_may_last_goes_all_the_same() {
    let mut world = World::running();
    world.delete();
    world.connected = false;
    world.settle();
    world.patch_node(&NodePatch { uncordon: true, ..NodePatch::default() });
    world.pods = Observed::Known(vec![crate::machine::world::pod("web")]);
    world.later(7200);
    world.connected = true;
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn a_machine_with_the_id_of_another_is_deleted_by_identity_only() {
    let mut world = World::running();
    world.holder = Some("m0".to_owned());
    world.delete();
    world.settle();
    let deletes: Vec<_> =
        world.sent.iter().filter(|one| one.kind() == Kind::DeleteMachine).collect();
    assert_eq!(deletes[0].request, Request::Delete { provider_id: ProviderId::default() });
    assert!(world.machine.is_none());
}

#[test]
fn deleting_the_node_deletes_its_machine() {
    let mut world = World::running();
    let mut node = world.node().clone();
    node.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    world.node = NodeView::Known(node.into());
    let plan = world.pass();
    assert_eq!(plan.actions, [Action::DeleteMachine]);
    world.settle();
    assert!(world.machine.is_none());
    assert!(world.instances.is_empty());
}

#[test]
fn a_failed_machine_is_deleted_like_any_other() {
    let mut world = World::new();
    world.settle();
    world.later(20 * 60);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    world.delete();
    world.settle();
    assert!(world.machine.is_none());
    assert!(world.instances.is_empty());
}

#[test]
fn volumes_are_waited_for_and_not_for_ever() {
    let mut world = World::running();
    world.volumes = Observed::Known(vec!["pv-1".to_owned()]);
    world.delete();
    world.settle();
    assert_eq!(world.step(), Some(MachineStep::DetachVolumes));
    assert_eq!(world.waits_for(), Some(WaitReason::VolumesAttached));
    let mut patient = World::running();
    patient.volumes = Observed::Known(vec!["pv-1".to_owned()]);
    patient.delete();
    patient.settle();
    // Machine-controller-manager goes on from these words, and would not wait for volumes after the next step's.
    let said = patient.status().last_operation.unwrap().description.unwrap();
    assert!(said.ends_with("Initiate node drain"), "{said}");
    patient.volumes = Observed::Known(Vec::new());
    patient.settle();
    assert!(patient.machine.is_none());
    world.later(120);
    world.settle();
    assert!(world.machine.is_some(), "as long as the drain may take");
    world.later(2 * 60 * 60);
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn a_machine_without_our_finalizer_is_left_alone() {
    let mut world = World::running();
    world.delete();
    world.machine_mut().metadata.finalizers = Some(vec!["someone/else".to_owned()]);
    let plan = world.pass();
    assert!(plan.actions.is_empty() && plan.dispatch.is_none());
}

#[test]
fn a_machine_that_finalizers_of_others_hold_says_so_until_they_are_gone() {
    let mut world = World::running();
    let finalizers = world.machine_mut().metadata.finalizers.get_or_insert_default();
    finalizers.extend(["x.io/backup".to_owned(), "y.io/dns".to_owned()]);
    world.delete();
    world.settle();
    assert!(!world.machine().has_finalizer());
    let wait = world.status().waiting_for.unwrap();
    assert_eq!(wait.reason, WaitReason::OtherFinalizers);
    assert_eq!(wait.message.as_deref(), Some("x.io/backup, y.io/dns"));
    world.later(60);
    world.machine_mut().metadata.finalizers = Some(vec!["y.io/dns".to_owned()]);
    world.pass();
    let later = world.status().waiting_for.unwrap();
    assert_eq!((later.message.as_deref(), later.since), (Some("y.io/dns"), wait.since));
}

#[test]
fn a_write_that_fails_ends_the_pass_and_is_said() {
    use ostler_lifecycle::{machine, plan::Performed, record::record};

    let mut world = World::new();
    world.pass();
    world.answer();
    let snapshot = world.snapshot();
    let plan = machine::plan(&snapshot);
    let failed = [Performed::Failed("etcd is away".to_owned())];
    let recorded = record(&snapshot, &plan, &failed, world.now);
    assert!(!recorded.proceed);
    let patch = recorded.status.unwrap();
    assert_eq!(patch["waitingFor"]["reason"], "ApiWriteFailed");
    assert_eq!(patch["waitingFor"]["message"], "PatchMachine: etcd is away");
    let conflict = record(&snapshot, &plan, &[Performed::Conflict], world.now);
    assert!(!conflict.proceed && conflict.status.is_none());
}

#[test]
fn a_machine_deleted_while_its_create_was_lost_is_read_first_and_then_deleted() {
    for acted in [true, false] {
        let mut world = World::new();
        world.pass();
        world.answer();
        world.pass();
        assert_eq!(world.sent.last().unwrap().kind(), Kind::CreateMachine);
        if acted {
            let _lost = world.carry_out();
        }
        world.lose_operation();
        world.delete();
        world.pass();
        assert_eq!(world.sent.last().unwrap().kind(), Kind::GetMachineStatus, "read, then decide");
        world.answer();
        world.settle();
        assert_eq!(world.machine.is_none(), acted, "what lists do not show yet may be there");
        world.later(61);
        world.settle();
        assert!(world.machine.is_none());
        assert!(world.instances.is_empty());
        assert!(world.creates <= 1);
    }
}

#[test]
fn a_machine_deleted_while_a_driver_may_hold_its_create_waits_for_the_driver() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world.delete();
    world.operation = OperationView::Expected(std::time::Duration::from_secs(30));
    let plan = world.pass();
    assert_eq!(plan.dispatch, None, "the driver may come back with it");
    assert_eq!(world.waits_for(), Some(WaitReason::DriverLost));
    world.operation = OperationView::Idle;
    world.settle();
    world.later(61);
    world.settle();
    assert!(world.machine.is_none());
    assert!(world.instances.is_empty());
}

#[test]
fn an_instance_that_is_not_found_twice_fails_its_machine_long_before_the_health_timeout() {
    let mut world = World::running();
    world.instances.clear();
    world.node_is("Unknown");
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    assert_eq!(world.sent.last().unwrap().kind(), Kind::GetMachineStatus, "asked immediately");
    world.later(180);
    world.settle_no_node();
    world.later(60);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
    let reason = world.status().failure_reason;
    assert_eq!(reason, Some(ostler_api::machine::FailureReason::InstanceMissing));
    world.delete();
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn an_instance_whose_node_is_gone_is_looked_for_too_whatever_the_health_timeout() {
    let mut world = World::running();
    world.machine_mut().spec.disable_health_timeout = Some(true);
    world.later(180);
    world.instances.clear();
    world.node = NodeView::Absent;
    world.settle();
    world.later(60);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
}

#[test]
fn the_instance_of_an_unhealthy_node_is_looked_for_now_and_then_and_not_all_the_time() {
    let mut world = World::running();
    world.later(180);
    world.node_is("Unknown");
    let before = world.count(Kind::GetMachineStatus);
    world.settle();
    for _ in 0..9 {
        world.later(30);
        world.settle();
    }
    assert_eq!(world.count(Kind::GetMachineStatus) - before, 1, "it is there: once is enough");
    world.later(30);
    world.settle();
    assert_eq!(world.count(Kind::GetMachineStatus) - before, 2, "and again after five minutes");
    world.node_is("True");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn what_holds_a_machine_after_its_instance_is_gone_costs_no_second_deletion() {
    let mut world = World::running();
    world.delete();
    while world.count(Kind::DeleteMachine) == 0 {
        world.pass();
    }
    let node = std::mem::replace(&mut world.node, NodeView::Unknown);
    for fails in [None, Some("DeleteNode"), Some("RemoveFinalizer")] {
        world.fails = fails.into_iter().collect();
        if matches!(world.operation, OperationView::InFlight(_)) {
            world.answer();
        }
        world.settle();
        assert!(world.machine.is_some(), "{fails:?}");
        world.node = node.clone();
        world.lose_operation();
        world.later(60);
    }
    world.fails.clear();
    world.settle();
    assert!(world.machine.is_none());
    assert_eq!(world.count(Kind::DeleteMachine), 1);
}
