//! Effects of a driver's own report on an instance.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use ostler_api::{
    driver::{ErrorCode, OperationKind as Kind},
    hint::{Hint, HintKind},
    machine::{FailureReason, MachinePhase, NoticeReason},
};
use ostler_lifecycle::{
    hint::HintView,
    operation::OperationView,
    plan::EventReason,
    snapshot::{NodeView, TargetView},
};

use crate::machine::world::World;

fn tell(world: &mut World, kind: HintKind) {
    let hint = Hint {
        kind,
        provider_id: "".into(),
        cluster_id: String::new(),
        machine_uid: "".into(),
        effective_in: Some(Duration::from_mins(2)),
        message: "it says so".to_owned(),
    };
    world.hint.get_or_insert_with(HintView::default).add(&hint, world.now);
}

/// How many reads a hint led to in the next pass.
fn reads(world: &mut World, kind: HintKind) -> usize {
    tell(world, kind);
    let before = world.count(Kind::GetMachineStatus);
    world.pass();
    world.count(Kind::GetMachineStatus) - before
}

fn joining() -> World {
    let mut world = World::new();
    world.settle();
    world
}

fn failed() -> World {
    let mut world = World::running();
    world.node_is("Unknown");
    world.pass();
    world.later(600);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    world
}

fn creating() -> World {
    let mut world = World::new();
    world.pass();
    world.refuse(ErrorCode::Unavailable);
    world.pass();
    world
}

fn deleting() -> World {
    let mut world = World::running();
    world.delete();
    world.node = NodeView::Absent;
    world
}

#[test]
fn a_hint_leads_to_one_look_where_a_machine_rests_and_to_none_where_it_asks_by_itself() {
    for kind in [HintKind::Gone, HintKind::Changed, HintKind::Termination, HintKind::Maintenance] {
        assert_eq!(reads(&mut creating(), kind), 0, "creating {kind:?}");
        assert_eq!(reads(&mut joining(), kind), 1, "joining {kind:?}");
        assert_eq!(reads(&mut failed(), kind), 0, "failed {kind:?}");
        assert_eq!(reads(&mut World::running(), kind), 1, "running {kind:?}");
    }
    let mut world = deleting();
    tell(&mut world, HintKind::Gone);
    world.settle();
    assert_eq!(world.hint, None);
    assert!(world.machine.is_none(), "the deletion goes on as ever");
}

#[test]
fn a_running_machine_whose_instance_is_gone_fails_though_its_node_still_looks_healthy() {
    let mut world = World::running();
    world.instances.clear();
    tell(&mut world, HintKind::Gone);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert_eq!(world.status().failure_reason, Some(FailureReason::InstanceMissing));
    assert_eq!(world.creates, 1, "nothing is made in its place");
    assert_eq!(world.hint, None);
}

#[test]
fn a_hint_is_no_evidence() {
    for kind in [HintKind::Gone, HintKind::Changed, HintKind::Termination, HintKind::NoticeOver] {
        let mut world = World::running();
        tell(&mut world, kind);
        world.settle();
        assert_eq!(world.phase(), MachinePhase::Running, "{kind:?}");
        assert_eq!(world.hint, None, "it was looked into");
    }
}

/// A hint of this kind, and a look that the driver could not answer.
fn failed_look(kind: HintKind) -> World {
    let mut world = World::running();
    world.instances.clear();
    tell(&mut world, kind);
    world.pass();
    world.refuse(ErrorCode::Unavailable);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Running, "it proves nothing");
    world
}

#[test]
fn that_an_instance_of_before_is_gone_says_nothing_of_the_one_that_was_made_just_now() {
    let mut world = World::running();
    tell(&mut world, HintKind::Gone);
    world.hint.as_mut().unwrap().lost = Some("fake:///other".into());
    world.instances.clear();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running, "lists may lag behind the create");
}

