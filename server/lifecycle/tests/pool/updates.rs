//! The way of a change to existing instances: while running, in place, or by replacement.

use std::sync::Arc;
use std::time::Duration;

use ostler_api::{
    SpecDigest,
    driver::{Certainty, ErrorCode, OperationKind},
    machine::{MachinePhase, MachineStep},
    names::annotation::{CLUSTER_API_UPDATE_INSTANCE, UPDATE_BEGUN, UPDATE_INSTANCE},
    operation::{OperationView, PoolInstance, PoolInstanceState, Request, Success},
};
use ostler_lifecycle::{
    operation::{Failure, UserData},
    pool::{DataSecret, Decision, GroupView, Situation, Way, model_hash, way},
    snapshot::DriverView,
};
use serde_json::{Value, json};

use crate::pool::world::{
    ALL, World, changed, class_with, driver, failure, not_hot, request, set_phase, victims,
};

pub(crate) const UPDATE: OperationKind = OperationKind::UpdatePoolMachine;

pub(crate) fn updating() -> DriverView {
    driver(&[ALL.as_slice(), &[UPDATE]].concat())
}

/// Three running Machines, and a driver that can update one instance.
fn three(more: Value) -> World {
    let mut world = World::running(3, more);
    world.driver = updating();
    world.pass();
    world
}

/// The class has other tags, and the group has its model.
pub(crate) fn retag(world: &mut World, tag: &str) {
    world.class = class_with(json!({ "size": 1, "tags": { "a": tag } }));
    take_model(world);
}

fn take_model(world: &mut World) {
    let plan = world.pass();
    let Some(Request::UpdatePool { size: None, model: Some(model), .. }) = request(&plan) else {
        panic!("{:?}", plan.dispatch)
    };
    world.group.as_mut().unwrap().model_hash = model.hash.clone().into();
    world.answer(OperationKind::UpdatePool, changed());
    world.pass();
    world.operation = OperationView::Idle;
}

/// The requested instance, and whether it is drained.
pub(crate) fn asked(plan: &Decision) -> Option<(String, bool)> {
    match request(plan)? {
        Request::UpdatePoolMachine { instance, drained, .. } => {
            Some((instance.to_string(), *drained))
        }
        _ => None,
    }
}

pub(crate) fn id(number: u32) -> String {
    format!("fake:///i-{number}")
}

/// The driver did the update.
fn brought(world: &mut World, number: u32) {
    let group = world.group.as_mut().unwrap();
    let instance = group.instances.iter_mut().find(|it| it.provider_id == id(number).as_str());
    instance.unwrap().model_hash = group.model_hash.clone();
    let told = PoolInstance {
        instance: ostler_lifecycle::operation::InstanceRecord {
            provider_id: id(number).into(),
            ..Default::default()
        },
        instance_id: number.to_string(),
        state: PoolInstanceState::Succeeded,
        model_hash: group.model_hash.to_string(),
        ..PoolInstance::default()
    };
    world.answer(UPDATE, Ok(Success::PoolMachineUpdated(told)));
}

fn told(plan: &Decision) -> (String, String) {
    let all = &plan.status.conditions;
    let said = all.iter().find(|it| it.type_ == "MachinesUpToDate").unwrap();
    (said.reason.clone(), said.message.clone())
}

/// The marks that a pass writes, by Machine.
fn marks(plan: &Decision) -> Vec<(String, Vec<(String, bool)>)> {
    let of = |(machine, patch): &(std::sync::Arc<ostler_api::Machine>, Value)| {
        let all = patch["metadata"]["annotations"].as_object()?;
        let all = all.iter().map(|(key, value)| (key.clone(), !value.is_null()));
        Some((machine.name().to_owned(), all.collect()))
    };
    plan.patches.iter().filter_map(of).collect()
}

