//! A cloud that shows new instances late, and parts of instances that are gone.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_api::Machine;
use ostler_api::machine::{MachinePhase, WaitReason};
use ostler_driver_fake::{FakeDriver, PROVIDER};
use ostler_driver_sdk::{
    CreateMachine, DeleteMachine, Deletion, Driver, DriverError, DriverInfo, GetMachineStatus,
    Instance, ListMachines, Part,
};
use ostler_tests::objects::{delete, get, gone, in_phase, machine, waits_for};
use ostler_tests::world::World;
use tokio::time::sleep;

const LAG: Duration = Duration::from_secs(20);

/// A deletion: the UID, and the provider id.
type Deleted = (String, Option<String>);

/// The fake driver with a cloud whose searches lag, and whose disks are parts of their own.
#[derive(Clone)]
struct Late {
    fake: FakeDriver,
    lag: Duration,
    /// Name of the machine, by UID.
    disks: Arc<Mutex<BTreeMap<String, String>>>,
    deleted: Arc<Mutex<Vec<Deleted>>>,
}

impl Late {
    fn hides(&self, uid: &str) -> bool {
        let cloud = self.fake.cloud();
        let all = cloud.instances().unwrap();
        let made = all.iter().find(|it| it.identity.machine_uid == uid);
        made.is_some_and(|it| !it.is_older(self.lag, cloud.clock().now()))
    }
}

impl Driver for Late {
    fn info(&self) -> DriverInfo {
        DriverInfo::new(PROVIDER).list_lag(self.lag)
    }

    async fn create_machine(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        let ctx = request.ctx.clone();
        let made = self.fake.create_machine(request).await?;
        tokio::select! {
            () = ctx.cancelled() => Err(DriverError::canceled("stopped in the middle").partial()),
            () = sleep(Duration::from_secs(10)) => Ok(made),
        }
    }

    async fn delete_machine(&self, request: DeleteMachine) -> Result<Deletion, DriverError> {
        let uid = request.ctx.target().uid.clone();
        self.deleted.lock().unwrap().push((uid.clone(), request.provider_id.clone()));
        let disk = self.disks.lock().unwrap().remove(&uid).is_some();
        if request.provider_id.is_none() && self.hides(&uid) {
            return Ok(Deletion::WasAbsent);
        }
        let deletion = self.fake.delete_machine(request).await?;
        Ok(if disk { Deletion::Deleted } else { deletion })
    }

    async fn get_machine_status(&self, it: GetMachineStatus) -> Result<Instance, DriverError> {
        if it.provider_id.is_none() && self.hides(&it.ctx.target().uid) {
            return Err(DriverError::not_found("not yet"));
        }
        self.fake.get_machine_status(it).await
    }

    async fn list_machines(&self, request: ListMachines) -> Result<Vec<Instance>, DriverError> {
        self.fake.list_machines(request).await
    }

    async fn list_parts(&self, _: ListMachines) -> Result<Vec<Part>, DriverError> {
        let disks = self.disks.lock().unwrap();
        let part = |(uid, name): (&String, &String)| {
            Part::new("disk", format!("disk-of-{name}")).machine(name, uid)
        };
        Ok(disks.iter().map(part).collect())
    }
}

async fn late(world: &mut World, lag: Duration) -> Late {
    let fake = FakeDriver::new(world.cloud().clone());
    let driver = Late { fake, lag, disks: Arc::default(), deleted: Arc::default() };
    world.stop_driver().await;
    world.run_driver(driver.clone());
    driver
}

#[tokio::test(start_paused = true)]
async fn a_machine_deleted_in_the_middle_of_its_create_stays_until_the_cloud_shows_what_was_made() {
    let mut world = World::start().await;
    late(&mut world, LAG).await;
    world.apply::<Machine>(machine("short", "fake")).await;
    while world.cloud().instances().unwrap().is_empty() {
        sleep(Duration::from_millis(100)).await;
    }
    let made = world.now();
    sleep(Duration::from_secs(3)).await;
    delete(&world, "short").await;
    world.until("short", "unconfirmed", waits_for(WaitReason::AbsenceUnconfirmed)).await;
    assert_eq!(world.cloud().instances().unwrap().len(), 1, "it runs");
    world.until("short", "gone", gone).await;
    assert!(world.cloud().instances().unwrap().is_empty(), "nothing is left");
    let took = world.now().duration_since(made).as_secs();
    assert!((20..60).contains(&took), "as soon as the cloud shows it: {took} s");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_of_no_machine_and_no_instance_is_found_and_deleted_by_its_uid() {
    let mut world = World::start().await;
    let driver = late(&mut world, Duration::ZERO).await;
    world.apply::<Machine>(machine("stays", "fake")).await;
    world.until("stays", "Running", in_phase(MachinePhase::Running)).await;
    let stays = get(&world, "stays").await;
    let all = [("uid-lost", "lost"), (stays.uid(), "stays")];
    let all = all.map(|(uid, name)| (uid.to_owned(), name.to_owned()));
    driver.disks.lock().unwrap().extend(all);
    let began = world.now();
    while driver.disks.lock().unwrap().contains_key("uid-lost") {
        sleep(Duration::from_secs(10)).await;
    }
    let took = world.now().duration_since(began).as_secs();
    assert!((600..2400).contains(&took), "after the grace: {took} s");
    sleep(Duration::from_mins(40)).await;
    assert_eq!(driver.deleted.lock().unwrap().as_slice(), [("uid-lost".to_owned(), None)]);
    assert!(driver.disks.lock().unwrap().contains_key(stays.uid()), "its machine is there");
    world.stop().await;
}
