//! The status of a pool, and the Machines that count as ready or broken.

use jiff::SignedDuration;
use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind},
    machine::{InstanceState, MachinePhase, MachineStep},
    machine_pool::PoolPhase,
    names::annotation,
    operation::{OperationView, Success},
};
use ostler_lifecycle::{
    operation::Failure,
    pool::{Decision, model_hash},
    snapshot::{DriverFacts, DriverView},
};
use serde_json::json;

use crate::pool::passes::turn;
use crate::pool::updates::{asked, retag, updating};
use crate::pool::world::{
    ALL, World, class_with, driver, failure, not_hot, record, set_phase, victims,
};

/// A driver may say FAILED for any change that failed, as one of tags.
#[test]
fn an_instance_that_failed_is_replaced_only_if_its_node_does_not_work() {
    for (phase, state, begun, goes) in [
        (MachinePhase::Running, InstanceState::Failed, false, false),
        (MachinePhase::InPlaceUpdating, InstanceState::Failed, true, false),
        (MachinePhase::InPlaceUpdateFailed, InstanceState::Failed, true, false),
        (MachinePhase::Pending, InstanceState::Failed, false, true),
        (MachinePhase::Unknown, InstanceState::Failed, false, true),
        (MachinePhase::Pending, InstanceState::Creating, false, false),
        (MachinePhase::Failed, InstanceState::Succeeded, false, true),
    ] {
        let mut world = World::running(3, json!({}));
        set_phase(world.named("p-1"), phase.clone());
        world.group.as_mut().unwrap().instances[0].state = state.clone();
        if begun {
            let marks = [(annotation::UPDATE_BEGUN.to_owned(), "m".to_owned())];
            world.named("p-1").metadata.annotations = Some(marks.into());
        }
        let expected: &[&str] = if goes { &["p-1"] } else { &[] };
        assert_eq!(victims(&world.plan()), expected, "{phase} {state:?}");
    }
}

#[test]
fn a_machine_whose_deletion_somebody_holds_does_not_hold_up_the_repair_of_others() {
    let of = |step: MachineStep, paused: bool| {
        let mut world = World::running(3, json!({}));
        for name in ["p-1", "p-2"] {
            set_phase(world.named(name), MachinePhase::Failed);
        }
        world.drain("p-1");
        let machine = world.named("p-1");
        machine.status.as_mut().unwrap().step = Some(step);
        if paused {
            machine.metadata.annotations =
                Some([(annotation::PAUSED.to_owned(), String::new())].into());
        }
        victims(&world.plan()).concat()
    };
    assert_eq!(of(MachineStep::DrainNode, false), "", "one after the other");
    assert_eq!(of(MachineStep::DrainNode, true), "p-2");
    assert_eq!(of(MachineStep::PreDrainHook, false), "p-2");
    assert_eq!(of(MachineStep::PreTerminateHook, false), "p-2");
}

#[test]
fn a_template_reaches_a_hundred_machines_in_a_pass_and_the_others_in_the_next() {
    let mut world = World::running(150, json!({}));
    while !world.pass().instances.is_empty() {}
    world.pool.spec.template.spec.drain_timeout = serde_json::from_value(json!("90s")).unwrap();
    let plan = world.plan();
    assert_eq!((plan.patches.len(), plan.more), (100, true));
    for machine in plan.patches.iter().map(|(machine, _)| machine.name()) {
        world.named(machine).spec.drain_timeout = serde_json::from_value(json!("90s")).unwrap();
    }
    let plan = world.plan();
    assert_eq!((plan.patches.len(), plan.more), (50, false));
}

#[test]
fn machines_without_nodes_are_ready_once_their_instance_is_made() {
    let mut world = World::running(3, json!({}));
    for machine in &mut world.machines {
        set_phase(machine, MachinePhase::Available);
    }
    assert_eq!(world.pass().status.ready_replicas, 0, "nothing is known of the instances");
    assert_eq!(world.pass().status.ready_replicas, 3);
    world.pool.spec.template.spec.version = Some("v2".to_owned());
    for _ in 0..3 {
        turn(&mut world);
    }
    set_phase(world.named("p-4"), MachinePhase::Available);
    let group = world.group.as_mut().unwrap();
    group.instances.last_mut().unwrap().state = InstanceState::Creating;
    world.pass();
    assert_eq!(victims(&world.plan()), Vec::<&str>::new(), "the new one is being made");
    world.group.as_mut().unwrap().instances.last_mut().unwrap().state = InstanceState::Succeeded;
    world.pass();
    assert_eq!(victims(&world.plan()), ["p-1"]);
}

