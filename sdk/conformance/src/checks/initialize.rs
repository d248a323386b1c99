//! InitializeMachine.

use ostler_proto::v1alpha1::{MachineErrorCode, MachineRecord, OperationKind};
use tokio::time::Instant;

use super::unanswered::{self, AWAY, DENIED, Trouble, ask, goes_on};
use crate::answer::same_instance;
use crate::bench::Bench;
use crate::check::{Gate, checks};
use crate::driver::Driver;
use crate::machine::{Machine, again};
use crate::outcome::{Outcome, ensure, failed, not_offered};

const MANUAL: &str = "operation.proto, InitializeMachineRequest";
const KIND: Gate = Gate::Kind(OperationKind::InitializeMachine);

checks! {
    "initialize/flow" => flow, Capability, Session, [KIND, Gate::Creates], MANUAL;
        does: "says initialized=false until InitializeMachine was done, and not any more afterwards",
        why: "the core asks for the initialization by that field alone: a Node that counts before is not ready, one that never counts blocks";
    "initialize/twice" => twice, Capability, Session, [KIND, Gate::Creates], MANUAL;
        does: "initializes again and again with a result each time",
        why: "the core repeats an initialization whose answer it did not hear";
    "initialize/once" => once, Capability, Cloud, [KIND, Gate::Creates, Gate::Probe], MANUAL;
        does: "changes nothing of an instance that is initialized already",
        why: "the core repeats an initialization whose answer it did not hear: what is done once, such as a disk that is formatted, is done to a running machine";
    "initialize/not-ours" => super::not_ours::initialize, Capability, Session, [KIND, Gate::Creates, Gate::Tags], "driver.proto, \"Not ours\"; operation.proto, InitializeMachineRequest";
        does: "says NOT_OURS, and which instance, where the provider id names one of another machine",
        why: "taken for absent, the core makes another instance";
    "initialize/cloud-away" => when_unanswered::<AWAY>, Capability, Cloud, [KIND, Gate::Creates, Gate::Probe], unanswered::MANUAL;
        does: "answers with an error when the infrastructure does not answer, after which the core asks again",
        why: "a Node counts for ready whose instance nobody initialized, or the machine is given up for an outage";
    "initialize/bad-secret" => when_unanswered::<DENIED>, Capability, Session, [KIND, Gate::Creates, Gate::BadSecret], unanswered::MANUAL;
        does: "answers with an error when the credentials are refused, after which the core asks again",
        why: "a Node counts for ready whose instance nobody initialized, or the machine is given up for a secret";
    "initialize/absent" => absent, Capability, Session, [KIND], MANUAL;
        does: "answers NOT_FOUND when there is no such instance, and makes none",
        why: "only CreateMachine makes instances; the core would never hear of this one";
}

/// A machine that is still to be initialized.
pub(super) async fn raw(bench: &Bench, driver: &Driver<'_>) -> Outcome<(Machine, MachineRecord)> {
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    if made.initialized != Some(false) {
        return Err(not_offered("instances of --class need no initialization"));
    }
    Ok((machine, made))
}

fn is_initialized(record: &MachineRecord) -> Outcome {
    ensure(
        record.initialized != Some(false),
        "initialized true or absent after InitializeMachine",
        "initialized false",
    )
}

async fn flow(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (machine, made) = raw(bench, &driver).await?;
    let before = driver.status(&machine).await?;
    ensure(
        before.initialized == Some(false),
        "initialized false",
        format_args!("{:?}", before.initialized),
    )?;
    let done = driver.ask(machine.initialize(&made.provider_id)).await?.machine()?;
    same_instance(&made, &done)?;
    is_initialized(&done)?;
    is_initialized(&driver.status(&machine).await?)?;
    bench.step("created it again");
    is_initialized(&driver.create(&machine).await?)
}

async fn twice(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    let initialize = machine.initialize(&made.provider_id);
    for _ in 0..bench.options().idempotent_count.max(2) {
        let done = driver.ask(again(&initialize)).await?.machine()?;
        same_instance(&made, &done)?;
        is_initialized(&done)?;
    }
    driver.has_one(&machine).await.map(drop)
}

async fn once(bench: &Bench) -> Outcome {
    // Other work may change the cloud now and then, and not each time.
    const TRIES: usize = 5;
    let probe = bench.probe()?;
    let driver = bench.connect().await?;
    for _ in 0..TRIES {
        let machine = bench.machine();
        let made = driver.create(&machine).await?;
        let initialize = machine.initialize(&made.provider_id);
        // What needs none, as it said, changes nothing the first time either.
        if made.initialized == Some(false) {
            driver.ask(initialize.clone()).await?.machine()?;
        }
        let asked = Instant::now();
        let before = probe.journal_length().await?;
        driver.ask(again(&initialize)).await?.machine()?;
        let after = probe.journal_length().await?;
        if after == before {
            return Ok(());
        }
        // Without a request, for as long as this took.
        tokio::time::sleep(asked.elapsed()).await;
        if probe.journal_length().await? != after {
            bench.step("the cloud changes without a request, too: its changes prove nothing");
            return Ok(());
        }
    }
    let expected =
        "a cloud that does not change when an instance is initialized that is so already";
    Err(failed(expected, format_args!("a change each of {TRIES} times")))
}

async fn absent(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let answer = driver.ask(machine.initialize("conformance:///no-such-instance")).await?;
    answer.error_of(&[MachineErrorCode::NotFound])?;
    driver.has_none(&machine).await
}

async fn when_unanswered<const DENIED: bool>(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (machine, made) = raw(bench, &driver).await?;
    let trouble = Trouble::begin(bench, DENIED).await?;
    let asked = machine.of_class(&trouble.class(bench, &machine.class));
    goes_on(&ask(&driver, asked.initialize(&made.provider_id)).await?)?;
    trouble.over(bench).await?;
    let done = driver.ask(machine.initialize(&made.provider_id)).await?.machine()?;
    same_instance(&made, &done)
}
