use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::{
    Machine, MachineDeployment,
    machine::{MachinePhase, WaitReason},
    names,
};
use ostler_lifecycle::{
    replacement::{Held, Members, Sibling, SiblingState, Siblings, held, limit},
    snapshot::Settings,
};
use serde_json::{Value, json};

use crate::machine::world::{World, looks_again, seconds};

const PATIENCE: Duration = Duration::from_mins(20);

fn epoch() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// A member born an hour before, with `status`.
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
    Siblings {
        deployment: Some("default/pool".to_owned()),
        in_flight,
        members: Members::of(members.iter(), 0),
        ..Siblings::default()
    }
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
    assert_eq!(siblings(&members).in_flight, []);
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
    // But a successor of a Machine that was just removed makes the next Machine wait.
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

fn newcomer(name: &str) -> Machine {
    let begun = Time(seconds(epoch(), -60));
    member(name, &json!({ "currentStatus": { "phase": "Pending" }, "creationStartedAt": begun }))
}

fn many(count: usize, phase_is: &str) -> Vec<Machine> {
    (0..count).map(|it| member(&format!("{phase_is}-{it}"), &phase(phase_is, -700))).collect()
}

#[test]
fn half_of_a_deployment_that_is_lost_is_a_mass_failure_and_one_machine_never_is() {
    let cases = [
        // Unhealthy, failed, running; wanted; whether.
        (1, 0, 0, 1, false),
        (1, 0, 1, 2, false),
        (2, 0, 0, 2, true),
        (1, 1, 0, 2, false),
        (2, 0, 2, 4, true),
        (2, 0, 3, 5, false),
        (2, 1, 2, 5, true),
        (4, 1, 5, 10, true),
        (4, 0, 6, 10, false),
        (4, 5, 1, 10, true),
        // One missing Machine, or one being made, may be the successor of a lost one; more are not.
        (4, 0, 5, 10, true),
        (2, 0, 1, 10, false),
        (5, 0, 0, 10, true),
    ];
    for (unhealthy, failed, running, wanted, expected) in cases {
        let mut all = many(unhealthy, "Unknown");
        all.extend(many(failed, "Failed"));
        all.extend(many(running, "Running"));
        let counts = Members::of(all.iter(), wanted);
        let what = (unhealthy, failed, running, wanted);
        assert_eq!(counts.is_mass_failure(), expected, "{what:?}");
    }
}

#[test]
fn a_zone_outage_that_turns_half_of_a_deployment_unknown_replaces_one_and_holds_the_rest() {
    let mut all = many(5, "Unknown");
    all.extend(many(5, "Running"));
    assert_eq!(ask(&siblings(&all), 0), None, "#760: the first goes");
    for fate in [
        member("first", &phase("Failed", -60)),
        newcomer("first"),
        // Stuck on its way, which lets others go where fewer are lost.
        member("first", &phase("Failed", -90_000)),
        member("first", &json!({ "waitingFor": { "reason": "CapacityExhausted" } })),
    ] {
        all[0] = fate;
        let held = ask(&siblings(&all), -86_400).unwrap();
        assert_eq!(held.reason, WaitReason::MassFailure, "#760");
        assert!(held.message.starts_with("4 of 10 machines are unhealthy"), "{}", held.message);
        assert!(held.message.contains("machine first"), "{}", held.message);
        // The budget is for single failures of machines.
        let larger = Siblings { limit: 10, ..siblings(&all) };
        assert_eq!(ask(&larger, -86_400).unwrap().reason, WaitReason::MassFailure);
    }
    // Between the deletion of the first and the creation of its successor there is none of both.
    all.remove(0);
    let mut gap = siblings(&all);
    gap.members.wanted = 10;
    assert_eq!(ask(&gap, -86_400).unwrap().reason, WaitReason::MassFailure);
    // The successor runs: machines can be made, and the next one goes.
    all.push(member("successor", &phase("Running", -5)));
    assert_eq!(ask(&siblings(&all), -86_400), None);
}

#[test]
fn a_deployment_may_have_a_larger_budget_or_none() {
    let of = |text: Option<&str>| {
        let mut deployment: MachineDeployment = serde_json::from_value(json!({
            "metadata": { "name": "d" }, "spec": { "template": { "spec": {} } }
        }))
        .unwrap();
        let key = names::annotation::MAX_UNHEALTHY_REPLACEMENTS.to_owned();
        deployment.metadata.annotations = text.map(|it| [(key, it.to_owned())].into());
        limit(&deployment)
    };
    assert_eq!([None, Some("3"), Some(" 0 "), Some("many"), Some("-1")].map(of), [1, 3, 0, 1, 1]);
    let mut all = many(30, "Running");
    all.extend([member("a", &phase("Failed", -60)), newcomer("b")]);
    for (limit, free) in [(1, false), (2, false), (3, true), (0, false)] {
        let siblings = Siblings { limit, ..siblings(&all) };
        assert_eq!(ask(&siblings, 0).is_none(), free, "{limit}");
    }
    let none = Siblings { limit: 0, ..siblings(&[]) };
    assert!(ask(&none, -86_400).unwrap().message.contains("max-unhealthy-replacements"));
}

#[test]
fn what_users_autoscalers_and_rollouts_do_uses_up_the_budget_too() {
    let mut deleted = member("a", &phase("Running", -4000));
    deleted.metadata.deletion_timestamp = Some(Time(seconds(epoch(), -100)));
    let surge = newcomer("a");
    let mut chosen = member("a", &phase("Running", -4000));
    let marked_at = seconds(epoch(), -100).to_string();
    let marks = [
        (names::annotation::PRIORITY.to_owned(), "1".to_owned()),
        (names::annotation::MARKED_FOR_DELETION.to_owned(), marked_at),
    ];
    chosen.metadata.annotations = Some(marks.into());
    for sibling in [deleted, surge, chosen.clone()] {
        let held = ask(&siblings(&[sibling]), 0).unwrap();
        assert_eq!(held.reason, WaitReason::ReplacementBudget);
    }
    // Chosen hours ago, and still there: the autoscaler changed its mind.
    let marks = chosen.metadata.annotations.as_mut().unwrap();
    let long_ago = seconds(epoch(), -9000).to_string();
    marks.insert(names::annotation::MARKED_FOR_DELETION.to_owned(), long_ago);
    let mut all = siblings(&[chosen]);
    all.last_failure = Some(seconds(epoch(), -10));
    assert_eq!(ask(&all, 0), None);
    // Deleted and not created yet.
    let mut missing = siblings(&[]);
    missing.members.wanted = 1;
    assert_eq!(ask(&missing, 0).unwrap().until, seconds(epoch(), 1200));
    assert_eq!(ask(&missing, -1200), None, "not for ever: the set may be frozen");
}

fn unhealthy_member() -> World {
    let mut world = World::running();
    world.siblings = siblings(&[]);
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
    world.siblings = siblings(&[]);
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
    let recorded = ostler_lifecycle::record::record(&snapshot, &plan, &performed, world.now);
    assert!(!recorded.proceed);
    assert_eq!(recorded.status, None);
}

#[test]
fn a_machine_of_no_deployment_has_no_budget_to_wait_for() {
    let mut world = World::running();
    world.node_is("Unknown");
    world.pass();
    world.later(600);
    let plan = world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert!(!plan.actions.iter().any(|action| action.name() == "ClaimReplacement"));
}
