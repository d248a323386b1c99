use ostler_api::OperationId;
use ostler_api::ProviderId;
use std::time::Duration;

use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind as Kind},
    machine::{
        FailureReason, LifecyclePhase, MachineConditionType, MachineOperationType, MachinePhase,
        MachineState, MachineStep, WaitReason,
    },
    names,
};
use ostler_lifecycle::operation::{Failure, InstanceRecord, OperationView, Request, Success};
use ostler_lifecycle::plan::Next;

use crate::machine::retry::{Then, expected};
use crate::machine::world::{Instance, PROVIDER_ID, UID, World, looks_again, minutes};

/// A world in which a create is in flight.
fn creating() -> World {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    assert_eq!(world.sent.last().unwrap().kind(), Kind::CreateMachine);
    world
}

/// A world in which an initialize is in flight.
fn initializing() -> World {
    let mut world = creating();
    world.answer();
    world.pass();
    assert_eq!(world.sent.last().unwrap().kind(), Kind::InitializeMachine);
    world
}

#[test]
fn every_code_of_a_failed_create_shows_itself_and_follows_the_table() {
    for code in ErrorCode::ALL {
        let mut world = creating();
        world.refuse(code);
        let plan = world.pass();
        let status = world.status();
        let condition = MachineConditionType::InstanceCreated;
        let shown = status.conditions.iter().find(|one| one.type_ == condition.as_str()).unwrap();
        assert_eq!(shown.reason.as_deref(), Some(code.name()));
        let last = status.last_operation.unwrap();
        assert_eq!(last.error_code.as_deref(), Some(code.name()), "{code}");
        assert_eq!(last.state, Some(MachineState::Failed));
        assert_eq!(status.operation, None, "{code}: nothing was applied, nothing is in doubt");
        let wait = looks_again(&world, &plan);
        match expected(Kind::CreateMachine, code, "") {
            Then::Fails(reason) => {
                assert_eq!(world.phase(), MachinePhase::Failed);
                assert_eq!(status.failure_reason.unwrap().as_str(), reason);
            }
            Then::NewClass(_) => assert_eq!(wait, Some(1200), "{code}: the creation timeout"),
            Then::Room(_) => assert_eq!(wait, Some(600), "{code}"),
            Then::Retry(first, ..) | Then::NewSecret(first, ..) => {
                assert_eq!(wait, i64::try_from(first).ok(), "{code}");
                assert_eq!(world.phase(), MachinePhase::CrashLoopBackOff);
            }
            other => panic!("{code}: {other:?}"),
        }
    }
}

#[test]
fn a_failed_create_leaves_until_when_a_machine_is_preserved() {
    for code in ErrorCode::ALL {
        let mut world = creating();
        let until = crate::machine::world::seconds(world.now, 3600);
        let notes = world.machine_mut().metadata.annotations.get_or_insert_default();
        notes.insert(names::annotation::PRESERVE.to_owned(), "now".to_owned());
        let status = world.machine_mut().status.get_or_insert_default();
        let current = status.current_status.get_or_insert_default();
        current.preserve_expiry_time = Some(until.into());
        world.refuse(code);
        world.pass();
        let kept = world.status().current_status.unwrap().preserve_expiry_time;
        assert_eq!(kept, Some(until.into()), "{code}");
    }
}

#[test]
fn a_create_that_may_have_happened_is_looked_up_before_it_is_repeated() {
    let mut world = creating();
    world.fail(ErrorCode::Unavailable, Certainty::Unknown);
    world.pass();
    assert!(world.status().operation.unwrap().outcome_unknown);
    assert_eq!(world.count(Kind::CreateMachine), 1);
    world.later(5);
    world.pass();
    assert_eq!(world.sent.last().unwrap().kind(), Kind::GetMachineStatus);
    world.answer();
    world.pass();
    assert_eq!(world.count(Kind::CreateMachine), 2, "the driver said that there is none");
    assert_eq!(world.status().operation.unwrap().attempt, 2);
    assert_eq!(world.sent.last().unwrap().idempotency_key, world.sent[1].idempotency_key);
}

#[test]
fn a_create_that_did_happen_is_adopted_and_initialized() {
    let mut world = creating();
    let _lost = world.carry_out();
    world.fail(ErrorCode::DeadlineExceeded, Certainty::Unknown);
    world.pass();
    world.later(5);
    world.settle();
    assert_eq!(world.creates, 1);
    assert!(world.instances[0].initialized);
    assert_eq!(world.machine().provider_id().map(ProviderId::as_str), Some(PROVIDER_ID));
    assert_eq!(world.applied(), None, "no driver reported that the spec is applied (INV-6)");
    assert_eq!(world.step(), Some(MachineStep::JoinNode));
}

