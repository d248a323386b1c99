//! Consecutive failures of Machines, and the pauses before replacements.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use ostler_api::{
    Machine, MachineSet,
    machine::Retry,
    machine_set::{MachineSetCondition, MachineSetConditionType},
};
use ostler_lifecycle::set::{Decision, Failures, Snapshot, decide as plan, status};
use serde_json::{Value, json};

use crate::set::objects::{machine, now, set, snapshot, victims};

/// A set of a single Machine, with its history.
struct World {
    set: MachineSet,
    now: Timestamp,
    made: u32,
}

impl World {
    fn new() -> Self {
        Self { set: set(1, json!({})), now: now(), made: 0 }
    }

    fn later(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    /// A Machine made now, with its status from `change`.
    fn make(&mut self, change: Value) -> Arc<Machine> {
        self.made += 1;
        let born = Timestamp::from_second(self.now.as_second()).unwrap();
        let mut all = json!({ "metadata": { "creationTimestamp": born.to_string() } });
        json_patch::merge(&mut all, &change);
        machine(&format!("m{}", self.made), all)
    }

    /// A Machine made now that never ran.
    fn failed(&mut self) -> Arc<Machine> {
        self.make(json!({ "status": {
            "currentStatus": { "phase": "Failed", "lastUpdateTime": self.now.to_string() },
            "failureReason": "JoinTimeout", "failureMessage": "no node",
            "lastOperation": { "type": "Create", "state": "Failed", "errorCode": "NotFound" }
        } }))
    }

    /// A Machine that ran for some seconds before failing.
    fn failed_after(&mut self, seconds: i64) -> Arc<Machine> {
        let failed = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        self.make(json!({ "status": {
            "currentStatus": { "phase": "Failed", "lastUpdateTime": failed.to_string() },
            "joinedAt": self.now.to_string(), "failureReason": "InstanceMissing",
            "lastOperation": { "type": "HealthCheck", "state": "Failed" }
        } }))
    }

    fn decide(&self, machines: &[Arc<Machine>]) -> Decision {
        plan(&Snapshot { now: self.now, ..snapshot(self.set.clone(), machines.to_vec()) })
    }

    /// A pass whose status is written.
    fn pass(&mut self, machines: &[Arc<Machine>]) -> Decision {
        let plan = self.decide(machines);
        self.set.status = Some(status(&self.set, &plan, &Failures::default(), self.now));
        plan
    }

    fn retry(&self) -> Option<&Retry> {
        self.set.status.as_ref()?.replacement_retry.as_ref()
    }

    /// So many that never ran, each replaced before the next one failed.
    fn fail_in_turn(&mut self, count: usize) {
        for _ in 0..count {
            let one = self.failed();
            self.goes_after(&one);
            self.later(2);
        }
    }

    /// The set's condition about failing Machines.
    fn failure(&self) -> Option<&MachineSetCondition> {
        let mut all = self.set.status.iter().flat_map(|status| &status.conditions);
        all.find(|it| it.type_ == MachineSetConditionType::ReplicaFailure)
    }

    /// Passes until nothing is new; after how many seconds the Machine goes.
    fn goes_after(&mut self, one: &Arc<Machine>) -> i64 {
        let begun = self.now;
        let all = [one.clone()];
        for _ in 0..10 {
            let plan = self.pass(&all);
            if !plan.delete.is_empty() {
                assert_eq!(victims(&plan), [one.name()]);
                return self.now.duration_since(begun).as_secs();
            }
            if !plan.streak.is_new() {
                self.now = plan.streak.until().unwrap();
            }
        }
        panic!("it never goes");
    }
}

#[test]
fn the_first_failed_machine_is_replaced_at_once_and_the_next_ones_after_growing_pauses() {
    let mut world = World::new();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let one = world.failed();
        pauses.push(world.goes_after(&one));
        world.later(2);
    }
    assert_eq!(pauses, [0, 60, 120, 240, 480, 900, 900, 900]);
    let retry = world.retry().unwrap();
    assert_eq!((retry.failures, retry.code.as_str()), (8, "NotFound"));
    assert_eq!(retry.message.as_deref(), Some("m8: JoinTimeout: no node"));
}

