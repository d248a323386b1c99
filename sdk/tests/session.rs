//! The session layer against a core that a test plays frame by frame, on a paused clock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::tiny_core::stable::Stable;
use crate::tiny_core::{TinyCore, create, operation, reference, welcome};
use ostler_driver_sdk::Event;
use ostler_proto::v1alpha1 as proto;
use proto::operation::Request as Asked;
use proto::operation_completed::Outcome;
use proto::operation_result::Response as Answered;
use proto::register_request::Frame as FromDriver;
use proto::register_response::Frame as ToDriver;
use proto::{
    HeldState, MachineErrorCode as Code, OperationKind, OutcomeCertainty as Certainty, Readiness,
    Verdict,
};
use tokio::time::Instant;

pub(crate) fn status(id: &str, name: &str) -> proto::Operation {
    let request = proto::GetMachineStatusRequest::default();
    operation(id, name, Asked::GetMachineStatus(request))
}

pub(crate) fn verdict(id: &str, verdict: Verdict) -> proto::HeldVerdict {
    proto::HeldVerdict { operation_id: id.to_owned(), verdict: verdict.into() }
}

fn seconds(count: u64) -> Option<prost_types::Duration> {
    Duration::from_secs(count).try_into().ok()
}

pub(crate) fn shown(error: &proto::OperationError) -> (Code, Certainty, &str) {
    (error.code(), error.certainty(), &error.reason)
}

#[tokio::test(start_paused = true)]
async fn the_first_frame_says_who_dials_in_and_what_it_offers() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let hello = core.session().await.hello().await;
    assert_eq!(hello.provider, "stable.example.com");
    assert_eq!(hello.max_in_flight, 4);
    assert!(hello.resume.is_none());
    assert_eq!(hello.instance_id.len(), 36);
    let kinds: Vec<_> = hello.operation_kinds().collect();
    assert!(kinds.contains(&OperationKind::CreateMachine), "{kinds:?}");
    assert!(kinds.contains(&OperationKind::InitializeMachine), "{kinds:?}");
    assert!(!kinds.contains(&OperationKind::UpdateMachine), "{kinds:?}");
}

#[tokio::test(start_paused = true)]
async fn an_operation_sent_twice_is_done_once_and_answered_twice() {
    let mut core = TinyCore::start();
    let stable = Stable::default();
    let _driver = stable.run(&core);
    let (mut session, _) = core.welcomed().await;

    session.operate(create("op", "waits")).await;
    assert_eq!(session.accepted().await, "op");
    session.operate(create("op", "waits")).await;
    let Some(FromDriver::Accepted(again)) = session.receive().await else { panic!() };
    assert_eq!(again.operation_ids, ["op"]);

    stable.go.notify_one();
    let first = session.completed().await;
    session.operate(create("op", "waits")).await;
    assert_eq!(session.completed().await, first);
    assert_eq!(stable.creates.load(Ordering::SeqCst), 1);

    let Some(Outcome::Result(result)) = first.outcome else { panic!() };
    let Some(Answered::CreateMachine(created)) = result.response else { panic!() };
    let machine = created.machine.unwrap();
    assert_eq!(machine.provider_id, "stable:///uid-waits");
    assert_eq!(
        (machine.machine_name.as_str(), machine.machine_uid.as_str()),
        ("waits", "uid-waits")
    );
}

#[tokio::test(start_paused = true)]
async fn f03_a_result_is_sent_on_every_session_until_it_is_acknowledged() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(create("op", "m")).await;
    session.accepted().await;
    let result = session.completed().await;

    for _ in 0..3 {
        drop(session);
        session = core.session().await;
        let resume = session.hello().await.resume.unwrap();
        assert_eq!(resume.session_id, "session");
        let [held] = resume.operations.as_slice() else { panic!("{resume:?}") };
        assert_eq!((held.operation_id.as_str(), held.state()), ("op", HeldState::Completed));
        assert_eq!(held.kind(), OperationKind::CreateMachine);
        assert_eq!(held.idempotency_key, "uid-m:x");
        session.send(ToDriver::Welcome(Box::new(welcome()))).await;
        assert_eq!(session.completed().await, result);
        session.state().await;
    }

    session.ack("op").await;
    session.echo().await;
    drop(session);
    let (_session, hello) = core.welcomed().await;
    assert_eq!(hello.resume.unwrap().operations, []);
}

