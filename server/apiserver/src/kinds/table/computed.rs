//! Cells of built-in kinds that are more than what stands at a path.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, or};
use crate::kinds::{
    BuiltIn,
    access::{entries, flag, is_true, items, number, text},
    certificate, event, node,
};

/// The cell of a column.
pub(super) fn cell(kind: BuiltIn, column: &str, object: &Value, now: Timestamp) -> Value {
    match (kind, column) {
        (_, "Name") => json!(text(object, "/metadata/name")),
        (_, "Age") => age::of(object, now),
        (BuiltIn::ConfigMap, _) => {
            let count = |pointer: &str| entries(object, pointer).count();
            json!(count("/data") + count("/binaryData"))
        }
        (BuiltIn::Node, "Status") => json!(node::summary(object)),
        (BuiltIn::Node, "Roles") => json!(roles(object)),
        (BuiltIn::Node, _) => json!(kernel(object)),
        (BuiltIn::CoreEvent | BuiltIn::Event, _) => of_event(column, object, now),
        (BuiltIn::ControllerRevision, _) => or(&controller(object), "<none>"),
        (BuiltIn::Endpoints, _) => or(&some(endpoints(object)), "<none>"),
        (BuiltIn::EndpointSlice, "Ports") => {
            let port = |port: &Value| match number(port, "/port") {
                Some(number) => number.to_string(),
                None => or(text(port, "/name"), "*").as_str().unwrap_or_default().to_owned(),
            };
            or(&some(items(object, "/ports").iter().map(port).collect()), "<unset>")
        }
        (BuiltIn::EndpointSlice, _) => {
            let each = items(object, "/endpoints").iter().flat_map(|one| items(one, "/addresses"));
            or(&some(each.filter_map(Value::as_str).map(str::to_owned).collect()), "<unset>")
        }
        (BuiltIn::Service, _) => or(&ports(object), "<none>"),
        (BuiltIn::CertificateSigningRequest, "Condition") => json!(certificate::summary(object)),
        (BuiltIn::CertificateSigningRequest, _) => {
            let seconds = number(object, "/spec/expirationSeconds");
            or(&seconds.map(age::words).unwrap_or_default(), "<none>")
        }
        (BuiltIn::PersistentVolumeClaim, _) => json!(access_modes(object, "/status/accessModes")),
        (_, "Access Modes") => json!(access_modes(object, "/spec/accessModes")),
        (_, "Claim") => match text(object, "/spec/claimRef/name") {
            "" => json!(""),
            claim => json!(format!("{}/{claim}", text(object, "/spec/claimRef/namespace"))),
        },
        (BuiltIn::ResourceQuota, _) => json!(used(object, column == "Limit")),
        (BuiltIn::ResourceClaim, _) => {
            let allocated = object.pointer("/status/allocation").is_some();
            let reserved = !items(object, "/status/reservedFor").is_empty();
            json!(match (allocated, reserved) {
                (true, true) => "allocated,reserved",
                (true, false) => "allocated",
                (false, _) => "pending",
            })
        }
        (_, "Status") => json!(state(object)),
        (_, "Completions") => json!(completions(object)),
        (_, "Duration") => duration(object, now),
        // of bindings: `Users`, `Groups`, `ServiceAccounts`
        (_, kinds) => json!(subjects(object, kinds.trim_end_matches('s'))),
    }
}

fn kernel(node: &Value) -> String {
    let info = |name: &str| text(node, &format!("/status/nodeInfo/{name}"));
    match (info("kernelVersion"), info("architecture")) {
        ("", _) => "<unknown>".to_owned(),
        (kernel, "") => kernel.to_owned(),
        (kernel, architecture) => format!("{kernel} ({architecture})"),
    }
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

/// One text, or the other if that is empty.
fn first_of<'a>(object: &'a Value, [one, other]: [&str; 2]) -> &'a str {
    Some(text(object, one)).filter(|text| !text.is_empty()).unwrap_or_else(|| text(object, other))
}

fn of_event(column: &str, event: &Value, now: Timestamp) -> Value {
    let first = first_of(event, ["/firstTimestamp", "/eventTime"]);
    let last = first_of(event, ["/series/lastObservedTime", "/lastTimestamp"]);
    match column {
        "Last Seen" => age::since(if last.is_empty() { first } else { last }, now),
        "First Seen" => age::since(first, now),
        "Object" => {
            let kind = text(event, "/involvedObject/kind").to_lowercase();
            match text(event, "/involvedObject/name") {
                "" => json!(kind),
                name => json!(format!("{kind}/{name}")),
            }
        }
        "Source" => {
            let host = first_of(event, ["/source/host", "/reportingInstance"]);
            let mut parts = vec![event::source(event), host.to_owned()];
            parts.retain(|part| !part.is_empty());
            json!(parts.join(", "))
        }
        "Message" => json!(text(event, "/message").trim()),
        _ => json!(number(event, "/series/count").or_else(|| number(event, "/count")).unwrap_or(1)),
    }
}

