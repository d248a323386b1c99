//! Long lists come in pages.

use ostler_api::driver::{Certainty, ErrorCode};
use ostler_api::operation::{Outcome, Reason, Success};
use ostler_proto::v1alpha1::{ListMachinesResponse, OperationPage, operation_result};
use ostler_sessions::SessionsOptions;
use tokio::task::JoinHandle;

use crate::core::{Core, create, list};
use crate::driver::{Driver, Said, listed, record, result};

fn listing(core: &Core) -> JoinHandle<Outcome> {
    let sessions = core.sessions.clone();
    tokio::spawn(async move { sessions.call(list("op-1")).await })
}

async fn page(driver: &mut Driver, index: u32, names: &[&str]) {
    let machines = names.iter().map(|name| record(name)).collect();
    let operation_id = "op-1".to_owned();
    driver
        .say(Said::Page(OperationPage { operation_id, index, machines, ..Default::default() }))
        .await;
}

async fn end(driver: &mut Driver, pages: u32) {
    let list = ListMachinesResponse { machines: Vec::new(), pages, ..Default::default() };
    driver.complete("op-1", result(operation_result::Response::ListMachines(list))).await;
}

#[tokio::test(start_paused = true)]
async fn pages_become_one_list() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    let listing = listing(&core);
    driver.take().await;
    page(&mut driver, 0, &["a", "b"]).await;
    page(&mut driver, 1, &["c"]).await;
    end(&mut driver, 2).await;
    let Ok(Success::Listed { instances: list, .. }) = listing.await.unwrap() else {
        panic!("no list")
    };
    let names: Vec<_> = list.iter().map(|it| it.machine_name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn f12_a_missing_or_repeated_page_ends_the_session_and_never_gives_a_short_list() {
    for (next, pages) in [(Some(2), 0), (None, 2), (None, 0), (Some(1), 0)] {
        let mut core = Core::start();
        let mut driver = Driver::ready(&mut core, 1).await;
        let listing = listing(&core);
        driver.take().await;
        page(&mut driver, 0, &["a"]).await;
        match next {
            Some(1) => {
                page(&mut driver, 1, &["b"]).await;
                page(&mut driver, 1, &["b"]).await;
            }
            Some(index) => page(&mut driver, index, &["c"]).await,
            None => end(&mut driver, pages).await,
        }
        let (error, _) = driver.closed().await;
        assert_eq!((error.reason.as_str(), error.retry), ("PAGE_GAP", false));
        let Err(failure) = listing.await.unwrap() else { panic!("a list") };
        assert_eq!(failure.reason, Reason::CoreSessionLost);
    }
}

#[tokio::test(start_paused = true)]
async fn pages_of_what_is_no_list_end_the_session() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    page(&mut driver, 0, &["a"]).await;
    assert_eq!(driver.closed().await.0.reason, "PAGE_UNEXPECTED");
}

#[tokio::test(start_paused = true)]
async fn a_list_longer_than_the_core_holds_fails_and_is_cancelled() {
    let mut options = SessionsOptions::default();
    options.limits.list_records = 2;
    let mut core = Core::with(options);
    let mut driver = Driver::ready(&mut core, 1).await;
    let listing = listing(&core);
    driver.take().await;
    page(&mut driver, 0, &["a", "b"]).await;
    page(&mut driver, 1, &["c"]).await;
    assert_eq!(driver.cancelled().await, "op-1");
    let Err(failure) = listing.await.unwrap() else { panic!("a list") };
    assert_eq!(
        (failure.code, failure.reason.as_str()),
        (ErrorCode::ResourceExhausted, Reason::CoreListTooLong.word())
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_in_the_result_itself_has_the_same_limit() {
    let mut options = SessionsOptions::default();
    options.limits.list_records = 2;
    let mut core = Core::with(options);
    let mut driver = Driver::ready(&mut core, 1).await;
    for (names, fits) in [(&["a", "b", "c"][..], false), (&["a", "b"], true)] {
        let listing = listing(&core);
        driver.take().await;
        driver.complete("op-1", listed(names)).await;
        assert_eq!(driver.acknowledged().await, "op-1");
        let outcome = listing.await.unwrap();
        assert_eq!(outcome.is_ok(), fits);
        let Err(failure) = outcome else { continue };
        assert_eq!(
            (failure.code, failure.reason.as_str(), failure.certainty),
            (ErrorCode::ResourceExhausted, Reason::CoreListTooLong.word(), Certainty::NotApplied)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn lists_that_are_begun_at_the_same_time_share_what_they_may_take() {
    let mut options = SessionsOptions::default();
    // Four records fit, and five do not.
    options.limits.lists_bytes = 900;
    let mut core = Core::with(options);
    let mut driver = Driver::ready(&mut core, 4).await;
    let first = listing(&core);
    driver.take().await;
    page(&mut driver, 0, &["a", "b"]).await;
    let sessions = core.sessions.clone();
    let second = tokio::spawn(async move { sessions.call(list("op-2")).await });
    driver.take().await;
    let machines = vec![record("a"), record("b"), record("c")];
    let operation_id = "op-2".to_owned();
    driver.say(Said::Page(OperationPage { operation_id, machines, ..Default::default() })).await;
    assert_eq!(driver.cancelled().await, "op-2");
    let Err(failure) = second.await.unwrap() else { panic!("a list") };
    assert_eq!(failure.reason, Reason::CoreListTooLong);
    end(&mut driver, 1).await;
    assert!(first.await.unwrap().is_ok());
}
