//! The row of a pod: how many containers are ready, and what the pod is doing.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, or};
use crate::kinds::access::{flag, is_true, items, number, text};

/// The combined state of a pod's containers.
struct Seen {
    reason: String,
    ready: usize,
    restarts: i64,
    last_restart: String,
}

/// The cells of a pod, and the conditions that mark its row as done.
pub(super) fn cells(pod: &Value, now: Timestamp) -> (Vec<Value>, Option<Value>) {
    let phase = text(pod, "/status/phase");
    let seen = observe(pod);
    let total = items(pod, "/spec/containers").len();
    let restarts = if seen.restarts > 0 && !seen.last_restart.is_empty() {
        let ago = age::since(&seen.last_restart, now);
        format!("{} ({} ago)", seen.restarts, ago.as_str().unwrap_or_default())
    } else {
        seen.restarts.to_string()
    };
    let cells = vec![
        json!(text(pod, "/metadata/name")),
        json!(format!("{}/{total}", seen.ready)),
        json!(seen.reason),
        json!(restarts),
        age::of(pod, now),
        or(text(pod, "/status/podIP"), "<none>"),
        or(text(pod, "/spec/nodeName"), "<none>"),
        or(text(pod, "/status/nominatedNodeName"), "<none>"),
        json!(gates(pod)),
    ];
    (cells, completed(phase))
}

fn completed(phase: &str) -> Option<Value> {
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([
        { "type": "Completed", "status": "True", "reason": phase, "message": message },
    ]))
}

fn gates(pod: &Value) -> String {
    let gates = items(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let passed = gates.iter().filter(|gate| is_true(pod, text(gate, "/conditionType"))).count();
    format!("{passed}/{}", gates.len())
}

fn observe(pod: &Value) -> Seen {
    let phase = text(pod, "/status/phase");
    let given = text(pod, "/status/reason");
    let mut seen = Seen {
        reason: if given.is_empty() { phase } else { given }.to_owned(),
        ready: 0,
        restarts: 0,
        last_restart: String::new(),
    };
    let waiting = initialize(pod, &mut seen);
    if !waiting {
        containers(pod, &mut seen);
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        if given == "NodeLost" {
            "Unknown".clone_into(&mut seen.reason);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut seen.reason);
        }
    }
    seen
}

/// Looks at the init containers; true if one of them is still to finish.
fn initialize(pod: &Value, seen: &mut Seen) -> bool {
    let statuses = items(pod, "/status/initContainerStatuses");
    let total = items(pod, "/spec/initContainers").len();
    for (position, status) in statuses.iter().enumerate() {
        count_restarts(status, seen);
        let state = status.get("state").unwrap_or(&Value::Null);
        let waiting = text(state, "/waiting/reason");
        match state.get("terminated") {
            Some(end) if number(end, "/exitCode").unwrap_or(0) == 0 => continue,
            Some(end) => seen.reason = format!("Init:{}", ending(end)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => {
                seen.reason = format!("Init:{waiting}");
            }
            None => seen.reason = format!("Init:{position}/{total}"),
        }
        return true;
    }
    false
}

fn containers(pod: &Value, seen: &mut Seen) {
    let mut running = false;
    for status in items(pod, "/status/containerStatuses").iter().rev() {
        count_restarts(status, seen);
        let state = status.get("state").unwrap_or(&Value::Null);
        let waiting = text(state, "/waiting/reason");
        if !waiting.is_empty() {
            waiting.clone_into(&mut seen.reason);
        } else if let Some(end) = state.get("terminated") {
            seen.reason = ending(end);
        } else if flag(status, "/ready") && state.get("running").is_some() {
            running = true;
            seen.ready += 1;
        }
    }
    if seen.reason == "Completed" && running {
        let word = if is_true(pod, "Ready") { "Running" } else { "NotReady" };
        word.clone_into(&mut seen.reason);
    }
}

fn count_restarts(status: &Value, seen: &mut Seen) {
    seen.restarts += number(status, "/restartCount").unwrap_or(0);
    let finished = text(status, "/lastState/terminated/finishedAt");
    if finished > seen.last_restart.as_str() {
        finished.clone_into(&mut seen.last_restart);
    }
}

/// Why a container ended.
fn ending(terminated: &Value) -> String {
    let reason = text(terminated, "/reason");
    if !reason.is_empty() {
        return reason.to_owned();
    }
    match number(terminated, "/signal").unwrap_or(0) {
        0 => format!("ExitCode:{}", number(terminated, "/exitCode").unwrap_or(0)),
        signal => format!("Signal:{signal}"),
    }
}
