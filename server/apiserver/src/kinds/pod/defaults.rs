//! What a pod gets without asking.

use serde_json::{Map, Value, json};

use crate::kinds::access::{flag, items, items_mut, number, object_in, preset, set, text};

/// Defaults of the pod template of a workload.
pub(in crate::kinds) fn default_template(template: &mut Value) {
    preset(template, "metadata", json!({}));
    if let Some(spec) = template.get_mut("spec") {
        pod_spec(spec);
    }
}

/// Defaults of the spec of a pod or of a template.
fn pod_spec(spec: &mut Value) {
    preset(spec, "restartPolicy", "Always");
    preset(spec, "terminationGracePeriodSeconds", 30);
    preset(spec, "dnsPolicy", "ClusterFirst");
    preset(spec, "securityContext", json!({}));
    preset(spec, "schedulerName", "default-scheduler");
    for list in ["/containers", "/initContainers", "/ephemeralContainers"] {
        items_mut(spec, list).for_each(default_container);
    }
    items_mut(spec, "/volumes").for_each(default_volume);
}

/// Defaults of a pod's spec that templates do without.
pub(super) fn bare_pod_spec(spec: &mut Value) {
    if number(spec, "/terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        set(spec, "terminationGracePeriodSeconds", 1);
    }
    pod_spec(spec);
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

fn default_container(container: &mut Value) {
    preset(container, "resources", json!({}));
    preset(container, "terminationMessagePath", "/dev/termination-log");
    preset(container, "terminationMessagePolicy", "File");
    let policy = if tag(text(container, "/image")) == "latest" { "Always" } else { "IfNotPresent" };
    preset(container, "imagePullPolicy", policy);
    for port in items_mut(container, "/ports") {
        preset(port, "protocol", "TCP");
    }
    for variable in items_mut(container, "/env") {
        variable.get_mut("valueFrom").into_iter().for_each(default_field_ref);
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            default_probe(probe);
        }
    }
    for hook in ["/lifecycle/postStart/httpGet", "/lifecycle/preStop/httpGet"] {
        if let Some(get) = container.pointer_mut(hook) {
            default_http_get(get);
        }
    }
}

fn default_field_ref(holder: &mut Value) {
    if let Some(field) = holder.get_mut("fieldRef") {
        preset(field, "apiVersion", "v1");
    }
}

fn default_http_get(get: &mut Value) {
    preset(get, "path", "/");
    preset(get, "scheme", "HTTP");
}

fn default_probe(probe: &mut Value) {
    for (name, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        preset(probe, name, value);
    }
    if let Some(get) = probe.get_mut("httpGet") {
        default_http_get(get);
    }
    if let Some(grpc) = probe.get_mut("grpc") {
        preset(grpc, "service", "");
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

/// Permissions of projected files: 0644.
const FILE_MODE: i64 = 0o644;

fn default_volume(volume: &mut Value) {
    let sources = ["configMap", "secret", "downwardAPI", "projected"];
    for source in sources {
        if let Some(source) = volume.get_mut(source) {
            preset(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        preset(path, "type", "");
    }
    for source in items_mut(volume, "/projected/sources") {
        if let Some(token) = source.get_mut("serviceAccountToken") {
            preset(token, "expirationSeconds", 3600);
        }
        items_mut(source, "/downwardAPI/items").for_each(default_field_ref);
    }
    items_mut(volume, "/downwardAPI/items").for_each(default_field_ref);
    let bare = volume.as_object().is_some_and(|fields| fields.len() == 1);
    if bare && volume.get("name").is_some() {
        set(volume, "emptyDir", json!({}));
    }
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
