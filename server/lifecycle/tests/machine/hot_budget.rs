//! Before an update is sent: the driver's review of the class, and the turn of the Machine.

use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind as Kind},
    machine::{HotUpdateState, MachineConditionType, MachineOperationType, WaitReason},
};
use ostler_lifecycle::{
    hot_update::{ClassReview, Question, ReviewView, SlotUse, SlotView},
    plan::{Action, EventReason, Plan},
};
use serde_json::json;

use crate::machine::world::World;

/// A running machine whose class was edited.
fn edited() -> World {
    let mut world = World::running();
    world.edit_class(json!({ "size": 1, "tags": { "a": "2" } }));
    world
}

fn message(world: &World) -> String {
    world.status().waiting_for.unwrap().message.unwrap()
}

/// `ahead` Machines are first, and no slot is free.
fn full(ahead: usize, limit: usize) -> SlotView {
    SlotView { has: SlotUse::None, ahead, free: 0, limit }
}

/// The Machine's use of the slot in one pass.
fn changed(plan: &Plan) -> Option<SlotUse> {
    plan.actions.iter().find_map(|action| match action {
        Action::UpdateSlot { wanted, .. } => Some(*wanted),
        _ => None,
    })
}

/// The question to the driver in one pass.
fn asked(plan: &Plan) -> Option<&Question> {
    plan.actions.iter().find_map(|action| match action {
        Action::AskReview(question) => Some(question),
        _ => None,
    })
}

#[test]
fn a_slot_is_taken_only_by_a_machine_that_needs_one() {
    let mut world = World::running();
    world.slot = full(0, 1);
    assert_eq!(changed(&world.pass()), None);
    world.edit_class(json!({ "size": 2 }));
    assert_eq!(changed(&world.pass()), Some(SlotUse::Waits));
    assert_eq!(world.slot.has, SlotUse::Waits);
    assert_eq!(world.count(Kind::UpdateMachine), 0);
}

#[test]
fn a_machine_that_waits_for_its_turn_says_how_many_are_before_it() {
    let mut world = edited();
    world.slot = full(37, 500);
    world.pass();
    assert_eq!(world.slot.has, SlotUse::Waits);
    assert_eq!(changed(&world.pass()), None, "it waits in the line already");
    assert_eq!(world.waits_for(), Some(WaitReason::HotUpdateBudget));
    assert!(message(&world).contains("37") && message(&world).contains("500"));
    let last = world.status().last_operation.unwrap();
    assert_ne!(last.type_, Some(MachineOperationType::Update), "nothing was begun");
    world.slot.free = 38;
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 1);
    assert_eq!(world.waits_for(), None);
}

#[test]
fn a_slot_is_taken_with_the_limit_that_was_observed() {
    let mut world = edited();
    world.slot.limit = 7;
    let taken = Action::UpdateSlot { wanted: SlotUse::Uses, limit: Some(7) };
    assert!(world.pass().actions.contains(&taken));
}

#[test]
fn a_slot_of_an_update_that_runs_already_is_taken_whatever_the_limit() {
    let mut world = edited();
    world.pass();
    world.slot = full(3, 1);
    let taken = Action::UpdateSlot { wanted: SlotUse::Uses, limit: None };
    assert!(world.pass().actions.contains(&taken));
}

#[test]
fn a_slot_is_kept_while_an_update_runs_and_given_back_when_it_is_over() {
    let mut world = edited();
    world.pass();
    assert_eq!(world.slot.has, SlotUse::Uses);
    world.pass();
    assert_eq!(world.slot.has, SlotUse::Uses, "in flight");
    world.answer();
    world.pass();
    assert_eq!(world.slot.has, SlotUse::None);
}

#[test]
fn a_slot_is_kept_while_a_lost_outcome_is_looked_up() {
    let mut world = edited();
    world.pass();
    world.lose_operation();
    world.pass();
    assert_eq!(world.slot.has, SlotUse::Uses, "the read");
    assert_eq!(world.sent.last().unwrap().kind(), Kind::GetMachineStatus);
    world.answer();
    world.pass();
    assert_eq!(world.slot.has, SlotUse::Uses, "the update again");
    assert_eq!(world.sent.last().unwrap().kind(), Kind::UpdateMachine);
}

#[test]
fn an_update_that_has_to_be_tried_again_gives_its_slot_to_the_next_one() {
    for certainty in [Certainty::NotApplied, Certainty::Partial, Certainty::Unknown] {
        let mut world = edited();
        world.pass();
        world.fail(ErrorCode::Unavailable, certainty);
        world.pass();
        assert_eq!(world.slot.has, SlotUse::None, "{certainty:?}");
    }
}

