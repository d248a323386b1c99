//! Pods with volumes: in order, and not before the volumes of those before them have moved.

use ostler_api::{
    driver::OperationKind as Kind,
    machine::{MachineConditionType, MachinePhase, MachineStep, WaitReason},
};
use ostler_lifecycle::{
    operation::Request,
    plan::{Action, EventReason, Plan},
    snapshot::{NodeView, Observed, PodView},
};

use crate::machine::in_place::select;
use crate::machine::world::{World, looks_again, pod};

/// A cordoned node, and the machine being deleted. The driver cannot name volumes.
fn draining(pods: &[(&str, i32, &str)]) -> World {
    let mut world = World::running();
    world.kinds.remove(&Kind::GetVolumeIds);
    for (name, priority, volume) in pods {
        world.add_pod_with_volume(name, *priority, volume);
    }
    world.delete();
    world.pass();
    assert_eq!(world.step(), Some(MachineStep::CordonNode));
    world
}

fn evicted(plan: &Plan) -> Vec<&str> {
    let pods = plan.actions.iter();
    pods.filter_map(|action| match action {
        Action::Evict(pod) => Some(pod.name.as_str()),
        _ => None,
    })
    .collect()
}

#[test]
fn pods_with_volumes_leave_by_priority_and_wait_for_the_volumes_of_those_before() {
    let mut world =
        draining(&[("low", 0, "v-low"), ("high", 10, "v-high"), ("peer", 10, "v-peer")]);
    let Observed::Known(pods) = &mut world.pods else { panic!() };
    pods.push(pod("web"));
    let plan = world.pass();
    assert_eq!(evicted(&plan), ["high", "peer", "web"], "one priority together, then the rest");
    assert_eq!(world.status().drain.unwrap().queued, 1);
    world.pods_end();
    assert!(evicted(&world.pass()).is_empty());
    assert_eq!(world.waits_for(), Some(WaitReason::VolumesAttached));
    let message = world.status().waiting_for.unwrap().message.unwrap();
    assert_eq!(message, "volumes still attached: v-high, v-peer");
    world.detach("v-high");
    assert!(evicted(&world.pass()).is_empty(), "the other is still there");
    world.detach("v-peer");
    assert_eq!(evicted(&world.pass()), ["low"]);
    world.pods_end();
    world.detach("v-low");
    world.settle();
    assert!(world.machine.is_none());
    assert!(!world.happened(EventReason::VolumesForced));
}

#[test]
fn a_volume_that_a_pod_waits_for_elsewhere_is_waited_for_and_no_other() {
    let mut world = draining(&[("low", 0, "v-low"), ("high", 10, "v-high")]);
    world.pass();
    world.pods_end();
    world.volumes_mut().moving.insert("v-high".to_owned());
    world.pass();
    world.detach("v-high");
    let plan = world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::VolumesMoving));
    assert_eq!(looks_again(&world, &plan), Some(90), "not blindly, and not for ever");
    world.later(90);
    assert_eq!(evicted(&world.pass()), ["low"], "time is up");
}

#[test]
fn a_volume_that_arrived_where_it_is_wanted_holds_nothing() {
    let mut world = draining(&[("low", 0, "v-low"), ("high", 10, "v-high")]);
    world.pass();
    world.pods_end();
    world.volumes_mut().moving.insert("v-high".to_owned());
    world.pass();
    world.detach("v-high");
    assert!(evicted(&world.pass()).is_empty());
    world.volumes_mut().moving.clear();
    assert_eq!(evicted(&world.pass()), ["low"]);
}

