//! Machines as rows with their timelines. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::Machine;
use ostler_api::history::{DriverAnswer, EndedStep};
use ostler_api::machine::{MachineStatus, OperationVerb};
use ostler_lifecycle::owner::controller;
use serde::Serialize;

use crate::status::phase;
use crate::{terminal, waits};

/// The codes of answers that are no failure.
const OK: &str = "OK";
const NOT_FOUND: &str = "NotFound";

/// A machine. Times are milliseconds since 1970; the API has whole seconds.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) namespace: String,
    pub(super) name: String,
    phase: String,
    class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// Nothing is done for it, and nothing waited for.
    rests: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<i64>,
    /// When its Node was healthy for the first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    joined: Option<i64>,
    /// When its deletion began.
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<i64>,
    /// Steps that ended, and the current step, which has no end.
    steps: Vec<Span>,
    /// What it waits for; the API keeps no earlier waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<Span>,
    /// What its driver was sent and has not answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<Span>,
    answers: Vec<Answer>,
}

/// A time in which something went on.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
struct Span {
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    said: Option<String>,
}

/// What a driver answered.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Answer {
    what: String,
    code: String,
    /// Not so where a look found nothing: each creation begins with one.
    failed: bool,
    at: i64,
    times: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    said: Option<String>,
}

fn millis(at: &Time) -> i64 {
    at.0.as_millisecond()
}

/// What drivers and users wrote, with marks that would change how it is read as escapes.
fn said(text: Option<&str>) -> Option<String> {
    text.map(terminal::line)
}

impl Row {
    pub(super) fn of(machine: &Machine) -> Self {
        let none = MachineStatus::default();
        let status = machine.status.as_ref().unwrap_or(&none);
        let meta = &machine.metadata;
        let ended = status.history.iter().flat_map(|it| &it.steps);
        let now = status.step.as_ref().map(|step| Span {
            what: step.to_string(),
            from: status.step_since.as_ref().map(millis),
            ..Span::default()
        });
        let wait = waits::wait(machine).map(|it| Span {
            what: it.reason.clone(),
            from: it.since.map(Timestamp::as_millisecond),
            said: said(it.message),
            ..Span::default()
        });
        let sent = machine.intent().map(|it| Span {
            what: it.kind.to_string(),
            from: it.started_at.as_ref().map(millis),
            said: it.outcome_unknown.then(|| "its outcome is unknown: a read decides".to_owned()),
            ..Span::default()
        });
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: machine.name().to_owned(),
            phase: phase(machine),
            class: machine.spec.class.name.clone(),
            owner: controller(meta).map(|it| format!("{}/{}", it.kind.to_lowercase(), it.name)),
            node: machine.node_name().map(str::to_owned),
            rests: waits::rests(machine),
            failure: failure(status),
            created: meta.creation_timestamp.as_ref().map(millis),
            joined: status.joined_at.as_ref().map(millis),
            deleted: meta.deletion_timestamp.as_ref().map(millis),
            steps: ended.map(span).chain(now).collect(),
            wait,
            sent,
            answers: status.history.iter().flat_map(|it| &it.answers).map(answer).collect(),
        }
    }
}

fn failure(status: &MachineStatus) -> Option<String> {
    let reason = status.failure_reason.as_ref()?;
    let message = status.failure_message.as_deref().map(|it| format!(": {it}"));
    Some(terminal::line(&format!("{reason}{}", message.unwrap_or_default())))
}

fn span(step: &EndedStep) -> Span {
    let from = step.started_at.as_ref().unwrap_or(&step.ended_at);
    let (from, to) = (Some(millis(from)), Some(millis(&step.ended_at)));
    Span { what: step.step.to_string(), from, to, said: None }
}

fn answer(answer: &DriverAnswer) -> Answer {
    let looked = answer.kind == OperationVerb::GetMachineStatus && answer.code == NOT_FOUND;
    Answer {
        what: answer.kind.to_string(),
        failed: answer.code != OK && !looked,
        code: terminal::line(&answer.code),
        at: millis(&answer.at),
        times: answer.times,
        said: said(answer.message.as_deref()),
    }
}

/// The rows of the last snapshot: what did not change is not made anew.
#[derive(Debug, Default)]
pub(super) struct Rows(BTreeMap<String, (Option<String>, Arc<Row>)>);

