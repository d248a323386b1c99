//! Links that break, and links that only seem to live.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ostler_api::operation::{Outcome, Success};
use ostler_tests::proxy::Flow;

use crate::links::ground::{Ground, PROVIDER, Patient, create, soon, status};

pub(crate) fn assert_created(outcome: &Outcome, uid: &str) {
    let Ok(Success::Created(created)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(created.provider_id.as_str(), format!("links:///{uid}"));
}

#[tokio::test]
async fn f03_a_result_that_was_made_while_the_link_was_down_arrives_and_nothing_is_done_twice() {
    let mut ground = Ground::start().await;
    let driver = Patient::of(PROVIDER);
    let end = driver.run(ground.proxy.address());
    ground.ready(PROVIDER).await;
    ground.sessions.submit(create("op-1", "uid-1")).unwrap();
    soon(driver.began.notified()).await;
    ground.proxy.set(Flow::BlackHole);
    ground.proxy.cut();
    ground.gone(PROVIDER).await;
    driver.go.notify_one();
    soon(driver.ended.notified()).await;
    ground.proxy.set(Flow::Pass);
    assert_created(&ground.outcome("uid-1").await.outcome, "uid-1");
    ground.sessions.acknowledge(&"op-1".into());

    // The acknowledgement may be lost as well: then the driver brings the result again, and the
    // target is free all the same.
    ground.proxy.cut();
    ground.gone(PROVIDER).await;
    ground.ready(PROVIDER).await;
    ground.sessions.submit(create("op-2", "uid-1")).unwrap();
    soon(driver.began.notified()).await;
    driver.go.notify_one();
    assert_created(&ground.outcome("uid-1").await.outcome, "uid-1");
    assert_eq!(driver.creates.load(Ordering::SeqCst), 2);
    end.cancel();
}

#[tokio::test]
async fn f04_both_ends_of_a_half_open_link_leave_it_and_the_operation_goes_on() {
    let mut ground = Ground::impatient().await;
    let driver = Patient::of(PROVIDER);
    let end = driver.run(ground.proxy.address());
    ground.ready(PROVIDER).await;
    ground.sessions.submit(create("op-1", "uid-1")).unwrap();
    soon(driver.began.notified()).await;
    // No end hears of it; only the silence can be noticed. New connections are fine.
    ground.proxy.set_existing(Flow::BlackHole);
    ground.gone(PROVIDER).await;
    ground.ready(PROVIDER).await;
    driver.go.notify_one();
    assert_created(&ground.outcome("uid-1").await.outcome, "uid-1");
    assert_eq!(driver.creates.load(Ordering::SeqCst), 1);
    let provider = ground.sessions.providers().remove(0);
    assert_eq!((provider.sessions, provider.in_flight), (1, 0));
    end.cancel();
}

#[tokio::test]
async fn f04_a_link_that_is_cut_again_and_again_loses_no_operation_and_repeats_none() {
    let mut ground = Ground::start().await;
    let driver = Patient::of(PROVIDER);
    let end = driver.run(ground.proxy.address());
    ground.ready(PROVIDER).await;
    let all: Vec<String> = (0..4).map(|number| format!("uid-{number}")).collect();
    for uid in &all {
        ground.sessions.submit(create(&format!("op-{uid}"), uid)).unwrap();
        soon(driver.began.notified()).await;
    }
    for _ in &all {
        ground.proxy.cut();
        ground.gone(PROVIDER).await;
        driver.go.notify_one();
        ground.ready(PROVIDER).await;
    }
    for uid in &all {
        assert_created(&ground.outcome(uid).await.outcome, uid);
    }
    assert_eq!(driver.creates.load(Ordering::SeqCst), all.len());
    end.cancel();
}

#[tokio::test]
async fn f09_a_slow_link_costs_time_and_nothing_else() {
    let mut ground = Ground::start().await;
    let driver = Patient::of(PROVIDER);
    ground.proxy.set(Flow::Delay(Duration::from_millis(20)));
    let end = driver.run(ground.proxy.address());
    ground.ready(PROVIDER).await;
    for number in 0..10 {
        let outcome = ground.sessions.call(status(PROVIDER, &format!("op-{number}"))).await;
        assert!(matches!(&outcome, Err(it) if it.code.name() == "NotFound"));
    }
    end.cancel();
}
