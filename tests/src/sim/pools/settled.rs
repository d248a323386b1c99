//! Whether pools are as they are wanted, once nothing goes wrong any more.

use ostler_api::MachinePool;
use ostler_api::machine::{Machine, MachinePhase};
use ostler_driver_fake::cloud::Seen;
use ostler_lifecycle::owner::is_controlled_by;

use super::super::world::World;
use super::ELSEWHERE;

/// Pools and groups that are not settled yet.
pub async fn unsettled(world: &World, machines: &[Machine]) -> Vec<String> {
    let pools: Vec<MachinePool> = world.users.all().await;
    let uids: Vec<&str> = pools.iter().map(MachinePool::uid).collect();
    let mut found: Vec<_> =
        pools.iter().filter_map(|it| pool_unsettled(world, it, machines)).collect();
    for (name, uid) in groups(world) {
        if !uids.contains(&uid.as_str()) {
            found.push(format!("group {name} is nobody's"));
        }
    }
    found
}

fn pool_unsettled(world: &World, pool: &MachinePool, machines: &[Machine]) -> Option<String> {
    let name = pool.name();
    if pool.is_deleting() {
        return Some(format!("pool {name} is still deleted"));
    }
    let wanted = usize::try_from(pool.replicas()).unwrap_or_default();
    let own = machines.iter().filter(|it| is_controlled_by(&it.metadata, pool.uid()));
    let own: Vec<_> = own.collect();
    let running = own.iter().filter(|it| it.phase() == MachinePhase::Running).count();
    let status = pool.status.clone().unwrap_or_default();
    // Which ones of an old model go is up to the system that scales the group.
    let stays = pool.is_externally_scaled();
    let current = if stays { status.replicas } else { status.up_to_date_replicas };
    let said = [status.replicas, status.ready_replicas, current];
    let seen = world
        .around
        .clouds
        .iter()
        .flat_map(|cloud| cloud.groups(|_| true).expect("a cloud in memory has no journal"));
    let seen: Vec<_> = seen.filter(|it| it.group.identity.pool_uid == pool.uid()).collect();
    let has: Vec<_> = seen.iter().map(|it| (it.group.desired, it.members.len())).collect();
    let fits =
        |(desired, members): &(i32, usize)| *desired == pool.replicas() && *members == wanted;
    let of_model = |it: &Seen| {
        let members = it.members.iter().filter_map(|one| one.member.as_ref());
        members.map(|one| &one.model_hash).all(|hash| stays || *hash == it.group.model.hash)
    };
    let current = status.observed_generation == pool.metadata.generation;
    if (own.len(), running) == (wanted, wanted)
        && said.iter().all(|it| *it == pool.replicas())
        && has.len() == 1
        && has.iter().all(fits)
        && seen.iter().all(of_model)
        && current
        && status.operation.is_none()
    {
        return None;
    }
    Some(format!(
        "pool {name} wants {wanted}, has {} of which {running} run; it says {said:?}, up to date {current}, its group has \
         {has:?}, operation {:?}, retries {:?}",
        own.len(),
        status.operation.map(|it| it.intent.kind),
        status.retries,
    ))
}

/// Pools and groups that are left although everything was deleted.
pub async fn leftovers(world: &World) -> Vec<String> {
    let pools: Vec<MachinePool> = world.users.all().await;
    let pools = pools.into_iter().map(|it| format!("pool {}", it.name()));
    pools.chain(groups(world).into_iter().map(|(name, _)| format!("group {name}"))).collect()
}

/// Names and UIDs of the pools of all groups.
fn groups(world: &World) -> Vec<(String, String)> {
    let all = world.around.clouds.iter().flat_map(|cloud| {
        cloud.groups(|it| it != ELSEWHERE).expect("a cloud in memory has no journal")
    });
    let named = |it: Seen| {
        let identity = it.group.identity;
        (identity.pool_name, identity.pool_uid)
    };
    all.map(named).collect()
}
