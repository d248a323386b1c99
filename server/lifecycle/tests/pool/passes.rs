//! Whole stories of a pool, with an obedient group.

use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind},
    machine::{InstanceState, MachinePhase},
    operation::{OperationView, Request, Success},
};
use ostler_lifecycle::{
    class::FinalizerChange,
    operation::Failure,
    pool::{Cause, DataSecret, Decision, Instance},
    snapshot::DriverView,
};
use serde_json::{Value, json};

use crate::pool::world::{ALL, World, changed, driver, record, request, set_phase, victims};

/// The group carries out the request, and the pool sees the result.
fn carry_out(world: &mut World, plan: &Decision) {
    let Some(dispatch) = plan.dispatch.clone() else { return };
    let kind = dispatch.kind();
    let outcome = match dispatch.request {
        Request::UpdatePool { size, model, .. } => {
            let group = world.group.as_mut().unwrap();
            if let Some(size) = size {
                assert_eq!(i32::try_from(group.desired).unwrap(), size.expected);
                group.desired = usize::try_from(size.wanted).unwrap();
            }
            if let Some(model) = model {
                group.model_hash = model.hash.into();
            }
            changed()
        }
        Request::DeletePoolMachines { instances, size, .. } => {
            let group = world.group.as_mut().unwrap();
            assert_eq!(i32::try_from(group.desired).unwrap(), size.expected);
            group.desired = usize::try_from(size.wanted).unwrap();
            group.instances.retain(|it| !instances.contains(&it.provider_id));
            // The Machine sees the loss of its instance, and goes.
            world.machines.retain(|it| !it.provider_id().is_some_and(|id| instances.contains(id)));
            Ok(Success::PoolMachinesDeleted { pool: record(), not_deleted: Vec::new() })
        }
        Request::DeletePool { .. } => {
            world.group = None;
            Ok(Success::Deleted { was_absent: false })
        }
        other => panic!("{other:?}"),
    };
    world.answer(kind, outcome);
    world.pass();
    world.operation = OperationView::Idle;
}

/// One turn: the group fills up, Machines join, victims are drained.
pub(crate) fn turn(world: &mut World) -> Decision {
    while world.group.as_ref().is_some_and(|group| group.instances.len() < group.desired) {
        world.boot();
    }
    let plan = world.pass();
    if world.group.is_some() {
        world.adopt();
    }
    let names: Vec<String> = victims(&plan).into_iter().map(str::to_owned).collect();
    carry_out(world, &plan);
    for name in names {
        if world.machines.iter().any(|it| it.name() == name) {
            world.drain(&name);
        }
    }
    plan
}

fn join_all(world: &mut World) {
    for machine in &mut world.machines {
        if machine.metadata.deletion_timestamp.is_none() {
            set_phase(machine, MachinePhase::Running);
        }
    }
}

fn roll(more: Value, most: usize, least: usize) {
    let mut world = World::running(3, more);
    world.pool.spec.template.spec.version = Some("v2".to_owned());
    for turns in 0.. {
        assert!(turns < 60, "the rollout does not end");
        turn(&mut world);
        let ready = world.machines.iter().filter(|it| it.phase() == MachinePhase::Running).count();
        assert!(world.machines.len() <= most, "{} machines", world.machines.len());
        assert!(ready >= least, "{ready} ready");
        join_all(&mut world);
        let group = world.group.as_ref().unwrap();
        let current = group.instances.iter().all(|it| it.model_hash == group.model_hash);
        let status = world.pool.status.as_ref().unwrap();
        if current && world.machines.len() == 3 && status.up_to_date_replicas == 3 {
            break;
        }
    }
}

#[test]
fn another_template_rolls_through_the_instances_with_a_surge_or_with_one_missing() {
    let rolling = |rolling: Value| json!({ "strategy": { "rollingUpdate": rolling } });
    roll(json!({}), 4, 3);
    roll(rolling(json!({ "maxSurge": 0, "maxUnavailable": 1 })), 3, 2);
    roll(rolling(json!({ "maxSurge": 2, "maxUnavailable": 1 })), 5, 2);
    roll(rolling(json!({ "maxSurge": "100%", "deletePolicy": "Random" })), 6, 3);
}

