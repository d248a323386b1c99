use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind as Kind},
    machine::{
        HotUpdateState, MachineConditionType, MachineOperationType, MachineState, MachineStep,
        WaitReason,
    },
    names,
    operation::Reason,
};
use ostler_lifecycle::{
    operation::{Failure, Request, Success},
    plan::EventReason,
};
use serde_json::json;

use crate::machine::world::{World, looks_again};

const S1: &str = r#"{"size":1,"tags":{"a":"1"}}"#;
const S2: &str = r#"{"size":1,"tags":{"a":"2"}}"#;

/// A running machine whose class was edited from S1 to S2, and the update in flight.
fn updating() -> World {
    let mut world = World::running();
    assert_eq!(world.applied().unwrap(), S1);
    edit(&mut world, S2);
    world.pass();
    assert_eq!(world.sent.last().unwrap().kind(), Kind::UpdateMachine);
    world
}

fn edit(world: &mut World, spec: &str) {
    world.edit_class(serde_json::from_str(spec).unwrap());
}

#[test]
fn of_what_a_driver_changed_people_are_shown_as_much_as_they_read() {
    let long = "ä".repeat(100);
    for (paths, shown) in [
        (
            vec![],
            "the instance has the spec of its class; the driver does not say what it changed"
                .to_owned(),
        ),
        (vec!["size"; 1], "changed size".to_owned()),
        (vec!["a"; 8], "changed a, a, a, a, a, a, a, a".to_owned()),
        (vec!["a"; 1008], "changed a, a, a, a, a, a, a, a and 1000 more".to_owned()),
        (vec![long.as_str()], format!("changed {}", "ä".repeat(32))),
    ] {
        let mut world = updating();
        let applied_paths = paths.iter().map(|&path| path.to_owned()).collect();
        world.reply(Ok(Success::Updated { applied_paths }));
        world.pass();
        let told = world.events.iter().find(|it| it.reason == EventReason::HotUpdated).unwrap();
        assert_eq!(told.message, shown);
    }
}

fn last_applied_sent(world: &World) -> String {
    let Request::Update { last_applied_spec_json, .. } = &world.sent.last().unwrap().request else {
        panic!("{:?}", world.sent.last());
    };
    last_applied_spec_json.clone()
}

#[test]
fn an_edited_class_reaches_the_running_instance() {
    let mut world = updating();
    let last = world.status().last_operation.unwrap();
    assert_eq!(last.type_, Some(MachineOperationType::Update));
    assert_eq!(last.state, Some(MachineState::Processing), "written before it is sent");
    assert_eq!(world.step(), Some(MachineStep::UpdateInstance));
    assert_eq!(last_applied_sent(&world), S1);
    world.settle();
    assert_eq!(world.applied().unwrap(), S2);
    assert_eq!(world.instances[0].spec, S2);
    assert_eq!(world.last_state(), Some(MachineState::Successful));
    assert_eq!(world.status().hot_update, None);
    let told = world.events.iter().find(|it| it.reason == EventReason::HotUpdated).unwrap();
    assert_eq!(told.message, "changed tags");
    let conditions = world.status().conditions;
    let shown = conditions.iter().find(|it| it.type_ == MachineConditionType::HotUpdated.as_str());
    assert_eq!(shown.unwrap().message.as_deref(), Some("changed tags"));
    let answer = world.status().history.unwrap().answers.pop().unwrap();
    assert_eq!((answer.code.as_str(), answer.message.as_deref()), ("OK", Some("changed tags")));
    assert_eq!(world.count(Kind::UpdateMachine), 1);
}

#[test]
fn the_order_of_keys_in_a_class_is_no_change() {
    let mut world = World::running();
    edit(&mut world, r#"{"tags":{"a":"1"},"size":1}"#);
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 0);
}

#[test]
fn a_machine_without_the_annotation_is_updated_with_an_empty_last_spec() {
    let mut world = World::running();
    world.machine_mut().metadata.annotations = None;
    world.pass();
    assert_eq!(last_applied_sent(&world), "");
    world.settle();
    assert_eq!(world.applied().unwrap(), S1);
}

#[test]
fn an_update_that_failed_half_way_is_driven_on_although_the_class_is_back_to_the_old_spec() {
    let mut world = updating();
    world.fail(ErrorCode::Unavailable, Certainty::Partial);
    world.pass();
    assert_eq!(world.last_state(), Some(MachineState::Failed));
    assert_eq!(world.applied().unwrap(), S1);
    edit(&mut world, S1);
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 2, "edge case 1: S1 equals last-applied");
    assert_eq!(world.applied().unwrap(), S1);
    assert_eq!(world.instances[0].spec, S1);
    assert_eq!(world.last_state(), Some(MachineState::Successful));
}