#[test]
fn a_look_that_fails_is_not_repeated_unless_the_instance_is_said_to_be_gone() {
    let mut world = failed_look(HintKind::Changed);
    assert_eq!(world.hint, None);
    let before = world.count(Kind::GetMachineStatus);
    world.later(130);
    world.pass();
    assert_eq!(world.count(Kind::GetMachineStatus), before);
}

#[test]
fn a_look_at_an_instance_that_is_said_to_be_gone_is_repeated_soon_if_it_fails() {
    let mut world = failed_look(HintKind::Gone);
    let before = world.count(Kind::GetMachineStatus);
    world.pass();
    assert_eq!(world.count(Kind::GetMachineStatus), before, "not at once");
    world.later(2);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert_eq!(world.hint, None);
}

#[test]
fn a_driver_that_cannot_look_is_asked_five_times_for_one_hint() {
    let mut world = World::running();
    tell(&mut world, HintKind::Gone);
    let before = world.count(Kind::GetMachineStatus);
    for _ in 0..10 {
        world.pass();
        if matches!(world.operation, OperationView::InFlight(_)) {
            world.refuse(ErrorCode::Unavailable);
        }
        world.pass();
        world.later(30);
    }
    assert_eq!(world.count(Kind::GetMachineStatus) - before, 5);
    assert_eq!((world.phase(), world.hint.clone()), (MachinePhase::Running, None));
}

#[test]
fn without_being_told_that_it_is_gone_an_instance_made_just_now_may_be_missing_in_a_list() {
    let mut world = World::running();
    let there = std::mem::take(&mut world.instances);
    tell(&mut world, HintKind::Changed);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    world.instances = there;
    world.later(130);
    world.settle();
    world.instances.clear();
    tell(&mut world, HintKind::Changed);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running, "one look proves nothing");
    world.later(60);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
}

#[test]
fn an_instance_made_just_now_that_a_look_does_not_find_is_looked_for_again_once_lists_have_caught_up()
 {
    let mut world = World::running();
    world.later(10);
    world.instances.clear();
    tell(&mut world, HintKind::Changed);
    world.settle();
    let looks = world.count(Kind::GetMachineStatus);
    for (later, expected) in [(60, 0), (49, 0), (1, 1)] {
        world.later(later);
        world.settle();
        assert_eq!(world.count(Kind::GetMachineStatus) - looks, expected, "{later} s later");
    }
    assert_eq!(world.phase(), MachinePhase::Failed, "two looks apart found none");
}

#[test]
fn a_look_that_finds_the_instance_takes_back_that_it_was_missed() {
    let mut world = World::running();
    world.later(130);
    for _ in 0..3 {
        let instances = std::mem::take(&mut world.instances);
        tell(&mut world, HintKind::Changed);
        world.settle();
        world.instances = instances;
        world.later(60);
        world.settle();
        assert_eq!((world.phase(), world.hint.clone()), (MachinePhase::Running, None));
    }
}