/// A pass whose marks are written, too.
fn pass(world: &mut World) -> Decision {
    let plan = world.pass();
    for (machine, patch) in &plan.patches {
        let machine = world.named(machine.name());
        let mut value = serde_json::to_value(&*machine).unwrap();
        json_patch::merge(&mut value, patch);
        *machine = serde_json::from_value(value).unwrap();
    }
    plan
}

/// The Node is drained for the update.
fn empty(world: &mut World, name: &str) {
    let machine = world.named(name);
    set_phase(machine, MachinePhase::InPlaceUpdating);
    machine.status.as_mut().unwrap().step = Some(MachineStep::UpdateInstance);
}

#[test]
fn the_way_of_an_instance_follows_from_what_differs_what_the_driver_can_and_what_is_wanted() {
    let (has, same): (SpecDigest, SpecDigest) = ("fixed-1".into(), "fixed-1".into());
    let (spec, fixed): (SpecDigest, SpecDigest) = ("fixed-2".into(), "other-1".into());
    let usual = Situation {
        has: &has,
        wanted: &same,
        unfinished: false,
        can_update: true,
        refused: false,
        asked: false,
        in_place: false,
        given_up: false,
    };
    let (to_spec, to_fixed) =
        (Situation { wanted: &spec, ..usual }, Situation { wanted: &fixed, ..usual });
    for (what, of, expected) in [
        ("it has it", Situation { wanted: &same, ..usual }, Way::Current),
        ("half of another", Situation { wanted: &same, unfinished: true, ..usual }, Way::Hot),
        (
            "half of another, and no driver can finish it",
            Situation { wanted: &same, unfinished: true, can_update: false, ..usual },
            Way::Current,
        ),
        ("another spec", to_spec, Way::Hot),
        ("another version", to_fixed, Way::Replace),
        ("the driver refused", Situation { refused: true, ..to_spec }, Way::Replace),
        ("the driver cannot", Situation { can_update: false, ..to_spec }, Way::Replace),
        ("hot comes first", Situation { in_place: true, asked: true, ..to_spec }, Way::Hot),
        ("in place", Situation { in_place: true, ..to_fixed }, Way::InPlace),
        ("a user asked", Situation { asked: true, ..to_fixed }, Way::InPlace),
        (
            "in place, refused as it runs",
            Situation { in_place: true, refused: true, ..to_spec },
            Way::InPlace,
        ),
        (
            "in place, and the driver cannot",
            Situation { in_place: true, can_update: false, ..to_fixed },
            Way::Stays,
        ),
        ("given up", Situation { in_place: true, given_up: true, ..to_fixed }, Way::Replace),
    ] {
        assert_eq!(way(&of), expected, "{what}");
    }
    let unknown: SpecDigest = "".into();
    assert_eq!(
        way(&Situation { has: &unknown, ..to_spec }),
        Way::Replace,
        "it is not known what it has"
    );
}

#[test]
fn a_change_that_running_instances_take_reaches_one_after_the_other_and_replaces_none() {
    let mut world = three(json!({}));
    retag(&mut world, "b");
    for number in 1..=3 {
        let plan = world.pass();
        assert_eq!(asked(&plan), Some((id(number), false)));
        assert!(plan.delete.is_empty());
        assert_eq!(told(&plan).0, "UpdatingRunning");
        let intent = plan.status.operation.unwrap();
        assert_eq!((intent.provider_ids, intent.drained), (vec![id(number).into()], false));
        brought(&mut world, number);
        assert!(!world.plan().reread, "the answer has all of it");
    }
    let plan = world.pass();
    world.operation = OperationView::Idle;
    assert!(plan.dispatch.is_none() && plan.status.operation.is_none());
    let plan = world.pass();
    assert_eq!((told(&plan).0.as_str(), plan.status.up_to_date_replicas), ("UpToDate", 3));
    assert_eq!(world.group.as_ref().unwrap().desired, 3, "no surge");
    assert_eq!(plan.status.hot_update, None);
}

