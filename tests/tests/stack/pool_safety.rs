//! Pools and cores that die or do not know of each other: nothing is lost, and nothing is done twice. On a paused clock.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use kube::api::DeleteParams;
use ostler_api::MachinePool;
use ostler_driver_fake::fault::Verb;
use ostler_tests::objects::{delete, instances};
use ostler_tests::setup::Deaths;
use ostler_tests::world::{Setup, World};

use crate::pools::{machines, pool, pools, rest, scale, start_with, until, until_runs};

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
        loop {
            tokio::select! {
                () = awaited(&self.world) => return,
                () = self.deaths.due() => {}
            }
            self.world.crash_core();
            self.deaths.after(None);
            self.world.start_core().await;
            self.died += 1;
            // At the first write of its life, the second, the third.
            self.deaths.after(Some(self.died % 3));
        }
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
        // Two that write one status over one another do so until time passes.
        let impatient = Setup { api_takes: Duration::from_millis(10), ..impatient };
        let mut world = start_with(impatient).await;
        world.apply::<MachinePool>(pool("p", 3)).await;
        until_runs(&world, 3).await;
        scale(&world, 2).await;
        tokio::time::sleep(Duration::from_millis(millis)).await;
        let mut second = world.start_replica().await;
        second.core.ready().await.unwrap();
        // For so long the first one may work on, until it hears of that. Then a third one takes the Lease from the second.
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
