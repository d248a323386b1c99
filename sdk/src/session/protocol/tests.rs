//! Frames in, effects out.

use proto::operation::Request;
use proto::operation_result::Response;
use proto::{HeldState, RoleKind};

use super::*;

fn protocol() -> Protocol {
    let instance = Instance { id: "instance".to_owned(), name: String::new() };
    Protocol::new(DriverInfo::new("a").max_in_flight(2), instance, Vec::new())
}

fn welcome() -> proto::Welcome {
    proto::Welcome { role: RoleKind::Active.into(), fencing_term: 1, ..Default::default() }
}

fn live() -> Protocol {
    let mut protocol = protocol();
    receive(&mut protocol, Received::Welcome(Box::new(welcome())));
    protocol
}

fn receive(protocol: &mut Protocol, frame: Received) -> Vec<String> {
    names(protocol.on_frame(Some(frame), Instant::now()))
}

fn operate(protocol: &mut Protocol, id: &str) -> Vec<String> {
    let request = Some(Request::GetMachineStatus(proto::GetMachineStatusRequest::default()));
    let operation = proto::Operation { operation_id: id.to_owned(), request, ..Default::default() };
    receive(protocol, Received::Operation(Box::new(operation)))
}

fn finish(protocol: &mut Protocol, id: &str) -> Vec<String> {
    let answer = Response::GetMachineStatus(proto::GetMachineStatusResponse::default());
    names(protocol.on_finished(id, Ok(answer), None, Instant::now()))
}

fn cancel(id: &str) -> Received {
    let operation_id = id.to_owned();
    Received::Cancel(proto::OperationCancel { operation_id, reason: String::new() })
}

fn ack(id: &str) -> Received {
    Received::ResultAck(proto::OperationResultAck { operation_ids: vec![id.to_owned()] })
}

/// Effects in a form that reads well in a table.
fn names(effects: impl IntoIterator<Item = Effect>) -> Vec<String> {
    effects.into_iter().map(|effect| name(&effect)).collect()
}

fn name(effect: &Effect) -> String {
    match effect {
        Effect::Send(frame) => match frame {
            Sent::Hello(_) => "hello".to_owned(),
            Sent::Accepted(accepted) => format!("accepted {}", accepted.operation_ids.join(" ")),
            Sent::Progress(progress) => format!("progress {}", progress.operation_id),
            Sent::Page(page) => format!("page {}", page.index),
            Sent::Completed(completed) => format!("completed {}", completed.operation_id),
            Sent::State(state) => format!("state {}", state.readiness().as_str_name()),
            Sent::Heartbeat(heartbeat) => format!("heartbeat {}", heartbeat.running.join(" ")),
            Sent::Event(event) => format!("event {}", event.provider_id),
        },
        Effect::Start(operation) => format!("start {}", operation.operation_id),
        Effect::Cancel(id) => format!("cancel {id}"),
        Effect::Welcomed { .. } => "welcomed".to_owned(),
        Effect::Invalidate(stale) => format!("invalidate {}", stale.len()),
        Effect::Leave { dial, .. } => format!("leave {dial:?}"),
    }
}

#[test]
fn each_frame_has_its_effects() {
    let heartbeat = || Received::Heartbeat(proto::Heartbeat::default());
    let stale = vec![proto::ObjectRevision::default()];
    let invalidate = Received::Invalidate(proto::CacheInvalidation { stale });
    let error = |retry| {
        Received::ProtocolError(proto::ProtocolError { retry, ..proto::ProtocolError::default() })
    };
    let draining = Received::Draining(proto::CoreDraining::default());
    let cases = [
        (heartbeat(), vec!["heartbeat run"]),
        (cancel("run"), vec!["cancel run"]),
        (cancel("done"), vec!["completed done"]),
        (cancel("strange"), vec![]),
        (ack("done"), vec![]),
        (ack("strange"), vec![]),
        (invalidate, vec!["invalidate 1"]),
        (draining, vec!["leave Backoff"]),
        (error(true), vec!["leave Backoff"]),
        (error(false), vec!["leave Refused"]),
    ];
    for (frame, expected) in cases {
        let mut protocol = live();
        operate(&mut protocol, "run");
        operate(&mut protocol, "done");
        finish(&mut protocol, "done");
        assert_eq!(receive(&mut protocol, frame.clone()), expected, "{frame:?}");
    }
}

#[test]
fn a_frame_without_an_arm_is_ignored() {
    assert!(live().on_frame(None, Instant::now()).is_empty());
}

