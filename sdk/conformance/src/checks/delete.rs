//! DeleteMachine.

use ostler_proto::v1alpha1::{DeletionOutcome, DriverCapability, MachineErrorCode};

use super::unanswered::{self, Trouble, ask, goes_on};
use crate::answer::{same_instance, shown};
use crate::bench::Bench;
use crate::check::{Gate, checks};
use crate::machine::again;
use crate::outcome::{Outcome, ensure, skipped};

const MANUAL: &str = "operation.proto, DeleteMachineRequest";

checks! {
    "delete/basic" => basic, Must, Session, [Gate::Creates], MANUAL;
        does: "answers with a result once the instance is gone: no status, no list and no cloud knows it any more",
        why: "the core forgets the machine then; what is still there costs money and holds names, and no program looks for it";
    "delete/twice" => twice, Must, Session, [Gate::Creates], MANUAL;
        does: "deletes again and again with a result each time",
        why: "the core repeats a delete whose answer it did not hear; an error then blocks the machine for ever";
    "delete/error-not-gone" => error_not_gone, Must, Session, [Gate::Creates, Gate::BadSecret], MANUAL;
        does: "answers with an error other than NOT_FOUND when it cannot look, and never that the instance is gone",
        why: "the core forgets the machine then, and its instance runs on";
    "delete/cloud-away" => cloud_away, Must, Cloud, [Gate::Creates, Gate::Probe], unanswered::MANUAL;
        does: "never says that the instance is gone while the infrastructure does not answer",
        why: "the core forgets the machine then, and its instance runs on";
    "delete/unknown" => unknown, Must, Session, [], MANUAL;
        does: "answers the deletion of a machine that never had an instance with a result",
        why: "that is how a create ends of which it is not known whether it made anything";
    "delete/by-uid" => by_uid, Must, Session, [Gate::Creates], MANUAL;
        does: "finds what to delete by cluster id and UID when the provider id is not known",
        why: "after a lost create the core knows no provider id, and the instance would stay";
    "delete/dependents" => dependents, Should, Session, [Gate::Creates, Gate::Probe], MANUAL;
        does: "deletes disks, network cards and addresses with the instance that they were made for",
        why: "they cost money, run into quotas, and block the name for the next machine";
    "delete/says-which" => says_which, Must, Session, [Gate::Creates], MANUAL;
        does: "says DELETED where there was an instance, and WAS_ABSENT where there was none",
        why: "of a machine that it never adopted the core believes the absence only when it hears it twice";
    "delete/not-ours" => super::not_ours::delete, Must, Session, [Gate::Creates, Gate::Tags], "driver.proto, \"Not ours\"; operation.proto, DeleteMachineRequest";
        does: "says NOT_OURS, and which instance, where the provider id names one of another machine",
        why: "taken for gone, the instance is left running, and no Machine refers to it";
    "delete/previous" => super::previous::delete, Capability, Session, [Gate::Creates, Gate::Capability(DriverCapability::PreviousClusterIds)], super::previous::MANUAL;
        does: "deletes an instance that has a previous id of the cluster, by its provider id and by the UID",
        why: "a machine that is deleted before it was adopted would leave its instance behind, or never end";
    "delete/previous-by-name" => super::previous::delete_by_name, Capability, Session, [Gate::Creates, Gate::Capability(DriverCapability::PreviousClusterIds)], super::previous::MANUAL;
        does: "leaves an instance alone that has the machine's name, a previous id of the cluster and another UID: NOT_OURS, with its cluster id",
        why: "it may run for another machine; said to be gone, it would run on and no machine would know of it";
    "delete/foreign-cluster" => foreign_cluster, Must, Session, [Gate::Creates, Gate::Tags], "driver.proto, \"Identity\"; operation.proto, DeleteMachineRequest";
        does: "touches no instance of another cluster or machine, even when its provider id is given",
        why: "one wrong id would delete a machine of another owner, with all that runs on it";
}

async fn basic(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (doomed, bystander) = (bench.machine(), bench.machine());
    let made = driver.create(&doomed).await?;
    let other = driver.create(&bystander).await?;
    same_instance(&made, &driver.status(&doomed).await?)?;
    driver.ask(doomed.delete(&made.provider_id)).await?.result()?;
    let answer = driver.ask(doomed.status(&made.provider_id)).await?;
    answer.error_of(&[MachineErrorCode::NotFound])?;
    driver.has_none(&doomed).await?;
    if let Ok(probe) = bench.probe() {
        let kept =
            probe.instances().await?.into_iter().find(|it| it.provider_id == made.provider_id);
        ensure(kept.is_none(), "no instance of this id in the cloud", &made.provider_id)?;
    }
    let left = driver.status(&bystander).await?;
    same_instance(&other, &left)
}

