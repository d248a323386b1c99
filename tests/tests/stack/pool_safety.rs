//! Pools and cores that die or do not know of each other: nothing is lost, and nothing is done twice. On a paused clock.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use ostler_api::{MachineClass, MachinePool};
use ostler_driver_fake::fault::Verb;
use ostler_tests::objects::{delete, instances};
use ostler_tests::setup::Deaths;
use ostler_tests::world::{Setup, World};
use serde_json::json;

use crate::drain::ground;
use crate::pool_updates::within;
use crate::pools::{
    asked, ids, machines, patch, pool, pools, rest, scale, start, start_with, until, until_runs,
};

/// How many instances the group has made, and how many it is to have.
fn made_and_wanted(world: &World) -> (u64, i32) {
    let group = world.cloud().groups(|_| true).unwrap().remove(0).group;
    (group.next, group.desired)
}

/// Cores die at each write, one after the other, until what is awaited is so.
pub(crate) struct Dying {
    pub(crate) world: World,
    pub(crate) deaths: Arc<Deaths>,
    pub(crate) died: u32,
}

impl Dying {
    async fn until_runs(&mut self, count: i32) {
        self.live(async |world| until_runs(world, count).await).await;
    }

    pub(crate) async fn live(&mut self, awaited: impl AsyncFn(&World)) {
        while self.dies_before(&awaited).await {
            // At the first write of its life, the second, the third.
            self.deaths.after(Some(self.died % 3));
        }
    }