#[test]
fn a_pool_that_replaces_nothing_says_why_and_its_group_is_read_as_seldom_as_a_calm_one() {
    let on_delete = json!({ "strategy": { "type": "OnDelete" } });
    let [no_delete, surge] = [driver(&ALL[..4]), {
        let kinds = ALL.into_iter().collect();
        DriverView::Ready(DriverFacts { kinds, pool_surge: true, ..DriverFacts::default() })
    }];
    for (more, driver, scaled, reason) in [
        (json!({}), driver(&ALL), false, "RollingOut"),
        (on_delete, driver(&ALL), false, "OnDelete"),
        (json!({ "paused": true }), driver(&ALL), false, "Paused"),
        (json!({}), no_delete, false, "NotSupported"),
        (json!({}), driver(&ALL), true, "ScaledByOthers"),
        (json!({}), surge, false, "RollingOut"),
    ] {
        let mut world = World::running(3, more);
        world.driver = driver;
        world.pass();
        if scaled {
            let marks = [(annotation::REPLICAS_MANAGED_BY.to_owned(), "x".to_owned())];
            world.pool.metadata.annotations = Some(marks.into());
        }
        world.pool.spec.template.spec.version = Some("v2".to_owned());
        world.group.as_mut().unwrap().model_hash = model_hash(&world.pool, &world.class);
        world.pass();
        let plan = world.pass();
        let said = |type_: &str| {
            let mut all = plan.status.conditions.iter();
            all.find(|it| it.type_ == type_).map(|it| (it.status.clone(), it.reason.clone()))
        };
        let old = said("MachinesUpToDate").unwrap();
        assert_eq!(old, ("False".to_owned(), reason.to_owned()), "{:?}", plan.status);
        assert_eq!(plan.unsettled, reason == "RollingOut", "{reason}");
        set_phase(world.named("p-1"), MachinePhase::Failed);
        let plan = world.pass();
        let said = plan.status.conditions.iter().find(|it| it.type_ == "Remediating").unwrap();
        let none = reason == "NotSupported";
        let expected = if none { ("False", reason) } else { ("True", "MachinesFailed") };
        assert_eq!((said.status.as_str(), said.reason.as_str()), expected);
    }
}

#[test]
fn instances_that_the_driver_calls_creating_for_ever_are_waited_for_by_name() {
    let mut world = World::running(3, json!({}));
    world.driver = updating();
    for instance in &mut world.group.as_mut().unwrap().instances {
        instance.state = InstanceState::Creating;
    }
    world.pass();
    retag(&mut world, "b");
    let plan = world.pass();
    assert_eq!(asked(&plan), None);
    let said = plan.status.conditions.iter().find(|it| it.type_ == "MachinesUpToDate").unwrap();
    assert_eq!(said.reason, "WaitingForInstances");
    let expected = "3 wait until the driver says SUCCEEDED of them: it says CREATING";
    assert!(said.message.contains(expected), "{}", said.message);
}

#[test]
fn a_driver_that_is_away_changes_nothing_of_what_is_said_of_it() {
    let said = |plan: &Decision| {
        let mut all = plan.status.conditions.iter();
        let found = all.find(|it| it.type_ == "Deletable").unwrap();
        (found.status.clone(), found.reason.clone())
    };
    let mut world = World::new(3, json!({}));
    world.driver = DriverView::Unavailable;
    assert_eq!(said(&world.pass()).0, "Unknown", "none was there yet");
    for (kinds, status) in [(&ALL[..], "True"), (&ALL[..4], "False")] {
        let mut world = World::running(3, json!({}));
        let there = driver(kinds);
        world.driver = there.clone();
        assert_eq!(said(&world.pass()).0, status);
        world.driver = DriverView::Unavailable;
        assert_eq!(said(&world.pass()).0, status);
        world.driver = there;
        let plan = world.pass();
        assert_eq!(said(&plan).0, status);
        assert!(
            plan.news.iter().all(|it| it.reason.name() != "NotSupported"),
            "it was said before"
        );
    }
}