#[test]
fn an_answer_about_one_instance_is_taken_into_the_read() {
    let mut world = three(json!({}));
    let mut view = GroupView::Known(Arc::new(world.group.clone().unwrap()));
    retag(&mut world, "b");
    brought(&mut world, 2);
    let OperationView::Finished(finished) = &world.operation else { panic!() };
    let Ok(Success::PoolMachineUpdated(told)) = &finished.outcome else { panic!() };
    view.learn(told.clone());
    let hash = &world.group.as_ref().unwrap().model_hash;
    let new = |it: &ostler_lifecycle::pool::Instance| it.model_hash == *hash;
    let known = &view.known().unwrap().instances;
    assert_eq!(known.iter().map(new).collect::<Vec<_>>(), [false, true, false]);
}

#[test]
fn a_change_that_the_driver_refuses_for_running_instances_rolls_and_is_told_once() {
    let mut world = three(json!({}));
    retag(&mut world, "b");
    assert!(asked(&world.pass()).is_some());
    world.answer(UPDATE, not_hot());
    let plan = world.pass();
    let news =
        plan.news.iter().find(|it| it.reason.name() == "HotUpdateRefused" && !it.warning).unwrap();
    assert!(news.message.ends_with("; they are replaced"), "{}", news.message);
    assert!(plan.status.retries.is_empty(), "it is no failure");
    world.operation = OperationView::Idle;
    let plan = world.pass();
    let Some(Request::UpdatePool { size, .. }) = request(&plan) else { panic!() };
    assert_eq!(size.unwrap().wanted, 4, "with a surge, as any change that needs new instances");
    assert!(told(&plan).1.contains("running ones cannot get it"), "{}", told(&plan).1);
    assert!(plan.news.iter().all(|it| it.reason.name() != "HotUpdateRefused"));
}

#[test]
fn another_old_model_another_class_and_another_driver_are_asked_about_anew() {
    let mut world = three(json!({}));
    retag(&mut world, "b");
    world.pass();
    world.answer(UPDATE, not_hot());
    world.pass();
    world.operation = OperationView::Idle;
    let mut other = world.clone();
    let old = other.group.as_ref().unwrap().instances[1].model_hash.to_string();
    let (fixed, _) = old.split_once('-').unwrap();
    other.group.as_mut().unwrap().instances[1].model_hash = format!("{fixed}-older").into();
    other.group.as_mut().unwrap().desired = 4;
    assert_eq!(asked(&other.plan()), Some((id(2), false)), "it may take what others cannot");
    let mut other = world.clone();
    let DriverView::Ready(facts) = &mut other.driver else { panic!() };
    facts.identity = "fake 2".to_owned();
    assert_eq!(asked(&other.plan()), Some((id(1), false)));
    retag_after_refusal(&mut world);
    assert_eq!(asked(&world.plan()), Some((id(1), false)));
}

fn retag_after_refusal(world: &mut World) {
    world.class = class_with(json!({ "size": 1, "tags": { "a": "c" } }));
    let group = world.group.as_mut().unwrap();
    group.model_hash = ostler_lifecycle::pool::model_hash(&world.pool, &world.class);
}

#[test]
fn another_version_is_no_matter_of_running_instances() {
    let mut world = three(json!({}));
    world.pool.spec.template.spec.version = Some("v2".to_owned());
    let plan = world.pass();
    assert!(matches!(request(&plan), Some(Request::UpdatePool { size: Some(_), .. })));
}

#[test]
fn groups_that_replace_by_themselves_and_pools_that_are_paused_update_no_running_instance() {
    let mut world = three(json!({}));
    retag(&mut world, "b");
    let mut native = world.clone();
    let DriverView::Ready(facts) = &mut native.driver else { panic!() };
    facts.pool_surge = true;
    assert!(native.plan().dispatch.is_none());
    world.pool.spec.paused = Some(true);
    assert!(world.plan().dispatch.is_none());
}

