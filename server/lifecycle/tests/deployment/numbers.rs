//! RollingUpdate, Recreate and scaling, in numbers.

use ostler_lifecycle::deployment::counts::{Counts, Fleet, SetSizes};
use ostler_lifecycle::deployment::fenceposts;
use ostler_lifecycle::deployment::in_place::{Selection, select};
use ostler_lifecycle::deployment::rolling::{recreate, roll};
use ostler_lifecycle::deployment::scaling::{Growth, is_due, scale};
use serde_json::{Value, json};

/// A set with as many Machines as it wants.
fn set(wanted: i32, available: i32) -> Counts {
    Counts { wanted, machines: wanted, available, ..Counts::default() }
}

/// The same, scaled last for so many replicas, and so many with the surge.
fn marked(wanted: i32, available: i32, desired: i32, max: i32) -> Counts {
    Counts { desired_mark: Some(desired), max_mark: Some(max), ..set(wanted, available) }
}

fn fleet(replicas: i32, (surge, unavailable): (i32, i32), new: Counts, old: &[Counts]) -> Fleet {
    Fleet { replicas, surge, unavailable, new: Some(new), old: old.to_vec() }
}

fn targets(new: i32, old: &[i32]) -> SetSizes {
    SetSizes { new, old: old.to_vec() }
}

#[test]
fn the_new_set_grows_into_the_surge_and_old_ones_shrink_by_what_is_available_above_the_minimum() {
    let table = [
        ("begin", (3, (1, 0)), set(0, 0), vec![set(3, 3)], targets(1, &[3])),
        (
            "the new machine is not there yet",
            (3, (1, 0)),
            set(1, 0),
            vec![set(3, 3)],
            targets(1, &[3]),
        ),
        ("it is available", (3, (1, 0)), set(1, 1), vec![set(3, 3)], targets(1, &[2])),
        (
            "unavailable lets old ones go first",
            (3, (0, 1)),
            set(0, 0),
            vec![set(3, 3)],
            targets(0, &[2]),
        ),
        ("both", (10, (3, 2)), set(0, 0), vec![set(10, 10)], targets(3, &[8])),
        (
            "unhealthy old ones first",
            (10, (0, 2)),
            set(0, 0),
            vec![set(3, 3), set(7, 5)],
            targets(0, &[3, 5]),
        ),
        ("oldest first", (10, (0, 2)), set(0, 0), vec![set(3, 3), set(7, 7)], targets(0, &[1, 7])),
        ("all old ones unavailable", (3, (0, 1)), set(0, 0), vec![set(3, 0)], targets(0, &[2])),
        ("the new set is too large", (3, (1, 0)), set(5, 5), vec![set(0, 0)], targets(3, &[0])),
        ("the end", (3, (1, 0)), set(3, 3), vec![set(1, 1)], targets(3, &[0])),
        ("no replicas", (0, (1, 0)), set(0, 0), vec![set(0, 0)], targets(0, &[0])),
        ("no limit", (10, (i32::MAX - 10, 0)), set(0, 0), vec![set(10, 10)], targets(10, &[10])),
    ];
    for (name, (replicas, posts), new, old, expected) in table {
        assert_eq!(roll(&fleet(replicas, posts, new, &old)), expected, "{name}");
    }
}

#[test]
fn machines_that_are_being_deleted_take_up_room_425() {
    let slow = Counts { machines: 4, ..set(3, 3) };
    assert_eq!(roll(&fleet(3, (1, 0), set(0, 0), &[slow])), targets(0, &[3]));
}

#[test]
fn a_set_whose_machines_do_not_exist_yet_takes_up_room_too() {
    let lags = Counts { machines: 0, ..set(3, 0) };
    assert_eq!(roll(&fleet(3, (1, 0), lags, &[])), targets(3, &[]));
    assert_eq!(roll(&fleet(4, (0, 1), set(0, 0), &[lags])).new, 1);
}

#[test]
fn a_preserved_machine_goes_last_and_does_not_pass_for_one_that_costs_nothing() {
    // Two of three run, one failed and is preserved: the set would delete a running one.
    let old = Counts { kept: 1, ..set(3, 2) };
    assert_eq!(roll(&fleet(3, (1, 0), set(1, 1), &[old])), targets(1, &[3]));
    let last = Counts { kept: 1, ..set(1, 0) };
    assert_eq!(roll(&fleet(3, (1, 0), set(3, 3), &[last])), targets(3, &[0]), "it goes in the end");
}

