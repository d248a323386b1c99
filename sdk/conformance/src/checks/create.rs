//! CreateMachine.

use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::{DriverCapability, MachineErrorCode, Operation};

use super::interrupted::truthful;
use super::unanswered::{self, Trouble, ask, goes_on};
use crate::answer::{same_instance, tells_paths};
use crate::bench::Bench;
use crate::by_name;
use crate::check::{Gate, checks};
use crate::driver::{ACCEPT, Asked, Driver, speaks_of};
use crate::machine::{Machine, again};
use crate::observation::Rule;
use crate::outcome::{Outcome, ensure, failed, not_offered, same};

const MANUAL: &str = "operation.proto, CreateMachineRequest";
const IDENTITY: &str = "driver.proto, \"Identity\" and \"Idempotency\"";

checks! {
    "create/basic" => basic, Must, Session, [Gate::Creates], MANUAL;
        does: "makes an instance with a provider id, and the name and UID of its machine",
        why: "the core finds the Node by the provider id, and the instance by name and UID";
    "create/same-key-new-id" => same_key_new_id, Must, Session, [Gate::Creates], IDENTITY;
        does: "returns the instance that is there when the same intent comes again with a new operation id",
        why: "that is every retry after a crash; a second instance costs money, and no Machine refers to it";
    "create/same-id-twice" => same_id_twice, Must, Link, [Gate::Creates], "operation.proto, Operation";
        does: "accepts an operation again that arrives twice while it runs, and answers it the same again once it is done",
        why: "delivery is at least once: a core that heard nothing sends the same operation again";
    "create/parallel-same-target" => parallel_same_target, Must, Session, [Gate::Creates], IDENTITY;
        does: "makes one instance when two creates of one machine arrive together; the second gets the same result or ABORTED",
        why: "a core that restarted may ask while the operation of its predecessor still runs";
    "create/incompatible" => incompatible, Should, Session, [Gate::Creates, Gate::AltClass], MANUAL;
        does: "answers ALREADY_EXISTS for a machine whose instance does not fit the class, and changes nothing",
        why: "an instance of another shape than asked for is a surprise that shows late";
    "create/bad-class" => bad_class, Must, Session, [Gate::Creates, Gate::BadClass], MANUAL;
        does: "refuses a provider spec that is wrong with INVALID_ARGUMENT, NOT_APPLIED and the path of what is wrong",
        why: "the core shows the path to the author of the class, and waits for a change instead of trying for ever";
    "create/bad-secret" => bad_secret, Must, Session, [Gate::Creates, Gate::BadSecret], MANUAL;
        does: "answers UNAUTHENTICATED or PERMISSION_DENIED, NOT_APPLIED, when the credentials are refused",
        why: "the core tries again as soon as the secret changes, which it does not after other errors";
    "create/cloud-away" => cloud_away, Must, Cloud, [Gate::Creates, Gate::Probe], unanswered::MANUAL;
        does: "answers with an error when the infrastructure does not answer, after which the core asks again, and says truthfully what is left",
        why: "an outage must neither fail a machine for good nor leave an instance that nobody looks for";
    "create/max-name" => max_name, Must, Session, [Gate::Creates], MANUAL;
        does: "keeps names of 63 characters whole, or refuses them with INVALID_ARGUMENT",
        why: "names that are cut to the same beginning make two machines share an instance";
    "create/prefix-name" => prefix_name, Must, Session, [Gate::Creates], IDENTITY;
        does: "tells two machines apart of which the name of one begins with that of the other",
        why: "machines of a set are called alike: the instance of one would be taken for that of the other, or deleted with it";
    "create/zone" => super::adopt::zone, Capability, Session, [Gate::Creates, Gate::Probe], "operation.proto, MachineMetadata.zone";
        does: "makes an instance in the zone of its Machine, where the infrastructure has several",
        why: "its volumes and its share of a spread are in that zone: elsewhere its pods never start";
    "create/restored-provider-id" => restored_provider_id, Must, Session, [Gate::Creates, Gate::Tags], "driver.proto, \"Identity\"; operation.proto, CreateMachineRequest.provider_id";
        does: "adopts the instance of a known provider id whose cluster and name match, and puts the new UID on it",
        why: "after a restore of the cluster all UIDs are new; without this every machine is made a second time";
    "create/request-tags" => super::adopt::request_tags, Must, Session, [Gate::Creates, Gate::Tags, Gate::Probe], MANUAL;
        does: "puts every tag of the request on the instance that it makes",
        why: "people and programs find by them what an instance is for, and they are not added later";
    "create/adopt-by-name" => super::adopt::by_name, Should, Session, [Gate::Creates, Gate::Tags, Gate::McmClass, Gate::Probe], IDENTITY;
        does: "adopts an instance of the machine's name that has the tags of its cluster and no UID, if it is asked to, and puts the identity on it",
        why: "a cluster that comes from machine-controller-manager keeps its instances; else each is made a second time";
    "create/adopt-only-unclaimed" => super::adopt::only_unclaimed, Must, Session, [Gate::Creates, Gate::Tags], IDENTITY;
        does: "takes no instance for its name alone: not one with another UID, nor one of another cluster",
        why: "the machine of that name may be another one, and its instance would get two owners";
    "create/previous-by-id" => super::previous::create_by_id, Capability, Session, [Gate::Creates, Gate::Capability(DriverCapability::PreviousClusterIds)], super::previous::MANUAL;
        does: "adopts the instance of a known provider id that has a previous id of the cluster, and puts the tags of today on it",
        why: "after a migration of the control plane that is every instance; one that keeps its old tags is lost when the old id is forgotten";
    "create/previous-by-uid" => super::previous::create_by_uid, Capability, Session, [Gate::Creates, Gate::Capability(DriverCapability::PreviousClusterIds)], super::previous::MANUAL;
        does: "finds an instance of the machine's UID that has a previous id of the cluster, puts the tags of today on it, and makes no second one",
        why: "a create whose answer was lost before the migration comes again after it";
    "create/previous-by-name" => super::previous::create_by_name, Capability, Session, [Gate::Creates, Gate::Capability(DriverCapability::PreviousClusterIds)], super::previous::MANUAL;
        does: "makes nothing beside an instance of the machine's name that has a previous id of the cluster and another UID, and does not take it: NOT_OURS, with its cluster id",
        why: "it may be that of this machine or of another one of that name; only the operator knows";
    "create/tags-atomic" => super::interrupted::tags_atomic, Must, Cloud, [Gate::Creates, Gate::Probe], IDENTITY;
        does: "tags an instance in the call that makes it: after no change of a create is there an instance without identity",
        why: "the driver may die between two calls, and an instance without tags cannot be found: it is made again, and the first one is paid for";
    "create/killed-early" => super::interrupted::killed_early, Must, Process, [Gate::Creates], IDENTITY;
        does: "leaves no instance without identity, however early it dies, and makes no second one",
        why: "an instance without tags cannot be found: it is made again, and the first one is paid for until a person wonders";
    "create/beside-others" => beside_others, Must, Session, [Gate::Creates], "machine_driver.proto, GetInfoResponse.max_in_flight";
        does: "answers for others while an instance is made, if it takes more than one operation at a time",
        why: "the core sends as much as the driver takes: all machines of the provider wait for one that boots";
    "create/cancel" => super::interrupted::cancel, Capability, Session, [Gate::Creates, Gate::Capability(DriverCapability::Cancel)], "session.proto, OperationCancel";
        does: "completes a cancelled create within 30 s, and says truthfully what is left of it",
        why: "the core deletes a machine only once its create ended, and by what that said";
    "create/timeout" => super::interrupted::timeout, Should, Session, [Gate::Creates], "driver.proto, \"Time\"";
        does: "completes by the end of its time, if need be with DEADLINE_EXCEEDED and its certainty",
        why: "the core waits 15 s longer, then takes the outcome for unknown";
    "create/user-data-intact" => user_data_intact, Should, Session, [Gate::Creates, Gate::Probe], "operation.proto, BootstrapData";
        does: "hands user data to the instance byte for byte, also when it is empty, large or binary",
        why: "one changed byte and the instance does not become a Node, without a word why";
}