#[test]
fn what_a_running_instance_cannot_get_is_told_with_what_becomes_of_it() {
    let in_place = json!({ "strategy": { "type": "InPlaceUpdate" } });
    let on_delete = json!({ "strategy": { "type": "OnDelete" } });
    for (more, end) in [
        (json!({}), "; they are replaced"),
        (in_place, "; they are updated in place"),
        (on_delete, "; they are not replaced: delete those to replace"),
    ] {
        let mut world = World::running(3, more);
        let kinds: Vec<_> = ALL.into_iter().chain([OperationKind::UpdatePoolMachine]).collect();
        world.driver = driver(&kinds);
        world.pass();
        world.class = class_with(json!({ "size": 2 }));
        world.group.as_mut().unwrap().model_hash = model_hash(&world.pool, &world.class);
        world.pass();
        world.answer(OperationKind::UpdatePoolMachine, not_hot());
        let plan = world.pass();
        let news = plan.news.iter().find(|it| it.reason.name() == "HotUpdateRefused").unwrap();
        assert!(news.message.ends_with(end), "{}", news.message);
    }
}

#[test]
fn replicas_that_another_system_decides_on_are_reset_with_a_word_and_follow_its_size_without() {
    let mut world = World::running(3, json!({})).scaled_by_others();
    world.pass();
    world.pool.spec.replicas = Some(5);
    let plan = world.plan();
    assert_eq!(plan.replicas, Some(3));
    let reset = plan.reset.unwrap();
    assert_eq!((reset.warning, reset.reason.name()), (true, "ReplicasReset"));
    assert_eq!(
        reset.message,
        "replicas is 3 again, not 5: annotation cluster.x-k8s.io/replicas-managed-by says that another system scales the group"
    );
    world.pool.spec.replicas = Some(3);
    world.group.as_mut().unwrap().desired = 4;
    let plan = world.plan();
    assert_eq!((plan.replicas, plan.reset), (Some(4), None));
}

#[test]
fn a_pool_without_a_driver_names_the_provider() {
    let mut world = World::running(3, json!({}));
    for (driver, reason, text) in [
        (
            DriverView::Unavailable,
            "DriverUnavailable",
            "no driver for provider \"fake.ostler.dev\" is connected and ready",
        ),
        (
            DriverView::NotReady("no engine".to_owned()),
            "DriverNotReady",
            "the driver for provider \"fake.ostler.dev\" is connected and not ready: no engine",
        ),
    ] {
        world.driver = driver;
        let plan = world.pass();
        let all = &plan.status.conditions;
        let said = all.iter().find(|it| it.type_ == "InfrastructureReady").unwrap();
        assert_eq!((said.reason.as_str(), said.message.as_str()), (reason, text));
    }
}

#[test]
fn versions_are_counted_and_what_is_missing_of_the_replicas() {
    let versioned = |version: &str| {
        let status = json!({ "version": version, "currentStatus": { "phase": "Running" } });
        serde_json::from_value(status).unwrap()
    };
    for (replicas, versions, counted, unavailable) in [
        (3, &[][..], json!([]), 0),
        (5, &["v1", "v2", "v1"], json!([["v1", 2], ["v2", 1]]), 2),
        (1, &["v1", "v1", "v1"], json!([["v1", 3]]), 0),
    ] {
        let mut world = World::running(3, json!({}));
        for (machine, version) in world.machines.iter_mut().zip(versions) {
            machine.status = Some(versioned(version));
        }
        world.pool.spec.replicas = Some(replicas);
        let status = world.plan().status;
        let said: Vec<_> = status.versions.iter().map(|it| (&it.version, it.replicas)).collect();
        assert_eq!(json!(said), counted);
        assert_eq!(status.unavailable_replicas, unavailable, "{replicas}");
    }
}