#[test]
fn a_preserved_machine_of_the_new_set_holds_a_rollout_that_may_lack_none_until_its_time_is_over() {
    let preserved = Counts { kept: 1, ..set(2, 1) };
    let old = set(1, 1);
    assert_eq!(
        roll(&fleet(2, (1, 0), preserved, &[old])),
        targets(2, &[1]),
        "it takes no other one"
    );
    assert_eq!(roll(&fleet(2, (1, 1), preserved, &[old])), targets(2, &[0]), "it may lack one");
    let replaced = set(2, 2);
    assert_eq!(roll(&fleet(2, (1, 0), replaced, &[old])), targets(2, &[0]), "and then it goes on");
}

#[test]
fn an_old_machine_that_goes_already_is_no_reason_to_take_another_one() {
    // The set wants two, the third one is available until it is deleted.
    let old = Counts { machines: 3, ..set(2, 3) };
    assert_eq!(roll(&fleet(3, (1, 0), set(1, 1), &[old])), targets(1, &[2]));
}

#[test]
fn recreate_waits_until_no_other_machine_is_left() {
    let gone = Counts::default();
    let going = Counts { machines: 1, ..gone };
    let table = [
        ("old machines run", fleet(3, (0, 0), gone, &[set(3, 3)]), false, targets(0, &[0])),
        ("one is being deleted", fleet(3, (0, 0), gone, &[going]), false, targets(0, &[0])),
        ("the set says that one is left", fleet(3, (0, 0), gone, &[gone]), true, targets(0, &[0])),
        ("all are gone", fleet(3, (0, 0), gone, &[gone]), false, targets(3, &[0])),
        (
            "what exists of the new set stays",
            fleet(3, (0, 0), set(2, 2), &[set(1, 1)]),
            false,
            targets(2, &[0]),
        ),
    ];
    for (name, fleet, others, expected) in table {
        assert_eq!(recreate(&fleet, others), expected, "{name}");
    }
}

#[test]
fn scaling_is_due_when_an_active_set_was_scaled_for_another_number() {
    let table = [
        ("nothing changed", fleet(3, (1, 0), marked(3, 3, 3, 4), &[]), false),
        ("more", fleet(4, (1, 0), marked(3, 3, 3, 4), &[]), true),
        ("no active set", fleet(1, (1, 0), marked(0, 0, 0, 1), &[]), true),
        ("to zero and there", fleet(0, (1, 0), marked(0, 0, 3, 4), &[]), false),
        ("an old set", fleet(4, (1, 0), marked(1, 1, 4, 5), &[marked(3, 3, 3, 4)]), true),
        (
            "an old set at zero does not matter",
            fleet(4, (1, 0), marked(4, 4, 4, 5), &[marked(0, 0, 3, 4)]),
            false,
        ),
        ("a set without the annotation", fleet(4, (1, 0), set(3, 3), &[]), false),
    ];
    for (name, fleet, expected) in table {
        assert_eq!(is_due(&fleet), expected, "{name}");
    }
    let none = Fleet { new: None, ..fleet(4, (1, 0), set(0, 0), &[marked(3, 3, 3, 4)]) };
    assert!(!is_due(&none), "without a new set it is a rollout");
}

#[test]
fn one_active_set_gets_all_and_several_share() {
    let rolling = |it: &Fleet| scale(it, Growth::Rolling);
    let table = [
        ("one", fleet(5, (1, 0), marked(3, 3, 3, 4), &[set(0, 0)]), targets(5, &[0])),
        ("none", fleet(5, (1, 0), marked(0, 0, 0, 1), &[]), targets(5, &[])),
        (
            "only an old one",
            fleet(5, (1, 0), marked(0, 0, 3, 4), &[marked(3, 3, 3, 4)]),
            targets(0, &[5]),
        ),
        (
            "the new set has all",
            fleet(4, (1, 0), marked(4, 4, 4, 5), &[marked(1, 1, 3, 4)]),
            targets(4, &[0]),
        ),
        (
            "out: into the new set",
            fleet(10, (1, 0), marked(2, 2, 5, 6), &[marked(4, 4, 5, 6)]),
            targets(7, &[4]),
        ),
        (
            "out: into a new set without machines as well",
            fleet(6, (1, 0), marked(0, 0, 3, 4), &[marked(2, 2, 3, 4), marked(2, 2, 3, 4)]),
            targets(3, &[2, 2]),
        ),
        (
            "out: never above the replicas",
            fleet(6, (4, 0), marked(5, 5, 5, 9), &[marked(1, 1, 5, 9)]),
            targets(6, &[1]),
        ),
        (
            "in: in proportion",
            fleet(5, (1, 5), marked(4, 4, 10, 11), &[marked(7, 7, 10, 11)]),
            targets(2, &[4]),
        ),
        (
            "in: to nothing",
            fleet(0, (0, 0), marked(4, 4, 10, 11), &[marked(7, 7, 10, 11)]),
            targets(0, &[0]),
        ),
        (
            "out: without a limit",
            fleet(10, (i32::MAX - 10, 0), marked(2, 2, 9, 99), &[marked(7, 7, 9, 99)]),
            targets(10, &[7]),
        ),
        ("in: annotations missing", fleet(4, (0, 4), set(4, 4), &[set(4, 4)]), targets(2, &[2])),
        (
            "in: annotation 0",
            fleet(4, (0, 4), marked(4, 4, 9, 0), &[marked(4, 4, 9, 0)]),
            targets(2, &[2]),
        ),
    ];
    for (name, fleet, expected) in table {
        assert_eq!(rolling(&fleet), expected, "{name}");
    }
}

