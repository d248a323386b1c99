//! Operations that reach a driver after the begin of its end.

use std::time::Duration;

use ostler_api::driver::{Certainty, ErrorCode};
use ostler_api::operation::{OperationView, Outcome, Reason};
use ostler_proto::v1alpha1::{
    MachineErrorCode, OperationError, OutcomeCertainty, Readiness, RoleKind, operation_completed,
};
use ostler_sessions::SessionEvent;
use tokio::time::Instant;

use crate::core::{Core, create, status};
use crate::driver::{Driver, Heard, created, found, hello};

fn refusal() -> OperationError {
    OperationError {
        code: MachineErrorCode::Unavailable.into(),
        reason: Reason::DriverDraining.into(),
        certainty: OutcomeCertainty::NotApplied.into(),
        ..OperationError::default()
    }
}

fn refused() -> operation_completed::Outcome {
    operation_completed::Outcome::Error(refusal())
}

async fn standby(core: &Core, number: u8) -> Driver {
    let (mut standby, _) = Driver::dial(core, hello(number)).await;
    standby.state(Readiness::Ready, 4).await;
    standby.handled().await;
    standby
}

async fn promoted(driver: &mut Driver) {
    assert!(matches!(driver.hear().await, Heard::Role(it) if it.role() == RoleKind::Active));
}

