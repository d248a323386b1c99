//! Long lists over real connections.

use ostler_api::operation::{Outcome, Reason, Success};
use ostler_tests::proxy::Flow;

use crate::links::ground::{Ground, PROVIDER, Patient};

const MANY: usize = 20_000;

fn assert_whole(outcome: &Outcome, id_bytes: usize) {
    let Ok(Success::Listed { instances: list, .. }) = outcome else { panic!("no list") };
    let filler = "x".repeat(id_bytes);
    assert_eq!(list.len(), MANY);
    for (index, machine) in list.iter().enumerate() {
        assert_eq!(machine.provider_id.as_str(), format!("links:///{index}-{filler}"));
    }
}

#[tokio::test]
async fn twenty_thousand_instances_arrive_in_order_and_whole() {
    // The second time the pages are limited by their bytes.
    for id_bytes in [0, 200] {
        let mut ground = Ground::start().await;
        let driver = Patient { listed: MANY, id_bytes, ..Patient::of(PROVIDER) };
        let end = driver.run(ground.proxy.address());
        ground.ready(PROVIDER).await;
        assert_whole(&ground.list("op-1").await, id_bytes);
        assert!(ground.proxy.bytes_up() > u64::try_from(MANY * id_bytes).unwrap());
        end.cancel();
    }
}

#[tokio::test]
async fn a_list_that_is_cut_off_in_the_middle_is_an_error_and_never_a_short_list() {
    let mut ground = Ground::start().await;
    let driver = Patient { listed: MANY, id_bytes: 200, ..Patient::of(PROVIDER) };
    let end = driver.run(ground.proxy.address());
    ground.ready(PROVIDER).await;
    let before = ground.proxy.bytes_up();
    // Slow enough to be caught in the middle.
    ground.proxy.set(Flow::Throttle { bytes_per_second: 2 << 20 });
    let cut = async {
        ground.proxy.until_up(before + (1 << 20)).await;
        ground.proxy.set(Flow::Pass);
        ground.proxy.cut();
    };
    let (outcome, ()) = tokio::join!(ground.list("op-1"), cut);
    let Err(failure) = outcome else { panic!("a list that was cut off") };
    assert_eq!(failure.reason, Reason::CoreSessionLost);
    ground.ready(PROVIDER).await;
    assert_whole(&ground.list("op-2").await, 200);
    end.cancel();
}

#[tokio::test]
async fn f11_an_answer_that_no_frame_can_carry_is_an_error_and_the_session_lives() {
    let mut ground = Ground::start().await;
    let driver = Patient { listed: 2, id_bytes: 100_000, ..Patient::of(PROVIDER) };
    let end = driver.run(ground.proxy.address());
    ground.ready(PROVIDER).await;
    let Err(failure) = ground.list("op-1").await else { panic!("a list") };
    assert_eq!((failure.code.name(), failure.reason.as_str()), ("Internal", "FRAME_TOO_LARGE"));
    assert!(ground.sessions.providers()[0].ready);
    end.cancel();
}