#[test]
fn an_absence_that_proves_nothing_fails_nothing() {
    let mut world = World::running();
    world.by_name = true;
    let status = world.machine_mut().status.as_mut().unwrap();
    status.conditions.retain(|one| one.type_ != "InstanceCreated");
    status.creation_started_at = None;
    world.instances.clear();
    tell(&mut world, HintKind::Gone);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn a_hint_that_comes_while_a_driver_works_is_looked_into_afterwards() {
    let mut world = World::running();
    tell(&mut world, HintKind::Changed);
    world.pass();
    tell(&mut world, HintKind::Gone);
    world.instances.clear();
    world.pass();
    assert_eq!(world.hint.as_ref().map(|hint| hint.asked), Some(false));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
}

#[test]
fn a_driver_that_cannot_read_an_instance_is_not_asked() {
    let mut world = World::running();
    world.kinds.remove(&Kind::GetMachineStatus);
    assert_eq!(reads(&mut world, HintKind::Gone), 0);
    assert_eq!(world.hint, None);
}

#[test]
fn no_machine_fails_for_a_hint_while_an_api_server_is_away() {
    let mut world = World::running();
    world.api.frozen = true;
    world.instances.clear();
    tell(&mut world, HintKind::Gone);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn a_machine_without_a_node_hears_of_its_instance_only_so() {
    let mut world = World::new();
    world.target = TargetView::None;
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Available);
    world.instances.clear();
    tell(&mut world, HintKind::Gone);
    world.settle();
    assert_eq!(world.status().failure_reason, Some(FailureReason::InstanceMissing));
}

#[test]
fn a_notice_is_shown_with_its_time_and_once_and_goes_when_it_is_over() {
    let mut world = World::running();
    tell(&mut world, HintKind::Termination);
    world.settle();
    let shown = world.status().instance_notice.unwrap();
    assert_eq!(shown.reason, NoticeReason::TerminationNotice);
    assert_eq!(shown.effective_at.unwrap().0, crate::machine::world::seconds(world.now, 120));
    assert_eq!(shown.message.as_deref(), Some("it says so"));
    let count = |world: &World| {
        world.events.iter().filter(|it| it.reason == EventReason::TerminationNotice).count()
    };
    assert_eq!(count(&world), 1);
    world.later(1);
    tell(&mut world, HintKind::Termination);
    world.settle();
    tell(&mut world, HintKind::Maintenance);
    world.settle();
    assert_eq!(count(&world), 1);
    assert_eq!(world.phase(), MachinePhase::Running, "it runs on until its instance is gone");
    tell(&mut world, HintKind::NoticeOver);
    world.settle();
    assert_eq!(world.status().instance_notice, None);
}

/// Of these owners, and with this word of the class.
fn announced(kind: HintKind, owner: Option<&str>, drain: Option<bool>) -> World {
    let mut world = World::running();
    world.class.as_mut().unwrap().spec.drain_on_notice = drain;
    world.machine_mut().metadata.owner_references = owner.map(|kind| {
        let (name, uid) = ("o".to_owned(), "o-uid".to_owned());
        let (kind, controller) = (kind.to_owned(), Some(true));
        vec![OwnerReference { kind, name, uid, controller, ..OwnerReference::default() }]
    });
    tell(&mut world, kind);
    world.settle();
    world
}

#[test]
fn the_owner_replaces_a_machine_for_the_end_of_its_instance_unless_the_class_says_no() {
    use HintKind::{Maintenance, Termination};
    for (kind, owner, drain, replaces, says) in [
        (Termination, Some("MachineSet"), None, true, "its owner replaces it"),
        (Termination, Some("MachinePool"), Some(true), true, "its owner replaces it"),
        (Termination, Some("MachineReserve"), None, true, "its owner replaces it"),
        (Termination, Some("MachineSet"), Some(false), false, "as drainOnNotice of its class says"),
        (Termination, Some("Other"), None, false, "delete it to drain its node before"),
        (Termination, None, None, false, "delete it to drain its node before"),
        (Maintenance, Some("MachineSet"), Some(true), false, "it says so"),
    ] {
        let world = announced(kind, owner, drain);
        let case = format!("{kind:?} {owner:?} {drain:?}");
        assert_eq!(world.status().instance_notice.unwrap().replaces, replaces, "{case}");
        let told = world.events.last().unwrap();
        assert!(told.message.ends_with(says), "{case}: {}", told.message);
    }
}

#[test]
fn a_notice_that_is_called_off_while_the_machine_is_deleted_is_forgotten() {
    let mut world = announced(HintKind::Termination, Some("MachineSet"), None);
    world.delete();
    tell(&mut world, HintKind::NoticeOver);
    world.pass();
    assert_eq!(world.status().instance_notice, None);
    tell(&mut world, HintKind::Termination);
    world.pass();
    assert_eq!(world.status().instance_notice, None, "it goes anyway");
}
