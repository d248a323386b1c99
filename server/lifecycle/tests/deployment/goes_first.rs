//! Which Machines of an old set a rollout takes for those that go first: the set has the last word.

use ostler_api::names::annotation::PRIORITY;
use serde_json::{Value, json};

use crate::deployment::world::World;

/// Three Machines of which the first is lost, as it was changed before; a rollout whose first new Machine runs.
fn mid_rollout(lost: &Value, others: &Value) -> World {
    let mut world = World::running(3);
    for (index, name) in world.names().iter().enumerate() {
        world.edit_machine(name, if index == 0 { lost } else { others });
    }
    let unknown = json!({ "status": { "currentStatus": { "phase": "Unknown" } } });
    world.edit_machine(&world.names()[0].clone(), &unknown);
    world.roll_to("two");
    world.passes();
    world.sets_work();
    world.machines_start();
    assert_eq!(world.available(), 3);
    world
}

#[test]
fn a_lost_machine_that_its_set_keeps_longer_than_one_that_runs_costs_an_available_one() {
    let none = json!({});
    let preserved =
        json!({ "status": { "currentStatus": { "preserveExpiryTime": "2036-01-01T00:00:00Z" } } });
    let first = json!({ "metadata": { "annotations": { PRIORITY: "1" } } });
    let last = json!({ "metadata": { "annotations": { PRIORITY: "9" } } });
    for (what, lost, others, goes) in [
        ("as usual the lost one goes first", &none, &none, true),
        ("it is preserved", &preserved, &none, false),
        ("all are", &preserved, &preserved, true),
        ("it has a higher priority", &last, &none, false),
        ("the others have a lower one", &none, &first, false),
    ] {
        let mut world = mid_rollout(lost, others);
        let old = world.set("one").name().to_owned();
        world.passes();
        world.sets_work();
        assert_eq!(world.available(), 3, "{what}");
        assert_eq!(world.sets[&old].spec.replicas(), if goes { 2 } else { 3 }, "{what}");
        world.recover();
        assert_eq!(world.settle(), 3, "{what}");
        assert_eq!((world.sets[&old].spec.replicas(), world.machines.len()), (0, 3), "{what}");
    }
}
