//! A core that gives no class or no secret.

use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::register_response::Frame as ToDriver;
use proto::{MachineErrorCode as Code, OutcomeCertainty as Certainty, Verdict};
use tokio::time::Instant;

use crate::session::{shown, verdict};
use crate::tiny_core::stable::Stable;
use crate::tiny_core::{TinyCore, create, welcome};

#[tokio::test(start_paused = true)]
async fn a_mutation_that_was_cancelled_is_not_denied_its_secret_but_unwanted() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    "other".clone_into(&mut core.calls().session.lock().unwrap());
    session.operate(create("op", "secretive")).await;
    session.accepted().await;
    let operation_id = "op".to_owned();
    let reason = "deleted".to_owned();
    session.send(ToDriver::Cancel(proto::OperationCancel { operation_id, reason })).await;
    let error = session.failed().await;
    assert_eq!(shown(&error), (Code::Canceled, Certainty::NotApplied, "CANCELED"));
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_denied_for_good_ends_the_operation_unapplied() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    "other".clone_into(&mut core.calls().session.lock().unwrap());
    session.operate(create("op", "secretive")).await;
    session.accepted().await;
    let error = session.failed().await;
    assert_eq!(shown(&error), (Code::PermissionDenied, Certainty::NotApplied, "REFERENCE_DENIED"));
}

#[tokio::test(start_paused = true)]
async fn a_core_that_says_why_it_denies_is_believed_at_once() {
    for (denial, code, reason) in [
        ("NOT_IN_FLIGHT", Code::PermissionDenied, "REFERENCE_DENIED"),
        ("OPERATION_CANCELLED", Code::Canceled, "CANCELED"),
    ] {
        let mut core = TinyCore::start();
        let _driver = Stable::default().run(&core);
        let (mut session, _) = core.welcomed().await;
        "other".clone_into(&mut core.calls().session.lock().unwrap());
        denial.clone_into(&mut core.calls().denial.lock().unwrap());
        let before = Instant::now();
        session.operate(create("op", "secretive")).await;
        session.accepted().await;
        let error = session.failed().await;
        assert_eq!(shown(&error), (code, Certainty::NotApplied, reason));
        assert!(before.elapsed() < Duration::from_millis(500), "{denial}: {:?}", before.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_denied_since_the_session_is_over_is_asked_for_in_the_next_one() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    "next".clone_into(&mut core.calls().session.lock().unwrap());
    "SESSION_OVER".clone_into(&mut core.calls().denial.lock().unwrap());
    session.operate(create("op", "secretive")).await;
    session.accepted().await;
    // Longer than it would wait for an end that the core does not speak of.
    tokio::time::sleep(Duration::from_secs(5)).await;
    drop(session);
    let mut session = core.session().await;
    session.hello().await;
    let session_id = "next".to_owned();
    let verdicts = vec![verdict("op", Verdict::Keep)];
    session
        .send(ToDriver::Welcome(Box::new(proto::Welcome { session_id, verdicts, ..welcome() })))
        .await;
    session.state().await;
    assert_eq!(session.completed().await.operation_id, "op");
}
