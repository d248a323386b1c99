//! From submit to acknowledgement.

use ostler_api::ProviderId;
use std::time::Duration;

use ostler_api::driver::{Certainty, ErrorCode, OperationKind};
use ostler_api::operation::{Dispatch, OperationView, Outcome, Reason, Request, Success};
use ostler_proto::v1alpha1::{
    FieldViolation, MachineErrorCode, OperationError, OperationProgress, OutcomeCertainty,
    operation, operation_completed,
};
use ostler_sessions::{FramePart, SessionsOptions, SubmitError};

use crate::core::{Core, class_of, class_ref, create, create_with, delete, status, update};
use crate::driver::{Driver, Said, created, deleted, found};

fn failure(outcome: &Outcome) -> (ErrorCode, &str, Certainty) {
    match outcome {
        Err(failure) => (failure.code, failure.reason.as_str(), failure.certainty),
        Ok(response) => panic!("a result: {response:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_stays_until_it_is_acknowledged_and_then_the_driver_may_forget_it() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    let operation = driver.take().await;
    assert_eq!(
        (operation.delivery, operation.fencing_term, operation.idempotency_key.as_str()),
        (1, 3, "uid-1:x")
    );
    assert!(matches!(operation.request, Some(operation::Request::CreateMachine(_))));
    let OperationView::InFlight(view) = core.sessions.view("uid-1") else {
        panic!("not in flight")
    };
    assert_eq!((view.id.as_str(), view.kind), ("op-1", OperationKind::CreateMachine));

    driver.complete("op-1", created("m")).await;
    let finished = core.outcome("uid-1").await;
    let Ok(Success::Created(record)) = &finished.outcome else { panic!("{:?}", finished.outcome) };
    assert_eq!(record.provider_id, "fake:///m");
    assert_eq!(core.sessions.targets(), ["uid-1"]);

    // The driver says it again, and is not answered before the controller has recorded it.
    driver.complete("op-1", created("m")).await;
    core.sessions.acknowledge(&"op-1".into());
    assert_eq!(core.sessions.view("uid-1"), OperationView::Idle);
    assert_eq!(driver.acknowledged().await, "op-1");

    // The acknowledgement was lost: it is given again.
    driver.complete("op-1", created("m")).await;
    assert_eq!(driver.acknowledged().await, "op-1");
    assert_eq!(core.sessions.view("uid-1"), OperationView::Idle);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_gone_is_idle_as_soon_as_its_operation_has_ended() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    core.sessions.abandon("uid-1");
    assert_ne!(core.sessions.view("uid-1"), OperationView::Idle, "the driver works on it");
    driver.complete("op-1", created("m")).await;
    assert_eq!(driver.acknowledged().await, "op-1");
    assert_eq!(core.sessions.view("uid-1"), OperationView::Idle);

    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    driver.take().await;
    driver.complete("op-2", created("m")).await;
    core.outcome("uid-2").await;
    core.sessions.abandon("uid-2");
    assert_eq!(driver.acknowledged().await, "op-2");
    assert_eq!(core.sessions.view("uid-2"), OperationView::Idle);
}

#[tokio::test(start_paused = true)]
async fn what_would_make_an_instance_for_a_target_that_is_gone_is_not_sent_any_more() {
    let mut core = Core::start();
    let mut driver = Driver::ready_with(&mut core, 1, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    assert_eq!(driver.take().await.operation_id, "op-1");
    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    core.sessions.submit(delete("op-3", "uid-3")).unwrap();
    core.sessions.abandon("uid-2");
    core.sessions.abandon("uid-3");
    assert_eq!(core.sessions.view("uid-2"), OperationView::Idle);
    driver.complete("op-1", created("m")).await;
    assert_eq!(driver.take().await.operation_id, "op-3", "deletions go on");
    assert_eq!(core.sessions.providers()[0].queued, 0);
}

#[tokio::test(start_paused = true)]
async fn a_target_has_one_operation_at_a_time_and_reads_may_overlap_it() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    let busy = Err(SubmitError::TargetBusy { operation_id: "op-1".into() });
    assert_eq!(core.sessions.submit(delete("op-2", "uid-1")), busy);
    let Err(refused) = core.sessions.call(delete("op-3", "uid-1")).await else {
        panic!("a second mutation was sent")
    };
    assert_eq!(refused.reason, Reason::CoreTargetBusy);

    let sessions = core.sessions.clone();
    let read = tokio::spawn(async move { sessions.call(status("op-4", "uid-1")).await });
    assert_eq!(driver.take().await.operation_id, "op-4");
    driver.complete("op-4", found("m")).await;
    assert!(read.await.unwrap().is_ok());
    assert_eq!(driver.acknowledged().await, "op-4");

    driver.complete("op-1", created("m")).await;
    core.outcome("uid-1").await;
    assert_eq!(core.sessions.submit(delete("op-2", "uid-1")), busy, "not acknowledged");
    core.sessions.acknowledge(&"op-1".into());
    assert_eq!(core.sessions.submit(delete("op-2", "uid-1")), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_credit_is_sent_and_what_is_urgent_goes_first() {
    let mut core = Core::start();
    let mut driver = Driver::ready_with(&mut core, 1, 2).await;
    for (id, uid) in [("c-1", "uid-1"), ("c-2", "uid-2"), ("c-3", "uid-3")] {
        core.sessions.submit(create(id, uid)).unwrap();
    }
    core.sessions.submit(delete("d-4", "uid-4")).unwrap();
    core.sessions.submit(status("s-5", "uid-5")).unwrap();
    assert_eq!(driver.take().await.operation_id, "c-1");
    assert_eq!(driver.take().await.operation_id, "c-2");
    let provider = core.sessions.providers().remove(0);
    assert_eq!((provider.in_flight, provider.queued), (2, 3));

    driver.complete("c-1", created("m")).await;
    assert_eq!(driver.take().await.operation_id, "s-5");
    driver.complete("s-5", found("m")).await;
    // Every fourth is chosen by age, so that nothing waits for ever.
    assert_eq!(driver.take().await.operation_id, "c-3");
    driver.state(ostler_proto::v1alpha1::Readiness::Ready, 3).await;
    assert_eq!(driver.take().await.operation_id, "d-4");
    driver.complete("d-4", deleted()).await;
    core.outcome("uid-4").await;
    assert_eq!(core.sessions.providers()[0].in_flight, 2);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_is_refused_with_its_reason() {
    let mut options = SessionsOptions::default();
    options.limits.queued = 1;
    let mut core = Core::with(options);
    let no_driver = SubmitError::NoDriver { provider: "fake.ostler.dev".into() };
    assert_eq!(core.sessions.submit(create("op", "uid")), Err(no_driver));

    let _driver = Driver::ready_with(&mut core, 1, 1).await;
    let initialize = Request::Initialize { user_data: None, provider_id: ProviderId::default() };
    let unsupported = core.sessions.submit(crate::core::dispatch("op", "uid", initialize));
    assert!(matches!(unsupported, Err(SubmitError::KindUnsupported { .. })), "{unsupported:?}");

    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    let full = core.sessions.submit(create("op-3", "uid-3"));
    assert!(matches!(full, Err(SubmitError::QueueFull { .. })), "{full:?}");
    assert_eq!(core.sessions.view("uid-3"), OperationView::Idle);
}

#[tokio::test(start_paused = true)]
async fn f11_what_is_too_large_is_refused_and_the_session_lives() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    let user_data = create_with("op-1", "uid-1", vec![0; (256 << 10) + 1]);
    let mut spec = update("op-2", "uid-2");
    let Request::Update { last_applied_spec_json, .. } = &mut spec.request else { panic!() };
    *last_applied_spec_json = "x".repeat((128 << 10) + 1);
    let mut class = crate::core::class("8", "1");
    class.provider_spec_json = "x".repeat((128 << 10) + 1);
    core.classes.put("large", class);
    let mut of_class = create("op-3", "uid-3");
    of_class.class = Some(class_of(&class_ref("large", "8")));
    let cases = [
        (user_data, FramePart::UserData),
        (spec, FramePart::ProviderSpec),
        (of_class, FramePart::ProviderSpec),
    ];
    for (dispatch, expected) in cases {
        match core.sessions.submit(dispatch) {
            Err(SubmitError::FrameTooLarge { part, .. }) => assert_eq!(part, expected),
            other => panic!("{other:?}"),
        }
    }
    core.sessions.submit(create("op-4", "uid-4")).unwrap();
    assert_eq!(driver.take().await.operation_id, "op-4");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_does_not_answer_in_time_leaves_an_unknown_outcome() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    assert_eq!(driver.cancelled().await, "op-1");
    let finished = core.outcome("uid-1").await;
    assert_eq!(
        failure(&finished.outcome),
        (ErrorCode::DeadlineExceeded, Reason::CoreTimeout.word(), Certainty::Unknown)
    );
    // Too late: no controller waits for it, and the driver may forget it.
    driver.complete("op-1", created("m")).await;
    assert_eq!(driver.acknowledged().await, "op-1");
    core.sessions.acknowledge(&"op-1".into());
    assert_eq!(core.sessions.view("uid-1"), OperationView::Idle);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_never_sent_leaves_nothing_behind() {
    let mut core = Core::start();
    let mut driver = Driver::ready_with(&mut core, 1, 1).await;
    let mut slow = create("op-1", "uid-1");
    slow.timeout = Duration::from_mins(20);
    core.sessions.submit(slow).unwrap();
    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    driver.take().await;
    let waiting = tokio::spawn(async move {
        let heard = driver.hear().await;
        panic!("nothing else is sent: {heard:?}");
    });
    let finished = core.outcome("uid-2").await;
    assert_eq!(
        failure(&finished.outcome),
        (ErrorCode::DeadlineExceeded, Reason::CoreTimeout.word(), Certainty::NotApplied)
    );
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn reads_that_are_not_accepted_are_cancelled_and_three_end_the_session() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    for (id, uid) in [("op-1", "uid-1"), ("op-2", "uid-2"), ("op-3", "uid-3")] {
        core.sessions.submit(status(id, uid)).unwrap();
        assert_eq!(driver.receive().await.operation_id, id);
        assert_eq!(driver.cancelled().await, id);
        let finished = core.outcome(uid).await;
        assert_eq!(
            failure(&finished.outcome),
            (ErrorCode::DeadlineExceeded, Reason::CoreAcceptTimeout.word(), Certainty::NotApplied)
        );
    }
    let (error, _) = driver.closed().await;
    assert_eq!((error.reason.as_str(), error.retry), ("NOT_ACCEPTING", true));
}

#[tokio::test(start_paused = true)]
async fn a_mutation_that_is_accepted_late_goes_on_and_meanwhile_its_target_has_no_other() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.receive().await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let refused = core.sessions.submit(create("op-2", "uid-1"));
    assert!(matches!(refused, Err(SubmitError::TargetBusy { .. })), "{refused:?}");
    driver.accept("op-1").await;
    driver.complete("op-1", created("m")).await;
    assert!(core.outcome("uid-1").await.outcome.is_ok());
}

#[tokio::test(start_paused = true)]
async fn inv_1_no_other_driver_gets_a_mutation_while_one_that_never_accepted_it_may_come_back() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    let create_1 = Dispatch { timeout: Duration::from_mins(20), ..create("op-1", "uid-1") };
    core.sessions.submit(create_1).unwrap();
    driver.receive().await;
    let (error, _) = driver.closed().await;
    assert_eq!((error.reason.as_str(), error.retry), ("NOT_ACCEPTING", true));
    core.provider_gone().await;
    let mut other = Driver::ready(&mut core, 2).await;
    let refused = core.sessions.submit(create("op-2", "uid-1"));
    assert!(matches!(refused, Err(SubmitError::TargetBusy { .. })), "{refused:?}");
    let waiting = tokio::spawn(async move {
        let heard = other.hear().await;
        panic!("nothing is sent to the other one: {heard:?}");
    });
    let finished = core.outcome("uid-1").await;
    assert_eq!(
        failure(&finished.outcome),
        (ErrorCode::Unavailable, Reason::CoreSessionLost.word(), Certainty::Unknown)
    );
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_what_waits_and_asks_the_driver_about_what_runs() {
    let mut core = Core::start();
    let mut driver = Driver::ready_with(&mut core, 1, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    driver.take().await;
    core.sessions.cancel(&"op-2".into(), "machine deleted");
    let finished = core.outcome("uid-2").await;
    assert_eq!(
        failure(&finished.outcome),
        (ErrorCode::Canceled, Reason::CoreCanceled.word(), Certainty::NotApplied)
    );
    core.sessions.cancel(&"op-1".into(), "machine deleted");
    core.sessions.cancel(&"op-1".into(), "machine deleted");
    assert_eq!(driver.cancelled().await, "op-1");
    driver.complete("op-1", created("m")).await;
    assert!(core.outcome("uid-1").await.outcome.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_waits_for_is_cancelled() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    let sessions = core.sessions.clone();
    let call = tokio::spawn(async move { sessions.call(status("op-1", "uid-1")).await });
    driver.take().await;
    call.abort();
    assert_eq!(driver.cancelled().await, "op-1");
}

#[tokio::test(start_paused = true)]
async fn progress_is_shown_and_its_checkpoint_outlives_a_failure() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    let progress = |checkpoint: String| {
        let progress = OperationProgress {
            operation_id: "op-1".to_owned(),
            stage: "ImagePull".to_owned(),
            percent: 250,
            checkpoint,
            ..OperationProgress::default()
        };
        Said::Progress(progress.into())
    };
    driver.say(progress("disk-1".to_owned())).await;
    driver.say(progress("x".repeat(5000))).await;
    let error = OperationError {
        code: MachineErrorCode::ResourceExhausted.into(),
        reason: "QUOTA_VCPU".to_owned(),
        message: "ü".repeat(3000),
        certainty: OutcomeCertainty::Partial.into(),
        retry_after: Some(prost_types::Duration { seconds: 30, nanos: 0 }),
        violations: vec![FieldViolation { path: "size".to_owned(), ..FieldViolation::default() }],
        ..OperationError::default()
    };
    driver.complete("op-1", operation_completed::Outcome::Error(error)).await;
    let finished = core.outcome("uid-1").await;
    assert_eq!(finished.checkpoint.as_deref(), Some("disk-1"));
    let Err(failure) = &finished.outcome else { panic!("no error") };
    assert_eq!(
        (failure.code, failure.reason.as_str(), failure.certainty),
        (ErrorCode::ResourceExhausted, "QUOTA_VCPU", Certainty::Partial)
    );
    assert_eq!(failure.message.len(), 2048);
    assert_eq!(failure.retry_after, Some(Duration::from_secs(30)));
    assert_eq!(failure.violations[0].0, "size");
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_another_request_and_a_reason_of_the_core_are_not_believed() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    driver.complete("op-1", deleted()).await;
    let finished = core.outcome("uid-1").await;
    assert_eq!(
        failure(&finished.outcome),
        (ErrorCode::Internal, Reason::CoreWrongResult.word(), Certainty::Unknown)
    );
    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    driver.take().await;
    let error = OperationError { reason: "CORE_TIMEOUT".to_owned(), ..OperationError::default() };
    driver.complete("op-2", operation_completed::Outcome::Error(error)).await;
    let finished = core.outcome("uid-2").await;
    assert_eq!(
        failure(&finished.outcome),
        (ErrorCode::Unknown, "RESERVED_REASON", Certainty::Unknown)
    );
}

#[tokio::test(start_paused = true)]
async fn a_result_that_nobody_records_is_dropped_after_a_while() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    driver.complete("op-1", created("m")).await;
    core.outcome("uid-1").await;
    assert_eq!(driver.acknowledged().await, "op-1");
    assert_eq!(core.sessions.view("uid-1"), OperationView::Idle);
}
