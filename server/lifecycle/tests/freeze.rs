//! The overshoot freeze as tables. Numbers in comments are issues of gardener/machine-controller-manager.
#![expect(clippy::unwrap_used, clippy::needless_pass_by_value, reason = "tests")]

use std::time::Duration;

use jiff::Timestamp;
use ostler_api::machine_deployment::MachineDeploymentCondition;
use ostler_api::{Machine, MachineDeployment, MachineSet};
use ostler_lifecycle::freeze::{
    self, Change, Limits, Margins, Snapshot, counts, decide as plan, decide_deployment,
};
use serde_json::{Value, json};

const PERIOD: Duration = Duration::from_mins(1);

fn set(replicas: i32) -> MachineSet {
    serde_json::from_value(json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
        "metadata": { "name": "s", "uid": "set" },
        "spec": { "replicas": replicas, "template": { "metadata": { "labels": { "name": "d", "hash": "1" } } } }
    }))
    .unwrap()
}

fn deployment(replicas: i32, strategy: Value) -> MachineDeployment {
    serde_json::from_value(json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": { "name": "d" }, "spec": { "replicas": replicas, "strategy": strategy }
    }))
    .unwrap()
}

fn rolling(surge: Value) -> Value {
    json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": 1 } })
}

fn in_place(kind: &str) -> Value {
    let block = json!({ "maxSurge": 1, "maxUnavailable": 0, "orchestrationType": kind });
    json!({ "type": "InPlaceUpdate", "inPlaceUpdate": block })
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn snap(set: &MachineSet, machines: i32, seconds: i64) -> Snapshot<'_> {
    Snapshot {
        set,
        owner: None,
        machines,
        now: at(seconds),
        margins: Margins::default(),
        period: PERIOD,
        lifted: None,
    }
}

/// The set as it is once the plan is carried out.
fn carried_out(
    mut set: MachineSet,
    plan: &freeze::Decision<ostler_api::machine_set::MachineSetCondition>,
) -> MachineSet {
    let labels = set.metadata.labels.get_or_insert_default();
    match plan.label {
        Some(true) => drop(labels.insert("freeze".to_owned(), "True".to_owned())),
        Some(false) => drop(labels.remove("freeze")),
        None => {}
    }
    if let Some(conditions) = &plan.conditions {
        set.status.get_or_insert_default().conditions.clone_from(conditions);
    }
    if plan.remove_annotation {
        set.metadata.annotations = None;
    }
    set
}

/// A set with two replicas that was frozen at 0 s with six machines.
fn frozen() -> MachineSet {
    let set = set(2);
    let plan = plan(&snap(&set, 6, 0));
    carried_out(set, &plan)
}

#[test]
fn a_set_is_frozen_from_twice_its_replicas_or_from_what_its_deployment_allows_and_a_margin_on() {
    let own = |replicas, owner: Option<MachineDeployment>, up, down| {
        let Limits { high, low } = Limits::of(&set(replicas), owner.as_ref(), Margins { up, down });
        (high, low)
    };
    let of = |replicas, strategy| Some(deployment(replicas, strategy));
    for (limits, expected, why) in [
        (own(3, None, 2, 1), (8, 7), "twice the replicas"),
        // #250, #346: an empty set must not stay frozen.
        (own(0, None, 2, 1), (2, 1), "no replicas"),
        (own(0, None, 0, 1), (1, 0), "no replicas and no margin: nothing is not too much"),
        (own(4, None, 0, 9), (8, 4), "what is wanted is always enough to go on"),
        (own(9, of(2, rolling(json!(2))), 2, 1), (6, 5), "the deployment counts, not the set"),
        (own(9, of(10, rolling(json!("25%"))), 2, 1), (15, 14), "a percentage is rounded up"),
        (own(9, of(3, json!({ "type": "Recreate" })), 2, 1), (5, 4), "Recreate has no surge"),
        (
            own(9, of(3, json!({ "type": "RollingUpdate" })), 2, 1),
            (5, 4),
            "nor has one that says nothing",
        ),
        (own(9, of(3, in_place("Auto")), 2, 1), (6, 5), "a surge in place counts"),
        (
            own(9, of(3, in_place("Manual")), 2, 1),
            (6, 5),
            "also where a user selects: an update that went by itself may have begun with it",
        ),
        (own(i32::MAX, None, 2, 1), (i32::MAX, i32::MAX), "numbers do not overflow"),
    ] {
        assert_eq!(limits, expected, "{why}");
    }
}

