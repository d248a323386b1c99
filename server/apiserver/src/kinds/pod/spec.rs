//! Validation of a pod's spec.

use ostler_quantity::Quantity;
use serde_json::{Value, json};

use super::volumes;
use crate::kinds::{
    access::{entries, flag, items, number, text},
    field::{FieldError, child, index},
    names,
};

const RESTART: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const PULL: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const MESSAGE: [&str; 2] = ["File", "FallbackToLogsOnError"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const OPERATORS: [&str; 2] = ["Equal", "Exists"];
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const PORT: &str = "must be between 1 and 65535, inclusive";

/// The errors of a pod's spec.
pub(in crate::kinds) fn validate_spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = volumes::validate(spec, path);
    let at = |name: &str| child(path, name);
    let containers = items(spec, "/containers");
    if containers.is_empty() {
        errors.push(FieldError::required(at("containers"), ""));
    }
    let mut seen: Vec<&str> = Vec::new();
    for list in ["containers", "initContainers"] {
        for (position, container) in items(spec, &format!("/{list}")).iter().enumerate() {
            let path = index(&at(list), position);
            let name = text(container, "/name");
            errors.extend(validate_container(container, &path, spec));
            if seen.contains(&name) && !name.is_empty() {
                errors.push(FieldError::duplicate(child(&path, "name"), &json!(name)));
            }
            seen.push(name);
        }
    }
    if containers.is_empty() {
        return errors;
    }
    errors.extend(FieldError::unless_one_of(
        &at("restartPolicy"),
        text(spec, "/restartPolicy"),
        &RESTART,
    ));
    errors.extend(FieldError::unless_one_of(&at("dnsPolicy"), text(spec, "/dnsPolicy"), &DNS));
    errors.extend(validate_placement(spec, path));
    errors
}

fn validate_placement(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let at = |name: &str| child(path, name);
    for name in ["nodeName", "serviceAccountName", "priorityClassName"] {
        let value = text(spec, &format!("/{name}"));
        if !value.is_empty() {
            errors.extend(FieldError::invalid_for(&at(name), value, names::subdomain(value)));
        }
    }
    for name in ["hostname", "subdomain"] {
        let value = text(spec, &format!("/{name}"));
        if !value.is_empty() {
            errors.extend(FieldError::invalid_for(&at(name), value, names::label(value)));
        }
    }
    for (name, value) in entries(spec, "/nodeSelector") {
        let value = value.as_str().unwrap_or_default();
        errors.extend(FieldError::invalid_for(&at("nodeSelector"), name, names::qualified(name)));
        errors.extend(FieldError::invalid_for(
            &at("nodeSelector"),
            value,
            names::label_value(value),
        ));
    }
    if let Some(seconds) = number(spec, "/activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(at("activeDeadlineSeconds"), &json!(seconds), detail));
    }
    for (position, toleration) in items(spec, "/tolerations").iter().enumerate() {
        let path = index(&at("tolerations"), position);
        errors.extend(validate_toleration(toleration, &path));
    }
    errors
}

fn validate_toleration(toleration: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let key = text(toleration, "/key");
    let value = text(toleration, "/value");
    let operator = text(toleration, "/operator");
    let effect = text(toleration, "/effect");
    if !key.is_empty() {
        errors.extend(FieldError::invalid_for(&child(path, "key"), key, names::qualified(key)));
    }
    if key.is_empty() && operator != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(FieldError::invalid_text(child(path, "operator"), operator, detail));
    }
    if toleration.get("tolerationSeconds").is_some() && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(FieldError::invalid_text(child(path, "effect"), effect, detail));
    }
    match operator {
        "" | "Equal" => {
            errors.extend(FieldError::invalid_for(
                &child(path, "operator"),
                value,
                names::label_value(value),
            ));
        }
        "Exists" if !value.is_empty() => errors.push(FieldError::invalid_text(
            child(path, "operator"),
            value,
            "value must be empty when `operator` is 'Exists'",
        )),
        "Exists" => {}
        other => {
            let path = child(path, "operator");
            errors.push(FieldError::not_supported(path, &json!(other), &OPERATORS));
        }
    }
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        let path = child(path, "effect");
        errors.push(FieldError::not_supported(path, &json!(effect), &EFFECTS));
    }
    errors
}

