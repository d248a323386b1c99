use ostler_api::{
    driver::OperationKind as Kind,
    machine::{MachineStep, WaitReason},
    names,
};
use ostler_lifecycle::{
    plan::{Action, EventReason, PodRef},
    snapshot::{NodeView, Observed, PodView},
};

use crate::world::{World, looks_again, node, pod};

/// A cordoned node with these pods, and the machine being deleted.
fn draining(pods: Vec<PodView>) -> World {
    let mut world = World::running();
    world.pods = Observed::Known(pods);
    world.delete();
    world.pass();
    assert_eq!(world.step(), Some(MachineStep::CordonNode));
    world
}

fn names(actions: &[Action], of: fn(&Action) -> Option<&PodRef>) -> Vec<&str> {
    actions.iter().filter_map(of).map(|pod| pod.name.as_str()).collect()
}

fn evicted(actions: &[Action]) -> Vec<&str> {
    names(actions, |action| if let Action::Evict(pod) = action { Some(pod) } else { None })
}

fn deleted(actions: &[Action]) -> Vec<&str> {
    names(actions, |action| if let Action::DeletePod(pod) = action { Some(pod) } else { None })
}

#[test]
fn mirror_pods_and_daemon_pods_stay_and_nobody_waits_for_finished_ones() {
    let mirror = PodView { mirror: true, ..pod("mirror") };
    let daemon = PodView { daemon: true, ..pod("daemon") };
    let finished = PodView { finished: true, ..pod("job") };
    let mut world = draining(vec![mirror, daemon, finished, pod("web"), pod("db")]);
    let plan = world.pass();
    assert_eq!(evicted(&plan.actions), ["job", "web", "db"], "all that can leave, at once");
    assert_eq!(world.status().drain.unwrap().pods_left, 2);
    world.pods_end();
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn nothing_is_evicted_before_the_cordon_is_seen() {
    let mut world = World::running();
    world.pods = Observed::Known(vec![pod("web")]);
    world.delete();
    let plan = world.pass();
    assert!(evicted(&plan.actions).is_empty());
    assert_eq!(plan.dispatch, None);
}

#[test]
fn pods_that_terminate_are_waited_for_and_not_asked_again() {
    let mut world = draining(vec![PodView { terminating: true, ..pod("slow") }]);
    let plan = world.pass();
    assert!(evicted(&plan.actions).is_empty());
    assert_eq!(world.waits_for(), Some(WaitReason::PodsTerminating));
    assert_eq!(world.status().drain.unwrap().terminating, 1);
    assert_eq!(looks_again(&world, &plan), Some(7200), "only the deadline moves it");
}

#[test]
fn a_refused_eviction_is_shown_and_tried_again_after_its_time() {
    let mut world = draining(vec![pod("db"), pod("web")]);
    world.protected.insert("db".to_owned());
    world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::PodDisruptionBudget));
    let drain = world.status().drain.unwrap();
    assert_eq!((drain.pods_left, drain.blocked, drain.terminating), (2, 1, 1));
    assert_eq!(drain.examples, ["apps/db"]);

    world.pods_end();
    let soon = world.pass();
    assert!(evicted(&soon.actions).is_empty(), "an event does not make it a hot loop");
    assert_eq!(looks_again(&world, &soon), Some(5));
    world.later(5);
    world.protected.clear();
    let plan = world.pass();
    assert_eq!(evicted(&plan.actions), ["db"]);
    world.pods_end();
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn a_blocked_drain_writes_its_status_once() {
    let mut world = draining(vec![pod("db")]);
    world.protected.insert("db".to_owned());
    world.pass();
    let before = world.machine.clone();
    for _ in 0..10 {
        world.later(5);
        world.pass();
    }
    assert_eq!(world.machine, before);
}

#[test]
fn a_budget_that_never_allows_ends_with_the_deadline_and_force() {
    let mut world = draining(vec![pod("db")]);
    world.protected.insert("db".to_owned());
    world.machine_mut().spec.drain_timeout = Some("10m".into());
    world.later(599);
    world.settle_pods();
    assert_eq!(world.count(Kind::DeleteMachine), 0);
    world.later(1);
    let plan = world.pass();
    assert_eq!(deleted(&plan.actions), ["db"]);
    assert!(world.happened(EventReason::DrainForced));
    assert!(world.status().drain.unwrap().forced);
    assert_eq!(world.count(Kind::DeleteMachine), 1, "force waits for nobody");
}

#[test]
fn the_operator_can_ask_for_force_at_any_time() {
    let mut world = draining(vec![pod("db")]);
    world.protected.insert("db".to_owned());
    world.pass();
    let key = names::label::FORCE_DELETION.to_owned();
    world.machine_mut().metadata.labels.get_or_insert_default().insert(key, "True".to_owned());
    let plan = world.pass();
    assert_eq!(deleted(&plan.actions), ["db"]);
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn a_node_that_was_lost_long_ago_is_drained_by_force() {
    for (since, forced) in [(301, true), (200, false)] {
        let mut world = draining(vec![pod("db")]);
        let mut lost = node("Unknown", world.now);
        lost.spec.as_mut().unwrap().unschedulable = Some(true);
        world.node = NodeView::Known(lost.into());
        world.later(since);
        let plan = world.pass();
        assert_eq!(deleted(&plan.actions).is_empty(), !forced, "{since}");
    }
}

#[test]
fn pods_that_were_not_looked_up_yet_are_not_absent() {
    let mut world = draining(Vec::new());
    world.pods = Observed::Unknown;
    world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::NotObserved));
    assert_eq!(world.count(Kind::DeleteMachine), 0);
}

#[test]
fn a_machine_without_a_node_needs_no_drain() {
    let mut world = World::new();
    world.settle();
    world.delete();
    world.settle();
    assert!(world.machine.is_none());
    assert!(!world.happened(EventReason::DrainStarted));
}
