use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::{
    driver::OperationKind as Kind,
    machine::{DrainProgress, MachineStep, WaitReason},
    names,
};
use ostler_lifecycle::{
    operation::OperationView,
    outage::ApiView,
    plan::{Action, EventReason, NodePatch, PodRef},
    pod::EvictionRefusal,
    snapshot::{BudgetFacts, NodeView, Observed, PodView, RefusalCause},
};

use crate::machine::{
    pods::pod,
    world::{World, looks_again, node},
};

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
    assert_eq!(evicted(&plan.actions), ["job", "web", "db"], "all that can leave, in one pass");
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
    assert_eq!(world.count(Kind::DeleteMachine), 1, "force waits for no pod");
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

fn budget(name: &str, misconfigured: bool) -> BudgetFacts {
    BudgetFacts { name: format!("apps/{name}"), misconfigured }
}

#[test]
fn a_misconfigured_budget_is_named_told_once_and_makes_no_hot_loop() {
    let mut world = draining(vec![pod("db")]);
    world.protected.insert("db".to_owned());
    world.budgets = vec![budget("db-pdb", true)];
    let mut tries = 0;
    for _ in 0..60 {
        tries += evicted(&world.pass().actions).len();
        world.later(1);
    }
    assert_eq!(world.waits_for(), Some(WaitReason::MisconfiguredBudget));
    let drain = world.status().drain.unwrap();
    assert_eq!((drain.blocked, drain.misconfigured), (1, 1));
    assert_eq!(drain.budgets, ["apps/db-pdb"]);
    let message = world.status().waiting_for.unwrap().message.unwrap();
    assert!(message.contains("apps/db-pdb"), "{message}");
    let told: Vec<_> =
        world.events.iter().filter(|one| one.reason == EventReason::DrainBlocked).collect();
    assert!(told.len() == 1 && told[0].warning && told[0].on_node, "{told:?}");
    assert!((3..=5).contains(&tries), "5 s, 10 s, then every 20 s: {tries}");
}

#[test]
fn several_budgets_of_one_pod_block_it_and_do_not_end_the_drain() {
    let mut world = draining(vec![pod("db"), pod("web")]);
    world.protected.insert("db".to_owned());
    world.budgets = vec![budget("one", false), budget("two", true)];
    world.pass();
    world.pods_end();
    assert_eq!(world.waits_for(), Some(WaitReason::SeveralBudgets));
    let drain = world.status().drain.unwrap();
    assert_eq!((drain.pods_left, drain.several_budgets, drain.failing), (2, 1, 0));
    assert_eq!(drain.budgets, ["apps/one", "apps/two"]);
    assert_eq!(world.count(Kind::DeleteMachine), 0);
    world.protected.clear();
    world.later(20);
    world.pass();
    world.pods_end();
    world.settle();
    assert!(world.machine.is_none(), "one budget less, and it goes on");
}