#[test]
fn a_pool_is_made_scaled_up_and_down_and_ends_as_wanted() {
    let mut world = World::running(3, json!({}));
    for replicas in [5, 1, 4, 0, 2] {
        world.pool.spec.replicas = Some(replicas);
        let wanted = usize::try_from(replicas).unwrap();
        for _ in 0..20 {
            turn(&mut world);
            join_all(&mut world);
        }
        assert_eq!(world.machines.len(), wanted);
        assert_eq!(world.group.as_ref().unwrap().desired, wanted);
        let status = world.pass().status;
        assert_eq!(status.ready_replicas, replicas);
        assert_eq!(status.phase.unwrap().as_str(), "Running");
    }
}

#[test]
fn whoever_marks_a_machine_it_goes_first_and_none_goes_below_what_is_wanted() {
    for (mark, value) in [
        ("cluster.x-k8s.io/delete-machine", ""),
        ("machine.sapcloud.io/delete-machine", "yes"),
        ("machinepriority.machine.sapcloud.io", "1"),
    ] {
        let mut world = World::running(3, json!({}));
        let marks = [(mark.to_owned(), value.to_owned())].into();
        world.named("p-3").metadata.annotations = Some(marks);
        assert!(victims(&world.plan()).is_empty(), "{mark}: three are wanted");
        world.pool.spec.replicas = Some(2);
        assert_eq!(victims(&world.plan()), ["p-3"], "{mark}");
    }
}

#[test]
fn a_drain_of_many_passes_takes_no_more_than_the_surplus_whatever_the_policy() {
    for policy in ["Oldest", "Newest", "Random"] {
        let rolling = json!({ "strategy": { "rollingUpdate": { "deletePolicy": policy } } });
        let mut world = World::running(6, rolling);
        let now = world.now;
        for machine in &mut world.machines {
            machine.metadata.creation_timestamp = Some(now.into());
        }
        world.pool.spec.replicas = Some(4);
        for _ in 0..20 {
            let names: Vec<_> = victims(&world.pass()).into_iter().map(str::to_owned).collect();
            for name in names {
                // The drain goes on, and the Node is Ready.
                world.named(&name).metadata.deletion_timestamp = Some(now.into());
            }
            world.machines.rotate_left(1);
        }
        let going = world.machines.iter().filter(|it| it.is_deleting()).count();
        assert_eq!(going, 2, "{policy}");
    }
}

#[test]
fn a_pool_that_is_paused_scales_and_replaces_nothing() {
    let mut world = World::running(3, json!({ "paused": true }));
    world.pool.spec.template.spec.version = Some("v2".to_owned());
    world.pool.spec.replicas = Some(4);
    let plan = world.plan();
    let Some(Request::UpdatePool { size, model, .. }) = request(&plan) else { panic!() };
    assert_eq!((size.unwrap().wanted, model.is_none()), (4, true));
    assert!(plan.delete.is_empty());
}

#[test]
fn a_pool_that_is_deleted_drains_its_machines_then_deletes_the_group_then_goes() {
    let mut world = World::running(2, json!({}));
    world.pool.metadata.deletion_timestamp = Some(world.now.into());
    let plan = turn(&mut world);
    assert_eq!(victims(&plan).len(), 2);
    assert_eq!(plan.finalizer, FinalizerChange::Keep);
    assert_eq!(plan.status.phase.unwrap().as_str(), "Deleting");
    let plan = turn(&mut world);
    assert!(matches!(request(&plan), Some(Request::DeletePoolMachines { .. })));
    assert!(world.machines.is_empty());
    let plan = world.pass();
    assert!(matches!(request(&plan), Some(Request::DeletePool { .. })));
    world.group = None;
    world.answer(plan.dispatch.unwrap().kind(), Ok(Success::Deleted { was_absent: false }));
    assert_eq!(world.plan().finalizer, FinalizerChange::Remove);
}

#[test]
fn a_pool_that_is_deleted_while_its_group_is_made_does_not_go_before_another_read() {
    let unknown = Failure::new(ErrorCode::Unavailable, Certainty::Unknown, "the session was lost");
    for outcome in [changed(), Err(unknown)] {
        let mut world = World::new(2, json!({}));
        world.pass();
        // The group was read twice meanwhile.
        world.absent_looks = 2;
        world.pool.metadata.deletion_timestamp = Some(world.now.into());
        let is_known = outcome.is_ok();
        world.answer(OperationKind::CreatePool, outcome);
        let plan = world.pass();
        assert_eq!((plan.finalizer, plan.reread), (FinalizerChange::Keep, true));
        world.operation = OperationView::Idle;
        let plan = world.pass();
        let made = matches!(plan.finalizer, FinalizerChange::Remove);
        assert_eq!(made, is_known, "and then it is not there");
    }
}