#[tokio::test(start_paused = true)]
async fn verdicts_decide_what_becomes_of_held_operations() {
    let mut core = TinyCore::start();
    let stable = Stable::default();
    let _driver = stable.run(&core);
    let (mut session, _) = core.welcomed().await;
    for (id, name) in [("keep", "waits"), ("cancel", "cancels-1"), ("forget", "cancels-2")] {
        session.operate(create(id, name)).await;
        session.accepted().await;
    }
    session.operate(create("drop", "m")).await;
    session.accepted().await;
    session.completed().await;
    drop(session);

    let mut session = core.session().await;
    assert_eq!(session.hello().await.resume.unwrap().operations.len(), 4);
    let verdicts = vec![
        verdict("keep", Verdict::Keep),
        verdict("cancel", Verdict::Cancel),
        verdict("forget", Verdict::Forget),
        verdict("drop", Verdict::Forget),
    ];
    session.send(ToDriver::Welcome(Box::new(proto::Welcome { verdicts, ..welcome() }))).await;
    session.state().await;
    assert_eq!(session.failed().await.code(), Code::Canceled);
    assert_eq!(session.echo().await.running, ["keep"]);
    stable.go.notify_one();
    assert_eq!(session.completed().await.operation_id, "keep");
    assert_eq!(session.echo().await.running, [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_verb_goes_on_while_the_link_is_down_and_its_result_waits() {
    let mut core = TinyCore::start();
    let stable = Stable::default();
    let _driver = stable.run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(create("op", "waits")).await;
    session.accepted().await;
    drop(session);
    let mut session = core.session().await;
    let held = session.hello().await.resume.unwrap().operations;
    assert_eq!(held[0].state(), HeldState::Running);
    stable.go.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    session.send(ToDriver::Welcome(Box::new(welcome()))).await;
    assert_eq!(session.completed().await.operation_id, "op");
}

#[tokio::test(start_paused = true)]
async fn f12_what_the_driver_does_not_know_is_survived() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;

    session.send(None).await;

    session.operate(proto::Operation { request: None, ..create("new", "m") }).await;
    let refused = session.failed().await;
    assert_eq!(shown(&refused), (Code::Unimplemented, Certainty::NotApplied, "UNKNOWN_OPERATION"));

    let update = Asked::UpdateMachine(proto::UpdateMachineRequest::default());
    session.operate(operation("update", "m", update)).await;
    assert_eq!(session.failed().await.code(), Code::Unimplemented);
    session.echo().await;
}

#[tokio::test(start_paused = true)]
async fn a_verb_that_panics_or_takes_too_long_is_answered_all_the_same() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;

    session.operate(create("panic", "panics")).await;
    session.accepted().await;
    let error = session.failed().await;
    assert_eq!(shown(&error), (Code::Internal, Certainty::Unknown, "DRIVER_PANIC"));

    let start = Instant::now();
    session.operate(proto::Operation { timeout: seconds(7), ..create("slow", "hangs") }).await;
    session.accepted().await;
    let error = session.failed().await;
    assert_eq!(shown(&error), (Code::DeadlineExceeded, Certainty::Unknown, "DEADLINE_EXCEEDED"));
    assert_eq!(start.elapsed().as_secs(), 12, "it was told to stop, and did not");

    session.operate(status("silent", "hangs")).await;
    session.accepted().await;
    session.failed().await;
    assert_eq!(start.elapsed().as_secs(), 72, "a status may take a minute unless the core says");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_verb_stops_and_says_what_it_left() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(proto::Operation { timeout: seconds(7), ..create("late", "cancels") }).await;
    session.accepted().await;
    let said = session.failed().await;
    let out_of_time = (Code::DeadlineExceeded, Certainty::NotApplied, "DEADLINE_EXCEEDED");
    assert_eq!(shown(&said), out_of_time, "the core cancelled nothing");

    session.operate(create("op", "cancels")).await;
    session.accepted().await;
    let cancel = proto::OperationCancel { operation_id: "op".to_owned(), ..Default::default() };
    session.send(ToDriver::Cancel(cancel)).await;
    assert_eq!(shown(&session.failed().await), (Code::Canceled, Certainty::NotApplied, "CANCELED"));
}

#[tokio::test(start_paused = true)]
async fn progress_and_checkpoint_arrive_before_the_result_and_the_checkpoint_with_it() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(create("op", "checkpoints")).await;
    session.accepted().await;
    let Some(FromDriver::Progress(progress)) = session.receive().await else { panic!() };
    assert_eq!((progress.stage.as_str(), progress.message.as_str()), ("Booting", "half way"));
    let Some(FromDriver::Progress(progress)) = session.receive().await else { panic!() };
    assert_eq!(progress.checkpoint, "step-2");
    let completed = session.completed().await;
    assert_eq!(completed.checkpoint, "step-2");
    let Some(Outcome::Error(error)) = completed.outcome else { panic!() };
    assert_eq!(shown(&error), (Code::Unavailable, Certainty::Partial, "UNAVAILABLE"));
}

