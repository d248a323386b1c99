//! What is asked of the group, and what follows from the answers.

use jiff::SignedDuration;
use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind},
    machine::{InstanceState, MachinePhase},
    operation::{OperationView, PoolSize, Request, Success},
};
use ostler_lifecycle::{
    operation::{Failure, UserData},
    pool::{DataSecret, Decision, Done, model_hash},
    snapshot::DriverView,
};
use serde_json::json;

use crate::pool::world::{
    ALL, World, changed, driver, failure, record, request, set_phase, victims,
};

fn size(expected: i32, wanted: i32) -> PoolSize {
    PoolSize { expected, wanted }
}

/// What an update or a named deletion does with the size, and how many instances it names.
fn sizes(plan: &Decision) -> Option<(PoolSize, usize)> {
    match request(plan)? {
        Request::UpdatePool { size, .. } => Some(((*size)?, 0)),
        Request::DeletePoolMachines { size, instances, .. } => Some((*size, instances.len())),
        _ => None,
    }
}

#[test]
fn a_group_that_is_not_there_is_made_and_its_intent_stands_in_the_status() {
    let mut world = World::new(3, json!({ "failureDomains": ["a", "b"] }));
    let plan = world.pass();
    let Some(Request::CreatePool { desired, model, .. }) = request(&plan) else { panic!() };
    assert_eq!(*desired, 3);
    assert_eq!(model.zones, ["a", "b"]);
    assert!(!model.hash.is_empty());
    let dispatch = plan.dispatch.as_ref().unwrap();
    assert_eq!(dispatch.idempotency_key, "pool-uid:pc");
    assert_eq!(
        (dispatch.target.kind.as_str(), &*dispatch.target.uid.to_string()),
        ("MachinePool", "pool-uid")
    );
    let intent = plan.status.operation.unwrap();
    assert_eq!((intent.intent.id.as_str(), intent.intent.term), ("op-1", 7));
    assert_eq!(intent.new_size, Some(3));
    assert!(plan.status.asked);
}

#[test]
fn nothing_is_asked_while_an_operation_runs_or_may_come_back() {
    let mut world = World::new(3, json!({}));
    world.pass();
    world.operation = OperationView::Expected(std::time::Duration::from_secs(30));
    assert!(world.plan().dispatch.is_none());
    assert!(world.plan().status.operation.is_some(), "the intent stays");
}

#[test]
fn an_answer_is_written_down_acknowledged_and_followed_by_a_read() {
    let mut world = World::new(3, json!({}));
    world.pass();
    world.answer(OperationKind::CreatePool, changed());
    let plan = world.pass();
    assert!(plan.reread && plan.dispatch.is_none());
    assert_eq!(plan.acknowledge.unwrap(), "op-1");
    assert_eq!(plan.status.operation, None);
    assert_eq!(plan.status.provider_id.unwrap(), "fake:///group");
}

/// The present one counted as failed, or the group as having its user data.
#[test]
fn the_answer_to_an_older_operation_is_none_to_the_present_one() {
    for outcome in [failure(ErrorCode::ResourceExhausted), changed()] {
        let mut world = World::running(3, json!({}));
        world.pool.status.as_mut().unwrap().user_data_hash = None;
        let intent = world.pass().status.operation.unwrap();
        world.answer_to("op-0", OperationKind::UpdatePool, outcome);
        let plan = world.pass();
        assert_eq!(plan.acknowledge.unwrap(), "op-0");
        assert!(plan.reread && plan.dispatch.is_none());
        assert_eq!(plan.status.operation.unwrap(), intent);
        assert_eq!((plan.status.retries, plan.status.user_data_hash), (Vec::new(), None));
    }
    let mut late = World::new(3, json!({}));
    late.answer(OperationKind::CreatePool, changed());
    assert!(late.pass().status.provider_id.is_some(), "the group is there all the same");
}