#[test]
fn an_update_that_failed_waits_while_others_go_on_and_three_hold_up_all() {
    let mut world = World::running(5, json!({}));
    world.driver = updating();
    world.pass();
    retag(&mut world, "b");
    for number in 1..=3 {
        assert_eq!(asked(&world.pass()), Some((id(number), false)));
        world.answer(UPDATE, failure(ErrorCode::Internal));
        assert!(world.pass().reread);
        world.operation = OperationView::Idle;
    }
    let plan = world.pass();
    assert_eq!((asked(&plan), plan.status.retries.len()), (None, 3));
    assert_eq!(told(&plan).0, "UpdatePoolMachineFailed");
    let ready = plan.status.conditions.iter().find(|it| it.type_ == "InfrastructureReady").unwrap();
    assert_eq!(ready.status, "True", "the group works");
    world.now = plan.retry_at.unwrap();
    assert_eq!(asked(&world.pass()), Some((id(1), false)), "again, by the table");
    brought(&mut world, 1);
    let plan = world.pass();
    assert_eq!(asked(&plan), Some((id(2), false)));
    assert_eq!(plan.status.retries.len(), 2);
}

#[test]
fn an_update_of_unknown_outcome_is_finished_even_if_the_class_is_changed_back() {
    let lost = |world: &mut World| {
        let unknown = Failure::new(ErrorCode::Unavailable, Certainty::Unknown, "lost");
        world.answer(UPDATE, Err(unknown));
    };
    let crashed = |world: &mut World| world.operation = OperationView::Idle;
    for (what, ends) in [("lost", &lost as &dyn Fn(&mut World)), ("crashed", &crashed)] {
        let mut world = three(json!({}));
        let old = world.class.clone();
        retag(&mut world, "b");
        world.pass();
        ends(&mut world);
        let plan = world.pass();
        assert!(plan.reread, "{what}");
        assert_eq!(plan.status.hot_update.unwrap().unfinished, [id(1).as_str()], "{what}");
        world.operation = OperationView::Idle;
        world.class = old;
        world.now += jiff::SignedDuration::from_hours(1);
        take_model(&mut world);
        assert_eq!(
            asked(&world.pass()),
            Some((id(1), false)),
            "{what}: it has its model again, maybe"
        );
        brought(&mut world, 1);
        assert_eq!(asked(&world.pass()), None, "{what}: the others have it");
        assert_eq!(world.pool.status.as_ref().unwrap().hot_update, None);
    }
}

#[test]
fn an_answer_about_another_model_is_none() {
    let mut world = three(json!({}));
    retag(&mut world, "b");
    world.pass();
    brought(&mut world, 1);
    world.class = class_with(json!({ "size": 1, "tags": { "a": "c" } }));
    let OperationView::Finished(finished) = &mut world.operation else { panic!() };
    let Ok(Success::PoolMachineUpdated(told)) = &mut finished.outcome else { panic!() };
    told.model_hash = "mine".to_owned();
    let plan = world.pass();
    assert!(plan.reread);
    assert_eq!(plan.status.retries.len(), 1, "it is asked again, and not at once");
}

fn in_place(limits: Value) -> Value {
    json!({ "strategy": { "type": "InPlaceUpdate", "inPlaceUpdate": limits } })
}

/// A new version, and the group has its model.
fn new_version(world: &mut World) {
    world.pool.spec.template.spec.version = Some("v2".to_owned());
    take_model(world);
}

