//! Validation of definitions.

use serde_json::{Value, json};

use crate::kinds::{
    access::{flag, is_true, items, text},
    field::{FieldError, FieldErrorKind, child, index, quote},
    names,
    schema::structural,
};

const SCOPES: [&str; 2] = ["Cluster", "Namespaced"];

pub(in crate::kinds) fn validate(object: &Value) -> Vec<FieldError> {
    let mut errors = validate_name(object);
    let group = text(object, "/spec/group");
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else {
        let problems = names::subdomain(group);
        if problems.is_empty() && !group.contains('.') {
            let detail = "should be a domain with at least one dot";
            errors.push(FieldError::invalid_text("spec.group", group, detail));
        }
        refuse(&mut errors, "spec.group", group, &problems);
    }
    let scope = text(object, "/spec/scope");
    errors.extend(FieldError::unless_one_of("spec.scope", scope, &SCOPES));
    errors.extend(as_of_all(items(object, "/spec/versions"), validate_versions(object)));
    errors.extend(validate_names(object));
    errors.extend(validate_protected(object));
    errors.extend(validate_conversion(object));
    errors
}

/// What all versions have alike counts as that of the definition, and is told once: Kubernetes' own form has it there.
fn as_of_all(versions: &[Value], errors: Vec<FieldError>) -> Vec<FieldError> {
    let alike = |part: &str| {
        let first = versions.first().and_then(|version| version.get(part));
        first.is_some() && versions.iter().all(|version| version.get(part) == first)
    };
    let moved = |error: FieldError| {
        for (part, whole) in [
            ("schema", "validation"),
            ("subresources", "subresources"),
            ("additionalPrinterColumns", "additionalPrinterColumns"),
            ("selectableFields", "selectableFields"),
        ] {
            let rest =
                error.path.strip_prefix("spec.versions[").and_then(|path| path.split_once("]."));
            let Some((at, rest)) = rest.filter(|(_, rest)| rest.starts_with(part) && alike(part))
            else {
                continue;
            };
            let mut path = rest.replacen(part, whole, 1);
            if part == "additionalPrinterColumns" {
                path = path.replace("].jsonPath", "].JSONPath");
            }
            return (at == "0").then(|| FieldError { path: child("spec", &path), ..error });
        }
        Some(error)
    };
    errors.into_iter().filter_map(moved).collect()
}

fn refuse(errors: &mut Vec<FieldError>, path: &str, value: &str, problems: &[String]) {
    if !problems.is_empty() {
        errors.push(FieldError::invalid_text(path, value, &problems.join(",")));
    }
}

fn validate_name(object: &Value) -> Vec<FieldError> {
    let name = text(object, "/metadata/name");
    let wanted = format!("{}.{}", text(object, "/spec/names/plural"), text(object, "/spec/group"));
    if name == wanted {
        return Vec::new();
    }
    let detail = r#"must be spec.names.plural+"."+spec.group"#;
    vec![FieldError::invalid_text("metadata.name", name, detail)]
}

const STRATEGIES: [&str; 2] = ["None", "Webhook"];

/// Conversion by a webhook is accepted, since clusters accept it; this server never calls the webhook.
fn validate_conversion(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if flag(object, "/spec/preserveUnknownFields") {
        let path = "spec.preserveUnknownFields";
        errors.push(FieldError::invalid(path, &json!(true), "must be false"));
    }
    let strategy = text(object, "/spec/conversion/strategy");
    if !STRATEGIES.contains(&strategy) {
        let path = "spec.conversion.strategy";
        errors.push(FieldError::not_supported(path, &json!(strategy), &STRATEGIES));
    }
    if strategy == "Webhook" {
        let webhook = "/spec/conversion/webhook";
        if object.pointer(&format!("{webhook}/clientConfig")).is_none() {
            let detail = "required when strategy is set to Webhook";
            errors.push(FieldError::required("spec.conversion.webhookClientConfig", detail));
        }
        if items(object, &format!("{webhook}/conversionReviewVersions")).is_empty() {
            errors.push(FieldError::required("spec.conversion.conversionReviewVersions", ""));
        }
    }
    errors
}

