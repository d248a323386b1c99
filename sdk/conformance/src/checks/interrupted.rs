//! Creates that are cancelled, run out of time, or lose their driver.

use std::collections::BTreeSet;
use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::register_response::Frame;
use proto::{MachineErrorCode, OperationCancel, OutcomeCertainty};

use super::unanswered::ask;
use crate::answer::{Answer, shown};
use crate::bench::Bench;
use crate::by_name;
use crate::driver::{Asked, Driver};
use crate::machine::{Machine, in_time};
use crate::outcome::{Outcome, ensure};
use crate::pool::POOL_UID;
use crate::probe::{Probe, Seen};

/// After a cancel.
const CANCELLED: Duration = Duration::from_secs(30);
/// For an answer after the end of the time: the way, and a busy computer.
const LATE: Duration = Duration::from_secs(5);

/// With a cloud that goes away after the first change of a create, after the second, and so on: what is there then was
/// made by the calls before, however fast they follow each other.
pub(super) async fn tags_atomic(bench: &Bench) -> Outcome {
    const MOST_CHANGES: u32 = 8;
    let probe = bench.probe()?;
    let driver = bench.connect().await?;
    let before = ids(probe.instances().await?);
    let parts = untagged_parts(&probe).await;
    for changes in 1..=MOST_CHANGES {
        let machine = bench.machine();
        bench.break_cloud(Some(changes)).await?;
        let answer = ask(&driver, machine.create()).await?;
        all_tagged(&driver, &probe, &before).await?;
        let new: Vec<_> = untagged_parts(&probe).await.difference(&parts).cloned().collect();
        let expected = "no new disk or other part without the UID of its machine";
        ensure(new.is_empty(), expected, new.join(", "))?;
        bench.break_cloud(None).await?;
        truthful(&driver, &machine, &answer).await?;
        driver.create(&machine).await?;
        let count = probe.instances_of(&machine).await?.len();
        ensure(count == 1, "one instance of the machine in the cloud", count)?;
        if answer.machine().is_ok() {
            break;
        }
    }
    Ok(())
}

/// Those that `resources` has without a UID, if the probe knows the word.
pub(crate) async fn untagged_parts(probe: &Probe) -> BTreeSet<String> {
    let all = probe.resources().await.unwrap_or_default();
    all.into_iter().filter(|it| it.uid.is_empty()).map(|it| it.id).collect()
}

pub(super) async fn killed_early(bench: &Bench) -> Outcome {
    let probe = bench.probe().ok();
    let before: BTreeSet<String> = match &probe {
        Some(probe) => ids(probe.instances().await?),
        None => BTreeSet::new(),
    };
    let mut machines = Vec::new();
    for wait in [0, 10, 40, 120] {
        let driver = bench.connect().await?;
        let machine = bench.slow_machine();
        let asked = driver.start(machine.create())?;
        asked.accepted().await?;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        bench.step(format_args!("killed the driver {wait} ms after it accepted"));
        bench.harness.forget_process();
        if let Some(probe) = &probe {
            all_tagged(&driver, probe, &before).await?;
        }
        let driver = bench.reconnected().await?;
        listed_if_there(&driver, &machine).await?;
        machines.push(machine);
    }
    let driver = bench.connect().await?;
    bench.step("created all of them again");
    let asked: Vec<Asked<'_>> =
        machines.iter().map(|machine| driver.start(machine.create())).collect::<Outcome<_>>()?;
    for (machine, asked) in machines.iter().zip(asked) {
        asked.settled().await?.machine()?;
        driver.has_one(machine).await?;
        if let Some(probe) = &probe {
            let count = probe.instances_of(machine).await?.len();
            ensure(count == 1, "one instance of the machine in the cloud", count)?;
        }
    }
    Ok(())
}

/// Every instance that was not there before carries its identity. Group operations belong to checks that run at the
/// same time.
async fn all_tagged(driver: &Driver<'_>, probe: &Probe, before: &BTreeSet<String>) -> Outcome {
    let by_name = by_name::declared(&driver.session.hello);
    for seen in probe.instances().await? {
        let known = before.contains(&seen.provider_id);
        ensure(
            known || has_identity(&seen, by_name),
            "no new instance without the tags of cluster, name and UID",
            format_args!("{}: {:?}", seen.provider_id, seen.tags),
        )?;
    }
    Ok(())
}

fn has_identity(seen: &Seen, by_name: bool) -> bool {
    let owned = by_name || !(seen.uid.is_empty() || seen.cluster_id.is_empty());
    (owned && !seen.name.is_empty()) || seen.tags.contains_key(POOL_UID)
}

