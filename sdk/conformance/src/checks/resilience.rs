//! Links and processes that break.

use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::operation_completed::Outcome as Completed;
use proto::register_request::Frame as Received;
use proto::register_response::Frame;
use proto::{
    DriverCapability, HeldOperation, HeldState, HeldVerdict, MachineErrorCode, OperationKind,
    ResumeOutcome, RoleKind, Verdict,
};

use super::duplicates::duplicate_frames;
use super::pages;
use crate::answer::{collect, same_instance};
use crate::bench::Bench;
use crate::check::{Gate, PAGE, checks};
use crate::core::session::Session;
use crate::driver::{Asked, Driver};
use crate::machine::{again, list, uids};
use crate::outcome::{Outcome, ensure, failed, same};

const RETENTION: Gate = Gate::Capability(DriverCapability::ResultRetention);
const RESUME: &str = "session.proto, Resume and HeldVerdict";
/// For a driver that hears nothing to dial again.
const HALF_OPEN: Duration = Duration::from_mins(1);
/// For a result of an operation that was in flight.
const RESULT: Duration = Duration::from_mins(1);
/// Between two tries while another operation works on the target.
const BUSY: Duration = Duration::from_millis(500);

checks! {
    "resilience/cut-mid-create" => cut_mid_create, Must, Link, [Gate::Creates], RESUME;
        does: "goes on with a create whose link broke, lists it in the next Hello, and hands the result over",
        why: "links break; what a driver forgets then is unknown to the core, which must stop and read";
    "resilience/core-restart" => core_restart, Must, Link, [Gate::Creates, RETENTION], RESUME;
        does: "obeys KEEP, CANCEL and FORGET of a core that restarted",
        why: "the new core has only what the driver tells it: a forgotten result that comes again, or a kept one that does not, stands for another machine's fate";
    "resilience/crash-mid-create" => crash_mid_create, Must, Process, [Gate::Creates], "driver.proto, \"Identity\" and \"Idempotency\"";
        does: "finds after a crash what it made before, by the same provider id, and makes no second instance",
        why: "this is how instances leak: the first one runs, is paid for, and belongs to no Machine";
    "resilience/half-open" => half_open, Must, Link, [Gate::Creates], "driver.proto, \"In short\" 1; session.proto, Welcome.heartbeat_interval";
        does: "dials again within a minute when the link is dead but open, and does nothing twice",
        why: "a switch that swallows packets shows nothing: without keepalive the driver waits for ever, and serves no core";
    "resilience/core-not-reading" => core_not_reading, Should, Link, [], "session.proto, OperationCompleted";
        does: "loses no result when the core does not read for a while",
        why: "a core that is busy reads late; results that are dropped then are waited for";
    "resilience/ack-loss" => ack_loss, Must, Link, [RETENTION], "session.proto, OperationCompleted";
        does: "sends a result again in every session until it is acknowledged, and not any more then",
        why: "the acknowledgement means that the result is recorded; before that a crash of the core loses it";
    "resilience/result-resent" => result_resent, Must, Link, [Gate::Creates, RETENTION], "session.proto, OperationCompleted";
        does: "keeps a result that was made while no core was there, and hands it over later",
        why: "a core that restarts takes a minute; a create that ended meanwhile must not be lost";
    "resilience/pages-resent" => pages_resent, Must, Link, [Gate::Creates, Gate::Capability(DriverCapability::PagedLists), Gate::Many, RETENTION], "session.proto, OperationPage and OperationCompleted";
        does: "sends a list that was not acknowledged again whole, with all its pages",
        why: "the core has only what came in the session that it reads: a list that lacks its pages is refused, or taken for the whole";
    "resilience/duplicate-frames" => duplicate_frames, Must, Link, [Gate::Creates], "session.proto, at the top";
        does: "survives every frame that comes twice, or is about an operation that it does not know",
        why: "delivery is at least once both ways, and a core that restarted knows other operations than the driver";
}

fn retains(session: &Session) -> bool {
    session.hello.capabilities.contains(&DriverCapability::ResultRetention.into())
}

/// The driver's report on an operation that it holds.
pub(super) fn held<'a>(session: &'a Session, asked: &Asked<'_>) -> Option<&'a HeldOperation> {
    let resume = session.hello.resume.as_ref()?;
    resume.operations.iter().find(|held| held.operation_id == asked.operation.operation_id)
}

