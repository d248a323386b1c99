use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::{
    Machine,
    machine::{MachinePhase, WaitReason},
    names,
};
use ostler_lifecycle::{
    replacement::{Held, Sibling, SiblingState, Siblings, held},
    snapshot::Settings,
};
use serde_json::{Value, json};

use crate::world::{World, looks_again, seconds};

const PATIENCE: Duration = Duration::from_mins(20);

fn epoch() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// A member that was born an hour before, with this status.
fn member(name: &str, status: &Value) -> Machine {
    let mut machine: Machine = serde_json::from_value(json!({
        "apiVersion": names::API_VERSION, "kind": "Machine",
        "metadata": { "name": name, "labels": { "name": "pool" } },
        "spec": { "class": { "kind": "MachineClass", "name": "small" } },
        "status": status
    }))
    .unwrap();
    machine.metadata.creation_timestamp = Some(Time(seconds(epoch(), -3600)));
    machine
}

fn phase(phase: &str, since: i64) -> Value {
    let since = Time(seconds(epoch(), since));
    json!({ "currentStatus": { "phase": phase, "lastUpdateTime": since } })
}

fn siblings(members: &[Machine]) -> Siblings {
    let settings = Settings::default();
    let in_flight = members.iter().filter_map(|one| Sibling::of(one, &settings)).collect();
    Siblings { last_failure: None, in_flight }
}

fn ask(siblings: &Siblings, due: i64) -> Option<Held> {
    held(siblings, seconds(epoch(), due), epoch(), PATIENCE)
}

#[test]
fn healthy_unhealthy_and_preserved_siblings_do_not_matter() {
    let mut preserved = phase("Failed", -60);
    preserved["currentStatus"]["preserveExpiryTime"] = json!(Time(seconds(epoch(), 3600)));
    let members = [
        member("a", &phase("Running", -60)),
        member("b", &phase("Unknown", -60)),
        member("c", &phase("Available", -60)),
        member("d", &phase("InPlaceUpdateFailed", -60)),
        member("e", &preserved),
    ];
    assert_eq!(siblings(&members), Siblings::default());
    assert_eq!(ask(&siblings(&members), 0), None);
}

#[test]
fn a_sibling_that_failed_a_moment_ago_is_waited_for_and_not_longer_than_a_creation_takes() {
    let held = ask(&siblings(&[member("a", &phase("Failed", -60))]), 0).unwrap();
    assert_eq!(held.until, seconds(epoch(), 1140));
    assert!(held.message.contains("machine a"), "{}", held.message);
    assert_eq!(ask(&siblings(&[member("a", &phase("Failed", -1200))]), 0), None);
}

#[test]
fn a_sibling_that_is_deleted_or_updated_is_waited_for() {
    let mut gone = member("a", &phase("Running", -4000));
    gone.metadata.deletion_timestamp = Some(Time(seconds(epoch(), -100)));
    assert_eq!(ask(&siblings(&[gone]), 0).unwrap().until, seconds(epoch(), 1100));
    let updated = member("a", &phase("InPlaceUpdating", -300));
    assert_eq!(ask(&siblings(&[updated]), 0).unwrap().until, seconds(epoch(), 900));
}

#[test]
fn a_sibling_that_is_being_made_is_waited_for_until_its_own_creation_timeout() {
    let mut status = phase("Pending", -10);
    status["creationStartedAt"] = json!(Time(seconds(epoch(), -300)));
    let mut newcomer = member("a", &status);
    assert_eq!(ask(&siblings(&[newcomer.clone()]), 0).unwrap().until, seconds(epoch(), 900));
    newcomer.spec.creation_timeout = Some("6m".into());
    assert_eq!(ask(&siblings(&[newcomer.clone()]), 0).unwrap().until, seconds(epoch(), 60));
    newcomer.spec.creation_timeout = Some("5m".into());
    assert_eq!(ask(&siblings(&[newcomer]), 0), None, "beyond its creation timeout");
}

#[test]
fn a_sibling_that_waits_for_capacity_blocks_nobody() {
    let waits = json!({ "waitingFor": { "reason": "CapacityExhausted" } });
    let mut starved = siblings(&[member("a", &waits)]);
    assert_eq!(starved.in_flight[0].state, SiblingState::LacksCapacity);
    assert_eq!(ask(&starved, 0), None);
    // But if it is the successor of one that was just taken away, the next one has to wait.
    starved.last_failure = Some(seconds(epoch(), -60));
    assert_eq!(ask(&starved, 0).unwrap().until, seconds(epoch(), 1140));
}

#[test]
fn one_newcomer_after_the_other_does_not_block_for_ever() {
    let mut status = phase("Pending", -10);
    status["creationStartedAt"] = json!(Time(seconds(epoch(), -10)));
    let mut all = siblings(&[member("a", &status)]);
    assert_eq!(ask(&all, -1190).unwrap().until, seconds(epoch(), 10));
    assert_eq!(ask(&all, -1200), None, "due for as long as a creation may take");
    all.last_failure = Some(seconds(epoch(), -600));
    let held = ask(&all, -1200).unwrap();
    assert_eq!(held.until, seconds(epoch(), 600), "and then one at a time");
}

fn unhealthy_member() -> World {
    let mut world = World::running();
    let labels = world.machine_mut().metadata.labels.get_or_insert_default();
    labels.insert(names::label::DEPLOYMENT_NAME.to_owned(), "pool".to_owned());
    world.node_is("Unknown");
    world.pass();
    world
}

#[test]
fn a_machine_that_is_due_says_which_sibling_it_waits_for() {
    let mut world = unhealthy_member();
    world.siblings = siblings(&[member("m2", &phase("Failed", 590))]);
    world.later(600);
    let plan = world.pass();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    assert_eq!(world.waits_for(), Some(WaitReason::ReplacementBudget));
    let message = world.status().waiting_for.unwrap().message.unwrap();
    assert!(message.contains("m2"), "{message}");
    assert_eq!(looks_again(&world, &plan), Some(1190));
    world.siblings = Siblings::default();
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
}

#[test]
fn of_two_that_are_due_in_the_same_moment_one_has_to_look_again() {
    let mut world = unhealthy_member();
    world.later(600);
    let snapshot = world.snapshot();
    let plan = ostler_lifecycle::machine::plan(&snapshot);
    // The other one was faster.
    world.siblings.last_failure = Some(world.now);
    let performed = world.perform_all(&plan);
    let recorded = ostler_lifecycle::record::record(&snapshot, &plan, &performed);
    assert!(!recorded.proceed);
    assert_eq!(recorded.status, None);
}

#[test]
fn a_machine_without_the_label_has_no_budget_to_wait_for() {
    let mut world = World::running();
    world.node_is("Unknown");
    world.pass();
    world.later(600);
    let plan = world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert!(!plan.actions.iter().any(|action| action.name() == "ClaimReplacement"));
}
