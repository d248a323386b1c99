//! A core that leads nothing, and only looks.

use std::sync::Arc;

use ostler_api::operation::Request;
use ostler_proto::v1alpha1::{HeldState, Readiness};
use ostler_sessions::{Sessions, SessionsOptions, SubmitError};

use crate::core::{Classes, Core, class, create, delete, dispatch, list, status, update};
use crate::driver::{Driver, created, found, held, hello, holding};
use crate::leadership::tokens;

fn looking() -> Core {
    let classes = Arc::new(Classes::default());
    classes.put("small", class("7", "1"));
    let source: Arc<Classes> = Arc::clone(&classes);
    let sessions = Sessions::new(SessionsOptions::default(), source, Arc::new(tokens()));
    sessions.look();
    Core::serving(sessions, classes)
}

#[tokio::test(start_paused = true)]
async fn a_core_that_only_looks_sends_reads_outside_fencing_and_nothing_else() {
    let mut core = looking();
    let (mut driver, welcome) = Driver::dial(&core, hello(1)).await;
    assert_eq!(welcome.fencing_term, 0);
    driver.state(Readiness::Ready, 4).await;
    core.provider_ready().await;
    let volumes = Request::VolumeIds { specs: <_>::default() };
    for other in [create("a", "u"), delete("b", "u"), update("c", "u"), dispatch("d", "u", volumes)]
    {
        let kind = other.kind();
        assert_eq!(core.sessions.submit(other), Err(SubmitError::LooksOnly { kind }));
    }
    core.sessions.submit(list("list")).unwrap();
    assert_eq!(driver.take().await.operation_id, "list");
    let sessions = core.sessions.clone();
    let answer = tokio::spawn(async move { sessions.call(status("op-1", "uid-1")).await });
    let operation = driver.take().await;
    assert_eq!(operation.fencing_term, 0);
    driver.complete("op-1", found("m")).await;
    assert!(answer.await.unwrap().is_ok());
    assert_eq!(driver.acknowledged().await, "op-1", "its own results are acknowledged");
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_holds_for_its_core_is_neither_ruled_on_nor_acknowledged() {
    let mut core = looking();
    let holds = vec![
        held("runs", "uid-1", HeldState::Running),
        held("done", "uid-2", HeldState::Completed),
    ];
    for held in &holds {
        core.classes.record(held);
    }
    let (mut driver, welcome) = Driver::dial(&core, holding(1, holds)).await;
    assert!(welcome.verdicts.is_empty(), "{:?}", welcome.verdicts);
    driver.state(Readiness::Ready, 4).await;
    driver.complete("done", created("m")).await;
    core.provider_ready().await;
    core.sessions.submit(list("list")).unwrap();
    assert_eq!(driver.take().await.operation_id, "list", "nothing was acknowledged before");
    let targets = core.sessions.targets();
    assert!(targets.iter().all(|it| it != "uid-1" && it != "uid-2"), "taken over: {targets:?}");
}
