//! Long lists over real connections.

use ostler_sessions::Outcome;

use crate::ground::{Ground, PROVIDER, Patient};

#[tokio::test]
async fn f11_an_answer_that_no_frame_can_carry_is_an_error_and_the_session_lives() {
    let mut ground = Ground::start().await;
    let driver = Patient { listed: 2, id_bytes: 100_000, ..Patient::of(PROVIDER) };
    let end = driver.run(ground.proxy.address());
    ground.ready(PROVIDER).await;
    let Outcome::Error(failure) = ground.list("op-1").await else { panic!("a list") };
    assert_eq!((failure.code.name(), failure.reason.as_str()), ("Internal", "FRAME_TOO_LARGE"));
    assert!(ground.sessions.providers()[0].ready);
    end.cancel();
}
