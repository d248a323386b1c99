//! How much is sent and how fast, and what is known of what runs.

use std::collections::BTreeMap;
use std::time::Duration;

use ostler_api::driver::ErrorCode;
use ostler_api::operation::{Dispatch, OperationView, Place};
use ostler_proto::v1alpha1::{
    DriverCapability, Hello, MachineErrorCode, OperationError, OperationProgress, OutcomeCertainty,
    Readiness, operation_completed,
};
use ostler_sessions::{ProviderState, SessionEvent, SessionsOptions};
use tokio::time::Instant;

use crate::core::{Core, PROVIDER, create, create_with, delete, status, update};
use crate::driver::{Driver, Said, created, deleted, found, hello};

fn provider(core: &Core) -> ProviderState {
    core.sessions.providers().remove(0)
}

pub(crate) fn throttled(
    code: MachineErrorCode,
    retry_after: Option<i64>,
) -> operation_completed::Outcome {
    operation_completed::Outcome::Error(OperationError {
        code: code.into(),
        reason: "THROTTLED".to_owned(),
        certainty: OutcomeCertainty::NotApplied.into(),
        retry_after: retry_after.map(|seconds| prost_types::Duration { seconds, nanos: 0 }),
        ..OperationError::default()
    })
}

#[tokio::test(start_paused = true)]
async fn no_more_is_sent_in_a_second_than_the_rate_of_the_provider() {
    let rates = BTreeMap::from([("Fake".into(), "0.5:2".parse().unwrap())]);
    let aliases = BTreeMap::from([("Fake".into(), PROVIDER.into())]);
    let mut core = Core::with(SessionsOptions { rates, aliases, ..SessionsOptions::default() });
    let mut driver = Driver::ready_with(&mut core, 1, 64).await;
    let before = Instant::now();
    for number in 0..5 {
        core.sessions.submit(create(&format!("op-{number}"), &format!("uid-{number}"))).unwrap();
    }
    let mut times = Vec::new();
    for number in 0..5 {
        assert_eq!(driver.take().await.operation_id, format!("op-{number}"));
        times.push(before.elapsed().as_secs());
    }
    assert_eq!(times, [0, 0, 2, 4, 6]);
    // A cancel is no operation.
    core.sessions.cancel(&"op-4".into(), "no");
    assert_eq!(driver.cancelled().await, "op-4");
    assert_eq!(before.elapsed().as_secs(), 6);
}

