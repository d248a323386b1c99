//! Drivers that break the contract.

use std::time::Duration;

use ostler_proto::v1alpha1::{
    Heartbeat, Hello, OperationAccepted, OperationPage, OperationProgress, Readiness,
};
use ostler_sessions::{SessionEvent, SessionsOptions};
use tonic::Code;

use crate::core::{Core, FOREIGN_TOKEN, create, create_with};
use crate::driver::{Driver, Heard, Said, created, hello};

#[tokio::test(start_paused = true)]
async fn a_wrong_token_and_no_token_are_refused_before_anything_else() {
    let core = Core::start();
    let refused = Driver::open(&core, "wrong").await.err().unwrap();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let mut client = core.client().await;
    let bare = client.register(tokio_stream::empty()).await.err().unwrap();
    assert_eq!(bare.code(), Code::Unauthenticated);
}

#[tokio::test(start_paused = true)]
async fn f08_a_driver_of_another_provider_is_refused_and_reported() {
    let mut core = Core::start();
    let mut driver = Driver::open(&core, FOREIGN_TOKEN).await.unwrap();
    driver.say(Said::Hello(hello(1).into())).await;
    let (error, status) = driver.closed().await;
    assert_eq!((error.reason.as_str(), error.retry), ("FOREIGN_PROVIDER", false));
    assert_eq!(status.code(), Code::PermissionDenied);
    let event = core.event(|_| true).await;
    let provider = "fake.ostler.dev".into();
    let principal = "foreign".to_owned();
    let serves = "foreign.ostler.dev".to_owned();
    assert!(error.message.contains(&serves), "{}", error.message);
    assert_eq!(event, SessionEvent::ForeignProvider { principal, provider, serves });
    assert_eq!(core.sessions.providers(), []);
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_hello_is_closed() {
    let core = Core::start();
    let before = tokio::time::Instant::now();
    let mut driver = Driver::open(&core, crate::core::TOKEN).await.unwrap();
    let (error, status) = driver.closed().await;
    assert_eq!((error.reason.as_str(), status.code()), ("HELLO_TIMEOUT", Code::DeadlineExceeded));
    assert_eq!(before.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn f12_a_frame_before_hello_and_a_second_hello_end_the_stream() {
    let core = Core::start();
    for frame in [Some(Said::Heartbeat(Heartbeat::default())), None] {
        let mut driver = Driver::open(&core, crate::core::TOKEN).await.unwrap();
        driver.send(frame).await;
        let (error, status) = driver.closed().await;
        let closed = (error.reason.as_str(), status.code(), error.retry);
        assert_eq!(closed, ("HELLO_EXPECTED", Code::FailedPrecondition, false));
    }
    let (mut driver, _) = Driver::dial(&core, hello(1)).await;
    driver.say(Said::Hello(hello(1).into())).await;
    let (error, _) = driver.closed().await;
    assert_eq!((error.reason.as_str(), error.retry), ("SECOND_HELLO", false));
}

#[tokio::test(start_paused = true)]
async fn f12_an_unknown_frame_is_ignored_and_the_session_lives() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    driver.send(None).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
}

#[tokio::test(start_paused = true)]
async fn f05_a_driver_that_does_not_answer_heartbeats_is_lost() {
    let mut core = Core::start();
    let before = tokio::time::Instant::now();
    let mut driver = Driver::ready(&mut core, 1).await;
    for _ in 0..3 {
        let frame = driver.item().await.unwrap().unwrap().frame;
        assert!(matches!(frame, Some(Heard::Heartbeat(_))), "{frame:?}");
    }
    let (error, status) = driver.closed().await;
    assert_eq!((error.reason.as_str(), error.retry), ("HEARTBEAT_LOST", true));
    assert_eq!((status.code(), before.elapsed().as_secs()), (Code::Unavailable, 40));
    core.provider_gone().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_answers_heartbeats_lives_on_without_operations() {
    let mut core = Core::start();
    let before = tokio::time::Instant::now();
    let mut driver = Driver::ready(&mut core, 1).await;
    let beats = async {
        // Answers heartbeats, and returns with anything else.
        let heard = driver.hear().await;
        panic!("{heard:?}");
    };
    // Before the session is so old that its driver is asked to dial again.
    let long = std::time::Duration::from_mins(50);
    assert!(tokio::time::timeout(long, beats).await.is_err());
    assert_eq!(before.elapsed().as_secs(), long.as_secs());
    assert!(core.sessions.providers()[0].ready);
}

#[tokio::test(start_paused = true)]
async fn f10_a_driver_that_does_not_read_is_closed_and_holds_up_nobody() {
    let mut core = Core::start();
    let mut deaf = Driver::ready_with(&mut core, 1, 64).await;
    // More than the connection takes up: most of it stays with the core.
    for number in 0..8 {
        let (id, uid) = (format!("op-{number}"), format!("uid-{number}"));
        let large = create_with(&id, &uid, vec![0; 256 << 10]);
        core.sessions.submit(large).unwrap();
    }
    let before = tokio::time::Instant::now();
    let closing = core.provider_gone();
    // The driver goes on writing, so as not to be taken for dead.
    let writing = async {
        loop {
            deaf.say(Said::Heartbeat(Heartbeat::default())).await;
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = closing => {}
        () = writing => {}
    }
    assert!(before.elapsed().as_secs() <= 20, "{:?}", before.elapsed());
    let mut driver = Driver::ready(&mut core, 2).await;
    core.sessions.submit(create("op-x", "uid-x")).unwrap();
    assert_eq!(driver.take().await.operation_id, "op-x");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_calls_for_answers_and_does_not_read_them_is_closed() {
    let mut core = Core::start();
    let mut deaf = Driver::ready(&mut core, 1).await;
    let asking = async {
        loop {
            deaf.complete("op-unknown", created("pid-1")).await;
        }
    };
    tokio::select! {
        () = core.provider_gone() => {}
        () = asking => {}
    }
}

#[tokio::test(start_paused = true)]
async fn f11_a_frame_over_the_limit_ends_the_stream_with_a_reason() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    let message = "x".repeat(2 << 20);
    driver.say(Said::Progress(Box::new(OperationProgress { message, ..<_>::default() }))).await;
    let (error, status) = driver.closed().await;
    assert_eq!(error.reason, "FRAME_TOO_LARGE");
    let limit = format!("the limit is: {} bytes", 1 << 20);
    assert!(error.message.contains(&limit), "{}", error.message);
    assert!(status.message().contains(&limit), "{status}");
    assert_eq!(status.code(), Code::FailedPrecondition);
    core.provider_gone().await;
}

#[tokio::test(start_paused = true)]
async fn f11_a_frame_of_empty_records_ends_the_stream_before_it_takes_memory() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    let machines = vec![<_>::default(); 100_000];
    driver.say(Said::Page(OperationPage { machines, ..<_>::default() })).await;
    let (error, _) = driver.closed().await;
    assert_eq!(error.reason, "FRAME_TOO_LARGE");
    assert!(error.message.contains("messages in it"), "{}", error.message);
    core.provider_gone().await;
}

#[tokio::test(start_paused = true)]
async fn f15_too_many_drivers_and_one_without_readiness_are_refused() {
    let mut options = SessionsOptions::default();
    options.limits.sessions_per_provider = 1;
    options.limits.sessions = 2;
    let core = Core::with(options);
    let (mut driver, _) = Driver::dial(&core, hello(1)).await;
    let mut second = Driver::open(&core, crate::core::TOKEN).await.unwrap();
    let third = Driver::open(&core, crate::core::TOKEN).await.err().unwrap();
    assert_eq!(third.code(), Code::ResourceExhausted);
    second.say(Said::Hello(hello(2).into())).await;
    assert_eq!(second.closed().await.0.reason, "TOO_MANY_SESSIONS");
    driver.state(Readiness::Unspecified, 4).await;
    assert_eq!(driver.closed().await.0.reason, "BAD_STATE");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_lists_more_operations_than_it_can_have_is_closed() {
    let mut options = SessionsOptions::default();
    options.limits.held = 2;
    let core = Core::with(options);
    let ids = |number| vec!["op-x".to_owned(); number];
    let accepted = |number| Said::Accepted(OperationAccepted { operation_ids: ids(number) });
    let beat = |number| Said::Heartbeat(Heartbeat { running: ids(number), ..<_>::default() });
    for (as_many, more) in [(accepted(2), accepted(3)), (beat(2), beat(3))] {
        let (mut driver, _) = Driver::dial(&core, hello(1)).await;
        driver.say(as_many).await;
        driver.handled().await;
        driver.say(more).await;
        let (error, _) = driver.closed().await;
        assert_eq!((error.reason.as_str(), error.retry), ("TOO_MANY_HELD", false));
    }
}

#[tokio::test(start_paused = true)]
async fn f13_a_clock_that_is_years_off_changes_nothing() {
    for seconds in [0, 32_503_680_000] {
        let mut core = Core::start();
        let driver_time = Some(prost_types::Timestamp { seconds, nanos: 0 });
        let (mut driver, _) = Driver::dial(&core, Hello { driver_time, ..hello(1) }).await;
        driver.state(Readiness::Ready, 4).await;
        core.provider_ready().await;
        core.sessions.submit(create("op-1", "uid-1")).unwrap();
        let operation = driver.take().await;
        assert_eq!(operation.timeout.unwrap().seconds, 60, "times are durations");
        let beats = async {
            let heard = driver.hear().await;
            panic!("{heard:?}");
        };
        assert!(tokio::time::timeout(Duration::from_secs(45), beats).await.is_err());
        driver.complete("op-1", created("m")).await;
        let finished = core.outcome("uid-1").await;
        assert!(finished.outcome.is_ok(), "{finished:?}");
    }
}