#[test]
fn a_failure_is_written_down_before_anything_follows_from_it() {
    let mut world = World::new();
    let one = [world.failed()];
    let plan = world.decide(&one);
    assert!(plan.streak.is_new() && plan.delete.is_empty());
    assert!(world.pass(&one).delete.is_empty());
    assert!(!world.pass(&one).delete.is_empty());
}

#[test]
fn machines_that_failed_together_are_one_failure() {
    let mut world = World::new();
    world.set.spec.replicas = Some(3);
    let all = [world.failed(), world.failed(), world.failed()];
    world.pass(&all[..1]);
    world.later(3);
    let plan = world.pass(&all);
    assert_eq!(victims(&plan), ["m1", "m2", "m3"], "made before the first replacement");
    assert_eq!(world.retry().unwrap().failures, 1);
}

#[test]
fn a_machine_that_ran_for_a_while_is_replaced_at_once_whatever_failed_before() {
    let mut world = World::new();
    world.fail_in_turn(4);
    let old = world.failed_after(600);
    assert_eq!(victims(&world.pass(&[old])), ["m5"]);
    let young = world.failed_after(599);
    assert_eq!(world.goes_after(&young), 480, "it was lost as those before it");
}

#[test]
fn what_failed_is_forgotten_once_a_machine_that_was_made_since_has_run_for_a_while() {
    let mut world = World::new();
    world.fail_in_turn(4);
    let joined = json!({ "status": { "joinedAt": world.now.to_string() } });
    let one = [world.make(joined)];
    world.later(599);
    world.pass(&one);
    assert_eq!(world.retry().unwrap().failures, 4);
    world.later(1);
    world.pass(&one);
    assert_eq!(world.retry(), None);
    let next = world.failed();
    assert_eq!(world.goes_after(&next), 0);
}

#[test]
fn a_machine_that_ran_before_all_that_proves_nothing() {
    let mut world = World::new();
    world.set.spec.replicas = Some(2);
    let old = world.make(json!({ "status": { "joinedAt": "2026-01-01T01:00:00Z" } }));
    world.later(60);
    let bad = world.failed();
    world.pass(&[old.clone(), bad]);
    world.later(7200);
    world.pass(&[old]);
    assert_eq!(world.retry().unwrap().failures, 1);
}

#[test]
fn while_a_failed_machine_waits_the_set_says_why_and_lets_go_what_is_too_many() {
    let mut world = World::new();
    let first = world.failed();
    world.goes_after(&first);
    world.later(2);
    let second = [world.failed()];
    world.pass(&second);
    world.pass(&second);
    let said = world.failure().cloned().unwrap();
    assert_eq!(said.reason.as_deref(), Some("ReplacementsFail"));
    let text = said.message.as_deref().unwrap();
    assert!(text.starts_with("2 machines in a row failed before they had run for 10m"), "{text}");
    assert!(text.contains("m2: JoinTimeout: no node") && text.contains("replaced at"), "{text}");
    world.set.spec.replicas = Some(0);
    assert_eq!(victims(&world.pass(&second)), ["m2"], "it is not wanted any more");
}

#[test]
fn a_set_whose_machines_all_run_says_nothing_of_those_that_failed_before_and_counts_on() {
    let mut world = World::new();
    world.fail_in_turn(2);
    let joined = json!({ "status": { "joinedAt": world.now.to_string() } });
    let one = [world.make(joined)];
    world.pass(&one);
    assert_eq!(world.failure(), None);
    assert_eq!(world.retry().unwrap().failures, 2);
}

#[test]
fn in_place_of_one_that_is_deleted_by_hand_another_is_made_at_once() {
    let mut world = World::new();
    let first = world.failed();
    world.goes_after(&first);
    world.later(2);
    let second = [world.failed()];
    world.pass(&second);
    assert_eq!(world.pass(&second).create, 0);
    assert_eq!(world.pass(&[]).create, 1);
}

#[test]
fn of_a_failed_machine_of_another_controller_nothing_is_known_and_it_goes_at_once() {
    let mut world = World::new();
    let one = world.make(json!({ "status": { "currentStatus": { "phase": "Failed" } } }));
    assert_eq!(victims(&world.pass(&[one])), ["m1"]);
    assert_eq!(world.retry(), None);
}
