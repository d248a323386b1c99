//! MachineSets: their number of machines, ownership, and the effect of faults. On a paused clock.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PropagationPolicy};
use kube::runtime::wait::{Condition, await_condition};
use ostler_api::machine::Machine;
use ostler_api::{MachineClass, MachineSet};
use ostler_tests::objects::{class, delete, gone, instances, nodes};
use ostler_tests::world::{Setup, World};
use serde_json::{Value, json};

pub(crate) fn with_sets() -> Setup {
    Setup::tuned(|options| options.settings.controllers = "*".parse().unwrap())
}

pub(crate) fn set(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineSet",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "class": { "kind": "MachineClass", "name": "fake" } }
            }
        }
    })
}

pub(crate) fn sets(world: &World) -> Api<MachineSet> {
    Api::default_namespaced(world.client())
}

pub(crate) async fn machines(world: &World) -> Vec<Machine> {
    let api = Api::<Machine>::default_namespaced(world.client());
    api.list(&ListParams::default()).await.unwrap().items
}

pub(crate) async fn until(
    world: &World,
    name: &str,
    what: &str,
    condition: impl Condition<MachineSet>,
) {
    let day = Duration::from_hours(3);
    let waited = await_condition(sets(world), name, condition);
    let Ok(met) = tokio::time::timeout(day, waited).await else {
        let (set, machines) = (sets(world).get_opt(name).await, machines(world).await);
        panic!("{name} was never {what} within hours: {set:#?} {machines:#?}");
    };
    met.unwrap();
}

/// All its machines run, there are so many, and no other ones.
pub(crate) fn runs(count: i32) -> impl Fn(Option<&MachineSet>) -> bool {
    move |set| {
        let status = set.and_then(|set| set.status.as_ref());
        status.is_some_and(|status| {
            status.ready_replicas == count
                && status.replicas == count
                && status.observed_generation == set.and_then(|set| set.metadata.generation)
        })
    }
}

pub(crate) async fn until_runs(world: &World, name: &str, count: i32) {
    until(world, name, &format!("{count} running machines"), runs(count)).await;
}

pub(crate) async fn scale(world: &World, name: &str, replicas: i32) {
    let patch = json!({ "spec": { "replicas": replicas } });
    let patch = Patch::Merge(&patch);
    sets(world).patch_scale(name, &PatchParams::default(), &patch).await.unwrap();
}

