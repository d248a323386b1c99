//! Other clients write Machines too: one that was built with upstream's types erases every field of ours from the
//! status, and an old file that is put back erases annotations. At every step of a life, with and without a core
//! that dies in that moment, neither costs an instance.

use std::collections::{BTreeMap, BTreeSet};

use ostler_api::{
    bootstrap::Bootstrap, driver::OperationKind as Kind, machine::MachinePhase, names::annotation,
};
use ostler_lifecycle::{operation::OperationView, plan::Action};
use serde_json::{Value, json};

use crate::machine::world::{UPSTREAM, World, edit_status};

/// Passes and answers of one life, in order. False: the life is over.
fn go_on(world: &mut World, step: usize) -> bool {
    if world.machine.is_none() {
        return false;
    }
    match step {
        // An instance that is not there yet cannot join.
        12 if world.phase() == MachinePhase::Pending => world.join(),
        16 => world.delete(),
        _ if matches!(world.operation, OperationView::InFlight(_)) => world.answer(),
        _ => drop(world.pass()),
    }
    true
}

const STEPS: usize = 24;

/// Lives a life in which a user interferes at one step, and once the machine should be running, or
/// gone, looks at what is there. Returns what was asked of the driver.
fn live(at: usize, dies: bool, interfere: impl Fn(&mut World)) -> Vec<Kind> {
    let said = format!("step {at}, the core dies: {dies}");
    let mut world = World::new();
    for step in 0..STEPS {
        if step == at && world.machine.is_some() {
            interfere(&mut world);
            if dies {
                world.lose_operation();
            }
        }
        if step == 12 || step == 16 {
            world.settle();
        }
        if step == 16 && world.machine.is_some() && !world.machine().is_deleting() {
            assert_eq!(world.phase(), MachinePhase::Running, "{said}");
            assert!(world.machine().provider_id().is_some(), "{said}");
            assert_eq!((world.creates, world.instances.len()), (1, 1), "{said}");
        }
        let there = !world.instances.is_empty();
        if !go_on(&mut world, step) {
            break;
        }
        assert!(world.machine.is_some() || !there || world.instances.is_empty(), "{said}");
    }
    if world.machine.is_some() {
        world.delete();
        world.later(120);
        world.settle();
    }
    assert!(world.machine.is_none(), "{said}: {:?}", world.waits_for());
    assert_eq!(world.instances.len(), 0, "{said}");
    world.kinds_sent()
}

#[test]
fn a_client_that_erases_every_field_of_ours_costs_no_instance() {
    for (at, dies) in (0..STEPS).flat_map(|at| [(at, false), (at, true)]) {
        live(at, dies, World::erase_ours);
    }
}

#[test]
fn nor_does_one_that_sets_the_phase_and_deletes() {
    for (at, dies) in (0..STEPS).flat_map(|at| [(at, false), (at, true)]) {
        live(at, dies, |world| {
            world.erase_ours();
            edit_status(world, |status| {
                status.insert("currentStatus".to_owned(), json!({ "phase": "Terminating" }));
            });
            world.delete();
        });
    }
}

#[test]
fn an_old_file_that_is_put_back_costs_no_instance() {
    for (at, dies) in (0..STEPS).flat_map(|at| [(at, false), (at, true)]) {
        live(at, dies, |world| {
            let machine = world.machine_mut();
            machine.metadata.annotations = None;
            machine.metadata.labels = None;
            machine.spec.provider_id = None;
        });
    }
}

/// The fields of ours that a life writes into the status.
fn fields_of_ours() -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    let mut world = World::new();
    for step in 0..STEPS {
        if let Some(machine) = &world.machine
            && let Value::Object(status) = serde_json::to_value(&machine.status).unwrap()
        {
            fields.extend(status.keys().filter(|key| !UPSTREAM.contains(&key.as_str())).cloned());
        }
        if step == 12 {
            world.settle();
        }
        if !go_on(&mut world, step) {
            break;
        }
    }
    fields
}

