//! Sessions that end in band, from either side.

use std::time::Duration;

use ostler_api::driver::Certainty;
use ostler_proto::v1alpha1::{CoreDraining, DriverState, HeldState, Readiness, RoleKind, Verdict};
use ostler_sessions::SessionsOptions;
use tokio::time::Instant;

use crate::core::{Core, EXPIRING_TOKEN, PROVIDER, create};
use crate::driver::{Driver, Heard, Said, created, held, hello, holding};

async fn drained(driver: &mut Driver) -> CoreDraining {
    match driver.hear().await {
        Heard::Draining(draining) => draining,
        other => panic!("not drained: {other:?}"),
    }
}

async fn pair(core: &mut Core) -> (Driver, Driver) {
    let active = Driver::ready(core, 1).await;
    let (mut standby, _) = Driver::dial(core, hello(2)).await;
    standby.state(Readiness::Ready, 4).await;
    standby.handled().await;
    (active, standby)
}

#[tokio::test(start_paused = true)]
async fn a_drained_session_finishes_what_runs_while_the_standby_takes_over_at_once() {
    let mut core = Core::start();
    let (mut active, mut standby) = pair(&mut core).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    active.take().await;
    assert!(core.sessions.drain_session(&active.session_id, None));
    assert!(matches!(standby.hear().await, Heard::Role(it) if it.role() == RoleKind::Active));
    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    assert_eq!(standby.take().await.operation_id, "op-2");
    let close_after = drained(&mut active).await.close_after.unwrap();
    assert_eq!(close_after.seconds, 30);
    active.complete("op-1", created("m")).await;
    let finished = core.outcome("uid-1").await;
    assert!(finished.outcome.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_drained_session_that_stays_is_closed_and_its_operations_are_resumed() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    let before = Instant::now();
    assert!(core.sessions.drain_session(&driver.session_id, Some(Duration::from_secs(7))));
    assert!(!core.sessions.drain_session("another", None));
    drained(&mut driver).await;
    let (error, _) = driver.closed().await;
    assert_eq!((error.reason.as_str(), error.retry), ("DRAINED", true));
    assert_eq!(before.elapsed().as_secs(), 7);
    let held = held("op-1", "uid-1", HeldState::Running);
    let (mut driver, welcome) = Driver::dial(&core, holding(1, vec![held])).await;
    assert_eq!(welcome.verdicts[0].verdict(), Verdict::Keep);
    driver.complete("op-1", created("m")).await;
    assert!(core.outcome("uid-1").await.outcome.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_session_is_asked_to_dial_again_at_its_age_and_says_so_from_the_start() {
    let mut core = Core::start();
    let (mut driver, welcome) = Driver::dial(&core, hello(1)).await;
    let age = Duration::try_from(welcome.session_max_age.unwrap()).unwrap();
    assert!((Duration::from_mins(54)..=Duration::from_mins(66)).contains(&age), "{age:?}");
    driver.state(Readiness::Ready, 4).await;
    core.provider_ready().await;
    let before = Instant::now();
    drained(&mut driver).await;
    assert_eq!(before.elapsed().as_secs(), age.as_secs());
    let (again, welcome) = Driver::dial(&core, hello(1)).await;
    assert_eq!(welcome.role(), RoleKind::Active);
    assert_ne!(again.session_id, driver.session_id);
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_before_the_token_that_it_was_opened_with() {
    let core = Core::start();
    let mut driver = Driver::open(&core, EXPIRING_TOKEN).await.unwrap();
    let welcome = driver.greet(hello(1)).await;
    // The token is good for ten minutes.
    assert_eq!(welcome.session_max_age.unwrap().seconds, 8 * 60);
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_did_not_finish_by_its_deadline_is_unknown() {
    let mut core = Core::start();
    let (mut active, mut standby) = pair(&mut core).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    active.take().await;
    let before = Instant::now();
    let drain_deadline = Some(prost_types::Duration { seconds: 20, nanos: 0 });
    let readiness = Readiness::Draining.into();
    active.say(Said::State(DriverState { readiness, drain_deadline, ..<_>::default() })).await;
    assert!(matches!(standby.hear().await, Heard::Role(it) if it.role() == RoleKind::Active));
    let reading = tokio::spawn(async move { active.closed().await });
    let finished = core.outcome("uid-1").await;
    let Err(failure) = &finished.outcome else { panic!("a result") };
    assert_eq!(
        (failure.reason.as_str(), failure.certainty),
        ("CORE_SESSION_LOST", Certainty::Unknown)
    );
    assert_eq!(before.elapsed().as_secs(), 25, "its deadline, and a little");
    assert_eq!(reading.await.unwrap().0.reason, "DRAINED");
    assert_eq!(core.sessions.providers()[0].provider, PROVIDER);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_driver_past_the_end_that_it_gave_itself() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    let before = Instant::now();
    let drain_deadline = Some(prost_types::Duration { seconds: 5, nanos: 0 });
    let readiness = Readiness::Draining.into();
    driver.say(Said::State(DriverState { readiness, drain_deadline, ..<_>::default() })).await;
    driver.handled().await;
    driver.link.abort();
    core.outcome("uid-1").await;
    assert_eq!(before.elapsed().as_secs(), 10, "not the whole resume window");
}

/// The driver announces its end in so many seconds.
async fn ends_in(driver: &mut Driver, seconds: i64) {
    let drain_deadline = Some(prost_types::Duration { seconds, nanos: 0 });
    let readiness = Readiness::Draining.into();
    driver.say(Said::State(DriverState { readiness, drain_deadline, ..<_>::default() })).await;
    driver.handled().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_does_not_end_after_all_goes_on() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    ends_in(&mut driver, 20).await;
    driver.state(Readiness::Ready, 4).await;
    let later = tokio::time::timeout(Duration::from_secs(45), driver.hear()).await;
    assert!(later.is_err(), "{later:?}");
    driver.complete("op-1", created("m")).await;
    assert!(core.outcome("uid-1").await.outcome.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_old_session_ends_when_the_core_says_though_its_driver_would_take_longer() {
    for driver_first in [true, false] {
        let mut core = Core::start();
        let mut driver = Driver::ready(&mut core, 1).await;
        core.sessions.submit(create("op-1", "uid-1")).unwrap();
        driver.take().await;
        driver.handled().await;
        let before = Instant::now();
        if driver_first {
            ends_in(&mut driver, 300).await;
        }
        assert!(core.sessions.drain_session(&driver.session_id, Some(Duration::from_secs(7))));
        drained(&mut driver).await;
        if !driver_first {
            ends_in(&mut driver, 300).await;
        }
        assert_eq!(driver.closed().await.0.reason, "DRAINED");
        assert_eq!(before.elapsed().as_secs(), 7);
        // The process has not ended, and comes back with its operations.
        let held = held("op-1", "uid-1", HeldState::Running);
        let (mut driver, welcome) = Driver::dial(&core, holding(1, vec![held])).await;
        assert_eq!(welcome.verdicts[0].verdict(), Verdict::Keep);
        driver.complete("op-1", created("m")).await;
        assert!(core.outcome("uid-1").await.outcome.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_beyond_all_clocks_breaks_nothing() {
    let mut core = Core::start();
    let (mut active, mut standby) = pair(&mut core).await;
    let drain_deadline = Some(prost_types::Duration { seconds: i64::MAX, nanos: 0 });
    let readiness = Readiness::Draining.into();
    active.say(Said::State(DriverState { readiness, drain_deadline, ..<_>::default() })).await;
    assert!(matches!(standby.hear().await, Heard::Role(it) if it.role() == RoleKind::Active));
    active.handled().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_a_frame_is_handled_leaves_no_session_behind() {
    let mut options = SessionsOptions::default();
    // Added to any time, it is beyond all clocks.
    options.timing.drain_grace = Duration::MAX;
    let mut core = Core::with(options);
    let (mut active, mut standby) = pair(&mut core).await;
    let before = Instant::now();
    let drain_deadline = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    let readiness = Readiness::Draining.into();
    active.say(Said::State(DriverState { readiness, drain_deadline, ..<_>::default() })).await;
    assert!(matches!(standby.hear().await, Heard::Role(it) if it.role() == RoleKind::Active));
    assert_eq!(before.elapsed().as_secs(), 0, "before any heartbeat is missed");
}
