//! Instances that carry an id which their cluster had before a migration or a restore.

use ostler_proto::v1alpha1::{DeletionOutcome, MachineErrorCode, MachineRecord};

use super::not_ours::of_cluster;
use crate::answer::same_instance;
use crate::bench::Bench;
use crate::driver::Driver;
use crate::machine::{Machine, again};
use crate::outcome::{Outcome, ensure};

pub(super) const MANUAL: &str =
    "driver.proto, \"Cluster ids that change\"; session.proto, PREVIOUS_CLUSTER_IDS";

pub(super) async fn create_by_id(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (before, made) = made_before(bench, &driver).await?;
    let after = before.restored().moved();
    let found = driver.ask(after.status(&made.provider_id)).await?.machine()?;
    same_instance(&made, &found)?;
    tells(&found, &before.cluster_id)?;
    let adopted = driver.ask(after.create_known(&made.provider_id)).await?.machine()?;
    same_instance(&made, &adopted)?;
    has_tags_of_today(&driver, &after, &made).await
}

pub(super) async fn create_by_uid(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (before, made) = made_before(bench, &driver).await?;
    let after = before.moved();
    let found = driver.status(&after).await?;
    same_instance(&made, &found)?;
    tells(&found, &before.cluster_id)?;
    let create = after.create();
    same_instance(&made, &driver.ask(create.clone()).await?.machine()?)?;
    same_instance(&made, &driver.ask(again(&create)).await?.machine()?)?;
    has_tags_of_today(&driver, &after, &made).await
}

pub(super) async fn create_by_name(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (before, made) = made_before(bench, &driver).await?;
    let after = before.restored().moved();
    let refused = driver.ask(after.create()).await?.not_ours(&made.provider_id)?;
    of_cluster(&before.cluster_id, &refused.cluster_id)?;
    driver.has_none(&after).await?;
    is_untouched(&driver, &before, &made).await
}

pub(super) async fn status_by_name(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (before, made) = made_before(bench, &driver).await?;
    let after = before.restored().moved();
    let refused = driver.ask(after.status("")).await?.not_ours(&made.provider_id)?;
    of_cluster(&before.cluster_id, &refused.cluster_id)?;
    is_untouched(&driver, &before, &made).await
}

pub(super) async fn delete_by_name(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (before, made) = made_before(bench, &driver).await?;
    let answer = driver.ask(before.restored().moved().delete("")).await?;
    let answer = answer.deletion(DeletionOutcome::NotOurs)?;
    ensure(
        answer.provider_id == made.provider_id,
        format_args!("provider_id {} in the result", made.provider_id),
        format_args!("{:?}", answer.provider_id),
    )?;
    of_cluster(&before.cluster_id, &answer.cluster_id)?;
    is_untouched(&driver, &before, &made).await
}

pub(super) async fn delete(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (before, made) = made_before(bench, &driver).await?;
    let by_id = before.restored().moved().delete(&made.provider_id);
    driver.ask(by_id).await?.deletion(DeletionOutcome::Deleted)?;
    is_gone(&driver, &before).await?;
    let (before, _) = made_before(bench, &driver).await?;
    driver.ask(before.moved().delete("")).await?.deletion(DeletionOutcome::Deleted)?;
    is_gone(&driver, &before).await
}

pub(super) async fn list(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (before, _) = made_before(bench, &driver).await?;
    let ours = bench.machine().moved();
    driver.create(&ours).await?;
    let stranger = bench.machine().of_cluster(&format!("{}-other", bench.cluster_id()));
    driver.create(&stranger).await?;
    lists(&driver, &ours, &[(&ours, ""), (&before, &before.cluster_id)]).await?;
    bench.step("the cluster is not told of its previous id any more");
    lists(&driver, &ours.settled(), &[(&ours, "")]).await?;
    lists(&driver, &before, &[(&before, "")]).await
}

/// A machine with its instance, of a cluster that is to get another id.
async fn made_before(bench: &Bench, driver: &Driver<'_>) -> Outcome<(Machine, MachineRecord)> {
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    bench.step("the cluster has another id from now on, and knows which one it had");
    Ok((machine, made))
}

/// A record tells the id that is on the instance.
fn tells(record: &MachineRecord, cluster_id: &str) -> Outcome {
    ensure(
        record.cluster_id == cluster_id,
        format_args!("cluster_id {cluster_id:?} in the record of {}", record.machine_name),
        format_args!("{:?}", record.cluster_id),
    )
}

/// An instance that was adopted is the only one of its machine, and needs the ids of before no more.
async fn has_tags_of_today(driver: &Driver<'_>, after: &Machine, made: &MachineRecord) -> Outcome {
    let listed = driver.has_one(after).await?;
    same_instance(made, &listed)?;
    tells(&listed, "")?;
    let found = driver.status(&after.settled()).await?;
    same_instance(made, &found)
}

async fn is_untouched(driver: &Driver<'_>, before: &Machine, made: &MachineRecord) -> Outcome {
    same_instance(made, &driver.status(before).await?)
}

async fn is_gone(driver: &Driver<'_>, before: &Machine) -> Outcome {
    let answer = driver.ask(before.status("")).await?;
    answer.error_of(&[MachineErrorCode::NotFound]).map(drop)
}

/// What the cluster of a machine is shown: these machines, each with this cluster id.
async fn lists(driver: &Driver<'_>, of: &Machine, wanted: &[(&Machine, &str)]) -> Outcome {
    let all = driver.ask(of.list()).await?.machines()?;
    let all = all.into_iter().filter(|record| driver.bench.counts(record));
    let mut got: Vec<_> = all.map(|it| (it.machine_uid, it.cluster_id)).collect();
    let mut wanted: Vec<_> =
        wanted.iter().map(|(it, id)| (it.uid.clone(), (*id).to_owned())).collect();
    got.sort();
    wanted.sort();
    ensure(
        got == wanted,
        format_args!("records with the UIDs and cluster ids {wanted:?}"),
        format_args!("{got:?}"),
    )
}