    /// Whether a core dies, and another one is started, before what is awaited is so.
    pub(crate) async fn dies_before(&mut self, awaited: &impl AsyncFn(&World)) -> bool {
        tokio::select! {
            () = awaited(&self.world) => return false,
            () = self.deaths.due() => {}
        }
        self.world.crash_core();
        self.deaths.after(None);
        self.world.start_core().await;
        self.died += 1;
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_core_that_dies_at_each_write_of_the_life_of_a_pool_makes_and_deletes_none_too_many() {
    let deaths = Arc::<Deaths>::default();
    let world = start_with(Setup { deaths: Arc::clone(&deaths), ..Setup::default() }).await;
    let mut dying = Dying { world, deaths, died: 0 };
    dying.deaths.after(Some(0));
    dying.world.apply::<MachinePool>(pool("p", 2)).await;
    dying.until_runs(2).await;
    assert_eq!(made_and_wanted(&dying.world), (2, 2));
    scale(&dying.world, 3).await;
    dying.until_runs(3).await;
    assert_eq!(made_and_wanted(&dying.world), (3, 3));
    scale(&dying.world, 2).await;
    dying.until_runs(2).await;
    assert_eq!((made_and_wanted(&dying.world), instances(&dying.world)), ((3, 2), 2));

    let first = machines(&dying.world).await.remove(0);
    delete(&dying.world, first.name()).await;
    let replaced = async |world: &World| {
        let gone = |it: Option<&MachinePool>| it.is_some() && made_and_wanted(world) == (4, 2);
        until(world, "with another one", gone).await;
        until_runs(world, 2).await;
    };
    dying.live(replaced).await;
    assert_eq!((made_and_wanted(&dying.world), instances(&dying.world)), ((4, 2), 2));

    pools(&dying.world).delete("p", &DeleteParams::default()).await.unwrap();
    dying
        .live(async |world| until(world, "gone", |it: Option<&MachinePool>| it.is_none()).await)
        .await;
    assert_eq!((instances(&dying.world), machines(&dying.world).await.len()), (0, 0));
    assert!(dying.world.cloud().groups(|_| true).unwrap().is_empty());
    assert!(dying.died > 20, "{} cores died", dying.died);
    dying.deaths.after(None);
    dying.world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_cores_that_both_take_themselves_for_the_leader_delete_a_victim_once() {
    for millis in [0, 100, 500, 2_000] {
        let impatient = Setup::tuned(|options| options.settings.lease_at_once = true);
        // Requests take time: on the paused clock, two cores would otherwise overwrite one status for ever.
        let impatient = Setup { api_takes: Duration::from_millis(10), ..impatient };
        let mut world = start_with(impatient).await;
        world.apply::<MachinePool>(pool("p", 3)).await;
        until_runs(&world, 3).await;
        scale(&world, 2).await;
        tokio::time::sleep(Duration::from_millis(millis)).await;
        let mut second = world.start_replica().await;
        second.core.ready().await.unwrap();
        // So long the first core may work on, until it learns of the second. Then a third core takes the Lease from the
        // second.
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.crash_core();
        world.start_core().await;
        until_runs(&world, 2).await;
        rest().await;
        assert_eq!((made_and_wanted(&world), instances(&world)), ((3, 2), 2), "{millis}");
        let deletions: Vec<_> = world
            .calls()
            .into_iter()
            .filter(|call| call.operation == Verb::DeletePoolMachines)
            .collect();
        assert_eq!(deletions.len(), 1, "{millis}: {deletions:#?}");
        drop(second);
        world.stop().await;
    }
}

/// Where a core dies, and how long a change of the group takes before it has an effect.
type Death = (fn(&Deaths, Option<u32>), Option<&'static str>);

/// After a write; while the driver does what it was asked for, and has done nothing yet; and when it has done that.
const DEATHS: [Death; 3] =
    [(Deaths::after, None), (Deaths::after_requests, Some("1s")), (Deaths::after_requests, None)];

/// Two Machines of a pool have a pod each. A change `begins`, and a core dies before all is `done`: at the first write or
/// request, then in another such change at the second, until there are no more. Each time the outcome is judged: how
/// many instances were made and which there were before the change is known.
async fn at_each_in_turn(
    (after, takes): Death,
    begins: impl AsyncFn(&World, u32),
    done: impl AsyncFn(&World),
    judge: impl AsyncFn(&World, (u64, Vec<String>), &str),
) {
    let deaths = Arc::<Deaths>::default();
    let world = start_with(Setup { deaths: Arc::clone(&deaths), ..Setup::default() }).await;
    slow_changes(&world, takes).await;
    world.apply::<MachinePool>(pool("p", 2)).await;
    let mut dying = Dying { world, deaths, died: 0 };
    for turn in 0.. {
        until_runs(&dying.world, 2).await;
        Box::pin(pod_for_each(&dying.world)).await;
        let before = (made_and_wanted(&dying.world).0, ids(&dying.world));
        after(&dying.deaths, Some(turn));
        begins(&dying.world, turn).await;
        let all_done = async |world: &World| {
            done(world).await;
            // The last writes come after that.
            tokio::time::sleep(Duration::from_secs(20)).await;
        };
        while dying.dies_before(&all_done).await {}
        judge(&dying.world, before, &format!("turn {turn}, {takes:?}")).await;
        if dying.died == turn {
            break;
        }
    }
    assert!(dying.died > 1, "{} cores died", dying.died);
    dying.world.stop().await;
}

pub(crate) async fn pod_for_each(world: &World) {
    let there = Api::<Pod>::default_namespaced(world.client());
    for machine in machines(world).await {
        if there.get_opt(machine.name()).await.unwrap().is_none() {
            ground::runs(world, ground::pod(machine.name(), machine.node_name().unwrap())).await;
        }
    }
}

/// Pods end fast, and a request to change the group `takes` so long before it has an effect.
async fn slow_changes(world: &World, takes: Option<&str>) {
    let slow = |verb| Some(json!({ "operation": verb, "latency": takes? }));
    let verbs = ["UpdatePool", "UpdatePoolMachine", "DeletePoolMachines", "DeletePool"];
    let slow: Vec<_> = verbs.into_iter().filter_map(slow).collect();
    let spec = json!({ "faults": slow, "kubelet": { "podShutdown": "1s" } });
    let patch = Patch::Merge(json!({ "providerSpec": spec }));
    let classes = Api::<MachineClass>::default_namespaced(world.client());
    classes.patch("group", &PatchParams::default(), &patch).await.unwrap();
}

/// There are so many instances, each with a Machine and a Node that takes pods, and so many pods.
async fn is_settled(world: &World, count: usize, pods: usize, said: &str) {
    let there = ids(world).into_iter().collect();
    assert_eq!((machines(world).await.len(), known(world).await), (count, there), "{said}");
    let nodes = Api::<Node>::all(world.client()).list(&ListParams::default()).await.unwrap().items;
    let taking = nodes.iter().filter(|it| it.spec.as_ref().unwrap().unschedulable != Some(true));
    assert_eq!((nodes.len(), taking.count()), (count, count), "{said}");
    let api = Api::<Pod>::default_namespaced(world.client());
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), pods, "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_core_that_dies_at_any_write_or_request_of_an_upgrade_replaces_each_once_within_the_surge()
 {
    for death in DEATHS {
        let begins = async |world: &World, turn| {
            let version = json!({ "version": format!("v{turn}") });
            patch(world, json!({ "spec": { "template": { "spec": version } } })).await;
        };
        let done = async |world: &World| Box::pin(within(world, 2, 2, 3)).await;
        at_each_in_turn(death, begins, done, async |world, (made, before), said| {
            assert_eq!(made_and_wanted(world), (made + 2, 2), "{said}");
            assert!(ids(world).iter().all(|id| !before.contains(id)), "{said}");
            is_settled(world, 2, 0, said).await;
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_core_that_dies_at_any_write_or_request_of_a_scale_in_drains_and_deletes_one_and_no_other()
 {
    for death in DEATHS {
        let begins = async |world: &World, _| scale(world, 1).await;
        let done = async |world: &World| until_runs(world, 1).await;
        at_each_in_turn(death, begins, done, async |world, (made, before), said| {
            assert_eq!(made_and_wanted(world), (made, 1), "{said}");
            assert!(ids(world).iter().all(|id| before.contains(id)), "{said}");
            is_settled(world, 1, 1, said).await;
            scale(world, 2).await;
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_core_that_dies_at_any_write_or_request_of_a_scale_out_makes_one_and_no_other() {
    for death in DEATHS {
        let begins = async |world: &World, _| scale(world, 3).await;
        let done = async |world: &World| until_runs(world, 3).await;
        at_each_in_turn(death, begins, done, async |world, (made, before), said| {
            assert_eq!(made_and_wanted(world), (made + 1, 3), "{said}");
            assert!(before.iter().all(|id| ids(world).contains(id)), "{said}");
            is_settled(world, 3, 2, said).await;
            scale(world, 2).await;
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_core_that_dies_at_any_write_or_request_of_the_deletion_of_a_pool_drains_all_and_leaves_nothing()
 {
    for death in DEATHS {
        let begins = async |world: &World, _| {
            pools(world).delete("p", &DeleteParams::default()).await.unwrap();
        };
        at_each_in_turn(death, begins, until_gone, async |world, _, said| {
            assert!(world.cloud().groups(|_| true).unwrap().is_empty(), "{said}");
            is_settled(world, 0, 0, said).await;
            world.apply::<MachinePool>(pool("p", 2)).await;
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_core_that_dies_at_any_write_or_request_of_updates_in_place_keeps_each_instance() {
    for death in DEATHS {
        let begins = async |world: &World, turn| {
            let version = json!({ "spec": { "version": format!("v{turn}") } });
            let strategy = json!({ "type": "InPlaceUpdate" });
            patch(world, json!({ "spec": { "strategy": strategy, "template": version } })).await;
        };
        let done = async |world: &World| Box::pin(within(world, 2, 1, 2)).await;
        at_each_in_turn(death, begins, done, async |world, (made, before), said| {
            assert_eq!((made_and_wanted(world), ids(world)), ((made, 2), before), "{said}");
            is_settled(world, 2, 0, said).await;
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_core_that_dies_at_any_write_or_request_after_a_lost_instance_makes_one_and_no_other() {
    for death in DEATHS {
        let begins = async |world: &World, _| world.cloud().remove(&ids(world)[..1]).unwrap();
        at_each_in_turn(death, begins, until_healed, async |world, (made, before), said| {
            assert_eq!(made_and_wanted(world), (made + 1, 2), "{said}");
            assert!(ids(world).contains(&before[1]), "{said}");
            collect_pods(world).await;
            is_settled(world, 2, 1, said).await;
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_core_that_dies_at_any_write_or_request_after_a_lost_group_makes_one_and_no_other() {
    for death in DEATHS {
        let begins = async |world: &World, _| {
            let group = world.cloud().groups(|_| true).unwrap().remove(0).group;
            world.cloud().remove_group(&group.provider_id).unwrap();
        };
        at_each_in_turn(death, begins, until_healed, async |world, (_, before), said| {
            assert_eq!(world.cloud().groups(|_| true).unwrap().len(), 1, "{said}");
            assert_eq!(made_and_wanted(world), (2, 2), "{said}");
            assert!(ids(world).iter().all(|id| !before.contains(id)), "{said}");
            // The new Nodes have the old names, and so the old pods.
            is_settled(world, 2, 2, said).await;
            // A group that has been there for a while is made again at once when it is lost, so that every turn is as long.
            tokio::time::sleep(Duration::from_mins(15)).await;
        })
        .await;
    }
}

/// Deletes pods of deleted Nodes, as the pod garbage collector does.
async fn collect_pods(world: &World) {
    let (pods, nodes) =
        (Api::<Pod>::default_namespaced(world.client()), Api::<Node>::all(world.client()));
    for pod in pods.list(&ListParams::default()).await.unwrap().items {
        let node = pod.spec.unwrap().node_name.unwrap();
        if nodes.get_opt(&node).await.unwrap().is_none() {
            let at_once = DeleteParams::default().grace_period(0);
            pods.delete(&pod.metadata.name.unwrap(), &at_once).await.unwrap();
        }
    }
}

/// Waits until the pool's Machines are its two instances, and run.
async fn until_healed(world: &World) {
    let healed = async {
        while ids(world).len() != 2 || known(world).await != ids(world).into_iter().collect() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_hours(3), healed).await.unwrap();
    until_runs(world, 2).await;
}

/// The ids of instances that have a Machine.
async fn known(world: &World) -> BTreeSet<String> {
    let all = machines(world).await;
    all.iter().filter_map(|it| it.provider_id()).map(ToString::to_string).collect()
}

async fn until_gone(world: &World) {
    until(world, "gone", |it: Option<&MachinePool>| it.is_none()).await;
}

/// Before the deletion has an effect, or when it is done; it is asked for again only in the first case.
#[tokio::test(start_paused = true)]
async fn a_driver_that_goes_away_in_the_deletion_of_a_group_leaves_nothing_and_deletes_it_once() {
    let faults = [(json!({ "latency": "5s" }), 2), (json!({ "lostReply": true }), 1)];
    for (mut fault, times) in faults {
        for core_dies in [false, true] {
            let mut world = start_with(Setup::default()).await;
            fault["operation"] = json!("DeletePool");
            fault["call"] = json!(1);
            let patch = Patch::Merge(json!({ "providerSpec": { "faults": [fault] } }));
            let classes = Api::<MachineClass>::default_namespaced(world.client());
            classes.patch("group", &PatchParams::default(), &patch).await.unwrap();
            world.apply::<MachinePool>(pool("p", 2)).await;
            until_runs(&world, 2).await;
            let said = format!("{fault}, the core dies: {core_dies}");
            pools(&world).delete("p", &DeleteParams::default()).await.unwrap();
            while asked(&world, Verb::DeletePool) == 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            world.crash_driver();
            if core_dies {
                world.crash_core();
                world.start_core().await;
            }
            // Beyond the window in which the driver could have come back with its operation.
            rest().await;
            assert!(pools(&world).get_opt("p").await.unwrap().is_some(), "{said}");
            world.start_driver();
            until_gone(&world).await;
            rest().await;
            assert!(world.cloud().groups(|_| true).unwrap().is_empty(), "{said}");
            is_settled(&world, 0, 0, &said).await;
            let deletions = [Verb::DeletePool, Verb::DeletePoolMachines];
            assert_eq!(deletions.map(|verb| asked(&world, verb)), [times, 1], "{said}");
            world.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_is_found_where_the_class_was_when_its_creation_began() {
    for core_dies in [false, true] {
        let mut world = start().await;
        let class = |spec: serde_json::Value| Patch::Merge(json!({ "providerSpec": spec }));
        let classes = Api::<MachineClass>::default_namespaced(world.client());
        let lost = json!([{ "operation": "CreatePool", "lostReply": true, "call": 1 }]);
        let lost = class(json!({ "faults": lost }));
        classes.patch("group", &PatchParams::default(), &lost).await.unwrap();
        world.apply::<MachinePool>(pool("p", 2)).await;
        let groups = |world: &World| world.cloud().groups(|_| true).unwrap().len();
        let mut changes = world.cloud().subscribe();
        while groups(&world) == 0 {
            changes.changed().await.unwrap();
        }
        world.crash_driver();
        if core_dies {
            world.crash_core();
        }
        let moved = class(json!({ "region": "elsewhere" }));
        classes.patch("group", &PatchParams::default(), &moved).await.unwrap();
        tokio::time::sleep(Duration::from_secs(40)).await;
        if core_dies {
            world.start_core().await;
        }
        world.start_driver();
        until(&world, "found", |pool: Option<&MachinePool>| {
            let status = pool.and_then(|pool| pool.status.as_ref());
            status.is_some_and(|it| it.provider_id.is_some() && it.replicas == 2)
        })
        .await;
        assert_eq!(groups(&world), 1, "core dies: {core_dies}");
        pools(&world).delete("p", &DeleteParams::default()).await.unwrap();
        until(&world, "gone", |pool: Option<&MachinePool>| pool.is_none()).await;
        assert_eq!(groups(&world), 0);
        world.stop().await;
    }
}
