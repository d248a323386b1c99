//! ConfigMaps and Secrets.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    access::{entries, flag, object_in, remove, set, text},
    names,
};
use crate::kinds::field::{FieldError, key};

/// The most that the values of one object may hold, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// `stringData` becomes `data`.
pub(super) fn default_secret(object: &mut Value) {
    let given: Vec<(String, String)> = entries(object, "/stringData")
        .filter_map(|(name, value)| Some((name.clone(), STANDARD.encode(value.as_str()?))))
        .collect();
    remove(object, "stringData");
    if !given.is_empty()
        && let Some(data) = object_in(object, "data")
    {
        for (name, value) in given {
            set(data, &name, value);
        }
    }
}

pub(super) fn validate_secret(object: &Value) -> Vec<FieldError> {
    let mut errors = keys(object, "data");
    let bytes = |value: &Value| value.as_str().map_or(0, |text| text.len() / 4 * 3);
    if entries(object, "/data").map(|(_, value)| bytes(value)).sum::<usize>() > MAX_BYTES {
        errors.push(FieldError::too_long("data", MAX_BYTES));
    }
    let mut require = |name: &str| {
        if object.get("data").and_then(|data| data.get(name)).is_none() {
            errors.push(FieldError::required(key("data", name), ""));
        }
    };
    match text(object, "/type") {
        "kubernetes.io/tls" => ["tls.crt", "tls.key"].into_iter().for_each(require),
        "kubernetes.io/ssh-auth" => require("ssh-privatekey"),
        "kubernetes.io/dockercfg" => require(".dockercfg"),
        "kubernetes.io/dockerconfigjson" => require(".dockerconfigjson"),
        "kubernetes.io/basic-auth" => {
            let has = |name: &str| object.pointer(&format!("/data/{name}")).is_some();
            if !has("username") && !has("password") {
                ["username", "password"].into_iter().for_each(require);
            }
        }
        "kubernetes.io/service-account-token" => {
            let annotation = "kubernetes.io/service-account.name";
            let annotations = object.pointer("/metadata/annotations");
            if annotations.and_then(|all| all.get(annotation)).is_none() {
                errors.push(FieldError::required(key("metadata.annotations", annotation), ""));
            }
        }
        _ => {}
    }
    errors
}

pub(super) fn validate_secret_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text(new, "/type") != text(old, "/type") {
        let value = json!(text(new, "/type"));
        errors.push(FieldError::invalid("type", &value, "field is immutable"));
    }
    errors.extend(immutable(new, old, &["data"]));
    errors
}

pub(super) fn validate_config_map(object: &Value) -> Vec<FieldError> {
    let mut errors = keys(object, "data");
    for (name, _) in entries(object, "/data") {
        if object.get("binaryData").is_some_and(|binary| binary.get(name).is_some()) {
            let detail = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid_text(key("data", name), name, detail));
        }
    }
    errors.extend(keys(object, "binaryData"));
    let size = |value: &Value| value.as_str().map_or(0, str::len);
    let text: usize = entries(object, "/data").map(|(_, value)| size(value)).sum();
    let binary: usize = entries(object, "/binaryData").map(|(_, value)| size(value) / 4 * 3).sum();
    if text + binary > MAX_BYTES {
        // The path is what Kubernetes makes of a path without a name.
        errors.push(FieldError::too_long("[]", MAX_BYTES));
    }
    errors
}

pub(super) fn validate_config_map_update(new: &Value, old: &Value) -> Vec<FieldError> {
    immutable(new, old, &["data", "binaryData"])
}

fn keys(object: &Value, field: &str) -> Vec<FieldError> {
    let problems = |name: &String| {
        let refuse = |problem: String| FieldError::invalid_text(key(field, name), name, &problem);
        names::config_key(name).into_iter().map(refuse).collect::<Vec<_>>()
    };
    entries(object, &format!("/{field}")).flat_map(|(name, _)| problems(name)).collect()
}

fn immutable(new: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    if !flag(old, "/immutable") {
        return Vec::new();
    }
    let detail = "field is immutable when `immutable` is set";
    let mut errors = Vec::new();
    if !flag(new, "/immutable") {
        errors.push(FieldError::forbidden("immutable", detail));
    }
    for field in fields.iter().filter(|field| new.get(*field) != old.get(*field)) {
        errors.push(FieldError::forbidden(*field, detail));
    }
    errors
}