fn ids(instances: Vec<Seen>) -> BTreeSet<String> {
    instances.into_iter().map(|seen| seen.provider_id).collect()
}

/// Instances and parts without identity: no machine is told of them.
pub(super) async fn untagged(driver: &Driver<'_>) -> BTreeSet<String> {
    let (Ok(probe), false) = (driver.bench.probe(), by_name::declared(&driver.session.hello))
    else {
        return BTreeSet::new();
    };
    let instances = probe.instances().await.unwrap_or_default().into_iter();
    let bare = instances.filter(|it| !has_identity(it, false)).map(|it| it.provider_id);
    bare.chain(untagged_parts(&probe).await).collect()
}

/// The list shows what is there, also while it boots. The status is a result or NOT_FOUND: the create of an instance that is
/// half made may have to come again.
async fn listed_if_there(driver: &Driver<'_>, machine: &Machine) -> Outcome {
    if let Ok(probe) = driver.bench.probe()
        && !probe.instances_of(machine).await?.is_empty()
    {
        driver.has_one(machine).await?;
    }
    let answer = driver.ask(machine.status("")).await?;
    match answer.machine() {
        Ok(_) => Ok(()),
        Err(_) => answer.error_of(&[MachineErrorCode::NotFound]).map(drop),
    }
}

pub(super) async fn cancel(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let model = driver.ask(bench.slow_machine().create()).await?;
    model.machine()?;
    for percent in [10, 50, 90] {
        let machine = bench.slow_machine();
        let other = driver.start(bench.slow_machine().create())?;
        let asked = driver.start(machine.create())?;
        asked.accepted().await?;
        tokio::time::sleep(model.took * percent / 100).await;
        bench.step(format_args!("cancelled it at {percent} %"));
        driver.session.send(Frame::Cancel(OperationCancel {
            operation_id: asked.operation.operation_id.clone(),
            reason: "TARGET_DELETED".to_owned(),
        }))?;
        let answer = asked.answer_within(bench.scaled(CANCELLED)).await?;
        truthful(&driver, &machine, &answer).await?;
        driver.delete(&machine).await?;
        driver.has_none(&machine).await?;
        other.settled().await?.machine()?;
    }
    Ok(())
}

/// The list shows the instance that the create reported.
pub(super) async fn truthful(driver: &Driver<'_>, machine: &Machine, answer: &Answer) -> Outcome {
    let Ok(error) = answer.error("an error") else {
        return driver.has_one(machine).await.map(drop);
    };
    let listed = driver.listed(machine).await?.len();
    if error.certainty() == OutcomeCertainty::NotApplied {
        let expected = format!("no instance after {}", shown(&error));
        ensure(listed == 0, &expected, format_args!("{listed} in the list"))?;
        if let Ok(probe) = driver.bench.probe()
            && let Ok(parts) = probe.resources_of(&machine.uid).await
        {
            let parts: Vec<_> = parts.iter().map(|it| format!("{} {}", it.kind, it.id)).collect();
            ensure(parts.is_empty(), expected, parts.join(", "))?;
        }
    }
    ensure(
        error.certainty() != OutcomeCertainty::Unspecified,
        "an error with its certainty",
        shown(&error),
    )
}

pub(super) async fn timeout(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let model = driver.ask(bench.slow_machine().create()).await?;
    model.machine()?;
    // By then an instance is there that takes its time.
    let time = (model.took / 2).max(Duration::from_secs(1));
    let machine = bench.slow_machine();
    bench.step(format_args!("with a timeout of {time:?}"));
    let asked = driver.start(in_time(machine.create(), time))?;
    let answer = asked.answer_within(time + bench.scaled(LATE)).await?;
    truthful(&driver, &machine, &answer).await?;
    bench.step("created it again, with time enough");
    driver.create(&machine).await?;
    driver.has_one(&machine).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_has_the_identity_of_a_machine_or_of_a_pool() {
        let seen = |json: &str| serde_json::from_str::<Seen>(json).unwrap();
        let machine = seen(r#"{"providerId": "1", "name": "a", "uid": "u", "clusterId": "c"}"#);
        let pool =
            seen(r#"{"providerId": "2", "clusterId": "c", "tags": {"ostler.dev/pool-uid": "p"}}"#);
        let none = seen(r#"{"providerId": "3", "clusterId": "c", "tags": {"a": "b"}}"#);
        let has = [&machine, &pool, &none].map(|it| has_identity(it, false));
        assert_eq!(has, [true, true, false]);
    }
}
