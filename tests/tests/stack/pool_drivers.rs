//! Pools with a limited driver, or with an infrastructure that scales by itself. On a paused clock.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use ostler_api::machine::{Machine, MachinePhase, WaitReason};
use ostler_api::{MachineClass, MachinePool};
use ostler_driver_fake::fault::Verb;
use ostler_driver_fake::{FakeDriver, PROVIDER};
use ostler_driver_sdk::{
    CreateMachine, CreatePool, DeleteMachine, DeletePool, Deletion, Driver, DriverError,
    DriverInfo, GetMachineStatus, GetPoolStatus, Instance, ListMachines, ListPools,
    OptionalOperation, Pool, PoolStatus, UpdatePool,
};
use ostler_tests::objects::{class, delete, instances, nodes, waits_for};
use ostler_tests::world::{Setup, World};
use serde_json::json;

use crate::drain::ground;
use crate::pools::{
    machines, patch, pool, pools, rest, scale, start, start_with, until, until_runs,
};

/// The fake driver as one of a cloud whose groups delete no instance by its name.
struct Classic(FakeDriver);

impl Driver for Classic {
    fn info(&self) -> DriverInfo {
        DriverInfo::new(PROVIDER).knows_previous_cluster_ids().offering([OptionalOperation::Pools])
    }

    async fn create_machine(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        self.0.create_machine(request).await
    }

    async fn delete_machine(&self, request: DeleteMachine) -> Result<Deletion, DriverError> {
        self.0.delete_machine(request).await
    }

    async fn get_machine_status(&self, request: GetMachineStatus) -> Result<Instance, DriverError> {
        self.0.get_machine_status(request).await
    }

    async fn list_machines(&self, request: ListMachines) -> Result<Vec<Instance>, DriverError> {
        self.0.list_machines(request).await
    }

    async fn create_pool(&self, request: CreatePool) -> Result<Pool, DriverError> {
        self.0.create_pool(request).await
    }

    async fn update_pool(&self, request: UpdatePool) -> Result<Pool, DriverError> {
        self.0.update_pool(request).await
    }

    async fn delete_pool(&self, request: DeletePool) -> Result<Deletion, DriverError> {
        self.0.delete_pool(request).await
    }

    async fn get_pool_status(&self, request: GetPoolStatus) -> Result<PoolStatus, DriverError> {
        self.0.get_pool_status(request).await
    }

    async fn list_pools(&self, request: ListPools) -> Result<Vec<Pool>, DriverError> {
        self.0.list_pools(request).await
    }
}

/// A pool of two whose driver deletes no instance by its name.
async fn classic() -> World {
    let mut world = start().await;
    world.crash_driver();
    let driver = FakeDriver::new(world.cloud().clone());
    world.run_driver(Classic(driver));
    world.apply::<MachinePool>(pool("p", 2)).await;
    until_runs(&world, 2).await;
    world
}

