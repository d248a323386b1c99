//! Whatever happens, in whatever order: no second instance, nothing lost, nothing stuck.

use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind},
    machine::{MachinePhase, MachineStep},
    names::{self, label},
};
use ostler_lifecycle::{
    operation::{Failure, OperationView},
    snapshot::{NodeView, Observed, VolumesView},
};
use proptest::prelude::*;

use crate::machine::world::{World, pod};

/// Something that happens to a machine.
#[derive(Debug, Clone)]
enum Happening {
    /// The controllers make a pass.
    Pass,
    /// The driver answers truthfully.
    Answer,
    /// The driver fails without effect.
    Refuse(ErrorCode, Certainty),
    /// The driver acts, and then reports a failure.
    ActAndFail(ErrorCode, Certainty),
    /// The driver acts and the result is lost, or the request was lost.
    Lose { acted: bool },
    /// Time passes, in seconds.
    Later(u16),
    /// The Node joins, if there is an instance.
    Join,
    /// The Node changes its health.
    Health(bool),
    /// The Node object vanishes.
    LoseNode,
    /// The class changes its tags.
    Edit(u8),
    /// The driver goes away or comes back.
    Connect(bool),
    /// A budget begins or ends to protect the pod.
    Protect(bool),
    /// Terminating pods end.
    PodsEnd,
    /// The volume leaves the Node.
    Detach,
    /// A pre-terminate hook comes or goes.
    Hook(bool),
    /// The Node is selected for an update in place, or is not any more.
    Select(bool),
    /// The updating controller reports the result, or takes the report back.
    Updated(Option<bool>),
    /// A user wants the machine kept, or does not.
    Preserve(bool),
    /// A user deletes the machine.
    Delete,
}

fn codes() -> impl Strategy<Value = ErrorCode> {
    proptest::sample::select(ErrorCode::ALL.to_vec())
}

fn certainties() -> impl Strategy<Value = Certainty> {
    proptest::sample::select(vec![Certainty::NotApplied, Certainty::Partial, Certainty::Unknown])
}

fn happenings() -> impl Strategy<Value = Happening> {
    prop_oneof![
        8 => Just(Happening::Pass),
        8 => Just(Happening::Answer),
        2 => (codes(), certainties()).prop_map(|(code, left)| Happening::Refuse(code, left)),
        1 => (codes()).prop_map(|code| Happening::ActAndFail(code, Certainty::Unknown)),
        1 => any::<bool>().prop_map(|acted| Happening::Lose { acted }),
        3 => (0_u16..900).prop_map(Happening::Later),
        2 => Just(Happening::Join),
        1 => any::<bool>().prop_map(Happening::Health),
        1 => Just(Happening::LoseNode),
        1 => (0_u8..4).prop_map(Happening::Edit),
        1 => any::<bool>().prop_map(Happening::Connect),
        1 => any::<bool>().prop_map(Happening::Protect),
        1 => Just(Happening::PodsEnd),
        1 => Just(Happening::Detach),
        1 => any::<bool>().prop_map(Happening::Hook),
        1 => any::<bool>().prop_map(Happening::Select),
        1 => any::<Option<bool>>().prop_map(Happening::Updated),
        1 => any::<bool>().prop_map(Happening::Preserve),
        1 => Just(Happening::Delete),
    ]
}

fn happens(world: &mut World, happening: &Happening) {
    if world.machine.is_none() {
        return;
    }
    if matches!(world.operation, OperationView::InFlight(_)) {
        at_the_driver(world, happening);
    }
    in_the_cluster(world, happening);
    assert!(world.instances.len() <= 1);
}

/// What a driver with an operation does.
fn at_the_driver(world: &mut World, happening: &Happening) {
    // A driver that denies an existing instance breaks its contract: the core cannot repair the
    // damage.
    let lies = |code: ErrorCode, acted: bool| {
        code == ErrorCode::NotFound && (acted || !world.instances.is_empty())
    };
    match happening {
        Happening::Answer => world.answer(),
        Happening::Refuse(code, _) if lies(*code, false) => world.answer(),
        Happening::ActAndFail(code, _) if lies(*code, true) => world.answer(),
        Happening::Refuse(code, left) => world.fail(*code, *left),
        Happening::ActAndFail(code, left) => {
            let _outcome = world.carry_out();
            let text = world.says;
            world.reply(Err(Failure::new(*code, *left, text)));
        }
        Happening::Lose { acted } => {
            if *acted {
                let _outcome = world.carry_out();
            }
            world.lose_operation();
        }
        _ => {}
    }
}

/// Events around the Machine.
fn in_the_cluster(world: &mut World, happening: &Happening) {
    let has_node = matches!(world.node, NodeView::Known(_));
    match happening {
        Happening::Pass => {
            let held = !world.machine().hooks(names::hook::PRE_TERMINATE).is_empty();
            let plan = world.pass();
            let ends = plan.dispatch.is_some_and(|one| one.kind() == OperationKind::DeleteMachine);
            assert!(!(held && ends), "a hook holds the instance");
        }
        Happening::Later(seconds) => world.later(i64::from(*seconds)),
        Happening::Join if !world.instances.is_empty() && !has_node => {
            world.join();
            world.pods = Observed::Known(vec![pod("web")]);
            *world.volumes_mut() = VolumesView::default();
            world.add_pod_with_volume("db", 5, "v");
        }
        Happening::Health(good) if has_node => {
            world.node_is(if *good { "True" } else { "False" });
        }
        Happening::LoseNode => world.node = NodeView::Absent,
        Happening::Edit(tag) => {
            world.edit_class(serde_json::json!({ "size": 1, "tags": { "a": tag.to_string() } }));
        }
        Happening::Connect(connected) => world.connected = *connected,
        Happening::Protect(true) => drop(world.protected.insert("web".to_owned())),
        Happening::Protect(false) => drop(world.protected.remove("web")),
        Happening::PodsEnd => world.pods_end(),
        Happening::Detach => world.detach("v"),
        Happening::Hook(comes) => hook(world, *comes),
        Happening::Select(selected) if has_node => {
            mark(world, label::CANDIDATE_FOR_UPDATE, Some("true"));
            mark(world, label::SELECTED_FOR_UPDATE, selected.then_some("true"));
        }
        Happening::Updated(result) if has_node => {
            let word = result.map(|well| if well { "successful" } else { "failed" });
            mark(world, label::UPDATE_RESULT, word);
        }
        Happening::Preserve(wanted) => preserve(world, *wanted),
        Happening::Delete if !world.machine().is_deleting() => world.delete(),
        _ => {}
    }
}