#[test]
fn an_intent_whose_operation_nobody_knows_is_dropped_for_a_read_once_a_driver_is_there() {
    let mut world = World::running(3, json!({}));
    world.pool.spec.replicas = Some(4);
    assert!(world.pass().dispatch.is_some());
    world.driver = DriverView::Unavailable;
    let plan = world.plan();
    assert!(plan.status.operation.is_some() && !plan.reread, "it may be running");
    world.driver = driver(&ALL);
    let plan = world.plan();
    assert!(plan.status.operation.is_none() && plan.reread && plan.dispatch.is_none());
}

#[test]
fn a_group_that_is_too_small_is_enlarged_from_the_size_that_was_seen() {
    let mut world = World::running(3, json!({}));
    world.pool.spec.replicas = Some(5);
    assert_eq!(sizes(&world.plan()), Some((size(3, 5), 0)));
}

#[test]
fn a_surplus_is_drained_and_then_named_with_the_size_that_is_left() {
    let mut world = World::running(3, json!({}));
    world.pool.spec.replicas = Some(2);
    let plan = world.plan();
    assert_eq!(victims(&plan), ["p-1"]);
    assert!(plan.dispatch.is_none(), "the size is not lowered before the drain");
    world.drain("p-1");
    let plan = world.plan();
    assert_eq!(sizes(&plan), Some((size(3, 2), 1)));
    let intent = plan.status.operation.unwrap();
    assert_eq!((intent.expected_size, intent.new_size), (Some(3), Some(2)));
    assert_eq!(intent.provider_ids, ["fake:///i-1"]);
}

#[test]
fn an_instance_whose_machine_is_being_drained_is_not_named() {
    let mut world = World::running(3, json!({}));
    world.pool.spec.replicas = Some(2);
    let now = world.now;
    world.named("p-1").metadata.deletion_timestamp = Some(now.into());
    assert!(world.plan().dispatch.is_none());
}

#[test]
fn what_is_replaced_during_a_rollout_leaves_the_surge_to_the_others() {
    let mut world = World::running(3, json!({}));
    world.pool.spec.template.spec.version = Some("v2".to_owned());
    let model = model_hash(&world.pool, &world.class);
    let group = world.group.as_mut().unwrap();
    (group.model_hash, group.desired) = (model, 4);
    world.boot();
    world.adopt();
    world.run_all();
    world.drain("p-1");
    assert_eq!(sizes(&world.plan()), Some((size(4, 4), 1)), "two are left to replace");
}

#[test]
fn a_machine_that_a_user_deletes_is_replaced_the_size_stays() {
    let mut world = World::running(3, json!({}));
    world.drain("p-2");
    let plan = world.plan();
    assert!(plan.delete.is_empty(), "no other one goes");
    assert_eq!(sizes(&plan), Some((size(3, 3), 1)));
}

#[test]
fn those_that_go_for_good_and_those_that_are_replaced_are_two_operations() {
    let mut world = World::running(4, json!({}));
    world.pool.spec.replicas = Some(3);
    world.drain("p-1");
    world.drain("p-2");
    assert_eq!(sizes(&world.plan()), Some((size(4, 3), 1)));
    let group = world.group.as_mut().unwrap();
    group.desired = 3;
    group.instances.remove(0);
    assert_eq!(sizes(&world.plan()), Some((size(3, 3), 1)));
}

#[test]
fn a_deletion_that_is_repeated_after_an_unknown_outcome_lowers_nothing_twice() {
    let mut world = World::running(3, json!({}));
    world.pool.spec.replicas = Some(2);
    world.drain("p-1");
    world.pass();
    let unknown = Failure::new(ErrorCode::Unavailable, Certainty::Unknown, "lost");
    world.answer(OperationKind::DeletePoolMachines, Err(unknown));
    assert!(world.pass().reread);
    world.operation = OperationView::Idle;
    world.now += jiff::SignedDuration::from_mins(10);
    // It was carried out as far as the size; the instance is still listed.
    world.group.as_mut().unwrap().desired = 2;
    assert_eq!(sizes(&world.plan()), Some((size(2, 2), 1)));
    // The operation was not carried out at all.
    world.group.as_mut().unwrap().desired = 3;
    assert_eq!(sizes(&world.plan()), Some((size(3, 2), 1)));
}