#[test]
fn an_eviction_that_fails_for_another_reason_is_counted_and_tried_again() {
    let mut world = draining(vec![pod("db"), pod("web")]);
    world.protected.insert("db".to_owned());
    world.pass();
    let Observed::Known(pods) = &mut world.pods else { panic!() };
    pods[0].refused.as_mut().unwrap().cause = RefusalCause::Failed("forbidden".to_owned());
    world.events.clear();
    world.pass();
    let wait = world.status().waiting_for.unwrap();
    assert_eq!(wait.reason, WaitReason::EvictionFailing);
    let text = "2 pods left, 1 cannot be evicted; apps/db: forbidden";
    assert_eq!(wait.message.as_deref(), Some(text));
    assert!(world.events.iter().any(|it| it.reason == EventReason::DrainBlocked), "a user is told");
    let drain = world.status().drain.unwrap();
    assert_eq!((drain.failing, drain.terminating), (1, 1), "the others leave all the same");
    world.protected.clear();
    world.later(5);
    assert_eq!(evicted(&world.pass().actions), ["db"]);
    world.pods_end();
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn the_time_that_the_api_server_names_is_kept() {
    let mut world = draining(vec![pod("db")]);
    world.protected.insert("db".to_owned());
    world.pass();
    let Observed::Known(pods) = &mut world.pods else { panic!() };
    pods[0].refused.as_mut().unwrap().retry_after = Some(std::time::Duration::from_secs(10));
    let plan = world.pass();
    assert_eq!(looks_again(&world, &plan), Some(10));
}

#[test]
fn a_pod_that_was_refused_too_often_is_deleted() {
    let mut world = draining(vec![pod("db")]);
    world.protected.insert("db".to_owned());
    world.machine_mut().spec.max_evict_retries = Some(2);
    for _ in 0..2 {
        assert_eq!(evicted(&world.pass().actions), ["db"]);
        world.later(20);
    }
    let plan = world.pass();
    assert_eq!(deleted(&plan.actions), ["db"], "two tries and no more");
    assert_eq!(looks_again(&world, &plan), Some(5), "the deletion may have failed");
    world.settle();
    assert!(world.machine.is_none());
    assert!(!world.happened(EventReason::DrainForced), "the drain itself was not forced");
}

#[test]
fn errors_of_evictions_are_no_refusals_and_each_drain_counts_anew() {
    let budgets = RefusalCause::Budgets(Vec::new());
    let failed = RefusalCause::Failed("webhook".to_owned());
    let at = |second| jiff::Timestamp::from_second(second).unwrap();
    let refusal = |cause: &RefusalCause, attempts| EvictionRefusal {
        at: at(100),
        lifted: false,
        attempts,
        retry_after: None,
        cause: cause.clone(),
    };
    for (before, cause, begun, count) in [
        (None, &budgets, 50, 1),
        (Some(refusal(&budgets, 4)), &budgets, 50, 5),
        (Some(refusal(&failed, 4)), &failed, 50, 5),
        (Some(refusal(&failed, 4)), &budgets, 50, 1),
        (Some(refusal(&budgets, 4)), &failed, 50, 1),
        (Some(refusal(&budgets, 4)), &budgets, 101, 1),
    ] {
        let started_at = Some(Time(at(begun)));
        let drain = DrainProgress { started_at, ..DrainProgress::default() };
        let counted = EvictionRefusal::count(before.as_ref(), cause, Some(&drain));
        assert_eq!(counted, count, "{before:?} {cause:?} {begun}");
    }
    let mut world = draining(vec![pod("db")]);
    world.protected.insert("db".to_owned());
    world.machine_mut().spec.max_evict_retries = Some(2);
    world.pass();
    let Observed::Known(pods) = &mut world.pods else { panic!() };
    pods[0].refused = Some(EvictionRefusal { at: world.now, ..refusal(&failed, 9) });
    world.later(600);
    assert_eq!(evicted(&world.pass().actions), ["db"], "the API server breaks, no budget refuses");
    let Observed::Known(pods) = &mut world.pods else { panic!() };
    pods[0].refused = Some(refusal(&RefusalCause::Budgets(Vec::new()), 9));
    pods[0].terminating = false;
    assert_eq!(evicted(&world.pass().actions), ["db"], "the refusals are of an earlier drain");
}

#[test]
fn a_drain_of_a_minute_tries_no_oftener_than_a_minute_has_room_for() {
    let mut world = draining(vec![pod("db")]);
    world.protected.insert("db".to_owned());
    world.machine_mut().spec.drain_timeout = Some("1m".into());
    let mut tries = 0;
    while deleted(&world.pass().actions).is_empty() {
        tries += 1;
        world.later(20);
    }
    assert_eq!(tries, 3, "a minute by 20 s");
}

#[test]
fn a_pod_that_terminates_for_longer_than_somebody_has_patience_is_not_waited_for() {
    let mut world = draining(vec![pod("stuck")]);
    world.pass();
    let key = names::annotation::SKIP_WAIT_FOR_DELETE.to_owned();
    let annotations = world.machine_mut().metadata.annotations.get_or_insert_default();
    annotations.insert(key, "60".to_owned());
    world.later(30 + 60);
    let plan = world.pass();
    assert_eq!(world.status().drain.unwrap().late, 1, "its grace is over for long");
    assert_eq!(looks_again(&world, &plan), Some(1));
    world.later(1);
    world.settle();
    assert!(world.machine.is_none());
    assert!(world.happened(EventReason::Drained), "as kubectl drain does it");
}

#[test]
fn the_flag_stands_for_the_annotation() {
    let mut world = draining(vec![pod("stuck")]);
    world.settings.skip_wait_for_delete = Some(std::time::Duration::from_secs(5));
    world.pass();
    world.later(30 + 6);
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn a_pod_that_is_never_given_up_is_waited_for_until_the_deadline() {
    let mut world = draining(vec![pod("stuck")]);
    let key = names::annotation::SKIP_WAIT_FOR_DELETE.to_owned();
    let annotations = world.machine_mut().metadata.annotations.get_or_insert_default();
    annotations.insert(key, u64::MAX.to_string());
    world.pass();
    world.later(3600);
    world.settle();
    assert!(world.machine.is_some());
}

#[test]
fn without_evictions_pods_are_deleted_with_their_own_grace() {
    let mut world = draining(vec![pod("web")]);
    world.can_evict = false;
    let plan = world.pass();
    assert!(matches!(plan.actions[..], [Action::EndPod(_)]), "{:?}", plan.actions);
    world.pods_end();
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn the_node_says_why_it_goes() {
    let reason = |world: &World| {
        let conditions = world.node().status.as_ref().unwrap().conditions.clone().unwrap();
        let found = conditions.into_iter().find(|one| one.type_ == "Terminating").unwrap();
        found.reason.unwrap()
    };
    let world = draining(vec![pod("web")]);
    assert_eq!(reason(&world), "ScaleDown");
    let mut failed = World::running();
    failed.node_is("Unknown");
    failed.settle();
    failed.later(600);
    failed.settle();
    assert_eq!(failed.phase(), ostler_api::machine::MachinePhase::Failed);
    failed.pods = Observed::Known(vec![pod("web")]);
    failed.delete();
    failed.pass();
    assert_eq!(reason(&failed), "Unhealthy");
}

#[test]
fn a_node_without_pods_that_have_to_leave_is_cordoned_in_one_write_and_the_status_waits() {
    let mut world = World::running();
    world.pods = Observed::Known(vec![PodView { daemon: true, ..pod("daemon") }]);
    let told = world.events.len();
    world.delete();
    let plan = world.pass();
    let [Action::PatchNode(patch)] = &plan.actions[..] else { panic!("{:?}", plan.actions) };
    assert!(patch.cordon && patch.remove_finalizer);
    assert!(world.unwritten.is_some(), "the next pass writes it");
    let plan = world.pass();
    assert_eq!(plan.dispatch.map(|it| it.kind()), Some(Kind::DeleteMachine));
    assert!(world.unwritten.is_none(), "an operation is written down before it is sent");
    assert!(world.status().drain.unwrap().deadline.is_some());
    assert!(world.events.len() == told, "no event tells of a drain");
    let OperationView::InFlight(flight) = &mut world.operation else { panic!() };
    flight.age = Duration::from_secs(5);
    assert!(matches!(&world.pass().actions[..], [Action::MarkNode { .. }]), "it takes long");
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn a_pod_that_comes_between_the_look_and_the_cordon_is_drained_all_the_same() {
    let mut world = World::running();
    world.pods = Observed::Known(Vec::new());
    world.delete();
    world.pass();
    world.pods = Observed::Known(vec![pod("late")]);
    let plan = world.pass();
    assert!(evicted(&plan.actions).is_empty());
    assert_eq!(looks_again(&world, &plan), Some(0));
    assert!(world.unwritten.is_none(), "the deadline is written before the eviction");
    assert!(world.status().drain.unwrap().deadline.is_some());
    let plan = world.pass();
    assert_eq!(evicted(&plan.actions), ["late"]);
    assert!(world.happened(EventReason::DrainStarted));
    world.pods_end();
    world.settle();
    assert!(world.happened(EventReason::Drained));
    assert!(world.machine.is_none());
}

#[test]
fn the_deadline_of_a_drain_is_written_before_the_first_eviction_on_a_node_that_is_cordoned_already()
{
    let mut world = World::running();
    world.patch_node(&NodePatch { cordon: true, ..NodePatch::default() });
    world.pods = Observed::Known(vec![pod("web")]);
    world.delete();
    let plan = world.pass();
    assert!(evicted(&plan.actions).is_empty());
    assert!(world.unwritten.is_none() && world.status().drain.unwrap().deadline.is_some());
    assert_eq!(evicted(&world.pass().actions), ["web"]);
    assert_eq!(world.events.iter().filter(|it| it.reason == EventReason::DrainStarted).count(), 1);
}

#[test]
fn pods_that_leave_one_by_one_are_one_write_in_two_seconds() {
    let all: Vec<_> = (0..5).map(|number| pod(&format!("p{number}"))).collect();
    let mut world = draining(all.clone());
    world.pass();
    let written = world.machine().status.clone();
    for left in [4, 3] {
        world.pods = Observed::Known(all[..left].to_vec());
        world.pass();
        assert_eq!(world.unwritten.as_ref().unwrap().stored, written, "{left}");
    }
    let kept = world.unwritten.as_ref().unwrap().status.drain.as_ref().unwrap().pods_left;
    assert_eq!(kept, 3);
    world.later(2);
    world.pass();
    assert!(world.unwritten.is_none());
    assert_eq!(world.status().drain.unwrap().pods_left, 3);
}

#[test]
fn a_drain_timeout_that_is_edited_counts_at_once() {
    let mut world = draining(vec![pod("db")]);
    world.protected.insert("db".to_owned());
    world.pass();
    world.later(300);
    world.machine_mut().spec.drain_timeout = Some("4m".into());
    assert_eq!(deleted(&world.pass().actions), ["db"]);
}

#[test]
fn a_drain_has_no_longer_than_the_infrastructure_leaves_the_instance() {
    for (what, reason, in_seconds, deadline) in [
        ("the end of the instance", "TerminationNotice", 120, 120),
        ("work on it", "MaintenanceNotice", 120, 600),
        ("its end after the timeout", "TerminationNotice", 900, 600),
        ("an end that should have come", "TerminationNotice", -5, 600),
    ] {
        let mut world = World::running();
        world.pods = Observed::Known(vec![pod("db")]);
        world.protected.insert("db".to_owned());
        world.machine_mut().spec.drain_timeout = Some("10m".into());
        let at = crate::machine::world::seconds(world.now, in_seconds);
        let notice = serde_json::json!({ "reason": reason, "effectiveAt": at });
        let status = world.machine_mut().status.as_mut().unwrap();
        status.instance_notice = serde_json::from_value(notice).unwrap();
        world.delete();
        world.settle_pods();
        let set = world.status().drain.unwrap().deadline.unwrap().0;
        assert_eq!(set, crate::machine::world::seconds(world.now, deadline), "{what}");
    }
}

/// Force, or a deadline that has passed.
fn force(world: &mut World, asked: bool) {
    if asked {
        let forced = (names::label::FORCE_DELETION.to_owned(), "True".to_owned());
        world.machine_mut().metadata.labels.get_or_insert_default().extend([forced]);
    } else {
        world.later(2 * 60 * 60 + 1);
    }
}

/// A few passes, and what a driver answers.
fn go_on(world: &mut World) {
    for _ in 0..8 {
        if world.machine.is_some() {
            world.pass();
        }
        if matches!(world.operation, OperationView::InFlight(_)) {
            world.answer();
        }
    }
}

#[test]
fn a_node_that_cannot_be_written_to_holds_a_deletion_only_until_force_or_the_deadline() {
    for asked in [true, false] {
        let mut world = World::running();
        world.pods = Observed::Known(vec![pod("web")]);
        world.fails = ["PatchNode", "DeleteNode", "DeletePod", "MarkNode"].into();
        world.delete();
        go_on(&mut world);
        assert_eq!(world.waits_for(), Some(WaitReason::ApiWriteFailed));
        assert_eq!(world.count(Kind::DeleteMachine), 0, "pods may still come");
        force(&mut world, asked);
        go_on(&mut world);
        assert!(world.instances.is_empty(), "forced: {asked}");
        // The pods would never move if the Node stayed behind.
        assert_eq!(world.waits_for(), Some(WaitReason::ApiWriteFailed));
        world.fails.clear();
        go_on(&mut world);
        assert!(world.machine.is_none() && world.node == NodeView::Absent);
    }
}

#[test]
fn a_lost_node_that_cannot_be_written_to_holds_no_deletion() {
    let mut world = World::running();
    world.node_is("Unknown");
    world.later(6 * 60);
    world.fails = ["PatchNode"].into();
    world.delete();
    go_on(&mut world);
    assert!(world.instances.is_empty());
}

#[test]
fn no_eviction_is_asked_of_an_api_server_that_is_down_for_long() {
    let mut world = draining(vec![pod("web")]);
    world.pass();
    world.api = ApiView { down_since: Some(world.now), frozen: true, ..ApiView::default() };
    world.pods = Observed::Known(vec![pod("web"), PodView { finished: true, ..pod("job") }]);
    let plan = world.pass();
    assert_eq!(evicted(&plan.actions), [""; 0]);
    assert_eq!(world.waits_for(), Some(WaitReason::ApiServerUnreachable));
    assert_eq!(looks_again(&world, &plan), Some(5));
    force(&mut world, false);
    assert_eq!(deleted(&world.pass().actions), ["web"], "the deadline waits for none");
}