#[test]
fn an_update_whose_core_died_is_driven_on_although_the_class_is_back_to_the_old_spec() {
    let mut world = updating();
    let _lost = world.carry_out();
    world.lose_operation();
    edit(&mut world, S1);
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 2, "edge case 2");
    assert_eq!(world.instances[0].spec, S1);
    assert_eq!(world.applied().unwrap(), S1);
}

#[test]
fn a_failed_update_survives_a_node_that_is_unhealthy_meanwhile() {
    let mut world = updating();
    world.fail(ErrorCode::Internal, Certainty::Partial);
    world.pass();
    world.node_is("False");
    world.pass();
    edit(&mut world, S1);
    world.node_is("True");
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 2, "the health check hides no half update");
}

#[test]
fn an_update_begun_by_another_controller_is_driven_on() {
    let mut world = World::running();
    let mut status = world.status();
    let last = status.last_operation.as_mut().unwrap();
    last.type_ = Some(MachineOperationType::Update);
    last.state = Some(MachineState::Processing);
    world.machine_mut().status = Some(status);
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 1);
}

#[test]
fn a_class_edited_during_the_update_is_applied_next() {
    let mut world = updating();
    let outcome = world.carry_out();
    let s3 = r#"{"size":1,"tags":{"a":"3"}}"#;
    edit(&mut world, s3);
    world.reply(outcome);
    world.pass();
    assert_eq!(world.applied().unwrap(), S1, "the core does not know that S2 is wanted (INV-6)");
    world.settle();
    assert_eq!(world.applied().unwrap(), s3);
    assert_eq!(world.instances[0].spec, s3);
}

/// The driver refuses the change as a whole.
fn refused() -> World {
    let mut world = updating();
    world.reply(Err(Failure {
        reason: Reason::NotHotUpdatable.into(),
        violations: vec![("size".to_owned(), "needs a new instance".to_owned())],
        ..Failure::new(ErrorCode::FailedPrecondition, Certainty::NotApplied, "not hot")
    }));
    world.settle();
    world
}

#[test]
fn a_refused_change_is_a_condition_and_never_a_last_operation() {
    let world = refused();
    let status = world.status();
    let type_ = MachineConditionType::HotUpdateRefused;
    let shown = status.conditions.iter().find(|one| one.type_ == type_.as_str()).unwrap();
    assert_eq!(shown.status, "True");
    let text = shown.message.as_deref().unwrap();
    assert!(text.contains("size: needs a new instance") && text.contains("revision"), "{text}");
    assert_ne!(status.last_operation.unwrap().type_, Some(MachineOperationType::Update));
    let wait = status.waiting_for.unwrap();
    assert_eq!((wait.reason, wait.message), (WaitReason::HotUpdateRefused, shown.message.clone()));
    assert_eq!(status.hot_update.unwrap().state, HotUpdateState::Refused);
    assert_eq!(world.applied().unwrap(), S1);
}

#[test]
fn a_refused_change_is_looked_at_again_only_when_class_or_driver_change() {
    let mut world = refused();
    world.later(100_000);
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 1);

    world.driver_version = "fake 2".to_owned();
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 2);

    let mut world = refused();
    edit(&mut world, r#"{"size":1,"tags":{"a":"4"}}"#);
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 2);

    let mut world = refused();
    edit(&mut world, S1);
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 1, "back to what is applied: nothing to do");
    let type_ = MachineConditionType::HotUpdateRefused;
    assert!(world.status().conditions.iter().all(|one| one.type_ != type_.as_str()));
    assert_eq!(world.waits_for(), None);
}

#[test]
fn a_refusal_after_a_half_update_does_not_hide_the_half_update() {
    let mut world = updating();
    world.fail(ErrorCode::Unavailable, Certainty::Partial);
    world.pass();
    world.later(5);
    edit(&mut world, r#"{"size":2}"#);
    world.pass();
    world.reply(Err(Failure {
        reason: Reason::NotHotUpdatable.into(),
        ..Failure::new(ErrorCode::FailedPrecondition, Certainty::NotApplied, "not hot")
    }));
    world.settle();
    edit(&mut world, S1);
    world.settle();
    assert_eq!(world.instances[0].spec, S1);
    assert_eq!(world.count(Kind::UpdateMachine), 3);
}

#[test]
fn a_driver_that_cannot_update_is_said_once_and_asked_never() {
    let mut world = World::running();
    world.kinds.remove(&Kind::UpdateMachine);
    edit(&mut world, S2);
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 0);
    let wait = world.status().waiting_for.unwrap();
    assert_eq!(wait.reason, WaitReason::HotUpdateRefused);
    let text = wait.message.unwrap();
    assert!(text.ends_with("the driver cannot change running instances"), "{text}");
    let events = world.events.len();
    edit(&mut world, r#"{"size":1,"tags":{"a":"5"}}"#);
    world.settle();
    assert_eq!(world.events.len(), events);
    world.kinds.insert(Kind::UpdateMachine);
    world.driver_version = "fake 2".to_owned();
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 1);
}

