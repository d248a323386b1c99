//! Operations on their way to a driver that is told to end.

use std::sync::atomic::Ordering;

use ostler_tests::proxy::Flow;

use crate::links::ground::{Ground, PROVIDER, Patient, create, soon};
use crate::links::lost::assert_created;

#[tokio::test]
async fn an_operation_on_its_way_to_a_driver_that_ends_is_done_by_the_next_one() {
    let mut ground = Ground::start().await;
    let (old, new) = (Patient::of(PROVIDER), Patient::of(PROVIDER));
    let end = old.run(ground.proxy.address());
    ground.ready(PROVIDER).await;
    // It has something to finish.
    ground.sessions.submit(create("op-1", "uid-1")).unwrap();
    soon(old.began.notified()).await;
    new.run(ground.direct);
    // The operation passes the news of the end.
    ground.proxy.set_existing(Flow::BlackHole);
    ground.sessions.submit(create("op-2", "uid-2")).unwrap();
    end.cancel();
    tokio::task::yield_now().await;
    ground.proxy.set_existing(Flow::Pass);
    new.go.notify_one();
    assert_created(&ground.outcome("uid-2").await.outcome, "uid-2");
    old.go.notify_one();
    assert_created(&ground.outcome("uid-1").await.outcome, "uid-1");
    let begun = [&old, &new].map(|driver| driver.creates.load(Ordering::SeqCst));
    assert_eq!(begun, [1, 1]);
}

#[tokio::test]
async fn an_operation_on_its_way_to_a_driver_that_has_nothing_to_finish_is_done_by_the_next_one() {
    let mut ground = Ground::start().await;
    let (old, new) = (Patient::of(PROVIDER), Patient::of(PROVIDER));
    let end = old.run(ground.proxy.address());
    ground.ready(PROVIDER).await;
    new.run(ground.direct);
    ground.proxy.set_existing(Flow::BlackHole);
    ground.sessions.submit(create("op-1", "uid-1")).unwrap();
    end.cancel();
    tokio::task::yield_now().await;
    ground.proxy.set_existing(Flow::Pass);
    new.go.notify_one();
    assert_created(&ground.outcome("uid-1").await.outcome, "uid-1");
    let begun = [&old, &new].map(|driver| driver.creates.load(Ordering::SeqCst));
    assert_eq!(begun, [0, 1]);
}