#[test]
fn a_machine_that_is_deleted_meanwhile_leaves_the_line() {
    let mut world = edited();
    world.slot = full(0, 1);
    world.pass();
    assert_eq!(world.slot.has, SlotUse::Waits);
    world.delete();
    world.pass();
    assert_eq!(world.slot.has, SlotUse::None);
}

#[test]
fn the_driver_is_asked_about_the_class_before_anything_is_sent() {
    let mut world = edited();
    world.review = ReviewView::NotAsked;
    let plan = world.pass();
    let question = asked(&plan).expect("a question");
    assert_eq!(question.old_spec, r#"{"size":1,"tags":{"a":"1"}}"#);
    assert_eq!(question.driver, "fake 1");
    world.review = ReviewView::Asked;
    assert_eq!(asked(&world.pass()), None);
    assert_eq!(world.waits_for(), Some(WaitReason::ClassReview));
    assert_eq!(world.count(Kind::UpdateMachine), 0);
    world.review = ReviewView::Known(ClassReview { hot: true, ..ClassReview::default() });
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 1);
}

#[test]
fn a_driver_without_validate_class_is_not_asked() {
    let mut world = edited();
    world.review = ReviewView::NotAsked;
    world.kinds.remove(&Kind::ValidateClass);
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 1);
}

#[test]
fn a_change_that_the_driver_does_not_call_hot_is_refused_and_never_sent() {
    let mut world = edited();
    world.review = ReviewView::Known(ClassReview {
        fixed_paths: vec!["image".to_owned(), "volumes[0].size".to_owned()],
        ..ClassReview::default()
    });
    world.settle();
    let status = world.status();
    assert_eq!(world.count(Kind::UpdateMachine), 0);
    let wait = status.waiting_for.unwrap();
    assert_eq!(wait.reason, WaitReason::HotUpdateRefused);
    assert_eq!(status.hot_update.unwrap().state, HotUpdateState::Refused);
    assert_ne!(status.last_operation.unwrap().type_, Some(MachineOperationType::Update));
    let type_ = MachineConditionType::HotUpdateRefused;
    let shown = status.conditions.iter().find(|one| one.type_ == type_.as_str()).unwrap();
    let text = shown.message.as_deref().unwrap();
    assert!(text.contains("image; volumes[0].size") && text.contains("revision"), "{text}");
    assert_eq!(wait.message.as_deref(), Some(text));
    assert!(world.happened(EventReason::HotUpdateRefused));
    let events = world.events.len();
    world.later(100_000);
    world.settle();
    assert_eq!(world.events.len(), events, "said once");
}

#[test]
fn a_refusal_by_review_holds_although_an_earlier_update_failed_half_way() {
    let mut world = edited();
    world.pass();
    world.fail(ErrorCode::Unavailable, Certainty::Partial);
    world.pass();
    world.later(60);
    world.edit_class(json!({ "size": 2 }));
    world.review = ReviewView::Known(ClassReview::default());
    world.settle();
    let events = world.events.len();
    world.settle();
    assert_eq!(world.events.len(), events, "it does not go round in a circle");
    assert!(world.status().hot_update.unwrap().dirty, "the half update is not forgotten");
    world.edit_class(json!({ "size": 1, "tags": { "a": "1" } }));
    world.settle();
    assert_eq!(world.instances[0].spec, r#"{"size":1,"tags":{"a":"1"}}"#);
    assert_eq!(world.status().hot_update, None);
}

#[test]
fn a_class_that_the_driver_finds_wrong_reaches_no_instance_and_says_why() {
    let mut world = edited();
    world.review = ReviewView::Known(ClassReview {
        violations: vec![("size".to_owned(), "must be at most 9".to_owned())],
        hot: true,
        ..ClassReview::default()
    });
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 0);
    assert_eq!(world.waits_for(), Some(WaitReason::InvalidSpec));
    assert!(message(&world).contains("size: must be at most 9"), "{}", message(&world));
}

#[test]
fn a_driver_that_cannot_say_yet_is_waited_for() {
    let mut world = edited();
    world.review = ReviewView::Failed {
        reason: WaitReason::DriverRetry,
        message: "ValidateClass: Unavailable: no".to_owned(),
    };
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::DriverRetry));
    assert_eq!(world.count(Kind::UpdateMachine), 0);
}

#[test]
fn a_machine_without_a_last_applied_spec_asks_about_the_class_alone() {
    let mut world = World::running();
    world.machine_mut().metadata.annotations = None;
    world.review = ReviewView::NotAsked;
    let plan = world.pass();
    let question = asked(&plan).expect("a question");
    assert_eq!(question.old_spec, "");
    world.review = ReviewView::Known(ClassReview::default());
    world.settle();
    assert_eq!(world.count(Kind::UpdateMachine), 1, "of no meaning without an old spec");
}
