use super::*;

#[tokio::test(start_paused = true)]
async fn a_reserve_hears_of_its_machines_of_its_target_and_of_classes_and_of_nothing_else() {
    let world = world();
    let reserve = |name: &str, target: &str| {
        json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineReserve",
            "metadata": { "name": name, "namespace": "default", "uid": name },
            "spec": { "targetRef": { "kind": "MachineSet", "name": target }, "replicas": 1 }
        })
    };
    for (name, target) in [("r", "s"), ("other", "t")] {
        put(&world.stores.reserves, reserve(name, target));
    }
    let woken = || waiting(&world.kinds.reserves.queue);
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut spare = machine("m", "c", &json!({}));
    let owner = |kind: &str, uid: &str| {
        json!([{
            "apiVersion": "ostler.dev/v1alpha1", "kind": kind, "name": uid, "uid": uid,
            "controller": true
        }])
    };
    spare["metadata"]["ownerReferences"] = owner("MachineReserve", "r");
    world.machine(&put(&world.stores.machines, spare.clone()));
    assert_eq!(woken().await, named(&["r"]));
    spare["metadata"]["ownerReferences"] = owner("MachineSet", "s");
    world.machine(&put(&world.stores.machines, spare.clone()));
    assert_eq!(woken().await, named(&["r"]), "it was given");
    spare["status"] = json!({ "currentStatus": { "phase": "Failed" } });
    world.machine(&put(&world.stores.machines, spare.clone()));
    assert_eq!(woken().await, named(&[]));
    // The Machine is gone before or after the reserve counted it.
    for (machines, heard) in [(json!(["m"]), named(&["r"])), (json!([]), named(&[]))] {
        put(&world.stores.machines, spare.clone());
        let mut of = reserve("r", "s");
        of["status"] = json!({ "machines": machines });
        put(&world.stores.reserves, of);
        let gone = Event::Delete(serde_json::from_value(spare.clone()).unwrap());
        world.machine(&world.stores.machines.apply(gone).into_iter().next().unwrap());
        assert_eq!(woken().await, heard);
    }
}
