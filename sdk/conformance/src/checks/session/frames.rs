//! Single frames: heartbeats, acceptance, what is not known, sizes.

use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::MachineErrorCode;
use proto::register_request::Frame;

use super::hello::still_serves;
use crate::answer::{same_instance, shown};
use crate::bench::Bench;
use crate::check::{Gate, checks};
use crate::core::HEARTBEAT;
use crate::core::session::heartbeat;
use crate::driver::Driver;
use crate::outcome::{Outcome, ensure, skipped};

checks! {
    "session/heartbeat-echo" => heartbeat_echo, Must, Session, [], "session.proto, Heartbeat";
        does: "answers every heartbeat within the interval, with the time that it got",
        why: "after three that are not answered the core takes the session for lost, and everything in flight for unknown";
    "session/unknown-frame" => unknown_frame, Must, Session, [], "session.proto";
        does: "ignores a frame that it does not know, and goes on",
        why: "a newer core may say more; a driver that ends then cannot be upgraded after the core";
    "session/unknown-kind" => unknown_kind, Must, Session, [], "operation.proto, Operation";
        does: "completes an operation whose request it does not know with UNIMPLEMENTED, and goes on",
        why: "a newer core may ask for more; without an answer it waits for minutes, without certainty it must read";
    "session/target-busy" => target_busy, Must, Session, [Gate::Creates], "operation.proto, Operation";
        does: "refuses a second mutation of a machine while the first one runs, with ABORTED, TARGET_BUSY, NOT_APPLIED",
        why: "a deletion that looks while a create still makes finds nothing, and says gone of an instance that comes a moment later";
}

async fn target_busy(bench: &Bench) -> Outcome {
    const TRIES: usize = 3;
    let driver = bench.connect().await?;
    for _ in 0..TRIES {
        let machine = bench.slow_machine();
        let asked = driver.start(machine.create())?;
        asked.accepted().await?;
        let second = driver.ask_once(machine.delete("")).await?;
        if second.result().is_ok() && asked.is_completed() {
            continue;
        }
        let error = second.refusal(&[MachineErrorCode::Aborted])?;
        ensure(error.reason == "TARGET_BUSY", "reason TARGET_BUSY", shown(&error))?;
        let made = asked.settled().await?.machine()?;
        return same_instance(&made, &driver.has_one(&machine).await?);
    }
    Err(skipped(
        "a create of --class is over before anything can come beside it: give --slow-class",
    ))
}

async fn heartbeat_echo(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    for _ in 0..3 {
        echoed(&driver).await?;
    }
    Ok(())
}

/// Sends a heartbeat and waits for its echo.
pub(super) async fn echoed(driver: &Driver<'_>) -> Outcome<proto::Heartbeat> {
    let sent = heartbeat();
    let proto::register_response::Frame::Heartbeat(beat) = &sent else {
        return Ok(proto::Heartbeat::default());
    };
    let wanted = beat.sent_at;
    let from = driver.session.log.len();
    driver.bench.step("sent a heartbeat");
    driver.session.send(sent)?;
    let expected = format!("the echo of a heartbeat within {HEARTBEAT:?}, with its sent_at");
    driver
        .expect(from, HEARTBEAT, &expected, |frame| {
            let Frame::Heartbeat(echo) = frame else { return None };
            (echo.sent_at == wanted).then(|| echo.clone())
        })
        .await
}

async fn unknown_frame(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    for _ in 0..3 {
        bench.step("sent a frame with an arm of the future");
        driver.session.send_unknown()?;
        echoed(&driver).await?;
    }
    still_serves(&driver).await
}

async fn unknown_kind(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let mut operation = driver.complete(bench.machine().status(""));
    operation.request = None;
    bench.step("sent an operation with a request of the future");
    let asked = driver.asked(operation);
    bench.harness.core().note_dispatch(&asked.operation);
    driver.session.send_unknown_operation(&asked.operation)?;
    let answer = asked.answer_within(bench.scaled(Duration::from_secs(10))).await?;
    answer.refusal(&[MachineErrorCode::Unimplemented])?;
    ensure(driver.session.is_live(), "a session that goes on", "it ended")?;
    still_serves(&driver).await
}