#[test]
fn instances_are_updated_in_their_places_one_after_the_other() {
    let mut world = three(in_place(json!({})));
    new_version(&mut world);
    let hash = world.group.as_ref().unwrap().model_hash.to_string();
    for number in 1..=3 {
        let name = format!("p-{number}");
        let plan = pass(&mut world);
        let both = vec![(UPDATE_BEGUN.to_owned(), true), (UPDATE_INSTANCE.to_owned(), true)];
        assert_eq!(marks(&plan), [(name.clone(), both)]);
        assert_eq!(world.named(&name).annotation(UPDATE_INSTANCE), Some(hash.as_str()));
        assert!(plan.dispatch.is_none() && plan.delete.is_empty(), "its Node is not drained yet");
        assert!(marks(&pass(&mut world)).is_empty(), "one at a time");
        empty(&mut world, &name);
        let plan = pass(&mut world);
        assert_eq!(asked(&plan), Some((id(number), true)));
        assert!(plan.status.operation.unwrap().drained);
        let text = told(&world.plan()).1;
        assert!(text.contains("to update in place, 1 of them now"), "{text}");
        brought(&mut world, number);
        let plan = pass(&mut world);
        assert!(marks(&plan).is_empty(), "its Machine says first that it has the model");
        assert_eq!(plan.instances.len(), 1);
        world.operation = OperationView::Idle;
        let gone = vec![(UPDATE_BEGUN.to_owned(), false), (UPDATE_INSTANCE.to_owned(), false)];
        assert_eq!(marks(&pass(&mut world)), [(name.clone(), gone)]);
        world.operation = OperationView::Idle;
        assert!(marks(&pass(&mut world)).is_empty(), "its Node does not work yet");
        set_phase(world.named(&name), MachinePhase::Running);
    }
    assert_eq!(told(&pass(&mut world)).0, "UpToDate");
    assert_eq!(world.group.as_ref().unwrap().desired, 3);
}

#[test]
fn the_marks_stay_until_the_instance_works_with_the_model() {
    let mut world = three(in_place(json!({})));
    new_version(&mut world);
    pass(&mut world);
    empty(&mut world, "p-1");
    pass(&mut world);
    brought(&mut world, 1);
    world.group.as_mut().unwrap().instances[0].state = ostler_api::machine::InstanceState::Creating;
    assert!(marks(&pass(&mut world)).is_empty(), "it boots");
}