/// Why an operation failed, as the controllers read it.
fn failure(outcome: &Outcome) -> (ErrorCode, &str, Certainty) {
    let Err(failure) = outcome else { panic!("{outcome:?}") };
    (failure.code, failure.reason.as_str(), failure.certainty)
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_reaches_a_driver_at_its_end_is_done_by_the_next_and_nobody_hears_of_it()
{
    let mut core = Core::start();
    let mut old = Driver::ready(&mut core, 1).await;
    let mut new = standby(&core, 2).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    assert_eq!(old.receive().await.delivery, 1);
    old.state(Readiness::Draining, 0).await;
    promoted(&mut new).await;
    old.complete("op-1", refused()).await;

    let again = new.take().await;
    assert_eq!((again.operation_id.as_str(), again.delivery), ("op-1", 2));
    assert!(matches!(core.sessions.view("uid-1"), OperationView::InFlight(_)));
    assert_eq!(old.acknowledged().await, "op-1", "it waits for that before it ends");
    new.complete("op-1", created("m")).await;
    let ready = |event: &SessionEvent| matches!(event, SessionEvent::OutcomeReady { .. });
    core.event(ready).await;
    let OperationView::Finished(finished) = core.sessions.view("uid-1") else {
        panic!("no outcome")
    };
    assert!(finished.outcome.is_ok(), "{finished:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_that_ends_in_order_did_not_accept_is_done_by_the_next() {
    let mut core = Core::start();
    let mut old = Driver::ready(&mut core, 1).await;
    let mut new = standby(&core, 2).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    old.take().await;
    old.receive().await;
    old.state(Readiness::Draining, 0).await;
    promoted(&mut new).await;
    old.leave();
    let again = new.take().await;
    assert_eq!((again.operation_id.as_str(), again.delivery), ("op-2", 2));
    // The outcome of the other operation is unknown.
    let listening = tokio::spawn(async move { new.hear().await });
    let expected = (ErrorCode::Unavailable, Reason::CoreSessionLost.word(), Certainty::Unknown);
    assert_eq!(failure(&core.outcome("uid-1").await.outcome), expected);
    listening.abort();
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_did_not_accept_is_unknown_if_its_link_broke() {
    let mut core = Core::start();
    let mut old = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    old.receive().await;
    old.state(Readiness::Draining, 0).await;
    old.handled().await;
    old.link.abort();
    let expected = (ErrorCode::Unavailable, Reason::CoreSessionLost.word(), Certainty::Unknown);
    assert_eq!(failure(&core.outcome("uid-1").await.outcome), expected);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_was_handed_back_waits_for_the_next_driver() {
    let mut core = Core::start();
    let mut old = Driver::ready(&mut core, 1).await;
    let sessions = core.sessions.clone();
    let call = tokio::spawn(async move { sessions.call(status("op-1", "uid-1")).await });
    old.receive().await;
    old.state(Readiness::Draining, 0).await;
    old.complete("op-1", refused()).await;
    assert_eq!(old.acknowledged().await, "op-1");
    drop(old);
    core.provider_gone().await;
    let mut new = Driver::ready(&mut core, 2).await;
    assert_eq!(new.take().await.operation_id, "op-1");
    new.complete("op-1", found("m")).await;
    assert!(call.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_was_handed_back_does_not_wait_for_a_driver_that_never_comes() {
    let mut core = Core::start();
    let mut old = Driver::ready(&mut core, 1).await;
    let mut patient = create("op-1", "uid-1");
    patient.timeout = Duration::from_mins(20);
    core.sessions.submit(patient).unwrap();
    old.receive().await;
    old.state(Readiness::Draining, 0).await;
    old.complete("op-1", refused()).await;
    assert_eq!(old.acknowledged().await, "op-1");
    drop(old);
    let finished = core.outcome("uid-1").await;
    let expected = (ErrorCode::Unavailable, Reason::CoreNoSession.word(), Certainty::NotApplied);
    assert_eq!(failure(&finished.outcome), expected);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_every_driver_hands_back_ends_with_its_time() {
    let mut core = Core::start();
    let before = Instant::now();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    let mut rounds = 0;
    loop {
        driver.receive().await;
        rounds += 1;
        tokio::time::sleep(Duration::from_secs(7)).await;
        driver.state(Readiness::Draining, 0).await;
        driver.complete("op-1", refused()).await;
        assert_eq!(driver.acknowledged().await, "op-1");
        if matches!(core.sessions.view("uid-1"), OperationView::Finished(_)) {
            break;
        }
        driver = Driver::dial(&core, hello(rounds + 1)).await.0;
        driver.state(Readiness::Ready, 4).await;
    }
    let expected = (ErrorCode::DeadlineExceeded, Reason::CoreTimeout.word(), Certainty::NotApplied);
    assert_eq!(failure(&core.outcome("uid-1").await.outcome), expected);
    assert_eq!((rounds, before.elapsed().as_secs()), (9, 63), "its time is a minute");
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_was_cancelled_is_not_begun_elsewhere() {
    let mut core = Core::start();
    let mut old = Driver::ready(&mut core, 1).await;
    let mut new = standby(&core, 2).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    old.receive().await;
    core.sessions.cancel(&"op-1".into(), "deleted");
    old.state(Readiness::Draining, 0).await;
    old.complete("op-1", refused()).await;
    let expected = (ErrorCode::Canceled, Reason::CoreCanceled.word(), Certainty::NotApplied);
    assert_eq!(failure(&core.outcome("uid-1").await.outcome), expected);
    promoted(&mut new).await;
    new.handled().await;
}

#[tokio::test(start_paused = true)]
async fn all_other_refusals_are_failures() {
    let cases = [
        ("another word", true, false, OperationError { reason: "BUSY".to_owned(), ..refusal() }),
        (
            "no word, only prose",
            true,
            false,
            OperationError {
                reason: String::new(),
                message: "DRIVER_DRAINING: this process is about to end".to_owned(),
                ..refusal()
            },
        ),
        (
            "another code",
            true,
            false,
            OperationError { code: MachineErrorCode::Internal.into(), ..refusal() },
        ),
        (
            "something may have changed",
            true,
            false,
            OperationError { certainty: OutcomeCertainty::Unknown.into(), ..refusal() },
        ),
        ("it was accepted", true, true, refusal()),
        ("the driver does not drain", false, false, refusal()),
    ];
    for (what, drains, accepted, error) in cases {
        let mut core = Core::start();
        let mut driver = Driver::ready(&mut core, 1).await;
        core.sessions.submit(create("op-1", "uid-1")).unwrap();
        if accepted {
            driver.take().await;
        } else {
            driver.receive().await;
        }
        if drains {
            driver.state(Readiness::Draining, 0).await;
        }
        let reason = error.reason.clone();
        driver.complete("op-1", operation_completed::Outcome::Error(error)).await;
        let finished = core.outcome("uid-1").await;
        assert_eq!(failure(&finished.outcome).1, reason, "{what}");
    }
}
