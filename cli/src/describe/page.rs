//! The page about a machine. Pure: what was read goes in, text comes out.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::machine::{
    DrainProgress, DrainPurpose, MachineStatus, MachineStep, WaitReason, WaitingFor,
};
use ostler_api::{Machine, MachineClass, ProviderId};

use super::sheet::{Page, clock, event_lines};
use super::{hints, nodes};
use crate::table::span;

/// A machine and the objects that belong to it, as far as they could be read.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) machine: Machine,
    pub(super) class: Option<MachineClass>,
    /// Nodes of the instance, the Node that the machine joined as first.
    pub(super) nodes: Vec<Node>,
    /// Says that no core serves the namespace of the machine.
    pub(super) unserved: Option<String>,
    /// The verdict of each health check on the machine.
    pub(super) checks: Vec<String>,
    /// Oldest first.
    pub(super) events: Vec<Event>,
}

/// The whole page.
pub(super) fn render(subject: &Subject, now: Timestamp) -> String {
    let none = MachineStatus::default();
    let status = subject.machine.status.as_ref().unwrap_or(&none);
    let mut page = Page::narrow();
    head(&mut page, subject, status, now);
    for (at, check) in subject.checks.iter().enumerate() {
        page.line(if at == 0 { "Checks" } else { "" }, check);
    }
    waiting(&mut page, subject, now);
    next(&mut page, subject, status, now);
    timeline(&mut page, status, now);
    answers(&mut page, &subject.machine, status, now);
    event_lines(&mut page, &subject.events, now);
    page.text()
}

fn head(page: &mut Page, subject: &Subject, status: &MachineStatus, now: Timestamp) {
    let meta = &subject.machine.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let age = meta.creation_timestamp.as_ref().map(|made| span(now.duration_since(made.0)));
    let age = age.map(|age| format!(", {age} old")).unwrap_or_default();
    let deleted = meta.deletion_timestamp.as_ref();
    let deleted = deleted
        .map(|at| format!(", being deleted for {}", span(now.duration_since(at.0))))
        .unwrap_or_default();
    page.line("Machine", &format!("{namespace}/{}{age}{deleted}", subject.machine.name()));
    let phase = status.machine_phase();
    page.line("Phase", &format!("{}{}", phase.word(), failure(status)));
    let class = &subject.machine.spec.class.name;
    let provider = subject.class.as_ref().map(MachineClass::provider);
    let provider = provider.map_or_else(|| "not found".to_owned(), |it| format!("driver {it}"));
    page.line("Class", &format!("{class} ({provider})"));
    page.line("Instance", subject.machine.provider_id().map_or("-", ProviderId::as_str));
    let state = subject.nodes.first().map(nodes::state).unwrap_or_default();
    page.line("Node", &format!("{}{state}", subject.machine.node_name().unwrap_or("-")));
    for node in subject.nodes.iter().skip(1) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        page.line("", &format!("{name}{}", nodes::state(node)));
    }
}

fn failure(status: &MachineStatus) -> String {
    let reason = status.failure_reason.as_ref();
    let told = || status.last_operation.as_ref()?.description.as_deref();
    let message = status.failure_message.as_deref().or_else(told);
    match (reason, message) {
        (Some(reason), Some(message)) => format!(": {reason}: {message}"),
        (Some(reason), None) => format!(": {reason}"),
        (None, _) => String::new(),
    }
}

fn waiting(page: &mut Page, subject: &Subject, now: Timestamp) {
    let waits = waits(subject, now);
    if waits.is_empty() {
        return page.line("Waits for", &rests(subject));
    }
    page.waits(&waits);
}

