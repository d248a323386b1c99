//! Groups as the core asks for them, without a core.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use ostler_driver_fake::FakeDriver;
use ostler_driver_fake::cloud::{Clock, Cloud, Instance as Vm};
use ostler_driver_sdk::testing::TestContext;
use ostler_driver_sdk::{
    Code, Context, CreatePool, DeletePool, DeletePoolMachines, Deletion, Driver, DriverError,
    GetMachineStatus, GetPoolStatus, ListMachines, ListPools, PoolMachinesDeleted, PoolModel,
    PoolSize, PoolStatus, UpdatePool, UpdatePoolMachine,
};
use serde_json::{Value, json};

/// A driver, a pool and its class.
struct World {
    driver: FakeDriver,
    spec: Value,
    group: String,
}

impl World {
    fn new(extra: &Value) -> Self {
        let mut spec = json!({"region": "eu-1", "image": "linux"});
        let (Some(all), Some(extra)) = (spec.as_object_mut(), extra.as_object()) else {
            unreachable!("both are objects")
        };
        all.extend(extra.clone());
        let driver = FakeDriver::new(Cloud::in_memory(Clock::system()));
        Self { driver, spec, group: String::new() }
    }

    /// With a group of this size.
    async fn with_group(extra: &Value, desired: i32) -> Self {
        let mut world = Self::new(extra);
        world.create(desired).await.unwrap();
        let groups = world.driver.cloud().groups(|_| true).unwrap();
        world.group.clone_from(&groups.first().unwrap().group.provider_id);
        world
    }

    fn ctx(&self) -> Context {
        TestContext::new("pool", "u").provider_spec(self.spec.to_string()).build()
    }

    fn model(hash: &str) -> PoolModel {
        PoolModel { hash: hash.to_owned(), ..PoolModel::default() }
    }

    async fn create(&self, desired: i32) -> Result<(), DriverError> {
        let ctx = self.ctx();
        let tags = ctx.pool_identity().tags();
        let model = Self::model("one");
        let asked = CreatePool { ctx, desired, model, tags, provider_id: None };
        self.driver.create_pool(asked).await.map(drop)
    }

    async fn status(&self) -> Result<PoolStatus, DriverError> {
        let (ctx, provider_id) = (self.ctx(), None);
        self.driver.get_pool_status(GetPoolStatus { ctx, provider_id, with_instances: true }).await
    }

    async fn update(
        &self,
        size: Option<(i32, i32)>,
        model: Option<&str>,
    ) -> Result<(), DriverError> {
        let size = size.map(|(expected, wanted)| PoolSize { expected, wanted });
        let (ctx, provider_id) = (self.ctx(), self.group.clone());
        let model = model.map(Self::model);
        self.driver.update_pool(UpdatePool { ctx, provider_id, size, model }).await.map(drop)
    }

    async fn delete(
        &self,
        ids: &[String],
        (expected, wanted): (i32, i32),
    ) -> Result<PoolMachinesDeleted, DriverError> {
        let request = DeletePoolMachines {
            ctx: self.ctx(),
            provider_id: self.group.clone(),
            instances: ids.to_vec(),
            size: PoolSize { expected, wanted },
        };
        self.driver.delete_pool_machines(request).await
    }

    async fn bring(&self, vm: &Vm, hash: &str, drained: bool) -> Result<(), DriverError> {
        let request = UpdatePoolMachine {
            ctx: self.ctx(),
            provider_id: self.group.clone(),
            instance: vm.provider_id.clone(),
            model_hash: hash.to_owned(),
            drained,
        };
        self.driver.update_pool_machine(request).await.map(drop)
    }

    /// The size of the group, and its instances except deleting ones.
    fn live(&self) -> (i32, Vec<Vm>) {
        let seen = self.driver.cloud().groups(|_| true).unwrap().remove(0);
        (seen.group.desired, seen.members.into_iter().filter(|vm| !vm.deleting).collect())
    }

    fn ids(&self) -> Vec<String> {
        self.live().1.into_iter().map(|vm| vm.provider_id).collect()
    }
}

fn code<T: std::fmt::Debug>(answer: Result<T, DriverError>) -> Code {
    answer.unwrap_err().code()
}

#[tokio::test]
async fn a_group_is_made_once_and_keeps_its_size() {
    let world = World::with_group(&json!({}), 3).await;
    let before = world.ids();
    world.create(5).await.unwrap();
    assert_eq!(world.live().0, 3);
    assert_eq!(world.ids(), before);
    let ctx = world.ctx();
    assert_eq!(world.driver.list_pools(ListPools { ctx }).await.unwrap().len(), 1);
    assert_eq!(world.status().await.unwrap().instances.len(), 3);
}