#[test]
fn a_volume_that_does_not_leave_holds_the_next_pods_for_the_timeout_only_and_the_drain_to_its_end()
{
    let mut world = draining(&[("low", 0, "v-low"), ("high", 10, "v-high")]);
    world.pass();
    world.pods_end();
    let plan = world.pass();
    assert_eq!(looks_again(&world, &plan), Some(120));
    world.later(120);
    assert_eq!(evicted(&world.pass()), ["low"]);
    world.pods_end();
    world.detach("v-low");
    world.pass();
    assert_eq!(world.step(), Some(MachineStep::DetachVolumes));
    assert_eq!(world.count(Kind::DeleteMachine), 0);
    world.later(120);
    assert!(world.pass().actions.is_empty(), "it is not ours to take while there is time");
    world.later(2 * 60 * 60);
    let plan = world.pass();
    let taken = |action: &Action| matches!(action, Action::DeleteAttachment { name, .. } if name == "csi-v-high");
    assert!(plan.actions.iter().any(taken), "{:?}", plan.actions);
    assert!(world.happened(EventReason::VolumesForced));
    let status = world.status();
    assert!(status.drain.unwrap().forced);
    let drained = MachineConditionType::Drained;
    let shown = status.conditions.iter().find(|one| one.type_ == drained.as_str()).unwrap();
    let said = (shown.status.as_str(), shown.reason.as_deref());
    assert_eq!(said, ("False", Some("VolumesNotDetached")), "a timeout is no success");
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn force_takes_the_volumes_from_the_node() {
    let mut world = draining(&[("db", 0, "v-1")]);
    let key = ostler_api::names::label::FORCE_DELETION.to_owned();
    world.machine_mut().metadata.labels.get_or_insert_default().insert(key, "true".to_owned());
    let plan = world.pass();
    let names: Vec<_> = plan.actions.iter().map(Action::name).collect();
    assert_eq!(names, ["DeletePod", "DeleteAttachment"]);
    assert_eq!(world.count(Kind::DeleteMachine), 1, "and waits for nothing");
}

#[test]
fn the_driver_is_asked_once_what_it_calls_the_volumes() {
    let mut world = draining(&[("low", 0, "v-low"), ("high", 10, "v-high")]);
    world.kinds.insert(Kind::GetVolumeIds);
    world.volume_ids.insert("v-high".to_owned(), "disk-7".to_owned());
    let Observed::Known(pods) = &mut world.pods else { panic!() };
    pods.push(pod("web"));
    let plan = world.pass();
    assert_eq!(evicted(&plan), ["web"], "pods without volumes do not wait for the answer");
    let Request::VolumeIds { specs } = &world.sent.last().unwrap().request else { panic!() };
    assert_eq!(specs.keys().collect::<Vec<_>>(), ["v-high", "v-low"]);
    world.volumes_mut().attachments.clear();
    let attached = ["kubernetes.io/x/disk-7", "kubernetes.io/csi/x^handle-v-low"];
    world.volumes = Observed::Known(attached.map(str::to_owned).to_vec());
    world.answer();
    assert_eq!(evicted(&world.pass()), ["high"]);
    world.pods_end();
    world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::VolumesAttached), "by the id of the driver");
    world.volumes = Observed::Known(vec![attached[1].to_owned()]);
    assert_eq!(evicted(&world.pass()), ["low"]);
    world.pods_end();
    world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::VolumesAttached), "and by the CSI handle");
    assert_eq!(world.count(Kind::GetVolumeIds), 1);
}

#[test]
fn a_driver_that_cannot_say_holds_nothing_up() {
    use ostler_api::driver::ErrorCode;
    let mut world = draining(&[("db", 0, "v-1")]);
    world.kinds.insert(Kind::GetVolumeIds);
    world.pass();
    world.refuse(ErrorCode::Unimplemented);
    assert_eq!(evicted(&world.pass()), ["db"]);
    assert_eq!(world.status().drain.unwrap().volumes[0].id.as_deref(), Some("handle-v-1"));
}

#[test]
fn a_pod_with_volumes_that_a_budget_holds_does_not_hold_those_behind_it() {
    let mut world = draining(&[("low", 0, "v-low"), ("high", 10, "v-high")]);
    world.protected.insert("high".to_owned());
    assert_eq!(evicted(&world.pass()), ["high"]);
    assert_eq!(evicted(&world.pass()), ["low"]);
}

#[test]
fn volumes_that_cannot_be_looked_up_hold_a_drain_for_the_detach_timeout_only() {
    let mut world = draining(&[("db", 0, "v-1")]);
    world.claims = Observed::Unknown;
    let plan = world.pass();
    assert!(evicted(&plan).is_empty());
    assert_eq!(world.waits_for(), Some(WaitReason::VolumesNotObserved));
    world.later(120);
    assert_eq!(evicted(&world.pass()), ["db"]);
}

#[test]
fn a_volume_of_a_daemon_pod_is_not_waited_for() {
    let mut world = draining(&[("agent", 0, "v-agent")]);
    let Observed::Known(pods) = &mut world.pods else { panic!() };
    *pods = pods.iter().map(|pod| PodView { daemon: true, ..pod.clone() }).collect();
    world.settle();
    assert!(world.machine.is_none());
    assert!(!world.happened(EventReason::VolumesForced));
}

#[test]
fn a_volume_that_two_pods_share_is_waited_for_when_both_are_gone() {
    let mut world = draining(&[("high", 10, "v-1"), ("low", 0, "v-low")]);
    let Observed::Known(pods) = &mut world.pods else { panic!() };
    let shared = pods[0].claims[0].clone();
    pods[1].claims.push(shared);
    world.pass();
    world.pods_end();
    assert_eq!(evicted(&world.pass()), ["low"], "it cannot leave while a pod uses it");
}

#[test]
fn a_drain_goes_on_where_it_was_when_the_core_is_another() {
    let mut world = draining(&[("low", 0, "v-low"), ("high", 10, "v-high")]);
    world.pass();
    world.pods_end();
    world.pass();
    world.lose_operation();
    let claim = "apps/claim-of-v-high";
    world.volumes_mut().claims.remove(claim);
    assert!(evicted(&world.pass()).is_empty(), "the volume stands in the status");
    world.detach("v-high");
    assert_eq!(evicted(&world.pass()), ["low"]);
    assert!(matches!(world.node, NodeView::Known(_)));
}

