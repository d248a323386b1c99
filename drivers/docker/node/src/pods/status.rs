//! The status of a pod for the API. Pure.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::decide::{is_still, succeeded};
use super::spec::{ContainerSpec, PodSpec};
use super::state::{ContainerState, Ended, Exit, Over, Phase, PodState};
use crate::machine::PODS;

/// Longest message of a container that could not be started.
const MESSAGE: usize = 512;

/// The status of a pod, for a patch.
pub(super) fn status(
    spec: &PodSpec,
    state: &PodState,
    address: Option<IpAddr>,
    now: Instant,
) -> Value {
    let phase = phase(spec, state);
    let refused = state.over.and_then(refusal);
    let containers: Vec<_> = spec
        .containers
        .iter()
        .zip(&state.containers)
        // A refused pod has no containers.
        .filter(|_| refused.is_none())
        .map(|(container, known)| container_status(spec, container, known, now))
        .collect();
    let mut status = json!({
        "phase": phase, "startTime": Time(state.started),
        "conditions": conditions(state, phase), "containerStatuses": containers,
    });
    let Some(object) = status.as_object_mut() else { return status };
    if let Some((reason, message)) = refused {
        object.insert("reason".to_owned(), json!(reason));
        object.insert("message".to_owned(), json!(message));
    }
    if let Some(ip) = address {
        object.insert("hostIP".to_owned(), json!(ip));
        object.insert("podIP".to_owned(), json!(ip));
        // The list is merged by address: without the directive an older one would stay.
        object.insert("podIPs".to_owned(), json!([{"$patch": "replace"}, {"ip": ip}]));
    }
    status
}

fn phase(spec: &PodSpec, state: &PodState) -> &'static str {
    let started = |container: &ContainerState| !matches!(container.phase, Phase::Waiting);
    // One that was told to end and did has ended for good; if only the machine goes, it comes back.
    let ended = state.over.is_some() || (spec.deleted.is_some() && is_still(state));
    if ended {
        if succeeded(state) { "Succeeded" } else { "Failed" }
    } else if state.containers.iter().any(started) {
        "Running"
    } else {
        "Pending"
    }
}

fn refusal(over: Over) -> Option<(&'static str, String)> {
    match over {
        Over::Ran | Over::Before => None,
        Over::Unsupported(what) => Some(("UnsupportedPod", what.to_owned())),
        Over::NoRoom => Some(("OutOfpods", format!("this node runs {PODS} pods and no more"))),
    }
}

fn conditions(state: &PodState, phase: &str) -> Value {
    let (ready, since) = state.ready;
    let readiness = |kind: &str| {
        let mut condition = json!({
            "type": kind, "status": if ready { "True" } else { "False" },
            "lastTransitionTime": Time(since),
        });
        let reason = match phase {
            "Succeeded" => "PodCompleted",
            "Failed" => "PodFailed",
            _ => "ContainersNotReady",
        };
        if let (false, Some(condition)) = (ready, condition.as_object_mut()) {
            condition.insert("reason".to_owned(), json!(reason));
        }
        condition
    };
    let initial = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": Time(state.started)});
    json!([
        initial("PodScheduled"),
        initial("Initialized"),
        readiness("ContainersReady"),
        readiness("Ready"),
    ])
}

fn container_status(
    spec: &PodSpec,
    container: &ContainerSpec,
    known: &ContainerState,
    now: Instant,
) -> Value {
    let id = |restarts| format!("ostler-process://{}/{}/{restarts}", spec.uid, container.name);
    let (this, before) = (id(known.restarts), id(known.restarts.saturating_sub(1)));
    let waits_again =
        spec.deleted.is_none() && known.restart_at(spec.restart).is_some_and(|due| due > now);
    let running = known.is_running();
    let last = known.last.as_ref().map(|ended| (ended, &before));
    let (current, last) = match &known.phase {
        Phase::Waiting => (waiting("ContainerCreating"), last),
        Phase::Running { at, .. } => (json!({"running": {"startedAt": Time(*at)}}), last),
        Phase::Ended(ended) if waits_again => (waiting("CrashLoopBackOff"), Some((ended, &this))),
        Phase::Ended(ended) => (json!({"terminated": terminated(ended, &this)}), last),
    };
    let last = match last {
        Some((ended, id)) => json!({"terminated": terminated(ended, id)}),
        None => json!({}),
    };
    json!({
        "name": container.name, "image": container.image, "imageID": "", "containerID": this,
        "ready": running, "started": running, "restartCount": known.restarts,
        "state": current, "lastState": last,
    })
}

fn waiting(reason: &str) -> Value {
    json!({"waiting": {"reason": reason}})
}

fn terminated(ended: &Ended, id: &str) -> Value {
    let (reason, signal, message) = match &ended.exit {
        Exit::Code(0) => ("Completed", None, None),
        Exit::Code(_) => ("Error", None, None),
        Exit::Signal(signal) => ("Error", Some(*signal), None),
        Exit::NotStarted(why) => ("StartError", None, Some(short(why))),
        Exit::Lost => {
            let why = "the machine was restarted while it ran";
            ("ContainerStatusUnknown", None, Some(why.to_owned()))
        }
    };
    let mut object = json!({
        "exitCode": ended.exit.code(), "reason": reason, "containerID": id,
        "startedAt": Time(ended.started), "finishedAt": Time(ended.at),
    });
    if let Some(object) = object.as_object_mut() {
        object.extend(signal.map(|signal| ("signal".to_owned(), json!(signal))));
        object.extend(message.map(|message| ("message".to_owned(), json!(message))));
    }
    object
}

