//! What may start in a session, and what may not.

use std::sync::atomic::Ordering;

use ostler_proto::v1alpha1 as proto;
use proto::register_response::Frame as ToDriver;
use proto::{MachineErrorCode as Code, OutcomeCertainty as Certainty, Readiness};

use crate::session::{shown, status};
use crate::tiny_core::stable::Stable;
use crate::tiny_core::{TinyCore, create, welcome};

#[tokio::test(start_paused = true)]
async fn f14_an_operation_of_an_old_term_is_refused() {
    let mut core = TinyCore::start();
    let stable = Stable::default();
    let _driver = stable.run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(proto::Operation { fencing_term: 7, ..create("new", "m") }).await;
    session.accepted().await;
    session.completed().await;
    session.operate(proto::Operation { fencing_term: 6, ..create("old", "m") }).await;
    let refused = session.failed().await;
    assert_eq!(shown(&refused), (Code::FailedPrecondition, Certainty::NotApplied, "STALE_TERM"));
    assert_eq!(stable.creates.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_stands_by_starts_nothing_until_it_is_promoted() {
    let mut core = TinyCore::start();
    let stable = Stable::default();
    let _driver = stable.run(&core);
    let mut session = core.session().await;
    session.hello().await;
    let role = proto::RoleKind::Standby.into();
    session.send(ToDriver::Welcome(Box::new(proto::Welcome { role, ..welcome() }))).await;
    assert_eq!(session.state().await.readiness(), Readiness::Ready);
    session.operate(create("early", "m")).await;
    assert_eq!(
        shown(&session.failed().await),
        (Code::Unavailable, Certainty::NotApplied, "STANDBY")
    );
    assert_eq!(stable.creates.load(Ordering::SeqCst), 0);

    let role = proto::RoleKind::Active.into();
    session.send(ToDriver::Role(proto::SessionRole { role, fencing_term: 2 })).await;
    session.operate(proto::Operation { fencing_term: 2, ..create("op", "m") }).await;
    session.accepted().await;
}

#[tokio::test(start_paused = true)]
async fn a_target_is_not_changed_by_two_at_once_even_if_the_first_was_cancelled() {
    let mut core = TinyCore::start();
    let stable = Stable::default();
    let _driver = stable.run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(create("given-up", "waits")).await;
    session.accepted().await;
    let cancel =
        proto::OperationCancel { operation_id: "given-up".to_owned(), ..Default::default() };
    session.send(ToDriver::Cancel(cancel)).await;
    session.operate(status("read", "waits-not")).await;
    session.accepted().await;
    session.completed().await;
    session.operate(create("next", "waits")).await;
    let refused = session.failed().await;
    assert_eq!(shown(&refused), (Code::Aborted, Certainty::NotApplied, "TARGET_BUSY"));
    assert_eq!(stable.creates.load(Ordering::SeqCst), 1);
    session.operate(create("another", "waits-too")).await;
    session.accepted().await;

    stable.go.notify_one();
    session.completed().await;
    session.operate(create("last", "waits")).await;
    assert_eq!(session.accepted().await, "last");
}

#[tokio::test(start_paused = true)]
async fn no_more_runs_at_once_than_twice_what_was_agreed() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let mut session = core.session().await;
    session.hello().await;
    session
        .send(ToDriver::Welcome(Box::new(proto::Welcome { max_in_flight: 2, ..welcome() })))
        .await;
    session.state().await;
    for id in ["1", "2", "3", "4"] {
        session.operate(create(id, &format!("hangs-{id}"))).await;
        session.accepted().await;
    }
    session.operate(create("5", "hangs-5")).await;
    assert_eq!(session.failed().await.reason, "OVER_CREDIT");
    assert_eq!(session.echo().await.running, ["1", "2", "3", "4"]);
}