#[test]
fn what_the_group_of_a_pool_that_is_deleted_makes_meanwhile_gets_a_machine_and_is_drained() {
    let mut world = World::running(2, json!({}));
    world.pool.metadata.deletion_timestamp = Some(world.now.into());
    world.machines.clear();
    let plan = world.plan();
    assert_eq!(plan.create.len(), 2);
    assert!(plan.dispatch.is_none(), "the group stays as long as one of its nodes has pods");
    // The namespace is being deleted, too: nothing can be created there.
    world.refused_machines = true;
    assert!(matches!(request(&world.plan()), Some(Request::DeletePool { .. })));
}

/// While the watch lagged, each pass created it once more.
#[test]
fn a_machine_that_was_created_and_is_not_seen_yet_is_not_created_again() {
    for deleting in [false, true] {
        let mut world = World::running(2, json!({}));
        world.pool.metadata.deletion_timestamp = deleting.then_some(world.now.into());
        world.machines.clear();
        let ids: Vec<_> = world.group.iter().flat_map(|it| &it.instances).collect();
        let ids: Vec<_> = ids.into_iter().map(|it| it.provider_id.clone()).collect();
        for id in ids {
            let plan = world.plan();
            assert!(plan.create.iter().any(|it| it.provider_id() == Some(&id)));
            world.created.insert(id);
        }
        let plan = world.plan();
        assert!(plan.create.is_empty());
        assert!(plan.dispatch.is_none(), "and its instance is not deleted undrained");
    }
}

#[test]
fn a_pool_whose_driver_has_no_named_deletion_drains_all_and_deletes_the_group_as_a_whole() {
    let mut world = World::running(2, json!({}));
    world.driver = driver(&ALL[..4]);
    world.pool.metadata.deletion_timestamp = Some(world.now.into());
    let plan = world.plan();
    assert_eq!(victims(&plan).len(), 2);
    let marked = |value: &Value| value["metadata"]["annotations"]["ostler.dev/pool-deleted"] == "";
    assert_eq!(plan.patches.iter().filter(|(_, patch)| marked(patch)).count(), 2);
    let names: Vec<_> = world.machines.iter().map(|it| it.name().to_owned()).collect();
    for name in names {
        assert!(world.plan().dispatch.is_none(), "{name} is not drained");
        world.drain(&name);
    }
    assert!(matches!(request(&world.plan()), Some(Request::DeletePool { .. })));
}

#[test]
fn an_instance_that_cannot_be_deleted_goes_with_its_group_once_all_machines_of_a_deleted_pool_are_drained()
 {
    let mut world = World::running(3, json!({}));
    world.pool.metadata.deletion_timestamp = Some(world.now.into());
    world.drain("p-1");
    let plan = world.pass();
    assert!(matches!(request(&plan), Some(Request::DeletePoolMachines { .. })), "by name first");
    let stuck = Failure::new(ErrorCode::Internal, Certainty::NotApplied, "stuck");
    let not_deleted = vec![("fake:///i-1".into(), stuck)];
    let refused = Success::PoolMachinesDeleted { pool: record(), not_deleted };
    world.answer(OperationKind::DeletePoolMachines, Ok(refused));
    world.pass();
    world.operation = OperationView::Idle;
    assert!(request(&world.plan()).is_none(), "others are not drained");
    world.drain("p-2");
    world.drain("p-3");
    let plan = turn(&mut world);
    let Some(Request::DeletePoolMachines { instances, .. }) = request(&plan) else { panic!() };
    assert_eq!(instances.len(), 2, "the others by name");
    assert!(matches!(request(&turn(&mut world)), Some(Request::DeletePool { .. })));
    world.absent_looks = 2;
    assert_eq!(world.plan().gone.len(), 1, "its machine goes as well");
}

#[test]
fn a_deleted_pool_that_lost_all_instances_takes_its_group_with_it_once_all_machines_are_drained() {
    let mut world = World::running(2, json!({}));
    world.pool.metadata.deletion_timestamp = Some(world.now.into());
    world.group.as_mut().unwrap().instances.clear();
    assert!(request(&world.plan()).is_none(), "they may be there");
    world.drain("p-1");
    assert!(!matches!(request(&world.plan()), Some(Request::DeletePool { .. })), "one of them");
    world.drain("p-2");
    assert!(matches!(request(&world.plan()), Some(Request::DeletePool { .. })));
    let paused = [("ostler.dev/paused".to_owned(), String::new())].into();
    world.named("p-2").metadata.annotations = Some(paused);
    assert!(!matches!(request(&world.plan()), Some(Request::DeletePool { .. })), "a user holds it");
}