#[test]
fn a_scale_in_takes_machines_that_are_not_available_before_it_breaks_the_promise() {
    // In proportion, two of four new machines would stay that are not available yet, and four old ones: one too few.
    let it = fleet(5, (1, 0), marked(4, 0, 10, 11), &[marked(7, 7, 10, 11)]);
    assert_eq!(scale(&it, Growth::Rolling), targets(1, &[5]));
}

#[test]
fn the_set_of_a_chosen_machine_shrinks_though_the_surge_would_let_it_stay_1078() {
    let old = Counts { marked: 1, ..marked(3, 2, 4, 5) };
    let it = fleet(3, (1, 0), marked(1, 1, 4, 5), &[old]);
    assert_eq!(scale(&it, Growth::Rolling), targets(2, &[2]));
}

#[test]
fn the_set_of_a_chosen_machine_shrinks_also_while_another_one_of_it_is_being_deleted() {
    let old = Counts { machines: 4, living: 3, marked: 1, ..marked(3, 2, 4, 5) };
    let it = fleet(3, (1, 0), marked(1, 1, 4, 5), &[old]);
    assert_eq!(scale(&it, Growth::Rolling), targets(2, &[2]));
    // The set was lowered for the Machine before.
    let old = Counts { machines: 4, living: 4, marked: 1, ..marked(3, 3, 4, 5) };
    assert_eq!(scale(&Fleet { old: vec![old], ..it }, Growth::Rolling), targets(1, &[3]));
}

#[test]
fn in_place_and_recreate_scale_with_several_active_sets_as_well() {
    let it = fleet(10, (0, 0), set(2, 2), &[set(1, 1), set(3, 3)]);
    assert_eq!(scale(&it, Growth::New), targets(6, &[1, 3]));
    assert_eq!(scale(&it, Growth::Largest), targets(2, &[1, 7]));
    let it = fleet(2, (0, 0), set(2, 2), &[set(1, 1), set(3, 2)]);
    assert_eq!(scale(&it, Growth::Largest), targets(2, &[0, 0]));
    let it = fleet(1, (0, 0), set(2, 2), &[set(1, 1)]);
    assert_eq!(scale(&it, Growth::New), targets(1, &[0]));
}

/// Passes until nothing changes, in a world where every wish comes true at once.
fn passes(mut fleet: Fleet) -> Fleet {
    for _ in 0..100 {
        let scales = is_due(&fleet);
        let next = if scales { scale(&fleet, Growth::Rolling) } else { roll(&fleet) };
        if !scales && next == fleet.as_it_is() {
            return fleet;
        }
        let max = fleet.replicas + fleet.surge;
        fleet.new = Some(marked(next.new, next.new, fleet.replicas, max));
        fleet.old = next.old.iter().map(|it| marked(*it, *it, fleet.replicas, max)).collect();
    }
    panic!("it never ends: {fleet:?}");
}

#[test]
fn a_scale_in_the_middle_of_a_rollout_ends_as_both_want_it_816_815_802() {
    for (replicas, new, old) in [(6, 2, 2), (1, 2, 2), (0, 1, 3), (20, 0, 4), (3, 3, 1)] {
        let max = 4;
        let it = fleet(replicas, (1, 0), marked(new, new, 3, max), &[marked(old, old, 3, max)]);
        let first = scale(&it, Growth::Rolling);
        assert!(first.total() >= replicas.min(1).into(), "{replicas}: all at zero: {first:?}");
        let end = passes(it);
        assert_eq!(end.as_it_is(), targets(replicas, &[0]), "{replicas}");
    }
}