async fn basic(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    same("machine_name", &made.machine_name, &machine.name)?;
    same("machine_uid", &made.machine_uid, &machine.uid)?;
    let listed = driver.has_one(&machine).await?;
    same_instance(&made, &listed)?;
    driver.delete(&machine).await?;
    let answer = driver.ask(machine.status("")).await?;
    answer.error_of(&[MachineErrorCode::NotFound]).map(drop)
}

async fn same_key_new_id(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let create = machine.create();
    let first = driver.ask(create.clone()).await?.machine()?;
    for _ in 1..bench.options().idempotent_count.max(2) {
        let next = driver.ask(again(&create)).await?.machine()?;
        same_instance(&first, &next)?;
    }
    driver.has_one(&machine).await.map(drop)
}

async fn same_id_twice(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    driver.session.acknowledge(false);
    let machine = bench.slow_machine();
    let asked = driver.start(machine.create())?;
    asked.accepted().await?;
    if !asked.is_completed() {
        let from = driver.session.log.len();
        bench.step("sent the same operation again while it runs");
        send_again(&driver, &asked.operation, 2)?;
        let id = &asked.operation.operation_id;
        let expected = "a frame that names the same operation_id again";
        driver.expect(from, ACCEPT, expected, |frame| speaks_of(frame, id).then_some(())).await?;
    }
    let first = asked.answer().await?;
    if first.passing().is_none_or(|error| error.code() == MachineErrorCode::Aborted) {
        // The second delivery is no operation of its own that the first one could be in the way of.
        first.machine()?;
    }
    bench.step("sent the same operation again after its end");
    let again = driver.asked(asked.operation.clone());
    send_again(&driver, &again.operation, 3)?;
    let second = again.answer().await?;
    ensure(
        first.completed == second.completed,
        "the same completion again",
        format_args!("{:?} and then {:?}", first.completed, second.completed),
    )?;
    driver.session.acknowledge_result(&asked.operation.operation_id)?;
    driver.session.acknowledge(true);
    let made = driver.settle(&asked.operation, first).await?.machine()?;
    same_instance(&made, &driver.has_one(&machine).await?)
}