#[test]
fn a_failed_create_backs_off_twice_as_long_each_time() {
    let mut world = creating();
    let mut waits = Vec::new();
    for _ in 0..7 {
        world.refuse(ErrorCode::Unavailable);
        let plan = world.pass();
        let wait = looks_again(&world, &plan).unwrap();
        waits.push(wait);
        world.later(wait);
        world.pass();
        world.answer();
        world.pass();
    }
    assert_eq!(waits, [5, 10, 20, 40, 80, 120, 120]);
}

#[test]
fn a_driver_that_was_cut_off_is_asked_again_as_soon_as_it_is_back() {
    let mut world = World::new();
    world.pass();
    world.reply(Err(Failure {
        reason: ostler_api::operation::Reason::CoreSessionLost.into(),
        ..Failure::new(ErrorCode::Unavailable, Certainty::Unknown, "session lost")
    }));
    let plan = world.pass();
    assert_eq!(looks_again(&world, &plan), Some(1));
    assert_eq!(world.phase(), MachinePhase::New, "the infrastructure refused nothing");
    world.later(1);
    world.settle();
    assert_eq!(world.creates, 1);
}

#[test]
fn a_driver_that_names_a_time_is_asked_again_at_that_time() {
    let mut world = creating();
    let failure = Failure {
        retry_after: Some(Duration::from_secs(42)),
        ..Failure::new(ErrorCode::ResourceExhausted, Certainty::NotApplied, "quota")
    };
    world.reply(Err(failure));
    let plan = world.pass();
    assert_eq!(looks_again(&world, &plan), Some(42));
    assert_eq!(world.waits_for(), Some(WaitReason::CapacityExhausted));
}

#[test]
fn a_creation_that_keeps_failing_ends_with_its_timeout() {
    let mut world = creating();
    world.machine_mut().spec.creation_timeout = Some("2m".into());
    world.refuse(ErrorCode::Internal);
    world.pass();
    world.later(121);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert_eq!(world.status().failure_reason, Some(FailureReason::CreationTimeout));
    assert_eq!(world.status().phase, Some(LifecyclePhase::Failed));
    let sent = world.sent.len();
    world.later(100_000);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed, "failed machines stay failed");
    assert_eq!(world.sent.len(), sent);
}

#[test]
fn a_result_that_comes_after_the_machine_failed_is_kept_and_changes_nothing_else() {
    let mut world = creating();
    let outcome = world.carry_out();
    let late = world.operation.clone();
    world.lose_operation();
    world.connected = false;
    world.pass();
    world.later(3600);
    world.connected = true;
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    world.operation = late;
    world.reply(outcome);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed, "failed machines stay failed");
    assert_eq!(
        world.machine().provider_id().map(ProviderId::as_str),
        Some(PROVIDER_ID),
        "and their instance is known"
    );
    assert_eq!(world.count(Kind::InitializeMachine), 0);
    world.delete();
    world.settle();
    assert!(world.machine.is_none() && world.instances.is_empty());
}

#[test]
fn the_creation_timeout_does_not_count_while_class_or_driver_are_missing() {
    let mut world = World::new();
    world.connected = false;
    world.pass();
    world.later(3600);
    world.connected = true;
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Pending);
    world.join();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn an_instance_that_is_there_already_is_adopted_without_a_create() {
    let mut world = World::new();
    world
        .instances
        .push(crate::machine::world::Instance { initialized: true, ..Default::default() });
    world.settle();
    assert_eq!(world.creates, 0);
    assert_eq!(world.machine().provider_id().map(ProviderId::as_str), Some(PROVIDER_ID));
    assert_eq!(world.count(Kind::InitializeMachine), 0);
    assert_eq!(world.step(), Some(MachineStep::JoinNode));
}

#[test]
fn a_machine_with_a_given_provider_id_is_looked_up_by_it_and_no_other_is_made_in_its_place() {
    let mut world = World::new();
    world.machine_mut().spec.provider_id = Some("fake:///old".into());
    world.pass();
    let expected = Request::Status { provider_id: "fake:///old".into() };
    assert_eq!(world.sent[0].request, expected);
    world.settle();
    assert_eq!((world.creates, world.waits_for()), (0, Some(WaitReason::AbsenceUnconfirmed)));
    let reads = world.count(Kind::GetMachineStatus);
    world.later(59);
    world.settle();
    assert_eq!(world.count(Kind::GetMachineStatus), reads);
    world.later(1);
    world.settle();
    assert_eq!(world.count(Kind::GetMachineStatus), reads + 1, "once a minute");
}

