use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Taint;
use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind as Kind},
    machine::{
        FailureReason, LifecyclePhase, MachineOperationType, MachinePhase, MachineState, WaitReason,
    },
    names,
};
use ostler_lifecycle::{
    operation::{Failure, InstanceRecord, Success},
    outage::{ApiView, Reachability},
    plan::EventReason,
    snapshot::NodeView,
};

use crate::machine::world::{self, World, looks_again, seconds};

#[test]
fn a_machine_whose_node_is_lost_is_unknown_and_then_failed() {
    let mut world = World::running();
    world.node_is("Unknown");
    let plan = world.pass();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    assert_eq!(world.waits_for(), Some(WaitReason::NodeUnhealthy));
    assert_eq!(world.status().phase, Some(LifecyclePhase::Running));
    assert_eq!(looks_again(&world, &plan), Some(600));
    assert!(world.happened(EventReason::NodeUnhealthy));
    world.later(599);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    world.later(1);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert_eq!(world.status().failure_reason, Some(FailureReason::HealthTimeout));
}

#[test]
fn an_instance_that_is_gone_soon_after_its_creation_is_missed_as_soon_as_lists_have_caught_up() {
    let mut world = World::running();
    world.instances.clear();
    world.node_is("Unknown");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Unknown, "a list may lag behind the creation");
    world.later(120);
    world.settle();
    world.later(60);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert_eq!(world.status().failure_reason, Some(FailureReason::InstanceMissing));
    assert_eq!(world.creates, 1);
}

#[test]
fn a_driver_that_finds_no_instance_once_and_then_does_fails_no_machine_whose_node_falls_silent() {
    let mut world = World::running();
    world.later(180);
    world.node_is("Unknown");
    let instances = std::mem::take(&mut world.instances);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    world.instances = instances;
    world.later(59);
    let plan = world.pass();
    assert_eq!((plan.dispatch.is_some(), looks_again(&world, &plan)), (false, Some(1)));
    world.later(1);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Unknown, "it is there");
    world.later(540);
    world.settle();
    assert_eq!(world.status().failure_reason, Some(FailureReason::HealthTimeout), "in its time");
}

#[test]
fn a_failed_machine_that_nobody_replaced_runs_on_when_its_node_is_healthy_again() {
    let mut world = World::running();
    world.node_is("Unknown");
    world.pass();
    world.later(600);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    world.node_is("True");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert_eq!(world.status().failure_reason, None);
    let last = world.status().last_operation.unwrap();
    assert_eq!(last.type_, Some(MachineOperationType::HealthCheck));
}

#[test]
fn a_machine_that_failed_for_its_instance_stays_failed_whatever_its_node_says() {
    let mut world = World::running();
    world.node_is("Unknown");
    world.pass();
    world.later(600);
    world.pass();
    world.machine_mut().status.as_mut().unwrap().failure_reason = Some(FailureReason::DataLoss);
    world.node_is("True");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
}