/// Requests to the driver in one life beyond the requests in a quiet life, with their number.
fn beyond(quiet: &[Kind], asked: &[Kind]) -> BTreeSet<(Kind, usize)> {
    let count = |all: &[Kind], kind| all.iter().filter(|one| **one == kind).count();
    let more = |kind| (kind, count(asked, kind).saturating_sub(count(quiet, kind)));
    asked.iter().copied().map(more).filter(|(_, more)| *more > 0).collect()
}

/// What it costs when one field of ours alone is erased, at the worst step of a life: requests to the driver that
/// are not sent otherwise. The table is in `docs/migrate-from-mcm.md`.
#[test]
fn what_each_field_costs_that_is_erased_from_the_status() {
    let fields = fields_of_ours();
    assert!(fields.contains("operation") && fields.contains("drain"), "{fields:?}");
    let mut costs: BTreeMap<&str, BTreeSet<(Kind, usize)>> = BTreeMap::new();
    for (at, dies) in (0..STEPS).flat_map(|at| [(at, false), (at, true)]) {
        let quiet = live(at, dies, |_| {});
        for field in &fields {
            let asked =
                live(at, dies, |world| edit_status(world, |status| drop(status.remove(field))));
            let beyond = beyond(&quiet, &asked);
            if !beyond.is_empty() {
                costs.entry(field).or_default().extend(beyond);
            }
        }
    }
    let once = |kinds: &[Kind]| kinds.iter().map(|kind| (*kind, 1)).collect();
    let expected = BTreeMap::from([
        ("creationSpecDigest", once(&[Kind::UpdateMachine])),
        ("instanceUID", once(&[Kind::GetMachineStatus])),
        (
            "operation",
            once(&[
                Kind::InitializeMachine,
                Kind::UpdateMachine,
                Kind::DeleteMachine,
                Kind::GetMachineStatus,
            ]),
        ),
    ]);
    assert_eq!(costs, expected);
}

#[test]
fn a_machine_whose_create_was_erased_is_not_let_go_without_its_driver() {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    assert_eq!(world.sent.last().unwrap().kind(), Kind::CreateMachine);
    world.carry_out().unwrap();
    world.lose_operation();
    world.connected = false;
    edit_status(&mut world, |status| {
        status.clear();
        status.insert("currentStatus".to_owned(), json!({ "phase": "Terminating" }));
    });
    world.delete();
    world.settle();
    assert!(world.machine.is_some(), "only a driver can say that there is none");
    world.connected = true;
    world.settle();
    assert!(world.machine.is_none() && world.instances.is_empty());
}

#[test]
fn a_record_of_another_machine_says_nothing() {
    let mut world = World::new();
    let copied = r#"{"machineUID":"another","operation":{"id":"1","kind":"CreateMachine",
        "idempotencyKey":"another:c","startedAt":"2026-01-01T00:00:00Z"}}"#;
    let annotations = world.machine_mut().metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::OPERATION.to_owned(), copied.to_owned());
    world.class = None;
    world.settle();
    world.hold();
    world.machine_mut().spec.bootstrap = Some(Bootstrap::default());
    world.delete();
    world.settle();
    assert!(world.machine.is_none(), "nothing was ever asked for this one");
}

/// Writes of one life: the record goes with the finalizer and with the provider id.
#[test]
fn the_record_costs_no_write() {
    let mut world = World::new();
    let (mut metadata, mut status) = (0, 0);
    for _ in 0..STEPS {
        if world.machine.is_none() {
            break;
        }
        if matches!(world.operation, OperationView::InFlight(_)) {
            world.answer();
        }
        let before = world.machine().status.clone();
        let plan = world.pass();
        let ours =
            |action: &&Action| matches!(action, Action::PatchMachine(_) | Action::RemoveFinalizer);
        metadata += plan.actions.iter().filter(ours).count();
        status += usize::from(world.machine.as_ref().is_some_and(|it| it.status != before));
        if world.machine.is_some() && world.phase() == MachinePhase::Pending {
            world.join();
        } else if world.machine.is_some() && world.phase() == MachinePhase::Running {
            world.delete();
        }
    }
    assert!(world.machine.is_none());
    assert_eq!((metadata, status), (3, 6), "as many as before there was a record");
}