fn validate_container(container: &Value, path: &str, spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let at = |name: &str| child(path, name);
    let name = text(container, "/name");
    if name.is_empty() {
        errors.push(FieldError::required(at("name"), ""));
    } else {
        errors.extend(FieldError::invalid_for(&at("name"), name, names::label(name)));
    }
    let image = text(container, "/image");
    if image.is_empty() {
        errors.push(FieldError::required(at("image"), ""));
    } else if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid_text(at("image"), image, detail));
    }
    errors.extend(validate_ports(container, &at("ports")));
    if flag(spec, "/hostNetwork") {
        errors.extend(validate_host_ports(container, &at("ports")));
    }
    errors.extend(validate_env(container, &at("env")));
    errors.extend(volumes::validate_mounts(container, &at("volumeMounts"), spec));
    errors.extend(FieldError::unless_one_of(
        &at("imagePullPolicy"),
        text(container, "/imagePullPolicy"),
        &PULL,
    ));
    let policy = text(container, "/terminationMessagePolicy");
    errors.extend(FieldError::unless_one_of(&at("terminationMessagePolicy"), policy, &MESSAGE));
    errors.extend(validate_resources(container, &at("resources")));
    errors
}

fn validate_ports(container: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for (position, port) in items(container, "/ports").iter().enumerate() {
        let path = index(path, position);
        let name = text(port, "/name");
        if !name.is_empty() {
            if seen.contains(&name) {
                errors.push(FieldError::duplicate(child(&path, "name"), &json!(name)));
            }
            seen.push(name);
        }
        match number(port, "/containerPort") {
            None | Some(0) => errors.push(FieldError::required(child(&path, "containerPort"), "")),
            Some(number) if !(1..=65535).contains(&number) => errors.push(FieldError::invalid(
                child(&path, "containerPort"),
                &json!(number),
                PORT,
            )),
            Some(_) => {}
        }
        if let Some(number) = number(port, "/hostPort").filter(|one| !(0..=65535).contains(one)) {
            errors.push(FieldError::invalid(child(&path, "hostPort"), &json!(number), PORT));
        }
        errors.extend(FieldError::unless_one_of(
            &child(&path, "protocol"),
            text(port, "/protocol"),
            &PROTOCOLS,
        ));
    }
    errors
}

/// On the network of its node a container listens where it says.
fn validate_host_ports(container: &Value, path: &str) -> Vec<FieldError> {
    let differs = |port: &&Value| port.get("hostPort") != port.get("containerPort");
    let numbered = items(container, "/ports").iter().enumerate();
    let refuse = |(position, port): (usize, &Value)| {
        let value = port.get("hostPort").cloned().unwrap_or_default();
        let path = child(&index(path, position), "hostPort");
        let detail = "must match `containerPort` when `hostNetwork` is true";
        FieldError::invalid(path, &value, detail)
    };
    numbered.filter(|(_, port)| differs(port)).map(refuse).collect()
}

fn validate_env(container: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (position, variable) in items(container, "/env").iter().enumerate() {
        let path = index(path, position);
        let name = text(variable, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(child(&path, "name"), ""));
        } else if name.contains('=') || !name.bytes().all(|b| (0x20..0x7f).contains(&b)) {
            let detail = "a valid environment variable name must consist only of printable ASCII characters other than '='";
            errors.push(FieldError::invalid_text(child(&path, "name"), name, detail));
        }
        if variable.get("valueFrom").is_some() && !text(variable, "/value").is_empty() {
            let detail = "may not be specified when `value` is not empty";
            errors.push(FieldError::invalid_text(child(&path, "valueFrom"), "", detail));
        }
    }
    errors
}

fn validate_resources(container: &Value, path: &str) -> Vec<FieldError> {
    let amount = |value: &Value| Quantity::parse(value.as_str().unwrap_or_default());
    let mut errors = Vec::new();
    for list in ["limits", "requests"] {
        for (name, value) in entries(container, &format!("/resources/{list}")) {
            if amount(value).is_some_and(|amount| amount.nanos() < 0) {
                let path = crate::kinds::field::key(&child(path, list), name);
                let detail = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(path, value, detail));
            }
        }
    }
    for (name, request) in entries(container, "/resources/requests") {
        let limits = container.pointer("/resources/limits");
        let Some(limit) = limits.and_then(|limits| limits.get(name)) else { continue };
        if amount(request) > amount(limit) {
            let shown = limit.as_str().unwrap_or_default();
            let detail = format!("must be less than or equal to {name} limit of {shown}");
            errors.push(FieldError::invalid(child(path, "requests"), request, &detail));
        }
    }
    errors
}
