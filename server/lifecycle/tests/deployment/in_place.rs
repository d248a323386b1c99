//! Updates in place: Machines stay and change their set.

use ostler_api::names::{annotation, label, taint};

use ostler_lifecycle::deployment::conditions::hindrance;
use ostler_lifecycle::deployment::counts::{Counts, Fleet};
use ostler_lifecycle::deployment::in_place::{Selection, let_go, select};
use serde_json::{Value, json};

use crate::deployment::world::{World, deployment, with_phase};

fn in_place(replicas: i32, (surge, unavailable): (i32, i32), kind: &str) -> Value {
    let mut object = deployment(replicas);
    object["spec"]["strategy"] = json!({ "type": "InPlaceUpdate", "inPlaceUpdate": {
        "maxSurge": surge, "maxUnavailable": unavailable, "orchestrationType": kind
    }});
    object
}

fn running(replicas: i32, posts: (i32, i32), kind: &str) -> World {
    let mut world = World::of(in_place(replicas, posts, kind));
    world.settle();
    world
}

fn labelled(world: &World, key: &str) -> Vec<String> {
    let has = |node: &&k8s_openapi::api::core::v1::Node| {
        node.metadata.labels.as_ref().is_some_and(|all| all.contains_key(key))
    };
    world.nodes.values().filter(has).filter_map(|node| node.metadata.name.clone()).collect()
}

/// Until nothing changes. Returns the fewest available machines.
fn settle(world: &mut World) -> usize {
    let mut fewest = usize::MAX;
    for _ in 0..100 {
        let before = (world.deployment.clone(), world.sets.clone(), world.nodes.clone());
        world.passes();
        world.sets_work();
        world.drains();
        fewest = fewest.min(world.available());
        world.agents_work(true);
        world.machines_start();
        world.machines_go();
        if before == (world.deployment.clone(), world.sets.clone(), world.nodes.clone()) {
            return fewest;
        }
    }
    panic!("it never ends: {:#?} {:#?}", world.sets, world.nodes);
}

#[test]
fn every_machine_is_updated_and_none_is_replaced() {
    let mut world = running(3, (0, 1), "Auto");
    let names = world.names();
    world.roll_to("two");
    assert_eq!(settle(&mut world), 2);
    assert_eq!(world.names(), names);
    assert_eq!(world.wanted()["two"], 3);
    assert_eq!(world.wanted()["one"], 0);
    let new = world.set("two").clone();
    for machine in world.machines.values() {
        assert_eq!(machine.spec.class.name, "two", "#1153");
        let owners = machine.metadata.owner_references.as_deref().unwrap();
        assert_eq!((owners.len(), owners[0].uid.as_str()), (1, new.uid()));
        assert_eq!(machine.label(label::TEMPLATE_HASH), new.label(label::TEMPLATE_HASH));
        assert_eq!(machine.label(label::UPDATE_RESULT), None);
    }
    for key in [label::CANDIDATE_FOR_UPDATE, label::SELECTED_FOR_UPDATE, label::UPDATE_RESULT] {
        assert_eq!(labelled(&world, key), Vec::<String>::new(), "{key}");
    }
    assert_eq!(world.progressing().1, "NewMachineSetAvailable");
    let held = world.sets.values().any(|set| set.label(label::SCALE_UP_DISABLED).is_some());
    assert!(!held, "a set that creates nothing could not be rolled back to");
}

#[test]
fn the_taint_of_critical_components_comes_back_unless_the_node_is_known_to_have_none() {
    for (what, note, comes_back) in [
        ("it joined with it", Some("true"), true),
        ("it joined without: nothing would ever take it away", Some("false"), false),
        ("another controller saw it join, or a client erased the note", None, true),
    ] {
        let mut world = running(1, (0, 1), "Auto");
        let name = world.names().remove(0);
        let note = note.map(|note| (annotation::CRITICAL_COMPONENTS.to_owned(), note.to_owned()));
        world.nodes.get_mut(&name).unwrap().metadata.annotations = Some(note.into_iter().collect());
        world.roll_to("two");
        settle(&mut world);
        let taints = world.nodes[&name].spec.clone().unwrap().taints.unwrap_or_default();
        let taints: Vec<_> =
            taints.iter().map(|one| (one.key.as_str(), one.effect.as_str())).collect();
        let expected = (taint::CRITICAL_COMPONENTS_NOT_READY, "NoSchedule");
        assert_eq!(taints, Vec::from_iter(comes_back.then_some(expected)), "{what}");
    }
}

