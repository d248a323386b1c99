//! Heartbeats with their content, and the limit of the rate.

use std::time::Duration;

use ostler_api::driver::Certainty;
use ostler_api::operation::OperationView;
use ostler_proto::v1alpha1::{Heartbeat, Hello};
use ostler_sessions::{Limits, SessionEvent, SessionsOptions};
use prometheus_client::registry::Registry;
use tokio::time::{Instant, advance};
use tonic::Code;
use tonic_types::StatusExt;

use crate::core::{Core, SECOND_TOKEN, TOKEN, create};
use crate::driver::{Driver, Heard, Said, created, hello};

/// Answers the next heartbeat with what the driver works on.
async fn beat(driver: &mut Driver) {
    let frame = driver.item().await.unwrap().unwrap().frame.unwrap();
    let Heard::Heartbeat(heartbeat) = frame else { panic!("{frame:?}") };
    let running = driver.running.clone();
    driver.say(Said::Heartbeat(Heartbeat { running, ..heartbeat })).await;
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_the_driver_does_not_list_twice_in_a_row_is_unknown() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("lost", "uid-1")).unwrap();
    core.sessions.submit(create("kept", "uid-2")).unwrap();
    driver.take().await;
    driver.take().await;
    driver.running = vec!["kept".to_owned()];
    beat(&mut driver).await;
    driver.handled().await;
    assert!(
        matches!(core.sessions.view("uid-1"), OperationView::InFlight(_)),
        "once is not enough"
    );
    beat(&mut driver).await;
    assert_eq!(driver.cancelled().await, "lost");
    let finished = core.outcome("uid-1").await;
    let Err(failure) = &finished.outcome else { panic!("a result") };
    assert_eq!(failure.reason, "CORE_OPERATION_LOST");
    assert_eq!(failure.certainty, Certainty::Unknown);
    assert!(matches!(core.sessions.view("uid-2"), OperationView::InFlight(_)));
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_listed_again_or_completed_meanwhile_is_not_lost() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    let running = std::mem::take(&mut driver.running);
    beat(&mut driver).await;
    driver.running = running;
    beat(&mut driver).await;
    driver.running.clear();
    beat(&mut driver).await;
    // The completion goes before the heartbeat without the operation.
    driver.complete("op-1", created("m")).await;
    beat(&mut driver).await;
    assert!(core.outcome("uid-1").await.outcome.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_was_not_accepted_yet_need_not_be_listed() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    advance(Duration::from_secs(9)).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.receive().await;
    beat(&mut driver).await;
    driver.handled().await;
    assert!(matches!(core.sessions.view("uid-1"), OperationView::InFlight(_)));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_off_shows_and_changes_nothing() {
    let mut core = Core::start();
    let mut registry = Registry::default();
    core.sessions.register_metrics(&mut registry);
    let an_hour_ahead = std::time::SystemTime::now() + Duration::from_hours(1);
    let hello = Hello { driver_time: Some(an_hour_ahead.into()), ..hello(1) };
    let (mut driver, _) = Driver::dial(&core, hello).await;
    driver.state(ostler_proto::v1alpha1::Readiness::Ready, 4).await;
    core.provider_ready().await;
    let ahead = core.sessions.providers()[0].clock_ahead.unwrap();
    assert!((3_590_000..=3_600_000).contains(&ahead), "{ahead}");
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains("ostler_driver_clock_ahead_seconds{"), "{text}");
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
}

#[tokio::test(start_paused = true)]
async fn a_principal_that_dials_in_too_often_is_told_how_long_to_wait() {
    let core = Core::start();
    for _ in 0..16 {
        Driver::open(&core, TOKEN).await.unwrap();
    }
    let refused = Driver::open(&core, TOKEN).await.err().unwrap();
    let details = refused.get_error_details();
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(details.error_info().unwrap().reason, "TOO_MANY_CONNECTS");
    assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_secs(1)));
    Driver::open(&core, SECOND_TOKEN).await.unwrap();
    advance(Duration::from_secs(1)).await;
    Driver::open(&core, TOKEN).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_so_many_drivers_are_between_dialing_and_hello() {
    let limits = Limits { arrivals: 2, ..Limits::default() };
    let mut core = Core::with(SessionsOptions { limits, ..SessionsOptions::default() });
    let mut registry = Registry::default();
    core.sessions.register_metrics(&mut registry);
    let mut first = Driver::open(&core, TOKEN).await.unwrap();
    let _second = Driver::open(&core, TOKEN).await.unwrap();
    let refused = Driver::open(&core, TOKEN).await.err().unwrap();
    let stranger = Driver::open(&core, "wrong").await.err().unwrap();
    assert_eq!(stranger.code(), Code::Unauthenticated, "who it is comes first");
    let details = refused.get_error_details();
    assert_eq!(details.error_info().unwrap().reason, "TOO_MANY_ARRIVALS");
    assert!(details.retry_info().is_some());
    first.greet(hello(1)).await;
    first.state(ostler_proto::v1alpha1::Readiness::Ready, 4).await;
    core.provider_ready().await;
    Driver::open(&core, TOKEN).await.unwrap();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let line = "ostler_driver_turned_away_total{reason=\"TOO_MANY_ARRIVALS\"} 1";
    assert!(text.contains(line), "{text}");
}

#[tokio::test(start_paused = true)]
async fn those_that_wait_for_drivers_to_come_back_look_again_when_the_window_is_over() {
    let mut core = Core::start();
    let before = Instant::now();
    let mut driver = Driver::ready(&mut core, 1).await;
    assert!(core.sessions.adoption_open());
    let reading = tokio::spawn(async move { driver.hear().await });
    let event = core.event(|event| matches!(event, SessionEvent::ProviderReady { .. })).await;
    assert_eq!(event, SessionEvent::ProviderReady { provider: "fake.ostler.dev".into() });
    assert_eq!(before.elapsed().as_secs(), 30);
    assert!(!core.sessions.adoption_open());
    reading.abort();
}
