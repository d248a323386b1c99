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

const TERMS: &str = "operation.proto, Operation.fencing_term and fencing_order";

checks! {
    "session/standby-quiet" => standby_quiet, Must, Link, [], "session.proto, RoleKind";
        does: "touches nothing while it stands by: no secret, no change of the cloud, no operation",
        why: "another process serves then; two that act on the same instances undo each other's work";
    "session/promoted-serves" => promoted_serves, Must, Link, [], "session.proto, SessionRole";
        does: "serves as soon as it is promoted, and refuses new operations once it is demoted",
        why: "during an upgrade the new process takes over by that frame alone";
    "session/stale-term" => stale_term, Should, Link, [], TERMS;
        does: "refuses operations of a lower leadership term with STALE_TERM, and ignores its roles",
        why: "a core that lost its leadership may not know yet, and would act beside its successor";
    "session/new-order" => new_order, Should, Link, [], TERMS;
        does: "counts terms afresh in a new order, and refuses what comes in an order that was left",
        why: "when the Lease is made anew its count begins again: a driver that compares across refuses the only leader there is";
    "session/outside-fencing" => outside_fencing, Must, Link, [Gate::Capability(DriverCapability::ReadsOutsideFencing)], TERMS;
        does: "answers reads without an order, changes nothing without one, and stays with the core that it has",
        why: "a core that only looks comes beside the one that leads: a driver that takes it for the next one leaves its own for good";
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

/// New operations are refused, nothing was done.
async fn refuses(driver: &Driver<'_>) -> Outcome {
    let answer = driver.ask(driver.bench.machine().status("")).await?;
    answer.refusal(&[MachineErrorCode::Unavailable]).map(drop)
}

/// Operations are done.
async fn serves(driver: &Driver<'_>) -> Outcome {
    let answer = driver.ask(driver.bench.machine().status("")).await?;
    answer.error_of(&[MachineErrorCode::NotFound]).map(drop)
}

fn role(driver: &Driver<'_>, role: RoleKind, order: &str, term: u64) -> Outcome {
    driver.bench.step(format_args!("sent SessionRole {}, term {term}", role.as_str_name()));
    let frame = proto::SessionRole {
        role: role.into(),
        fencing_term: term,
        fencing_order: order.to_owned(),
    };
    driver.session.send(Frame::Role(frame)).map(drop)
}

async fn promoted_serves(bench: &Bench) -> Outcome {
    let driver = bench.welcomed(RoleKind::Standby, |_| {}).await?;
    bench.step("welcomed as STANDBY");
    refuses(&driver).await?;
    let leadership = bench.harness.core().leadership();
    role(&driver, RoleKind::Active, &leadership.order, leadership.term)?;
    serves(&driver).await?;
    role(&driver, RoleKind::Standby, &leadership.order, leadership.term)?;
    refuses(&driver).await?;
    role(&driver, RoleKind::Active, &leadership.order, leadership.term)?;
    serves(&driver).await
}

/// A status in a term.
fn in_term(driver: &Driver<'_>, order: &str, term: u64) -> Operation {
    driver.bench.step(format_args!("term {term} of order {order}:"));
    let operation = driver.bench.machine().status("");
    Operation { fencing_term: term, fencing_order: order.to_owned(), ..operation }
}

async fn accepted_in(driver: &Driver<'_>, order: &str, term: u64) -> Outcome {
    let answer = driver.ask(in_term(driver, order, term)).await?;
    answer.error_of(&[MachineErrorCode::NotFound]).map(drop)
}

async fn stale_in(driver: &Driver<'_>, order: &str, term: u64) -> Outcome {
    refused_for(driver, in_term(driver, order, term), "STALE_TERM").await
}

/// Refused for this reason, and nothing was done.
async fn refused_for(driver: &Driver<'_>, operation: Operation, reason: &str) -> Outcome {
    let answer = driver.ask(operation).await?;
    let error = answer.refusal(&[MachineErrorCode::FailedPrecondition])?;
    let wanted = format!("reason {reason}");
    ensure(error.reason == reason, &wanted, format_args!("{:?}", error.reason))
}

async fn stale_term(bench: &Bench) -> Outcome {
    let order = uuid::Uuid::new_v4().to_string();
    bench.harness.core().set_leadership(&order, 5);
    let driver = bench.welcomed(RoleKind::Active, |_| {}).await?;
    bench.step("welcomed with term 5");
    accepted_in(&driver, &order, 5).await?;
    stale_in(&driver, &order, 4).await?;
    accepted_in(&driver, &order, 7).await?;
    stale_in(&driver, &order, 6).await?;
    role(&driver, RoleKind::Standby, &order, 6)?;
    accepted_in(&driver, &order, 7).await
}

async fn new_order(bench: &Bench) -> Outcome {
    let (old, new) = (uuid::Uuid::new_v4().to_string(), uuid::Uuid::new_v4().to_string());
    bench.harness.core().set_leadership(&old, 9);
    let driver = bench.welcomed(RoleKind::Active, |_| {}).await?;
    bench.step("welcomed with term 9 of the old order");
    accepted_in(&driver, &old, 9).await?;
    bench.restart_core().await?;
    bench.harness.core().set_leadership(&new, 1);
    let driver = bench.welcomed(RoleKind::Active, |_| {}).await?;
    bench.step("welcomed with term 1 of the new order");
    accepted_in(&driver, &new, 1).await?;
    stale_in(&driver, &old, 9).await?;
    stale_in(&driver, &old, 10).await?;
    bench.restart_core().await?;
    bench.harness.core().set_leadership(&old, 11);
    let session = bench.harness.arrival().await?;
    bench.step("welcomed with term 11 of the old order, as the core that was left");
    let core = bench.harness.core();
    core.welcome(&session, core.greeting(&session, RoleKind::Active))?;
    let limit = bench.scaled(Duration::from_secs(10));
    let ended = tokio::time::timeout(limit, session.log.until_ended()).await;
    ended
        .map(drop)
        .map_err(|_| failed("the end of a stream whose Welcome is of a left order", "it goes on"))
}

async fn outside_fencing(bench: &Bench) -> Outcome {
    let order = uuid::Uuid::new_v4().to_string();
    bench.harness.core().set_leadership(&order, 3);
    let driver = bench.welcomed(RoleKind::Active, |_| {}).await?;
    bench.step("welcomed with term 3");
    accepted_in(&driver, &order, 3).await?;
    accepted_in(&driver, "", 1).await?;
    let delete = Operation { fencing_term: 1, ..bench.machine().delete("") };
    refused_for(&driver, delete, "OUTSIDE_FENCING").await?;
    accepted_in(&driver, &order, 3).await?;
    bench.restart_core().await?;
    bench.harness.core().set_leadership("", 1);
    let driver = bench.welcomed(RoleKind::Active, |_| {}).await?;
    bench.step("welcomed without an order");
    accepted_in(&driver, "", 1).await?;
    bench.restart_core().await?;
    bench.harness.core().set_leadership(&order, 3);
    let driver = bench.welcomed(RoleKind::Active, |_| {}).await?;
    bench.step("welcomed with term 3 again");
    accepted_in(&driver, &order, 3).await
}