/// The reason of the machine's wait, and a hint.
pub(super) fn waits(subject: &Subject, now: Timestamp) -> Vec<String> {
    let none = MachineStatus::default();
    let status = subject.machine.status.as_ref().unwrap_or(&none);
    if let Some(unserved) = &subject.unserved {
        let before = status.waiting_for.as_ref();
        let before =
            before.map(|wait| format!("while a core served it: {}", hints::awaited(&wait.reason)));
        return std::iter::once(unserved.clone()).chain(before).collect();
    }
    let Some(WaitingFor { reason, message, since }) = &status.waiting_for else {
        let new = || {
            let new = subject.machine.status.is_none();
            new.then(|| "the core, which has written nothing about it yet".to_owned())
        };
        return unanswered(&subject.machine, now).or_else(new).into_iter().collect();
    };
    let since = since.as_ref().map(|since| span(now.duration_since(since.0)));
    let since = since.map(|since| format!(", for {since}")).unwrap_or_default();
    let mut lines = vec![format!("{}{since}", hints::awaited(reason))];
    lines.extend(told_by_class(subject, reason).or_else(|| message.clone()));
    let deleting = subject.machine.metadata.deletion_timestamp.is_some();
    let hint = hints::of_hook(&subject.machine, reason)
        .or_else(|| hints::of_machine(reason, deleting).map(str::to_owned));
    lines.extend(hint.map(|hint| format!("hint: {hint}")));
    if matches!(reason, WaitReason::NodeUnhealthy | WaitReason::NodeMissing)
        && let Some(at) = given_up_at(subject, status)
    {
        lines.push(format!("it is Failed at {}, unless the Node recovers", clock(&at, now)));
    }
    if let Some(drain) = status.drain.as_ref().filter(|drain| !drain.examples.is_empty()) {
        lines.push(format!("pods: {}", drain.examples.join(", ")));
    }
    lines
}

/// The class says of a provider without a driver for which providers there are drivers: its name may be mistyped.
fn told_by_class(subject: &Subject, reason: &WaitReason) -> Option<String> {
    let said = subject.class.as_ref()?.valid()?;
    let lacks = *reason == WaitReason::DriverUnavailable && said.reason == reason.as_str();
    lacks.then(|| said.message.clone())
}

/// The text for a machine for which nothing is to be done.
fn rests(subject: &Subject) -> String {
    match subject.nodes.first().and_then(nodes::closed) {
        Some(why) => format!("nothing; its Node takes no pod that does not tolerate it: {why}"),
        None => "nothing".to_owned(),
    }
}

/// The operation of a machine whose answer is still to come, in its status or, of a first create, in its metadata.
pub(in crate::describe) fn unanswered(machine: &Machine, now: Timestamp) -> Option<String> {
    let intent = machine.intent()?;
    if intent.outcome_unknown {
        return Some(format!("a read, which shows what {} did", intent.kind));
    }
    let since = intent.started_at.map(|at| format!(" since {}", clock(&at, now)));
    Some(format!("the driver's answer to {}{}", intent.kind, since.unwrap_or_default()))
}

/// When the health timeout of a machine ends, if it has one of its own; time in which an API server was away comes on top.
fn given_up_at(Subject { machine, .. }: &Subject, status: &MachineStatus) -> Option<Time> {
    let timeout = machine.spec.health_timeout.as_ref()?.duration()?;
    let since = status.current_status.as_ref()?.last_update_time.as_ref()?;
    let at = since.0.saturating_add(timeout).ok()?;
    (machine.spec.disable_health_timeout != Some(true)).then_some(Time(at))
}

/// When pods or volumes that still hold the Node lose it.
fn forced_at(status: &MachineStatus) -> Option<&Time> {
    use MachineStep::{DeleteInstance, DeleteNode, DetachVolumes, RemoveFinalizer};
    let drain = status.drain.as_ref()?;
    let holds = match &status.step {
        Some(DetachVolumes) => true,
        Some(DeleteInstance | DeleteNode | RemoveFinalizer) => false,
        _ => !drain.finished,
    };
    drain.deadline.as_ref().filter(|_| holds)
}

/// The next step, and its latest time.
fn next(page: &mut Page, subject: &Subject, status: &MachineStatus, now: Timestamp) {
    let mut next = Vec::new();
    if let Some(at) = next_attempt(status, now) {
        let unknown = status.operation.as_ref().is_some_and(|intent| intent.outcome_unknown);
        let what = if unknown { "a read of the outcome" } else { "another attempt" };
        next.push(format!("{what} at {}", clock(at, now)));
    }
    let drain = status.drain.as_ref().filter(|drain| !drain.finished);
    if let Some(deadline) = forced_at(status) {
        next.push(format!("force at {}", clock(deadline, now)));
    }
    let deleting = subject.machine.metadata.deletion_timestamp.is_some();
    let drained_for = drain.map(DrainProgress::purpose).filter(|_| !deleting);
    let steps = match &drained_for {
        None => status.step.as_ref().map(MachineStep::following).unwrap_or_default(),
        Some(DrainPurpose::InPlaceUpdate) => &[MachineStep::UpdateNode],
        Some(_) => &[],
    };
    let steps: Vec<&str> = steps.iter().map(MachineStep::as_str).collect();
    if !steps.is_empty() {
        next.push(steps.join(", "));
    }
    let last = match (deleting, status.step.is_some()) {
        (true, _) => "the Machine goes",
        (false, true) if drained_for == Some(DrainPurpose::Preservation) => "the Machine is kept",
        (false, true) => "Running",
        (false, false) => return,
    };
    next.push(last.to_owned());
    page.line("Next", &next.join("; then "));
}