#[tokio::test]
async fn instances_of_a_group_are_of_no_machine() {
    let world = World::with_group(&json!({}), 1).await;
    let vm = world.live().1.remove(0);
    let ctx = world.ctx();
    assert_eq!(world.driver.list_machines(ListMachines { ctx }).await.unwrap(), []);
    let name = vm.identity.machine_name.clone();
    let ctx = TestContext::new(name, "m").provider_spec(world.spec.to_string()).build();
    let provider_id = Some(vm.provider_id.clone());
    let status = world.driver.get_machine_status(GetMachineStatus { ctx, provider_id }).await;
    assert_eq!(status.unwrap_err().reason_word(), "NOT_OURS");
    assert_eq!(vm.vm.tags.get("ostler.dev/pool-uid").map(String::as_str), Some("u"));
}

#[tokio::test]
async fn a_named_deletion_takes_what_it_names_and_lowers_once() {
    let world = World::with_group(&json!({}), 3).await;
    let ids = world.ids();
    for _ in 0..3 {
        let deleted = world.delete(&ids[1..2], (3, 2)).await.unwrap();
        assert_eq!(deleted.not_deleted, []);
        assert_eq!(world.live().0, 2);
        assert_eq!(world.ids(), [ids[0].clone(), ids[2].clone()]);
    }
    assert_eq!(code(world.delete(&ids[..1], (4, 3)).await), Code::Aborted);
}

#[tokio::test]
async fn a_replacement_is_made_at_once_and_the_size_stays() {
    let world = World::with_group(&json!({"latency": {"delete": "1h"}}), 2).await;
    let ids = world.ids();
    world.delete(&ids[..1], (2, 2)).await.unwrap();
    let (desired, live) = world.live();
    assert_eq!((desired, live.len()), (2, 2));
    assert!(!world.ids().contains(&ids[0]));
    assert_eq!(world.status().await.unwrap().instances.len(), 3, "one is being deleted");
}

#[tokio::test]
async fn an_instance_of_others_is_not_touched() {
    let world = World::with_group(&json!({}), 1).await;
    let stranger = Vm {
        provider_id: "fake:///eu-1/other".to_owned(),
        member: None,
        ..world.live().1.remove(0)
    };
    let id = stranger.provider_id.clone();
    world.driver.cloud().plant(vec![stranger]).unwrap();
    let deleted = world.delete(std::slice::from_ref(&id), (1, 1)).await.unwrap();
    let refused: Vec<_> =
        deleted.not_deleted.iter().map(|(id, error)| (id.clone(), error.reason_word())).collect();
    assert_eq!(refused, [(id.clone(), "NOT_OURS")]);
    assert!(world.driver.cloud().instance(&id).unwrap().is_some());
}

#[tokio::test]
async fn a_size_is_set_against_the_one_that_was_seen() {
    let world = World::with_group(&json!({}), 2).await;
    world.update(Some((2, 4)), None).await.unwrap();
    world.update(Some((2, 4)), None).await.unwrap();
    assert_eq!(world.live().1.len(), 4);
    assert_eq!(code(world.update(Some((2, 5)), None).await), Code::Aborted);
    assert_eq!(code(world.update(Some((4, 1)), None).await), Code::Aborted);
    assert_eq!(world.live().1.len(), 4);
}

#[tokio::test]
async fn instances_are_spread_over_zones() {
    let zones = json!({"groups": {"zones": ["a", "b", "c"]}});
    let world = World::with_group(&zones, 7).await;
    let in_zone = |zone: &str| {
        let of = |vm: &&Vm| vm.member.as_ref().is_some_and(|member| member.zone == zone);
        world.live().1.iter().filter(of).count()
    };
    assert_eq!(["a", "b", "c"].map(in_zone), [3, 2, 2]);
}

#[tokio::test]
async fn a_full_region_is_a_fault_of_the_group_and_no_failure_of_the_call() {
    let world = World::with_group(&json!({"capacity": {"maxInstances": 2}}), 3).await;
    assert_eq!(world.live().1.len(), 2);
    let pool = format!("{:?}", world.status().await.unwrap().pool);
    assert!(pool.contains("REGION_FULL"), "{pool}");
}

#[tokio::test]
async fn a_limit_below_what_a_region_has_makes_no_room_for_what_is_lost() {
    let lossy = json!({"groups": {"spotLifetime": "0s"}});
    let mut world = World::with_group(&lossy, 3).await;
    world.spec["capacity"] = json!({"maxInstances": 1});
    world.update(None, Some("two")).await.unwrap();
    assert_eq!(world.live().1.len(), 1);
}

