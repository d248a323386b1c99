//! Instances gone before their Node joined.

use std::time::Duration;

use ostler_api::{
    ProviderId,
    driver::{Certainty, ErrorCode, OperationKind as Kind},
    hint::{Hint, HintKind},
    machine::{FailureReason, LifecyclePhase, MachineConditionType, MachinePhase, WaitReason},
};
use ostler_lifecycle::{
    hint::HintView,
    operation::{Failure, OperationView, Power},
    plan::EventReason,
    snapshot::TargetView,
};

use crate::machine::world::{PROVIDER_ID, World, looks_again};

fn joining() -> World {
    let mut world = World::new();
    world.machine_mut().spec.creation_timeout = Some("3h".into());
    world.settle();
    world
}

fn tell(world: &mut World, kind: HintKind, id: &str) {
    let hint = Hint {
        kind,
        provider_id: id.into(),
        cluster_id: String::new(),
        machine_uid: "".into(),
        effective_in: None,
        message: String::new(),
    };
    world.hint.get_or_insert_with(HintView::default).add(&hint, world.now);
}

/// The infrastructure takes the instance, and the driver says so.
fn lose(world: &mut World) {
    world.instances.clear();
    tell(world, HintKind::Gone, PROVIDER_ID);
    world.settle();
}

/// In how many seconds the next one is made.
fn pause(world: &mut World) -> i64 {
    let plan = world.pass();
    looks_again(world, &plan).unwrap()
}

#[test]
fn the_first_lost_instance_is_made_again_at_once_and_the_next_ones_after_growing_pauses() {
    let mut world = joining();
    lose(&mut world);
    assert_eq!(world.creates, 2, "the first time at once");
    for (count, wait) in [(2, 60), (3, 120), (4, 240)] {
        lose(&mut world);
        assert_eq!(world.creates, count, "not yet");
        assert_eq!(world.waits_for(), Some(WaitReason::InstanceMissing));
        let status = world.status();
        assert_eq!(status.phase, Some(LifecyclePhase::Provisioning));
        let losses = status.losses.unwrap();
        let id = losses.provider_id.as_ref().map(ProviderId::as_str);
        assert_eq!((losses.count, id), (i32::try_from(count).unwrap(), Some(PROVIDER_ID)));
        assert_eq!(losses.message.as_deref(), Some("NotFound: none"), "the driver's last word");
        let said = status.waiting_for.unwrap().message.unwrap();
        assert!(said.contains(&format!("lost so far: {count} instances")), "{said}");
        assert!(said.contains("the driver said: NotFound: none"), "{said}");
        assert_eq!(pause(&mut world), wait);
        world.later(wait - 1);
        world.settle();
        assert_eq!(world.creates, count, "not before its time");
        world.later(1);
        world.settle();
        assert_eq!(world.creates, count + 1);
    }
    lose(&mut world);
    let status = world.status();
    assert_eq!((world.phase(), world.creates), (MachinePhase::Failed, 5));
    assert_eq!(status.failure_reason, Some(FailureReason::InstanceMissing));
    let last = status.last_operation.unwrap();
    assert_eq!(last.error_code.as_deref(), Some("NotFound"), "autoscalers look for a code");
    assert_eq!(world.events.iter().filter(|it| it.reason == EventReason::InstanceLost).count(), 5);
}

#[test]
fn the_number_of_losses_survives_a_core_that_dies_and_goes_when_the_node_has_joined() {
    let mut world = joining();
    lose(&mut world);
    world.forget_unwritten();
    lose(&mut world);
    assert_eq!(world.status().losses.unwrap().count, 2);
    world.later(60);
    world.settle();
    world.join();
    world.settle();
    assert_eq!((world.phase(), world.status().losses), (MachinePhase::Running, None));
}

#[test]
fn another_class_ends_the_pause_after_a_loss() {
    let mut world = joining();
    lose(&mut world);
    lose(&mut world);
    assert_eq!(world.creates, 2);
    world.edit_class(serde_json::json!({ "size": 2 }));
    world.settle();
    assert_eq!(world.creates, 3);
}

#[test]
fn what_is_made_in_place_of_a_lost_instance_is_initialized_too() {
    let mut world = joining();
    lose(&mut world);
    assert_eq!(world.count(Kind::InitializeMachine), 2);
    assert!(world.instances[0].initialized);
    let shown = world.status().conditions;
    let made = MachineConditionType::InstanceCreated;
    let made = shown.iter().find(|it| it.type_ == made.as_str()).unwrap();
    assert_eq!(made.status, "True");
}

#[test]
fn without_an_event_the_driver_has_the_time_in_which_its_lists_may_lag_and_the_wait_says_so() {
    let mut world = joining();
    world.instances.clear();
    world.later(61);
    world.settle();
    assert_eq!(world.creates, 1, "its lists may lag");
    assert_eq!(world.waits_for(), Some(WaitReason::InstanceMissing), "and not NodeNotJoined");
    assert_eq!(pause(&mut world), 59);
    world.later(59);
    world.settle();
    assert_eq!(world.creates, 2);
}