#[test]
fn an_operation_goes_from_its_start_to_acknowledged() {
    let mut protocol = live();
    assert_eq!(operate(&mut protocol, "a"), ["start a"]);
    assert_eq!(operate(&mut protocol, "a"), ["accepted a"]);
    assert_eq!(finish(&mut protocol, "a"), ["completed a"]);
    assert_eq!(operate(&mut protocol, "a"), ["completed a"]);
    assert!(!protocol.is_idle());
    receive(&mut protocol, ack("a"));
    assert!(protocol.is_idle());
}

#[test]
fn the_core_is_told_once_of_operations_that_have_run_for_a_second_and_of_which_it_heard_nothing() {
    let mut protocol = live();
    assert_eq!(protocol.accept_at(), None);
    let told = |protocol: &mut Protocol| {
        let at = protocol.accept_at().unwrap();
        assert!(names(protocol.accept_running(at - ACCEPT_AFTER)).is_empty(), "too early");
        names(protocol.accept_running(Instant::now() + 2 * ACCEPT_AFTER))
    };
    operate(&mut protocol, "a");
    operate(&mut protocol, "b");
    assert_eq!(told(&mut protocol), ["accepted a b"]);
    assert_eq!(protocol.accept_at(), None);
    finish(&mut protocol, "a");
    operate(&mut protocol, "c");
    let progress = proto::OperationProgress { operation_id: "c".to_owned(), ..Default::default() };
    protocol.on_progress(progress).unwrap();
    assert_eq!(protocol.accept_at(), None, "progress tells as much");
    finish(&mut protocol, "c");
    operate(&mut protocol, "d");
    receive(&mut protocol, Received::Heartbeat(proto::Heartbeat::default()));
    assert_eq!(protocol.accept_at(), None, "and so does a heartbeat");
}

#[test]
fn a_welcome_obeys_verdicts_then_sends_results_then_says_ready() {
    let mut protocol = live();
    for id in ["keep", "cancel"] {
        operate(&mut protocol, id);
    }
    protocol.on_disconnected();
    assert!(finish(&mut protocol, "keep").is_empty(), "no core is there to hear it");
    let verdict = |id: &str, verdict: Verdict| proto::HeldVerdict {
        operation_id: id.to_owned(),
        verdict: verdict.into(),
    };
    let verdicts = vec![
        verdict("keep", Verdict::Keep),
        verdict("cancel", Verdict::Cancel),
        verdict("strange", Verdict::Forget),
    ];
    let welcome = Received::Welcome(Box::new(proto::Welcome { verdicts, ..welcome() }));
    assert_eq!(
        receive(&mut protocol, welcome),
        ["welcomed", "cancel cancel", "completed keep", "state READINESS_READY"]
    );
}

#[test]
fn a_forgotten_operation_is_neither_heard_of_nor_started_twice() {
    let mut protocol = live();
    operate(&mut protocol, "a");
    protocol.on_disconnected();
    let verdict = Verdict::Forget.into();
    let verdicts = vec![proto::HeldVerdict { operation_id: "a".to_owned(), verdict }];
    receive(&mut protocol, Received::Welcome(Box::new(proto::Welcome { verdicts, ..welcome() })));
    let progress = proto::OperationProgress { operation_id: "a".to_owned(), ..Default::default() };
    assert_eq!(protocol.on_progress(progress), None);
    assert_eq!(operate(&mut protocol, "a"), ["accepted a"], "it still runs");
    assert_eq!(finish(&mut protocol, "a"), ["completed a"], "and is wanted again");
}

/// Otherwise the core would send operations again that the previous process handed to the driver.
#[test]
fn a_process_that_took_over_what_runs_names_no_session_until_it_had_one() {
    let instance = Instance { id: "instance".to_owned(), name: String::new() };
    let held = proto::HeldOperation { operation_id: "op".to_owned(), ..Default::default() };
    let mut protocol = Protocol::new(DriverInfo::new("a"), instance, vec![held]);
    let named = |protocol: &mut Protocol| {
        let Sent::Hello(hello) = protocol.hello(SystemTime::UNIX_EPOCH) else { panic!() };
        hello.resume.unwrap().session_id
    };
    assert_eq!(named(&mut protocol), "");
    let welcome = proto::Welcome { session_id: "s".to_owned(), ..welcome() };
    receive(&mut protocol, Received::Welcome(Box::new(welcome)));
    assert_eq!(named(&mut protocol), "s");
}