pub(super) fn must_hold<'a>(
    session: &'a Session,
    asked: &Asked<'_>,
    kind: OperationKind,
) -> Outcome<&'a HeldOperation> {
    let expected = "the operation in Hello.resume, as it was accepted and not acknowledged";
    let ids = || {
        let resume = session.hello.resume.iter().flat_map(|resume| &resume.operations);
        resume.map(|it| it.operation_id.as_str()).collect::<Vec<_>>()
    };
    let found = held(session, asked).ok_or_else(|| {
        failed(expected, format_args!("{:?}, without {}", ids(), asked.operation.operation_id))
    })?;
    let operation = &asked.operation;
    let facts = (found.idempotency_key.as_str(), found.target.as_ref(), found.kind());
    let wanted = (operation.idempotency_key.as_str(), operation.target.as_ref(), kind);
    ensure(
        facts == wanted,
        format_args!("key, target and kind of the operation: {wanted:?}"),
        format_args!("{facts:?}"),
    )?;
    let state = found.state();
    ensure(state != HeldState::Unspecified, "state RUNNING or COMPLETED", "UNSPECIFIED")?;
    Ok(found)
}

/// The result in a session that was welcomed.
pub(super) async fn resent(
    driver: &Driver<'_>,
    asked: &Asked<'_>,
) -> Outcome<crate::answer::Answer> {
    let limit = driver.bench.scaled(RESULT);
    let mut answer = collect(&driver.session, 0, &asked.operation, limit).await?;
    driver.bench.identify(&driver.session, &mut answer);
    Ok(answer)
}

async fn cut_mid_create(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.slow_machine();
    driver.session.acknowledge(false);
    let asked = driver.start(machine.create())?;
    asked.under_way().await?;
    bench.step("cut the link after it accepted");
    bench.harness.proxy.cut();
    let session = bench.harness.arrival().await?;
    let resume = session.hello.resume.clone().unwrap_or_default();
    same("resume.session_id", &resume.session_id, &driver.session.id)?;
    let retains = retains(&session);
    if retains {
        must_hold(&session, &asked, OperationKind::CreateMachine)?;
    }
    let resumed = |welcome: &mut proto::Welcome| {
        welcome.resume_outcome = ResumeOutcome::Resumed.into();
    };
    let driver = bench.admit(session, RoleKind::Active, resumed).await?;
    let made = if retains {
        let first = resent(&driver, &asked).await?;
        driver.settle(&asked.operation, first).await?.machine()?
    } else {
        // The first one may still run.
        loop {
            let answer = driver.ask_once(again(&asked.operation)).await?;
            if answer.refusal(&[MachineErrorCode::Aborted]).is_err() {
                break answer.machine()?;
            }
            tokio::time::sleep(BUSY).await;
        }
    };
    let listed = driver.has_one(&machine).await?;
    same_instance(&made, &listed)
}

/// Waits until the process has a result to hold.
async fn unacknowledged<'a>(driver: &Driver<'a>) -> Outcome<Asked<'a>> {
    let asked = driver.start(driver.bench.machine().status(""))?;
    asked.answer().await?.error("NOT_FOUND")?;
    Ok(asked)
}

fn completed(session: &Session, asked: &Asked<'_>) -> bool {
    session.log.since(0).iter().any(|entry| match &entry.frame {
        Some(Received::Completed(done)) => done.operation_id == asked.operation.operation_id,
        _ => false,
    })
}