fn next_attempt(status: &MachineStatus, now: Timestamp) -> Option<&Time> {
    let retry = status.retry.as_ref().and_then(|retry| retry.not_before.as_ref());
    retry.filter(|at| at.0 > now)
}

fn timeline(page: &mut Page, status: &MachineStatus, now: Timestamp) {
    let ended = status.history.as_ref().map(|it| it.steps.as_slice()).unwrap_or_default();
    if ended.is_empty() && status.step.is_none() {
        return;
    }
    page.chapter("Steps");
    for one in ended {
        let start = one.started_at.as_ref().unwrap_or(&one.ended_at);
        let took = span(one.ended_at.0.duration_since(start.0));
        page.entry(&format!("{}  {:<20}{took}", clock(start, now), one.step.as_str()));
    }
    if let Some(step) = &status.step {
        let since = status.step_since.clone().unwrap_or(Time(now));
        let so_far = span(now.duration_since(since.0));
        page.entry(&format!("{}  {:<20}{so_far} so far", clock(&since, now), step.as_str()));
    }
}

fn answers(page: &mut Page, machine: &Machine, status: &MachineStatus, now: Timestamp) {
    let answers = status.history.as_ref().map(|it| it.answers.as_slice()).unwrap_or_default();
    let open = machine.intent();
    if answers.is_empty() && open.is_none() {
        return;
    }
    page.chapter("Driver");
    for one in answers {
        let times = if one.times > 1 { format!(" (x{})", one.times) } else { String::new() };
        let message = one.message.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
        let kind = one.kind.as_str();
        page.entry(&format!("{}  {kind:<20}{}{message}{times}", clock(&one.at, now), one.code));
    }
    if let Some(intent) = &open {
        let at = intent.started_at.as_ref().map(|at| clock(at, now)).unwrap_or_default();
        let kind = intent.kind.as_str();
        let wait = status.waiting_for.as_ref();
        let queued = wait.is_some_and(|wait| wait.reason == WaitReason::OperationQueued);
        let outcome = match next_attempt(status, now) {
            _ if !intent.outcome_unknown && queued => "not sent yet".to_owned(),
            _ if !intent.outcome_unknown => "no answer yet".to_owned(),
            Some(read) => format!("outcome unknown: it is read at {}", clock(read, now)),
            None => "outcome unknown: it is read next".to_owned(),
        };
        page.entry(&format!("{at:<8}  {kind:<20}attempt {}, {outcome}", intent.attempt));
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;

    fn subject(machine: serde_json::Value) -> Subject {
        let machine = serde_json::from_value(machine).unwrap();
        Subject {
            machine,
            class: None,
            nodes: Vec::new(),
            unserved: None,
            checks: Vec::new(),
            events: Vec::new(),
        }
    }

    fn with_status(status: &serde_json::Value) -> Subject {
        subject(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m", "namespace": "default" },
            "spec": { "class": { "kind": "MachineClass", "name": "small" } },
            "status": status
        }))
    }

    fn noon() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    /// The page as in the golden file. Times of day, which depend on where the test runs, are minutes before noon there.
    #[track_caller]
    fn assert_golden(name: &str, subject: &Subject) {
        let page = (-9..=120).fold(render(subject, noon()), |page, minutes| {
            let at = Time(noon() - SignedDuration::from_mins(minutes));
            page.replace(&clock(&at, noon()), &format!("[noon-{minutes}m]"))
        });
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(name, page) });
    }

    fn minutes_ago(minutes: i64) -> String {
        (noon() - SignedDuration::from_mins(minutes)).to_string()
    }

    #[test]
    fn a_hook_is_named_with_the_command_that_removes_it() {
        let mut held = with_status(&json!({
            "waitingFor": { "reason": "PreDrainHook", "message": "held by backup of velero" }
        }));
        let key = format!("{}/backup", ostler_api::names::hook::PRE_DRAIN);
        held.machine.metadata.annotations = Some([(key, "velero".to_owned())].into());
        assert_golden("hook", &held);
    }

    #[test]
    fn a_provider_without_a_driver_is_shown_beside_those_with_one() {
        let status =
            json!({ "waitingFor": { "reason": "DriverUnavailable", "message": "no driver" } });
        let mut subject = with_status(&status);
        let told = "no driver for \"fake.ostlr.dev\"; drivers are connected for fake.ostler.dev";
        let class = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
            "metadata": { "name": "small" }, "provider": "fake.ostlr.dev", "providerSpec": {},
            "status": { "conditions": [{
                "type": "Valid", "status": "Unknown", "reason": "DriverUnavailable", "message": told,
                "lastTransitionTime": minutes_ago(1)
            }] }
        });
        subject.class = Some(serde_json::from_value(class).unwrap());
        assert_golden("no-driver", &subject);
    }

    #[test]
    fn nothing_is_not_said_while_a_driver_is_asked_or_no_core_is_there() {
        let record = json!({ "machineUID": "u", "operation": {
            "id": "1", "kind": "CreateMachine", "idempotencyKey": "u:c", "term": 1, "attempt": 1
        } });
        let mut asked = with_status(&json!(null));
        asked.machine.metadata.uid = Some("u".to_owned());
        let key = ostler_api::names::annotation::OPERATION.to_owned();
        asked.machine.metadata.annotations = Some([(key, record.to_string())].into());
        assert_golden("asked", &asked);
        assert_golden("nothing-written", &with_status(&json!(null)));
        let mut unserved = with_status(&json!({ "waitingFor": { "reason": "NodeNotJoined" } }));
        unserved.unserved = Some("no core serves namespace shop".to_owned());
        assert_golden("unserved", &unserved);
    }

    #[test]
    fn a_machine_that_drains_says_what_holds_it_up_and_what_comes_next() {
        assert_golden(
            "drains",
            &subject(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
                "metadata": {
                    "name": "m", "namespace": "default", "uid": "u",
                    "creationTimestamp": minutes_ago(120), "deletionTimestamp": minutes_ago(5)
                },
                "spec": { "class": { "kind": "MachineClass", "name": "small" }, "providerID": "fake:///m" },
                "status": {
                    "currentStatus": { "phase": "Terminating" },
                    "step": "DrainNode", "stepSince": minutes_ago(4),
                    "waitingFor": { "reason": "PodDisruptionBudget", "since": minutes_ago(3),
                        "message": "2 pods still to be evicted" },
                    "drain": { "podsLeft": 2, "blocked": 1, "examples": ["default/web-1"] },
                    "history": {
                        "steps": [{ "step": "CreateInstance", "startedAt": minutes_ago(120), "endedAt": minutes_ago(118) }],
                        "answers": [{ "kind": "CreateMachine", "code": "OK", "at": minutes_ago(118), "times": 1 }]
                    }
                }
            })),
        );
    }

    #[test]
    fn a_machine_that_was_given_up_waits_for_who_replaces_it() {
        assert_golden(
            "given-up",
            &with_status(&json!({
                "currentStatus": { "phase": "Failed" }, "failureReason": "JoinTimeout",
                "waitingFor": { "reason": "Failed", "message": "JoinTimeout", "since": minutes_ago(2) }
            })),
        );
    }

    #[test]
    fn a_machine_whose_node_is_drained_for_an_update_says_that_it_stays() {
        assert_golden(
            "drained-for-an-update",
            &with_status(&json!({
                "currentStatus": { "phase": "Running" },
                "step": "DrainNode", "stepSince": minutes_ago(4),
                "waitingFor": { "reason": "PodsTerminating", "since": minutes_ago(3) },
                "drain": { "purpose": "InPlaceUpdate", "podsLeft": 2 }
            })),
        );
        assert_golden(
            "update-failed",
            &with_status(&json!({
                "currentStatus": { "phase": "InPlaceUpdateFailed" },
                "waitingFor": { "reason": "InPlaceUpdateFailed", "message": "disk full" }
            })),
        );
    }

    #[test]
    fn a_time_of_another_day_has_its_date() {
        let days = |days: i64| clock(&Time(noon() + SignedDuration::from_hours(24 * days)), noon());
        assert_eq!(days(0).len(), "12:00:00".len());
        assert!(
            days(-3).starts_with("2025-12-2") && days(1).starts_with("2026-01-0"),
            "{}",
            days(1)
        );
    }

    #[test]
    fn a_machine_whose_node_is_unhealthy_says_what_to_look_at_and_when_it_is_given_up() {
        let class = json!({ "kind": "MachineClass", "name": "small" });
        for (name, spec) in [
            ("unhealthy", json!({ "class": class, "healthTimeout": "10m" })),
            (
                "unhealthy-for-ever",
                json!({ "class": class, "healthTimeout": "10m", "disableHealthTimeout": true }),
            ),
        ] {
            let status = json!({
                "currentStatus": { "phase": "Unknown", "lastUpdateTime": minutes_ago(4) },
                "waitingFor": { "reason": "NodeUnhealthy", "message": "DiskPressure is True (x)" }
            });
            let mut unhealthy = with_status(&status);
            unhealthy.machine.spec = serde_json::from_value(spec).unwrap();
            assert_golden(name, &unhealthy);
        }
    }

    #[test]
    fn what_a_driver_and_a_node_said_begins_no_line_and_does_nothing_to_the_terminal() {
        use crate::terminal::tests::{HOSTILE, assert_harmless};
        let mut subject = subject(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m", "namespace": "default" },
            "spec": { "class": { "kind": "MachineClass", "name": HOSTILE }, "providerID": HOSTILE },
            "status": {
                "failureReason": HOSTILE, "failureMessage": HOSTILE,
                "waitingFor": { "reason": HOSTILE, "message": HOSTILE },
                "drain": { "podsLeft": 1, "examples": [HOSTILE] },
                "history": { "answers": [
                    { "kind": "CreateMachine", "code": "INTERNAL", "at": minutes_ago(1), "times": 1, "message": HOSTILE }
                ] }
            }
        }));
        let event = json!({ "metadata": { "name": "e" }, "reason": HOSTILE, "note": HOSTILE });
        subject.events.push(serde_json::from_value(event).unwrap());
        let page = render(&subject, noon());
        assert_harmless(&page);
        assert!(page.matches("PWNED-TITLE").count() > 6, "{page}");
    }

    #[test]
    fn an_operation_whose_outcome_is_unknown_says_so_and_when_it_is_read() {
        let at = noon() + SignedDuration::from_mins(1);
        for (name, unknown, not_before) in [
            ("no-answer", false, None),
            ("outcome-unknown", true, None),
            ("outcome-read-later", true, Some(at)),
        ] {
            let retry = not_before.map(|at| {
                json!({ "kind": "GetMachineStatus", "code": "UNAVAILABLE", "reason": "DriverRetry",
                    "notBefore": at })
            });
            let status = json!({
                "step": "CreateInstance", "retry": retry,
                "operation": { "id": "o", "kind": "CreateMachine", "idempotencyKey": "k",
                    "attempt": 1, "outcomeUnknown": unknown }
            });
            assert_golden(name, &with_status(&status));
        }
    }

    #[test]
    fn an_operation_that_waits_in_the_core_was_not_sent_yet() {
        assert_golden(
            "not-sent",
            &with_status(&json!({
                "step": "CreateInstance",
                "waitingFor": { "reason": "OperationQueued", "message": "it is not its turn" },
                "operation": { "id": "o", "kind": "CreateMachine", "idempotencyKey": "k", "attempt": 1 }
            })),
        );
    }

    #[test]
    fn a_deletion_is_not_told_to_delete_the_machine() {
        let mut absent = with_status(&json!({ "waitingFor": { "reason": "AbsenceUnconfirmed" } }));
        assert_golden("absent", &absent);
        absent.machine.metadata.deletion_timestamp = Some(Time(noon()));
        assert_golden("absent-deleted", &absent);
    }
}
