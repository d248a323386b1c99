//! GetMachineStatus.

use ostler_proto::v1alpha1 as proto;
use proto::{DriverCapability, MachineErrorCode, MachinePowerState, Operation};

use super::unanswered::{self, Trouble, ask, goes_on};
use crate::answer::{same_instance, shown};
use crate::bench::Bench;
use crate::by_name;
use crate::check::{Gate, checks};
use crate::core::reasons::wrong;
use crate::driver::Driver;
use crate::machine::again;
use crate::outcome::{NotPassed, Outcome, ensure, failed};

const MANUAL: &str = "operation.proto, GetMachineStatusRequest";

checks! {
    "status/absent" => absent, Must, Session, [], MANUAL;
        does: "answers NOT_FOUND for a machine that has no instance",
        why: "the core creates when it hears NOT_FOUND and only then: an empty result makes it wait for ever, another error keeps it from creating";
    "status/reasons" => reasons, Must, Session, [], "operation.proto, MachineErrorReason";
        does: "gives reasons that the core acts on with their type and with the code that belongs to them",
        why: "the core goes by the type and the code: of a reason that contradicts them it does something else than the driver means";
    "status/same-message" => same_message, Must, Session, [], "operation.proto, OperationError.message";
        does: "says the same of the same failure",
        why: "the text is in the status of the Machine: with a time or the id of a request in it, each try writes all that watch it";
    "status/error-not-absent" => error_not_absent, Must, Session, [Gate::Creates, Gate::BadSecret], MANUAL;
        does: "answers with an error other than NOT_FOUND when it cannot look",
        why: "the core takes NOT_FOUND for the proof that there is no instance, and makes a second one";
    "status/cloud-away" => cloud_away, Must, Cloud, [Gate::Creates, Gate::Probe], unanswered::MANUAL;
        does: "never says NOT_FOUND while the infrastructure does not answer",
        why: "the core takes NOT_FOUND for the proof that there is no instance, and makes a second one";
    "status/by-uid" => by_uid, Must, Session, [Gate::Creates], "driver.proto, \"Identity\"";
        does: "finds an instance by cluster id and UID when the provider id is not known",
        why: "after a crash the core knows no provider id; an instance that is not found then is made a second time";
    "status/after-create" => after_create, Must, Session, [Gate::Creates], MANUAL;
        does: "tells of an instance what CreateMachine told, at the latest two minutes later",
        why: "the core takes the status for the truth: if it differs, machines lose their Node or are made again";
    "status/removed" => removed, Must, Session, [Gate::Creates, Gate::Probe], MANUAL;
        does: "knows at once that an instance is gone which a user ended, and makes a new one when it is asked to",
        why: "a driver that tells what it remembers keeps a machine whose instance is gone, and nobody makes it anew";
    "status/pure" => pure, Must, Session, [Gate::Creates], MANUAL;
        does: "changes nothing when it is asked for a status, however often",
        why: "the core asks often and repeats at will; a hidden repair or initialization happens behind its back";
    "status/wrong-provider-id" => wrong_provider_id, Must, Session, [Gate::Creates], "driver.proto, \"Identity\"";
        does: "looks for the identity when the provider id is that of another machine or of none",
        why: "the core would take the Node of another machine for its own, and delete that one's instance later";
    "status/not-ours" => super::not_ours::status, Must, Session, [Gate::Creates, Gate::Tags], "driver.proto, \"Not ours\"; operation.proto, GetMachineStatusRequest";
        does: "says NOT_OURS, and which instance, where the provider id names one of another machine",
        why: "taken for absent, the machine is made a second time, or given up while its instance runs";
    "status/not-ours-cluster" => super::not_ours::names_cluster, Should, Session, [Gate::Creates, Gate::Tags], "operation.proto, OperationError.cluster_id and DeleteMachineResponse.cluster_id";
        does: "names with NOT_OURS the cluster id in the tags of the instance, in a status as in a deletion",
        why: "the operator sees by it that the cluster once had another id, and tells the core";
    "status/previous-by-name" => super::previous::status_by_name, Capability, Session, [Gate::Creates, Gate::Capability(DriverCapability::PreviousClusterIds)], super::previous::MANUAL;
        does: "says NOT_OURS, with its cluster id, of an instance of the machine's name that has a previous id of the cluster and another UID",
        why: "taken for absent, the machine is made a second time; taken for its own, it may be that of another machine";
    "status/tells-tags" => super::adopt::tells_tags, Must, Session, [Gate::Creates, Gate::Tags], MANUAL;
        does: "tells the UID that is on the instance, also when another machine of its name asks by its provider id",
        why: "the core sees by it that an instance is of a life before, and has it adopted; else it keeps the old UID and looks like an orphan";
}