async fn core_restart(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    driver.session.acknowledge(false);
    let machine = bench.slow_machine();
    let kept = unacknowledged(&driver).await?;
    let forgotten = unacknowledged(&driver).await?;
    let running = driver.start(machine.create())?;
    running.under_way().await?;
    bench.restart_core().await?;
    let session = bench.harness.arrival().await?;
    must_hold(&session, &kept, OperationKind::GetMachineStatus)?;
    must_hold(&session, &forgotten, OperationKind::GetMachineStatus)?;
    must_hold(&session, &running, OperationKind::CreateMachine)?;
    let verdict = |asked: &Asked<'_>, verdict: Verdict| HeldVerdict {
        operation_id: asked.operation.operation_id.clone(),
        verdict: verdict.into(),
    };
    let verdicts = vec![
        verdict(&kept, Verdict::Keep),
        verdict(&forgotten, Verdict::Forget),
        verdict(&running, Verdict::Cancel),
    ];
    bench.step("KEEP for one result, FORGET for the other, CANCEL for the create");
    let driver = bench
        .admit(session, RoleKind::Active, |welcome| {
            welcome.verdicts = verdicts;
            welcome.resume_outcome = ResumeOutcome::Adopted.into();
        })
        .await?;
    let expected = "results that are kept before DriverState";
    ensure(
        completed(&driver.session, &kept),
        expected,
        "DriverState without the result before it",
    )?;
    let answer = resent(&driver, &running).await?;
    if let Some(Completed::Error(error)) = &answer.completed.outcome {
        let fits = error.code() == MachineErrorCode::Canceled || answer.passing().is_some();
        ensure(fits, "CANCELED or a result", crate::answer::shown(error))?;
    }
    driver.list().await?;
    let forgets = "no completion of an operation that the core told to forget";
    ensure(!completed(&driver.session, &forgotten), forgets, "it came")?;
    bench.step("cut the link");
    bench.harness.proxy.cut();
    let session = bench.harness.arrival().await?;
    let still = [&kept, &forgotten, &running].into_iter().filter(|it| held(&session, it).is_some());
    let still = still.count();
    ensure(still == 0, "nothing held: all is acknowledged or forgotten", still)?;
    bench.admit(session, RoleKind::Active, |_| {}).await.map(drop)
}

async fn crash_mid_create(bench: &Bench) -> Outcome {
    let mut crashed = Vec::new();
    for wait in [0, 20, 200] {
        let driver = bench.connect().await?;
        let machine = bench.slow_machine();
        let asked = driver.start(machine.create())?;
        asked.accepted().await?;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        bench.step(format_args!("killed the driver {wait} ms after it accepted"));
        bench.harness.forget_process();
        let before = driver.session.hello.instance_id.clone();
        let driver = bench.reconnected().await?;
        let now = &driver.session.hello.instance_id;
        ensure(*now != before, "a boot_id (instance_id) of its own for each start", now)?;
        let answer = driver.ask(machine.status("")).await?;
        let before = answer.machine().ok();
        if before.is_none() {
            answer.error_of(&[MachineErrorCode::NotFound])?;
        }
        crashed.push((machine, again(&asked.operation), before));
    }
    let driver = bench.connect().await?;
    bench.step("created all of them again");
    let asked: Vec<Asked<'_>> = crashed
        .iter()
        .map(|(_, create, _)| driver.start(create.clone()))
        .collect::<Outcome<_>>()?;
    let mut all = Vec::new();
    for ((machine, _, before), asked) in crashed.iter().zip(asked) {
        let made = asked.settled().await?.machine()?;
        if let Some(before) = before {
            same_instance(before, &made)?;
        }
        all.push((machine, made));
    }
    bench.step("killed the driver once more");
    bench.harness.forget_process();
    let driver = bench.reconnected().await?;
    for (machine, made) in all {
        same_instance(&made, &driver.has_one(machine).await?)?;
    }
    Ok(())
}

async fn half_open(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    driver.session.acknowledge(false);
    let machine = bench.slow_machine();
    let asked = driver.start(machine.create())?;
    asked.under_way().await?;
    bench.step("swallowed everything on the link, which stays open");
    bench.harness.proxy.black_hole();
    let session = bench.harness.arrival_within(HALF_OPEN).await?;
    ensure(
        session.hello.instance_id == driver.session.hello.instance_id,
        "the same process",
        "another instance_id",
    )?;
    let retains = retains(&session);
    if retains {
        must_hold(&session, &asked, OperationKind::CreateMachine)?;
    }
    let driver = bench.admit(session, RoleKind::Active, |_| {}).await?;
    if retains {
        let first = resent(&driver, &asked).await?;
        driver.settle(&asked.operation, first).await?.machine()?;
    } else {
        driver.ask(again(&asked.operation)).await?.machine()?;
    }
    driver.has_one(&machine).await.map(drop)
}