/// Groups of Kubernetes itself need an annotation about the review of the types.
fn validate_protected(object: &Value) -> Option<FieldError> {
    const NOTE: &str = "api-approved.kubernetes.io";
    let group = text(object, "/spec/group");
    let protected = [".k8s.io", ".kubernetes.io"].iter().any(|suffix| group.ends_with(suffix))
        || matches!(group, "k8s.io" | "kubernetes.io");
    let note = object.pointer("/metadata/annotations").and_then(|all| all.get(NOTE));
    if !protected || note.is_some() {
        return None;
    }
    let detail = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
    Some(FieldError::required(format!("metadata.annotations[{NOTE}]"), detail))
}

fn validate_versions(object: &Value) -> Vec<FieldError> {
    let versions = items(object, "/spec/versions");
    let mut errors = Vec::new();
    let path = "spec.versions";
    let name = |version: &Value| text(version, "/name").to_owned();
    if let Some(first) = versions.first() {
        let problems = names::label_1035(&name(first));
        refuse(&mut errors, "spec.version", &name(first), &problems);
    }
    for (position, version) in versions.iter().enumerate() {
        errors.extend(validate_version(version, &index(path, position)));
    }
    let repeated = |(at, version): (usize, &Value)| {
        versions.iter().take(at).any(|one| name(one) == name(version))
    };
    if versions.iter().enumerate().any(repeated) {
        errors.push(shown(path, versions, "must contain unique version names"));
    }
    let stored: Vec<&Value> = versions.iter().filter(|one| flag(one, "/storage")).collect();
    if stored.len() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(shown(path, versions, detail));
    }
    errors.extend(validate_stored(object, &stored));
    errors
}

fn validate_stored(object: &Value, storage: &[&Value]) -> Option<FieldError> {
    let path = "status.storedVersions";
    let stored = items(object, "/status/storedVersions");
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        return Some(FieldError::invalid_shown(path, "null", detail));
    }
    let last = text(storage.last()?, "/name");
    let known = stored.iter().any(|one| one == last);
    let detail = format!("must have the storage version {last}");
    (!known).then(|| FieldError::invalid(path, &json!(stored), &detail))
}

/// The versions as kube-apiserver shows them: its own field names, without what is inside.
fn shown(path: &str, versions: &[Value], detail: &str) -> FieldError {
    let one = |version: &Value| {
        format!(
            r#"{{"Name":{},"Served":{},"Storage":{},"Deprecated":{},"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}}"#,
            quote(text(version, "/name")),
            flag(version, "/served"),
            flag(version, "/storage"),
            flag(version, "/deprecated"),
        )
    };
    let all: Vec<String> = versions.iter().map(one).collect();
    let body = format!("Invalid value: [{}]: {detail}", all.join(","));
    FieldError::verbatim(FieldErrorKind::Invalid, path, &body)
}

fn validate_version(version: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(version, "/name");
    refuse(&mut errors, &child(path, "name"), name, &names::label_1035(name));
    let schema_path = child(&child(path, "schema"), "openAPIV3Schema");
    match version.pointer("/schema/openAPIV3Schema") {
        None => errors.push(FieldError::required(schema_path, "")),
        Some(schema) => errors.extend(structural::validate(schema, &schema_path)),
    }
    if let Some(scale) = version.pointer("/subresources/scale") {
        errors.extend(validate_scale(scale, &child(path, "subresources.scale")));
    }
    for (position, column) in items(version, "/additionalPrinterColumns").iter().enumerate() {
        let path = index(&child(path, "additionalPrinterColumns"), position);
        errors.extend(validate_column(column, &path));
    }
    for (position, field) in items(version, "/selectableFields").iter().enumerate() {
        let path = child(&index(&child(path, "selectableFields"), position), "jsonPath");
        let json_path = text(field, "/jsonPath");
        let names = json_path.trim_start_matches('.').split('.');
        let found = names.fold(version.pointer("/schema/openAPIV3Schema"), |schema, name| {
            schema?.get("properties")?.get(name)
        });
        if json_path.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if json_path.starts_with('.') && found.is_none() {
            let detail = "is an invalid path: does not refer to a valid field";
            errors.push(FieldError::invalid_text(path, json_path, detail));
        } else if !json_path.starts_with('.') {
            let detail = "is an invalid path: must start with '.'";
            errors.push(FieldError::invalid_text(path, json_path, detail));
        }
    }
    errors
}

