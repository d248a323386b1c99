//! Machines whose target cluster is another one, none, or not to be had.

use ostler_api::{
    driver::OperationKind,
    machine::{LifecyclePhase, MachinePhase, MachineState, MachineStep, WaitReason},
    names::{self, bootstrap::TOKEN_PLACEHOLDER},
};
use ostler_lifecycle::{
    operation::Request,
    outage::ApiView,
    plan::EventReason,
    snapshot::{NodeView, Observed, TargetView},
};

use crate::machine::world::{NODE, World, looks_again};

fn without_target() -> World {
    let mut world = World::new();
    world.target = TargetView::None;
    world
}

fn lacking(reason: WaitReason) -> TargetView {
    TargetView::Lacking { reason, message: "secret default/c-kubeconfig".to_owned() }
}

/// A running machine whose cluster is not to be had any more, and that is being deleted.
pub fn cut_off(mut world: World, reason: WaitReason) -> World {
    world.target = lacking(reason);
    world.node = NodeView::Unknown;
    world.pods = Observed::Unknown;
    world.token = Observed::Unknown;
    world.delete();
    world
}

#[test]
fn without_a_target_cluster_a_machine_is_available_once_its_instance_is_initialized() {
    let mut world = without_target();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Available);
    let status = world.status();
    assert_eq!(status.phase, Some(LifecyclePhase::Provisioned));
    assert_eq!(status.waiting_for, None);
    assert_eq!(world.machine().node_name(), None, "whatever the driver says");
    assert_eq!(status.last_operation.unwrap().state, Some(MachineState::Successful));
    assert_eq!(world.count(OperationKind::InitializeMachine), 1);
    assert!(world.happened(EventReason::Available));
}

#[test]
fn without_a_target_cluster_no_token_is_made_and_its_placeholder_stays() {
    let mut world = without_target();
    world.settle();
    assert_eq!(world.token, Observed::Absent);
    let create = world.sent.iter().find_map(|one| match &one.request {
        Request::Create { user_data, .. } => user_data.clone(),
        _ => None,
    });
    let text = String::from_utf8(create.unwrap().into_bytes()).unwrap();
    assert!(text.contains(TOKEN_PLACEHOLDER), "{text}");
}

#[test]
fn without_a_target_cluster_a_deletion_does_not_drain() {
    let mut world = without_target();
    world.settle();
    world.delete();
    world.settle();
    assert!(world.machine.is_none(), "the finalizer is gone");
    assert!(world.instances.is_empty());
    assert!(!world.happened(EventReason::DrainStarted));
}

#[test]
fn a_machine_that_runs_is_available_once_the_target_cluster_is_given_up() {
    let mut world = World::running();
    world.target = TargetView::None;
    world.node = NodeView::Absent;
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Available);
}

#[test]
fn no_instance_is_made_for_a_target_cluster_that_is_not_to_be_had() {
    let mut world = World::new();
    world.target = lacking(WaitReason::TargetSecretMissing);
    world.node = NodeView::Unknown;
    world.token = Observed::Unknown;
    world.settle();
    assert_eq!(world.creates, 0);
    assert_eq!(world.waits_for(), Some(WaitReason::TargetSecretMissing));
    world.target = TargetView::Watched;
    world.node = NodeView::Absent;
    world.token = Observed::Absent;
    world.settle();
    assert_eq!(world.creates, 1);
}

#[test]
fn a_running_machine_whose_target_cluster_is_out_of_sight_stays_running() {
    let mut world = World::running();
    world.target = lacking(WaitReason::TargetNotReached);
    world.node = NodeView::Unknown;
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert_eq!(world.waits_for(), Some(WaitReason::TargetNotReached));
}

#[test]
fn a_deletion_waits_for_a_target_cluster_out_of_sight_until_the_drain_deadline() {
    let mut world = cut_off(World::running(), WaitReason::TargetSecretMissing);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::TargetSecretMissing));
    assert_eq!(world.instances.len(), 1, "a Node was seen: {NODE}");
    world.later(2 * 60 * 60 + 1);
    world.settle();
    assert!(world.machine.is_none());
    assert!(world.instances.is_empty());
}

#[test]
fn a_machine_without_a_node_does_not_wait_for_a_target_cluster_whose_secret_is_gone() {
    let mut world = World::new();
    world.settle();
    assert_eq!(world.instances.len(), 1);
    world.target = lacking(WaitReason::TargetSecretMissing);
    world.node = NodeView::Unknown;
    world.pods = Observed::Unknown;
    world.token = Observed::Unknown;
    world.delete();
    world.settle();
    assert!(world.machine.is_none());
    assert!(world.instances.is_empty());
}

/// A Machine in deletion, whose Node the API server of its cluster did not show when asked.
fn unanswered(force: bool) -> World {
    let mut world = World::new();
    world.settle();
    world.node = NodeView::Unknown;
    world.pods = Observed::Unknown;
    world.token = Observed::Unknown;
    if force {
        let forced = (names::label::FORCE_DELETION.to_owned(), "True".to_owned());
        world.machine_mut().metadata.labels.get_or_insert_default().extend([forced]);
    }
    world.delete();
    world
}

fn outage(world: &World) -> ApiView {
    ApiView { down_since: Some(world.now), frozen: true, ..ApiView::default() }
}

#[test]
fn a_deletion_asks_an_api_server_again_that_did_not_answer_and_waits_in_between() {
    for overdue in [false, true] {
        let mut world = unanswered(false);
        world.later(if overdue { 3 * 60 * 60 } else { 1 });
        world.settle();
        assert_eq!(world.instances.len(), 1, "the next answer may show a Node");
        let plan = world.pass();
        let retry = i64::try_from(world.settings.eviction_retry.as_secs()).unwrap();
        assert_eq!(looks_again(&world, &plan), Some(retry));
    }
}

#[test]
fn a_deletion_that_is_overdue_or_forced_does_not_wait_for_an_api_server_that_is_down_for_long() {
    for (force, later, ends) in [(false, 1, false), (false, 2 * 60 * 60 + 1, true), (true, 1, true)]
    {
        let mut world = unanswered(force);
        world.api = outage(&world);
        world.fails = ["DeleteBootstrapToken"].into();
        world.later(later);
        world.settle();
        assert_eq!(world.machine.is_none(), ends, "forced: {force}, after {later} s");
        assert_eq!(world.instances.is_empty(), ends);
    }
}

#[test]
fn a_node_that_may_have_joined_meanwhile_is_looked_for_before_the_instance_is_deleted() {
    let mut world = World::new();
    world.settle();
    world.delete();
    world.connected = false;
    world.settle();
    assert_eq!(world.step(), Some(MachineStep::DeleteInstance));
    world.node = NodeView::Unknown;
    world.connected = true;
    world.settle();
    assert_eq!(world.count(OperationKind::DeleteMachine), 0, "pods may run there");
    world.node = NodeView::Absent;
    world.settle();
    assert!(world.machine.is_none());
}
