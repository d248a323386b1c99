//! An instance that is there and is not the machine's is neither absent nor touched.

use ostler_proto::v1alpha1::{DeletionOutcome, MachineErrorCode, MachineRecord, Operation};

use crate::answer::{Answer, same_instance};
use crate::bench::Bench;
use crate::driver::Driver;
use crate::listed::{NOT_LISTED, reads_one};
use crate::machine::Machine;
use crate::outcome::{Outcome, ensure, not_offered};

pub(super) async fn status(bench: &Bench) -> Outcome {
    refused(bench, Machine::status).await
}

pub(super) async fn initialize(bench: &Bench) -> Outcome {
    refused(bench, Machine::initialize).await
}

pub(super) async fn update(bench: &Bench) -> Outcome {
    refused(bench, |ours, id| ours.update(id, "")).await
}

pub(super) async fn delete(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    for (owner, other) in others(bench, &driver).await? {
        let answer = driver.ask(bench.machine().delete(&other.provider_id)).await?;
        let answer = answer.deletion(DeletionOutcome::NotOurs)?;
        ensure(
            answer.provider_id == other.provider_id,
            format_args!("provider_id {} in the result", other.provider_id),
            format_args!("{:?}", answer.provider_id),
        )?;
        same_instance(&other, &driver.status(&owner).await?)?;
    }
    Ok(())
}

pub(super) async fn names_cluster(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    for (owner, other) in others(bench, &driver).await? {
        let answer = driver.ask(bench.machine().status(&other.provider_id)).await?;
        can_be_seen(&driver, &answer)?;
        of_cluster(&owner.cluster_id, &answer.not_ours(&other.provider_id)?.cluster_id)?;
        let answer = driver.ask(bench.machine().delete(&other.provider_id)).await?;
        let answer = answer.deletion(DeletionOutcome::NotOurs)?;
        of_cluster(&owner.cluster_id, &answer.cluster_id)?;
    }
    Ok(())
}

/// The refusal of an instance names the cluster in its tags.
pub(super) fn of_cluster(expected: &str, came: &str) -> Outcome {
    ensure(
        expected == came,
        format_args!("NOT_OURS with cluster_id {expected}, which is on the instance"),
        format_args!("{came:?}"),
    )
}

/// Whether an answer is from the list of a driver without GetMachineStatus, which has no instance of another cluster or
/// of a group.
pub(super) fn is_unlisted(driver: &Driver<'_>, answer: &Answer) -> bool {
    let by_adapter = driver.bench.options().unary.is_some();
    let unlisted = answer.error("NOT_OURS").is_ok_and(|error| {
        error.code() == MachineErrorCode::NotFound && error.reason == NOT_LISTED
    });
    unlisted && (by_adapter || !reads_one(&driver.session.hello))
}

fn can_be_seen(driver: &Driver<'_>, answer: &Answer) -> Outcome {
    if !is_unlisted(driver, answer) {
        return Ok(());
    }
    Err(not_offered(
        "the driver has no GetMachineStatus, and its list shows no instance of another cluster",
    ))
}

/// Machines of this cluster and of another cluster, with instances.
async fn others(bench: &Bench, driver: &Driver<'_>) -> Outcome<[(Machine, MachineRecord); 2]> {
    let theirs = bench.machine().of_cluster(&format!("{}-other", bench.cluster_id()));
    let neighbour = bench.machine();
    let (of_theirs, of_neighbour) =
        (driver.create(&theirs).await?, driver.create(&neighbour).await?);
    Ok([(neighbour, of_neighbour), (theirs, of_theirs)])
}

/// Asks for a machine without instance, by the ids of others.
async fn refused(bench: &Bench, ask: impl Fn(&Machine, &str) -> Operation) -> Outcome {
    let driver = bench.connect().await?;
    for (owner, other) in others(bench, &driver).await? {
        let answer = driver.ask(ask(&bench.machine(), &other.provider_id)).await?;
        can_be_seen(&driver, &answer)?;
        answer.not_ours(&other.provider_id)?;
        same_instance(&other, &driver.status(&owner).await?)?;
    }
    Ok(())
}
