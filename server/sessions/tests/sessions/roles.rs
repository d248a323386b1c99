//! Two sessions of one provider.

use std::collections::BTreeMap;

use ostler_api::operation::{OperationView, Reason};
use ostler_proto::v1alpha1::{
    DriverCapability, DriverState, HeldState, Hello, Readiness, RoleKind, Verdict,
};
use ostler_sessions::{SessionEvent, SessionsOptions, SubmitError};

use crate::core::{Core, PROVIDER, SECOND_TOKEN, create, delete};
use crate::driver::{Driver, Heard, Said, created, held, hello, holding};

async fn promoted(driver: &mut Driver) {
    match driver.hear().await {
        Heard::Role(role) => assert_eq!(role.role(), RoleKind::Active),
        other => panic!("not a role: {other:?}"),
    }
}

/// An active driver and a ready standby of another principal.
async fn pair(core: &mut Core) -> (Driver, Driver) {
    let active = Driver::ready(core, 1).await;
    let mut standby = Driver::open(core, SECOND_TOKEN).await.unwrap();
    let welcome = standby.greet(hello(2)).await;
    assert_eq!(welcome.role(), RoleKind::Standby);
    standby.state(Readiness::Ready, 4).await;
    (active, standby)
}

#[tokio::test(start_paused = true)]
async fn f06_the_first_is_active_and_the_second_stands_by_until_the_first_goes() {
    let mut core = Core::start();
    let (mut active, mut standby) = pair(&mut core).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    active.take().await;
    assert_eq!(core.sessions.providers()[0].sessions, 2);
    drop(active);
    promoted(&mut standby).await;
    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    assert_eq!(standby.take().await.operation_id, "op-2");
    // The first driver may come back with its operation: the target waits.
    assert!(matches!(core.sessions.view("uid-1"), OperationView::InFlight(_)));
    let busy = core.sessions.submit(delete("op-3", "uid-1"));
    assert_eq!(busy, Err(SubmitError::TargetBusy { operation_id: "op-1".into() }));
}