pub(crate) async fn pods(world: &World) -> usize {
    let api = Api::<Pod>::default_namespaced(world.client());
    api.list(&ListParams::default()).await.unwrap().items.len()
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_driver_deletes_no_single_instance_drains_all_before_its_group_goes_as_a_whole()
 {
    let world = classic().await;
    let status = pools(&world).get("p").await.unwrap().status.unwrap();
    let deletable = status.conditions.iter().find(|it| it.type_ == "Deletable").unwrap();
    assert_eq!((deletable.status.as_str(), &status.infrastructure_machine_kind), ("False", &None));
    let all = machines(&world).await;
    for machine in &all {
        ground::runs(&world, ground::pod(machine.name(), machine.node_name().unwrap())).await;
    }
    // One alone is neither drained nor deleted, and says why.
    delete(&world, all.first().unwrap().name()).await;
    world.until(all.first().unwrap().name(), "held", waits_for(WaitReason::DriverLacksVerb)).await;
    rest().await;
    assert_eq!((instances(&world), nodes(&world).await, pods(&world).await), (2, 2, 2));

    pools(&world).delete("p", &DeleteParams::default()).await.unwrap();
    while !world.cloud().groups(|_| true).unwrap().is_empty() {
        if pods(&world).await > 0 {
            assert_eq!(instances(&world), 2, "no instance goes before its pods");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(pods(&world).await, 0);
    until(&world, "gone", |pool: Option<&MachinePool>| pool.is_none()).await;
    assert_eq!((instances(&world), nodes(&world).await), (0, 0));
    assert!(machines(&world).await.is_empty());
    world.stop().await;
}

/// In the seconds before the driver dialled in again, its pods were evicted.
#[tokio::test(start_paused = true)]
async fn a_machine_that_its_driver_cannot_delete_is_not_drained_while_driver_or_core_is_away() {
    let mut world = classic().await;
    let machine = machines(&world).await.remove(0);
    let node = machine.node_name().unwrap();
    ground::runs(&world, ground::pod(machine.name(), node)).await;
    delete(&world, machine.name()).await;
    world.until(machine.name(), "held", waits_for(WaitReason::DriverLacksVerb)).await;
    for core_too in [false, true] {
        world.crash_driver();
        if core_too {
            world.crash_core();
            world.start_core().await;
        }
        rest().await;
        let driver = FakeDriver::new(world.cloud().clone());
        world.run_driver(Classic(driver));
        rest().await;
        let found = Api::<Node>::all(world.client()).get(node).await.unwrap();
        assert_ne!(found.spec.unwrap().unschedulable, Some(true), "{core_too}");
        assert_eq!((pods(&world).await, instances(&world)), (1, 2), "{core_too}");
    }
    world.stop().await;
}

/// The driver of another provider, which finds no group and would make one. Counts calls for groups.
struct Other(Arc<AtomicUsize>);

const OTHER: &str = "other.ostler.dev";

impl Driver for Other {
    fn info(&self) -> DriverInfo {
        DriverInfo::new(OTHER).knows_previous_cluster_ids().offering([OptionalOperation::Pools])
    }

    async fn create_machine(&self, _: CreateMachine) -> Result<Instance, DriverError> {
        Err(DriverError::unimplemented("no machines"))
    }

    async fn delete_machine(&self, _: DeleteMachine) -> Result<Deletion, DriverError> {
        Ok(Deletion::WasAbsent)
    }

    async fn get_machine_status(&self, _: GetMachineStatus) -> Result<Instance, DriverError> {
        Err(DriverError::not_found("none"))
    }

    async fn list_machines(&self, _: ListMachines) -> Result<Vec<Instance>, DriverError> {
        Ok(Vec::new())
    }

    async fn create_pool(&self, _: CreatePool) -> Result<Pool, DriverError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Pool::new("other:///group", 0, 0))
    }

    async fn update_pool(&self, _: UpdatePool) -> Result<Pool, DriverError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(DriverError::not_found("none"))
    }

    async fn delete_pool(&self, _: DeletePool) -> Result<Deletion, DriverError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Deletion::WasAbsent)
    }

    async fn get_pool_status(&self, _: GetPoolStatus) -> Result<PoolStatus, DriverError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(DriverError::not_found("none"))
    }

    async fn list_pools(&self, _: ListPools) -> Result<Vec<Pool>, DriverError> {
        Ok(Vec::new())
    }
}