#[tokio::test(start_paused = true)]
async fn one_throttled_create_pauses_all_creates_of_the_provider_and_nothing_else() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    driver.complete("op-1", throttled(MachineErrorCode::ResourceExhausted, Some(90))).await;
    core.outcome("uid-1").await;
    let before = Instant::now();
    assert_eq!(provider(&core).paused, Some(Duration::from_secs(90)));

    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    core.sessions.submit(delete("op-3", "uid-3")).unwrap();
    core.sessions.submit(status("op-4", "uid-4")).unwrap();
    assert_eq!(driver.take().await.operation_id, "op-3");
    assert_eq!(driver.take().await.operation_id, "op-4");
    let now = provider(&core);
    assert_eq!((now.queued, now.slow, now.oldest_wait), (1, false, Duration::ZERO));
    driver.complete("op-3", deleted()).await;
    driver.complete("op-4", found("m")).await;
    core.outcome("uid-3").await;
    core.outcome("uid-4").await;
    core.sessions.cancel(&"op-2".into(), "its time would be up before the end of the pause");

    let mut patient = create("op-5", "uid-5");
    patient.timeout = Duration::from_mins(20);
    core.sessions.submit(patient).unwrap();
    assert_eq!(driver.take().await.operation_id, "op-5");
    assert_eq!(before.elapsed(), Duration::from_secs(90));
    assert_eq!(provider(&core).paused, None);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_waits_in_the_core_says_why_and_its_target_hears_when_it_is_sent() {
    let where_is = |core: &Core, uid| match core.sessions.view(uid) {
        OperationView::InFlight(flight) => (flight.place, flight.age.as_secs()),
        other => panic!("{other:?}"),
    };
    let mut core = Core::start();
    let mut driver = Driver::ready_with(&mut core, 1, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    assert_eq!(driver.take().await.operation_id, "op-1");
    assert_eq!(where_is(&core, "uid-1"), (Place::Sent, 0));
    let patient = Dispatch { timeout: Duration::from_mins(20), ..create("op-2", "uid-2") };
    core.sessions.submit(patient).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(where_is(&core, "uid-2"), (Place::Queued, 5));
    driver.complete("op-1", throttled(MachineErrorCode::ResourceExhausted, Some(90))).await;
    core.outcome("uid-1").await;
    assert_eq!(where_is(&core, "uid-2").0, Place::Paused(Duration::from_secs(90)));
    drop(driver);
    core.provider_gone().await;
    assert_eq!(where_is(&core, "uid-2").0, Place::Unserved);
    let mut driver = Driver::ready_with(&mut core, 2, 1).await;
    assert_eq!(driver.take().await.operation_id, "op-2");
    assert_eq!(where_is(&core, "uid-2"), (Place::Sent, 0));
    let sent = |event: &SessionEvent| matches!(event, SessionEvent::Sent { operation_id, .. } if operation_id == "op-2");
    core.event(sent).await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_without_a_time_is_short_and_one_that_is_too_long_is_cut() {
    for (said, pause, told) in [(None, 30, 30), (Some(86_400), 900, 3600), (Some(7), 7, 7)] {
        let mut core = Core::start();
        let mut driver = Driver::ready(&mut core, 1).await;
        core.sessions.submit(delete("op-1", "uid-1")).unwrap();
        driver.take().await;
        driver.complete("op-1", throttled(MachineErrorCode::Unavailable, said)).await;
        let finished = core.outcome("uid-1").await;
        assert_eq!(provider(&core).paused, Some(Duration::from_secs(pause)));
        // The machine waits for as long as the driver said, an hour at most; it is not alone with that.
        let Err(failure) = &finished.outcome else { panic!("a result") };
        assert_eq!(failure.retry_after, Some(Duration::from_secs(told)));
    }
}

#[tokio::test(start_paused = true)]
async fn another_code_or_another_reason_pauses_nothing() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    let quota = operation_completed::Outcome::Error(OperationError {
        code: MachineErrorCode::ResourceExhausted.into(),
        reason: "QUOTA".to_owned(),
        ..OperationError::default()
    });
    for (id, outcome) in [("op-1", quota), ("op-2", throttled(MachineErrorCode::Internal, None))] {
        core.sessions.submit(create(id, id)).unwrap();
        driver.take().await;
        driver.complete(id, outcome).await;
        core.outcome(id).await;
        assert_eq!(provider(&core).paused, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_outlives_the_driver_that_brought_it_about() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    driver.complete("op-1", throttled(MachineErrorCode::ResourceExhausted, Some(60))).await;
    core.outcome("uid-1").await;
    core.sessions.acknowledge(&"op-1".into());
    drop(driver);
    core.provider_gone().await;
    let before = Instant::now();
    let mut driver = Driver::ready(&mut core, 2).await;
    let mut patient = create("op-2", "uid-2");
    patient.timeout = Duration::from_mins(20);
    core.sessions.submit(patient).unwrap();
    assert_eq!(driver.take().await.operation_id, "op-2");
    assert_eq!(before.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn f09_a_driver_that_leaves_operations_waiting_is_called_slow() {
    let mut core = Core::start();
    let mut driver = Driver::ready_with(&mut core, 1, 1).await;
    for (id, uid) in [("op-1", "uid-1"), ("op-2", "uid-2")] {
        let mut patient = create(id, uid);
        patient.timeout = Duration::from_mins(20);
        core.sessions.submit(patient).unwrap();
    }
    driver.take().await;
    assert!(!provider(&core).slow);
    let beats = async {
        let heard = driver.hear().await;
        panic!("{heard:?}");
    };
    assert!(tokio::time::timeout(Duration::from_secs(31), beats).await.is_err());
    let now = provider(&core);
    assert_eq!((now.slow, now.oldest_wait.as_secs()), (true, 31));
    driver.complete("op-1", created("m")).await;
    driver.take().await;
    assert!(!provider(&core).slow);
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_has_not_accepted_is_bounded_in_bytes_and_acceptance_makes_room() {
    let mut options = SessionsOptions::default();
    options.limits.unaccepted_bytes = 100_000;
    let mut core = Core::with(options);
    let mut driver = Driver::ready_with(&mut core, 1, 64).await;
    for number in 0..8 {
        let (id, uid) = (format!("op-{number}"), format!("uid-{number}"));
        let large = create_with(&id, &uid, vec![0; 60_000]);
        core.sessions.submit(large).unwrap();
    }
    assert_eq!((provider(&core).in_flight, provider(&core).queued), (2, 6));
    driver.receive().await;
    assert_eq!(driver.receive().await.operation_id, "op-1");
    driver.accept("op-0").await;
    assert_eq!(driver.receive().await.operation_id, "op-2");
    // A result says as much as an acceptance.
    driver.complete("op-1", created("m")).await;
    assert_eq!(driver.receive().await.operation_id, "op-3");
    assert_eq!((provider(&core).in_flight, provider(&core).queued), (3, 4));
}

#[tokio::test(start_paused = true)]
async fn creates_leave_some_of_the_credit_to_what_is_quick_or_urgent() {
    let mut core = Core::start();
    let mut driver = Driver::ready_with(&mut core, 1, 8).await;
    for number in 0..9 {
        core.sessions.submit(patient(&format!("op-{number}"), &format!("uid-{number}"))).unwrap();
    }
    for number in 0..7 {
        assert_eq!(driver.take().await.operation_id, format!("op-{number}"));
    }
    core.sessions.submit(delete("delete", "uid-x")).unwrap();
    assert_eq!(driver.take().await.operation_id, "delete");
    driver.complete("delete", deleted()).await;
    core.outcome("uid-x").await;
    assert_eq!((provider(&core).in_flight, provider(&core).queued), (7, 2));
    driver.complete("op-3", created("m")).await;
    assert_eq!(driver.take().await.operation_id, "op-7");
}

#[tokio::test(start_paused = true)]
async fn deletions_and_changes_that_get_stuck_leave_some_of_the_credit_to_creates() {
    for stuck in [delete, update] {
        let mut core = Core::start();
        let mut driver = Driver::ready_with(&mut core, 1, 8).await;
        for number in 0..9 {
            core.sessions.submit(stuck(&format!("op-{number}"), &format!("uid-{number}"))).unwrap();
        }
        for number in 0..7 {
            assert_eq!(driver.take().await.operation_id, format!("op-{number}"));
        }
        core.sessions.submit(patient("create", "uid-x")).unwrap();
        assert_eq!(driver.take().await.operation_id, "create");
        assert_eq!((provider(&core).in_flight, provider(&core).queued), (8, 2));
    }
}

/// A driver that reports progress.
async fn talkative(core: &mut Core) -> Driver {
    let capabilities =
        vec![DriverCapability::ResultRetention.into(), DriverCapability::Progress.into()];
    let (mut driver, _) = Driver::dial(core, Hello { capabilities, ..hello(1) }).await;
    driver.state(Readiness::Ready, 4).await;
    core.provider_ready().await;
    driver
}

fn patient(id: &str, uid: &str) -> Dispatch {
    let mut patient = create(id, uid);
    patient.timeout = Duration::from_mins(20);
    patient
}

fn progress(stage: &str, checkpoint: &str) -> Said {
    let progress = OperationProgress {
        operation_id: "op-1".to_owned(),
        stage: stage.to_owned(),
        checkpoint: checkpoint.to_owned(),
        ..OperationProgress::default()
    };
    Said::Progress(progress.into())
}

fn is_stalled(core: &Core) -> bool {
    match core.sessions.view("uid-1") {
        OperationView::InFlight(flight) => flight.stalled,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn progress_is_asked_for_with_long_operations_and_only_of_drivers_that_offer_it() {
    let mut core = Core::start();
    let mut driver = talkative(&mut core).await;
    core.sessions.submit(patient("op-1", "uid-1")).unwrap();
    core.sessions.submit(status("op-2", "uid-2")).unwrap();
    assert_eq!(driver.take().await.progress_interval.unwrap().seconds, 30);
    assert_eq!(driver.take().await.progress_interval, None);
    let mut other = Core::start();
    let mut driver = Driver::ready(&mut other, 1).await;
    other.sessions.submit(patient("op-1", "uid-1")).unwrap();
    assert_eq!(driver.take().await.progress_interval, None);
}

#[tokio::test(start_paused = true)]
async fn an_operation_without_a_word_for_three_intervals_is_stalled_and_not_sent_again() {
    let mut core = Core::start();
    let mut driver = talkative(&mut core).await;
    core.sessions.submit(patient("op-1", "uid-1")).unwrap();
    driver.take().await;
    driver.say(progress("Boot", "")).await;
    driver.handled().await;
    let before = Instant::now();
    let silent = tokio::spawn(async move {
        // Answers heartbeats; anything else is too much.
        tokio::select! {
            heard = driver.hear() => panic!("{heard:?}"),
            () = tokio::time::sleep(Duration::from_mins(2)) => driver,
        }
    });
    let wanted = |event: &SessionEvent| matches!(event, SessionEvent::Stalled { .. });
    let (target_uid, operation_id) = ("uid-1".to_owned(), "op-1".to_owned());
    let stalled = SessionEvent::Stalled {
        target_uid: target_uid.into(),
        operation_id: operation_id.into(),
        stalled: true,
    };
    assert_eq!(core.event(wanted).await, stalled);
    assert_eq!(before.elapsed().as_secs(), 90);
    assert!(is_stalled(&core));

    let mut driver = silent.await.unwrap();
    driver.say(progress("Boot", "")).await;
    assert!(matches!(core.event(wanted).await, SessionEvent::Stalled { stalled: false, .. }));
    assert!(!is_stalled(&core));
    driver.complete("op-1", created("m")).await;
    assert!(core.outcome("uid-1").await.outcome.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_new_checkpoint_is_told_at_once_and_then_not_more_often_than_every_five_seconds() {
    let mut core = Core::start();
    let mut driver = talkative(&mut core).await;
    core.sessions.submit(patient("op-1", "uid-1")).unwrap();
    driver.take().await;
    let wanted = |event: &SessionEvent| matches!(event, SessionEvent::Checkpoint { .. });
    driver.say(progress("Disk", "disk-1")).await;
    core.event(wanted).await;
    for number in 0..100 {
        driver.say(progress("Disk", &format!("disk-{number}"))).await;
    }
    driver.handled().await;
    let early = tokio::time::timeout(Duration::from_secs(1), core.event(wanted)).await;
    assert!(early.is_err(), "{early:?}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    // As the SDK does by itself: the last progress again.
    driver.say(progress("Disk", "disk-99")).await;
    core.event(wanted).await;
    let OperationView::InFlight(flight) = core.sessions.view("uid-1") else {
        panic!("not in flight")
    };
    assert_eq!(flight.progress.unwrap().checkpoint, "disk-99");
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_a_driver_brings_back_is_watched_again() {
    let mut core = Core::start();
    let mut driver = talkative(&mut core).await;
    core.sessions.submit(patient("op-1", "uid-1")).unwrap();
    driver.take().await;
    driver.handled().await;
    drop(driver);
    core.provider_gone().await;
    let held = crate::driver::held("op-1", "uid-1", ostler_proto::v1alpha1::HeldState::Running);
    let (mut driver, _) = Driver::dial(&core, crate::driver::holding(1, vec![held])).await;
    let before = Instant::now();
    tokio::select! {
        heard = driver.hear() => panic!("{heard:?}"),
        event = core.event(|event| matches!(event, SessionEvent::Stalled { .. })) => {
            assert!(matches!(event, SessionEvent::Stalled { stalled: true, .. }));
        }
    }
    assert_eq!(before.elapsed().as_secs(), 90);
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_says_of_its_readiness_is_shown() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    let state = ostler_proto::v1alpha1::DriverState {
        readiness: Readiness::NotReady.into(),
        reason: "the cloud is away".to_owned(),
        max_in_flight: 4,
        ..<_>::default()
    };
    driver.say(Said::State(state)).await;
    core.provider_gone().await;
    let now = provider(&core);
    assert_eq!((now.ready, now.reason.as_str()), (false, "the cloud is away"));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_finds_an_operation_wherever_it_is() {
    let mut core = Core::start();
    let mut driver = Driver::ready_with(&mut core, 1, 2).await;
    for (id, uid) in [("op-1", "uid-1"), ("op-2", "uid-2"), ("op-3", "uid-3")] {
        core.sessions.submit(patient(id, uid)).unwrap();
    }
    // Sent and not accepted: the driver hears of it once, and answers as it likes.
    assert_eq!(driver.receive().await.operation_id, "op-1");
    core.sessions.cancel(&"op-1".into(), "no");
    core.sessions.cancel(&"op-1".into(), "no");
    driver.accept("op-1").await;
    driver.take().await;
    assert_eq!(driver.cancelled().await, "op-1");
    let canceled = operation_completed::Outcome::Error(OperationError {
        code: MachineErrorCode::Canceled.into(),
        certainty: OutcomeCertainty::NotApplied.into(),
        ..OperationError::default()
    });
    driver.complete("op-1", canceled).await;
    let finished = core.outcome("uid-1").await;
    assert!(matches!(&finished.outcome, Err(it) if it.code == ErrorCode::Canceled));
    assert_eq!(driver.take().await.operation_id, "op-3");
    // Running, and the result is on its way already: it counts, and the cancel finds nothing.
    driver.complete("op-2", created("m")).await;
    core.sessions.cancel(&"op-2".into(), "no");
    assert!(core.outcome("uid-2").await.outcome.is_ok());
    // Ended: nothing happens.
    core.sessions.cancel(&"op-2".into(), "no");
    assert_eq!(driver.cancelled().await, "op-2");
    // With a lost driver: the driver is told when it comes back.
    driver.handled().await;
    drop(driver);
    core.provider_gone().await;
    core.sessions.cancel(&"op-3".into(), "no");
    let held = crate::driver::held("op-3", "uid-3", ostler_proto::v1alpha1::HeldState::Running);
    let (mut driver, welcome) = Driver::dial(&core, crate::driver::holding(1, vec![held])).await;
    assert_eq!(welcome.verdicts[0].verdict(), ostler_proto::v1alpha1::Verdict::Cancel);
    driver.complete("op-3", created("m")).await;
    assert!(core.outcome("uid-3").await.outcome.is_ok());
    core.sessions.acknowledge(&"op-3".into());
    assert_eq!(driver.acknowledged().await, "op-3");
}

/// Found by trying: an operation cancelled on its way to a driver that never got it was sent again, and the driver
/// never heard of the cancel.
#[tokio::test(start_paused = true)]
async fn an_operation_that_was_cancelled_and_never_arrived_is_not_sent_again() {
    for before in [true, false] {
        let mut core = Core::start();
        let mut driver = Driver::ready(&mut core, 1).await;
        core.sessions.submit(patient("op-1", "uid-1")).unwrap();
        driver.receive().await;
        if before {
            core.sessions.cancel(&"op-1".into(), "no");
        }
        drop(driver);
        core.provider_gone().await;
        if !before {
            core.sessions.cancel(&"op-1".into(), "no");
        }
        let hello = crate::driver::holding(1, Vec::new());
        let (mut driver, _) = Driver::dial(&core, hello).await;
        driver.state(Readiness::Ready, 4).await;
        core.provider_ready().await;
        let finished = core.outcome("uid-1").await;
        let Err(failure) = &finished.outcome else { panic!("a result") };
        assert_eq!(failure.code, ErrorCode::Canceled);
        assert_eq!(failure.certainty, ostler_api::driver::Certainty::NotApplied);
        core.sessions.acknowledge(&"op-1".into());
        core.sessions.submit(delete("op-2", "uid-1")).unwrap();
        assert_eq!(driver.take().await.operation_id, "op-2");
    }
}
