//! Sessions are lost, drivers and cores restart.

use ostler_api::Uid;
use ostler_api::driver::{Certainty, ErrorCode};
use ostler_api::operation::{OperationView, Outcome, Place, Reason};
use ostler_proto::v1alpha1::{HeldState, Hello, Readiness, ResumeOutcome, Verdict, Welcome};
use ostler_sessions::SessionEvent;

use crate::core::{Core, create, status};
use crate::driver::{Driver, created, deleted, found, held, hello, holding};

fn verdicts(welcome: &Welcome) -> Vec<(&str, Verdict)> {
    let verdicts = welcome.verdicts.iter();
    verdicts.map(|it| (it.operation_id.as_str(), it.verdict())).collect()
}

/// A driver lost its link while `op-1` was in flight.
async fn lost(core: &mut Core) {
    let mut driver = Driver::ready(core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    driver.handled().await;
    drop(driver);
    core.provider_gone().await;
}

/// The driver goes before it says anything of the operation.
async fn cut_off(core: &mut Core) {
    let mut driver = Driver::ready(core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.receive().await;
    drop(driver);
    core.provider_gone().await;
}

fn assert_lost(outcome: &Outcome, certainty: Certainty) {
    let Err(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(
        (failure.code, failure.reason.as_str(), failure.certainty),
        (ErrorCode::Unavailable, Reason::CoreSessionLost.word(), certainty)
    );
}

#[tokio::test(start_paused = true)]
async fn a_result_that_was_lost_with_the_link_is_sent_again_and_acknowledged() {
    let mut core = Core::start();
    lost(&mut core).await;
    assert!(matches!(core.sessions.view("uid-1"), OperationView::InFlight(_)));
    let hello = holding(1, vec![held("op-1", "uid-1", HeldState::Completed)]);
    let (mut driver, welcome) = Driver::dial(&core, hello).await;
    assert_eq!(verdicts(&welcome), [("op-1", Verdict::Keep)]);
    assert_eq!(welcome.resume_outcome(), ResumeOutcome::Resumed);
    driver.complete("op-1", created("m")).await;
    assert!(core.outcome("uid-1").await.outcome.is_ok());
    core.sessions.acknowledge(&"op-1".into());
    assert_eq!(driver.acknowledged().await, "op-1");
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_runs_on_is_kept_and_counts_against_the_credit() {
    let mut core = Core::start();
    lost(&mut core).await;
    let hello = holding(1, vec![held("op-1", "uid-1", HeldState::Running)]);
    let (mut driver, welcome) = Driver::dial(&core, hello).await;
    assert_eq!(verdicts(&welcome), [("op-1", Verdict::Keep)]);
    driver.state(Readiness::Ready, 1).await;
    core.provider_ready().await;
    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    assert_eq!(core.sessions.providers()[0].queued, 1);
    driver.complete("op-1", created("m")).await;
    assert_eq!(driver.take().await.operation_id, "op-2");
}

#[tokio::test(start_paused = true)]
async fn an_operation_of_a_lost_driver_says_so_and_for_how_long_it_is_waited_for() {
    let place = |core: &Core| match core.sessions.view("uid-1") {
        OperationView::InFlight(flight) => flight.place,
        other => panic!("{other:?}"),
    };
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    driver.handled().await;
    assert_eq!(place(&core), Place::Sent);
    drop(driver);
    let wanted = |event: &SessionEvent| matches!(event, SessionEvent::Lost { .. });
    let (target_uid, operation_id) = ("uid-1".to_owned(), "op-1".to_owned());
    let event = SessionEvent::Lost {
        target_uid: target_uid.into(),
        operation_id: operation_id.into(),
        lost: true,
    };
    assert_eq!(core.event(wanted).await, event);
    assert_eq!(place(&core), Place::Lost(std::time::Duration::from_mins(1)));
    let hello = holding(1, vec![held("op-1", "uid-1", HeldState::Running)]);
    let (_driver, _) = Driver::dial(&core, hello).await;
    assert!(matches!(core.event(wanted).await, SessionEvent::Lost { lost: false, .. }));
    assert_eq!(place(&core), Place::Sent);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_restarted_leaves_unknown_outcomes_at_once() {
    let mut core = Core::start();
    lost(&mut core).await;
    let before = tokio::time::Instant::now();
    let (_driver, welcome) = Driver::dial(&core, hello(2)).await;
    assert_eq!(welcome.resume_outcome(), ResumeOutcome::Fresh);
    assert_lost(&core.outcome("uid-1").await.outcome, Certainty::Unknown);
    assert_eq!(before.elapsed(), std::time::Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_comes_back_first_says_nothing_of_the_other_one() {
    let mut core = Core::start();
    let mut first = Driver::ready(&mut core, 1).await;
    let second = Driver::ready(&mut core, 2).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    first.take().await;
    first.handled().await;
    drop((first, second));
    core.provider_gone().await;
    // The network was away for a moment, and both come back.
    let (_second, _) = Driver::dial(&core, holding(2, Vec::new())).await;
    assert!(matches!(core.sessions.view("uid-1"), OperationView::InFlight(_)), "it may run");
    let hello = holding(1, vec![held("op-1", "uid-1", HeldState::Running)]);
    let (_first, welcome) = Driver::dial(&core, hello).await;
    assert_eq!(verdicts(&welcome), [("op-1", Verdict::Keep)]);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_was_started_anew_says_nothing_of_one_of_another_name() {
    for name in ["pod-2", ""] {
        let mut core = Core::start();
        lost(&mut core).await;
        let newcomer = Hello { instance_name: name.to_owned(), ..hello(3) };
        let (_third, welcome) = Driver::dial(&core, newcomer).await;
        assert_eq!(welcome.resume_outcome(), ResumeOutcome::Fresh);
        assert!(matches!(core.sessions.view("uid-1"), OperationView::InFlight(_)), "it may run");
        let hello = holding(1, vec![held("op-1", "uid-1", HeldState::Running)]);
        let (_first, welcome) = Driver::dial(&core, hello).await;
        assert_eq!(verdicts(&welcome), [("op-1", Verdict::Keep)], "{name:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_without_a_name_is_nobodys_successor() {
    let nameless = |hello: Hello| Hello { instance_name: String::new(), ..hello };
    let mut core = Core::start();
    let (mut driver, _) = Driver::dial(&core, nameless(hello(1))).await;
    driver.state(Readiness::Ready, 4).await;
    core.provider_ready().await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    driver.handled().await;
    drop(driver);
    core.provider_gone().await;
    let (_next, _) = Driver::dial(&core, nameless(hello(2))).await;
    assert!(matches!(core.sessions.view("uid-1"), OperationView::InFlight(_)), "it may run");
}

#[tokio::test(start_paused = true)]
async fn a_driver_whose_process_died_leaves_unknown_outcomes_once_the_next_is_there() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    driver.handled().await;
    let before = tokio::time::Instant::now();
    driver.link.abort();
    core.provider_gone().await;
    let _next = Driver::ready(&mut core, 2).await;
    assert_lost(&core.outcome("uid-1").await.outcome, Certainty::Unknown);
    assert_eq!(before.elapsed(), std::time::Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_does_not_come_back_leaves_unknown_outcomes_after_the_window() {
    let mut core = Core::start();
    let before = tokio::time::Instant::now();
    lost(&mut core).await;
    assert_lost(&core.outcome("uid-1").await.outcome, Certainty::Unknown);
    assert_eq!(before.elapsed().as_secs(), 60);
    core.sessions.acknowledge(&"op-1".into());

    // It does come back after all, and is told to drop it.
    let hello = holding(
        1,
        vec![held("op-1", "uid-1", HeldState::Running), held("op-2", "", HeldState::Completed)],
    );
    let (_driver, welcome) = Driver::dial(&core, hello).await;
    assert_eq!(verdicts(&welcome), [("op-1", Verdict::Cancel), ("op-2", Verdict::Forget)]);
}

#[tokio::test(start_paused = true)]
async fn a_read_fails_at_once_when_its_session_is_lost() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(status("op-1", "uid-1")).unwrap();
    driver.take().await;
    drop(driver);
    assert_lost(&core.outcome("uid-1").await.outcome, Certainty::NotApplied);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_never_arrived_is_sent_again() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    assert_eq!(driver.receive().await.delivery, 1);
    drop(driver);
    core.provider_gone().await;
    let (mut driver, _) = Driver::dial(&core, holding(1, Vec::new())).await;
    driver.state(Readiness::Ready, 4).await;
    let again = driver.take().await;
    assert_eq!((again.operation_id.as_str(), again.delivery), ("op-1", 2));
    driver.complete("op-1", created("m")).await;
    core.outcome("uid-1").await;
}

/// The mutation that this finds: an adapter that took over a running driver has its instance id and no memory, so
/// the call of the adapter before it went to the driver twice, with no read in between.
#[tokio::test(start_paused = true)]
async fn a_process_that_lost_no_session_does_not_know_what_arrived_whatever_it_keeps() {
    let mut nothing_lost = holding(1, vec![held("of before", "uid-2", HeldState::Running)]);
    nothing_lost.resume.as_mut().unwrap().session_id.clear();
    for hello in [hello(1), nothing_lost] {
        let mut core = Core::start();
        cut_off(&mut core).await;
        let (_successor, _) = Driver::dial(&core, hello).await;
        assert_lost(&core.outcome("uid-1").await.outcome, Certainty::Unknown);
    }
}

#[tokio::test(start_paused = true)]
async fn an_accepted_operation_that_the_driver_does_not_have_any_more_is_unknown() {
    let mut core = Core::start();
    lost(&mut core).await;
    let (_driver, _) = Driver::dial(&core, hello(1)).await;
    assert_lost(&core.outcome("uid-1").await.outcome, Certainty::Unknown);
}

#[tokio::test(start_paused = true)]
async fn without_retention_an_operation_that_is_not_held_is_unknown() {
    let mut core = Core::start();
    cut_off(&mut core).await;
    let forgetful = Hello { capabilities: Vec::new(), ..hello(1) };
    let (_driver, _) = Driver::dial(&core, forgetful).await;
    assert_lost(&core.outcome("uid-1").await.outcome, Certainty::Unknown);
}

#[tokio::test(start_paused = true)]
async fn what_was_recorded_while_the_driver_was_away_is_forgotten() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    driver.complete("op-1", created("m")).await;
    core.outcome("uid-1").await;
    drop(driver);
    core.provider_gone().await;
    core.sessions.acknowledge(&"op-1".into());
    let hello = holding(1, vec![held("op-1", "uid-1", HeldState::Completed)]);
    let (_driver, welcome) = Driver::dial(&core, hello).await;
    assert_eq!(verdicts(&welcome), [("op-1", Verdict::Forget)]);
    assert_eq!(core.sessions.view("uid-1"), OperationView::Idle);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_came_before_the_link_broke_waits_for_its_record() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    driver.complete("op-1", created("m")).await;
    core.outcome("uid-1").await;
    drop(driver);
    core.provider_gone().await;
    let hello = holding(1, vec![held("op-1", "uid-1", HeldState::Completed)]);
    let (mut driver, welcome) = Driver::dial(&core, hello).await;
    assert_eq!(verdicts(&welcome), [("op-1", Verdict::Keep)]);
    core.sessions.acknowledge(&"op-1".into());
    assert_eq!(driver.acknowledged().await, "op-1");
}

#[tokio::test(start_paused = true)]
async fn a_core_that_restarted_adopts_what_drivers_hold() {
    let mut core = Core::start();
    let operations = vec![
        held("done", "uid-2", HeldState::Completed),
        held("running", "uid-1", HeldState::Running),
    ];
    for one in &operations {
        core.classes.record(one);
    }
    let hello = holding(1, operations);
    let (mut driver, welcome) = Driver::dial(&core, hello).await;
    assert_eq!(welcome.resume_outcome(), ResumeOutcome::Adopted);
    assert_eq!(verdicts(&welcome), [("running", Verdict::Keep), ("done", Verdict::Keep)]);
    let adopted = core.event(|event| matches!(event, SessionEvent::Adopted { .. })).await;
    let (target_uid, operation_id) = ("uid-1".to_owned(), "running".to_owned());
    assert_eq!(
        adopted,
        SessionEvent::Adopted { target_uid: target_uid.into(), operation_id: operation_id.into() }
    );
    let OperationView::InFlight(view) = core.sessions.view("uid-1") else { panic!("not adopted") };
    assert_eq!((view.id.as_str(), view.idempotency_key.as_str()), ("running", "uid-1:x"));

    driver.complete("done", created("m")).await;
    assert!(core.outcome("uid-2").await.outcome.is_ok());
    core.sessions.acknowledge(&"done".into());
    assert_eq!(driver.acknowledged().await, "done");
    driver.complete("running", created("m")).await;
    assert!(core.outcome("uid-1").await.outcome.is_ok());
}

#[tokio::test(start_paused = true)]
async fn of_two_operations_that_claim_a_target_the_recorded_one_is_adopted() {
    let core = Core::start();
    let new = held("new", "uid-1", HeldState::Running);
    core.classes.record(&new);
    let hello = holding(1, vec![held("old", "uid-1", HeldState::Completed), new]);
    let (_driver, welcome) = Driver::dial(&core, hello).await;
    assert_eq!(verdicts(&welcome), [("new", Verdict::Keep), ("old", Verdict::Forget)]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_driver_goes_to_the_next_one_or_is_given_back() {
    let mut core = Core::start();
    let mut driver = Driver::ready_with(&mut core, 1, 1).await;
    for (id, uid) in [("op-1", "uid-1"), ("op-2", "uid-2"), ("op-3", "uid-3")] {
        let mut patient = create(id, uid);
        patient.timeout = std::time::Duration::from_mins(20);
        core.sessions.submit(patient).unwrap();
    }
    driver.take().await;
    drop(driver);
    core.provider_gone().await;
    let mut driver = Driver::ready_with(&mut core, 2, 1).await;
    assert_eq!(driver.take().await.operation_id, "op-2");
    drop(driver);
    let finished = core.outcome("uid-3").await;
    let Err(failure) = &finished.outcome else { panic!("a result") };
    assert_eq!(
        (failure.reason.as_str(), failure.certainty),
        (Reason::CoreNoSession.word(), Certainty::NotApplied)
    );
}

#[tokio::test(start_paused = true)]
async fn f12_results_of_operations_that_were_never_known_are_acknowledged() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    driver.complete("unheard-of", deleted()).await;
    driver.complete("of", found("m")).await;
    assert_eq!(driver.acknowledged().await, "unheard-of");
    assert_eq!(driver.acknowledged().await, "of");
    assert_eq!(core.sessions.targets(), Vec::<Uid>::new());
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_comes_back_with_a_thousand_operations_lists_them_in_one_hello() {
    let mut core = Core::start();
    // The longest names that Kubernetes allows.
    let longest = |index: usize| {
        let uid = format!("{index:036}");
        let mut one = held(&uid, &uid, HeldState::Running);
        let target = one.target.as_mut().unwrap();
        target.namespace = "n".repeat(63);
        target.name = "m".repeat(253);
        let class = one.machine_class.as_mut().unwrap();
        class.namespace = "n".repeat(63);
        class.name = "c".repeat(253);
        class.revision = "r".repeat(64);
        one
    };
    let operations: Vec<_> = (0..1000).map(longest).collect();
    for one in &operations {
        core.classes.record(one);
    }
    let hello = holding(1, operations);
    let (mut driver, welcome) = Driver::dial(&core, hello).await;
    driver.state(Readiness::Ready, 640).await;
    core.provider_ready().await;
    assert_eq!(welcome.verdicts.len(), 1000);
    assert!(welcome.verdicts.iter().all(|one| one.verdict() == Verdict::Keep));
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_results_that_nobody_waits_for_is_acknowledged_and_ends_no_session() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    let ids: Vec<String> = (0..500).map(|index| format!("forgotten-{index}")).collect();
    for id in &ids {
        driver.complete(id, deleted()).await;
    }
    for id in &ids {
        assert_eq!(driver.acknowledged().await, *id);
    }
    core.sessions.submit(create("op-x", "uid-x")).unwrap();
    assert_eq!(driver.take().await.operation_id, "op-x");
}