fn send_again(driver: &Driver<'_>, operation: &Operation, delivery: u32) -> Outcome {
    let operation = Operation { delivery, ..operation.clone() };
    driver.bench.harness.core().dispatch(&driver.session, &operation)
}

async fn parallel_same_target(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.slow_machine();
    let create = machine.create();
    let both = [driver.start(create.clone())?, driver.start(again(&create))?];
    let mut made: Option<proto::MachineRecord> = None;
    for asked in both {
        let answer = asked.answer().await?;
        match answer.machine() {
            Ok(record) => {
                if let Some(first) = &made {
                    same_instance(first, &record)?;
                }
                made = Some(record);
            }
            // ABORTED, or what a cloud in trouble answers.
            Err(_) if answer.passing().is_some() => {}
            Err(failed) => return Err(failed),
        }
    }
    let found = driver.create(&machine).await?;
    if let Some(made) = &made {
        same_instance(made, &found)?;
    }
    driver.has_one(&machine).await.map(drop)
}

async fn beside_others(bench: &Bench) -> Outcome {
    const TRIES: usize = 5;
    const SLOW: Duration = Duration::from_secs(1);
    let driver = bench.connect().await?;
    if driver.session.hello.max_in_flight < 2 {
        return Err(not_offered("the driver takes one operation at a time"));
    }
    for _ in 0..TRIES {
        let machine = bench.slow_machine();
        let asked = driver.start(machine.create())?;
        asked.under_way().await?;
        driver.list().await?;
        let listed = asked.sent.elapsed();
        if is_there_before_its_end(&driver, &asked, &machine).await? {
            let records = driver.listed(&machine).await?;
            if records.is_empty() {
                let came = "the list does not show an instance that boots, and that the cloud has";
                bench.harness.setup.observations.add(Rule::ListAtOnce, came);
            }
        }
        let made = asked.settled().await?;
        made.machine()?;
        // The list of a driver that waits for the end of the create comes with it.
        if listed < made.took * 3 / 4 {
            return Ok(());
        }
        // A create that is over at once holds up nobody.
        if made.took < SLOW {
            return Ok(());
        }
    }
    Err(failed(
        "a list while an instance is made",
        format_args!("none before its end, {TRIES} times"),
    ))
}

/// Whether the cloud has an instance of the machine while it is made; false if nobody shows that, or lists may lag.
async fn is_there_before_its_end(
    driver: &Driver<'_>,
    asked: &Asked<'_>,
    machine: &Machine,
) -> Outcome<bool> {
    let Ok(probe) = driver.bench.probe() else { return Ok(false) };
    while !asked.is_completed() {
        if !probe.instances_of(machine).await?.is_empty() {
            return Ok(driver.list_lag().is_zero());
        }
    }
    Ok(false)
}

async fn incompatible(bench: &Bench) -> Outcome {
    let alt = bench.other_class("alt", bench.options().alt_class.as_ref())?;
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    let answer = driver.ask(machine.of_class(&alt).create()).await?;
    answer.error_of(&[MachineErrorCode::AlreadyExists])?;
    bench.step("asks for the first class again, which must still fit");
    let still = driver.create(&machine).await?;
    same_instance(&made, &still)?;
    driver.has_one(&machine).await.map(drop)
}

