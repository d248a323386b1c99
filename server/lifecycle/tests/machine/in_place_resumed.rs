//! Updates in place that were begun by another one, taken back, or half written down.

use ostler_api::{
    machine::{MachinePhase, WaitReason},
    names::{annotation, label},
};
use ostler_lifecycle::{plan::Action, snapshot::Observed};

use crate::machine::{
    in_place::{
        at_stage, edit_node, has_label, is_cordoned, put_into_a_set, ready, select, set, sick,
        stage,
    },
    world::{World, pod, seconds},
};

#[test]
fn the_node_of_a_rollout_that_was_taken_back_is_given_back_once_its_update_is_over() {
    for result in [Some("successful"), None] {
        let mut world = World::running();
        put_into_a_set(&mut world);
        select(&mut world);
        world.settle();
        set(&mut world, label::CANDIDATE_FOR_UPDATE, None);
        set(&mut world, label::SELECTED_FOR_UPDATE, None);
        world.settle();
        assert_eq!(world.phase(), MachinePhase::InPlaceUpdating, "the agent may be at work");
        set(&mut world, label::UPDATE_RESULT, result);
        world.later(1200);
        world.settle();
        assert_eq!(world.phase(), MachinePhase::Running);
        assert!(!is_cordoned(&world) && !has_label(&world, label::UPDATE_RESULT), "{result:?}");
        assert_ne!(stage(&world), "ReadyForUpdate", "no agent begins while pods are there");
        world.pods = Observed::Known(vec![pod("web")]);
        select(&mut world);
        for _ in 0..4 {
            world.pass();
        }
        assert_eq!(world.phase(), MachinePhase::Running, "its pods leave first");
        assert!(is_cordoned(&world));
    }
}

#[test]
fn a_node_that_has_pods_again_is_emptied_before_an_agent_may_begin() {
    for before in ["DrainSuccessful", "ReadyForUpdate"] {
        let mut world = World::running();
        select(&mut world);
        at_stage(&mut world, before);
        world.pods = Observed::Known(vec![pod("web")]);
        let plans = [world.pass(), world.pass(), world.pass()];
        let mut all = plans.iter().flat_map(|plan| &plan.actions);
        assert!(all.any(|one| matches!(one, Action::Evict(_))), "{before}");
        assert_eq!(
            (world.phase(), stage(&world)),
            (MachinePhase::Running, "SelectedForUpdate".to_owned())
        );
        world.pods_end();
        world.settle();
        assert_eq!(
            (world.phase(), stage(&world)),
            (MachinePhase::InPlaceUpdating, "ReadyForUpdate".to_owned())
        );
    }
}

#[test]
fn an_update_that_another_controller_began_is_gone_on_with() {
    for (phase, reason) in [
        ("Running", "SelectedForUpdate"),
        ("InPlaceUpdating", "SelectedForUpdate"),
        ("Running", "DrainSuccessful"),
        ("InPlaceUpdating", "ReadyForUpdate"),
    ] {
        let mut world = World::running();
        select(&mut world);
        at_stage(&mut world, reason);
        let status = world.machine_mut().status.as_mut().unwrap();
        status.current_status.as_mut().unwrap().phase = Some(phase.into());
        world.settle();
        assert_eq!(
            (world.phase(), stage(&world)),
            (MachinePhase::InPlaceUpdating, "ReadyForUpdate".to_owned()),
            "{phase} {reason}"
        );
    }
}

#[test]
fn a_status_that_was_not_written_loses_nothing() {
    let mut world = World::running();
    world.pods = Observed::Known(vec![pod("web")]);
    select(&mut world);
    for round in 0..40 {
        let before = world.machine().status.clone();
        world.pass();
        if round == 8 {
            world.pods_end();
        }
        // Every second write of the status fails after the writes to the Node were done.
        if round % 2 == 0 {
            world.machine_mut().status = before;
        }
    }
    assert_eq!(
        (world.phase(), stage(&world)),
        (MachinePhase::InPlaceUpdating, "ReadyForUpdate".to_owned())
    );
}

#[test]
fn a_core_that_dies_right_after_the_cordon_knows_that_it_was_its_own() {
    let mut world = World::running();
    world.pods = Observed::Known(vec![pod("web")]);
    world.protected.insert("web".to_owned());
    select(&mut world);
    let mut before = world.machine.clone();
    while !is_cordoned(&world) {
        before = world.machine.clone();
        world.pass();
    }
    world.machine = before;
    for _ in 0..3 {
        world.pass();
    }
    assert_eq!(world.waits_for(), Some(WaitReason::PodDisruptionBudget));
    set(&mut world, label::SELECTED_FOR_UPDATE, None);
    world.settle();
    assert!(!is_cordoned(&world));
}

#[test]
fn a_node_that_joined_while_no_core_looked_is_not_known_to_have_no_critical_components() {
    for (seconds, noted) in [(29, true), (30, false)] {
        let mut world = World::new();
        world.settle();
        world.join();
        world.later(seconds);
        world.settle();
        assert_eq!(world.phase(), MachinePhase::Running);
        let notes = world.node().metadata.annotations.clone().unwrap();
        assert_eq!(notes.contains_key(annotation::CRITICAL_COMPONENTS), noted, "{seconds}");
    }
}

/// An update timed out without a result, and a user gave the Node back to pods.
fn timed_out() -> World {
    let mut world = ready();
    world.later(7 * 24 * 3600);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed);
    edit_node(&mut world, |node| node.spec.as_mut().unwrap().unschedulable = None);
    world.pods = Observed::Known(vec![pod("web")]);
    world.settle();
    world
}

#[test]
fn an_update_that_timed_out_is_not_begun_again_because_its_node_was_unhealthy_for_a_moment() {
    for result in [None, Some("successful")] {
        let mut world = timed_out();
        sick(&mut world, "False");
        world.settle();
        assert_eq!(world.phase(), MachinePhase::Unknown);
        set(&mut world, label::UPDATE_RESULT, result);
        sick(&mut world, "True");
        world.settle();
        let expected = match result {
            None => MachinePhase::InPlaceUpdateFailed,
            Some(_) => MachinePhase::Running,
        };
        assert_eq!(world.phase(), expected);
        assert!(!is_cordoned(&world));
        assert_eq!(world.pods, Observed::Known(vec![pod("web")]), "no user asked for more");
    }
}

#[test]
fn a_retry_of_an_update_that_timed_out_gives_pods_their_time() {
    let mut world = timed_out();
    world.protected.insert("web".to_owned());
    let annotations = world.machine_mut().metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::RETRY_UPDATE.to_owned(), String::new());
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::PodDisruptionBudget));
    assert!(is_cordoned(&world));
    let drain = world.status().drain.unwrap();
    assert_eq!(drain.deadline.unwrap().0, seconds(world.now, 2 * 60 * 60));
}

#[test]
fn a_drain_that_is_resumed_from_a_later_stage_has_its_whole_time() {
    let mut world = World::running();
    select(&mut world);
    at_stage(&mut world, "ReadyForUpdate");
    world.later(7 * 24 * 3600);
    world.pods = Observed::Known(vec![pod("web")]);
    world.protected.insert("web".to_owned());
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::PodDisruptionBudget));
}
