//! Progress and readiness against a core that a test plays frame by frame, on a paused clock.
#![expect(clippy::panic, reason = "tests")]

use std::time::Duration;

use crate::tiny_core::stable::Stable;
use crate::tiny_core::{CoreSession, TinyCore, create, operation, welcome};
use ostler_proto::v1alpha1 as proto;
use proto::operation::Request as Asked;
use proto::operation_completed::Outcome;
use proto::operation_result::Response;
use proto::register_request::Frame as FromDriver;
use proto::register_response::Frame as ToDriver;
use proto::{DriverState, OperationProgress, Readiness};
use tokio::time::Instant;

fn long(id: &str, name: &str, interval: u64) -> proto::Operation {
    let progress_interval = Duration::from_secs(interval).try_into().ok();
    let timeout = Duration::from_mins(20).try_into().ok();
    proto::Operation { progress_interval, timeout, ..create(id, name) }
}

async fn progress(session: &mut CoreSession) -> OperationProgress {
    match session.receive().await {
        Some(FromDriver::Progress(progress)) => *progress,
        other => panic!("not progress: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_verb_that_works_is_heard_of_in_every_interval_without_its_doing() {
    let mut core = TinyCore::start();
    let stable = Stable::default();
    let _driver = stable.run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(long("op", "waits", 30)).await;
    session.accepted().await;
    let before = Instant::now();
    for turn in 1..=3 {
        let progress = progress(&mut session).await;
        assert_eq!((progress.stage.as_str(), progress.percent), ("Working", 0));
        assert_eq!(before.elapsed().as_secs(), 30 * turn);
    }
    stable.go.notify_one();
    session.completed().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_word_is_repeated_with_its_percentage_and_checkpoint() {
    let mut core = TinyCore::start();
    let stable = Stable::default();
    let _driver = stable.run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(long("op", "talks", 10)).await;
    session.accepted().await;
    assert_eq!(progress(&mut session).await.checkpoint, "");
    for _ in 0..3 {
        let progress = progress(&mut session).await;
        assert_eq!((progress.stage.as_str(), progress.percent), ("Copying", 40));
        assert_eq!(
            (progress.message.as_str(), progress.checkpoint.as_str()),
            ("the disk", "disk-1")
        );
    }
    stable.go.notify_one();
    assert_eq!(session.completed().await.checkpoint, "disk-1");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_anything_if_nobody_asked() {
    let mut core = TinyCore::start();
    let stable = Stable::default();
    let _driver = stable.run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(create("op", "waits")).await;
    session.accepted().await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(session.echo().await.running, ["op"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_said_while_nobody_heard_it_is_said_in_the_next_session() {
    let mut core = TinyCore::start();
    let stable = Stable::default();
    let _driver = stable.run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(long("op", "talks", 600)).await;
    session.accepted().await;
    progress(&mut session).await;
    drop(session);
    let mut session = core.session().await;
    assert_eq!(session.hello().await.resume.unwrap().operations.len(), 1);
    session.send(ToDriver::Welcome(Box::new(welcome()))).await;
    assert_eq!(progress(&mut session).await.checkpoint, "disk-1");
    session.state().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_whose_cloud_is_away_says_so_at_once_and_in_every_session() {
    let mut core = TinyCore::start();
    let stable = Stable::default();
    let _driver = stable.run(&core);
    let (mut session, _) = core.welcomed().await;
    stable.readiness.not_ready("no answer from the cloud");
    // Said twice, it is no news.
    stable.readiness.not_ready("no answer from the cloud");
    let shown = |state: DriverState| (state.readiness(), state.reason, state.max_in_flight);
    let away = (Readiness::NotReady, "no answer from the cloud".to_owned(), 4);
    assert_eq!(shown(session.state().await), away);
    drop(session);
    let mut session = core.session().await;
    session.hello().await;
    session.send(ToDriver::Welcome(Box::new(welcome()))).await;
    assert_eq!(shown(session.state().await), away);
    stable.readiness.ready();
    assert_eq!(shown(session.state().await), (Readiness::Ready, String::new(), 4));
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_drains_is_not_ready_again_before_it_ends() {
    let mut core = TinyCore::start();
    let stable = Stable::default();
    let driver = stable.run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(create("op", "waits")).await;
    session.accepted().await;
    driver.shutdown.cancel();
    assert_eq!(session.state().await.readiness(), Readiness::Draining);
    stable.readiness.not_ready("the cloud is away");
    stable.readiness.ready();
    assert_eq!(session.state().await.readiness(), Readiness::Draining);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_call_has_a_word_that_the_core_knows() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(create("op", "throttles")).await;
    session.accepted().await;
    let error = session.failed().await;
    assert_eq!((error.reason.as_str(), error.retry_after.unwrap().seconds), ("THROTTLED", 7));
    assert_eq!(error.code(), proto::MachineErrorCode::ResourceExhausted);
}

#[tokio::test(start_paused = true)]
async fn a_core_that_does_not_read_loses_no_result() {
    let mut core = TinyCore::start();
    let stable = Stable { listed: 30_000, ..Stable::default() };
    let _driver = stable.run(&core);
    let (mut session, _) = core.welcomed().await;
    for id in 0..4 {
        let list = Asked::ListMachines(proto::ListMachinesRequest::default());
        session.operate(operation(&id.to_string(), "", list)).await;
    }
    // All these records are more than the transport holds; the driver still hears.
    tokio::time::sleep(Duration::from_mins(1)).await;
    let mut completed = 0;
    let all = async {
        while completed < 4 {
            if let Some(FromDriver::Completed(_)) = session.receive().await {
                completed += 1;
            }
        }
    };
    tokio::time::timeout(Duration::from_hours(1), all).await.unwrap();
    session.echo().await;
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_is_sent_as_it_is_or_not_at_all() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(create("op", "notes")).await;
    session.accepted().await;
    assert_eq!(progress(&mut session).await.checkpoint, "step-1");
    assert_eq!(session.completed().await.checkpoint, "step-1");
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_an_instance_is_said_without_user_data_and_in_short() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    let bootstrap =
        proto::BootstrapData { user_data: b"#cloud-config hunter2".to_vec(), ..Default::default() };
    let request = proto::CreateMachineRequest { bootstrap: Some(bootstrap), ..Default::default() };
    session.operate(operation("op", "quotes", Asked::CreateMachine(request))).await;
    session.accepted().await;
    let Some(Outcome::Result(result)) = session.completed().await.outcome else { panic!() };
    let Some(Response::CreateMachine(created)) = result.response else { panic!() };
    let message = created.machine.unwrap().fault.unwrap().message;
    assert!(message.starts_with("invalid user data *** x"), "{message}");
    assert_eq!(message.len(), 2048);
}

#[tokio::test(start_paused = true)]
async fn a_core_that_never_answers_the_hello_is_left() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let mut silent = core.session().await;
    silent.hello().await;
    let began = Instant::now();
    let mut next = core.session().await;
    next.hello().await;
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}