#[test]
fn a_volume_that_nobody_looked_up_is_not_detached() {
    let mut world = draining(&[("db", 0, "v-1")]);
    world.pass();
    world.pods_end();
    world.pass();
    assert_eq!(world.step(), Some(MachineStep::DetachVolumes));
    world.later(600);
    // Another core: what it watches for drains only is not there yet.
    let looked_up = std::mem::replace(&mut world.claims, Observed::Unknown);
    let plan = world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::VolumesNotObserved));
    assert_eq!(looks_again(&world, &plan), Some(120));
    world.claims = looked_up;
    world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::VolumesAttached));
    world.claims = Observed::Unknown;
    world.pass();
    world.later(119);
    world.pass();
    assert_eq!(world.count(Kind::DeleteMachine), 0);
    world.later(1);
    world.pass();
    assert_eq!(world.count(Kind::DeleteMachine), 1, "not for ever");
}

/// What lasted while the pods could not be looked up is no wait for volumes, and one that was long enough is not begun anew.
#[test]
fn the_wait_for_volumes_that_nobody_looked_up_has_a_time_of_its_own() {
    let mut world = draining(&[("db", 0, "v-1")]);
    world.pass();
    world.pods_end();
    let (pods, claims) = (world.pods.clone(), world.claims.clone());
    (world.pods, world.claims) = (Observed::Unknown, Observed::Unknown);
    world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::NotObserved), "the pods");
    world.later(600);
    world.pods = pods;
    world.pass();
    assert_eq!(world.count(Kind::DeleteMachine), 0, "volumes are waited for from now on");
    world.later(120);
    world.volumes = Observed::Known(vec!["kubernetes.io/csi/driver^other".to_owned()]);
    for _ in 0..2 {
        world.pass();
        let status = world.machine.as_ref().unwrap().status.clone();
        let wait = status.unwrap().waiting_for.unwrap();
        assert!(wait.message.unwrap().contains("attached"), "it is not waited anew");
    }
    world.claims = claims;
    world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::VolumesAttached));
}

/// A drain whose pods are gone, and a volume that is still attached.
fn detaching() -> World {
    let mut world = draining(&[("db", 0, "v-1")]);
    world.pass();
    world.pods_end();
    world.settle();
    assert_eq!(world.step(), Some(MachineStep::DetachVolumes));
    world
}

#[test]
fn a_node_out_of_sight_is_no_reason_to_delete_an_instance_with_its_volumes() {
    let mut world = detaching();
    let node = std::mem::replace(&mut world.node, NodeView::Unknown);
    world.settle();
    world.node = node;
    world.settle();
    assert_eq!(world.count(Kind::DeleteMachine), 0);
    assert_eq!(world.waits_for(), Some(WaitReason::VolumesAttached));
    world.detach("v-1");
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn pods_that_come_while_volumes_are_attached_are_asked_to_leave() {
    let mut world = detaching();
    world.pods = Observed::Known(vec![pod("late")]);
    world.settle_pods();
    assert_eq!(world.step(), Some(MachineStep::DrainNode));
    world.pods_end();
    world.detach("v-1");
    world.settle();
    assert!(world.machine.is_none());
    assert!(!world.happened(EventReason::VolumesForced));
}

#[test]
fn a_node_is_not_updated_before_somebody_looked_whether_its_volumes_left() {
    let mut world = World::running();
    world.kinds.remove(&Kind::GetVolumeIds);
    world.add_pod_with_volume("db", 0, "v-1");
    select(&mut world);
    while world.step() != Some(MachineStep::DetachVolumes) {
        world.pass();
        world.pods_end();
    }
    let looked_up = std::mem::replace(&mut world.claims, Observed::Unknown);
    world.pass();
    assert_eq!(world.waits_for(), Some(WaitReason::VolumesNotObserved));
    assert_eq!(world.phase(), MachinePhase::Running);
    world.claims = looked_up;
    world.detach("v-1");
    world.pass();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdating);
}

#[test]
fn another_core_looks_the_volumes_up_before_it_asks_the_next_pods() {
    let mut world = draining(&[("low", 0, "v-low"), ("high", 10, "v-high")]);
    world.protected.insert("low".to_owned());
    world.pass();
    world.later(600);
    world.claims = Observed::Unknown;
    let plan = world.pass();
    assert_eq!((evicted(&plan), looks_again(&world, &plan)), (vec![], Some(120)));
    world.later(120);
    assert_eq!(evicted(&world.pass()), ["low"]);
    world.pass();
    let refused = Some(WaitReason::PodDisruptionBudget);
    assert_eq!(world.waits_for(), refused, "no pod waits for a look any more");
}

#[test]
fn a_pod_with_volumes_that_does_not_end_holds_those_behind_it_as_long_as_its_volumes_would() {
    let mut world = draining(&[("low", 0, "v-low"), ("high", 10, "v-high")]);
    assert_eq!(evicted(&world.pass()), ["high"]);
    world.later(60);
    let plan = world.pass();
    let until = 30 + 120 - 60;
    assert_eq!((evicted(&plan), looks_again(&world, &plan)), (vec![], Some(until)));
    world.later(until);
    assert_eq!(evicted(&world.pass()), ["low"]);
}