#[tokio::test(start_paused = true)]
async fn a_long_list_arrives_in_pages_in_order_and_again_on_request() {
    let mut core = TinyCore::start();
    let stable = Stable { listed: 1200, ..Stable::default() };
    let _driver = stable.run(&core);
    let (mut session, _) = core.welcomed().await;
    let list = operation("op", "", Asked::ListMachines(proto::ListMachinesRequest::default()));
    session.operate(list.clone()).await;
    session.accepted().await;
    for _ in 0..2 {
        let mut ids = Vec::new();
        let mut pages = 0;
        let completed = loop {
            match session.receive().await {
                Some(FromDriver::Page(page)) => {
                    assert_eq!(page.index, pages);
                    pages += 1;
                    ids.extend(page.machines.into_iter().map(|machine| machine.provider_id));
                }
                Some(FromDriver::Completed(completed)) => break *completed,
                other => panic!("{other:?}"),
            }
        };
        let expected: Vec<_> = (0..1200).map(|index| format!("stable:///{index}")).collect();
        assert_eq!(ids, expected);
        let Some(Outcome::Result(result)) = completed.outcome else { panic!() };
        let Some(Answered::ListMachines(list)) = result.response else { panic!() };
        assert_eq!((list.pages, list.machines.len()), (3, 0));
        session
            .operate(operation(
                "op",
                "",
                Asked::ListMachines(proto::ListMachinesRequest::default()),
            ))
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_class_is_fetched_once_for_all_who_want_the_same_revision() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    // The first call is cut off: it is made once more.
    core.calls().failures.store(1, Ordering::SeqCst);
    for id in 0..20 {
        session.operate(create(&id.to_string(), "classy")).await;
        session.accepted().await;
        assert!(matches!(session.completed().await.outcome, Some(Outcome::Result(_))));
    }
    assert_eq!(core.calls().classes.load(Ordering::SeqCst), 2);

    let stale = vec![reference("class", "")];
    session.send(ToDriver::Invalidate(proto::CacheInvalidation { stale })).await;
    session.operate(create("again", "classy")).await;
    session.accepted().await;
    session.completed().await;
    assert_eq!(core.calls().classes.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_class_revision_that_is_gone_ends_the_operation_unapplied() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    let machine_class = Some(reference("gone", "1"));
    session.operate(proto::Operation { machine_class, ..create("op", "classy") }).await;
    session.accepted().await;
    let error = session.failed().await;
    assert_eq!(shown(&error), (Code::Aborted, Certainty::NotApplied, "STALE_REVISION"));
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_kept_no_longer_than_the_core_allows_and_never_told() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    *core.calls().cache_for.lock().unwrap() = Duration::from_mins(1);
    for (wait, fetched) in [(0, 1), (59, 1), (1, 2), (0, 2)] {
        tokio::time::advance(Duration::from_secs(wait)).await;
        let id = format!("{wait}-{fetched}-{}", core.calls().secrets.load(Ordering::SeqCst));
        session.operate(create(&id, "secretive")).await;
        session.accepted().await;
        assert_eq!(session.failed().await.message, "login *** refused");
        assert_eq!(core.calls().secrets.load(Ordering::SeqCst), fetched, "after {wait}");
    }
    assert_eq!(core.calls().operations.lock().unwrap()[0], "0-1-0");
}

#[tokio::test(start_paused = true)]
async fn f16_a_secret_that_was_replaced_since_its_class_was_read_is_fetched_as_the_newest() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    "2".clone_into(&mut core.calls().secret_revision.lock().unwrap());
    session.operate(create("op", "secretive")).await;
    session.accepted().await;
    assert_eq!(session.failed().await.code(), Code::Unauthenticated);
    assert_eq!(core.calls().secrets.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_denied_because_the_session_is_over_is_asked_for_in_the_next() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    "next".clone_into(&mut core.calls().session.lock().unwrap());
    session.operate(create("op", "secretive")).await;
    session.accepted().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(core.calls().secrets.load(Ordering::SeqCst), 1);
    drop(session);

    let (mut session, _) = core.welcomed_as("next").await;
    assert_eq!(session.failed().await.message, "login *** refused");
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_asked_for_in_every_session_while_one_ends_after_another() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    "third".clone_into(&mut core.calls().session.lock().unwrap());
    session.operate(create("op", "secretive")).await;
    session.accepted().await;
    for (asked, next) in [(1, "second"), (2, "third")] {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(core.calls().secrets.load(Ordering::SeqCst), asked);
        drop(session);
        (session, _) = core.welcomed_as(next).await;
    }
    assert_eq!(session.failed().await.message, "login *** refused");
}

#[tokio::test(start_paused = true)]
async fn reads_that_the_next_core_does_not_want_end_at_once() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    "other".clone_into(&mut core.calls().session.lock().unwrap());
    let reads = ["op-1", "op-2", "op-3"];
    for id in reads {
        session.operate(status(id, "secretive")).await;
        session.accepted().await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(session);

    let mut session = core.session().await;
    session.hello().await;
    let verdicts = reads.map(|id| verdict(id, Verdict::Cancel)).to_vec();
    let session_id = "next".to_owned();
    session
        .send(ToDriver::Welcome(Box::new(proto::Welcome { session_id, verdicts, ..welcome() })))
        .await;
    session.state().await;
    let before = Instant::now();
    for _ in reads {
        let error = session.failed().await;
        assert_eq!(shown(&error), (Code::Canceled, Certainty::NotApplied, "CANCELED"));
    }
    assert_eq!(before.elapsed(), Duration::ZERO, "none waits for another");
}

#[tokio::test(start_paused = true)]
async fn a_drained_driver_finishes_what_runs_takes_nothing_new_and_ends() {
    let mut core = TinyCore::start();
    let stable = Stable::default();
    let driver = stable.run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(create("op", "waits")).await;
    session.accepted().await;

    driver.shutdown.cancel();
    let state = session.state().await;
    assert_eq!((state.readiness(), state.max_in_flight), (Readiness::Draining, 0));
    assert_eq!(state.drain_deadline, seconds(25));
    session.operate(create("new", "m")).await;
    let refused = session.failed().await;
    assert_eq!(shown(&refused), (Code::Unavailable, Certainty::NotApplied, "DRIVER_DRAINING"));
    session.ack("new").await;

    stable.go.notify_one();
    assert_eq!(session.completed().await.operation_id, "op");
    assert!(!driver.ended.is_finished(), "it waits for the acknowledgement");
    session.ack("op").await;
    assert_eq!(session.receive().await, None);
    driver.ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_takes_too_long_ends_with_an_unknown_outcome() {
    let mut core = TinyCore::start();
    let driver = Stable::default().run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(create("op", "hangs")).await;
    session.accepted().await;
    let start = Instant::now();
    driver.shutdown.cancel();
    session.state().await;
    let error = session.failed().await;
    assert_eq!(shown(&error), (Code::Unavailable, Certainty::Unknown, "DRIVER_STOPPED"));
    assert_eq!(start.elapsed().as_secs(), 25);
    driver.ended.await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_idle_driver_without_a_core_ends_at_once() {
    let core = TinyCore::start();
    let driver = Stable::default().run(&core);
    driver.shutdown.cancel();
    driver.ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_core_that_drains_is_left_and_found_again_when_it_said() {
    let mut core = TinyCore::start();
    let stable = Stable::default();
    let _driver = stable.run(&core);
    let (mut session, _) = core.welcomed().await;
    session.operate(create("op", "waits")).await;
    session.accepted().await;
    let start = Instant::now();
    let draining = proto::CoreDraining {
        reason: "leader".to_owned(),
        reconnect_after: seconds(3),
        close_after: seconds(30),
    };
    session.send(ToDriver::Draining(draining)).await;
    // It stays for what still runs, at most until the core closes.
    assert_eq!(session.receive().await, None);
    assert_eq!(start.elapsed().as_secs(), 30);
    let (mut session, hello) = core.welcomed().await;
    assert_eq!(start.elapsed().as_secs(), 33);
    assert_eq!(hello.resume.unwrap().operations.len(), 1);
    stable.go.notify_one();
    session.completed().await;
}

#[tokio::test(start_paused = true)]
async fn f08_a_refusal_for_good_is_repeated_in_minutes_only() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let mut session = core.session().await;
    session.hello().await;
    let start = Instant::now();
    let refusal = proto::ProtocolError {
        reason: "FOREIGN_PROVIDER".to_owned(),
        retry: false,
        ..Default::default()
    };
    session.send(ToDriver::ProtocolError(refusal)).await;
    assert_eq!(session.receive().await, None);
    core.session().await;
    assert_eq!(start.elapsed().as_secs(), 300);
}

#[tokio::test(start_paused = true)]
async fn a_core_that_falls_silent_is_left_after_four_heartbeats() {
    let mut core = TinyCore::start();
    let _driver = Stable::default().run(&core);
    let mut session = core.session().await;
    session.hello().await;
    let start = Instant::now();
    let heartbeat_interval = seconds(10);
    session
        .send(ToDriver::Welcome(Box::new(proto::Welcome { heartbeat_interval, ..welcome() })))
        .await;
    session.state().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    session.echo().await;
    assert_eq!(session.receive().await, None);
    assert_eq!(start.elapsed().as_secs(), 70);
}

#[tokio::test(start_paused = true)]
async fn events_go_to_the_core_only_while_the_driver_is_active() {
    let mut core = TinyCore::start();
    let stable = Stable::default();
    let _driver = stable.run(&core);
    stable.events.send(Event::gone("stable:///too-early"));
    let (mut session, hello) = core.welcomed().await;
    assert!(hello.capabilities.contains(&proto::DriverCapability::Events.into()));
    let sent = Event::termination_notice("stable:///1").within(Duration::from_mins(2));
    stable.events.send(sent.message("soon"));
    let Some(FromDriver::Event(event)) = session.receive().await else { panic!() };
    assert_eq!((event.provider_id.as_str(), event.message.as_str()), ("stable:///1", "soon"));
    assert_eq!(event.effective_in, seconds(120));

    let standby = proto::SessionRole { role: proto::RoleKind::Standby.into(), fencing_term: 1 };
    session.send(ToDriver::Role(standby)).await;
    session.operate(status("op", "a")).await;
    let refused = session.completed().await;
    assert_eq!(refused.operation_id, "op");
    stable.events.send(Event::gone("stable:///1"));
    let active = proto::SessionRole { role: proto::RoleKind::Active.into(), fencing_term: 1 };
    tokio::task::yield_now().await;
    session.send(ToDriver::Heartbeat(proto::Heartbeat::default())).await;
    let Some(FromDriver::Heartbeat(_)) = session.receive().await else { panic!() };
    session.send(ToDriver::Role(active)).await;
    session.operate(status("op-2", "a")).await;
    assert_eq!(session.completed().await.operation_id, "op-2");
}