#[test]
fn a_driver_that_cannot_update_refuses_nothing_where_the_class_is_that_of_an_interrupted_create() {
    let mut world = World::new();
    world.kinds.remove(&Kind::UpdateMachine);
    world.pass();
    world.answer();
    world.pass();
    assert_eq!(world.sent.last().unwrap().kind(), Kind::CreateMachine);
    let _lost = world.carry_out();
    world.fail(ErrorCode::Unavailable, Certainty::Unknown);
    world.pass();
    world.later(5);
    world.settle();
    world.join();
    world.settle();
    assert_eq!((world.creates, world.applied()), (1, None), "found by a read (INV-6)");
    assert_eq!((world.waits_for(), world.happened(EventReason::HotUpdateRefused)), (None, false));
    edit(&mut world, S2);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::HotUpdateRefused), "it has another spec now");
    edit(&mut world, S1);
    world.settle();
    assert_eq!((world.waits_for(), world.status().hot_update), (None, None), "and back");
    world.kinds.insert(Kind::UpdateMachine);
    world.settle();
    assert_eq!(world.applied().unwrap(), S1, "who can apply it does");
}

#[test]
fn a_verb_that_is_announced_and_not_there_is_not_asked_again() {
    let mut world = updating();
    world.refuse(ErrorCode::Unimplemented);
    world.settle();
    world.later(100_000);
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 1);
    assert_eq!(world.status().hot_update.unwrap().state, HotUpdateState::Unsupported);
}

#[test]
fn a_failed_update_is_tried_again_after_its_time() {
    let mut world = updating();
    world.refuse(ErrorCode::Unavailable);
    let plan = world.pass();
    assert_eq!(looks_again(&world, &plan), Some(5));
    assert_eq!(world.waits_for(), Some(WaitReason::DriverRetry));
    world.later(5);
    world.settle();
    assert_eq!(world.applied().unwrap(), S2);
    let type_ = MachineConditionType::HotUpdated;
    let status = world.status();
    let shown = status.conditions.iter().find(|one| one.type_ == type_.as_str()).unwrap();
    assert_eq!(shown.status, "True");
}

#[test]
fn an_update_waits_for_its_driver() {
    let mut world = World::running();
    world.connected = false;
    edit(&mut world, S2);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::DriverUnavailable));
    world.connected = true;
    world.settle();
    assert_eq!(world.applied().unwrap(), S2);
}

#[test]
fn a_new_machine_gets_the_new_spec_and_no_update() {
    let mut world = World::new();
    world.edit_class(json!({ "size": 9 }));
    world.settle();
    world.join();
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 0);
    let key = names::annotation::LAST_APPLIED_PROVIDER_SPEC;
    assert_eq!(world.machine().annotation(key), Some(r#"{"size":9}"#));
}

/// A machine that another controller made, under a driver that changes no running instance.
fn adopted() -> World {
    let mut world = World::running();
    let notes = world.machine_mut().metadata.annotations.get_or_insert_default();
    notes.remove(names::annotation::LAST_APPLIED_PROVIDER_SPEC);
    notes.remove(names::annotation::OPERATION);
    world.erase_ours();
    world.machine_mut().status.as_mut().unwrap().conditions.clear();
    world.kinds.remove(&Kind::UpdateMachine);
    world.events.clear();
    world.settle();
    world
}

#[test]
fn an_adopted_instance_counts_as_having_its_class_until_that_changes() {
    let mut world = adopted();
    assert_eq!(world.waits_for(), None, "nothing was changed, so nothing is refused");
    assert!(!world.happened(EventReason::HotUpdateRefused), "{:?}", world.events);
    assert_eq!(world.applied(), None, "no driver reported what it has (INV-6)");
    assert!(world.status().adopted_spec_digest.is_some());
    let before = world.class.clone();
    edit(&mut world, S2);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::HotUpdateRefused), "now there is a change");
    assert!(world.happened(EventReason::HotUpdateRefused));
    world.class = before;
    world.settle();
    assert_eq!(world.waits_for(), None, "it was taken back");
}

#[test]
fn an_adopted_instance_whose_driver_can_change_it_is_brought_to_its_class() {
    let mut world = adopted();
    world.kinds.insert(Kind::UpdateMachine);
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 1);
    assert!(world.applied().is_some());
}
