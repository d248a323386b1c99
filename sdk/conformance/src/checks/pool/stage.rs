//! A group with its instances, and how it is looked at.

use std::time::Duration;

use ostler_proto::v1alpha1::{
    DeletionOutcome, MachineErrorReason, PoolMachineFailure, PoolMachineState, PoolRecord,
};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::bench::Bench;
use crate::driver::Driver;
use crate::outcome::{Outcome, ensure, failed};
use crate::pool::{Group, Pool};

/// For a group to make what it lacks.
const SETTLES: Duration = Duration::from_mins(2);
/// For its instances to be as they are to be.
const SUCCEEDS: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);

/// A pool whose group has settled.
pub(in crate::checks) async fn stage(
    bench: &Bench,
    driver: &Driver<'_>,
    desired: i32,
) -> Outcome<(Pool, Group)> {
    let pool = bench.pool();
    driver.ask(pool.create(desired)).await?.pool()?;
    let group = settled(driver, &pool, desired).await?;
    Ok((pool, group))
}

/// The group once it has so many instances that are not on their way out.
pub(in crate::checks) async fn settled(
    driver: &Driver<'_>,
    pool: &Pool,
    count: i32,
) -> Outcome<Group> {
    let until = Instant::now() + driver.bench.scaled(SETTLES);
    loop {
        let group = driver.ask(pool.status("")).await?.group()?;
        let live = group.live().len();
        if usize::try_from(count) == Ok(live) {
            return Ok(group);
        }
        if Instant::now() >= until {
            let came = format!("{live}, and a size of {}", group.pool.desired);
            return Err(failed(format_args!("{count} instances in the group"), came));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The group once it counts an instance.
pub(super) async fn counted(driver: &Driver<'_>, pool: &Pool) -> Outcome<Group> {
    let until = Instant::now() + driver.bench.scaled(SETTLES);
    loop {
        let group = driver.ask(pool.status("")).await?.group()?;
        if group.pool.current > 0 || Instant::now() >= until {
            return Ok(group);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Its instances are done at last: the core brings no change to a group of which it waits for some.
pub(super) async fn succeeded(driver: &Driver<'_>, pool: &Pool) -> Outcome {
    let until = Instant::now() + driver.bench.scaled(SUCCEEDS);
    loop {
        let group = driver.ask(pool.status("")).await?.group()?;
        let states: Vec<_> = group.machines.iter().map(|it| it.state().as_str_name()).collect();
        if group.machines.iter().all(|it| it.state() == PoolMachineState::Succeeded) {
            return Ok(());
        }
        let late = Instant::now() >= until;
        ensure(!late, "POOL_MACHINE_STATE_SUCCEEDED of each instance", format_args!("{states:?}"))?;
        tokio::time::sleep(LOOK).await;
    }
}

pub(in crate::checks) fn size_is(pool: &PoolRecord, desired: i32) -> Outcome {
    ensure(pool.desired == desired, format_args!("a size of {desired}"), pool.desired)
}

/// There was a group, and it is gone.
pub(super) fn deleted(answer: &Answer) -> Outcome {
    let (ended, _) = answer.pool_deletion()?;
    let done = ended == DeletionOutcome::Deleted
        || (answer.repeated && ended == DeletionOutcome::WasAbsent);
    ensure(done, "DELETED", ended.as_str_name())
}

/// Exactly these instances are live, and that is the size.
pub(in crate::checks) async fn has(driver: &Driver<'_>, pool: &Pool, ids: &[String]) -> Outcome {
    let count = i32::try_from(ids.len()).unwrap_or(i32::MAX);
    let group = settled(driver, pool, count).await?;
    group.is_of(ids)?;
    size_is(&group.pool, count)
}

/// The instances but one.
pub(in crate::checks) fn without(ids: &[String], gone: &str) -> Vec<String> {
    ids.iter().filter(|id| *id != gone).cloned().collect()
}

/// The instance in the middle, which no policy of the infrastructure would choose.
pub(in crate::checks) fn middle(ids: &[String]) -> Outcome<String> {
    ids.get(1).cloned().ok_or_else(|| failed("two instances", ids.len()))
}

/// DeletePoolMachines left these alone, since they are not of the group.
pub(super) fn named_not_ours(answer: &Answer, strange: &[String]) -> Outcome {
    let not_deleted = answer.not_deleted()?;
    let named = not_deleted.iter().map(|it| &it.machine_provider_id);
    let not_ours = |it: &PoolMachineFailure| {
        let error = it.error.as_ref();
        error.is_some_and(|it| it.acts_by() == MachineErrorReason::NotOurs)
    };
    ensure(
        named.eq(strange) && not_deleted.iter().all(not_ours),
        format_args!("{strange:?} in not_deleted, with NOT_OURS"),
        format_args!("{not_deleted:?}"),
    )
}