/// A second group was made, and the machines of the first went without a drain, while their instances ran on.
#[tokio::test(start_paused = true)]
async fn a_class_of_another_provider_leaks_no_group_and_takes_no_machine() {
    let mut world = start_with(Setup::tuned(|options| {
        for token in &mut options.tokens {
            token.providers = Some([PROVIDER, OTHER].map(str::to_owned).into());
        }
    }))
    .await;
    world.apply::<MachinePool>(pool("p", 2)).await;
    until_runs(&world, 2).await;
    let asked = Arc::new(AtomicUsize::default());
    world.run_driver(Other(Arc::clone(&asked)));
    let classes = Api::<MachineClass>::default_namespaced(world.client());
    let is_of = async |provider: &str| {
        let patch = Patch::Merge(json!({ "provider": provider }));
        classes.patch("group", &PatchParams::default(), &patch).await.unwrap();
    };
    is_of(OTHER).await;
    let said = |pool: Option<&MachinePool>| {
        let status = pool.and_then(|pool| pool.status.as_ref());
        let mut all = status.into_iter().flat_map(|status| &status.conditions);
        all.any(|it| it.reason == "ProviderChanged" && it.message.contains(PROVIDER))
    };
    until(&world, "told", said).await;
    rest().await;
    rest().await;
    let runs = |it: &Machine| it.phase() == MachinePhase::Running && !it.is_deleting();
    assert_eq!(machines(&world).await.iter().filter(|it| runs(it)).count(), 2);
    pools(&world).delete("p", &DeleteParams::default()).await.unwrap();
    rest().await;
    assert!(pools(&world).get_opt("p").await.unwrap().is_some());
    assert_eq!((instances(&world), asked.load(Ordering::Relaxed)), (2, 0));
    is_of(PROVIDER).await;
    until(&world, "gone", |pool: Option<&MachinePool>| pool.is_none()).await;
    assert_eq!((instances(&world), asked.load(Ordering::Relaxed)), (0, 0));
    assert!(
        world.cloud().groups(|_| true).unwrap().is_empty() && machines(&world).await.is_empty()
    );
    world.stop().await;
}

/// A bootstrap token, and the user data of the class with it; the token before is gone.
async fn renew_token(world: &World, id: &str, before: &str) {
    another_token(world, id, before).await;
    let user_data = format!("kubelet --token={id}.0123456789abcdef");
    let secrets = Api::<Secret>::default_namespaced(world.client());
    let data = json!({ "stringData": { "userData": user_data } });
    secrets.patch("group", &PatchParams::default(), &Patch::Merge(data)).await.unwrap();
}

