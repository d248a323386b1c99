//! The rows of nodes, events, services and certificate signing requests.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, or};
use crate::kinds::{
    access::{entries, items, number, text},
    certificate, event, node,
};

pub(super) fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let info = |name: &str| text(object, &format!("/status/nodeInfo/{name}"));
    let kernel = match (info("kernelVersion"), info("architecture")) {
        ("", _) => "<unknown>".to_owned(),
        (kernel, "") => kernel.to_owned(),
        (kernel, architecture) => format!("{kernel} ({architecture})"),
    };
    vec![
        json!(text(object, "/metadata/name")),
        json!(node::summary(object)),
        json!(roles(object)),
        age::of(object, now),
        json!(info("kubeletVersion")),
        or(address(object, "InternalIP"), "<none>"),
        or(address(object, "ExternalIP"), "<none>"),
        or(info("osImage"), "<unknown>"),
        json!(kernel),
        or(info("containerRuntimeVersion"), "<unknown>"),
    ]
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let found = items(node, "/status/addresses").iter().find(|one| text(one, "/type") == kind);
    found.map(|one| text(one, "/address")).unwrap_or_default()
}

fn roles(node: &Value) -> String {
    let role = |(name, value): (&String, &Value)| {
        if name == "kubernetes.io/role" {
            return value.as_str().map(str::to_owned);
        }
        name.strip_prefix("node-role.kubernetes.io/").map(str::to_owned)
    };
    let labels = entries(node, "/metadata/labels");
    let mut roles: Vec<String> = labels.filter_map(role).filter(|one| !one.is_empty()).collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

/// A core event. The other face is turned into it before it is shown.
pub(super) fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let either = |a: &str, b: &str| {
        let first = text(object, a);
        if first.is_empty() { text(object, b).to_owned() } else { first.to_owned() }
    };
    let first = either("/firstTimestamp", "/eventTime");
    let last = match text(object, "/series/lastObservedTime") {
        "" => match text(object, "/lastTimestamp") {
            "" => first.clone(),
            last => last.to_owned(),
        },
        last => last.to_owned(),
    };
    let count = number(object, "/series/count").or_else(|| number(object, "/count")).unwrap_or(1);
    let about = text(object, "/involvedObject/kind").to_lowercase();
    let about = match text(object, "/involvedObject/name") {
        "" => about,
        name => format!("{about}/{name}"),
    };
    let host = either("/source/host", "/reportingInstance");
    let source = [event::source(object), host];
    let source: Vec<&str> =
        source.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    vec![
        age::since(&last, now),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(about),
        json!(text(object, "/involvedObject/fieldPath")),
        json!(source.join(", ")),
        json!(text(object, "/message").trim()),
        age::since(&first, now),
        json!(count),
        json!(text(object, "/metadata/name")),
    ]
}

pub(super) fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let port = |port: &Value| {
        let number = number(port, "/port").unwrap_or(0);
        let protocol = text(port, "/protocol");
        match port.get("nodePort").and_then(Value::as_i64) {
            Some(node) => format!("{number}:{node}/{protocol}"),
            None => format!("{number}/{protocol}"),
        }
    };
    let ports: Vec<String> = items(object, "/spec/ports").iter().map(port).collect();
    let external: Vec<&str> =
        items(object, "/spec/externalIPs").iter().filter_map(Value::as_str).collect();
    vec![
        json!(text(object, "/metadata/name")),
        json!(text(object, "/spec/type")),
        or(text(object, "/spec/clusterIP"), "<none>"),
        or(&external.join(","), "<none>"),
        or(&ports.join(","), "<none>"),
        age::of(object, now),
        or(&labels(object, "/spec/selector"), "<none>"),
    ]
}

pub(super) fn signing_request(object: &Value, now: Timestamp) -> Vec<Value> {
    let duration = number(object, "/spec/expirationSeconds").map(age::words).unwrap_or_default();
    vec![
        json!(text(object, "/metadata/name")),
        age::of(object, now),
        or(text(object, "/spec/signerName"), "<none>"),
        json!(text(object, "/spec/username")),
        or(&duration, "<none>"),
        json!(certificate::summary(object)),
    ]
}

/// A label map as `a=b,c=d`.
pub(super) fn labels(object: &Value, pointer: &str) -> String {
    let pair =
        |(name, value): (&String, &Value)| format!("{name}={}", value.as_str().unwrap_or_default());
    entries(object, pointer).map(pair).collect::<Vec<_>>().join(",")
}
