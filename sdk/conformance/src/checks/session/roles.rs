//! Standby, promotion, and leadership terms.

use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::register_request::Frame as Received;
use proto::register_response::Frame;
use proto::{DriverCapability, MachineErrorCode, Operation, RoleKind};

use super::frames::echoed;
use crate::bench::Bench;
use crate::check::{Gate, checks};
use crate::core::service::name;
use crate::driver::Driver;
use crate::outcome::{Outcome, ensure, failed};

const TERMS: &str = "operation.proto, Operation.fencing_term";

checks! {
    "session/standby-quiet" => standby_quiet, Must, Link, [], "session.proto, RoleKind";
        does: "touches nothing while it stands by: no secret, no change of the cloud, no operation",
        why: "another process serves then; two that act on the same instances undo each other's work";
    "session/standby-tells-nothing" => standby_tells_nothing, Capability, Link, [Gate::Creates, Gate::Capability(DriverCapability::Events), Gate::Probe], "event.proto, DriverEvent";
        does: "tells no events while it stands by",
        why: "the process that serves tells them, too: the core drops and counts those of all others";
    "session/promoted-serves" => promoted_serves, Must, Link, [], "session.proto, SessionRole";
        does: "serves as soon as it is promoted, and refuses new operations once it is demoted",
        why: "during an upgrade the new process takes over by that frame alone";
    "session/stale-term" => stale_term, Should, Link, [], TERMS;
        does: "refuses operations of a lower leadership term with STALE_TERM, and ignores its roles",
        why: "a core that lost its leadership may not know yet, and would act beside its successor";
    "session/outside-fencing" => outside_fencing, Must, Link, [], TERMS;
        does: "answers reads without a term, changes nothing without one, and stays with the core that it has",
        why: "a core that only looks comes beside the one that leads, and may change nothing";
}