#[test]
fn a_node_that_joins_late_is_welcome_once_its_critical_components_run() {
    let mut world = World::new();
    world.settle();
    world.later(1200);
    world.settle();
    assert_eq!(world.status().failure_reason, Some(FailureReason::JoinTimeout));
    let mut node = world::node("True", world.now);
    let taint = names::taint::CRITICAL_COMPONENTS_NOT_READY.to_owned();
    let taints = node.spec.as_mut().unwrap().taints.as_mut().unwrap();
    taints.push(Taint { key: taint, effect: "NoSchedule".to_owned(), ..Taint::default() });
    world.node = NodeView::Known(Arc::new(node));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
    world.join();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn a_node_that_recovers_in_time_is_running_again() {
    let mut world = World::running();
    world.node_is("False");
    world.settle();
    world.later(300);
    world.node_is("True");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert_eq!(world.last_state(), Some(MachineState::Successful));
    assert_eq!(world.waits_for(), None);
}

#[test]
fn the_health_timeout_of_the_machine_wins_and_can_be_switched_off() {
    let mut world = World::running();
    world.machine_mut().spec.health_timeout = Some("1m".into());
    world.node_is("False");
    let plan = world.pass();
    assert_eq!(looks_again(&world, &plan), Some(60));
    world.machine_mut().spec.disable_health_timeout = Some(true);
    world.later(100_000);
    let plan = world.pass();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    assert_eq!(world.waits_for(), Some(WaitReason::NodeUnhealthy), "and it says why");
    assert_eq!(looks_again(&world, &plan), None);
}

#[test]
fn a_node_object_that_vanished_makes_its_machine_unknown() {
    let mut world = World::running();
    world.node = NodeView::Absent;
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    assert_eq!(world.waits_for(), Some(WaitReason::NodeMissing));
    world.join();
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn a_node_that_was_not_looked_up_yet_is_not_gone() {
    let mut world = World::running();
    world.node = NodeView::Unknown;
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn the_conditions_of_the_node_stand_beside_ours() {
    let world = World::running();
    let status = world.status();
    let types: Vec<_> = status.conditions.iter().map(|one| one.type_.as_str()).collect();
    assert_eq!(types, ["Ready", "InstanceCreated", "InstanceInitialized"]);
}

#[test]
fn a_taint_that_comes_back_is_taken_away_again() {
    let mut world = World::running();
    world.join();
    world.settle();
    assert_eq!(world.node().spec.as_ref().unwrap().taints, None);
}

/// What a core that has always been there knows after `outages`, in seconds from now.
fn api(world: &World, outages: &[(i64, i64)]) -> Reachability {
    let start = world.now;
    let mut api = Reachability::new(Duration::from_secs(30), Some(start), start);
    for (from, to) in outages {
        api.answered(seconds(start, *from));
        api.silent(seconds(start, *from + 2));
        api.answered(seconds(start, *to));
    }
    api
}

#[test]
fn nobody_fails_while_an_api_server_is_down_and_the_outage_is_added_to_the_timeout() {
    let mut world = World::running();
    world.later(60);
    world.node_is("Unknown");
    world.pass();
    let mut down = api(&world, &[]);
    down.silent(world.now);
    world.later(3600);
    world.api = ApiView { cause: Some("Unauthorized".into()), ..down.view(world.now) };
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    let waiting = world.status().waiting_for.unwrap();
    assert_eq!(waiting.reason, WaitReason::ApiServerUnreachable);
    assert!(waiting.message.unwrap().ends_with("an API server does not answer (Unauthorized)"));
    down.answered(world.now);
    world.api = down.view(world.now);
    let plan = world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::ApiServerUnreachable));
    assert_eq!(looks_again(&world, &plan), Some(10), "nodes get time to report");
    world.later(10);
    world.api = down.view(world.now);
    let plan = world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::NodeUnhealthy));
    assert_eq!(looks_again(&world, &plan), Some(600), "the whole outage is given back");
    world.later(600);
    world.api = down.view(world.now);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
}

#[test]
fn an_api_server_that_flaps_slows_a_health_timeout_down_and_does_not_stop_it() {
    let mut world = World::running();
    world.node_is("Unknown");
    world.pass();
    // Every minute 20 s up, of which nodes get 10 s to report, and 40 s down.
    let flaps: Vec<_> = (0..60).map(|minute| (minute * 60 + 20, minute * 60 + 60)).collect();
    let (start, flapping) = (world.now, api(&world, &flaps));
    let mut look = |second: i64| {
        world.now = seconds(start, second);
        world.api = flapping.view(world.now);
        let past = world.api.outages.iter().copied().filter(|outage| outage.to <= world.now);
        world.api.outages = past.collect();
        world.pass();
        world.phase()
    };
    assert_eq!(look(59 * 60 + 15), MachinePhase::Unknown);
    assert_eq!(look(60 * 60 + 15), MachinePhase::Failed, "an hour of flapping is ten minutes");
}

#[test]
fn a_node_that_could_not_join_during_an_outage_has_its_time_afterwards() {
    let mut world = World::new();
    world.settings.join_check = Duration::from_hours(24);
    world.settle();
    let outage = api(&world, &[(60, 960)]);
    world.later(1200);
    world.api = outage.view(world.now);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Pending);
    world.later(920);
    world.settle();
    assert_eq!(world.status().failure_reason, Some(FailureReason::JoinTimeout));
}

#[test]
fn a_driver_is_asked_once_a_minute_for_an_instance_that_does_not_join_however_often_it_is_woken() {
    let mut world = World::new();
    world.settle();
    let before = world.count(Kind::GetMachineStatus);
    // Woken every second for ten minutes, as by a user who edits the machine.
    for _ in 0..600 {
        world.later(1);
        world.settle();
    }
    let asked = world.count(Kind::GetMachineStatus) - before;
    assert!((9..=10).contains(&asked), "{asked}");
    assert_eq!(world.waits_for(), Some(WaitReason::NodeNotJoined));
    // The last report is shown until the next one.
    world.later(60);
    world.pass();
    let fault = Failure::new(ErrorCode::Internal, Certainty::NotApplied, "disk broken");
    let record = InstanceRecord { fault: Some(Box::new(fault)), ..world.record() };
    world.reply(Ok(Success::Read(record)));
    world.pass();
    world.later(1);
    let plan = world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::InstanceFaulty));
    assert_eq!(looks_again(&world, &plan), Some(59));
    world.join();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn a_health_failure_is_confirmed_by_the_api_itself() {
    let mut world = World::running();
    world.node_is("Unknown");
    world.pass();
    world.later(600);
    let snapshot = world.snapshot();
    let plan = ostler_lifecycle::machine::plan(&snapshot);
    let first = plan.actions.first().map(ostler_lifecycle::plan::Action::name);
    assert_eq!(first, Some("ConfirmNode"));
}