pub(crate) async fn patch(world: &World, name: &str, patch: Value) {
    sets(world).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Notes of the events with this reason.
pub(crate) async fn told(world: &World, reason: &str) -> Vec<String> {
    let events = Api::<Event>::default_namespaced(world.client());
    let mut events = events.list(&ListParams::default()).await.unwrap().items;
    events.retain(|event| event.reason.as_deref() == Some(reason));
    events.into_iter().filter_map(|event| event.message).collect()
}

/// Long enough for anything that would still happen.
pub(crate) async fn rest() {
    tokio::time::sleep(Duration::from_mins(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_set_grows_shrinks_goes_to_zero_and_comes_back() {
    let world = World::start_with(with_sets()).await;
    world.apply::<MachineSet>(set("s", 3)).await;
    until_runs(&world, "s", 3).await;
    assert_eq!((instances(&world), nodes(&world).await), (3, 3));
    let scale_of = sets(&world).get_scale("s").await.unwrap();
    assert_eq!(scale_of.status.unwrap().selector.as_deref(), Some("app=s"));
    for replicas in [10, 4, 0, 2] {
        scale(&world, "s", replicas).await;
        until_runs(&world, "s", replicas).await;
        rest().await;
        let count = usize::try_from(replicas).unwrap();
        assert_eq!((machines(&world).await.len(), instances(&world)), (count, count));
    }
    let owners = machines(&world).await;
    let owner = &owners[0].metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.controller), ("MachineSet", Some(true)));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_set_of_more_than_one_burst_grows_and_is_deleted_with_all_it_has() {
    let world = World::start_with(with_sets()).await;
    world.apply::<MachineSet>(set("s", 120)).await;
    until_runs(&world, "s", 120).await;
    assert_eq!(instances(&world), 120);
    let timeout = json!({ "spec": { "template": { "spec": { "drainTimeout": "5m" } } } });
    patch(&world, "s", timeout).await;
    rest().await;
    let drain = |machine: &Machine| machine.spec.drain_timeout.is_some();
    assert!(machines(&world).await.iter().all(drain), "each takes over the timeout");
    sets(&world).delete("s", &DeleteParams::default()).await.unwrap();
    until(&world, "s", "gone", |set: Option<&MachineSet>| set.is_none()).await;
    assert_eq!((machines(&world).await.len(), instances(&world)), (0, 0));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_orphans_leaves_the_machines_and_another_set_adopts_them() {
    let world = World::start_with(with_sets()).await;
    world.apply::<MachineSet>(set("s", 3)).await;
    until_runs(&world, "s", 3).await;
    let before = instances(&world);
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    sets(&world).delete("s", &orphan).await.unwrap();
    until(&world, "s", "gone", |set: Option<&MachineSet>| set.is_none()).await;
    rest().await;
    assert_eq!((machines(&world).await.len(), instances(&world)), (3, before));
    let mut next = set("t", 3);
    next["spec"]["selector"] = json!({ "matchLabels": { "app": "s" } });
    next["spec"]["template"]["metadata"]["labels"] = json!({ "app": "s" });
    world.apply::<MachineSet>(next).await;
    until_runs(&world, "t", 3).await;
    rest().await;
    assert_eq!((machines(&world).await.len(), instances(&world)), (3, before), "none is new");
    assert_eq!(told(&world, "ForeignController").await, [""; 0], "its own are never foreign");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_creation_whose_answer_is_lost_makes_one_machine() {
    let world = World::start_with(Setup { loses_creations: 2, ..with_sets() }).await;
    world.apply::<MachineSet>(set("s", 3)).await;
    until_runs(&world, "s", 3).await;
    rest().await;
    assert_eq!((machines(&world).await.len(), instances(&world)), (3, 3));
    let conditions = sets(&world).get("s").await.unwrap().status.unwrap().conditions;
    assert!(conditions.is_empty(), "{conditions:?}");
    assert_eq!(told(&world, "ForeignController").await, [""; 0], "its own are never foreign");
    world.stop().await;
}

/// CAPI #13649: the cache is half a minute behind, and every decision would be made from what was.
#[tokio::test(start_paused = true)]
async fn a_cache_that_lags_makes_no_machine_too_many_and_deletes_none_too_many() {
    let setup = Setup { watches_lag: Duration::from_secs(30), ..with_sets() };
    let world = World::start_with(setup).await;
    world.apply::<MachineSet>(set("s", 5)).await;
    let mut most = 0;
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        most = most.max(machines(&world).await.len());
    }
    assert_eq!(most, 5);
    until_runs(&world, "s", 5).await;
    scale(&world, "s", 3).await;
    let mut least = usize::MAX;
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let all = machines(&world).await;
        least = least.min(all.iter().filter(|machine| !machine.is_deleting()).count());
    }
    assert_eq!(least, 3);
    assert_eq!(told(&world, "ForeignController").await, [""; 0], "its own are never foreign");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_machine_is_deleted_and_then_replaced() {
    let world = World::start_with(with_sets()).await;
    let spec = json!({ "region": "local", "image": "fake-1.0", "kubelet": { "join": "never" } });
    world.apply::<MachineClass>(class("deaf", &spec)).await;
    let mut deaf = set("s", 2);
    deaf["spec"]["template"]["spec"]["class"]["name"] = json!("deaf");
    world.apply::<MachineSet>(deaf).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let first = machines(&world).await;
    assert_eq!(first.len(), 2);
    for machine in &first {
        world.until(machine.name(), "replaced", gone).await;
    }
    tokio::time::sleep(Duration::from_mins(1)).await;
    let second = machines(&world).await;
    assert_eq!((second.len(), instances(&world)), (2, 2));
    assert!(second.iter().all(|it| first.iter().all(|old| old.uid() != it.uid())));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_a_user_deletes_is_replaced() {
    let world = World::start_with(with_sets()).await;
    world.apply::<MachineSet>(set("s", 2)).await;
    until_runs(&world, "s", 2).await;
    let name = machines(&world).await[0].name().to_owned();
    delete(&world, &name).await;
    world.until(&name, "gone", gone).await;
    until_runs(&world, "s", 2).await;
    assert_eq!(instances(&world), 2);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_core_that_is_replaced_in_the_middle_creates_none_twice() {
    for crash in [true, false] {
        let mut world = World::start_with(with_sets()).await;
        world.apply::<MachineSet>(set("s", 40)).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        if crash {
            world.crash_core();
        } else {
            world.stop_core().await;
        }
        world.start_core().await;
        until_runs(&world, "s", 40).await;
        scale(&world, "s", 5).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.crash_core();
        world.start_core().await;
        until_runs(&world, "s", 5).await;
        rest().await;
        assert_eq!((machines(&world).await.len(), instances(&world)), (5, 5), "crash: {crash}");
        assert_eq!(told(&world, "ForeignController").await, [""; 0], "its own are never foreign");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_refused_says_why_and_works_once_it_is_right() {
    let world = World::start_with(with_sets()).await;
    let mut wrong = set("s", 2);
    let selector = wrong["spec"]["selector"].take();
    // no rule of the definition refuses it
    wrong["spec"]["selector"] = json!({});
    world.apply::<MachineSet>(wrong).await;
    let refused = |set: Option<&MachineSet>| {
        let status = set.and_then(|set| set.status.as_ref());
        status.is_some_and(|status| status.conditions.iter().any(|it| it.status == "False"))
    };
    until(&world, "s", "refused", refused).await;
    rest().await;
    assert!(machines(&world).await.is_empty());
    patch(&world, "s", json!({ "spec": { "selector": selector } })).await;
    until_runs(&world, "s", 2).await;
    assert!(sets(&world).get("s").await.unwrap().status.unwrap().conditions.is_empty());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn timeouts_of_the_template_reach_machines_that_exist() {
    let world = World::start_with(with_sets()).await;
    world.apply::<MachineSet>(set("s", 2)).await;
    until_runs(&world, "s", 2).await;
    let template =
        json!({ "drainTimeout": "7m", "nodeTemplate": { "metadata": { "labels": { "a": "b" } } } });
    patch(&world, "s", json!({ "spec": { "template": { "spec": template } } })).await;
    rest().await;
    for machine in machines(&world).await {
        let spec = serde_json::to_value(&machine.spec).unwrap();
        assert_eq!(spec["drainTimeout"], "7m");
        assert_eq!(spec["nodeTemplate"]["metadata"]["labels"]["a"], "b");
    }
    assert_eq!(machines(&world).await.len(), 2);
    world.stop().await;
}

/// #965, #1078, #1087: the autoscaler marks one, then lowers the replicas.
#[tokio::test(start_paused = true)]
async fn the_machine_that_an_autoscaler_marked_goes_and_no_other_one() {
    let world = World::start_with(with_sets()).await;
    world.apply::<MachineSet>(set("s", 4)).await;
    until_runs(&world, "s", 4).await;
    let marked = machines(&world).await[2].name().to_owned();
    let annotations = json!({
        "machinepriority.machine.sapcloud.io": "1",
        "machine.sapcloud.io/marked-for-deletion-time": world.now().to_string(),
    });
    world.patch_machine(&marked, json!({ "metadata": { "annotations": annotations } })).await;
    rest().await;
    assert_eq!(machines(&world).await.len(), 4, "a mark alone deletes nothing");
    let key = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time";
    let changed = json!({
        "metadata": { "annotations": { key: world.now().to_string() } },
        "spec": { "replicas": 3 }
    });
    patch(&world, "s", changed).await;
    until_runs(&world, "s", 3).await;
    rest().await;
    assert!(machines(&world).await.iter().all(|machine| machine.name() != marked));
    world.stop().await;
}

/// Stops the core in one way or the other while the set is scaled; how long the next core takes to create the machine.
async fn handed_over(world: &mut World, replicas: i32, orderly: bool) -> Duration {
    if orderly {
        world.stop_core().await;
    } else {
        world.crash_core();
    }
    scale(world, "s", replicas).await;
    world.start_core().await;
    let begin = tokio::time::Instant::now();
    while machines(world).await.len() < usize::try_from(replicas).unwrap() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    begin.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_creates_at_once_if_its_predecessor_ended_in_order_and_else_waits_for_its_requests()
 {
    let mut world = World::start_with(with_sets()).await;
    world.apply::<MachineSet>(set("s", 1)).await;
    until_runs(&world, "s", 1).await;
    let orderly = handed_over(&mut world, 2, true).await;
    assert!(orderly < Duration::from_secs(5), "{orderly:?}");
    until_runs(&world, "s", 2).await;
    let crashed = handed_over(&mut world, 3, false).await;
    assert!(crashed >= Duration::from_secs(15), "{crashed:?}");
    until_runs(&world, "s", 3).await;
    world.stop().await;
}
