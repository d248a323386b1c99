//! What only a unary driver can break: its adapter ends, and it works on.

use ostler_proto::v1alpha1 as proto;
use proto::{HeldVerdict, OperationKind, ResumeOutcome, RoleKind, Verdict};

use super::resilience::{held, must_hold, resent};
use crate::answer::{same_instance, shown};
use crate::bench::Bench;
use crate::check::{Gate, checks};
use crate::outcome::{Outcome, ensure};

checks! {
    "unary/adapter-killed" => adapter_killed, Must, Adapter, [Gate::Creates], "machine_driver.proto, \"In short\" 4, and GetInfo";
        does: "goes on with a create whose adapter was killed, tells the next adapter of it, and has made one instance",
        why: "an adapter is upgraded and killed like any process: work that ends with it, or is not told of, is done a second time";
}

async fn adapter_killed(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let model = driver.ask(bench.slow_machine().create()).await?;
    model.machine()?;
    let machine = bench.slow_machine();
    let asked = driver.start(machine.create())?;
    asked.under_way().await?;
    bench.step("killed the adapter with SIGKILL; the driver is a process of its own");
    bench.harness.forget_process();
    let session = bench.harness.arrival().await?;
    let told = must_hold(&session, &asked, OperationKind::CreateMachine).map(drop);
    let within = asked.sent.elapsed();
    let is_held = held(&session, &asked).is_some();
    let verdict = HeldVerdict {
        operation_id: asked.operation.operation_id.clone(),
        verdict: Verdict::Keep.into(),
    };
    let driver = bench
        .admit(session, RoleKind::Active, |welcome| {
            welcome.verdicts = vec![verdict];
            welcome.resume_outcome = ResumeOutcome::Adopted.into();
        })
        .await?;
    if is_held {
        bench.step("the next adapter holds the create: the driver told it");
        let answer = resent(&driver, &asked).await?;
        let error = answer.error("UNKNOWN, since nobody heard the answer")?;
        ensure(answer.passing().is_some(), "UNKNOWN, then a read", shown(&error))?;
    }
    let before = driver.has_one(&machine).await?;
    bench.step("created it again, as the core does");
    let made = driver.create(&machine).await?;
    same_instance(&before, &made)?;
    driver.has_one(&machine).await?;
    // One that is not held may have ended meanwhile, if it had the time. A create takes longer the first time, for images and
    // caches, and beside other checks.
    let again = driver.ask(bench.slow_machine().create()).await?;
    again.machine()?;
    if within < model.took.min(again.took) / 2 {
        told?;
    }
    if let Ok(probe) = bench.probe() {
        let count = probe.instances_of(&machine).await?.len();
        ensure(count == 1, "one instance of the machine in the cloud", count)?;
    }
    Ok(())
}