/// The event and the answer may come from one list that does not show yet what was made.
#[test]
fn an_instance_that_a_driver_calls_gone_while_its_lists_may_lag_is_not_made_a_second_time() {
    for (lag, outcome_lost, creates) in
        [(None, false, 2), (Some(0), false, 2), (Some(20), false, 1), (Some(20), true, 1)]
    {
        let mut world = World::new();
        world.list_lag = lag.map(Duration::from_secs);
        if outcome_lost {
            for _ in 0..4 {
                world.pass();
                if matches!(&world.operation, OperationView::InFlight(it) if it.kind == Kind::CreateMachine)
                {
                    break;
                }
                world.answer();
            }
            world.carry_out().unwrap();
            world.fail(ErrorCode::Canceled, Certainty::Partial);
        }
        world.settle();
        assert_eq!(world.creates, 1);
        world.later(3);
        let made = std::mem::take(&mut world.instances);
        tell(&mut world, HintKind::Gone, PROVIDER_ID);
        world.settle();
        assert_eq!(world.creates, creates, "{lag:?}");
        if creates == 1 {
            world.instances = made;
            world.later(200);
            world.settle();
            assert_eq!(world.creates, 1, "INV-1: it was there");
        }
    }
}

#[test]
fn that_another_instance_is_gone_or_that_this_one_changed_proves_nothing() {
    for (kind, id) in
        [(HintKind::Gone, "fake:///older"), (HintKind::Gone, ""), (HintKind::Changed, PROVIDER_ID)]
    {
        let mut world = joining();
        world.instances.clear();
        tell(&mut world, kind, id);
        world.settle();
        assert_eq!(world.creates, 1, "{kind:?} {id}: lists may lag behind the create");
        assert_eq!(world.waits_for(), Some(WaitReason::InstanceMissing));
    }
}

#[test]
fn an_instance_that_is_gone_whenever_it_is_to_be_initialized_is_a_loss_as_well() {
    let mut world = World::new();
    world.machine_mut().spec.creation_timeout = Some("3h".into());
    let mut creates = Vec::new();
    for _ in 0..400 {
        if world.phase() == MachinePhase::Failed {
            break;
        }
        world.pass();
        let sent = world.sent.last().map(ostler_lifecycle::operation::Dispatch::kind);
        if !matches!(world.operation, ostler_lifecycle::operation::OperationView::InFlight(_)) {
            world.later(15);
            continue;
        }
        if sent == Some(Kind::CreateMachine) {
            creates.push(world.now);
        }
        if sent == Some(Kind::InitializeMachine) {
            world.instances.clear();
        }
        world.answer();
    }
    assert_eq!((world.phase(), creates.len()), (MachinePhase::Failed, 5), "{creates:?}");
    assert_eq!(world.status().failure_reason, Some(FailureReason::InstanceMissing));
}

#[test]
fn the_creation_timeout_tells_what_was_lost_before() {
    let mut world = joining();
    world.machine_mut().spec.creation_timeout = Some("90s".into());
    lose(&mut world);
    lose(&mut world);
    let plan = world.pass();
    assert_eq!(looks_again(&world, &plan), Some(60));
    world.fail_next_create(90);
    assert_eq!(world.phase(), MachinePhase::Failed);
    let said = world.status().failure_message.unwrap();
    assert!(said.contains("lost: 2 instances; the driver said: NotFound: none"), "{said}");
}

impl World {
    /// The next create fails, and then so many seconds pass.
    fn fail_next_create(&mut self, seconds: i64) {
        self.later(60);
        self.pass();
        self.answer();
        self.pass();
        self.reply(Err(Failure::new(ErrorCode::Internal, Certainty::NotApplied, "no")));
        self.pass();
        self.later(seconds - 60);
        self.pass();
    }
}

// --- where there are no Nodes ---

/// A machine without a cluster for its Node.
fn without_nodes() -> World {
    let mut world = World::new();
    world.target = TargetView::None;
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Available);
    world
}

/// The driver says now that the instance is stopped, or runs.
fn power(world: &mut World, power: Power) {
    world.power = power;
    tell(world, HintKind::Changed, PROVIDER_ID);
    world.settle();
}

#[test]
fn an_instance_that_its_driver_calls_stopped_is_not_available() {
    for off in [Power::Stopped, Power::Deleting] {
        let mut world = without_nodes();
        power(&mut world, off);
        assert_eq!(world.phase(), MachinePhase::Unknown, "{off:?}");
        assert_eq!(world.waits_for(), Some(WaitReason::InstanceNotReady), "{off:?}");
        assert_eq!(world.status().phase, Some(LifecyclePhase::Provisioned), "it never was a Node");
        power(&mut world, Power::On);
        assert_eq!((world.phase(), world.waits_for()), (MachinePhase::Available, None));
    }
}

#[test]
fn one_that_stays_stopped_fails_after_the_health_timeout_and_can_be_replaced() {
    let mut world = without_nodes();
    power(&mut world, Power::Stopped);
    world.later(599);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    world.later(1);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert_eq!(world.status().failure_reason, Some(FailureReason::HealthTimeout));
}

#[test]
fn one_that_was_made_and_does_not_run_is_not_available_before_it_does() {
    let mut world = World::new();
    world.target = TargetView::None;
    world.power = Power::Stopped;
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Pending);
    assert_eq!(world.waits_for(), Some(WaitReason::InstanceNotReady));
    world.power = Power::On;
    world.later(60);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Available);
}