/// How many Machines were chosen to go among others.
fn chosen(plan: &Decision) -> usize {
    plan.delete.iter().filter(|victim| victim.cause.is_choice()).count()
}

#[test]
fn a_machine_whose_instance_the_infrastructure_deletes_is_deleted_at_once_for_its_drain() {
    let going = |world: &mut World| {
        world.group.as_mut().unwrap().instances[0].state = InstanceState::Deleting;
        world.boot();
        world.adopt();
    };
    for (what, more, kinds) in [
        ("any", json!({}), &ALL[..]),
        ("without named deletion", json!({}), &ALL[..4]),
        ("paused", json!({ "paused": true }), &ALL[..]),
    ] {
        let mut world = World::running(3, more);
        world.driver = driver(kinds);
        going(&mut world);
        let plan = world.plan();
        assert_eq!(victims(&plan), ["p-1"], "{what}");
        assert_eq!(plan.delete[0].cause, Cause::InstanceGoing, "{what}");
        world.drain("p-1");
        let plan = world.plan();
        assert!(victims(&plan).is_empty(), "{what}: once");
        assert!(request(&plan).is_none(), "{what}: nothing is asked for");
    }
}

#[test]
fn an_instance_that_the_driver_makes_anew_in_its_place_is_not_taken_for_one_that_goes() {
    let mut world = World::running(2, json!({}));
    let status = world.pool.status.as_mut().unwrap();
    let unfinished = json!({ "unfinishedProviderIDs": ["fake:///i-1"] });
    status.hot_update = Some(serde_json::from_value(unfinished).unwrap());
    for instance in &mut world.group.as_mut().unwrap().instances {
        instance.state = InstanceState::Deleting;
    }
    assert_eq!(victims(&world.plan()), ["p-2"]);
}

#[test]
fn a_machine_whose_instance_is_going_or_gone_makes_no_other_one_surplus() {
    let lost = |world: &mut World| world.group.as_mut().unwrap().instances.remove(0);
    let going = |world: &mut World| {
        let instance = &mut world.group.as_mut().unwrap().instances[0];
        instance.state = InstanceState::Deleting;
        instance.clone()
    };
    for (what, happens) in [("going", going as fn(&mut World) -> Instance), ("gone", lost)] {
        let mut world = World::running(3, json!({}));
        let of = happens(&mut world);
        world.boot();
        world.adopt();
        assert_eq!(world.machines.len(), 4, "{what}");
        assert_eq!(chosen(&world.plan()), 0, "{what}: {}", of.name);
        world.run_all();
        assert_eq!(chosen(&world.plan()), 0, "{what}, and the new one runs");
    }
}

#[test]
fn the_surge_goes_with_the_last_outdated_instance_also_when_the_infrastructure_deletes_that_one() {
    let mut world = World::running(3, json!({}));
    world.pool.spec.template.spec.version = Some("v2".to_owned());
    turn(&mut world);
    world.boot();
    let group = world.group.as_mut().unwrap();
    let model = group.model_hash.clone();
    group.desired = 4;
    for instance in &mut group.instances {
        instance.model_hash = model.clone();
    }
    group.instances[0].model_hash = "old".into();
    group.instances[0].state = InstanceState::Deleting;
    world.boot();
    world.adopt();
    world.run_all();
    let plan = world.plan();
    assert_eq!((victims(&plan)[0], chosen(&plan)), ("p-1", 1), "one more than wanted");
    let victim = victims(&plan)[1].to_owned();
    world.drain("p-1");
    world.drain(&victim);
    let plan = world.plan();
    let Some(Request::DeletePoolMachines { size, .. }) = request(&plan) else { panic!() };
    assert_eq!((size.expected, size.wanted), (4, 3), "nothing is made in its place");
}