/// The instance is paid for.
#[test]
fn each_instance_without_a_machine_is_counted_and_named_whatever_keeps_it_from_having_one() {
    let said = |world: &World| {
        let observed = world.plan().status.observed.unwrap();
        let ids: Vec<_> = observed.without_machine_ids.iter().map(ToString::to_string).collect();
        (observed.current, observed.without_machine, ids)
    };
    let mut world = World::running(2, json!({}));
    assert_eq!(said(&world), (2, 0, vec![]));
    world.boot();
    assert_eq!(said(&world), (3, 0, vec![]), "it gets one in this pass");
    world.group.as_mut().unwrap().instances[2].state = InstanceState::Deleting;
    assert_eq!(said(&world), (3, 1, vec!["fake:///i-3".to_owned()]), "it is on its way out");
    world.machines.remove(0);
    world.group.as_mut().unwrap().instances[0].state = InstanceState::Deleting;
    let going = ["fake:///i-1", "fake:///i-3"].map(ToOwned::to_owned).to_vec();
    assert_eq!(said(&world), (3, 2, going), "its machine went first");
    // The pool does not want so many, and 20 are named.
    (0..60).for_each(|_| world.boot());
    let (current, without, named) = said(&world);
    let made = i32::try_from(world.plan().create.len()).unwrap();
    assert_eq!((current, without, named.len()), (63, 62 - made, 20));
    assert!(made > 0 && without > 20);
}

#[test]
fn a_pool_fails_for_what_only_a_user_can_end_and_for_nothing_else() {
    for (code, reason) in [
        (ErrorCode::InvalidArgument, Some("InvalidSpec")),
        (ErrorCode::Unavailable, None),
        (ErrorCode::ResourceExhausted, None),
    ] {
        let mut world = World::running(3, json!({}));
        world.pool.spec.replicas = Some(4);
        world.pass();
        world.answer(OperationKind::UpdatePool, failure(code));
        let status = world.pass().status;
        assert_eq!(status.failure_reason.as_deref(), reason, "{code}");
        let message = reason.map(|_| format!("{code}: no"));
        assert_eq!(status.failure_message, message, "{code}");
        assert_eq!(status.phase == Some(PoolPhase::Failed), reason.is_some(), "{code}");
        world.operation = OperationView::Idle;
        world.pool.spec.replicas = Some(3);
        assert_eq!(world.pass().status.failure_reason, None, "{code}: it is not wanted any more");
    }
}

/// With the longest ids and texts that a session takes, and as many instances as can be stuck.
#[test]
fn a_pool_of_which_nothing_can_be_deleted_is_an_object_of_less_than_64_kib() {
    let mut world = World::running(120, json!({}));
    let long = |id: &str| format!("{id}{}", "x".repeat(256 - id.len()));
    for instance in &mut world.group.as_mut().unwrap().instances {
        instance.provider_id = long(instance.provider_id.as_str()).into();
        instance.fault = Some("x".repeat(2048));
    }
    for machine in &mut world.machines {
        let id = machine.spec.provider_id.take().unwrap();
        machine.spec.provider_id = Some(long(id.as_str()).into());
    }
    for at in 1..=120 {
        world.drain(&format!("p-{at}"));
    }
    let text = "x".repeat(2048);
    for _ in 0..3 {
        let plan = world.pass();
        let asked = plan.status.operation.map(|it| it.provider_ids).unwrap_or_default();
        let why = Failure::new(ErrorCode::Internal, Certainty::NotApplied, &text);
        let not_deleted = asked.into_iter().map(|id| (id, why.clone())).collect();
        let answer = Success::PoolMachinesDeleted { pool: record(), not_deleted };
        world.answer(OperationKind::DeletePoolMachines, Ok(answer));
        world.pass();
        world.operation = OperationView::Idle;
    }
    // And the next fifty are asked for.
    world.now += SignedDuration::from_mins(10);
    let plan = world.pass();
    assert_eq!(plan.status.operation.unwrap().provider_ids.len(), 50);
    let bytes = serde_json::to_string(&world.pool).unwrap().len();
    assert!(bytes < 64 * 1024, "{bytes} bytes");
}