#[tokio::test]
async fn what_the_group_says_of_itself_fails_and_is_lost_as_the_class_has_it() {
    let lossy = json!({"groups": {"failEvery": 2, "spotLifetime": "0s"}});
    let world = World::with_group(&lossy, 2).await;
    let failed = |vm: &Vm| vm.member.as_ref().is_some_and(|member| member.failed);
    assert_eq!(world.live().1.iter().map(failed).collect::<Vec<_>>(), [false, true]);
    let before: BTreeSet<_> = world.ids().into_iter().collect();
    world.status().await.unwrap();
    let after: BTreeSet<_> = world.ids().into_iter().collect();
    assert_eq!(after.len(), 2);
    assert!(before.is_disjoint(&after), "spot instances are lost, and others made");
}

#[tokio::test]
async fn each_instance_says_whether_it_runs_still_boots_or_failed_and_why() {
    let groups = json!({"groups": {"slowEvery": 2, "slowBoot": "1h", "failEvery": 3}});
    let world = World::with_group(&groups, 3).await;
    let said = world.status().await.unwrap().instances;
    let said: Vec<_> = said.iter().map(|it| format!("{it:?}")).collect();
    for (instance, state) in said.iter().zip(["Succeeded", "Creating", "Failed"]) {
        assert!(instance.contains(&format!("state: {state}")), "{state}: {instance}");
        assert_eq!(instance.contains("BOOT_FAILED"), state == "Failed", "{instance}");
    }
    assert_eq!(said.len(), 3);
}

#[tokio::test]
async fn an_instance_is_updated_in_its_place_and_made_anew_only_if_drained() {
    let mut world = World::with_group(&json!({}), 1).await;
    world.spec["tags"] = json!({"vm": {"team": "blue"}});
    world.update(None, Some("two")).await.unwrap();
    let hash = |world: &World| world.live().1[0].member.clone().unwrap().model_hash;
    assert_eq!(hash(&world), "one", "instances keep what they have");
    let vm = world.live().1.remove(0);
    assert_eq!(code(world.bring(&vm, "three", false).await), Code::Aborted);
    world.bring(&vm, "two", false).await.unwrap();
    assert_eq!(hash(&world), "two");
    world.spec["image"] = json!("newer");
    world.update(None, Some("three")).await.unwrap();
    assert_eq!(
        world.bring(&vm, "three", false).await.unwrap_err().reason_word(),
        "NOT_HOT_UPDATABLE"
    );
    world.bring(&vm, "three", true).await.unwrap();
    let brought = world.live().1.remove(0);
    assert_eq!((brought.image.as_str(), brought.provider_id), ("newer", vm.provider_id));
    assert_eq!(brought.vm.tags.get("team").map(String::as_str), Some("blue"));
    assert_eq!(hash(&world), "three");
}

#[tokio::test]
async fn a_group_goes_with_its_instances_and_is_absent_then() {
    let world = World::with_group(&json!({}), 2).await;
    let delete = async || {
        world.driver.delete_pool(DeletePool { ctx: world.ctx(), provider_id: None }).await.unwrap()
    };
    assert_eq!(delete().await, Deletion::Deleted);
    assert_eq!(delete().await, Deletion::WasAbsent);
    assert_eq!(world.driver.cloud().instances().unwrap(), []);
    assert_eq!(code(world.status().await), Code::NotFound);
}

#[tokio::test]
async fn the_group_of_another_cluster_is_absent_and_by_its_id_not_ours() {
    let world = World::with_group(&json!({}), 1).await;
    let other =
        || TestContext::new("pool", "u").cluster_id("other").provider_spec(world.spec.to_string());
    let read = async |provider_id| {
        let ctx = other().build();
        let asked = GetPoolStatus { ctx, provider_id, with_instances: true };
        world.driver.get_pool_status(asked).await.unwrap_err()
    };
    assert_eq!(read(None).await.code(), Code::NotFound);
    assert_eq!(read(Some(world.group.clone())).await.reason_word(), "NOT_OURS");
    let ctx = other().build();
    let gone = world.driver.delete_pool(DeletePool { ctx, provider_id: Some(world.group.clone()) });
    assert!(matches!(gone.await.unwrap(), Deletion::NotOurs { .. }));
}

#[tokio::test]
async fn a_group_outlives_the_process_in_the_state_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let before = {
        let cloud = Cloud::open(&path, Clock::system()).unwrap();
        let world = World { driver: FakeDriver::new(cloud), ..World::new(&json!({})) };
        world.create(2).await.unwrap();
        world.ids()
    };
    let cloud = Cloud::open(&path, Clock::system()).unwrap();
    let world = World { driver: FakeDriver::new(cloud), ..World::new(&json!({})) };
    assert_eq!(world.ids(), before);
    assert_eq!(world.status().await.unwrap().instances.len(), 2);
}