#[test]
fn another_size_than_expected_is_no_failure_but_a_reason_to_look() {
    let mut world = World::running(3, json!({}));
    world.pool.spec.replicas = Some(5);
    world.pass();
    world.answer(OperationKind::UpdatePool, failure(ErrorCode::Aborted));
    assert!(world.pass().reread);
    world.operation = OperationView::Idle;
    world.group.as_mut().unwrap().desired = 4;
    assert_eq!(sizes(&world.plan()), Some((size(4, 5), 0)), "at once");
}

#[test]
fn a_verb_that_failed_waits_and_others_do_not() {
    let mut world = World::running(3, json!({}));
    world.pool.spec.replicas = Some(5);
    world.pass();
    world.answer(OperationKind::UpdatePool, failure(ErrorCode::ResourceExhausted));
    world.pass();
    world.operation = OperationView::Idle;
    let plan = world.plan();
    assert!(plan.dispatch.is_none());
    assert!(plan.retry_at.unwrap() > world.now);
    world.drain("p-1");
    assert_eq!(sizes(&world.plan()), Some((size(3, 3), 1)));
    world.now = plan.retry_at.unwrap();
    world.machines.remove(0);
    world.group.as_mut().unwrap().instances.remove(0);
    assert_eq!(sizes(&world.plan()), Some((size(3, 5), 0)), "its time has come");
    world.now -= SignedDuration::from_hours(24);
    assert_eq!(sizes(&world.plan()), Some((size(3, 5), 0)), "the clock was set back by a day");
}

#[test]
fn a_failure_of_what_is_not_wanted_any_more_is_forgotten() {
    let mut world = World::running(3, json!({}));
    world.pool.spec.replicas = Some(5);
    world.pass();
    world.answer(OperationKind::UpdatePool, failure(ErrorCode::ResourceExhausted));
    assert_eq!(world.pass().status.retries.len(), 1);
    world.operation = OperationView::Idle;
    assert_eq!(world.pass().status.retries.len(), 1, "it waits");
    world.pool.spec.replicas = Some(3);
    assert!(world.pass().status.retries.is_empty());
}

#[test]
fn what_the_driver_says_it_did_and_a_read_does_not_show_is_asked_for_ever_more_rarely() {
    let mut world = World::running(3, json!({}));
    world.pool.spec.replicas = Some(5);
    let key = world.plan().dispatch.unwrap().idempotency_key;
    for (times, waits) in [(1, None), (2, Some(5)), (3, Some(10)), (20, Some(180))] {
        world.done = Some(Done { key: key.clone(), times, at: world.now });
        let plan = world.plan();
        let until = waits.map(|seconds| world.now + SignedDuration::from_secs(seconds));
        assert_eq!((plan.dispatch.is_none(), plan.retry_at), (waits.is_some(), until), "{times}");
        let mut said = plan.status.conditions.iter();
        let said = said.find(|it| it.type_ == "InfrastructureReady").unwrap();
        assert_eq!(said.message.contains("that it is done, and it is not"), waits.is_some());
    }
    world.pool.spec.replicas = Some(6);
    assert!(world.plan().dispatch.is_some(), "something else is asked for at once");
}

/// The named deletion is over, but for these instances.
fn refuse(world: &mut World, ids: &[String], code: ErrorCode, reason: &str) -> Decision {
    let why = |id: &String| {
        let failure = Failure::new(code, Certainty::NotApplied, "stuck");
        (id.as_str().into(), Failure { reason: reason.into(), ..failure })
    };
    let not_deleted = ids.iter().map(why).collect();
    let answer = Success::PoolMachinesDeleted { pool: record(), not_deleted };
    world.answer(OperationKind::DeletePoolMachines, Ok(answer));
    let plan = world.pass();
    world.operation = OperationView::Idle;
    plan
}

