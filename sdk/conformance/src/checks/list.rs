//! ListMachines.

use std::collections::BTreeSet;

use ostler_proto::v1alpha1::{DriverCapability, MachineRecord, PartRecord, ProviderIdComparison};

use super::unanswered::{self, Trouble, ask, goes_on};
use crate::bench::Bench;
use crate::check::{Gate, checks};
use crate::machine::{self, uids};
use crate::outcome::{Outcome, ensure};

const MANUAL: &str = "operation.proto, ListMachinesRequest";
/// A create is broken off after so many changes at most.
const MOST_CHANGES: u32 = 4;

checks! {
    "list/exact" => exact, Must, Session, [Gate::Creates], MANUAL;
        does: "lists exactly the instances of the cluster, each with name, UID and a provider id that is none of another by its own comparison, and nothing once they are deleted",
        why: "the core finds by the list what is not wanted any more: one that is missing is never deleted, one too many is; and it tells Nodes by their ids";
    "list/at-once" => at_once, Must, Session, [Gate::Creates], "session.proto, Hello.list_lag";
        does: "shows an instance as soon as CreateMachine has returned it, and none once it is deleted, or says by `list_lag` how late",
        why: "the core takes what is not listed for absent: after an answer that was lost it makes a second instance";
    "list/other-cluster" => other_cluster, Must, Session, [Gate::Creates, Gate::Tags], MANUAL;
        does: "lists no instance of another cluster",
        why: "to this core it belongs to no machine: it would be deleted as an orphan";
    "list/error-not-empty" => error_not_empty, Must, Session, [Gate::Creates, Gate::BadSecret], MANUAL;
        does: "answers with an error when it cannot look, never with an empty or partial list",
        why: "an empty list means that nothing is there: the core would forget, or make everything anew";
    "list/cloud-away" => cloud_away, Must, Cloud, [Gate::Creates, Gate::Probe], unanswered::MANUAL;
        does: "answers with an error while the infrastructure does not answer, never with an empty or partial list",
        why: "an empty list means that nothing is there: the core would forget, or make everything anew";
    "list/parts" => parts, Should, Cloud, [Gate::Creates], "operation.proto, PartRecord";
        does: "lists parts (disks, network cards) with id and UID, those alone that belong to no instance, and those that a create left which broke off",
        why: "nothing else finds what a half-made instance left, and it costs money; of a part with an instance or without a UID the core would delete the wrong thing";
    "list/pages" => super::pages::sent, Capability, Session, [Gate::Creates, Gate::Capability(DriverCapability::PagedLists), Gate::Many], "session.proto, OperationPage";
        does: "sends a list of more than 500 records in pages, in order, without gap or repetition",
        why: "a frame that is too large kills the whole stream, at the moment when there are many machines";
    "list/untagged" => super::adopt::listed_untagged, Should, Session, [Gate::Creates, Gate::Tags, Gate::McmClass, Gate::Probe], MANUAL;
        does: "lists an instance that has the tags of machine-controller-manager and none of ours, with its name and no UID",
        why: "its Machine may be gone: an instance that no list shows runs on for good";
    "list/previous-cluster" => super::previous::list, Capability, Session, [Gate::Creates, Gate::Capability(DriverCapability::PreviousClusterIds)], super::previous::MANUAL;
        does: "lists what has a previous id of the cluster, with that id in the record, and lists it to no cluster that never had that id",
        why: "the core deletes as an orphan what has the id of today and no Machine; it must know which ones have another id";
}

async fn exact(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let listed = async || -> Outcome<Vec<MachineRecord>> {
        let all = driver.list().await?;
        Ok(all.into_iter().filter(|it| bench.counts(it)).collect())
    };
    ensure(listed().await?.is_empty(), "an empty list of a new cluster", "records")?;
    let machines = [bench.machine(), bench.machine(), bench.machine()];
    for machine in &machines {
        driver.create(machine).await?;
    }
    let found = listed().await?;
    let wanted: BTreeSet<String> = machines.iter().map(|machine| machine.uid.clone()).collect();
    let got = uids(&found);
    ensure(
        got == wanted && found.len() == machines.len(),
        format_args!("the UIDs {wanted:?}, each once"),
        format_args!("{} records with {got:?}", found.len()),
    )?;
    for machine in &machines {
        let named =
            found.iter().any(|it| it.machine_uid == machine.uid && it.machine_name == machine.name);
        ensure(named, format_args!("machine_name {} in its record", machine.name), "another")?;
    }
    let compares = driver.session.hello.provider_id_comparison();
    let keys: BTreeSet<_> = found.iter().map(|it| compared(&it.provider_id, compares)).collect();
    ensure(
        keys.len() == found.len(),
        format_args!("provider ids of which none equals another by {}", compares.as_str_name()),
        format_args!("{:?}", found.iter().map(|it| &it.provider_id).collect::<Vec<_>>()),
    )?;
    if let Some(hot) = &bench.options().hot_class {
        bench.step("lists with --hot-class, of which no instance is yet");
        let class = bench.published("hot", hot);
        let all = driver.list_of(&class, bench.cluster_id()).await?;
        let got = uids(all.iter().filter(|it| bench.counts(it)));
        ensure(got == wanted, "the same, whatever the class says", format_args!("{got:?}"))?;
    }
    for machine in &machines {
        driver.delete(machine).await?;
    }
    let left = uids(&listed().await?);
    ensure(left.is_empty(), "an empty list after all is deleted", format_args!("{left:?}"))
}