/// The controller of an object: `daemonset.apps/agent`.
fn controller(object: &Value) -> String {
    let owners = items(object, "/metadata/ownerReferences");
    let Some(owner) = owners.iter().find(|owner| flag(owner, "/controller")) else {
        return String::new();
    };
    let kind = text(owner, "/kind").to_lowercase();
    let (name, version) = (text(owner, "/name"), text(owner, "/apiVersion"));
    version
        .split_once('/')
        .map_or_else(|| format!("{kind}/{name}"), |(group, _)| format!("{kind}.{group}/{name}"))
}

/// The first three, and how many more there are.
fn some(all: Vec<String>) -> String {
    let more = all.len().saturating_sub(3);
    let shown = all.into_iter().take(3).collect::<Vec<_>>().join(",");
    if more == 0 { shown } else { format!("{shown} + {more} more...") }
}

/// Each address of Endpoints, with each of its ports.
fn endpoints(object: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for subset in items(object, "/subsets") {
        let addresses = || items(subset, "/addresses").iter().map(|one| text(one, "/ip"));
        let ports: Vec<i64> =
            items(subset, "/ports").iter().filter_map(|port| number(port, "/port")).collect();
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            all.extend(addresses().map(|ip| {
                if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
            }));
        }
    }
    all
}

fn ports(service: &Value) -> String {
    let port = |port: &Value| {
        let number = number(port, "/port").unwrap_or(0);
        let protocol = text(port, "/protocol");
        match port.get("nodePort").and_then(Value::as_i64) {
            Some(node) => format!("{number}:{node}/{protocol}"),
            None => format!("{number}/{protocol}"),
        }
    };
    items(service, "/spec/ports").iter().map(port).collect::<Vec<_>>().join(",")
}

/// `RWO,RWX`: access modes in the short form that people know.
fn access_modes(object: &Value, pointer: &str) -> String {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => Some("RWO"),
        Some("ReadOnlyMany") => Some("ROX"),
        Some("ReadWriteMany") => Some("RWX"),
        Some("ReadWriteOncePod") => Some("RWOP"),
        _ => None,
    };
    items(object, pointer).iter().filter_map(short).collect::<Vec<_>>().join(",")
}

/// `pods: 1/3, requests.cpu: 0/2`: what is used of a quota, and what there is.
fn used(quota: &Value, of_limits: bool) -> String {
    let hard = entries(quota, "/status/hard").chain(entries(quota, "/spec/hard"));
    let mut shown: Vec<String> = Vec::new();
    for (name, hard) in hard.filter(|(name, _)| name.starts_with("limits.") == of_limits) {
        let used = quota.pointer("/status/used").and_then(|used| used.get(name));
        let (used, hard) =
            (used.and_then(Value::as_str).unwrap_or("0"), hard.as_str().unwrap_or_default());
        let head = format!("{name}: ");
        if !shown.iter().any(|one| one.starts_with(&head)) {
            shown.push(format!("{head}{used}/{hard}"));
        }
    }
    shown.join(", ")
}

/// What a job has come to.
fn state(job: &Value) -> &'static str {
    match () {
        () if is_true(job, "Complete") => "Complete",
        () if is_true(job, "Failed") => "Failed",
        () if !text(job, "/metadata/deletionTimestamp").is_empty() => "Terminating",
        () if is_true(job, "Suspended") => "Suspended",
        () if is_true(job, "FailureTarget") => "FailureTarget",
        () if is_true(job, "SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions(job: &Value) -> String {
    let done = number(job, "/status/succeeded").unwrap_or(0);
    match (number(job, "/spec/completions"), number(job, "/spec/parallelism")) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, Some(many)) if many > 1 => format!("{done}/1 of {many}"),
        (None, _) => format!("{done}/1"),
    }
}

fn duration(job: &Value, now: Timestamp) -> Value {
    let time = |field: &str| text(job, &format!("/status/{field}")).parse::<Timestamp>().ok();
    let Some(start) = time("startTime") else { return json!("") };
    let end = time("completionTime").unwrap_or(now);
    json!(age::words(end.as_second() - start.as_second()))
}

/// The names of those that a binding is for and that are of a kind.
fn subjects(binding: &Value, kind: &str) -> String {
    let all = items(binding, "/subjects").iter().filter(|one| text(one, "/kind") == kind);
    let name = |one: &Value| match text(one, "/namespace") {
        "" => text(one, "/name").to_owned(),
        namespace => format!("{namespace}/{}", text(one, "/name")),
    };
    all.map(name).collect::<Vec<_>>().join(", ")
}