#[test]
fn a_machine_that_is_updated_gets_the_version_of_its_new_set() {
    let mut world = running(2, (0, 1), "Auto");
    let names = world.names();
    for version in [json!("1.34.1"), json!("1.35.0"), Value::Null] {
        world.edit(&json!({ "spec": { "template": { "spec": { "version": version } } } }));
        settle(&mut world);
        assert_eq!(world.names(), names, "none is replaced");
        for machine in world.machines.values() {
            assert_eq!(json!(machine.spec.version), version);
        }
    }
}

#[test]
fn a_surge_creates_new_machines_and_the_last_old_ones_go() {
    let mut world = running(3, (1, 0), "Auto");
    world.roll_to("two");
    assert!(settle(&mut world) >= 3);
    assert_eq!(world.wanted()["two"], 3);
    assert_eq!(world.machines.len(), 3);
}

#[test]
fn an_old_machine_that_is_no_more_needed_stays_until_it_is_not_missed() {
    let mut world = running(2, (1, 0), "Auto");
    world.roll_to("two");
    world.passes();
    world.sets_work();
    world.machines_start();
    let extra = world.machines.values().find(|machine| machine.spec.class.name == "two");
    let extra = extra.unwrap().name().to_owned();
    world.passes();
    world.drains();
    world.agents_work(true);
    // It is lost just as the first one of the others is handed over.
    let lost = with_phase(&world.machines[&extra], "Unknown");
    world.machines.insert(extra.clone(), lost);
    for _ in 0..3 {
        world.passes();
        world.sets_work();
    }
    assert_eq!((world.wanted()["one"], world.wanted()["two"]), (1, 2));
    assert!(world.machines.values().all(|machine| !machine.is_deleting()));
    let again = with_phase(&world.machines[&extra], "Running");
    world.machines.insert(extra, again);
    settle(&mut world);
    assert_eq!((world.machines.len(), world.wanted()["two"]), (2, 2));
}

#[test]
fn sets_that_become_smaller_are_written_first() {
    let mut world = running(3, (0, 1), "Auto");
    world.roll_to("two");
    settle(&mut world);
    // Back: the growing set is the older one.
    world.roll_to("one");
    let mut both = false;
    for _ in 0..40 {
        let plan = world.pass();
        let grows = plan.sets.iter().filter_map(|write| {
            let to = write.patch.pointer("/spec/replicas")?.as_i64()?;
            Some(to > i64::from(write.set.spec.replicas()))
        });
        let grows: Vec<bool> = grows.collect();
        assert!(grows.is_sorted(), "{grows:?}");
        both |= grows.len() == 2 && grows[0] != grows[1];
        world.sets_work();
        world.drains();
        world.agents_work(true);
        world.machines_start();
        world.machines_go();
    }
    assert!(both, "one shrank in the pass in which the other one grew");
    assert_eq!(world.wanted()["one"], 3);
}

#[test]
fn in_manual_mode_the_user_selects() {
    let mut world = running(2, (3, 1), "Manual");
    world.roll_to("two");
    settle(&mut world);
    assert_eq!(world.wanted()["two"], 0, "no surge");
    assert_eq!(labelled(&world, label::CANDIDATE_FOR_UPDATE).len(), 2);
    assert_eq!(labelled(&world, label::SELECTED_FOR_UPDATE).len(), 0);
    let name = world.names()[0].clone();
    select_by_hand(&mut world, &name);
    settle(&mut world);
    assert_eq!((world.wanted()["one"], world.wanted()["two"]), (1, 1));
    assert_eq!(world.machines[&name].spec.class.name, "two");
}

fn hindered(world: &World) -> Option<String> {
    let status = world.status();
    hindrance(&status.conditions).map(str::to_owned)
}