#[test]
fn no_more_are_begun_than_may_be_missing() {
    for (limits, missing, expected) in [
        (json!({ "maxUnavailable": 2 }), vec![], vec!["p-1", "p-2"]),
        (json!({ "maxUnavailable": "67%" }), vec![], vec!["p-1", "p-2"]),
        (json!({ "maxUnavailable": 2 }), vec!["p-3"], vec!["p-1"]),
        (json!({ "maxUnavailable": 1 }), vec!["p-3"], vec![]),
    ] {
        let mut world = three(in_place(limits.clone()));
        // p-1 has no Node, as without a target cluster.
        set_phase(world.named("p-1"), MachinePhase::Available);
        for name in &missing {
            set_phase(world.named(name), MachinePhase::Unknown);
        }
        new_version(&mut world);
        let begun: Vec<_> = marks(&world.plan()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(begun, expected, "{limits} {missing:?}");
    }
}

#[test]
fn also_where_there_are_more_than_are_wanted_no_more_are_updated_than_may_be_missing() {
    let mut world = three(in_place(json!({ "maxUnavailable": 1 })));
    let by = ("cluster.x-k8s.io/replicas-managed-by".to_owned(), "autoscaler".to_owned());
    world.pool.metadata.annotations = Some([by].into());
    world.pool.spec.replicas = Some(1);
    new_version(&mut world);
    assert_eq!(marks(&pass(&mut world)).len(), 1);
    assert_eq!(marks(&pass(&mut world)), [], "one is updated");
}

#[test]
fn victims_of_the_same_pass_take_their_part_of_the_budget() {
    let mut world = three(in_place(json!({ "maxUnavailable": 1 })));
    new_version(&mut world);
    let annotations = &mut world.named("p-3").metadata.annotations;
    let wish = ("cluster.x-k8s.io/delete-machine".to_owned(), String::new());
    annotations.get_or_insert_default().extend([wish]);
    let plan = world.plan();
    assert_eq!((victims(&plan), marks(&plan).len()), (vec!["p-3"], 0));
}

#[test]
fn no_update_begins_beside_a_choice_of_the_same_pass_that_needs_the_instance() {
    let mut world = World::running(4, json!({ "strategy": { "type": "OnDelete" } }));
    world.driver = updating();
    world.pass();
    new_version(&mut world);
    world.pool.spec.replicas = Some(3);
    let annotations = &mut world.named("p-3").metadata.annotations;
    annotations.get_or_insert_default().insert(UPDATE_INSTANCE.to_owned(), "please".to_owned());
    let plan = pass(&mut world);
    assert_eq!((victims(&plan), marks(&plan).len()), (vec!["p-1"], 0), "three have to be ready");
    world.drain("p-1");
    let begun: Vec<_> = marks(&pass(&mut world)).into_iter().map(|(name, _)| name).collect();
    assert_eq!(begun, ["p-3"], "now by the budget of updates in place");
}

#[test]
fn a_user_asks_for_one_and_it_waits_for_the_budget() {
    for key in [UPDATE_INSTANCE, CLUSTER_API_UPDATE_INSTANCE] {
        let mut world = three(json!({ "strategy": { "type": "OnDelete" } }));
        new_version(&mut world);
        assert!(marks(&pass(&mut world)).is_empty());
        for name in ["p-2", "p-3"] {
            let annotations = &mut world.named(name).metadata.annotations;
            annotations.get_or_insert_default().insert(key.to_owned(), "please".to_owned());
        }
        let plan = pass(&mut world);
        assert_eq!(marks(&plan).iter().map(|it| it.0.as_str()).collect::<Vec<_>>(), ["p-2"]);
        empty(&mut world, "p-2");
        pass(&mut world);
        brought(&mut world, 2);
        pass(&mut world);
        world.operation = OperationView::Idle;
        pass(&mut world);
        assert!(world.named("p-2").annotation(key).is_none(), "{key}");
        set_phase(world.named("p-2"), MachinePhase::Running);
        let plan = pass(&mut world);
        assert_eq!(marks(&plan).iter().map(|it| it.0.as_str()).collect::<Vec<_>>(), ["p-3"]);
        // What has the model already needs nothing.
        let annotations = &mut world.named("p-2").metadata.annotations;
        annotations.get_or_insert_default().insert(key.to_owned(), String::new());
        pass(&mut world);
        assert!(world.named("p-2").annotation(key).is_none(), "{key}");
    }
}

#[test]
fn a_user_who_takes_the_wish_back_ends_the_update_unless_the_driver_works() {
    let mut world = three(in_place(json!({})));
    new_version(&mut world);
    pass(&mut world);
    empty(&mut world, "p-1");
    assert!(pass(&mut world).dispatch.is_some());
    world.named("p-1").metadata.annotations.as_mut().unwrap().remove(UPDATE_INSTANCE);
    world.pool.spec.strategy = Default::default();
    world.pool.spec.paused = Some(true);
    world.operation = OperationView::Expected(Duration::from_secs(30));
    assert_eq!(marks(&pass(&mut world)), [], "the driver works on it");
    world.operation = OperationView::Idle;
    assert!(pass(&mut world).reread);
    let plan = pass(&mut world);
    assert_eq!(marks(&plan), [("p-1".to_owned(), vec![(UPDATE_BEGUN.to_owned(), false)])]);
    assert_eq!(plan.dispatch, None, "its Node takes pods from now on");
}

#[test]
fn one_that_failed_keeps_its_place_or_is_replaced_as_the_pool_says() {
    for (policy, replaced) in [("Hold", false), ("Replace", true)] {
        let mut world = three(in_place(json!({ "onUpdateFailure": policy })));
        new_version(&mut world);
        pass(&mut world);
        empty(&mut world, "p-1");
        set_phase(world.named("p-1"), MachinePhase::InPlaceUpdateFailed);
        let plan = pass(&mut world);
        assert_eq!(!plan.delete.is_empty(), replaced, "{policy}");
        assert_eq!(asked(&plan).is_some(), !replaced, "{policy}: the driver is asked on");
        assert!(marks(&plan).is_empty(), "no other one is begun");
    }
}

#[test]
fn a_driver_that_refuses_a_drained_instance_is_asked_again_later() {
    let mut world = three(in_place(json!({})));
    new_version(&mut world);
    pass(&mut world);
    empty(&mut world, "p-1");
    assert_eq!(asked(&pass(&mut world)), Some((id(1), true)));
    world.answer(UPDATE, not_hot());
    let plan = pass(&mut world);
    assert_eq!(plan.status.retries.len(), 1);
    world.operation = OperationView::Idle;
    let plan = pass(&mut world);
    let wait = Duration::try_from(plan.retry_at.unwrap().duration_since(world.now)).unwrap();
    assert!(wait >= Duration::from_mins(1), "{wait:?}");
}

#[test]
fn without_the_verb_instances_stay_and_the_pool_says_why_or_replaces_them() {
    for (policy, reason) in [("Hold", "DriverLacksVerb"), ("Replace", "RollingOut")] {
        let mut world = three(in_place(json!({ "onUpdateFailure": policy })));
        world.driver = driver(&ALL);
        new_version(&mut world);
        let plan = pass(&mut world);
        assert_eq!(told(&plan).0, reason);
        assert_eq!(plan.delete.len(), usize::from(policy == "Replace"));
        assert!(marks(&plan).is_empty());
    }
}

#[test]
fn whatever_an_instance_is_made_from_is_in_the_name_of_its_model_and_nothing_else() {
    let world = World::running(1, json!({}));
    let model = |world: &World| model_hash(&world.pool, &world.class);
    let with = |more: Value| {
        let mut world = world.clone();
        let mut spec = serde_json::to_value(&world.pool.spec).unwrap();
        json_patch::merge(&mut spec, &more);
        world.pool.spec = serde_json::from_value(spec).unwrap();
        Box::new(world)
    };
    let template = |spec: Value| with(json!({ "template": { "spec": spec } }));
    let mut of_class = Box::new(world.clone());
    of_class.class = class_with(json!({ "size": 2 }));
    for (what, other) in [
        ("provider spec", of_class),
        ("version", template(json!({ "version": "v2" }))),
        ("bootstrap data", template(json!({ "bootstrap": { "data": "x" } }))),
        ("their secret", template(json!({ "bootstrap": { "dataSecretName": "x" } }))),
        ("zones", with(json!({ "failureDomains": ["a"] }))),
    ] {
        assert_ne!(model(&other), model(&world), "{what}");
        let outdated = other.clone().pass();
        assert_eq!(outdated.status.up_to_date_replicas, 0, "{what}");
        let said = outdated.status.conditions.iter().find(|it| it.type_ == "MachinesUpToDate");
        assert_eq!(said.unwrap().status, "False", "{what}");
    }
    let mut renewed = template(json!({ "bootstrap": { "dataSecretName": "x" } }));
    let before = model(&renewed);
    renewed.data = DataSecret::Known(UserData::new(b"token".to_vec()));
    assert_eq!(model(&renewed), before, "what a secret says may be renewed");
    for (what, other) in [
        ("replicas", with(json!({ "replicas": 5 }))),
        ("timeouts", template(json!({ "drainTimeout": "1m" }))),
        ("node template", template(json!({ "nodeTemplate": { "spec": { "taints": [] } } }))),
        ("labels", with(json!({ "template": { "metadata": { "labels": { "a": "b" } } } }))),
    ] {
        assert_eq!(model(&other), model(&world), "{what}");
    }
}
