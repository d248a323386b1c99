//! Defaults of a pod.

use serde_json::{Map, Value, json};

use crate::kinds::access::{flag, items, items_mut, number, object_in, preset, set, text};

/// What follows from other fields of the spec of a pod or of a template.
pub(in crate::kinds) fn complete(spec: &mut Value) {
    for list in ["/containers", "/initContainers", "/ephemeralContainers"] {
        for container in items_mut(spec, list) {
            let is_latest = tag(text(container, "/image")) == "latest";
            preset(container, "imagePullPolicy", if is_latest { "Always" } else { "IfNotPresent" });
        }
    }
    for volume in items_mut(spec, "/volumes") {
        let bare = volume.as_object().is_some_and(|fields| fields.len() == 1);
        if bare && volume.get("name").is_some() {
            set(volume, "emptyDir", json!({}));
        }
    }
}

/// Defaults of a pod's spec that templates do without.
pub(super) fn bare_pod_spec(spec: &mut Value) {
    if number(spec, "/terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        set(spec, "terminationGracePeriodSeconds", 1);
    }
    complete(spec);
    preset(spec, "enableServiceLinks", true);
    requests_from_limits(spec);
    if flag(spec, "/hostNetwork") {
        for list in ["/containers", "/initContainers"] {
            items_mut(spec, list).for_each(bind_host_ports);
        }
    }
}

fn bind_host_ports(container: &mut Value) {
    for port in items_mut(container, "/ports") {
        if let Some(number) = port.get("containerPort").cloned() {
            preset(port, "hostPort", number);
        }
    }
}

/// The tag of an image: `latest` if it names neither tag nor digest.
fn tag(image: &str) -> &str {
    if image.contains('@') {
        return "";
    }
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split_once(':').map_or("latest", |(_, tag)| tag)
}

/// A limit without a request is a request too.
fn requests_from_limits(spec: &mut Value) {
    for list in ["/containers", "/initContainers"] {
        for container in items_mut(spec, list) {
            let Some(resources) = container.get_mut("resources") else { continue };
            let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else {
                continue;
            };
            fill_requests(resources, &limits);
        }
    }
}

fn fill_requests(resources: &mut Value, limits: &Map<String, Value>) {
    if let Some(requests) = object_in(resources, "requests") {
        for (name, limit) in limits {
            preset(requests, name, limit.clone());
        }
    }
}

/// How long a pod stays on a node that is not ready or unreachable, in seconds.
const OUTAGE: i64 = 300;

/// Short outages of a node are tolerated, unless the pod says how it tolerates them.
pub(super) fn tolerations(spec: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |one: &Value| matches!(text(one, "/key"), "") || text(one, "/key") == key;
        let acts = |one: &Value| matches!(text(one, "/effect"), "" | "NoExecute");
        if items(spec, "/tolerations").iter().any(|one| covers(one) && acts(one)) {
            continue;
        }
        preset(spec, "tolerations", json!([]));
        if let Some(list) = spec.get_mut("tolerations").and_then(Value::as_array_mut) {
            list.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": OUTAGE,
            }));
        }
    }
}