/// The same for ids that are equal.
fn compared(id: &str, by: ProviderIdComparison) -> String {
    match by {
        ProviderIdComparison::Unspecified | ProviderIdComparison::Exact => id.to_owned(),
        ProviderIdComparison::CaseInsensitive => id.to_ascii_lowercase(),
        ProviderIdComparison::LastSegment => {
            let scheme = id.split_once("://").map_or("", |(scheme, _)| scheme);
            let last = id.rsplit_once('/').map_or(id, |(_, last)| last);
            format!("{scheme}://{last}")
        }
    }
}

/// What is late is noted where it is seen, here and in other checks.
async fn at_once(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    driver.create(&machine).await?;
    driver.has_one(&machine).await?;
    driver.delete(&machine).await?;
    driver.has_none(&machine).await
}

async fn parts(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    driver.create(&machine).await?;
    let listed = driver.ask(machine.list()).await?.parts()?;
    let named = listed.iter().all(|it| !it.id.is_empty() && !it.machine_uid.is_empty());
    ensure(named, "parts with an id and a UID", "one without")?;
    let of = |parts: &[PartRecord], uid: &str| parts.iter().any(|it| it.machine_uid == uid);
    ensure(!of(&listed, &machine.uid), "no part of an instance that is there", "one")?;
    driver.delete(&machine).await?;
    let Ok(probe) = bench.probe() else { return Ok(()) };
    for changes in 1..=MOST_CHANGES {
        let machine = bench.machine();
        bench.break_cloud(Some(changes)).await?;
        let answer = ask(&driver, machine.create()).await?;
        bench.break_cloud(None).await?;
        if answer.machine().is_ok() {
            return driver.delete(&machine).await;
        }
        let whole = !probe.instances_of(&machine).await?.is_empty();
        let left = !probe.resources_of(&machine.uid).await?.is_empty();
        let listed = driver.ask(machine.list()).await?.parts()?;
        let wanted = left && !whole;
        ensure(
            !wanted || of(&listed, &machine.uid),
            format_args!("in `parts` what a create left that broke off after change {changes}"),
            "no part of its UID",
        )?;
        let theirs = machine.of_cluster(&format!("{}-other", bench.cluster_id()));
        let foreign = of(&driver.ask(theirs.list()).await?.parts()?, &machine.uid);
        ensure(!foreign, "no part of another cluster", "one")?;
        driver.ask(machine.delete("")).await?.result()?;
        let left = probe.resources_of(&machine.uid).await?.len();
        ensure(left == 0, "nothing of it left once it is deleted by its UID", left)?;
    }
    Ok(())
}

async fn other_cluster(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let ours = bench.machine();
    let theirs = bench.machine().of_cluster(&format!("{}-other", bench.cluster_id()));
    driver.create(&ours).await?;
    driver.create(&theirs).await?;
    for machine in [&ours, &theirs] {
        let all = driver.list_of(&machine.class, &machine.cluster_id).await?;
        let listed = uids(all.iter().filter(|it| bench.counts(it)));
        let wanted = BTreeSet::from([machine.uid.clone()]);
        ensure(
            listed == wanted,
            format_args!("only the machine of cluster {}", machine.cluster_id),
            format_args!("{} machines: {listed:?}", listed.len()),
        )?;
    }
    Ok(())
}

async fn error_not_empty(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    driver.create(&machine).await?;
    let class = bench.denied_class();
    bench.step("lists with credentials that the infrastructure refuses");
    let answer = driver.ask(machine::list(&class, bench.cluster_id())).await?;
    let Ok(records) = answer.machines() else { return Ok(()) };
    ensure(
        uids(&records).contains(&machine.uid),
        "an error, or else the whole list",
        format_args!("a result with {} records, without the machine that is there", records.len()),
    )
}

async fn cloud_away(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    driver.create(&machine).await?;
    let trouble = Trouble::away(bench).await?;
    let answer = ask(&driver, machine::list(&bench.class(), bench.cluster_id())).await?;
    if let Ok(records) = answer.machines() {
        let whole = records.iter().any(|it| it.machine_uid == machine.uid);
        let expected = "an error, or else the whole list";
        ensure(whole, expected, "a result without the machine that is there")?;
    } else {
        goes_on(&answer)?;
    }
    trouble.over(bench).await?;
    driver.has_one(&machine).await.map(drop)
}