#[test]
fn an_update_in_place_that_scales_in_keeps_its_surge_and_what_has_to_be_available() {
    for (name, fleet, expected) in [
        ("the surge is not there yet", fleet(2, (1, 0), set(1, 0), &[set(4, 4)]), targets(1, &[2])),
        (
            "the surge would be made again",
            fleet(3, (1, 0), set(1, 1), &[set(3, 3)]),
            targets(1, &[3]),
        ),
        ("updated ones are lost", fleet(2, (1, 0), set(3, 1), &[set(2, 2)]), targets(2, &[1])),
        ("to nothing", fleet(0, (0, 0), set(1, 1), &[set(2, 2)]), targets(0, &[0])),
    ] {
        assert_eq!(scale(&fleet, Growth::Largest), expected, "{name}");
    }
}

#[test]
fn a_surge_is_rounded_up_what_may_be_unavailable_down_and_one_of_both_is_at_least_one() {
    let rolling = |surge: Value, missing: Value| json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": missing } });
    let in_place = |kind: &str| {
        json!({ "type": "InPlaceUpdate", "inPlaceUpdate": {
            "maxSurge": 2, "maxUnavailable": 1, "orchestrationType": kind
        } })
    };
    let table = [
        ("numbers", 10, rolling(json!(3), json!(2)), (3, 2)),
        ("percentages", 10, rolling(json!("25%"), json!("25%")), (3, 2)),
        ("of one machine", 1, rolling(json!("1%"), json!("99%")), (1, 0)),
        ("both are nothing", 10, rolling(json!(0), json!(0)), (0, 1)),
        ("both are nothing when rounded", 3, rolling(json!("0%"), json!("30%")), (0, 1)),
        ("more than there are", 3, rolling(json!(5), json!(5)), (5, 3)),
        ("of no machines", 0, rolling(json!("50%"), json!("50%")), (0, 0)),
        ("the sum has to be a number", 10, rolling(json!(i32::MAX), json!(0)), (i32::MAX - 10, 0)),
        ("there is none above", i32::MAX, rolling(json!(1), json!(0)), (0, 1)),
        ("refused elsewhere", -10, rolling(json!(i32::MAX), json!(0)), (i32::MAX, -10)),
        ("not said", 10, rolling(Value::Null, Value::Null), (0, 1)),
        ("neither number nor percentage", 10, rolling(json!("3"), json!("x")), (0, 1)),
        ("a block of another strategy", 10, json!({ "type": "Recreate" }), (0, 0)),
        ("in place", 10, in_place("Auto"), (2, 1)),
        ("in place, and a user chooses: nothing is created for it", 10, in_place("Manual"), (0, 1)),
    ];
    for (name, replicas, strategy, expected) in table {
        let spec = json!({
            "replicas": replicas, "strategy": strategy,
            "selector": { "matchLabels": { "app": "f" } },
            "template": { "spec": { "class": { "kind": "MachineClass", "name": "c" } } },
        });
        let found = fenceposts::of(&serde_json::from_value(spec).unwrap());
        assert_eq!((found.surge, found.unavailable), expected, "{name}");
    }
}

#[test]
fn sets_that_together_want_more_than_a_number_holds_are_scaled_in() {
    let max = i32::MAX;
    for mark in [None, Some(max)] {
        let set = Counts { wanted: max, desired_mark: mark, max_mark: mark, ..Counts::default() };
        let it = |replicas| fleet(replicas, (1, 1), set, &[set, set]);
        for growth in [Growth::Rolling, Growth::New, Growth::Largest] {
            for replicas in [0, 3, max - 1] {
                let mut fleet = it(replicas);
                // The next pass takes the rest away.
                for _ in 0..4 {
                    let next = scale(&fleet, growth);
                    fleet.new = Some(Counts { wanted: next.new, ..set });
                    fleet.old =
                        next.old.iter().map(|wanted| Counts { wanted: *wanted, ..set }).collect();
                }
                let total = fleet.as_it_is().total();
                assert!(total <= i64::from(replicas) + 1, "{growth:?} {replicas}: {total}");
            }
        }
        assert_eq!(roll(&it(3)).new, 3);
        assert!(roll(&it(max - 1)).total() < it(3).as_it_is().total());
        let selection = Selection { healthy: 0, unhealthy: 1, undergoing: 0 };
        assert_eq!(select(&it(3), selection), (0, 0));
    }
}
