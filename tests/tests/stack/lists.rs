//! Classes that share one list in the search for orphans.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_api::MachineClass;
use ostler_api::machine::Machine;
use ostler_api::machine::MachinePhase;
use ostler_driver_fake::FakeDriver;
use ostler_driver_fake::cloud::{Cloud, Instance as InCloud};
use ostler_driver_sdk::{
    Class, CreateMachine, DeleteMachine, Deletion, Driver, DriverError, DriverInfo,
    GetMachineStatus, Instance, ListMachines,
};
use ostler_server::CoreOptions;
use ostler_tests::objects::{class, in_phase, machine};
use ostler_tests::world::{Setup, World};
use serde_json::json;

/// Two accounts, each with a cloud of its own; the region of a class says which one.
#[derive(Clone)]
struct Accounts {
    clouds: [Cloud; 2],
    /// How often each class was listed.
    lists: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Accounts {
    async fn of(&self, ctx: &ostler_driver_sdk::Context) -> Result<FakeDriver, DriverError> {
        let class = ctx.class().await?;
        let second = self.list_scope(&class) == "second";
        Ok(FakeDriver::new(self.clouds[usize::from(second)].clone()))
    }
}

impl Driver for Accounts {
    fn info(&self) -> DriverInfo {
        FakeDriver::new(self.clouds[0].clone()).info()
    }

    async fn create_machine(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        self.of(&request.ctx).await?.create_machine(request).await
    }

    async fn delete_machine(&self, request: DeleteMachine) -> Result<Deletion, DriverError> {
        self.of(&request.ctx).await?.delete_machine(request).await
    }

    async fn get_machine_status(&self, request: GetMachineStatus) -> Result<Instance, DriverError> {
        self.of(&request.ctx).await?.get_machine_status(request).await
    }

    async fn list_machines(&self, request: ListMachines) -> Result<Vec<Instance>, DriverError> {
        let name = request.ctx.class_name().unwrap_or_default().to_owned();
        *self.lists.lock().unwrap().entry(name).or_default() += 1;
        self.of(&request.ctx).await?.list_machines(request).await
    }

    fn list_scope(&self, class: &Class) -> String {
        let spec: serde_json::Value = class.spec().unwrap_or_default();
        spec["region"].as_str().unwrap_or_default().to_owned()
    }
}

fn restless(options: &mut CoreOptions) {
    options.settings.orphans.period = Duration::from_mins(1);
    options.settings.orphans.grace = Duration::from_secs(1);
}

/// Puts an instance into a cloud that has the tags of a machine that is gone.
fn orphan(from: &Cloud, into: &Cloud) -> String {
    let mut instance: InCloud = from.instances().unwrap().remove(0);
    "fake:///orphan".clone_into(&mut instance.provider_id);
    "00000000-0000-4000-8000-000000000000".clone_into(&mut instance.identity.machine_uid);
    "lost".clone_into(&mut instance.identity.machine_name);
    let identity = instance.identity.tags();
    instance.vm.tags.extend(identity);
    into.plant(vec![instance]).unwrap();
    "fake:///orphan".to_owned()
}

#[tokio::test(start_paused = true)]
async fn classes_of_one_account_share_a_list_and_an_orphan_in_the_other_account_is_found() {
    let mut world = World::start_with(Setup::tuned(restless)).await;
    world.stop_driver().await;
    let clock = world.cloud().clock().clone();
    let clouds = [world.cloud().clone(), Cloud::in_memory(clock)];
    let accounts = Accounts { clouds: clouds.clone(), lists: Arc::default() };
    world.run_driver(accounts.clone());
    for (name, region) in [("a1", "first"), ("a2", "first"), ("b", "second")] {
        let spec = json!({ "region": region, "image": "fake-1.0" });
        world.apply::<MachineClass>(class(name, &spec)).await;
    }
    world.apply::<Machine>(machine("stays", "a1")).await;
    world.until("stays", "Running", in_phase(MachinePhase::Running)).await;
    // Each list is asked for once until the driver has said what it is of.
    tokio::time::sleep(Duration::from_mins(5)).await;
    accounts.lists.lock().unwrap().clear();
    let lost = orphan(&clouds[0], &clouds[1]);
    tokio::time::sleep(Duration::from_mins(10)).await;
    let lists = accounts.lists.lock().unwrap().clone();
    assert!(lists["a1"] >= 5 && !lists.contains_key("a2") && lists["b"] >= 5, "{lists:?}");
    assert_eq!(clouds[1].instance(&lost).unwrap(), None, "it is deleted in its own account");
    assert_eq!(clouds[0].instances().unwrap().len(), 1, "and nothing else");
    world.stop().await;
}
