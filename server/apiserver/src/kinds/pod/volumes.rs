//! Volumes of a pod and where containers mount them.

use serde_json::{Value, json};

use crate::kinds::{
    access::{items, text},
    field::{FieldError, child, index},
    names,
};

pub(super) fn validate(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for (position, volume) in items(spec, "/volumes").iter().enumerate() {
        let path = index(&child(path, "volumes"), position);
        let name = text(volume, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(child(&path, "name"), ""));
        } else {
            errors.extend(FieldError::invalid_for(&child(&path, "name"), name, names::label(name)));
            if seen.contains(&name) {
                errors.push(FieldError::duplicate(child(&path, "name"), &json!(name)));
            }
            seen.push(name);
        }
        errors.extend(validate_source(volume, &path));
    }
    errors
}

fn validate_source(volume: &Value, path: &str) -> Vec<FieldError> {
    let fields = volume.as_object().into_iter().flatten();
    let sources: Vec<&str> =
        fields.map(|(name, _)| name.as_str()).filter(|name| *name != "name").collect();
    let mut errors: Vec<FieldError> = sources
        .iter()
        .skip(1)
        .map(|name| {
            FieldError::forbidden(child(path, name), "may not specify more than 1 volume type")
        })
        .collect();
    let needs = [
        ("/secret", "secretName"),
        ("/configMap", "name"),
        ("/hostPath", "path"),
        ("/persistentVolumeClaim", "claimName"),
    ];
    for (source, field) in needs {
        if volume.pointer(source).is_some() && text(volume, &format!("{source}/{field}")).is_empty()
        {
            let path = child(&child(path, source.trim_start_matches('/')), field);
            errors.push(FieldError::required(path, ""));
        }
    }
    errors
}

pub(super) fn validate_mounts(container: &Value, path: &str, spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for (position, mount) in items(container, "/volumeMounts").iter().enumerate() {
        let path = index(path, position);
        let name = text(mount, "/name");
        let known = items(spec, "/volumes").iter().any(|volume| text(volume, "/name") == name);
        if name.is_empty() {
            errors.push(FieldError::required(child(&path, "name"), ""));
        } else if !known {
            errors.push(FieldError::not_found(child(&path, "name"), &json!(name)));
        }
        let target = text(mount, "/mountPath");
        if target.is_empty() {
            errors.push(FieldError::required(child(&path, "mountPath"), ""));
        }
        if seen.contains(&target) {
            let path = child(&path, "mountPath");
            errors.push(FieldError::invalid_text(path, target, "must be unique"));
        }
        seen.push(target);
    }
    errors
}