/// The instances that a named deletion names.
fn named(plan: &Decision) -> Vec<String> {
    match request(plan) {
        Some(Request::DeletePoolMachines { instances, .. }) => {
            instances.iter().map(ToString::to_string).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn instances_that_cannot_be_deleted_hold_up_no_others() {
    let stuck = ["fake:///i-1".to_owned()];
    let mut world = World::running(3, json!({}));
    world.pool.spec.replicas = Some(2);
    world.drain("p-1");
    world.pass();
    let plan = refuse(&mut world, &stuck, ErrorCode::Internal, "");
    assert_eq!(plan.status.not_deleted, ["fake:///i-1"]);
    let ready = plan.status.conditions.iter().find(|it| it.type_ == "InfrastructureReady").unwrap();
    assert!(ready.message.contains("stuck"), "{}", ready.message);
    assert!(world.plan().dispatch.is_none(), "it waits");
    world.drain("p-3");
    // At once, and also when the time of the other one has come.
    for later in [0, 5] {
        world.now += SignedDuration::from_secs(later);
        let plan = world.plan();
        assert_eq!(named(&plan), ["fake:///i-3"]);
        assert_eq!(sizes(&plan), Some((size(3, 2), 1)), "the size falls for this one");
    }
    world.pass();
    let plan = refuse(&mut world, &[], ErrorCode::Internal, "");
    assert_eq!(plan.status.not_deleted, ["fake:///i-1"], "it is not forgotten");
    let group = world.group.as_mut().unwrap();
    (group.desired, _) = (2, group.instances.pop());
    world.machines.pop();
    assert_eq!(named(&world.plan()), stuck, "and is tried again");
    world.group.as_mut().unwrap().instances.remove(0);
    assert!(world.pass().status.not_deleted.is_empty(), "until it is gone");
}

#[test]
fn an_instance_that_cannot_be_deleted_is_tried_again_ever_more_rarely() {
    let stuck = ["fake:///i-1".to_owned()];
    for (code, reason, waits) in [
        (ErrorCode::Internal, "", [5, 10, 20, 40]),
        (ErrorCode::FailedPrecondition, "NOT_OURS", [60, 120, 240, 480]),
    ] {
        let mut world = World::running(2, json!({}));
        world.drain("p-1");
        for seconds in waits {
            assert_eq!(named(&world.pass()), stuck, "{code} {seconds}");
            refuse(&mut world, &stuck, code, reason);
            let until = world.plan().retry_at.unwrap();
            assert_eq!(until, world.now + SignedDuration::from_secs(seconds), "{code}");
            world.now = until;
        }
    }
}

/// The pool said so until some later deletion succeeded.
#[test]
fn a_deletion_whose_outcome_was_lost_is_no_failure_once_its_instance_goes() {
    for (state, failed) in [(InstanceState::Succeeded, true), (InstanceState::Deleting, false)] {
        let mut world = World::running(2, json!({}));
        world.drain("p-1");
        world.pass();
        let unknown = Failure::new(ErrorCode::Unavailable, Certainty::Unknown, "lost");
        world.answer(OperationKind::DeletePoolMachines, Err(unknown));
        world.pass();
        world.operation = OperationView::Idle;
        world.group.as_mut().unwrap().instances[0].state = state;
        let status = world.pass().status;
        assert_eq!(!status.retries.is_empty(), failed);
        let mut said = status.conditions.iter();
        let said = said.find(|it| it.type_ == "InfrastructureReady").unwrap();
        assert_eq!(said.reason == "DeletePoolMachinesFailed", failed, "{}", said.reason);
    }
}

#[test]
fn more_stuck_instances_than_one_operation_names_leave_others_their_turn() {
    let mut world = World::running(60, json!({}));
    for at in 1..=60 {
        world.drain(&format!("p-{at}"));
    }
    let first = named(&world.pass());
    assert_eq!(first.len(), 50);
    refuse(&mut world, &first, ErrorCode::Internal, "");
    let others = named(&world.pass());
    assert_eq!(others.len(), 10);
    assert!(others.iter().all(|id| !first.contains(id)));
    world.operation = OperationView::Idle;
    // Far more are remembered than shown.
    assert_eq!(world.pool.status.as_ref().unwrap().not_deleted.len(), 20);
}

#[test]
fn a_size_that_never_came_is_lowered_without_a_drain_and_never_below_what_is_there() {
    let mut world = World::running(3, json!({}));
    world.group.as_mut().unwrap().desired = 6;
    world.pool.spec.replicas = Some(2);
    let plan = world.plan();
    assert_eq!(sizes(&plan), Some((size(6, 3), 0)), "the third one is drained first");
    assert_eq!(victims(&plan), ["p-1"]);
}

/// Its Machines are there, and the read names none of their instances.
fn doubtful(replicas: i32) -> World {
    let mut world = World::running(replicas, json!({}));
    world.group.as_mut().unwrap().instances.clear();
    world
}

#[test]
fn a_group_that_makes_no_instance_is_scaled_in_while_no_machine_says_that_there_was_one() {
    let mut world = World::running(0, json!({}));
    world.group.as_mut().unwrap().desired = 5;
    assert_eq!(sizes(&world.plan()), Some((size(5, 0), 0)));
    let mut world = doubtful(5);
    world.pool.spec.replicas = Some(0);
    let plan = world.plan();
    assert!(plan.dispatch.is_none() && plan.delete.is_empty(), "an answer alone says nothing");
}

#[test]
fn a_machine_that_is_drained_is_named_and_goes_although_no_read_names_any_instance() {
    let mut world = doubtful(1);
    assert!(world.plan().dispatch.is_none(), "it lives");
    world.drain("p-1");
    let plan = world.pass();
    assert_eq!((named(&plan), sizes(&plan)), (vec![id_of(1)], Some((size(1, 1), 1))));
    assert!(plan.gone.is_empty(), "no driver said that it is gone");
    let mut refused = world.clone();
    refuse(&mut refused, &[id_of(1)], ErrorCode::Internal, "");
    let plan = refused.pass();
    assert!(plan.dispatch.is_none() && plan.retry_at.unwrap() > refused.now, "it waits");
    assert_eq!(plan.status.not_deleted, [id_of(1).as_str()]);
    // The driver reports the instance as deleted.
    let counted = [(world.machines[0].uid().to_owned(), 1)].into();
    world.operation = OperationView::Idle;
    world.pool.status.as_mut().unwrap().operation = None;
    world.group = world.group.map(|it| it.counted(&counted, &[&world.machines[0]]));
    let plan = world.pass();
    assert_eq!((plan.gone.len(), plan.dispatch), (1, None));
}

fn id_of(number: u32) -> String {
    format!("fake:///i-{number}")
}

#[test]
fn a_driver_without_named_deletions_chooses_itself_and_the_pool_says_so() {
    let mut world = World::running(3, json!({}));
    world.driver = driver(&ALL[..4]);
    world.pool.spec.replicas = Some(2);
    let plan = world.plan();
    assert!(plan.delete.is_empty());
    assert_eq!(sizes(&plan), Some((size(3, 2), 0)));
    assert_eq!(plan.status.infrastructure_machine_kind, None);
    let said = plan.status.conditions.iter().find(|it| it.type_ == "Deletable").unwrap();
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("False", "NotSupported"));
    assert!(plan.news.iter().any(|it| it.reason.name() == "NotSupported"), "a user is told");
}

#[test]
fn a_pool_that_somebody_else_scales_follows_its_group_and_chooses_none() {
    let mut world = World::running(3, json!({})).scaled_by_others();
    world.group.as_mut().unwrap().desired = 2;
    let plan = world.plan();
    assert_eq!(plan.replicas, Some(2));
    assert!(plan.delete.is_empty() && plan.dispatch.is_none());
}

#[test]
fn what_failed_in_a_pool_that_somebody_else_scales_is_replaced_one_at_a_time_and_the_size_stays() {
    // As many as are wanted; fewer or more, while the group has not done what the other system said.
    for desired in [3, 2, 5] {
        let mut world = World::running(3, json!({})).scaled_by_others();
        world.group.as_mut().unwrap().desired = usize::try_from(desired).unwrap();
        world.pool.spec.replicas = Some(desired);
        let annotations = &mut world.named("p-1").metadata.annotations;
        let wish = ("cluster.x-k8s.io/delete-machine".to_owned(), String::new());
        annotations.get_or_insert_default().extend([wish]);
        for name in ["p-2", "p-3"] {
            set_phase(world.named(name), MachinePhase::Failed);
        }
        assert_eq!(victims(&world.plan()), ["p-2"], "{desired}");
        world.drain("p-2");
        let plan = world.plan();
        assert!(plan.delete.is_empty(), "{desired}: the other one waits");
        assert_eq!(sizes(&plan), Some((size(desired, desired), 1)));
    }
}

#[test]
fn a_driver_that_has_no_groups_is_asked_for_none() {
    let mut world = World::new(3, json!({}));
    world.driver = driver(&[OperationKind::CreateMachine]);
    let plan = world.plan();
    assert!(plan.dispatch.is_none());
    let said = plan.status.conditions.iter().find(|it| it.type_ == "InfrastructureReady").unwrap();
    assert_eq!(said.reason, "DriverLacksVerb");
}

#[test]
fn a_group_that_was_there_is_made_again_only_after_two_answers_that_there_is_none() {
    let mut world = World::running(3, json!({}));
    world.group = None;
    world.absent_looks = 1;
    assert!(world.plan().dispatch.is_none());
    world.absent_looks = 2;
    let plan = world.plan();
    let Some(Request::CreatePool { provider_id, .. }) = request(&plan) else { panic!() };
    assert_eq!(*provider_id, "fake:///group", "the driver is told which one it was");
}

#[test]
fn a_group_that_is_found_to_be_gone_in_the_middle_is_looked_for_and_made_again() {
    let grow: fn(&mut World) = |world| world.pool.spec.replicas = Some(4);
    let delete: fn(&mut World) = |world| world.drain("p-1");
    for (change, kind) in
        [(grow, OperationKind::UpdatePool), (delete, OperationKind::DeletePoolMachines)]
    {
        let mut world = World::running(3, json!({}));
        change(&mut world);
        assert_eq!(world.pass().dispatch.unwrap().kind(), kind);
        world.answer(kind, failure(ErrorCode::NotFound));
        let plan = world.pass();
        assert!(plan.reread && plan.gone.is_empty() && plan.dispatch.is_none(), "{kind}");
        (world.operation, world.group) = (OperationView::Idle, None);
        assert!(world.plan().dispatch.is_none(), "{kind}: the first look");
        world.absent_looks = 2;
        let plan = world.plan();
        assert!(matches!(request(&plan), Some(Request::CreatePool { .. })), "{kind}");
    }
}

/// What the user data of an update say, and whether it leaves size and model as they are.
fn renewed(plan: &Decision) -> Option<(String, bool)> {
    match request(plan) {
        Some(Request::UpdatePool { size, model: Some(model), .. }) => {
            let text = String::from_utf8(model.user_data.clone()?.bytes().to_vec()).unwrap();
            let same = plan.status.model_hash.as_ref().is_some_and(|it| it.as_str() == model.hash);
            Some((text, size.is_none() && same))
        }
        _ => None,
    }
}

fn says(text: &str) -> DataSecret {
    DataSecret::Known(UserData::new(text.as_bytes().to_vec()))
}

#[test]
fn user_data_that_were_renewed_reach_the_group_and_replace_no_instance() {
    let bootstrap = json!({ "bootstrap": { "dataSecretName": "join" } });
    for paused in [false, true] {
        let more = json!({ "paused": paused, "template": { "spec": bootstrap } });
        let mut world = World::running(2, more);
        for text in ["first", "second", "third"] {
            world.data = says(text);
            let plan = world.pass();
            assert_eq!(renewed(&plan), Some((text.to_owned(), true)), "paused: {paused}");
            assert_eq!(plan.status.user_data_hash, None, "which of both the group has is open");
            let intent = plan.status.operation.as_ref().unwrap();
            let sent = intent.user_data_hash.clone();
            let key = intent.intent.idempotency_key.clone();
            world.data = says("meanwhile");
            world.answer(OperationKind::UpdatePool, changed());
            assert_eq!(world.pass().status.user_data_hash, sent);
            world.operation = OperationView::Idle;
            let next = world.plan();
            assert_eq!(renewed(&next), Some(("meanwhile".to_owned(), true)));
            assert_ne!(next.dispatch.unwrap().idempotency_key, key, "another intent");
            world.data = says(text);
            let plan = world.pass();
            assert!(plan.dispatch.is_none() && plan.delete.is_empty());
            assert_eq!(plan.status.up_to_date_replicas, 2);
        }
    }
}

#[test]
fn user_data_are_sent_again_until_the_driver_has_taken_them_and_not_while_they_are_missing() {
    let bootstrap = json!({ "bootstrap": { "dataSecretName": "join" } });
    let mut world = World::running(2, json!({ "template": { "spec": bootstrap } }));
    world.data = says("first");
    world.pass();
    world.answer(OperationKind::UpdatePool, failure(ErrorCode::Unavailable));
    world.pass();
    world.operation = OperationView::Idle;
    assert!(renewed(&world.plan()).is_none(), "it waits");
    world.now += SignedDuration::from_hours(1);
    assert!(renewed(&world.plan()).is_some());
    world.data = DataSecret::Missing("secret default/join does not exist".to_owned());
    let plan = world.plan();
    assert!(plan.dispatch.is_none() && !plan.status.bootstrap_ready);
}

#[test]
fn a_pool_scales_with_the_model_that_its_group_has_while_the_user_data_of_the_new_one_are_missing()
{
    let bootstrap = json!({ "bootstrap": { "dataSecretName": "join" } });
    let mut world = World::running(2, json!({ "template": { "spec": bootstrap } }));
    world.data = DataSecret::Missing("secret default/join does not exist".to_owned());
    world.pool.spec.template.spec.version = Some("v2".to_owned());
    assert!(world.plan().dispatch.is_none(), "no surge of the old model");
    world.pool.spec.replicas = Some(4);
    let plan = world.plan();
    assert_eq!(sizes(&plan), Some((size(2, 4), 0)));
    assert!(matches!(request(&plan), Some(Request::UpdatePool { model: None, .. })));
    world.data = says("first");
    let Some(Request::UpdatePool { size, model: Some(_), .. }) = request(&world.plan()).cloned()
    else {
        panic!()
    };
    assert_eq!(size.unwrap().wanted, 5, "with the surge");
}

#[test]
fn a_pool_that_is_paused_puts_no_other_model_on_its_group_with_the_user_data() {
    let mut world = World::running(2, json!({ "paused": true }));
    world.pool.status.as_mut().unwrap().user_data_hash = None;
    world.pool.spec.template.spec.version = Some("v2".to_owned());
    assert!(world.plan().dispatch.is_none());
}