#[test]
fn a_failed_initialization_speaks_upstreams_words_and_is_tried_again_soon() {
    let mut world = initializing();
    world.fail(ErrorCode::Uninitialized, Certainty::NotApplied);
    let plan = world.pass();
    let status = world.status();
    let last = status.last_operation.unwrap();
    assert_eq!(last.description.as_deref(), Some("InstanceInitialization"));
    assert_eq!(last.error_code.as_deref(), Some("Uninitialized"));
    assert_eq!(last.type_, Some(MachineOperationType::Create));
    assert_eq!(last.state, Some(MachineState::Failed));
    assert_eq!(world.phase(), MachinePhase::CrashLoopBackOff);
    let type_ = MachineConditionType::InstanceInitialized;
    let shown = status.conditions.iter().find(|one| one.type_ == type_.as_str()).unwrap();
    assert_eq!(shown.message.as_deref(), Some("no"), "the driver's own text");
    assert_eq!(looks_again(&world, &plan), Some(2), "the token is bound");
    world.later(5);
    world.pass();
    assert_eq!(world.sent.last().unwrap().kind(), Kind::InitializeMachine);
    world.answer();
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Pending);
    assert_eq!(world.creates, 1);
}

#[test]
fn an_initialization_whose_outcome_is_unknown_is_looked_at_first() {
    for (done, repeats) in [(true, 1), (false, 2)] {
        let mut world = initializing();
        if done {
            let _lost = world.carry_out();
        }
        world.fail(ErrorCode::Unavailable, Certainty::Unknown);
        world.pass();
        world.later(5);
        world.pass();
        assert_eq!(world.sent.last().unwrap().kind(), Kind::GetMachineStatus);
        world.settle();
        assert_eq!(world.step(), Some(MachineStep::JoinNode));
        assert_eq!(world.count(Kind::InitializeMachine), repeats, "done before: {done}");
    }
}

#[test]
fn an_initialization_that_never_succeeds_fails_the_machine() {
    let mut world = initializing();
    world.refuse(ErrorCode::Uninitialized);
    world.pass();
    world.later(20 * 60);
    world.pass();
    assert_eq!(world.status().failure_reason, Some(FailureReason::InitializationTimeout));
}

#[test]
fn an_instance_that_vanished_before_its_initialization_is_made_again() {
    let mut world = initializing();
    world.instances.clear();
    world.answer();
    world.pass();
    // Lists may lag behind: it is looked for again, and not made again.
    for seconds in [5, 15, 90] {
        world.later(seconds);
        world.settle();
        assert_eq!(world.creates, 1);
        assert_eq!(world.waits_for(), Some(WaitReason::DriverRetry));
    }
    world.later(15);
    world.settle();
    assert_eq!(world.creates, 2);
    assert_eq!(world.step(), Some(MachineStep::JoinNode));
}

#[test]
fn an_instance_that_shows_up_late_is_not_made_twice() {
    let mut world = initializing();
    let late = std::mem::take(&mut world.instances);
    world.answer();
    world.pass();
    world.later(5);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::DriverRetry));
    world.instances = late;
    world.later(15);
    world.settle();
    assert_eq!((world.creates, world.step()), (1, Some(MachineStep::JoinNode)));
}

#[test]
fn an_instance_is_not_made_twice_if_the_core_died_between_its_id_and_its_status() {
    let mut world = creating();
    let _half_recorded = world.carry_out();
    world.machine_mut().spec.provider_id = Some(PROVIDER_ID.into());
    world.lose_operation();
    world.later(300);
    let late = std::mem::take(&mut world.instances);
    let look = |world: &mut World| {
        world.pass();
        assert_eq!(world.sent.last().unwrap().kind(), Kind::GetMachineStatus);
        world.answer();
        world.pass();
        assert_eq!((world.creates, world.waits_for()), (1, Some(WaitReason::DriverRetry)));
    };
    look(&mut world);
    world.later(61);
    look(&mut world);
    world.instances = late;
    world.later(61);
    world.settle();
    assert_eq!((world.creates, world.step()), (1, Some(MachineStep::JoinNode)));
    assert_eq!(world.count(Kind::CreateMachine), 1);
}