#[test]
fn in_manual_mode_the_status_says_how_many_nodes_wait_for_the_user() {
    let mut world = running(2, (0, 1), "Manual");
    assert_eq!(hindered(&world), None, "there is no rollout");
    world.roll_to("two");
    settle(&mut world);
    let says = "must be labelled node.machine.sapcloud.io/selected-for-update by a user";
    assert_eq!(hindered(&world), Some(format!("2 nodes {says}")));
    let names = world.names();
    select_by_hand(&mut world, &names[0]);
    settle(&mut world);
    let one = "1 node must be labelled node.machine.sapcloud.io/selected-for-update by a user";
    assert_eq!(hindered(&world).as_deref(), Some(one));
    world.edit(&json!({ "spec": { "paused": true } }));
    world.passes();
    assert_eq!(hindered(&world), None, "the pause is what it waits for");
    world.edit(&json!({ "spec": { "paused": null } }));
    select_by_hand(&mut world, &names[1]);
    settle(&mut world);
    assert_eq!(hindered(&world), None);
    assert_eq!(world.wanted()["two"], 2);
}

#[test]
fn machines_that_were_updated_and_are_not_wanted_any_more_go() {
    let mut world = running(2, (0, 2), "Auto");
    world.roll_to("two");
    for _ in 0..4 {
        world.passes();
        world.sets_work();
        world.drains();
    }
    world.agents_work(true);
    world.deployment.spec.replicas = Some(1);
    assert!(settle(&mut world) <= 1);
    assert_eq!((world.machines.len(), world.wanted()["two"]), (1, 1));
}

#[test]
fn a_rollout_that_follows_a_hand_over_updates_what_was_handed_over_again() {
    for (replicas, next) in [(2, "three"), (2, "one"), (1, "three"), (1, "one")] {
        let mut world = running(2, (0, 1), "Auto");
        world.roll_to("two");
        let handed = |world: &World| {
            world.machines.values().any(|one| one.label(label::UPDATE_RESULT).is_some())
        };
        for _ in 0..40 {
            if handed(&world) {
                break;
            }
            world.pass();
            world.sets_work();
            world.drains();
            world.agents_work(true);
        }
        assert!(handed(&world));
        world.roll_to(next);
        world.deployment.spec.replicas = Some(replicas);
        settle(&mut world);
        let classes: Vec<_> =
            world.machines.values().map(|one| one.spec.class.name.as_str()).collect();
        let expected = vec![next; usize::try_from(replicas).unwrap()];
        assert_eq!(classes, expected, "{replicas} of {next}");
        assert_eq!(world.wanted()[next], replicas);
    }
}

fn select_by_hand(world: &mut World, node: &str) {
    let selected = (label::SELECTED_FOR_UPDATE.to_owned(), "true".to_owned());
    let node = world.nodes.get_mut(node).unwrap();
    node.metadata.labels.get_or_insert_default().extend([selected]);
}

#[test]
fn a_node_that_a_user_selected_before_the_rollout_waits_for_its_turn() {
    let mut world = running(3, (0, 1), "Auto");
    for name in world.names() {
        select_by_hand(&mut world, &name);
    }
    world.roll_to("two");
    assert_eq!(settle(&mut world), 2, "one at a time");
    assert_eq!((world.wanted()["one"], world.wanted()["two"]), (0, 3));
}

#[test]
fn a_node_that_a_user_selected_before_the_rollout_keeps_no_machine_that_is_not_wanted() {
    let mut world = running(1, (0, 1), "Auto");
    let name = world.names()[0].clone();
    select_by_hand(&mut world, &name);
    world.roll_to("two");
    world.deployment.spec.replicas = Some(0);
    settle(&mut world);
    assert_eq!((world.machines.len(), world.wanted()["one"]), (0, 0));
}

#[test]
fn an_update_that_fails_holds_its_slot() {
    let mut world = running(3, (0, 1), "Auto");
    world.roll_to("two");
    for _ in 0..5 {
        world.passes();
        world.sets_work();
        world.drains();
        world.agents_work(false);
    }
    let selected = labelled(&world, label::SELECTED_FOR_UPDATE);
    assert_eq!(selected.len(), 1);
    assert_eq!(world.available(), 2);
    // And it is said, with the name of the Node, until it is tried again.
    let name = selected[0].clone();
    world.edit_machine(&name, &json!({ "metadata": { "labels": { "node": "node-of-it" } } }));
    world.passes();
    let before = world.condition("Progressing").unwrap();
    let message = before.message.clone().unwrap();
    assert!(message.contains(&format!("machine {name} on node node-of-it")), "{message}");
    assert!(message.contains("ostler.dev/retry-update"), "{message}");
    let again = with_phase(&world.machines[&name], "InPlaceUpdating");
    world.machines.insert(name, again);
    world.passes();
    let after = world.condition("Progressing").unwrap();
    assert!(!after.message.unwrap().contains("Blocked"));
    assert_eq!((after.reason, after.last_update_time), (before.reason, before.last_update_time));
}