#[test]
fn of_a_surge_no_more_is_made_than_instances_are_left_to_replace() {
    let rolling = json!({ "strategy": { "rollingUpdate": { "maxSurge": 2 } } });
    let mut world = World::running(4, rolling);
    world.pool.spec.template.spec.version = Some("v2".to_owned());
    turn(&mut world);
    let group = world.group.as_mut().unwrap();
    assert_eq!(group.desired, 6);
    let model = group.model_hash.clone();
    for instance in &mut group.instances[1..] {
        instance.model_hash = model.clone();
    }
    world.boot();
    world.boot();
    world.adopt();
    let plan = world.plan();
    let victim = victims(&plan)[0].to_owned();
    assert_eq!(victims(&plan).len(), 1, "two boot, and one has to go");
    world.drain(&victim);
    let plan = world.plan();
    let Some(Request::DeletePoolMachines { size, .. }) = request(&plan) else { panic!() };
    assert_eq!((size.expected, size.wanted), (6, 5), "nothing is made in its place");
}

#[test]
fn a_pool_that_nobody_ever_asked_a_driver_for_goes_without_one() {
    let mut world = World::new(2, json!({}));
    world.driver = ostler_lifecycle::snapshot::DriverView::Unavailable;
    world.pool.metadata.deletion_timestamp = Some(world.now.into());
    assert_eq!(world.plan().finalizer, FinalizerChange::Remove);
    world.pool.status = Some(Default::default());
    world.pool.status.as_mut().unwrap().asked = true;
    world.absent_looks = 1;
    assert_eq!(world.plan().finalizer, FinalizerChange::Keep, "a group may be there");
}

#[test]
fn a_pool_gets_its_finalizer_before_anything_else() {
    let mut world = World::new(2, json!({}));
    world.pool.metadata.finalizers = None;
    let plan = world.plan();
    assert_eq!(plan.finalizer, FinalizerChange::Add);
    assert!(plan.dispatch.is_none());
}

#[test]
fn a_condition_and_an_event_say_what_is_wrong_with_a_spec() {
    let mut world = World::running(3, json!({}));
    world.pool.spec.strategy.rolling_update.get_or_insert_default().delete_policy =
        Some(serde_json::from_value(json!("Any")).unwrap());
    let plan = world.pass();
    let valid = plan.status.conditions.iter().find(|it| it.type_ == "Valid").unwrap();
    assert_eq!(valid.status, "False");
    assert_eq!(plan.news.iter().filter(|it| it.reason.name() == "ValidationFailed").count(), 1);
    assert!(world.plan().news.is_empty(), "once");
}

#[test]
fn every_condition_is_set_and_the_object_stays_small_with_ten_thousand_machines() {
    let mut world = World::running(10_000, json!({}));
    let plan = world.pass();
    assert_eq!(plan.status.conditions.len(), 11);
    let text = serde_json::to_string(&world.pool).unwrap();
    assert!(text.len() < 64 * 1024, "{} bytes", text.len());
}