impl Rows {
    /// The rows of these machines, by `namespace/name`.
    pub(super) fn of<'a>(
        &mut self,
        machines: impl Iterator<Item = &'a Machine>,
    ) -> BTreeMap<String, Arc<Row>> {
        let mut before = std::mem::take(&mut self.0);
        for machine in machines {
            let meta = &machine.metadata;
            let key =
                format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), machine.name());
            let same = before.remove(&key).filter(|(version, _)| *version == meta.resource_version);
            let kept =
                same.unwrap_or_else(|| (meta.resource_version.clone(), Arc::new(Row::of(machine))));
            self.0.insert(key, kept);
        }
        self.0.iter().map(|(key, (_, row))| (key.clone(), Arc::clone(row))).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::terminal::tests::{HOSTILE, assert_harmless};

    /// A second after noon of 2026-01-01.
    const NOON: i64 = 1_767_268_800_000;

    fn machine(meta: &Value, status: &Value) -> Machine {
        let mut machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m", "namespace": "shop", "creationTimestamp": "2026-01-01T12:00:00Z" },
            "spec": { "class": { "kind": "MachineClass", "name": "small" } }, "status": status
        });
        machine["metadata"].as_object_mut().unwrap().extend(meta.as_object().unwrap().clone());
        serde_json::from_value(machine).unwrap()
    }

    fn row(status: &Value) -> Value {
        serde_json::to_value(Row::of(&machine(&json!({}), status))).unwrap()
    }

    #[test]
    fn a_timeline_is_what_the_status_says_and_nothing_else() {
        let history = json!({
            "steps": [
                { "step": "CreateInstance", "startedAt": "2026-01-01T12:00:01Z", "endedAt": "2026-01-01T12:00:09Z" },
                // Whose beginning is not known.
                { "step": "InitializeInstance", "endedAt": "2026-01-01T12:00:10Z" }
            ],
            "answers": [
                { "kind": "CreateMachine", "code": "Unavailable", "message": "no", "at": "2026-01-01T12:00:05Z", "times": 3 },
                { "kind": "CreateMachine", "code": "OK", "at": "2026-01-01T12:00:09Z", "times": 1 },
                { "kind": "GetMachineStatus", "code": "NotFound", "at": "2026-01-01T12:00:09Z", "times": 1 }
            ]
        });
        let operation = json!({
            "id": "1", "kind": "GetMachineStatus", "idempotencyKey": "k", "term": 1, "attempt": 1,
            "startedAt": "2026-01-01T12:00:11Z"
        });
        for (status, path, expected) in [
            (
                json!({ "history": history }),
                "/steps/0",
                json!({ "what": "CreateInstance", "from": NOON + 1_000, "to": NOON + 9_000 }),
            ),
            (
                json!({ "history": history }),
                "/steps/1",
                json!({ "what": "InitializeInstance", "from": NOON + 10_000, "to": NOON + 10_000 }),
            ),
            (
                json!({ "history": history, "step": "JoinNode", "stepSince": "2026-01-01T12:00:10Z" }),
                "/steps/2",
                json!({ "what": "JoinNode", "from": NOON + 10_000 }),
            ),
            (
                json!({ "history": history }),
                "/answers/0",
                json!({ "what": "CreateMachine", "code": "Unavailable", "failed": true, "at": NOON + 5_000, "times": 3, "said": "no" }),
            ),
            (json!({ "history": history }), "/answers/1/failed", json!(false)),
            (json!({ "history": history }), "/answers/2/failed", json!(false)),
            (
                json!({ "waitingFor": { "reason": "NodeNotJoined", "since": "2026-01-01T12:00:12Z", "message": "none" } }),
                "/wait",
                json!({ "what": "NodeNotJoined", "from": NOON + 12_000, "said": "none" }),
            ),
            (
                json!({ "operation": operation }),
                "/sent",
                json!({ "what": "GetMachineStatus", "from": NOON + 11_000 }),
            ),
            (
                json!({ "operation": operation }),
                "/wait",
                json!({ "what": "the driver: GetMachineStatus", "from": NOON + 11_000 }),
            ),
            (json!({ "joinedAt": "2026-01-01T12:00:20Z" }), "/joined", json!(NOON + 20_000)),
            (json!(null), "/wait", json!({ "what": "the core", "from": NOON })),
            (json!(null), "/steps", json!([])),
            (
                json!({ "failureReason": "CreateError", "failureMessage": "no" }),
                "/failure",
                json!("CreateError: no"),
            ),
        ] {
            assert_eq!(row(&status).pointer(path), Some(&expected), "{path}: {status}");
        }
    }

    #[test]
    fn what_a_driver_wrote_cannot_change_how_the_page_is_read() {
        let answer = json!({ "kind": "CreateMachine", "code": HOSTILE, "message": HOSTILE, "at": "2026-01-01T12:00:05Z", "times": 1 });
        let row = row(&json!({
            "waitingFor": { "reason": "ActionNeeded", "message": HOSTILE },
            "failureReason": "CreateError", "failureMessage": HOSTILE, "history": { "answers": [answer] }
        }));
        for path in ["/wait/said", "/failure", "/answers/0/said", "/answers/0/code"] {
            assert_harmless(row.pointer(path).and_then(Value::as_str).unwrap());
        }
    }

    #[test]
    fn only_rows_of_machines_that_changed_are_made_anew() {
        let one = |name: &str, version: &str, phase: &str| {
            let status = json!({ "currentStatus": { "phase": phase } });
            machine(&json!({ "name": name, "resourceVersion": version }), &status)
        };
        let mut rows = Rows::default();
        let first =
            rows.of([one("a", "1", "Pending"), one("b", "2", "Pending"), one("c", "3", "Pending")]
                .iter());
        let second = rows.of([one("a", "1", "Pending"), one("b", "4", "Running")].iter());
        assert!(Arc::ptr_eq(&first["shop/a"], &second["shop/a"]));
        assert_eq!((second.len(), second["shop/b"].phase.as_str()), (2, "Running"));
    }
}
