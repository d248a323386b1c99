//! Which group belongs to a pool: one, of a class that is right, as long as it is there, also if its cluster has another id.

use std::collections::BTreeSet;
use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::{DeletionOutcome, MachineErrorCode, OperationKind, PoolRecord};

use super::stage::{deleted, has, settled, stage};
use crate::answer::tells_paths;
use crate::bench::Bench;
use crate::checks::not_ours::of_cluster;
use crate::driver::Driver;
use crate::machine::again;
use crate::outcome::{Outcome, ensure, failed};
use crate::pool::{Group, Pool};

pub(super) async fn bad_class(bench: &Bench) -> Outcome {
    let bad = bench.other_class("bad", bench.options().bad_class.as_ref())?;
    let driver = bench.connect().await?;
    let pool = bench.pool();
    let answer = driver.ask(pool.of_class(&bad).create(1)).await?;
    let error = answer.refusal(&[MachineErrorCode::InvalidArgument])?;
    tells_paths(&error)?;
    is_absent(&driver, &pool).await
}

/// As long as the name of a MachinePool may be.
const LONGEST_NAME: usize = 253;

pub(super) async fn max_name(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let start = bench.pool().name;
    let fill = "x".repeat(LONGEST_NAME.saturating_sub(start.len() + 2));
    let mut made = BTreeSet::new();
    for last in [1, 2] {
        let pool = Pool { name: format!("{start}-{fill}{last}"), ..bench.pool() };
        let answer = driver.ask(pool.create(1)).await?;
        let Ok(record) = answer.pool() else {
            answer.refusal(&[MachineErrorCode::InvalidArgument])?;
            continue;
        };
        let came = &record.pool_name;
        ensure(*came == pool.name, format_args!("the pool_name {}", pool.name), came)?;
        let id = record.provider_id;
        ensure(made.insert(id.clone()), "another group for another name", id)?;
    }
    Ok(())
}

pub(super) async fn killed_early(bench: &Bench) -> Outcome {
    for wait in [0, 10, 40] {
        let driver = bench.connect().await?;
        let pool = bench.pool();
        let asked = driver.start(pool.create(2))?;
        asked.accepted().await?;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        bench.step(format_args!("killed the driver {wait} ms after it accepted"));
        bench.harness.forget_process();
        let driver = bench.reconnected().await?;
        let answer = driver.ask(pool.status("")).await?;
        if answer.group().is_err() {
            answer.error_of(&[MachineErrorCode::NotFound])?;
        }
        let found = driver.ask(pool.create(2)).await?.pool()?;
        let group = settled(&driver, &pool, 2).await?;
        same_group(&found, &group)?;
        let listed = driver.ask(pool.list()).await?.pools()?;
        let listed = listed.iter().filter(|it| it.pool_name == pool.name).count();
        ensure(listed == 1, "one group of the pool in the list", listed)?;
    }
    Ok(())
}

pub(super) async fn parallel(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let pool = bench.pool();
    let create = pool.create(1);
    let both = [driver.start(create.clone())?, driver.start(again(&create))?];
    let mut made = Vec::new();
    for asked in both {
        let answer = asked.answer().await?;
        match answer.pool() {
            Ok(record) => made.push(record.provider_id),
            // ABORTED, or what a cloud in trouble answers.
            Err(_) if answer.passing().is_some() => {}
            Err(failed) => return Err(failed),
        }
    }
    let found = driver.ask(pool.create(1)).await?.pool()?.provider_id;
    let one = made.iter().all(|id| *id == found);
    ensure(one, format_args!("one group, {found}"), format_args!("{made:?}"))?;
    let listed = driver.ask(pool.list()).await?.pools()?;
    let listed = listed.iter().filter(|it| it.pool_name == pool.name).count();
    ensure(listed == 1, "one group of the pool in the list", listed)?;
    settled(&driver, &pool, 1).await.map(drop)
}