#[test]
fn a_machine_counts_if_this_very_set_controls_it_and_it_has_the_labels_of_the_template() {
    let machine = |uid: &str, controller: bool, hash: &str| -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": "m", "labels": { "name": "d", "hash": hash, "more": "x" },
                "ownerReferences": [{
                    "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s",
                    "uid": uid, "controller": controller
                }]
            },
            "spec": { "class": { "kind": "MachineClass", "name": "c" } },
            "status": { "currentStatus": { "phase": "Terminating" } }
        }))
        .unwrap()
    };
    let set = set(1);
    assert!(counts(&machine("set", true, "1"), &set), "in any phase");
    // #75: a set of the same name that is gone.
    assert!(!counts(&machine("an-earlier-one", true, "1"), &set));
    assert!(!counts(&machine("set", false, "1"), &set));
    assert!(!counts(&machine("set", true, "2"), &set));
}

#[test]
fn a_set_with_too_many_machines_is_labelled_shown_as_frozen_and_an_event_says_so() {
    let set = set(2);
    assert_eq!(plan(&snap(&set, 5, 0)), freeze::Decision::default(), "one fewer is fine");
    let plan = plan(&snap(&set, 6, 0));
    assert_eq!(plan.label, Some(true));
    assert_eq!(plan.event, Some(Change::Frozen { machines: 6, high: 6 }));
    assert_eq!(plan.again, Some(at(60)));
    let condition = &plan.conditions.unwrap()[0];
    assert_eq!(condition.reason.as_deref(), Some("OverShootingReplicaCount"));
    assert_eq!((condition.type_.as_str(), condition.status.as_str()), ("Frozen", "True"));
}

#[test]
fn a_frozen_set_goes_on_once_enough_machines_are_gone_and_a_period_is_over() {
    let set = frozen();
    for (machines, seconds, thaws, why) in [
        (6, 70, false, "still too many"),
        (5, 59, false, "few enough, but it was frozen just now"),
        (2, 59, false, "as many as it asks for"),
        (1, 1, true, "fewer than it asks for: it creates"),
        (5, 60, true, "few enough, and the period is over"),
        (0, 600, true, "none is left"),
    ] {
        let plan = plan(&snap(&set, machines, seconds));
        let event = thaws.then_some(Change::Unfrozen { machines, by_user: false });
        assert_eq!((plan.label, plan.event), (thaws.then_some(false), event), "{why}");
        let looks_again = machines < 6 && seconds < 60;
        assert_eq!(plan.again, looks_again.then_some(at(60)), "{why}");
        assert_eq!(plan.conditions, thaws.then(Vec::new), "{why}");
    }
}

#[test]
fn a_set_that_is_scaled_up_while_it_is_frozen_goes_on() {
    // #346: four machines that cannot be deleted, and replicas 0. A user who wants four again has them.
    let mut set = frozen();
    set.spec.replicas = Some(0);
    assert_eq!(plan(&snap(&set, 4, 100)), freeze::Decision::default());
    set.spec.replicas = Some(4);
    assert_eq!(plan(&snap(&set, 4, 100)).label, Some(false));
}

#[test]
fn a_number_that_is_absent_and_about_to_be_filled_in_freezes_nothing() {
    let mut absent = set(3);
    absent.spec.replicas = None;
    assert_eq!(plan(&snap(&absent, 3, 0)), freeze::Decision::default());
    let mut owner = deployment(3, rolling(json!(1)));
    owner.spec.replicas = None;
    let set = set(3);
    let snap = Snapshot { owner: Some(&owner), ..snap(&set, 3, 0) };
    assert_eq!(plan(&snap), freeze::Decision::default());
}

#[test]
fn a_set_that_is_scaled_to_zero_and_up_again_creates_as_soon_as_it_lacks_machines() {
    // Scaled from 1,000 to 0, it is frozen for the Machines that are going; 1,000 are wanted again a moment later.
    let mut set = set(0);
    set = carried_out(set.clone(), &plan(&snap(&set, 1_000, 0)));
    assert_eq!(plan(&snap(&set, 900, 1)).label, None, "they are still too many");
    set.spec.replicas = Some(1_000);
    assert_eq!(plan(&snap(&set, 900, 2)).label, Some(false), "it has fewer than it wants");
}

#[test]
fn what_was_left_half_done_by_a_crash_is_finished() {
    let set = frozen();
    let mut without_condition = set.clone();
    without_condition.status = None;
    let finished = plan(&snap(&without_condition, 6, 5));
    assert_eq!(finished.label, None);
    assert_eq!(finished.event, Some(Change::Frozen { machines: 6, high: 6 }));
    let mut without_label = set;
    without_label.metadata.labels = None;
    let finished = plan(&snap(&without_label, 1, 70));
    assert_eq!((finished.label, finished.conditions), (None, Some(Vec::new())));
    assert_eq!(finished.event, Some(Change::Unfrozen { machines: 1, by_user: false }));
}

