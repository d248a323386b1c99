//! What is wrong with one instance or one id stays with it; where nobody can look, nothing is said to be gone or done.

use ostler_proto::v1alpha1 as proto;
use proto::{MachineErrorCode, OperationKind, PoolMachineState};

use super::stage::{has, middle, named_not_ours, settled, size_is, stage, without};
use crate::bench::Bench;
use crate::checks::unanswered::{Trouble, ask, goes_on};
use crate::machine::again;
use crate::outcome::{Outcome, ensure};
use crate::pool::id_of;

pub(super) async fn delete_partial(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 3).await?;
    let (other, others) = stage(bench, &driver, 1).await?;
    let (ids, strange) = (group.live(), others.live());
    let gone = middle(&ids)?;
    let named = [std::slice::from_ref(&gone), &strange].concat();
    let delete = pool.delete_machines(&group.pool.provider_id, &named, (3, 1));
    for operation in [delete.clone(), again(&delete)] {
        let answer = driver.ask(operation).await?;
        named_not_ours(&answer, &strange)?;
        size_is(&answer.pool()?, 2)?;
    }
    has(&driver, &other, &strange).await?;
    has(&driver, &pool, &without(&ids, &gone)).await
}

pub(super) async fn lost_instance(bench: &Bench) -> Outcome {
    let probe = bench.probe()?;
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 3).await?;
    let ids = group.live();
    let lost = middle(&ids)?;
    bench.step("--probe-cmd remove-instance");
    probe.remove_instance(&lost).await?;
    let after = driver.ask(pool.status("")).await?.group()?;
    for machine in &after.machines {
        let called_good = machine.state() == PoolMachineState::Succeeded;
        let wrong = id_of(machine) == lost && called_good;
        ensure(!wrong, format_args!("{lost} gone, or not SUCCEEDED"), "SUCCEEDED")?;
        let fault = machine.machine.as_ref().and_then(|it| it.fault.as_ref());
        let mute = machine.state() == PoolMachineState::Failed && fault.is_none();
        ensure(!mute, format_args!("machine.fault of {}, which FAILED", id_of(machine)), "none")?;
    }
    let kept = without(&ids, &lost);
    let live = after.live();
    let all = kept.iter().all(|id| live.contains(id));
    ensure(all, format_args!("{kept:?} as before"), format_args!("{live:?}"))
}

pub(super) async fn not_ours(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 2).await?;
    let (id, ids) = (&group.pool.provider_id, group.live());
    let one = middle(&ids)?;
    let elsewhere = pool.of_cluster(&format!("{}-other", pool.cluster_id));
    for other in [elsewhere, bench.pool()] {
        driver.ask(other.create_known(2, id)).await?.not_ours(id)?;
        driver.ask(other.update(id, Some((2, 3)), None)).await?.not_ours(id)?;
        if driver.offers(OperationKind::DeletePoolMachines) {
            let named = std::slice::from_ref(&one);
            driver.ask(other.delete_machines(id, named, (2, 1))).await?.not_ours(id)?;
        }
        if driver.offers(OperationKind::UpdatePoolMachine) {
            driver.ask(other.update_machine(id, &one, "one", true)).await?.not_ours(id)?;
        }
        has(&driver, &pool, &ids).await?;
    }
    if driver.offers(OperationKind::UpdatePoolMachine) {
        let (other, theirs) = stage(bench, &driver, 2).await?;
        let strange = middle(&theirs.live())?;
        let update = pool.update_machine(id, &strange, "one", true);
        driver.ask(update).await?.not_ours(&strange)?;
        settled(&driver, &other, 2).await?.machine(&strange)?;
    }
    Ok(())
}

/// Each operation on a group that is there, and on one that is not, which the driver cannot know now.
pub(super) async fn when_unanswered<const DENIED: bool>(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 2).await?;
    let (id, ids, unmade) = (&group.pool.provider_id, group.live(), bench.pool());
    let one = middle(&ids)?;
    bench.step("another model, which the instances do not have");
    driver.ask(pool.update(id, None, Some("two"))).await?.pool()?;
    let trouble = Trouble::begin(bench, DENIED).await?;
    let class = trouble.class(bench, &pool.class);
    let (known, absent) = (pool.of_class(&class), unmade.of_class(&class));
    let mut asked = vec![
        absent.status(""),
        absent.create(1),
        known.create(2),
        known.update(id, Some((2, 3)), Some("three")),
        known.delete(""),
        known.delete(id),
    ];
    if driver.offers(OperationKind::DeletePoolMachines) {
        asked.push(known.delete_machines(id, std::slice::from_ref(&one), (2, 1)));
    }
    if driver.offers(OperationKind::UpdatePoolMachine) {
        asked.push(known.update_machine(id, &one, "two", true));
    }
    for operation in asked {
        goes_on(&ask(&driver, operation).await?)?;
    }
    // A driver that remembers what is there says nothing wrong.
    for operation in [known.status(""), known.status(id), known.list()] {
        let answer = ask(&driver, operation).await?;
        if let Ok(told) = answer.group() {
            told.is_of(&ids)?;
        } else if let Ok(told) = answer.pools() {
            let listed = told.iter().any(|it| it.pool_uid == pool.uid);
            ensure(listed, "an error, or else the whole list", "a list without the group")?;
        } else {
            goes_on(&answer)?;
        }
    }
    trouble.over(bench).await?;
    has(&driver, &pool, &ids).await?;
    let after = driver.ask(pool.status("")).await?.group()?;
    let models = (after.pool.model_hash.as_str(), after.machine(&one)?.model_hash.as_str());
    let expected = "the model `two` of the group and `one` of its instances, as before";
    ensure(models == ("two", "one"), expected, format_args!("{models:?}"))?;
    let answer = driver.ask(unmade.status("")).await?;
    answer.error_of(&[MachineErrorCode::NotFound]).map(drop)
}