async fn core_not_reading(bench: &Bench) -> Outcome {
    const OPERATIONS: u32 = 60;
    const DEAF: Duration = Duration::from_secs(2);
    let driver = bench.connect().await?;
    let count = driver.session.hello.max_in_flight.clamp(1, OPERATIONS);
    bench.step(format_args!("stopped reading for {DEAF:?}, and sent {count} operations"));
    bench.harness.proxy.deaf(true);
    let asked: Vec<Asked<'_>> = (0..count)
        .map(|_| driver.start(list(&bench.class(), bench.cluster_id())))
        .collect::<Outcome<_>>()?;
    tokio::time::sleep(DEAF).await;
    bench.step("reads again");
    bench.harness.proxy.deaf(false);
    for one in &asked {
        one.settled().await?.machines()?;
    }
    let slow = Duration::from_millis(100);
    bench.step(format_args!("made the link slow: {slow:?} each way"));
    bench.harness.proxy.delay(slow);
    for _ in 0..3 {
        driver.list().await?;
    }
    Ok(())
}

async fn ack_loss(bench: &Bench) -> Outcome {
    let mut driver = bench.connect().await?;
    driver.session.acknowledge(false);
    let asked = unacknowledged(&driver).await?;
    for _ in 0..2 {
        bench.step("cut the link without an acknowledgement");
        bench.harness.proxy.cut();
        let session = bench.harness.arrival().await?;
        session.acknowledge(false);
        let held = must_hold(&session, &asked, OperationKind::GetMachineStatus)?;
        ensure(
            held.state() == HeldState::Completed,
            "state COMPLETED",
            held.state().as_str_name(),
        )?;
        driver = bench.admit(session, RoleKind::Active, |_| {}).await?;
        resent(&driver, &asked).await?.error("NOT_FOUND again")?;
    }
    bench.step("acknowledged the result, then cut the link");
    driver.session.acknowledge_result(&asked.operation.operation_id)?;
    driver.list().await?;
    let last = driver.session.log.len();
    bench.harness.proxy.cut();
    let session = bench.harness.arrival().await?;
    let gone = held(&session, &asked).is_none();
    ensure(gone, "nothing of an acknowledged result in Hello.resume", "it is held still")?;
    ensure(last > 0, "a session", "none")?;
    let driver = bench.admit(session, RoleKind::Active, |_| {}).await?;
    driver.list().await?;
    let gone = !completed(&driver.session, &asked);
    ensure(gone, "an acknowledged result not to come again", "it came")
}

async fn result_resent(bench: &Bench) -> Outcome {
    const AWAY: Duration = Duration::from_millis(2500);
    let driver = bench.connect().await?;
    let machine = bench.slow_machine();
    let asked = driver.start(machine.create())?;
    asked.under_way().await?;
    bench.step(format_args!("took the core away for {AWAY:?}"));
    bench.harness.proxy.refuse(true);
    bench.harness.proxy.cut();
    tokio::time::sleep(AWAY).await;
    bench.harness.proxy.refuse(false);
    let session = bench.harness.arrival().await?;
    must_hold(&session, &asked, OperationKind::CreateMachine)?;
    let driver = bench.admit(session, RoleKind::Active, |_| {}).await?;
    let first = resent(&driver, &asked).await?;
    let made = driver.settle(&asked.operation, first).await?.machine()?;
    let listed = driver.has_one(&machine).await?;
    same_instance(&made, &listed)?;
    bench.step("sends the cancel of an operation that is over");
    driver.session.send(Frame::Cancel(proto::OperationCancel {
        operation_id: asked.operation.operation_id.clone(),
        reason: "LATE".to_owned(),
    }))?;
    driver.list().await.map(drop)
}

async fn pages_resent(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machines = pages::many(&driver, PAGE + 1).await?;
    driver.session.acknowledge(false);
    let asked = driver.start(list(&bench.class(), bench.cluster_id()))?;
    let first = asked.answer().await?.machines()?;
    bench.step("cut the link without an acknowledgement of the list");
    bench.harness.proxy.cut();
    let session = bench.harness.arrival().await?;
    must_hold(&session, &asked, OperationKind::ListMachines)?;
    let resumed = |welcome: &mut proto::Welcome| {
        welcome.resume_outcome = ResumeOutcome::Resumed.into();
    };
    let driver = bench.admit(session, RoleKind::Active, resumed).await?;
    let again = resent(&driver, &asked).await?.machines()?;
    pages::whole(bench, &again, &machines)?;
    ensure(
        uids(&again) == uids(&first),
        "the same list again, with its pages",
        format_args!("{} records, before {}", again.len(), first.len()),
    )
}