#[test]
fn the_hello_lists_what_is_held_from_the_second_session_on() {
    let mut protocol = protocol();
    let held = |protocol: &mut Protocol| {
        let Sent::Hello(hello) = protocol.hello(SystemTime::UNIX_EPOCH) else { panic!() };
        let resume = hello.resume?;
        let states = resume.operations.iter();
        Some(states.map(|held| (held.operation_id.clone(), held.state())).collect::<Vec<_>>())
    };
    assert_eq!(held(&mut protocol), None);
    receive(&mut protocol, Received::Welcome(Box::new(welcome())));
    operate(&mut protocol, "a");
    operate(&mut protocol, "b");
    finish(&mut protocol, "b");
    let expected = [("a".to_owned(), HeldState::Running), ("b".to_owned(), HeldState::Completed)];
    assert_eq!(held(&mut protocol).unwrap(), expected);
}

#[test]
fn nothing_starts_before_the_welcome_nor_after_the_drain_began() {
    assert_eq!(operate(&mut protocol(), "a"), ["completed a"]);
    let mut protocol = live();
    let state = protocol.drain(Duration::from_secs(1));
    assert_eq!(names(state), ["state READINESS_DRAINING"]);
    assert_eq!(operate(&mut protocol, "a"), ["completed a"]);
}

/// The core ends a session whose heartbeat names more.
#[test]
fn no_more_runs_than_a_heartbeat_may_name() {
    let instance = Instance { id: "instance".to_owned(), name: String::new() };
    let info = DriverInfo::new("a").max_in_flight(640);
    let mut protocol = Protocol::new(info, instance, Vec::new());
    receive(&mut protocol, Received::Welcome(Box::new(welcome())));
    for id in 0..1000 {
        assert_eq!(operate(&mut protocol, &id.to_string()), [format!("start {id}")]);
    }
    assert_eq!(operate(&mut protocol, "1000"), ["completed 1000"]);
}

#[test]
fn a_role_of_an_old_term_changes_nothing() {
    let mut protocol = live();
    let role = |role: RoleKind, fencing_term| {
        Received::Role(proto::SessionRole { role: role.into(), fencing_term })
    };
    receive(&mut protocol, role(RoleKind::Standby, 5));
    receive(&mut protocol, role(RoleKind::Active, 4));
    assert_eq!(protocol.refusal(), Some(Refusal::Standby));
    receive(&mut protocol, role(RoleKind::Active, 5));
    assert_eq!(protocol.refusal(), None);
}

#[test]
fn a_core_that_only_looks_is_answered_changes_nothing_and_is_forgotten() {
    let mut protocol = live();
    operate(&mut protocol, "held");
    finish(&mut protocol, "held");
    protocol.on_disconnected();
    let session_id = "look".to_owned();
    let role = RoleKind::Active.into();
    let look = proto::Welcome { session_id, role, ..Default::default() };
    let heard = receive(&mut protocol, Received::Welcome(Box::new(look)));
    assert_eq!(heard, ["welcomed", "completed held", "state READINESS_READY"]);
    assert_eq!(operate(&mut protocol, "read"), ["start read"]);
    finish(&mut protocol, "read");
    receive(&mut protocol, ack("read"));
    let request = Some(Request::DeleteMachine(proto::DeleteMachineRequest::default()));
    let operation_id = "delete".to_owned();
    let delete = proto::Operation { operation_id, request, ..Default::default() };
    let refused = receive(&mut protocol, Received::Operation(Box::new(delete)));
    assert_eq!(refused, ["completed delete"], "and not started");
    receive(&mut protocol, ack("delete"));
    protocol.on_disconnected();
    let Sent::Hello(hello) = protocol.hello(SystemTime::UNIX_EPOCH) else { panic!() };
    let resume = hello.resume.unwrap();
    assert_ne!(resume.session_id, "look");
    let held: Vec<_> = resume.operations.iter().map(|it| it.operation_id.as_str()).collect();
    assert_eq!(held, ["held"]);
    assert!(protocol.fence.enter(1).is_ok(), "the term of its core is still the highest");
}

#[test]
fn a_time_beyond_all_clocks_is_a_day() {
    let seconds = |seconds| time(Some(prost_types::Duration { seconds, nanos: 0 }));
    assert_eq!(seconds(40), Some(Duration::from_secs(40)));
    assert_eq!(seconds(i64::MAX), Some(LONGEST));
    assert_eq!(seconds(-1), None);
    let forever = Some(prost_types::Duration { seconds: i64::MAX, nanos: 0 });
    let draining =
        proto::CoreDraining { reconnect_after: forever, close_after: forever, ..<_>::default() };
    let Effect::Leave { close_in, dial } = on_core_draining(&draining) else { panic!("it stays") };
    assert_eq!((close_in, dial), (LONGEST, Dial::After(LONGEST)));
}
