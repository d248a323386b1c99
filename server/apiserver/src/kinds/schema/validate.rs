//! The errors of a value, with kube-apiserver's messages.
//!
//! The order of checks and the texts follow what a real server answers, oddities included: a number
//! with a fraction where an integer is wanted is two errors, one of them without a field.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{JsonType, Limits, ListType, Schema, formats, prune::EXACT, ratchet};
use crate::kinds::field::{FieldError, FieldErrorKind, Path, child, quote};

/// What the errors of one object may hold together, in bytes, roughly: an object of 2 MiB may have a
/// million wrong values, each with a long path.
const ERRORS_LIMIT: usize = 4 << 20;
/// The least size of an error.
const ERROR: usize = 64;

impl Schema {
    /// The errors of a custom object, without its metadata.
    pub(crate) fn validate(&self, object: &Value) -> Vec<FieldError> {
        self.with_rules(self.misfits(object), object, None)
    }

    fn misfits(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.check(object, Path::Root(""), &mut errors);
        self.check_lists(object, Path::Root(""), &mut errors);
        errors
    }

    fn misfits_of_change(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.misfits(new);
        ratchet::keep_new(&mut errors, new, old);
        errors
    }

    /// Rules are evaluated for objects of the right shape only.
    fn with_rules(
        &self,
        mut errors: Vec<FieldError>,
        object: &Value,
        old: Option<&Value>,
    ) -> Vec<FieldError> {
        let blocks = |error: &FieldError| {
            matches!(
                error.kind,
                FieldErrorKind::NotSupported
                    | FieldErrorKind::Required
                    | FieldErrorKind::TooLong
                    | FieldErrorKind::TooMany
                    | FieldErrorKind::TypeInvalid
            )
        };
        if !self.ruled {
            return errors;
        }
        if errors.iter().any(blocks) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            errors.push(FieldError::invalid("", &Value::Null, detail));
        } else {
            errors.extend(self.broken_rules(object, old));
        }
        errors
    }

    /// What a change to a custom object makes wrong: what was wrong and is unchanged may stay.
    pub(crate) fn validate_change(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        self.with_rules(self.misfits_of_change(new, old), new, Some(old))
    }

    /// The same for the status alone, the schema of which is looked up in this one. Texts name
    /// fields as seen from the status, as kube-apiserver does.
    pub(crate) fn validate_status_change(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let Some((schema, status)) = self.property("status").zip(new.get("status")) else {
            return Vec::new();
        };
        let old_status = old.get("status").unwrap_or(&Value::Null);
        let mut errors = schema.misfits_of_change(status, old_status);
        for error in errors.iter_mut().filter(|error| !error.path.is_empty()) {
            error.path = child("status", &error.path);
        }
        self.with_rules(errors, new, Some(old))
    }

    /// Calls itself once for each level of the value, and of the schema: both are bounded where they are
    /// read.
    fn check(&self, value: &Value, path: Path<'_>, errors: &mut Vec<FieldError>) {
        if value.is_null() && self.nullable || is_enough(errors, path) {
            return;
        }
        self.check_type(value, path, errors);
        match value {
            Value::String(text) => self.check_text(text, path, errors),
            Value::Number(_) => self.check_number(value, path, errors),
            Value::Array(items) => self.check_items(items, path, errors),
            Value::Object(fields) => self.check_fields(fields, path, errors),
            Value::Null | Value::Bool(_) => {}
        }
        self.check_enumeration(value, path, errors);
        self.check_compositions(value, path, errors);
    }

    fn check_type(&self, value: &Value, path: Path<'_>, errors: &mut Vec<FieldError>) {
        let found = type_name(value);
        let wanted = if self.int_or_string {
            if matches!(found, "integer" | "string") {
                return;
            }
            "integer,string"
        } else {
            match self.kind {
                None => return,
                Some(JsonType::Number) if found == "integer" => return,
                Some(JsonType::Integer) if is_whole(value) => return,
                Some(wanted) if wanted.name() == found => return,
                Some(wanted) => wanted.name(),
            }
        };
        let (found, path) = (quote(found), path.text());
        let detail = format!("{path} in body must be of type {wanted}: {found}");
        errors.push(FieldError::type_invalid(path, &found, &detail));
    }

    fn check_text(&self, text: &str, path: Path<'_>, errors: &mut Vec<FieldError>) {
        let length = text.chars().count();
        let limits = &self.limits;
        if let Some(max) = limits.max_length.filter(|max| length > *max) {
            errors.push(FieldError::too_long(path.text(), max));
        }
        if let Some(min) = limits.min_length.filter(|min| length < *min) {
            let what = format!("should be at least {min} chars long");
            errors.push(wrong(path, &quote(text), &what));
        }
        if let Some(pattern) = limits.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            errors.push(wrong(path, &quote(text), &format!("should match '{pattern}'")));
        }
        if let Some(format) = limits.format.as_deref()
            && !formats::matches(format, text)
        {
            let (shown, path) = (quote(text), path.text());
            let detail = format!("{path} in body must be of type {format}: {shown}");
            errors.push(FieldError::type_invalid(path, &shown, &detail));
        }
    }

    fn check_number(&self, value: &Value, path: Path<'_>, errors: &mut Vec<FieldError>) {
        let Some(number) = value.as_f64() else { return };
        if let Some(wanted) = self.misfit(value) {
            let detail = format!("Checked value must be of type {wanted} in {}", path.text());
            errors.push(FieldError::invalid_text("", "", &detail));
        }
        let limits = &self.limits;
        let shown = value.to_string();
        let mut refuse =
            |what: String| errors.push(wrong(path, &shown, &format!("should be {what}")));
        if let Some(factor) = limits.multiple_of
            && factor > 0.0
            && !is_multiple(number, factor)
        {
            refuse(format!("a multiple of {factor}"));
        }
        if let Some(bound) = limits.maximum {
            let max = bound.value;
            if bound.exclusive && number >= max {
                refuse(format!("less than {max}"));
            } else if number > max {
                refuse(format!("less than or equal to {max}"));
            }
        }
        if let Some(bound) = limits.minimum {
            let min = bound.value;
            if bound.exclusive && number <= min {
                refuse(format!("greater than {min}"));
            } else if number < min {
                refuse(format!("greater than or equal to {min}"));
            }
        }
    }

    /// The integer type that a number does not fit, named with its format.
    fn misfit(&self, value: &Value) -> Option<String> {
        if self.kind != Some(JsonType::Integer) {
            return None;
        }
        let format = self.limits.format.as_deref();
        // Written so, a whole number has neither fraction nor exponent.
        let text = match value.as_f64().filter(|_| value.is_f64()) {
            Some(number) => number.to_string(),
            None => value.to_string(),
        };
        let fits = match format {
            Some("int32") => text.parse::<i32>().is_ok(),
            _ => text.parse::<i64>().is_ok(),
        };
        let wanted = match format {
            Some(format) => format!("integer with format {format}"),
            None => "integer (default format)".to_owned(),
        };
        (!fits).then_some(wanted)
    }

    fn check_items(&self, items: &[Value], path: Path<'_>, errors: &mut Vec<FieldError>) {
        let Limits { min_items, max_items, unique_items, .. } = self.limits;
        if let Some(schema) = &self.items {
            for (position, item) in items.iter().enumerate() {
                schema.check(item, Path::Index(&path, position), errors);
            }
        }
        let count = items.len();
        if let Some(min) = min_items.filter(|min| count < *min) {
            let what = format!("should have at least {min} items");
            errors.push(wrong(path, &count.to_string(), &what));
        }
        if let Some(max) = max_items.filter(|max| count > *max) {
            errors.push(FieldError::too_many(path.text(), count, max));
        }
        let mut seen = HashSet::new();
        if unique_items && !items.iter().all(|item| seen.insert(item.to_string())) {
            errors.push(wrong(path, "\"\"", "shouldn't contain duplicates"));
        }
    }

    fn check_fields(
        &self,
        fields: &Map<String, Value>,
        path: Path<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        let limits = &self.limits;
        let count = fields.len();
        if let Some(min) = limits.min_properties.filter(|min| count < *min) {
            let what = format!("should have at least {min} properties");
            errors.push(wrong(path, &count.to_string(), &what));
        }
        if let Some(max) = limits.max_properties.filter(|max| count > *max) {
            errors.push(FieldError::too_many(path.text(), count, max));
        }
        for name in limits.required.iter().filter(|name| !fields.contains_key(*name)) {
            errors.push(FieldError::required(child(&path.text(), name), ""));
        }
        if self.embedded {
            for name in ["apiVersion", "kind"] {
                let given = fields.get(name).and_then(Value::as_str).unwrap_or_default();
                if given.is_empty() {
                    errors.push(FieldError::required(child(&path.text(), name), ""));
                }
            }
        }
        for (name, value) in fields {
            if let Some(schema) = self.property(name) {
                schema.check(value, Path::Child(&path, name), errors);
            }
        }
    }

    fn check_enumeration(&self, value: &Value, path: Path<'_>, errors: &mut Vec<FieldError>) {
        let Some(allowed) = &self.limits.enumeration else { return };
        if allowed.contains(value) {
            return;
        }
        let shown = |one: &Value| match one {
            Value::String(text) => text.clone(),
            other @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_)) => other.to_string(),
        };
        let allowed: Vec<String> = allowed.iter().map(shown).collect();
        let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(path.text(), value, &allowed));
    }

    fn check_compositions(&self, value: &Value, path: Path<'_>, errors: &mut Vec<FieldError>) {
        let fits = |schema: &Self| {
            let mut inner = Vec::new();
            schema.check(value, path, &mut inner);
            inner.is_empty()
        };
        let limits = &self.limits;
        if limits.any_of.is_empty()
            && limits.one_of.is_empty()
            && limits.all_of.is_empty()
            && limits.not.is_none()
        {
            return;
        }
        let mut refuse = |text: String| errors.push(FieldError::invalid_text("", "", &text));
        let shown = quote(&path.text());
        if !limits.any_of.is_empty() && !limits.any_of.iter().any(fits) {
            refuse(format!("{shown} must validate at least one schema (anyOf)"));
        }
        if !limits.one_of.is_empty() {
            let fitting = limits.one_of.iter().filter(|schema| fits(schema)).count();
            let found = match fitting {
                1 => None,
                0 => Some("Found none valid".to_owned()),
                many => Some(format!("Found {many} valid alternatives")),
            };
            if let Some(found) = found {
                refuse(format!("{shown} must validate one and only one schema (oneOf). {found}"));
            }
        }
        if limits.not.as_deref().is_some_and(fits) {
            refuse(format!("{shown} must not validate the schema (not)"));
        }
        // Each once: looking first and telling then would double with each level of nesting.
        let mut inner = Vec::new();
        for schema in &limits.all_of {
            schema.check(value, path, &mut inner);
        }
        if !inner.is_empty() {
            refuse(format!("{shown} must validate all the schemas (allOf)"));
            errors.append(&mut inner);
        }
    }

    /// Items that occur twice in lists that are sets or maps.
    fn check_lists(&self, value: &Value, path: Path<'_>, errors: &mut Vec<FieldError>) {
        match value {
            Value::Array(items) => {
                let mut seen = HashSet::new();
                for (position, item) in items.iter().enumerate() {
                    let path = Path::Index(&path, position);
                    if let Some(id) = self.identity(item)
                        && !seen.insert(id.to_string())
                        && !is_enough(errors, path)
                    {
                        errors.push(FieldError::duplicate(path.text(), &id));
                    }
                    if let Some(schema) = &self.items {
                        schema.check_lists(item, path, errors);
                    }
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    if let Some(schema) = self.property(name) {
                        schema.check_lists(value, Path::Child(&path, name), errors);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    pub(super) fn identity(&self, item: &Value) -> Option<Value> {
        match &self.list_type {
            ListType::Atomic => None,
            ListType::Set => Some(item.clone()),
            ListType::Map(keys) => {
                let default =
                    |key: &String| self.items.as_ref()?.properties.get(key)?.default.clone();
                let picked = keys.iter().filter_map(|key| {
                    let value = item.get(key).cloned().or_else(|| default(key))?;
                    Some((key.clone(), value))
                });
                item.is_object().then(|| Value::Object(picked.collect()))
            }
        }
    }
}

/// A value that its schema refuses, in kube-apiserver's words.
fn wrong(path: Path<'_>, shown: &str, what: &str) -> FieldError {
    let path = path.text();
    let detail = format!("{path} in body {what}");
    FieldError::invalid_shown(path, shown, &detail)
}

/// Whether a number is a multiple of another one, as far as both can be told: 0.3 is one of 0.1.
fn is_multiple(number: f64, factor: f64) -> bool {
    let times = number / factor;
    (times - times.round()).abs() <= times.abs() * 2.0 * f64::EPSILON
}

/// Whether there are so many errors that no more are looked for; the last one then says so. It has no
/// path, so that a change of an object that was full of errors before is not taken for a good one.
pub(super) fn is_enough(errors: &mut Vec<FieldError>, path: Path<'_>) -> bool {
    let held = |count: usize| count.saturating_mul(path.length().max(ERROR));
    if errors.is_empty() || held(errors.len()) <= ERRORS_LIMIT {
        return false;
    }
    let enough = FieldError::verbatim(
        FieldErrorKind::TooMany,
        "",
        "Too many: the object has more errors than are looked for",
    );
    if errors.last() != Some(&enough) {
        errors.push(enough);
    }
    true
}

/// As Kubernetes reads JSON: what does not fit 64 bits has a fraction, and is whole up to where all whole
/// numbers can be told apart.
fn is_whole(value: &Value) -> bool {
    let exact = |number: f64| number.fract() == 0.0 && number.abs() < EXACT;
    value.is_i64() || value.as_f64().is_some_and(exact)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
