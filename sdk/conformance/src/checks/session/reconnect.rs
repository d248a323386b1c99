//! How a driver comes back.

use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::MachineErrorCode;
use proto::register_response::Frame;
use tokio::time::Instant;
use tonic::Status;

use super::hello::still_serves;
use crate::bench::Bench;
use crate::check::checks;
use crate::outcome::{Outcome, ensure, failed};

/// Enough to tell a random wait from a fixed one.
const REFUSALS: usize = 5;
/// After so many a wait has grown, also where each is little longer than the one before.
const MOST_REFUSALS: usize = 30;
/// A wait that has grown. On a busy computer a driver that does not wait dials slowly, but not that slowly.
const GROWN: Duration = Duration::from_millis(1500);
/// As the contract says, and some time to connect.
const LONGEST: Duration = Duration::from_secs(35);
/// No driver that waits is faster over all refusals.
const HAMMERING: Duration = Duration::from_millis(400);
/// The usual backoff begins far below this.
const REFUSED_FOR: Duration = Duration::from_secs(4);

checks! {
    "session/reconnect-backoff" => backoff, Must, Link, [], "driver.proto, \"In short\" 6";
        does: "waits for a random and growing time before it dials again, 30 s at most",
        why: "a core that comes back is overrun by drivers that hammer, or by all of them in the same moment";
    "session/reconnect-after" => after, Must, Link, [], "session.proto, CoreDraining";
        does: "dials after the time that CoreDraining names, neither immediately nor much later",
        why: "the core spreads its drivers by that, and another core is not there before";
    "session/refused-for-good" => refused, Must, Process, [], "driver.proto, Register; session.proto, ProtocolError";
        does: "stays away for minutes when the core refuses it with retry=false",
        why: "the same refusal would come again and again, in the logs of both sides";
    "session/superseded" => superseded, Must, Link, [], "driver.proto, Register";
        does: "goes on as the same process when the core ends a stream as SUPERSEDED",
        why: "after a half-open link the core ends the old stream so; a driver that ends itself then loses what runs";
}

async fn backoff(bench: &Bench) -> Outcome {
    let mut gaps = Vec::new();
    let mut refused_at: Option<Instant> = None;
    for refusals in 0..=MOST_REFUSALS {
        if refusals > REFUSALS && gaps.iter().any(|gap| *gap >= GROWN) {
            break;
        }
        let session = bench.harness.arrival().await?;
        if let Some(before) = refused_at {
            gaps.push(session.since.saturating_duration_since(before));
        }
        bench.step("ended the stream with UNAVAILABLE after its Hello");
        session.close(Some(Status::unavailable("the suite refuses this one")));
        refused_at = Some(Instant::now());
    }
    let shown = format!("{} waits of {gaps:?}", gaps.len());
    let longest = gaps.iter().max().copied().unwrap_or_default();
    let shortest = gaps.iter().min().copied().unwrap_or_default();
    ensure(longest <= bench.scaled(LONGEST), "waits of 30 s at most", &shown)?;
    let sum: Duration = gaps.iter().sum();
    let grows = sum >= HAMMERING && longest >= GROWN;
    let expected =
        format!("waits that grow from about 0.1 s, to {GROWN:?} after {} at most", gaps.len());
    ensure(grows, expected, &shown)?;
    let spread = longest.saturating_sub(shortest);
    ensure(spread >= longest.mul_f64(0.05), "waits that differ from each other", &shown)
}

async fn after(bench: &Bench) -> Outcome {
    let wait = Duration::from_secs(2);
    let driver = bench.connect().await?;
    bench.step(format_args!(
        "sent CoreDraining with reconnect_after {wait:?}, and ended the stream"
    ));
    driver.session.send(Frame::Draining(proto::CoreDraining {
        reason: "conformance".to_owned(),
        reconnect_after: prost_types::Duration::try_from(wait).ok(),
        close_after: prost_types::Duration::try_from(Duration::from_millis(500)).ok(),
    }))?;
    let sent = Instant::now();
    tokio::time::sleep(Duration::from_millis(200)).await;
    driver.session.close(Some(Status::unavailable("CORE_STOPPING")));
    let next = bench.harness.arrival().await?;
    let gap = next.since.saturating_duration_since(sent);
    let expected = format!("the next Hello about {wait:?} after CoreDraining");
    let late = bench.scaled(Duration::from_secs(8));
    ensure(gap >= wait.mul_f64(0.9) && gap <= wait + late, expected, format_args!("after {gap:?}"))
}

async fn refused(bench: &Bench) -> Outcome {
    let session = bench.harness.arrival().await?;
    bench.step("answered Hello with ProtocolError, retry=false, and FAILED_PRECONDITION");
    session.send(Frame::ProtocolError(proto::ProtocolError {
        reason: "BAD_PROVIDER".to_owned(),
        message: "the suite refuses this driver for good, as a test".to_owned(),
        retry: false,
    }))?;
    session.close(Some(Status::failed_precondition("BAD_PROVIDER")));
    let began = Instant::now();
    let core = bench.harness.core();
    let wait = bench.scaled(REFUSED_FOR);
    match tokio::time::timeout(wait, core.arrival()).await {
        Err(_) => Ok(()),
        Ok(_) => Err(failed(
            "no further Hello for minutes",
            format_args!("one after {:?}", began.elapsed()),
        )),
    }
}

async fn superseded(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let instance = driver.session.hello.instance_id.clone();
    bench.step("ended the stream as SUPERSEDED, with ABORTED");
    driver.session.send(Frame::ProtocolError(proto::ProtocolError {
        reason: "SUPERSEDED".to_owned(),
        message: "another stream of the same instance took over".to_owned(),
        retry: true,
    }))?;
    driver.session.close(Some(Status::aborted("SUPERSEDED")));
    let next = bench.reconnected().await?;
    ensure(
        next.session.hello.instance_id == instance,
        "the same instance_id",
        &next.session.hello.instance_id,
    )?;
    let answer = next.ask(bench.machine().status("")).await?;
    answer.error_of(&[MachineErrorCode::NotFound])?;
    still_serves(&next).await
}