#[test]
fn a_machine_that_is_still_updating_is_not_handed_over_1020() {
    let mut world = running(1, (0, 1), "Auto");
    world.roll_to("two");
    world.passes();
    world.agents_work(true);
    let name = world.names()[0].clone();
    world.edit_machine(
        &name,
        &json!({ "status": { "currentStatus": { "phase": "InPlaceUpdating" } } }),
    );
    world.passes();
    assert_eq!(world.machines[&name].spec.class.name, "one");
    world.edit_machine(&name, &json!({ "status": { "currentStatus": { "phase": "Running" } } }));
    world.passes();
    assert_eq!(world.machines[&name].spec.class.name, "two");
}

#[test]
fn a_set_that_lost_a_machine_between_two_writes_neither_creates_nor_deletes() {
    let mut world = running(2, (0, 1), "Auto");
    world.roll_to("two");
    world.passes();
    world.drains();
    world.agents_work(true);
    // The machine is handed over; the numbers of the sets are not written.
    let before = world.sets.clone();
    world.pass();
    world.sets = before;
    world.sets_work();
    assert_eq!(world.machines.len(), 2);
    assert!(world.machines.values().all(|machine| !machine.is_deleting()));
    settle(&mut world);
    assert_eq!((world.machines.len(), world.wanted()["two"]), (2, 2));
}

#[test]
fn selection_keeps_the_minimum_and_takes_unavailable_machines_first() {
    let set =
        |wanted, available| Counts { wanted, machines: wanted, available, ..Counts::default() };
    let fleet = |unavailable, new, old: Counts| Fleet {
        replicas: 5,
        surge: 0,
        unavailable,
        new: Some(new),
        old: vec![old],
    };
    let table = [
        ("one may be missing", fleet(1, set(0, 0), set(5, 5)), (5, 0, 0), (0, 1)),
        ("one is on its way", fleet(1, set(0, 0), set(5, 4)), (4, 0, 1), (0, 0)),
        ("two may", fleet(2, set(0, 0), set(5, 5)), (5, 0, 0), (0, 2)),
        ("an unavailable one first", fleet(1, set(0, 0), set(5, 4)), (4, 1, 0), (1, 0)),
        ("a new one is not there yet", fleet(1, set(1, 0), set(4, 4)), (4, 0, 0), (0, 0)),
        ("none may", fleet(0, set(0, 0), set(5, 5)), (5, 0, 0), (0, 0)),
        ("only as many as are missing", fleet(5, set(4, 4), set(1, 1)), (1, 0, 0), (0, 1)),
    ];
    for (name, fleet, (healthy, unhealthy, undergoing), expected) in table {
        assert_eq!(
            select(&fleet, Selection { healthy, unhealthy, undergoing }),
            expected,
            "{name}"
        );
    }
}

#[test]
fn a_scale_in_during_an_update_takes_and_selects_no_machine_that_is_missed() {
    let mut world = running(4, (1, 0), "Auto");
    world.roll_to("two");
    world.passes();
    world.sets_work(); // The surge is on its way.
    world.edit(&json!({ "spec": { "replicas": 2 } }));
    world.passes();
    world.sets_work();
    assert_eq!(world.available(), 2);
    assert_eq!(labelled(&world, label::SELECTED_FOR_UPDATE), Vec::<String>::new());
    assert!(settle(&mut world) >= 2);
}