#[test]
fn other_conditions_of_the_set_stay() {
    let mut set = frozen();
    let failure = json!({ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate" });
    let failure: ostler_api::machine_set::MachineSetCondition =
        serde_json::from_value(failure).unwrap();
    set.status.as_mut().unwrap().conditions.insert(0, failure.clone());
    assert_eq!(plan(&snap(&set, 0, 100)).conditions, Some(vec![failure]));
}

#[test]
fn a_user_lifts_the_freeze_and_the_set_is_left_alone_for_a_period() {
    let asks = || Some([("safety.machine.sapcloud.io/unfreeze".to_owned(), String::new())].into());
    let mut asked = frozen();
    asked.metadata.annotations = asks();
    let lifted = plan(&snap(&asked, 9, 5));
    assert_eq!((lifted.label, lifted.remove_annotation), (Some(false), true));
    assert_eq!(lifted.event, Some(Change::Unfrozen { machines: 9, by_user: true }));

    let set = carried_out(asked, &lifted);
    let later = |seconds| plan(&Snapshot { lifted: Some(at(5)), ..snap(&set, 9, seconds) });
    assert_eq!(later(6), freeze::Decision { again: Some(at(65)), ..freeze::Decision::default() });
    assert_eq!(later(65).label, Some(true), "it still has far too many");

    let mut owner = deployment(2, json!({ "type": "Recreate" }));
    owner.metadata.annotations = asks();
    let set = frozen();
    let of_all = plan(&Snapshot { owner: Some(&owner), ..snap(&set, 9, 5) });
    assert_eq!((of_all.label, of_all.remove_annotation), (Some(false), false));
}

#[test]
fn a_set_that_is_being_deleted_is_not_frozen_any_more() {
    let mut set = set(0);
    set.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(plan(&snap(&set, 9, 0)), freeze::Decision::default());
}

#[test]
fn a_deployment_shows_that_one_of_its_sets_is_frozen_and_has_two_conditions_otherwise() {
    let mut deployment = deployment(2, json!({ "type": "Recreate" }));
    assert_eq!(decide_deployment(&deployment, false, at(0)), freeze::Decision::default());
    let plan = decide_deployment(&deployment, true, at(0));
    assert_eq!(plan.label, Some(true));
    let conditions = plan.conditions.unwrap();
    assert_eq!(conditions[0].reason.as_deref(), Some("MachineDeploymentStateSync"));

    deployment.metadata.labels = Some([("freeze".to_owned(), "True".to_owned())].into());
    deployment.metadata.annotations =
        Some([("safety.machine.sapcloud.io/unfreeze".to_owned(), "yes".to_owned())].into());
    deployment.status.get_or_insert_default().conditions = conditions;
    let while_frozen = decide_deployment(&deployment, true, at(9));
    assert_eq!(
        while_frozen,
        freeze::Decision::default(),
        "the annotation stays until the sets go on"
    );
    let after = decide_deployment(&deployment, false, at(9));
    assert_eq!((after.label, after.remove_annotation), (Some(false), true));
    assert_eq!(after.conditions, Some(Vec::new()));
}

#[test]
fn the_time_in_which_it_was_frozen_does_not_count_for_the_progress_deadline() {
    let mut deployment = deployment(2, json!({ "type": "Recreate" }));
    let progressing = json!({
        "type": "Progressing", "status": "True", "reason": "MachineSetUpdated",
        "lastUpdateTime": at(0), "lastTransitionTime": at(0)
    });
    deployment.status.get_or_insert_default().conditions =
        vec![serde_json::from_value(progressing).unwrap()];
    let updated = |conditions: &[MachineDeploymentCondition]| {
        conditions[0].last_update_time.as_ref().map(|time| time.0)
    };
    let conditions = decide_deployment(&deployment, true, at(5)).conditions.unwrap();
    assert_eq!(updated(&conditions), Some(at(0)));
    deployment.status.get_or_insert_default().conditions = conditions;
    let conditions = decide_deployment(&deployment, false, at(500)).conditions.unwrap();
    assert_eq!((updated(&conditions), conditions.len()), (Some(at(500)), 1));
}

/// #88: a client that replaces the deployment takes its label away, and lowers the replicas. The deployment is as its sets
/// are, and the sets go on once they have the wanted number: neither stays behind.
#[test]
fn a_client_that_unfreezes_the_deployment_alone_leaves_no_frozen_set_behind() {
    let replaced = deployment(1, rolling(json!(1)));
    let again = decide_deployment(&replaced, true, at(0));
    assert_eq!(again.label, Some(true), "it is frozen while a set is");
    let set = frozen();
    let lower = Snapshot { owner: Some(&replaced), ..snap(&set, 1, 600) };
    assert_eq!(plan(&lower).label, Some(false), "the set goes on by itself");
    let mut labelled = replaced;
    labelled.metadata.labels = Some([("freeze".to_owned(), "True".to_owned())].into());
    assert_eq!(decide_deployment(&labelled, false, at(600)).label, Some(false));
}