fn validate_scale(scale: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (name, prefix) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let value = text(scale, &format!("/{name}"));
        let path = child(path, name);
        if value.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if !value.starts_with(prefix) {
            let detail = format!("should be a json path under {}", prefix.trim_end_matches('.'));
            errors.push(FieldError::invalid_text(path, value, &detail));
        }
    }
    let selector = text(scale, "/labelSelectorPath");
    if !selector.is_empty() && !selector.starts_with(".status.") && !selector.starts_with(".spec.")
    {
        let path = child(path, "labelSelectorPath");
        let detail = "should be a json path under either .status or .spec";
        errors.push(FieldError::invalid_text(path, selector, detail));
    }
    errors
}

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];

const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

fn validate_column(column: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text(column, "/name").is_empty() {
        errors.push(FieldError::required(child(path, "name"), ""));
    }
    let kind = text(column, "/type");
    let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
    if kind.is_empty() {
        errors.push(FieldError::required(child(path, "type"), &detail));
    } else if !COLUMN_TYPES.contains(&kind) {
        errors.push(FieldError::invalid_text(child(path, "type"), kind, &detail));
    }
    let format = text(column, "/format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.push(FieldError::invalid_text(child(path, "format"), format, &detail));
    }
    let json_path = text(column, "/jsonPath");
    if json_path.is_empty() {
        errors.push(FieldError::required(child(path, "jsonPath"), ""));
    } else if !json_path.starts_with('.') {
        let detail = "must be a simple json path starting with .";
        errors.push(FieldError::invalid_text(child(path, "jsonPath"), json_path, detail));
    }
    errors
}

fn validate_names(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = "spec.names";
    let of = |name: &str| text(object, &format!("/spec/names/{name}"));
    let plural = of("plural");
    if plural.is_empty() {
        errors.push(FieldError::required(child(path, "plural"), ""));
    } else {
        refuse(&mut errors, &child(path, "plural"), plural, &names::label_1035(plural));
    }
    let singular = of("singular");
    if singular.is_empty() {
        errors.push(FieldError::required(child(path, "singular"), ""));
    } else {
        refuse(&mut errors, &child(path, "singular"), singular, &names::label_1035(singular));
    }
    for name in ["kind", "listKind"] {
        let value = of(name);
        let at = child(path, name);
        if value.is_empty() {
            errors.push(FieldError::required(at, ""));
        } else {
            // only the letter case may differ from a label
            let problems = names::label_1035(&value.to_lowercase());
            let detail = |problem: &String| {
                format!("may have mixed case, but should otherwise match: {problem}")
            };
            let problems: Vec<String> = problems.iter().map(detail).collect();
            refuse(&mut errors, &at, value, &problems);
        }
    }
    if !of("kind").is_empty() && of("kind") == of("listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid_text(child(path, "listKind"), of("listKind"), detail));
    }
    for name in ["shortNames", "categories"] {
        for (position, value) in items(object, &format!("/spec/names/{name}")).iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            let at = index(&child(path, name), position);
            refuse(&mut errors, &at, value, &names::label_1035(value));
        }
    }
    errors
}

pub(in crate::kinds) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let established = is_true(old, "Established");
    let fixed: &[&str] = if established {
        &["group", "scope", "names.kind", "names.plural"]
    } else {
        &["group", "names.plural"]
    };
    let changed = fixed.iter().filter_map(|name| {
        let pointer = format!("/spec/{}", name.replace('.', "/"));
        let value = new.pointer(&pointer).cloned().unwrap_or_default();
        let differs = new.pointer(&pointer) != old.pointer(&pointer);
        let path = child("spec", name);
        differs.then(|| FieldError::invalid(path, &value, "field is immutable"))
    });
    let mut errors: Vec<FieldError> = changed.collect();
    let versions = items(new, "/spec/versions");
    for (position, stored) in items(new, "/status/storedVersions").iter().enumerate() {
        if !versions.iter().any(|version| version.get("name") == Some(stored)) {
            let path = index("status.storedVersions", position);
            errors.push(FieldError::invalid(path, stored, "must appear in spec.versions"));
        }
    }
    errors
}