#[test]
fn what_an_agent_said_after_a_rollback_is_no_result_of_the_next_rollout() {
    let mut world = running(1, (0, 1), "Auto");
    let name = world.names()[0].clone();
    world.roll_to("two");
    world.passes();
    world.drains();
    world.roll_to("one");
    world.passes();
    let labels = world.nodes.get_mut(&name).unwrap().metadata.labels.get_or_insert_default();
    labels.insert(label::UPDATE_RESULT.to_owned(), "successful".to_owned());
    let again = with_phase(&world.machines[&name], "Running");
    world.machines.insert(name.clone(), again);
    world.roll_to("three");
    world.passes();
    assert_eq!(labelled(&world, label::SELECTED_FOR_UPDATE), [name]);
    assert_eq!(labelled(&world, label::UPDATE_RESULT), Vec::<String>::new());
}

#[test]
fn a_machine_that_goes_is_no_reason_to_select_another_one() {
    let mut world = running(3, (0, 1), "Auto");
    world.roll_to("two");
    world.passes();
    let selected = labelled(&world, label::SELECTED_FOR_UPDATE);
    assert_eq!(selected.len(), 1);
    // An autoscaler lowered the number while no core led, and the sets say that they were scaled for it.
    world.edit(&json!({ "spec": { "replicas": 2 } }));
    for set in world.sets.values_mut() {
        let all = set.metadata.annotations.get_or_insert_default();
        all.insert(annotation::DESIRED_REPLICAS.to_owned(), "2".to_owned());
    }
    world.passes();
    assert_eq!(labelled(&world, label::SELECTED_FOR_UPDATE), selected);
    // In numbers: of three, one goes, and one has to be available.
    let three = Counts { wanted: 3, machines: 3, living: 3, available: 3, ..Counts::default() };
    let (new, old) = (Some(Counts::default()), vec![three]);
    let fleet = Fleet { replicas: 2, surge: 0, unavailable: 1, new, old };
    let waiting = Selection { healthy: 3, unhealthy: 0, undergoing: 0 };
    assert_eq!(select(&fleet, waiting), (0, 1));
}

#[test]
fn nodes_are_selected_in_the_reverse_of_the_order_in_which_machines_are_deleted() {
    let mut world = running(4, (0, 1), "Auto");
    let names = world.names();
    // By name they would come the other way round.
    let born = |second: usize| json!({ "metadata": { "creationTimestamp": format!("2026-01-01T00:00:0{second}Z") } });
    for (second, name) in names.iter().rev().enumerate() {
        world.edit_machine(name, &born(second));
    }
    let chosen = json!({ "metadata": { "annotations": { annotation::PRIORITY: "2" } } });
    world.edit_machine(&names[0], &chosen);
    world.roll_to("two");
    let mut order = Vec::new();
    for _ in 0..40 {
        world.pass();
        let selected = labelled(&world, label::SELECTED_FOR_UPDATE);
        order.extend(selected.into_iter().filter(|it| !order.contains(it)).collect::<Vec<_>>());
        world.sets_work();
        world.drains();
        world.agents_work(true);
    }
    let expected = [1, 2, 3, 0].map(|index| names[index].clone());
    assert_eq!(order, expected, "the newest first, and what would go first last");
}

#[test]
fn the_status_names_a_machine_that_is_left_out_since_it_has_no_node() {
    let mut world = running(2, (0, 1), "Auto");
    let name = world.names()[0].clone();
    let (node, lost) =
        (world.nodes.remove(&name).unwrap(), with_phase(&world.machines[&name], "Unknown"));
    world.machines.insert(name.clone(), lost);
    world.roll_to("two");
    settle(&mut world);
    let says = format!("machine {name} has no node that could be updated");
    assert_eq!(hindered(&world), Some(says));
    assert_eq!(world.wanted()["two"], 0, "the other one is missed");
    let again = with_phase(&world.machines[&name], "Running");
    world.machines.insert(name.clone(), again);
    world.nodes.insert(name, node);
    settle(&mut world);
    assert_eq!((hindered(&world), world.wanted()["two"]), (None, 2));
}