async fn bad_class(bench: &Bench) -> Outcome {
    let bad = bench.other_class("bad", bench.options().bad_class.as_ref())?;
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let answer = driver.ask(machine.of_class(&bad).create()).await?;
    let error = answer.refusal(&[MachineErrorCode::InvalidArgument])?;
    if by_name::declared(&driver.session.hello) {
        return driver.has_none(&machine).await; // the providers that know no tags tell no paths either
    }
    tells_paths(&error)?;
    driver.has_none(&machine).await
}

async fn bad_secret(bench: &Bench) -> Outcome {
    let class = bench.denied_class();
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let answer = driver.ask(machine.of_class(&class).create()).await?;
    answer.refusal(&[MachineErrorCode::Unauthenticated, MachineErrorCode::PermissionDenied])?;
    driver.has_none(&machine).await
}

async fn max_name(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let start = bench.machine().name;
    let fill = "x".repeat(62_usize.saturating_sub(start.len() + 1));
    let named = |last: &str| Machine { name: format!("{start}-{fill}{last}"), ..bench.machine() };
    let (one, two) = (named("1"), named("2"));
    let mut made: Vec<proto::MachineRecord> = Vec::new();
    for machine in [&one, &two] {
        let answer = driver.ask(machine.create()).await?;
        let Ok(record) = answer.machine() else {
            answer.refusal(&[MachineErrorCode::InvalidArgument])?;
            continue;
        };
        same("machine_name", &record.machine_name, &machine.name)?;
        made.push(record);
    }
    if let [one, two] = made.as_slice() {
        ensure(
            one.provider_id != two.provider_id,
            "two instances for two names that differ in their last character",
            format_args!("{} for both", one.provider_id),
        )?;
    }
    Ok(())
}

async fn prefix_name(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let short = bench.machine();
    let long = Machine { name: format!("{}0", short.name), ..bench.machine() };
    let other = driver.create(&long).await?;
    bench.step(format_args!("{} has no instance, and {} has one", short.name, long.name));
    driver.ask(short.status("")).await?.error_of(&[MachineErrorCode::NotFound])?;
    let made = driver.create(&short).await?;
    ensure(made.provider_id != other.provider_id, "an instance for each", "one for both")?;
    driver.delete(&short).await?;
    same_instance(&other, &driver.has_one(&long).await?)
}

async fn restored_provider_id(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let before = bench.machine();
    let made = driver.create(&before).await?;
    let after = before.restored();
    bench.step("the same machine after a restore: new UID, known provider id");
    let adopted = driver.ask(after.create_known(&made.provider_id)).await?.machine()?;
    same_instance(&made, &adopted)?;
    let found = driver.status(&after).await?;
    same_instance(&made, &found)?;
    same("machine_uid", &found.machine_uid, &after.uid)?;
    driver.has_one(&after).await?;
    driver.has_none(&before).await?;
    bench.step("an id that is gone");
    let fresh = bench.machine();
    let gone = format!("{}-gone", made.provider_id);
    let new = driver.ask(fresh.create_known(&gone)).await?.machine()?;
    ensure(
        new.provider_id != made.provider_id && !new.provider_id.is_empty(),
        "a new instance for a machine whose known id is gone",
        format_args!("{:?}", new.provider_id),
    )
}

async fn user_data_intact(bench: &Bench) -> Outcome {
    let probe = bench.probe()?;
    let driver = bench.connect().await?;
    let bytes = (0..=u8::MAX).collect::<Vec<u8>>();
    let samples = [
        ("empty", Vec::new()),
        ("one byte", b"x".to_vec()),
        ("16 KiB", b"0123456789abcdef".repeat(1024)),
        ("binary", bytes),
        ("UTF-8", "#cloud-config\n# Grüße 🐎\r\n".as_bytes().to_vec()),
    ];
    for (name, sample) in samples {
        let machine = bench.machine().with_user_data(sample.clone());
        bench.step(format_args!("user data: {name}"));
        let made = driver.create(&machine).await?;
        let seen = probe.instance(&made.provider_id).await?;
        let got = seen.user_data()?;
        ensure(
            got == sample,
            format_args!("{} bytes of user data ({name}), unchanged", sample.len()),
            format_args!("{} bytes, others", got.len()),
        )?;
    }
    Ok(())
}

async fn cloud_away(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let trouble = Trouble::away(bench).await?;
    let answer = ask(&driver, machine.create()).await?;
    goes_on(&answer)?;
    trouble.over(bench).await?;
    truthful(&driver, &machine, &answer).await?;
    driver.create(&machine).await?;
    driver.has_one(&machine).await.map(drop)
}