#[test]
fn a_failed_create_shows_its_code_until_one_succeeds() {
    let mut world = creating();
    world.refuse(ErrorCode::ResourceExhausted);
    world.pass();
    let failed = world.status().last_operation.unwrap();
    assert_eq!(failed.error_code.as_deref(), Some("ResourceExhausted"));
    world.later(600);
    world.pass();
    assert_eq!(world.count(Kind::CreateMachine), 1);
    world.answer();
    world.pass();
    assert_eq!(world.count(Kind::CreateMachine), 2);
    assert_eq!(world.status().last_operation.unwrap(), failed, "an autoscaler backs off meanwhile");
    world.settle();
    let made = world.status().last_operation.unwrap();
    assert_eq!((made.error_code, made.state), (None, Some(MachineState::Processing)));
}

#[test]
fn a_create_that_names_an_instance_proves_nothing_when_its_core_died() {
    let mut world = World::new();
    world.machine_mut().spec.provider_id = Some(PROVIDER_ID.into());
    world.instances.push(Instance { foreign: Some("before".to_owned()), ..Instance::default() });
    world.pass();
    world.answer();
    world.pass();
    assert_eq!(world.sent.last().unwrap().kind(), Kind::CreateMachine);
    world.lose_operation();
    world.instances.clear();
    world.pass();
    world.answer();
    world.pass();
    assert_eq!(world.count(Kind::CreateMachine), 2);
}

#[test]
fn an_instance_that_vanishes_before_its_node_comes_is_made_again_after_two_minutes() {
    let mut world = initializing();
    world.settle_no_node();
    world.instances.clear();
    let look = |world: &mut World| {
        world.later(61);
        world.pass();
        assert_eq!(world.sent.last().unwrap().kind(), Kind::GetMachineStatus);
        world.answer();
        world.pass();
    };
    look(&mut world);
    assert_eq!((world.creates, world.waits_for()), (1, Some(WaitReason::InstanceMissing)));
    look(&mut world);
    assert_eq!(world.sent.last().unwrap().kind(), Kind::CreateMachine);
    world.settle_no_node();
    assert_eq!((world.creates, world.waits_for()), (2, Some(WaitReason::NodeNotJoined)));
}

#[test]
fn a_later_status_that_says_uninitialized_brings_initialization_back() {
    for by_code in [true, false] {
        let mut world = initializing();
        world.answer();
        world.pass();
        assert_eq!(world.step(), Some(MachineStep::JoinNode));
        world.instances[0].initialized = false;
        world.later(61);
        world.pass();
        assert_eq!(world.sent.last().unwrap().kind(), Kind::GetMachineStatus);
        if by_code {
            world.refuse(ErrorCode::Uninitialized);
        } else {
            world.answer();
        }
        world.pass();
        assert_eq!(world.sent.last().unwrap().kind(), Kind::InitializeMachine, "{by_code}");
    }
}

#[test]
fn an_instance_whose_node_does_not_come_fails_with_its_timeout() {
    let mut world = initializing();
    world.settle_no_node();
    assert_eq!(world.waits_for(), Some(WaitReason::NodeNotJoined));
    world.later(20 * 60);
    world.pass();
    assert_eq!(world.status().failure_reason, Some(FailureReason::JoinTimeout));
    assert_eq!(world.phase(), MachinePhase::Failed);
}

#[test]
fn a_node_of_another_instance_is_not_ours() {
    let mut world = initializing();
    world.settle_no_node();
    let mut stale = crate::machine::world::node("True", world.now);
    stale.spec.as_mut().unwrap().provider_id = Some("fake:///someone-else".to_owned());
    world.node = ostler_lifecycle::snapshot::NodeView::Known(stale.into());
    let plan = world.pass();
    assert!(plan.actions.is_empty(), "{plan:#?}");
    assert_eq!(world.phase(), MachinePhase::Pending);
}