#[tokio::test(start_paused = true)]
async fn why_a_driver_is_not_ready_is_told_whenever_that_changes() {
    let mut core = Core::start();
    let (mut driver, _) = Driver::dial(&core, hello(1)).await;
    let mut say = async |reason: &str| {
        let readiness = Readiness::NotReady.into();
        let state = DriverState { readiness, reason: reason.to_owned(), ..<_>::default() };
        driver.say(Said::State(state)).await;
        driver.handled().await;
    };
    for reason in ["no engine", "no quota"] {
        say(reason).await;
        core.provider_gone().await;
        assert_eq!(core.sessions.providers()[0].reason, reason);
    }
    say("no quota").await;
    assert!(core.events.try_recv().is_err(), "nothing new");
    drop(driver);
    core.provider_gone().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_flaps_turns_its_machines_once_a_second_and_its_last_word_counts() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    for _ in 0..500 {
        driver.state(Readiness::NotReady, 4).await;
        driver.state(Readiness::Ready, 4).await;
    }
    driver.state(Readiness::NotReady, 4).await;
    driver.handled().await;
    let mut turns = Vec::new();
    let mut turned = async |within: u64| {
        tokio::time::sleep(std::time::Duration::from_secs(within)).await;
        while let Ok(event) = core.events.try_recv() {
            turns.extend(
                event.turned().map(|_| matches!(event, SessionEvent::ProviderReady { .. })),
            );
        }
        (turns.len(), turns.last().copied())
    };
    let (first, _) = turned(0).await;
    assert!(first <= 10, "{first}");
    assert_eq!(turned(2).await, (first + 1, Some(false)));
    // After a rest nothing waits.
    assert_eq!(turned(15).await.0, first + 1);
    driver.state(Readiness::Ready, 4).await;
    driver.handled().await;
    assert_eq!(turned(0).await, (first + 2, Some(true)));
    drop(driver);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_comes_and_goes_turns_its_machines_no_more_often() {
    let mut core = Core::start();
    for _ in 0..12 {
        let (mut driver, _) = Driver::dial(&core, hello(1)).await;
        driver.state(Readiness::Ready, 4).await;
        driver.handled().await;
        driver.leave();
        assert_eq!(driver.item().await.unwrap(), None);
    }
    let turns = std::iter::from_fn(|| core.events.try_recv().ok());
    assert_eq!(turns.filter(|event| event.turned().is_some()).count(), 10);
}

#[tokio::test(start_paused = true)]
async fn of_two_the_one_that_is_ready_first_becomes_active() {
    let mut core = Core::start();
    let (mut slow, welcome) = Driver::dial(&core, hello(1)).await;
    assert_eq!(welcome.role(), RoleKind::Active);
    let (mut quick, welcome) = Driver::dial(&core, hello(2)).await;
    assert_eq!(welcome.role(), RoleKind::Standby);
    quick.state(Readiness::Ready, 4).await;
    promoted(&mut quick).await;
    core.provider_ready().await;
    assert!(matches!(slow.hear().await, Heard::Role(it) if it.role() == RoleKind::Standby));
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    assert_eq!(quick.take().await.operation_id, "op-1");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_drains_finishes_while_the_other_takes_what_is_new() {
    let mut core = Core::start();
    let (mut old, mut new) = pair(&mut core).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    old.take().await;
    old.state(Readiness::Draining, 0).await;
    promoted(&mut new).await;
    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    assert_eq!(new.take().await.operation_id, "op-2");
    old.complete("op-1", created("m")).await;
    assert!(core.outcome("uid-1").await.outcome.is_ok());
    core.sessions.acknowledge(&"op-1".into());
    assert_eq!(old.acknowledged().await, "op-1");
}

#[tokio::test(start_paused = true)]
async fn an_active_driver_that_stays_not_ready_gives_way_to_one_that_is() {
    let mut core = Core::start();
    let (mut first, mut second) = pair(&mut core).await;
    first.state(Readiness::NotReady, 4).await;
    core.provider_gone().await;
    let no_driver = SubmitError::NoDriver { provider: PROVIDER.into() };
    assert_eq!(core.sessions.submit(create("op-1", "uid-1")), Err(no_driver));
    let demoted = tokio::spawn(async move { first.hear().await });
    promoted(&mut second).await;
    core.provider_ready().await;
    assert!(matches!(demoted.await.unwrap(), Heard::Role(it) if it.role() == RoleKind::Standby));
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    assert_eq!(second.take().await.operation_id, "op-1");
}

#[tokio::test(start_paused = true)]
async fn f07_a_second_session_with_the_same_instance_id_replaces_the_first() {
    let mut core = Core::start();
    let mut old = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    old.take().await;
    old.handled().await;
    let held = crate::driver::held("op-1", "uid-1", ostler_proto::v1alpha1::HeldState::Running);
    let (mut new, welcome) = Driver::dial(&core, crate::driver::holding(1, vec![held])).await;
    assert_eq!(welcome.role(), RoleKind::Active);
    let (error, _) = old.closed().await;
    assert_eq!((error.reason.as_str(), error.retry), ("SUPERSEDED", true));
    assert_eq!(core.sessions.providers()[0].sessions, 1);
    // What ran goes on, in the new session.
    new.complete("op-1", created("m")).await;
    assert!(core.outcome("uid-1").await.outcome.is_ok());
}

#[tokio::test(start_paused = true)]
async fn f08_another_principal_cannot_take_over_an_instance() {
    let mut core = Core::start();
    let _driver = Driver::ready(&mut core, 1).await;
    let mut thief = Driver::open(&core, SECOND_TOKEN).await.unwrap();
    thief.say(crate::driver::Said::Hello(hello(1).into())).await;
    assert_eq!(thief.closed().await.0.reason, "FOREIGN_INSTANCE");
    assert!(core.sessions.providers()[0].ready);
}

#[tokio::test(start_paused = true)]
async fn a_core_with_previous_cluster_ids_takes_only_drivers_that_know_them() {
    let previous_cluster_ids = vec!["before".to_owned()];
    let mut core = Core::with(SessionsOptions { previous_cluster_ids, ..<_>::default() });
    let mut driver = Driver::open(&core, SECOND_TOKEN).await.unwrap();
    driver.say(crate::driver::Said::Hello(hello(1).into())).await;
    let (error, _) = driver.closed().await;
    assert_eq!((error.reason.as_str(), error.retry), ("UNKNOWN_CLUSTER_IDS", false));
    assert!(error.message.contains("update the driver"), "{}", error.message);
    let capabilities = vec![DriverCapability::PreviousClusterIds.into()];
    let (mut driver, _) = Driver::dial(&core, Hello { capabilities, ..hello(2) }).await;
    driver.state(Readiness::Ready, 4).await;
    core.provider_ready().await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    assert_eq!(driver.take().await.previous_cluster_ids, ["before"]);
    assert!(!core.sessions.providers()[0].by_name);
    // It reads no cluster id at all, so none can be unknown to it.
    let capabilities = vec![DriverCapability::IdentityByName.into()];
    let (_by_name, welcome) = Driver::dial(&core, Hello { capabilities, ..hello(3) }).await;
    assert_eq!(welcome.role(), RoleKind::Standby);
}

#[tokio::test(start_paused = true)]
async fn a_class_may_call_its_provider_by_an_alias() {
    let aliases = BTreeMap::from([("Fake".into(), PROVIDER.into())]);
    let mut core = Core::with(SessionsOptions { aliases, ..SessionsOptions::default() });
    let mut driver = Driver::ready(&mut core, 1).await;
    let mut aliased = create("op-1", "uid-1");
    aliased.provider = "Fake".into();
    core.sessions.submit(aliased).unwrap();
    assert_eq!(driver.take().await.operation_id, "op-1");
}

#[tokio::test(start_paused = true)]
async fn a_provider_is_ready_only_once_its_driver_says_so() {
    let mut core = Core::start();
    let (mut driver, welcome) = Driver::dial(&core, hello(1)).await;
    assert_eq!(welcome.role(), RoleKind::Active);
    assert!(!core.sessions.providers()[0].ready);
    driver.state(Readiness::Ready, 4).await;
    core.provider_ready().await;
    drop(driver);
    core.provider_gone().await;
    assert_eq!(core.sessions.providers(), []);
}

/// The driver takes a create that may last long, and does not answer any more.
async fn hang(core: &Core, driver: &mut Driver) {
    let mut patient = create("op-1", "uid-1");
    patient.timeout = std::time::Duration::from_mins(20);
    core.sessions.submit(patient).unwrap();
    driver.take().await;
    driver.handled().await;
}

#[tokio::test(start_paused = true)]
async fn f05_when_a_driver_hangs_its_standby_takes_over_and_its_operation_waits_for_its_return() {
    let mut core = Core::start();
    let (mut hung, mut standby) = pair(&mut core).await;
    hang(&core, &mut hung).await;
    // It holds the connection and answers nothing; the standby answers its heartbeats meanwhile.
    promoted(&mut standby).await;
    assert!(matches!(core.sessions.view("uid-1"), OperationView::InFlight(_)));
    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    assert_eq!(standby.take().await.operation_id, "op-2");
    let listening = tokio::spawn(async move { standby.hear().await });
    let finished = core.outcome("uid-1").await;
    let Err(failure) = &finished.outcome else { panic!("a result") };
    assert_eq!(failure.reason, Reason::CoreSessionLost);
    assert_eq!(failure.certainty, ostler_api::driver::Certainty::Unknown);
    listening.abort();
}

#[tokio::test(start_paused = true)]
async fn f05_what_a_driver_out_of_reach_creates_is_asked_of_its_standby_after_the_resume_window() {
    let mut core = Core::start();
    let (mut hung, mut standby) = pair(&mut core).await;
    hang(&core, &mut hung).await;
    promoted(&mut standby).await;
    tokio::select! {
        _unknown = core.outcome("uid-1") => {}
        heard = standby.hear() => panic!("{heard:?}"),
    }
    core.sessions.acknowledge(&"op-1".into());
    core.sessions.submit(create("op-2", "uid-1")).unwrap();
    assert_eq!(standby.take().await.operation_id, "op-2");
    // The driver worked on all the time. Now the driver hears that the work is not wanted.
    let still = held("op-1", "uid-1", HeldState::Running);
    let (_hung, welcome) = Driver::dial(&core, holding(1, vec![still])).await;
    assert_eq!(welcome.verdicts[0].verdict(), Verdict::Cancel);
}
