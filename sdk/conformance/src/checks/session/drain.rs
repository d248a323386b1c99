//! The end of a session that either side announces.

use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::register_request::Frame as Received;
use proto::register_response::Frame;
use proto::{DriverState, MachineErrorCode, Readiness};
use tokio::time::Instant;

use crate::answer::collect;
use crate::bench::Bench;
use crate::check::{Gate, checks};
use crate::driver::Driver;
use crate::outcome::{Outcome, ensure, failed, same};

/// For a driver that has nothing left to do to end.
const EXIT: Duration = Duration::from_secs(20);
const DRAINING: Duration = Duration::from_secs(5);

checks! {
    "session/drain-driver" => drain_driver, Must, Process, [Gate::Creates], "driver.proto, \"In short\" 7; session.proto, DriverState";
        does: "on SIGTERM says DRAINING, finishes what it accepted, waits for the acknowledgements, and ends in time",
        why: "every upgrade of the driver does this; what is cut off instead has an unknown outcome";
    "session/drain-refuses-new" => drain_refuses_new, Must, Process, [], "operation.proto, Operation";
        does: "refuses operations that arrive while it drains, with UNAVAILABLE and NOT_APPLIED",
        why: "one that it starts then is cut off at its end; one that it drops is waited for";
    "session/drain-core" => drain_core, Must, Link, [Gate::Creates], "session.proto, CoreDraining";
        does: "on CoreDraining goes on with what runs, dials again, and hands the results over",
        why: "every upgrade of the core does this; a driver that drops its work makes it unknown";
}

/// Asks the process to end and waits for DRAINING.
async fn drain(driver: &Driver<'_>) -> Outcome<DriverState> {
    let bench = driver.bench;
    let from = driver.session.log.len();
    let process = bench.harness.process()?;
    bench.step("sent SIGTERM");
    process.terminate();
    let state = driver
        .expect(from, DRAINING, "DriverState DRAINING after SIGTERM", |frame| {
            let Received::State(state) = frame else { return None };
            (state.readiness() == Readiness::Draining).then(|| state.clone())
        })
        .await?;
    ensure(state.max_in_flight == 0, "max_in_flight 0 with DRAINING", state.max_in_flight)?;
    ensure(
        state.drain_deadline.is_some(),
        "drain_deadline with DRAINING: the driver ends after it",
        "none",
    )?;
    Ok(state)
}

async fn exits(bench: &Bench) -> Outcome {
    let limit = bench.scaled(EXIT);
    let how = bench.harness.process()?.exit(limit).await;
    bench.harness.forget_process();
    how.map(drop).ok_or_else(|| {
        failed(
            "the end of the process once all is acknowledged",
            format_args!("it still runs after {limit:?}"),
        )
    })
}

async fn drain_driver(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    driver.session.acknowledge(false);
    let asked = driver.start(bench.slow_machine().create())?;
    asked.accepted().await?;
    drain(&driver).await?;
    let answer = asked.answer().await?;
    // What a cloud in trouble answers is an end as well.
    if answer.passing().is_none() {
        answer.machine()?;
    }
    // It may not end before the result is acknowledged.
    let patience = Duration::from_millis(500);
    let early = bench.harness.process()?.exit(patience).await;
    let expected = "a driver that waits for the acknowledgement of its last result";
    ensure(early.is_none(), expected, format_args!("it ended: {early:?}"))?;
    bench.step("acknowledged the result");
    driver.session.acknowledge_result(&asked.operation.operation_id)?;
    exits(bench).await
}

async fn drain_refuses_new(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    driver.session.acknowledge(false);
    let held = driver.start(bench.machine().status(""))?;
    held.answer().await?.error("NOT_FOUND")?;
    drain(&driver).await?;
    let late = driver.start(bench.machine().status(""))?;
    late.answer().await?.refusal(&[MachineErrorCode::Unavailable])?;
    bench.step("acknowledged everything");
    for operation in [&held.operation, &late.operation] {
        driver.session.acknowledge_result(&operation.operation_id)?;
    }
    exits(bench).await
}

async fn drain_core(bench: &Bench) -> Outcome {
    const CLOSE: Duration = Duration::from_millis(1500);
    let driver = bench.connect().await?;
    let lost = driver.session.id.clone();
    driver.session.acknowledge(false);
    let asked = driver.start(bench.slow_machine().create())?;
    asked.accepted().await?;
    bench.step("sent CoreDraining");
    driver.session.send(Frame::Draining(proto::CoreDraining {
        reason: "conformance".to_owned(),
        reconnect_after: prost_types::Duration::try_from(Duration::from_millis(200)).ok(),
        close_after: prost_types::Duration::try_from(CLOSE).ok(),
    }))?;
    let sent = Instant::now();
    let limit = bench.scaled(Duration::from_secs(15));
    let next = bench.harness.arrival_within(limit).await?;
    let came = next.since.saturating_duration_since(sent);
    bench.step(format_args!("the driver dialed again after {came:?}"));
    let resume = next.hello.resume.clone().unwrap_or_default();
    same("resume.session_id", &resume.session_id, &lost)?;
    let held = resume.operations.iter().any(|it| it.operation_id == asked.operation.operation_id);
    let retains = proto::DriverCapability::ResultRetention.into();
    ensure(
        held || !next.hello.capabilities.contains(&retains),
        "the operation among resume.operations: it was not acknowledged",
        format_args!("{} operations", resume.operations.len()),
    )?;
    let driver = bench.admit(next, proto::RoleKind::Active, |_| {}).await?;
    if held {
        let limit = bench.scaled(Duration::from_mins(1));
        let first = collect(&driver.session, 0, &asked.operation, limit).await?;
        driver.settle(&asked.operation, first).await?.machine()?;
    }
    Ok(())
}
