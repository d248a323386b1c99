//! Cores that lead no longer or not yet, and the end of the process.

use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::register_response::Frame as ToDriver;
use proto::{MachineErrorCode as Code, OutcomeCertainty as Certainty, Readiness};
use tokio::time::Instant;

use crate::session::shown;
use crate::tiny_core::stable::Stable;
use crate::tiny_core::{TinyCore, create, welcome};

#[tokio::test(start_paused = true)]
async fn a_core_that_does_not_lead_is_left_and_the_next_one_tried_soon() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let before = Instant::now();
    for _ in 0..20 {
        core.session().await.refuse("NOT_LEADER", None).await;
    }
    let (_session, _) = core.welcomed().await;
    let took = before.elapsed();
    assert!(took <= Duration::from_secs(40), "never more than 2 s each: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_core_that_names_a_time_is_not_dialed_before() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let session = core.session().await;
    let before = Instant::now();
    session.refuse("TOO_MANY_ARRIVALS", Some(Duration::from_secs(5))).await;
    let (_session, _) = core.welcomed().await;
    let took = before.elapsed();
    assert!((5..=6).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_core_that_goes_is_dialed_again_when_it_said_though_it_closes_the_stream_itself() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    // Without it the driver would be gone after the first frame.
    session.operate(create("op", "hangs")).await;
    session.accepted().await;
    let before = Instant::now();
    let reconnect_after = Some(prost_types::Duration { seconds: 3, nanos: 0 });
    let draining = proto::CoreDraining { reconnect_after, ..Default::default() };
    session.send(ToDriver::Draining(draining)).await;
    let error = proto::ProtocolError { retry: true, ..Default::default() };
    session.send(ToDriver::ProtocolError(error)).await;
    let (_session, _) = core.welcomed().await;
    assert_eq!(before.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_cuts_the_drain() {
    let mut core = TinyCore::start();
    let driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(create("op", "hangs")).await;
    session.accepted().await;
    let before = Instant::now();
    driver.shutdown.cancel();
    assert_eq!(session.state().await.readiness(), Readiness::Draining);
    driver.hurry.cancel();
    assert_eq!(
        shown(&session.failed().await),
        (Code::Unavailable, Certainty::Unknown, "DRIVER_STOPPED")
    );
    drop(session);
    driver.ended.await.unwrap();
    assert!(before.elapsed() < Duration::from_secs(10), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_welcome_of_an_old_term_is_not_obeyed() {
    let mut core = TinyCore::start();
    let stable = Stable::default();
    let _driver = stable.run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(proto::Operation { fencing_term: 7, ..create("op", "m") }).await;
    session.accepted().await;
    session.completed().await;
    drop(session);

    let mut stale = core.session().await;
    stale.hello().await;
    let forget = proto::HeldVerdict {
        operation_id: "op".to_owned(),
        verdict: proto::Verdict::Forget.into(),
    };
    let verdicts = vec![forget];
    stale
        .send(ToDriver::Welcome(Box::new(proto::Welcome {
            fencing_term: 6,
            verdicts,
            ..welcome()
        })))
        .await;

    let mut session = core.session().await;
    let held = session.hello().await.resume.unwrap().operations;
    let held: Vec<_> = held.iter().map(|held| held.operation_id.as_str()).collect();
    assert_eq!(held, ["op"], "the result is still kept");
}