async fn standby_quiet(bench: &Bench) -> Outcome {
    let driver = bench.welcomed(RoleKind::Standby, |_| {}).await?;
    bench.step("welcomed as STANDBY");
    let from = driver.session.log.len();
    for _ in 0..2 {
        echoed(&driver).await?;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    for entry in driver.session.log.since(from) {
        let quiet = matches!(entry.frame, Some(Received::Heartbeat(_) | Received::State(_)));
        ensure(quiet, "heartbeats and nothing else", name(entry.frame.as_ref()))?;
    }
    let calls = bench.harness.core().library().calls().len();
    ensure(
        calls == 0,
        "no GetMachineClass and no GetSecret while standing by",
        format_args!("{calls} calls"),
    )?;
    refuses(&driver).await?;
    echoed(&driver).await.map(drop)
}

async fn standby_tells_nothing(bench: &Bench) -> Outcome {
    let driver = bench.welcomed(RoleKind::Active, |_| {}).await?;
    let made = driver.create(&bench.machine()).await?;
    let term = bench.harness.core().term();
    role(&driver, RoleKind::Standby, term)?;
    refuses(&driver).await?;
    let from = driver.session.log.len();
    bench.step("--probe-cmd remove-instance");
    let removed = bench.probe()?.remove_instance(&made.provider_id).await;
    for _ in 0..4 {
        echoed(&driver).await?;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    // The instances are deleted by it afterwards, whatever becomes of the check.
    role(&driver, RoleKind::Active, term)?;
    removed?;
    let told = driver.session.log.since(from);
    let told = told.iter().find_map(|entry| match &entry.frame {
        Some(Received::Event(event)) => Some(format!("{event:?}")),
        _ => None,
    });
    ensure(told.is_none(), "no event while standing by", told.unwrap_or_default())
}

/// New operations are refused, nothing was done.
async fn refuses(driver: &Driver<'_>) -> Outcome {
    let answer = driver.ask_once(driver.bench.machine().status("")).await?;
    answer.refusal(&[MachineErrorCode::Unavailable]).map(drop)
}

/// Operations are done.
async fn serves(driver: &Driver<'_>) -> Outcome {
    let answer = driver.ask(driver.bench.machine().status("")).await?;
    answer.error_of(&[MachineErrorCode::NotFound]).map(drop)
}

fn role(driver: &Driver<'_>, role: RoleKind, term: u64) -> Outcome {
    driver.bench.step(format_args!("sent SessionRole {}, term {term}", role.as_str_name()));
    let frame = proto::SessionRole { role: role.into(), fencing_term: term };
    driver.session.send(Frame::Role(frame))
}

async fn promoted_serves(bench: &Bench) -> Outcome {
    let driver = bench.welcomed(RoleKind::Standby, |_| {}).await?;
    bench.step("welcomed as STANDBY");
    refuses(&driver).await?;
    let term = bench.harness.core().term();
    role(&driver, RoleKind::Active, term)?;
    serves(&driver).await?;
    role(&driver, RoleKind::Standby, term)?;
    refuses(&driver).await?;
    role(&driver, RoleKind::Active, term)?;
    serves(&driver).await
}

/// A status in a term.
fn in_term(driver: &Driver<'_>, term: u64) -> Operation {
    driver.bench.step(format_args!("term {term}:"));
    Operation { fencing_term: term, ..driver.bench.machine().status("") }
}

async fn accepted_in(driver: &Driver<'_>, term: u64) -> Outcome {
    let answer = driver.ask(in_term(driver, term)).await?;
    answer.error_of(&[MachineErrorCode::NotFound]).map(drop)
}

async fn stale_in(driver: &Driver<'_>, term: u64) -> Outcome {
    refused_for(driver, in_term(driver, term), "STALE_TERM").await
}

/// Refused for this reason, and nothing was done.
async fn refused_for(driver: &Driver<'_>, operation: Operation, reason: &str) -> Outcome {
    let answer = driver.ask(operation).await?;
    let error = answer.refusal(&[MachineErrorCode::FailedPrecondition])?;
    let wanted = format!("reason {reason}");
    ensure(error.reason == reason, &wanted, format_args!("{:?}", error.reason))
}

async fn stale_term(bench: &Bench) -> Outcome {
    let driver = bench.welcomed(RoleKind::Active, |_| {}).await?;
    let term = bench.harness.core().term();
    accepted_in(&driver, term).await?;
    accepted_in(&driver, term + 2).await?;
    stale_in(&driver, term + 1).await?;
    role(&driver, RoleKind::Standby, term + 1)?;
    accepted_in(&driver, term + 2).await?;
    bench.restart_core().await?;
    let session = bench.harness.arrival().await?;
    bench.step("welcomed with a lower term, by a core that lost its leadership");
    let core = bench.harness.core();
    core.set_term(term + 1);
    core.welcome(&session, core.greeting(&session, RoleKind::Active))?;
    let limit = bench.scaled(Duration::from_secs(10));
    let ended = tokio::time::timeout(limit, session.log.until_ended()).await;
    ended
        .map(drop)
        .map_err(|_| failed("the end of a stream whose Welcome has a lower term", "it goes on"))
}

async fn outside_fencing(bench: &Bench) -> Outcome {
    let term = bench.harness.core().term();
    let driver = bench.connect().await?;
    accepted_in(&driver, term).await?;
    bench.restart_core().await?;
    bench.harness.core().set_term(0);
    let driver = bench.welcomed(RoleKind::Active, |_| {}).await?;
    bench.step("welcomed without a term");
    accepted_in(&driver, 0).await?;
    refused_for(&driver, bench.machine().delete(""), "OUTSIDE_FENCING").await?;
    bench.restart_core().await?;
    bench.harness.core().set_term(term);
    let driver = bench.welcomed(RoleKind::Active, |_| {}).await?;
    bench.step("welcomed with the term from before");
    accepted_in(&driver, term).await?;
    stale_in(&driver, term.saturating_sub(1).max(1)).await
}
