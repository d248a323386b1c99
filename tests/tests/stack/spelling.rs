//! Kubelets that spell the provider id in another way than the driver, which says how ids are compared.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use ostler_api::MachineClass;
use ostler_api::machine::{Machine, MachinePhase, WaitReason};
use ostler_driver_fake::{FakeDriver, PROVIDER};
use ostler_driver_sdk::{
    Context, CreateMachine, DeleteMachine, Deletion, Driver, DriverError, DriverInfo,
    GetMachineStatus, Instance, ListMachines, ProviderIdComparison,
};
use ostler_tests::objects::{class, delete, get, gone, in_phase, machine, waits_for};
use ostler_tests::world::World;
use serde_json::json;
use tokio::time::sleep;

use crate::drain::ground::pod;

/// The fake driver of a cloud that does not tell capitals apart.
#[derive(Clone)]
struct Folding {
    fake: FakeDriver,
    by: ProviderIdComparison,
    /// Whether each instance after the first has the id of that one in capitals.
    twins: bool,
    first: Arc<Mutex<Option<(String, String)>>>,
}

impl Folding {
    /// The driver's answer for an instance.
    fn told(&self, made: Instance, ctx: &Context) -> Instance {
        let identity = ctx.identity();
        let mut first = self.first.lock().unwrap();
        let own = || (identity.machine_uid.clone(), made.provider_id().to_owned());
        let (owner, id) = first.get_or_insert_with(own).clone();
        if !self.twins || owner == identity.machine_uid {
            return made;
        }
        Instance::new(id.to_uppercase())
            .machine(&identity.machine_name, &identity.machine_uid)
            .cluster_id(&identity.cluster_id)
    }
}

impl Driver for Folding {
    fn info(&self) -> DriverInfo {
        DriverInfo::new(PROVIDER).list_lag(Duration::ZERO).compares_provider_ids(self.by)
    }

    async fn create_machine(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        let ctx = request.ctx.clone();
        Ok(self.told(self.fake.create_machine(request).await?, &ctx))
    }

    async fn delete_machine(&self, request: DeleteMachine) -> Result<Deletion, DriverError> {
        self.fake.delete_machine(DeleteMachine { provider_id: None, ..request }).await
    }

    async fn get_machine_status(&self, it: GetMachineStatus) -> Result<Instance, DriverError> {
        let ctx = it.ctx.clone();
        let it = GetMachineStatus { provider_id: None, ..it };
        Ok(self.told(self.fake.get_machine_status(it).await?, &ctx))
    }

    async fn list_machines(&self, request: ListMachines) -> Result<Vec<Instance>, DriverError> {
        self.fake.list_machines(request).await
    }
}

async fn folding(world: &mut World, twins: bool) {
    let fake = FakeDriver::new(world.cloud().clone());
    let by = ProviderIdComparison::CaseInsensitive;
    world.stop_driver().await;
    world.run_driver(Folding { fake, by, twins, first: Arc::default() });
}

async fn node(world: &World, name: &str) -> Option<Node> {
    Api::<Node>::all(world.client()).get_opt(name).await.unwrap()
}

fn id_of(node: &Node) -> String {
    node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_kubelet_writes_capitals_joins_and_stays_over_a_core_without_driver_and_is_drained()
 {
    let mut world = World::start().await;
    folding(&mut world, false).await;
    let spec = json!({ "region": "r", "image": "linux", "kubelet": { "capitals": true } });
    world.apply::<MachineClass>(class("loud", &spec)).await;
    world.apply::<Machine>(machine("m", "loud")).await;
    world.until("m", "runs", in_phase(MachinePhase::Running)).await;
    let id = get(&world, "m").await.provider_id().unwrap().clone();
    let there = node(&world, "m").await.unwrap();
    assert_eq!(id_of(&there), id.as_str().to_uppercase());

    // The next core has no driver that says how ids are compared.
    world.stop_driver().await;
    world.crash_core();
    world.start_core().await;
    sleep(Duration::from_mins(30)).await;
    assert_eq!(get(&world, "m").await.phase(), MachinePhase::Running);
    assert_eq!(world.cloud().instances().unwrap().len(), 1);

    world.apply::<Pod>(pod("web", "m")).await;
    delete(&world, "m").await;
    sleep(Duration::from_secs(5)).await;
    let spec = node(&world, "m").await.unwrap().spec.unwrap();
    assert_eq!(spec.unschedulable, Some(true), "INV-4");
    folding(&mut world, false).await;
    world.until("m", "gone", gone).await;
    assert!(node(&world, "m").await.is_none() && world.cloud().instances().unwrap().is_empty());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_machines_whose_ids_count_as_equal_share_no_node_and_say_so() {
    let mut world = World::start().await;
    folding(&mut world, true).await;
    let spec = json!({ "region": "r", "image": "linux", "kubelet": { "join": "never" } });
    world.apply::<MachineClass>(class("silent", &spec)).await;
    for name in ["one", "two"] {
        world.apply::<Machine>(machine(name, "silent")).await;
        world.until(name, "made", waits_for(WaitReason::NodeNotJoined)).await;
    }
    let id = get(&world, "one").await.provider_id().unwrap().to_string();
    let mixed = id.replacen("fake", "Fake", 1);
    let there: Node = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "host" },
        "spec": { "providerID": mixed },
    }))
    .unwrap();
    let nodes = Api::<Node>::all(world.client());
    nodes.create(&PostParams::default(), &there).await.unwrap();
    for (name, other) in [("one", "two"), ("two", "one")] {
        world.until(name, "told", waits_for(WaitReason::ProviderIdMismatch)).await;
        let wait = get(&world, name).await.status.unwrap().waiting_for.unwrap();
        let message = wait.message.unwrap();
        assert!(message.contains(&mixed) && message.contains(other), "{message}");
    }
    let there = node(&world, "host").await.unwrap();
    assert!(there.metadata.finalizers.is_none(), "neither took it");
    delete(&world, "one").await;
    world.until("one", "gone", gone).await;
    let left = node(&world, "host").await.unwrap();
    assert_eq!(left.spec.unwrap().unschedulable, None, "INV-5");
    assert_eq!(world.cloud().instances().unwrap().len(), 1);
    world.stop().await;
}
