//! Machines that a MachineHealthCheck found unhealthy.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::{
    machine::{FailureReason, MachinePhase, WaitReason},
    machine_health_check::{NodeConditionIs, UnhealthyMark, UnhealthyReason},
    names::annotation::{SKIP_REMEDIATION, UNHEALTHY},
    names::label,
};
use ostler_lifecycle::{
    outage::{ApiView, Reachability},
    plan::{Action, EventReason},
    replacement::{Members, Sibling, SiblingState, Siblings},
    snapshot::NodeView,
};

use crate::machine::{
    in_place::{select, set},
    pooled::emptied,
    world::{World, seconds},
};

fn mark(world: &mut World, reason: UnhealthyReason, condition: Option<(&str, &str)>) {
    let mark = UnhealthyMark {
        check: "web".to_owned(),
        reason,
        condition: condition
            .map(|(type_, status)| NodeConditionIs { type_: type_.into(), status: status.into() }),
        since: Time(world.now),
        message: "it is sick".to_owned(),
    };
    annotate(world, UNHEALTHY, Some(serde_json::to_string(&mark).unwrap()));
}

fn annotate(world: &mut World, key: &str, value: Option<String>) {
    let all = world.machine_mut().metadata.annotations.get_or_insert_default();
    match value {
        Some(value) => all.insert(key.to_owned(), value),
        None => all.remove(key),
    };
}

fn sick(world: &mut World) {
    mark(world, UnhealthyReason::UnhealthyNode, Some(("KernelDeadlock", "Maybe")));
    let mut node = world.node().clone();
    let conditions = node.status.as_mut().unwrap().conditions.as_mut().unwrap();
    let mut deadlock = conditions.first().unwrap().clone();
    (deadlock.type_, deadlock.status) = ("KernelDeadlock".to_owned(), "Maybe".to_owned());
    conditions.push(deadlock);
    world.node = NodeView::Known(Arc::new(node));
}

#[test]
fn a_marked_machine_fails_without_its_health_timeout_after_a_last_look_at_its_node() {
    let mut world = World::running();
    world.machine_mut().spec.disable_health_timeout = Some(true);
    world.machine_mut().spec.node_conditions = Some("None".to_owned());
    sick(&mut world);
    let plan = world.pass();
    let confirms = |action: &Action| matches!(action, Action::ConfirmNode { .. });
    assert!(plan.actions.iter().any(confirms), "{plan:#?}");
    assert_eq!(world.phase(), MachinePhase::Failed);
    let status = world.status();
    assert_eq!(status.failure_reason, Some(FailureReason::HealthCheck));
    let message = status.failure_message.unwrap();
    assert_eq!(message, "machine health check web: it is sick");
    assert!(world.happened(EventReason::MachineFailed));
}

#[test]
fn a_mark_that_is_not_true_any_more_does_nothing() {
    let mut world = World::running();
    mark(&mut world, UnhealthyReason::UnhealthyNode, Some(("Ready", "Unknown")));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    mark(&mut world, UnhealthyReason::NodeDeleted, None);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    annotate(&mut world, UNHEALTHY, Some("sick".to_owned()));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn a_machine_whose_node_is_gone_fails_without_a_timeout() {
    let mut world = World::running();
    world.node = NodeView::Absent;
    mark(&mut world, UnhealthyReason::NodeDeleted, None);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert_eq!(world.status().failure_reason, Some(FailureReason::HealthCheck));
}

#[test]
fn a_machine_that_got_no_node_in_the_time_of_a_check_fails_and_runs_on_if_it_comes_after_all() {
    let mut world = World::new();
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::NodeNotJoined));
    mark(&mut world, UnhealthyReason::NodeStartupTimeout, None);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert_eq!(world.status().failure_reason, Some(FailureReason::HealthCheck));
    world.join();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn a_machine_that_failed_for_a_check_runs_on_when_that_is_over_and_not_before() {
    let mut world = World::running();
    world.machine_mut().spec.node_conditions = Some("None".to_owned());
    sick(&mut world);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed, "its node is ready, and still sick");
    annotate(&mut world, UNHEALTHY, None);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn a_marked_machine_waits_for_the_replacement_budget_of_its_deployment() {
    let mut world = World::running();
    world.node_is("Unknown");
    mark(&mut world, UnhealthyReason::UnhealthyNode, Some(("Ready", "Unknown")));
    let other = Sibling {
        name: "m2".to_owned(),
        state: SiblingState::Failed,
        holds_until: seconds(world.now, 600),
    };
    world.siblings = Siblings {
        deployment: Some("default/pool".to_owned()),
        in_flight: vec![other],
        ..Siblings::default()
    };
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    assert_eq!(world.waits_for(), Some(WaitReason::ReplacementBudget));
    world.siblings.members = Members { wanted: 4, living: 4, unhealthy: 3, in_flight: 1 };
    world.later(500);
    world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::MassFailure));
    world.siblings =
        Siblings { deployment: Some("default/pool".to_owned()), ..Siblings::default() };
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert_eq!(world.status().failure_reason, Some(FailureReason::HealthCheck));
}

#[test]
fn no_marked_machine_fails_while_an_api_server_is_away_or_nodes_could_not_report_yet() {
    let mut api = Reachability::new(Duration::from_secs(30), None, World::new().now);
    for joined in [true, false] {
        let mut world = if joined { World::running() } else { World::new() };
        if joined {
            world.node = NodeView::Absent;
            mark(&mut world, UnhealthyReason::NodeDeleted, None);
        } else {
            world.settle();
            mark(&mut world, UnhealthyReason::NodeStartupTimeout, None);
        }
        world.api = ApiView { down_since: Some(world.now), ..ApiView::default() };
        world.pass();
        assert_ne!(world.phase(), MachinePhase::Failed, "{joined}");
        api.answered(world.now);
        world.api = api.view(world.now);
        world.pass();
        assert_ne!(world.phase(), MachinePhase::Failed, "{joined}");
        world.api = ApiView::default();
        world.pass();
        assert_eq!(world.phase(), MachinePhase::Failed, "{joined}");
    }
}

#[test]
fn a_machine_that_checks_are_to_skip_does_not_fail_for_a_mark() {
    let mut world = World::running();
    sick(&mut world);
    world.machine_mut().spec.node_conditions = Some("None".to_owned());
    annotate(&mut world, SKIP_REMEDIATION, Some(String::new()));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

/// It was never replaced, and counted as unhealthy for good: with `maxUnhealthy: 1` no other was replaced either.
#[test]
fn a_marked_machine_whose_update_in_place_failed_fails_although_its_node_is_ready_and_not_before() {
    for pooled in [false, true] {
        let mut world = if pooled { emptied() } else { World::running() };
        select(&mut world);
        world.settle();
        world.machine_mut().spec.node_conditions = Some("None".to_owned());
        sick(&mut world);
        world.settle();
        assert_eq!(world.phase(), MachinePhase::InPlaceUpdating, "pool: {pooled}");
        annotate(&mut world, UNHEALTHY, None);
        if !pooled {
            set(&mut world, label::UPDATE_RESULT, Some("failed"));
        }
        world.later(1200);
        world.settle();
        assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed, "pool: {pooled}");
        sick(&mut world);
        let plan = world.pass();
        let confirms = |action: &Action| matches!(action, Action::ConfirmNode { .. });
        assert!(plan.actions.iter().any(confirms), "pool: {pooled}");
        assert_eq!(world.phase(), MachinePhase::Failed, "pool: {pooled}");
        assert_eq!(world.status().failure_reason, Some(FailureReason::HealthCheck));
    }
}