/// Labels the Node.
fn mark(world: &mut World, key: &str, value: Option<&str>) {
    let mut node = world.node().clone();
    let labels = node.metadata.labels.get_or_insert_default();
    match value {
        Some(value) => labels.insert(key.to_owned(), value.to_owned()),
        None => labels.remove(key),
    };
    world.node = NodeView::Known(node.into());
}

fn preserve(world: &mut World, wanted: bool) {
    let annotations = world.machine_mut().metadata.annotations.get_or_insert_default();
    let value = if wanted { "now" } else { "false" };
    annotations.insert(names::annotation::PRESERVE.to_owned(), value.to_owned());
}

fn hook(world: &mut World, comes: bool) {
    let annotations = world.machine_mut().metadata.annotations.get_or_insert_default();
    let key = format!("{}/chaos", names::hook::PRE_TERMINATE);
    if comes {
        annotations.insert(key, "a controller".to_owned());
    } else {
        annotations.remove(&key);
    }
}

/// From here on everything works.
fn calm(world: &mut World) {
    world.connected = true;
    if world.machine.is_some() {
        hook(world, false);
    }
    world.protected.clear();
    for _ in 0..60 {
        if world.machine.is_none() {
            return;
        }
        world.settle();
        if world.machine.is_some() {
            world.pods_end();
        }
        world.later(700);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_machine_that_is_deleted_always_goes_and_takes_its_instance_along(
        story in proptest::collection::vec(happenings(), 1..60)
    ) {
        let mut world = World::new();
        for happening in &story {
            happens(&mut world, happening);
        }
        if world.machine.is_some() && !world.machine().is_deleting() {
            world.delete();
        }
        calm(&mut world);
        prop_assert!(world.machine.is_none(), "{:#?}", world.status());
        prop_assert!(world.instances.is_empty());
    }

    #[test]
    fn the_text_of_a_driver_never_decides_anything(
        story in proptest::collection::vec(happenings(), 1..60)
    ) {
        let mut worlds = ["no", "NotFound: InstanceInitialization, instance deleted"].map(|text| {
            let mut world = World::new();
            world.says = text;
            world
        });
        for happening in &story {
            for world in &mut worlds {
                happens(world, happening);
            }
            let [one, other] = worlds.each_ref().map(|world| {
                let status = world.machine.as_ref().and_then(|machine| machine.status.clone());
                let status = status.unwrap_or_default();
                let wait = status.waiting_for.map(|wait| wait.reason);
                let state = (status.current_status, status.step, status.operation, wait);
                (state, world.sent.clone(), world.instances.clone(), world.machine.is_some())
            });
            prop_assert_eq!(one, other);
        }
    }

    #[test]
    fn a_machine_that_is_not_given_up_ends_running_with_the_spec_of_its_class(
        story in proptest::collection::vec(happenings(), 1..60)
    ) {
        let mut world = World::new();
        for happening in story.iter().filter(|one| !matches!(one, Happening::Delete)) {
            happens(&mut world, happening);
            if !world.instances.is_empty() && matches!(world.node, NodeView::Absent) {
                world.join();
            }
        }
        world.connected = true;
        for _ in 0..80 {
            if !world.instances.is_empty() {
                if matches!(world.node, NodeView::Absent) {
                    world.join();
                }
                world.node_is("True");
                let labels =
                    [label::CANDIDATE_FOR_UPDATE, label::SELECTED_FOR_UPDATE, label::UPDATE_RESULT];
                for key in labels {
                    mark(&mut world, key, None);
                }
            }
            world.settle();
            world.later(60);
        }
        let phase = world.phase();
        let status = world.status();
        if phase == MachinePhase::Failed {
            prop_assert!(status.failure_reason.is_some());
            return Ok(());
        }
        if status.retry.is_some() || status.hot_update.is_some() {
            prop_assert!(status.waiting_for.is_some(), "{status:#?}");
            return Ok(());
        }
        prop_assert_eq!(&phase, &MachinePhase::Running, "{:#?}", status);
        let cordoned = world.node().spec.as_ref().and_then(|spec| spec.unschedulable);
        prop_assert_ne!(cordoned, Some(true), "it is not updated");
        prop_assert_ne!(&status.step, &Some(MachineStep::UpdateInstance));
        let wanted = world.class.as_ref().unwrap().spec.provider_spec.to_string();
        prop_assert_eq!(world.applied().unwrap(), wanted.clone());
        prop_assert_eq!(&world.instances[0].spec, &wanted);
        let skipped = story.iter().any(|one| {
            matches!(one, Happening::Refuse(ErrorCode::Unimplemented, _)
                | Happening::ActAndFail(ErrorCode::Unimplemented, _))
        });
        prop_assert!(world.instances[0].initialized || skipped);
    }
}