fn short(text: &str) -> String {
    text.chars().take(MESSAGE).collect()
}

/// The patch for the status of the pod. The patch names the UID, so that the API refuses it for a successor of the same
/// name.
pub(super) fn patch(spec: &PodSpec, status: &Value) -> Value {
    json!({"metadata": {"uid": spec.uid}, "status": status})
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::spec::Restart;
    use super::super::state::tests::{after, now, spec};
    use super::*;

    fn said(spec: &PodSpec, state: &PodState, now: Instant) -> Value {
        status(spec, state, Some([10, 0, 0, 1].into()), now)
    }

    fn ready(status: &Value) -> &Value {
        let conditions = status["conditions"].as_array().unwrap();
        conditions.iter().find(|it| it["type"] == "Ready").unwrap()
    }

    #[test]
    fn a_pod_is_pending_then_running_then_over() {
        let (spec, start) = (spec(Restart::Never, &["c"]), now());
        let mut state = PodState::new(&spec, true, start);
        let pending = said(&spec, &state, start.since);
        assert_eq!(pending["phase"], "Pending");
        assert_eq!(
            pending["containerStatuses"][0]["state"]["waiting"]["reason"],
            "ContainerCreating"
        );

        state.started(0, Some(7), start);
        state.note_readiness(start.at);
        let running = said(&spec, &state, start.since);
        assert_eq!(running["phase"], "Running");
        assert_eq!(running["podIP"], "10.0.0.1");
        assert_eq!(ready(&running)["status"], "True");
        assert_eq!(ready(&running)["lastTransitionTime"], json!(Time(start.at)));
        assert_eq!(running["containerStatuses"][0]["ready"], true);

        for (exit, phase, reason, code) in [
            (Exit::Code(0), "Succeeded", "Completed", 0),
            (Exit::Code(3), "Failed", "Error", 3),
            (Exit::Signal(15), "Failed", "Error", 143),
            (Exit::NotStarted("no such file".to_owned()), "Failed", "StartError", 128),
            (Exit::Lost, "Failed", "ContainerStatusUnknown", 137),
        ] {
            let mut state = state.clone();
            state.ended(0, exit, after(start, 5));
            state.over = Some(Over::Ran);
            state.note_readiness(after(start, 5).at);
            let ended = said(&spec, &state, after(start, 5).since);
            assert_eq!(ended["phase"], phase);
            assert_eq!(ready(&ended)["status"], "False");
            let terminated = &ended["containerStatuses"][0]["state"]["terminated"];
            assert_eq!(
                (&terminated["reason"], &terminated["exitCode"]),
                (&json!(reason), &json!(code))
            );
        }
    }

    #[test]
    fn one_that_waits_for_its_restart_says_how_it_ended() {
        let (spec, start) = (spec(Restart::Always, &["c"]), now());
        let mut state = PodState::new(&spec, true, start);
        for code in [1, 2] {
            state.started(0, Some(7), start);
            state.ended(0, Exit::Code(code), start);
        }
        let status = said(&spec, &state, start.since);
        assert_eq!(status["phase"], "Running");
        let container = &status["containerStatuses"][0];
        assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
        assert_eq!(container["lastState"]["terminated"]["exitCode"], 2);
        assert_eq!(container["restartCount"], 1);
    }

    #[test]
    fn a_deleted_pod_that_ended_is_over_and_one_of_a_machine_that_goes_is_not() {
        let mut spec = spec(Restart::Always, &["c", "pause"]);
        let start = now();
        let mut state = PodState::new(&spec, true, start);
        state.started(0, Some(7), start);
        state.started(1, None, start);
        state.ended(0, Exit::Signal(15), start);
        state.ended(1, Exit::Code(0), start);
        let going = said(&spec, &state, start.since);
        assert_eq!(going["phase"], "Running");
        assert_eq!(going["containerStatuses"][0]["state"]["terminated"]["signal"], 15);
        spec.deleted = Some(Duration::from_secs(30));
        assert_eq!(said(&spec, &state, start.since)["phase"], "Failed");
    }

    #[test]
    fn a_refused_pod_says_why() {
        let (spec, start) = (spec(Restart::Always, &["c"]), now());
        let mut state = PodState::new(&spec, true, start);
        for (over, reason) in
            [(Over::NoRoom, "OutOfpods"), (Over::Unsupported("volumes"), "UnsupportedPod")]
        {
            state.over = Some(over);
            let status = said(&spec, &state, start.since);
            assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!(reason)));
            assert_eq!(status["containerStatuses"], json!([]));
        }
    }

    #[test]
    fn the_patch_is_for_this_pod_and_no_successor() {
        let spec = spec(Restart::Always, &[]);
        assert_eq!(patch(&spec, &json!({}))["metadata"]["uid"], "u");
    }
}
