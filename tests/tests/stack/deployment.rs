//! `deploy/base`: what it gives to the core is what the core needs, no more and no less.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use ostler_api::machine::{Machine, MachinePhase};
use ostler_api::{MachineDeployment, MachineSet};
use ostler_tests::objects::{delete, get, gone, in_phase, machine};
use ostler_tests::rights::{refused, rights};
use ostler_tests::tools::root;
use ostler_tests::world::{Setup, World};
use serde_json::json;
use tokio::time::{sleep, timeout};

/// Rights that this story does not need, and the core's need for each.
const ELSEWHERE: &[(&str, &str)] = &[
    // Drivers show the token of a file here.
    ("create", "tokenreviews"),
    // The command looks at them before it starts a core.
    ("get", "customresourcedefinitions"),
    // The configuration of a bootstrap provider, which its Machine owns.
    ("update", "machines/finalizers"),
    // The same event again within minutes.
    ("patch", "events"),
    // Virtual capacity, and conditions of a drain.
    ("patch", "nodes/status"),
    // A drain of pods with volumes or budgets.
    ("list", "persistentvolumes"),
    ("watch", "persistentvolumes"),
    ("list", "persistentvolumeclaims"),
    ("watch", "persistentvolumeclaims"),
    ("list", "volumeattachments"),
    // A drain by force takes the attachments, and looks whether a refused pod is still the same.
    ("delete", "volumeattachments"),
    ("get", "pods"),
    ("watch", "volumeattachments"),
    ("list", "poddisruptionbudgets"),
    ("watch", "poddisruptionbudgets"),
    // Last known classes: of a class that goes while a machine needs it.
    ("create", "secrets"),
    ("delete", "secrets"),
    // A token of a core that was killed before it recorded the token.
    ("update", "secrets"),
];

/// A machine is made, edited, drained and deleted; another one loses its Node; the core is replaced.
async fn whole_life(world: &mut World) {
    world.apply::<Machine>(machine("m", "fake")).await;
    world.apply::<Machine>(machine("n", "fake")).await;
    for name in ["m", "n"] {
        world.until(name, "Running", in_phase(MachinePhase::Running)).await;
    }
    world.stop_core().await;
    // A user emptied the map with the cluster id.
    let maps = Api::<ConfigMap>::namespaced(world.client(), "default");
    let empty = Patch::Merge(json!({ "data": null }));
    maps.patch("ostler-cluster-id", &PatchParams::default(), &empty).await.unwrap();
    world.start_core().await;
    let node = get(world, "m").await.node_name().unwrap().to_owned();
    let pods = Api::<Pod>::namespaced(world.client(), "default");
    for name in ["polite", "stuck"] {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "default", "finalizers": ["test/hold"] },
            "spec": { "nodeName": node, "containers": [{ "name": "app", "image": "pause" }] },
        }))
        .unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    delete(world, "m").await;
    // The drain does not wait for pods that hold on for ever once force is asked for.
    world
        .patch_machine("m", json!({ "metadata": { "labels": { "force-deletion": "True" } } }))
        .await;
    world.until("m", "gone", gone).await;
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    for name in ["polite", "stuck"] {
        let _gone = pods.patch(name, &PatchParams::default(), &free).await;
    }
    let other = get(world, "n").await.node_name().unwrap().to_owned();
    let mild: Pod = serde_json::from_value(json!({
        "metadata": { "name": "mild", "namespace": "default" },
        "spec": { "nodeName": other, "containers": [{ "name": "app", "image": "pause" }] },
    }))
    .unwrap();
    pods.create(&PostParams::default(), &mild).await.unwrap();
    let nodes = Api::<Node>::all(world.client());
    nodes.delete(&other, &DeleteParams::default()).await.unwrap();
    world.until("n", "gone", gone).await;
}

/// A MachineDeployment comes up, rolls to another template, keeps no old set, and is deleted.
async fn life_of_a_fleet(world: &World) {
    let text = std::fs::read_to_string(root().join("deploy/examples/fake/workers.yaml")).unwrap();
    let mut fleet: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    fleet["spec"]["revisionHistoryLimit"] = json!(0);
    world.apply::<MachineDeployment>(fleet).await;
    let fleets = Api::<MachineDeployment>::namespaced(world.client(), "default");
    let all_new = |fleet: Option<&MachineDeployment>| {
        let status = fleet.and_then(|it| it.status.as_ref());
        status.is_some_and(|it| {
            it.updated_replicas == 3 && it.available_replicas == 3 && it.replicas == 3
        })
    };
    let day = Duration::from_hours(24);
    timeout(day, await_condition(fleets.clone(), "workers", all_new)).await.unwrap().unwrap();
    let edit =
        json!({ "spec": { "template": { "metadata": { "annotations": { "edited": "yes" } } } } });
    fleets.patch("workers", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    let sets = Api::<MachineSet>::namespaced(world.client(), "default");
    let rolled = async {
        loop {
            let all = sets.list(&ListParams::default()).await.unwrap().items;
            if all.len() == 1 && all.iter().all(edited) {
                break;
            }
            sleep(Duration::from_secs(10)).await;
        }
    };
    timeout(day, rolled).await.unwrap();
    fleets.delete("workers", &DeleteParams::default()).await.unwrap();
    let gone = |fleet: Option<&MachineDeployment>| fleet.is_none();
    timeout(day, await_condition(fleets, "workers", gone)).await.unwrap().unwrap();
}

fn edited(set: &MachineSet) -> bool {
    let template = set.spec.template.metadata.as_ref();
    template.and_then(|it| it.annotations.as_ref()).is_some_and(|it| it.contains_key("edited"))
}

#[tokio::test(start_paused = true)]
async fn the_core_asks_for_nothing_that_its_roles_do_not_allow_and_needs_every_right_that_it_has() {
    let mut world = World::start().await;
    Box::pin(whole_life(&mut world)).await;
    let with_sets = Setup::tuned(|options| options.settings.controllers = "*".parse().unwrap());
    let fleet = World::start_with(with_sets).await;
    Box::pin(life_of_a_fleet(&fleet)).await;
    Box::pin(crate::health_checks::life_of_a_check(&fleet)).await;
    Box::pin(crate::reserves::life_of_a_reserve(&fleet)).await;
    let pools = crate::pools::start().await;
    Box::pin(crate::pools::life_of_a_pool(&pools)).await;
    let asked = &(&world.asked() | &fleet.asked()) | &pools.asked();
    let served = |namespace: &str| namespace == "default";
    assert_eq!(refused(&asked, &served), []);
    let unused: Vec<_> = rights()
        .into_iter()
        .filter(|right| !ELSEWHERE.contains(&(right.verb.as_str(), right.resource.as_str())))
        .filter(|right| !asked.iter().any(|request| right.allows(request, &served)))
        .map(|right| right.to_string())
        .collect();
    assert!(unused.is_empty(), "rights that nothing uses: {unused:#?}");
    world.stop().await;
    fleet.stop().await;
    pools.stop().await;
}