async fn error_not_gone(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    let denied = machine.of_class(&bench.denied_class());
    bench.step("deletes with credentials that the infrastructure refuses");
    for id in ["", &made.provider_id] {
        let answer = driver.ask(denied.delete(id)).await?;
        let error = answer.error("an error, since the infrastructure refuses the credentials")?;
        let absent = error.code() == MachineErrorCode::NotFound;
        ensure(!absent, "an error other than NOT_FOUND", shown(&error))?;
    }
    same_instance(&made, &driver.status(&machine).await?)
}

async fn twice(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    let delete = machine.delete(&made.provider_id);
    for _ in 0..bench.options().idempotent_count.max(2) {
        driver.ask(again(&delete)).await?.result()?;
    }
    driver.has_none(&machine).await
}

async fn unknown(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    driver.ask(machine.delete("")).await?.result()?;
    driver.ask(machine.delete("conformance:///no-such-instance")).await?.result().map(drop)
}

async fn says_which(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    let delete = machine.delete(&made.provider_id);
    driver.ask(again(&delete)).await?.deletion(DeletionOutcome::Deleted)?;
    driver.ask(again(&delete)).await?.deletion(DeletionOutcome::WasAbsent)?;
    driver.ask(bench.machine().delete("")).await?.deletion(DeletionOutcome::WasAbsent)?;
    bench.step("made it once more");
    driver.create(&machine).await?;
    driver.ask(machine.delete("")).await?.deletion(DeletionOutcome::Deleted).map(drop)
}

async fn by_uid(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    driver.create(&machine).await?;
    driver.delete(&machine).await?;
    driver.has_none(&machine).await?;
    let answer = driver.ask(machine.status("")).await?;
    answer.error_of(&[MachineErrorCode::NotFound]).map(drop)
}

async fn dependents(bench: &Bench) -> Outcome {
    let probe = bench.probe()?;
    let driver = bench.connect().await?;
    let machine = bench.machine();
    driver.create(&machine).await?;
    if probe.resources_of(&machine.uid).await?.is_empty() {
        return Err(skipped("--probe-cmd resources shows nothing of the UID of a new machine"));
    }
    driver.delete(&machine).await?;
    let left = probe.resources_of(&machine.uid).await?;
    let names: Vec<String> = left.iter().map(|it| format!("{} {}", it.kind, it.id)).collect();
    ensure(names.is_empty(), "nothing left of the machine in the cloud", names.join(", "))
}

async fn foreign_cluster(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let ours = bench.machine();
    let theirs = bench.machine().of_cluster(&format!("{}-other", bench.cluster_id()));
    let other = bench.machine();
    let foreign = driver.create(&theirs).await?;
    let neighbour = driver.create(&other).await?;
    let parts = async || -> usize {
        let Ok(probe) = bench.probe() else { return 0 };
        probe.resources_of(&theirs.uid).await.map_or(0, |it| it.len())
    };
    let before = parts().await;
    bench.step("asks to delete a machine without instance, by the ids of others");
    driver.ask(ours.delete(&foreign.provider_id)).await?.result()?;
    driver.ask(ours.delete(&neighbour.provider_id)).await?.result()?;
    // Same name and UID, but of our cluster.
    let namesake = theirs.of_cluster(bench.cluster_id());
    driver.ask(namesake.delete(&foreign.provider_id)).await?.result()?;
    let left = parts().await;
    ensure(left == before, format_args!("{before} parts of the other cluster"), left)?;
    let left = driver.status(&theirs).await?;
    same_instance(&foreign, &left)?;
    let left = driver.status(&other).await?;
    same_instance(&neighbour, &left)
}

async fn cloud_away(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    let trouble = Trouble::away(bench).await?;
    for id in ["", &made.provider_id] {
        goes_on(&ask(&driver, machine.delete(id)).await?)?;
    }
    trouble.over(bench).await?;
    same_instance(&made, &driver.has_one(&machine).await?)?;
    driver.delete(&machine).await?;
    driver.has_none(&machine).await
}