pub(super) async fn gone(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 1).await?;
    let (id, ids) = (&group.pool.provider_id, group.live());
    deleted(&driver.ask(pool.delete(id)).await?)?;
    let mut asked = vec![pool.status(id), pool.update(id, Some((1, 2)), Some("two"))];
    if driver.offers(OperationKind::DeletePoolMachines) {
        asked.push(pool.delete_machines(id, &ids, (1, 0)));
    }
    if driver.offers(OperationKind::UpdatePoolMachine) {
        asked.extend(ids.iter().map(|one| pool.update_machine(id, one, "one", true)));
    }
    for operation in asked {
        driver.ask(operation).await?.error_of(&[MachineErrorCode::NotFound])?;
        is_absent(&driver, &pool).await?;
    }
    bench.step("asks for it again");
    let made = driver.ask(pool.create_known(1, id)).await?.pool()?;
    same_group(&made, &settled(&driver, &pool, 1).await?)
}

pub(super) async fn previous(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (before, group) = made_before(bench, &driver).await?;
    let after = before.moved();
    let found = driver.ask(after.status("")).await?.group()?;
    same_group(&found.pool, &group)?;
    tells(&found.pool, &before.cluster_id)?;
    lists(&driver, &after, &before.cluster_id).await?;
    let create = after.create(1);
    for operation in [create.clone(), again(&create)] {
        same_group(&driver.ask(operation).await?.pool()?, &group)?;
    }
    lists(&driver, &after, "").await?;
    bench.step("the cluster is not told of its previous id any more");
    has(&driver, &after.settled(), &group.live()).await?;
    is_absent(&driver, &before).await
}

pub(super) async fn previous_by_name(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (before, group) = made_before(bench, &driver).await?;
    let (id, after) = (&group.pool.provider_id, before.restored().moved());
    for operation in [after.status(""), after.create(1)] {
        let refused = driver.ask(operation).await?.not_ours(id)?;
        of_cluster(&before.cluster_id, &refused.cluster_id)?;
    }
    let ended = driver.ask(after.delete("")).await?.pool_deletion()?;
    ensure(
        ended == (DeletionOutcome::NotOurs, id.clone()),
        format_args!("NOT_OURS and {id}"),
        format_args!("{ended:?}"),
    )?;
    has(&driver, &before, &group.live()).await?;
    bench.step("by its id, which the pool had before, it is found");
    same_group(&driver.ask(after.status(id)).await?.group()?.pool, &group)
}

pub(super) async fn previous_delete(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    for by_id in [true, false] {
        let (before, group) = made_before(bench, &driver).await?;
        let id = if by_id { group.pool.provider_id.as_str() } else { "" };
        deleted(&driver.ask(before.moved().delete(id)).await?)?;
        is_absent(&driver, &before).await?;
    }
    Ok(())
}

/// A pool with its group, of a cluster that is to get another id.
async fn made_before(bench: &Bench, driver: &Driver<'_>) -> Outcome<(Pool, Group)> {
    let made = stage(bench, driver, 1).await?;
    bench.step("the cluster has another id from now on, and knows which one it had");
    Ok(made)
}

fn same_group(found: &PoolRecord, group: &Group) -> Outcome {
    let (id, came) = (&group.pool.provider_id, &found.provider_id);
    ensure(came == id, format_args!("the group {id}"), came)
}

/// A record tells the id that is on the group.
fn tells(found: &PoolRecord, cluster_id: &str) -> Outcome {
    ensure(
        found.cluster_id == cluster_id,
        format_args!("cluster_id {cluster_id:?} in the record of {}", found.pool_name),
        format_args!("{:?}", found.cluster_id),
    )
}

/// The group of the pool is in the list, with this cluster id.
async fn lists(driver: &Driver<'_>, pool: &Pool, cluster_id: &str) -> Outcome {
    let listed = driver.ask(pool.list()).await?.pools()?;
    let found = listed.iter().find(|it| it.pool_uid == pool.uid);
    let found = found.ok_or_else(|| failed("the group in the list", "none"))?;
    tells(found, cluster_id)
}

async fn is_absent(driver: &Driver<'_>, pool: &Pool) -> Outcome {
    let answer = driver.ask(pool.status("")).await?;
    answer.error_of(&[MachineErrorCode::NotFound])?;
    let listed = driver.ask(pool.list()).await?.pools()?;
    let found = listed.iter().find(|it| it.pool_uid == pool.uid);
    ensure(found.is_none(), "no such group in the list", format_args!("{found:?}"))
}