async fn absent(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let answer = driver.ask(machine.status("")).await?;
    answer.error_of(&[MachineErrorCode::NotFound])?;
    let answer = driver.ask(machine.status("conformance:///no-such-instance")).await?;
    answer.error_of(&[MachineErrorCode::NotFound]).map(drop)
}

/// Of all errors in the run, this is one that every driver has to give.
async fn reasons(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let answer = driver.ask(bench.machine().status("")).await?;
    match wrong(&answer.error("NOT_FOUND")?) {
        Some(came) => Err(failed("a reason that fits its type and its code", came)),
        None => Ok(()),
    }
}

async fn same_message(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    alike(&driver, bench.machine().status("")).await?;
    if bench.options().no_create {
        return Ok(());
    }
    let other = driver.create(&bench.machine()).await?;
    alike(&driver, bench.machine().status(&other.provider_id)).await?;
    if let Some(bad) = &bench.options().bad_class {
        alike(&driver, bench.machine_of(&bench.published("bad", bad)).create()).await?;
    }
    if bench.options().bad_secret.is_some() {
        alike(&driver, bench.machine_of(&bench.denied_class()).create()).await?;
    }
    Ok(())
}

/// What fails twice fails in the same words.
async fn alike(driver: &Driver<'_>, operation: Operation) -> Outcome {
    let first = ask(driver, operation.clone()).await?.error("an error")?;
    let second = ask(driver, again(&operation)).await?.error("an error")?;
    // Of another code it is another failure.
    let same = first.code() != second.code() || first.message == second.message;
    ensure(same, format_args!("{:?} again", first.message), format_args!("{:?}", second.message))
}

async fn error_not_absent(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    let denied = machine.of_class(&bench.denied_class());
    bench.step("asks with credentials that the infrastructure refuses");
    for id in ["", &made.provider_id] {
        let answer = driver.ask(denied.status(id)).await?;
        let Ok(error) = answer.error("an error") else { continue };
        let absent = error.code() == MachineErrorCode::NotFound;
        ensure(!absent, "the instance, or an error other than NOT_FOUND", shown(&error))?;
    }
    Ok(())
}

async fn by_uid(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    let found = driver.status(&machine).await?;
    same_instance(&made, &found)?;
    if by_name::declared(&driver.session.hello) {
        return Ok(());
    }
    // The same name in another life is another machine.
    let stranger = machine.restored();
    let answer = driver.ask(stranger.status("")).await?;
    answer.error_of(&[MachineErrorCode::NotFound]).map(drop)
}

async fn after_create(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    let found = eventually(bench, || async {
        driver.ask(machine.status(&made.provider_id)).await?.machine()
    })
    .await?;
    same_instance(&made, &found)?;
    let expected = format!("machine_name {:?}, machine_uid {:?}", machine.name, machine.uid);
    let came = format!("{:?}, {:?}", found.machine_name, found.machine_uid);
    ensure(found.machine_name == machine.name && found.machine_uid == machine.uid, expected, came)?;
    let off = [MachinePowerState::Stopped, MachinePowerState::Deleting];
    let state = found.power_state();
    ensure(!off.contains(&state), "power_state RUNNING, or PENDING before", state.as_str_name())?;
    ensure(
        made.node_name == found.node_name,
        format_args!("node_name {:?} as CreateMachine said", made.node_name),
        format_args!("{:?}", found.node_name),
    )
}

