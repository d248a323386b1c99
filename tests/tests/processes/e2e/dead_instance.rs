//! A MachineDeployment of containers, some of which are removed by hand.

use std::time::Instant;

use serde_json::Value;

use crate::e2e::docker::World;

const EXAMPLE: [&str; 3] = ["class.yaml", "secret.yaml", "workers.yaml"];

fn three_are_available(world: &World) {
    let kubectl = &world.kubectl;
    kubectl.wait("machinedeployment", "workers", ".status.availableReplicas", "3");
    assert_eq!(kubectl.list("machines").len(), 3);
}

/// The name of a machine, and its container.
fn one(world: &World) -> (String, String) {
    let machines = world.kubectl.list("machines");
    let name = machines.first().and_then(|it| it.pointer("/metadata/name")).unwrap();
    let name = name.as_str().unwrap().to_owned();
    let container = world.container(&name);
    (name, container)
}

#[test]
fn a_container_that_is_removed_is_replaced_also_if_nothing_ran_when_it_was_removed() {
    let Some(mut world) = World::start(&EXAMPLE) else { return };
    three_are_available(&world);

    let (machine, container) = one(&world);
    let removed = Instant::now();
    world.docker(&["rm", "--force", &container]);
    world.kubectl.wait_gone("machine", &machine);
    three_are_available(&world);
    // Not only by the number in a status, which may be older.
    for machine in world.kubectl.list("machines") {
        let name = machine.pointer("/metadata/name").and_then(Value::as_str).unwrap();
        world.kubectl.wait("machine", name, ".status.currentStatus.phase", "Running");
    }
    println!("three machines again after {:.1} s", removed.elapsed().as_secs_f64());
    world.kubectl.wait_gone("node", &machine);

    let (machine, container) = one(&world);
    world.kill_up();
    world.docker(&["rm", "--force", &container]);
    world.restart_up();
    // Its Node has to become silent, and of a young instance "none" is not believed for two minutes.
    let gone = ["wait", &format!("machine/{machine}"), "--for=delete", "--timeout=300s"];
    world.kubectl.run(gone);
    three_are_available(&world);
}