#[test]
fn a_node_with_the_taint_of_its_critical_components_is_waited_for() {
    let mut world = initializing();
    world.settle_no_node();
    world.join();
    let mut node = world.node().clone();
    node.spec.as_mut().unwrap().taints.as_mut().unwrap().push(k8s_openapi::api::core::v1::Taint {
        key: names::taint::CRITICAL_COMPONENTS_NOT_READY.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Default::default()
    });
    world.node = ostler_lifecycle::snapshot::NodeView::Known(node.into());
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Pending);
    assert_eq!(world.waits_for(), Some(WaitReason::CriticalComponentsNotReady));
    world.join();
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn a_class_edited_during_the_create_does_not_count_as_applied() {
    let mut world = creating();
    let outcome = world.carry_out();
    world.edit_class(serde_json::json!({ "size": 1, "tags": { "a": "2" } }));
    world.reply(outcome);
    world.pass();
    assert_eq!(world.machine().provider_id().map(ProviderId::as_str), Some(PROVIDER_ID));
    assert_eq!(world.applied(), None);
}

#[test]
fn an_operation_that_takes_long_says_so_and_writes_only_once() {
    let mut world = creating();
    let quiet = world.pass();
    assert_eq!(Some(&quiet.status), world.machine().status.as_ref());
    assert_eq!(looks_again(&world, &quiet), Some(2));
    world.later(2);
    world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::DriverWorking));
    let before = world.machine.clone();
    world.later(60);
    world.pass();
    assert_eq!(world.machine, before);
    assert_eq!(world.count(Kind::CreateMachine), 1);
}

#[test]
fn the_text_of_a_driver_decides_nothing() {
    let plans: Vec<_> = ["", "not found", "InstanceInitialization", "OutOfRange", "deleted"]
        .into_iter()
        .map(|text| {
            let mut world = creating();
            world.reply(Err(Failure::new(ErrorCode::Unavailable, Certainty::Unknown, text)));
            let plan = world.pass();
            (format!("{:?}", plan.actions), plan.dispatch, plan.next, world.step(), world.phase())
        })
        .collect();
    assert!(plans.windows(2).all(|two| two[0] == two[1]), "{plans:#?}");
}

#[test]
fn nothing_is_sent_while_an_operation_is_in_flight() {
    let mut world = creating();
    for seconds in [0, 1, 60, 3600, 86_400] {
        world.later(seconds);
        let plan = world.pass();
        assert_eq!(plan.dispatch, None);
    }
    assert!(matches!(world.operation, OperationView::InFlight(_)));
}

#[test]
fn a_result_that_was_recorded_already_is_only_acknowledged() {
    let mut world = creating();
    let finished = world.carry_out().unwrap();
    world.reply(Ok(finished));
    let stale = world.operation.clone();
    world.settle();
    let before = world.machine.clone();
    world.operation = stale;
    let plan = world.pass();
    assert!(plan.acknowledge.is_some());
    assert_eq!(world.machine, before);
}

#[test]
fn an_instance_that_nobody_waits_for_is_taken_only_if_a_create_of_this_machine_made_it() {
    let own = format!("{UID}:c");
    for (key, uid, taken) in [
        (own.as_str(), UID, true),
        (&own, "", true),
        ("other:c", UID, false),
        (&own, "other", false),
    ] {
        let mut world = creating();
        let Ok(Success::Created(record)) = world.carry_out() else { panic!() };
        let record = InstanceRecord { machine_uid: uid.into(), ..record };
        world.reply(Ok(Success::Created(record)));
        let OperationView::Finished(finished) = &mut world.operation else { panic!() };
        key.clone_into(&mut finished.idempotency_key);
        finished.id = "of no machine".into();
        // A user erased the status, so the core knows of no create.
        world.machine_mut().status.as_mut().unwrap().operation = None;
        let plan = world.pass();
        assert_eq!(plan.acknowledge.as_ref().map(OperationId::as_str), Some("of no machine"));
        assert_eq!(world.machine().provider_id().is_some(), taken, "{key} {uid}");
    }
}

#[test]
fn the_annotation_of_an_autoscaler_sets_the_creation_timeout() {
    let mut world = creating();
    let key = names::annotation::EFFECTIVE_CREATION_TIMEOUT.to_owned();
    world.machine_mut().metadata.annotations.get_or_insert_default().insert(key, "1m".to_owned());
    world.refuse(ErrorCode::Internal);
    world.pass();
    world.later(61);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert_eq!(minutes(1).as_secs(), 60);
}

#[test]
fn an_operation_is_looked_at_again_soon_after_it_is_sent_since_a_driver_that_hangs_says_nothing() {
    let mut world = World::new();
    for _ in 0..2 {
        let plan = world.pass();
        assert!(plan.dispatch.is_some());
        let until = world.now + Duration::from_secs(2);
        assert_eq!(plan.next, Next::Wait { reason: WaitReason::DriverWorking, until });
        world.answer();
    }
}