#[test]
fn of_the_old_machines_those_go_that_are_not_missed_and_preserved_ones_last() {
    let set = |wanted, available, kept| Counts { wanted, available, kept, ..Counts::default() };
    let table = [
        ("none is missed", (3, 3), vec![set(2, 2, 0)], vec![0], vec![0]),
        ("one is missed", (3, 2), vec![set(2, 2, 0)], vec![0], vec![1]),
        ("one is busy", (3, 3), vec![set(2, 1, 0)], vec![1], vec![1]),
        ("an unavailable one is never missed", (3, 0), vec![set(3, 2, 0)], vec![0], vec![2]),
        ("the set would keep the preserved one", (3, 1), vec![set(3, 2, 1)], vec![0], vec![3]),
        ("it goes in the end", (3, 3), vec![set(1, 0, 1)], vec![0], vec![0]),
        ("the oldest first", (3, 2), vec![set(1, 1, 0), set(1, 1, 0)], vec![0, 0], vec![0, 1]),
    ];
    for (name, (wanted, available), old, busy, expected) in table {
        let fleet = Fleet {
            replicas: 3,
            surge: 0,
            unavailable: 0,
            new: Some(set(wanted, available, 0)),
            old,
        };
        assert_eq!(let_go(&fleet, fleet.as_it_is(), i32::MAX, &busy).old, expected, "{name}");
    }
}

#[test]
fn a_machine_that_was_updated_and_that_an_autoscaler_chose_goes_and_no_other_one() {
    let mut world = running(3, (0, 1), "Auto");
    let mut left = world.names();
    world.roll_to("two");
    world.passes();
    world.drains();
    let chosen = labelled(&world, label::SELECTED_FOR_UPDATE).remove(0);
    world.agents_work(true);
    let now = "2026-01-01T00:10:00Z";
    world.edit(&json!({
        "metadata": { "annotations": {
            annotation::TRIGGER_DELETION: format!("{chosen}~{now}"),
            annotation::REPLICAS_CHANGED_BY_SCALER: now,
        } },
        "spec": { "replicas": 2 },
    }));
    settle(&mut world);
    left.retain(|name| *name != chosen);
    assert_eq!((world.names(), world.wanted()["two"]), (left, 2));
}

/// Whenever a user takes another strategy in the middle of a rollout in place, nothing of it stays.
#[test]
fn a_rollout_in_place_that_goes_on_with_another_strategy_leaves_nothing_behind() {
    let steps: [fn(&mut World); 5] = [
        World::passes,
        World::sets_work,
        World::drains,
        |world| world.agents_work(true),
        |world| world.agents_work(false),
    ];
    for (strategy, count) in [("RollingUpdate", 12), ("Recreate", 12)] {
        for (cut, posts) in (0..count).flat_map(|cut| [(cut, (0, 1)), (cut, (1, 0)), (cut, (1, 2))])
        {
            let what = format!("{strategy} after {cut} steps with {posts:?}");
            let mut world = running(3, posts, "Auto");
            world.roll_to("two");
            for step in steps.iter().cycle().take(cut) {
                step(&mut world);
            }
            let updated = world.machines.values().filter(|it| it.spec.class.name == "two").count();
            let least = world.available().min(usize::try_from(3 - posts.1).unwrap());
            world.edit(&json!({ "spec": { "strategy": {
                "type": strategy,
                "inPlaceUpdate": null,
                "rollingUpdate": { "maxSurge": posts.0, "maxUnavailable": posts.1 }
            } } }));
            let before = world.names();
            let mut fewest = usize::MAX;
            for _ in 0..3 {
                fewest = fewest.min(world.settle());
                world.recover();
            }
            assert_eq!((world.wanted()["one"], world.wanted()["two"]), (0, 3), "{what}");
            assert_eq!(world.machines.len(), 3, "{what}");
            for key in
                [label::CANDIDATE_FOR_UPDATE, label::SELECTED_FOR_UPDATE, label::UPDATE_RESULT]
            {
                assert_eq!(labelled(&world, key), Vec::<String>::new(), "{key}: {what}");
                let on = world.machines.values().filter(|it| it.label(key).is_some()).count();
                assert_eq!(on, 0, "{key}: {what}");
            }
            let held = world.sets.values().any(|set| set.label(label::SCALE_UP_DISABLED).is_some());
            assert!(!held, "{what}");
            let kept = world.names().iter().filter(|name| before.contains(name)).count();
            assert!(kept >= updated, "{kept} of {updated} stayed: {what}");
            if strategy == "RollingUpdate" {
                assert!(fewest >= least, "{fewest} of {least} were available: {what}");
            }
        }
    }
}
