//! Hooks of Cluster API hold a deletion, say so, and release it.

use ostler_api::{
    driver::OperationKind as Kind,
    machine::{MachineStep, WaitReason},
    names,
};
use ostler_lifecycle::plan::EventReason;

use crate::machine::world::{World, looks_again, pod};

fn hook(world: &mut World, prefix: &str, owner: Option<&str>) {
    let annotations = world.machine_mut().metadata.annotations.get_or_insert_default();
    let key = format!("{prefix}/backup");
    match owner {
        Some(owner) => annotations.insert(key, owner.to_owned()),
        None => annotations.remove(&key),
    };
}

#[test]
fn a_pre_drain_hook_holds_the_drain_and_names_itself_and_its_owner() {
    let mut world = World::running();
    hook(&mut world, names::hook::PRE_DRAIN, Some("etcd-operator"));
    world.delete();
    world.settle();
    assert_eq!(world.step(), Some(MachineStep::PreDrainHook));
    assert_eq!(world.waits_for(), Some(WaitReason::PreDrainHook));
    let message = world.status().waiting_for.unwrap().message.unwrap();
    assert_eq!(
        message,
        "held by annotation pre-drain.delete.hook.machine.cluster.x-k8s.io/backup of etcd-operator"
    );
    assert_eq!(world.node().spec.as_ref().unwrap().unschedulable, None, "nothing was touched");
    let told = world.events.iter().filter(|one| one.reason == EventReason::HookWaiting);
    assert_eq!(told.count(), 1);
    hook(&mut world, names::hook::PRE_DRAIN, None);
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn the_time_of_a_pre_drain_hook_costs_the_drain_none_of_its_own() {
    let mut world = World::running();
    world.pods = ostler_lifecycle::snapshot::Observed::Known(vec![pod("db")]);
    hook(&mut world, names::hook::PRE_DRAIN, Some("x"));
    world.delete();
    world.settle();
    world.later(5 * 3600);
    hook(&mut world, names::hook::PRE_DRAIN, None);
    world.pass();
    let plan = world.pass();
    assert_eq!(world.step(), Some(MachineStep::DrainNode));
    assert!(!world.happened(EventReason::DrainForced));
    assert_eq!(looks_again(&world, &plan), Some(5));
    let drain = world.status().drain.unwrap();
    let (from, until) = (drain.counts_from.unwrap(), drain.deadline.unwrap());
    assert_eq!(until.0.duration_since(from.0).as_secs(), 7200);
}

#[test]
fn a_pre_terminate_hook_holds_the_instance_and_not_the_drain() {
    let mut world = World::running();
    world.pods = ostler_lifecycle::snapshot::Observed::Known(vec![pod("db")]);
    hook(&mut world, names::hook::PRE_TERMINATE, Some("backup-operator"));
    world.delete();
    world.settle_pods();
    world.pods_end();
    world.settle();
    assert!(world.happened(EventReason::Drained));
    assert_eq!(world.step(), Some(MachineStep::PreTerminateHook));
    assert_eq!(world.waits_for(), Some(WaitReason::PreTerminateHook));
    assert_eq!(world.count(Kind::DeleteMachine), 0);
    hook(&mut world, names::hook::PRE_TERMINATE, None);
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn force_does_not_get_past_a_hook() {
    for prefix in [names::hook::PRE_DRAIN, names::hook::PRE_TERMINATE] {
        let mut world = World::running();
        hook(&mut world, prefix, Some("x"));
        let key = names::label::FORCE_DELETION.to_owned();
        world.machine_mut().metadata.labels.get_or_insert_default().insert(key, "true".to_owned());
        world.delete();
        world.later(24 * 3600);
        world.settle();
        assert!(world.machine().has_finalizer());
        assert_eq!(world.count(Kind::DeleteMachine), 0);
    }
}

#[test]
fn a_machine_without_a_node_has_nothing_to_drain_and_is_not_held_before_it() {
    let mut world = World::new();
    world.settle();
    hook(&mut world, names::hook::PRE_DRAIN, Some("x"));
    world.delete();
    world.settle();
    assert!(world.machine.is_none());
}