#[test]
fn what_is_wrong_with_a_strategy_stops_updates_and_neither_scaling_nor_what_was_drained() {
    for strategy in [
        json!({ "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 0 } }),
        json!({ "rollingUpdate": { "deletePolicy": "Any" } }),
        json!({ "type": "InPlaceUpdate", "inPlaceUpdate": { "maxUnavailable": 0 } }),
    ] {
        let mut world = World::running(4, json!({ "strategy": strategy }));
        world.group.as_mut().unwrap().instances[0].model_hash = "old".into();
        let plan = world.plan();
        assert!(plan.delete.is_empty() && plan.dispatch.is_none(), "{strategy}: no rollout");
        world.pool.spec.replicas = Some(3);
        assert_eq!(victims(&world.plan()).len(), 1, "{strategy}");
        world.drain("p-2");
        let plan = world.plan();
        let Some(Request::DeletePoolMachines { .. }) = request(&plan) else { panic!("{strategy}") };
    }
}

#[test]
fn a_budget_that_an_autoscaler_rounds_down_to_nothing_is_one_machine() {
    let strategy = json!({ "rollingUpdate": { "maxSurge": 0, "maxUnavailable": "30%" } });
    let mut world = World::running(3, json!({ "strategy": strategy }));
    world.group.as_mut().unwrap().instances[1].model_hash = "old".into();
    assert_eq!(victims(&world.plan()), ["p-2"]);
}

#[test]
fn a_pool_says_that_its_group_may_scale_in_by_itself() {
    let mut world = World::running(2, json!({}));
    let told =
        |plan: &Decision| plan.news.iter().filter(|it| it.reason.name() == "GroupScalesIn").count();
    assert_eq!(told(&world.pass()), 0);
    if let DriverView::Ready(driver) = &mut world.driver {
        driver.pool_scales_in = true;
    }
    let plan = world.pass();
    assert_eq!(told(&plan), 1);
    let said = plan.status.conditions.iter().find(|it| it.type_ == "Deletable").unwrap();
    assert_eq!(said.status, "True");
    assert!(said.message.contains("did not name"), "{}", said.message);
    assert_eq!(told(&world.pass()), 0, "once");
}

#[test]
fn a_group_with_a_fault_gets_machines_for_what_it_has_and_is_scaled_in_after_a_drain() {
    let mut world = World::running(3, json!({}));
    world.group.as_mut().unwrap().fault = Some("quota".to_owned());
    world.machines.truncate(2);
    let plan = world.plan();
    assert_eq!((plan.create.len(), plan.create[0].name()), (1, "p-3"));
    world.adopt();
    world.run_all();
    world.pool.spec.replicas = Some(2);
    let plan = world.plan();
    assert_eq!((victims(&plan).len(), request(&plan)), (1, None), "its drain comes first");
    let victim = victims(&plan)[0].to_owned();
    world.drain(&victim);
    let plan = world.plan();
    let Some(Request::DeletePoolMachines { size, .. }) = request(&plan) else { panic!() };
    assert_eq!((size.expected, size.wanted), (3, 2));
}

/// The True ones among the shown conditions.
fn holding(plan: &Decision) -> Vec<&str> {
    let shown = ["Ready", "ReplicasReady", "ScalingUp", "ScalingDown", "Remediating", "Deleting"];
    let all = plan.status.conditions.iter().filter(|it| it.status == "True");
    all.map(|it| it.type_.as_str()).filter(|it| shown.contains(it)).collect()
}

#[test]
fn phases_and_conditions_are_those_that_the_specification_lists() {
    let running = |replicas| {
        let mut world = World::running(3, json!({}));
        world.pool.spec.replicas = Some(replicas);
        world
    };
    let made = || {
        let mut world = World::new(3, json!({}));
        world.pool.status = Some(Default::default());
        world.pool.status.as_mut().unwrap().asked = true;
        world
    };
    let mut no_data = World::new(3, json!({}));
    no_data.data = DataSecret::Missing("secret default/join does not exist".to_owned());
    no_data.pool.spec.template.spec.bootstrap =
        Some(serde_json::from_value(json!({ "dataSecretName": "join" })).unwrap());
    let mut booting = running(3);
    booting.machines.clear();
    let mut external = running(3).scaled_by_others();
    external.group.as_mut().unwrap().desired = 4;
    external.pool.spec.replicas = Some(4);
    let mut failing = running(3);
    set_phase(failing.named("p-1"), MachinePhase::Failed);
    let mut failed = made();
    failed.pass();
    let invalid = Failure::new(ErrorCode::InvalidArgument, Certainty::NotApplied, "no such size");
    failed.answer(OperationKind::CreatePool, Err(invalid));
    let mut deleting = running(3);
    deleting.pool.metadata.deletion_timestamp = Some(deleting.now.into());
    let empty = running(0);
    let mut faulty = running(3);
    faulty.group.as_mut().unwrap().fault = Some("quota".to_owned());
    for (what, world, phase, conditions) in vec![
        ("no bootstrap data", no_data, "Pending", &["ScalingUp"][..]),
        ("a group is asked for", made(), "Provisioning", &["ScalingUp"]),
        ("instances are no machines yet", booting, "ScalingUp", &["ScalingUp"]),
        ("the group has a fault", faulty, "Provisioned", &["ReplicasReady"]),
        ("as wanted", running(3), "Running", &["Ready", "ReplicasReady"]),
        ("too few", running(4), "ScalingUp", &["ScalingUp"]),
        ("too many", running(2), "ScalingDown", &["Ready", "ReplicasReady", "ScalingDown"]),
        ("none wanted", empty, "ScalingDown", &["Ready", "ReplicasReady", "ScalingDown"]),
        ("another system scales it", external, "Scaling", &["ScalingUp"]),
        ("one failed", failing, "ScalingUp", &["Remediating"]),
        ("refused for good", failed, "Failed", &["ScalingUp"]),
        ("deleted", deleting, "Deleting", &["ReplicasReady", "ScalingDown", "Deleting"]),
    ] {
        let plan = world.plan();
        assert_eq!(plan.status.phase.as_ref().unwrap().as_str(), phase, "{what}");
        assert_eq!(holding(&plan), conditions, "{what}");
        assert_eq!(plan.status.infrastructure_machine_kind.as_deref(), Some("Machine"), "{what}");
    }
}