async fn removed(bench: &Bench) -> Outcome {
    let probe = bench.probe()?;
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    same_instance(&made, &driver.status(&machine).await?)?;
    driver.has_one(&machine).await?;
    probe.remove_instance(&made.provider_id).await?;
    bench.step("--probe-cmd remove-instance");
    for id in ["", &made.provider_id] {
        driver.ask(machine.status(id)).await?.error_of(&[MachineErrorCode::NotFound])?;
    }
    driver.has_none(&machine).await?;
    let new = driver.create(&machine).await?;
    probe.instance(&new.provider_id).await?;
    driver.has_one(&machine).await.map(drop)
}

/// Clouds may need a moment to show what they made.
async fn eventually<T, F: Future<Output = Outcome<T>>>(
    bench: &Bench,
    ask: impl Fn() -> F,
) -> Outcome<T> {
    const VISIBLE: std::time::Duration = std::time::Duration::from_mins(2);
    const PAUSE: std::time::Duration = std::time::Duration::from_secs(2);
    let mut left = bench.scaled(VISIBLE).as_secs() / PAUSE.as_secs();
    loop {
        match ask().await {
            Err(NotPassed::Failed(failure))
                if left > 0 && failure.came.starts_with("NOT_FOUND") =>
            {
                left -= 1;
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

async fn pure(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    let first = driver.status(&machine).await?;
    let journal = match bench.probe() {
        Ok(probe) => Some((probe.clone(), probe.journal_length().await)),
        Err(_) => None,
    };
    let count = bench.options().idempotent_count.clamp(1, 100) * 10;
    for round in 0..count {
        let id = if round % 2 == 0 { made.provider_id.as_str() } else { "" };
        let status = driver.ask(machine.status(id)).await?.machine()?;
        ensure(
            status.initialized == first.initialized,
            format_args!("initialized {:?} as at first", first.initialized),
            format_args!("{:?} after {round} more statuses", status.initialized),
        )?;
        same_instance(&first, &status)?;
    }
    if let Some((probe, Ok(before))) = journal {
        let after = probe.journal_length().await?;
        // In parallel with other checks the cloud changes by itself.
        if bench.options().parallel == 1 {
            ensure(
                before == after,
                "a cloud that does not change while statuses are asked for",
                format_args!("{} changes", after.saturating_sub(before)),
            )?;
        }
    }
    driver.has_one(&machine).await.map(drop)
}

async fn wrong_provider_id(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (one, two) = (bench.machine(), bench.machine());
    let made_one = driver.create(&one).await?;
    let made_two = driver.create(&two).await?;
    let found = driver.ask(one.status(&made_two.provider_id)).await?.machine()?;
    same_instance(&made_one, &found)?;
    let found = driver.ask(one.status("conformance:///no-such-instance")).await?.machine()?;
    same_instance(&made_one, &found)
}

async fn cloud_away(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (machine, absent) = (bench.machine(), bench.machine());
    let made = driver.create(&machine).await?;
    let trouble = Trouble::away(bench).await?;
    for id in ["", &made.provider_id] {
        let answer = ask(&driver, machine.status(id)).await?;
        // A driver that remembers the instance is right, too.
        if answer.machine().is_err() {
            goes_on(&answer)?;
        }
    }
    bench.step("the machine has no instance, which the driver cannot know now");
    goes_on(&ask(&driver, absent.status("")).await?)?;
    alike(&driver, absent.status("")).await?;
    trouble.over(bench).await?;
    same_instance(&made, &driver.status(&machine).await?)?;
    let answer = driver.ask(absent.status("")).await?;
    answer.error_of(&[MachineErrorCode::NotFound]).map(drop)
}