/// Of both tokens, only the new one lets a kubelet in.
pub(crate) async fn another_token(world: &World, id: &str, before: &str) {
    let token = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": { "name": format!("bootstrap-token-{id}"), "namespace": "kube-system" },
        "stringData": {
            "token-id": id, "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true"
        }
    });
    let tokens = Api::<Secret>::namespaced(world.client(), "kube-system");
    let token = serde_json::from_value(token).unwrap();
    tokens.create(&PostParams::default(), &token).await.unwrap();
    tokens.delete(&format!("bootstrap-token-{before}"), &DeleteParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn new_instances_join_with_renewed_user_data_also_in_a_pause_and_after_an_outage_of_the_core()
{
    let mut world = start().await;
    world.apply::<MachinePool>(pool("p", 1)).await;
    until_runs(&world, 1).await;
    let first = machines(&world).await.remove(0);

    renew_token(&world, "sec0nd", "p00lex").await;
    rest().await;
    scale(&world, 2).await;
    until_runs(&world, 2).await;

    patch(&world, json!({ "spec": { "paused": true } })).await;
    renew_token(&world, "th1rd0", "sec0nd").await;
    rest().await;
    scale(&world, 3).await;
    until_runs(&world, 3).await;

    patch(&world, json!({ "spec": { "paused": false } })).await;
    world.crash_core();
    renew_token(&world, "f0urth", "th1rd0").await;
    rest().await;
    world.start_core().await;
    rest().await;
    scale(&world, 4).await;
    until_runs(&world, 4).await;

    let same = |it: &Machine| it.metadata.uid == first.metadata.uid;
    assert!(machines(&world).await.iter().any(same), "none was replaced");
    world.stop().await;
}

/// Ids of the existing bootstrap tokens.
async fn token_ids(world: &World) -> Vec<String> {
    let tokens = Api::<Secret>::namespaced(world.client(), "kube-system");
    let all = tokens.list(&ListParams::default()).await.unwrap().items.into_iter();
    let ids =
        all.filter_map(|it| Some(it.metadata.name?.strip_prefix("bootstrap-token-")?.to_owned()));
    ids.filter(|id| id != "p00lex").collect()
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_user_data_ask_for_a_token_has_one_that_is_renewed_and_goes_with_it() {
    let mut world = start().await;
    let secrets = Api::<Secret>::default_namespaced(world.client());
    let data = json!({ "stringData": { "userData": "kubelet --token=<<BOOTSTRAP_TOKEN>>" } });
    secrets.patch("group", &PatchParams::default(), &Patch::Merge(data)).await.unwrap();
    let mut of = pool("p", 1);
    of["spec"]["template"]["spec"]["creationTimeout"] = json!("3m");
    world.apply::<MachinePool>(of).await;
    until_runs(&world, 1).await;
    let first = token_ids(&world).await;
    assert_eq!(first.len(), 1);
    let before: Vec<_> = machines(&world).await.iter().map(|it| it.metadata.uid.clone()).collect();
    // An instance of the group joins at any hour.
    for count in 2..8 {
        tokio::time::sleep(Duration::from_mins(2)).await;
        if count % 3 == 0 {
            world.crash_core();
            tokio::time::sleep(Duration::from_mins(1)).await;
            world.start_core().await;
            rest().await;
        }
        scale(&world, count).await;
        until_runs(&world, count).await;
        assert!(token_ids(&world).await.len() <= 2);
    }
    let mut both = token_ids(&world).await;
    both.retain(|id| !first.contains(id));
    assert_eq!(both.len(), 1, "they take turns");
    let after: Vec<_> = machines(&world).await.iter().map(|it| it.metadata.uid.clone()).collect();
    assert!(before.iter().all(|uid| after.contains(uid)), "none was replaced");
    pools(&world).delete("p", &DeleteParams::default()).await.unwrap();
    until(&world, "gone", |it: Option<&MachinePool>| it.is_none()).await;
    assert!(token_ids(&world).await.is_empty());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn machines_whose_reference_to_their_pool_is_removed_are_its_own_again_and_drained_with_it() {
    let world = start().await;
    world.apply::<MachinePool>(pool("p", 2)).await;
    until_runs(&world, 2).await;
    for machine in machines(&world).await {
        ground::runs(&world, ground::pod(machine.name(), machine.node_name().unwrap())).await;
    }
    // The garbage collector removes the references, and the pool goes on with its deletion.
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    pools(&world).delete("p", &orphan).await.unwrap();
    while pools(&world).get_opt("p").await.unwrap().is_some() {
        if pods(&world).await > 0 {
            assert_eq!(instances(&world), 2, "no instance goes before its pods");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    rest().await;
    assert_eq!((instances(&world), nodes(&world).await, pods(&world).await), (0, 0, 0));
    assert!(machines(&world).await.is_empty());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_waits_for_the_secret_of_its_class_and_asks_no_driver_before() {
    let world = start().await;
    let spec = json!({ "region": "local", "image": "fake-1.0" });
    let mut late = class("late", &spec);
    late["secretRef"]["name"] = json!("late");
    world.apply::<MachineClass>(late).await;
    let mut of_late = pool("p", 1);
    of_late["spec"]["template"]["spec"]["class"]["name"] = json!("late");
    world.apply::<MachinePool>(of_late).await;
    rest().await;
    let asked = world.calls();
    assert!(asked.iter().all(|call| call.operation != Verb::GetPoolStatus), "{asked:?}");
    let status = pools(&world).get("p").await.unwrap().status.unwrap();
    let said = status.conditions.iter().find(|it| it.type_ == "BootstrapReady").unwrap();
    assert!(said.status == "False" && said.message.contains("late"), "{said:?}");

    let secrets = Api::<Secret>::default_namespaced(world.client());
    let mut secret = secrets.get("group").await.unwrap();
    secret.metadata = ObjectMeta { name: Some("late".to_owned()), ..ObjectMeta::default() };
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let since = world.now();
    until_runs(&world, 1).await;
    let took = world.now().duration_since(since).as_secs();
    assert!(took < 10, "as soon as the secret is there: {took} s");
    world.stop().await;
}
