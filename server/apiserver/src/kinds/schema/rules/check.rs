//! Refused rules of definitions, with kube-apiserver's messages.

use serde_json::Value;

use super::{RULES, compile, infer, text};
use crate::kinds::{
    field::{FieldError, child, index},
    schema::Schema,
};

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// What is wrong with the rules of one schema. Old values are known where all lists around it have keys.
pub(in crate::kinds::schema) fn check(schema: &Value, path: &str, keyed: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(rules) = schema.get(RULES).and_then(Value::as_array) else { return errors };
    let parsed = Schema::parse(schema);
    for (position, rule) in rules.iter().enumerate() {
        let path = index(&child(path, RULES), position);
        check_texts(rule, &path, &mut errors);
        check_field_path(rule, schema, &path, &mut errors);
        let optional = rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false);
        let at = child(&path, "rule");
        let written = text(rule, "rule");
        if written.trim().is_empty() {
            errors.push(FieldError::required(at, "rule is not specified"));
            continue;
        }
        let failed = |detail: &str| format!("compilation failed: {detail}");
        match compile(written) {
            Err(error) => {
                errors.push(FieldError::invalid_text(at, written, &failed(&error)));
            }
            Ok(compiled) => {
                let found = infer::result(&compiled.expression, &parsed, optional, written);
                match found {
                    Err(error) => {
                        errors.push(FieldError::invalid_text(&at, written, &failed(&error)));
                    }
                    Ok(kind) if !matches!(kind, "bool" | "dyn") => {
                        let detail = "cel expression must evaluate to a bool";
                        errors.push(FieldError::invalid_text(&at, written, detail));
                    }
                    Ok(_) => {}
                }
                if compiled.uses_old && !keyed {
                    let detail =
                        "oldSelf cannot be used on the uncorrelatable portion of the schema";
                    errors.push(FieldError::invalid_text(at, written, detail));
                } else if optional && !compiled.uses_old {
                    let at = child(&path, "optionalOldSelf");
                    let detail = "may not be set if oldSelf is not used in rule";
                    errors.push(FieldError::invalid(at, &Value::Bool(true), detail));
                }
            }
        }
        check_message_expression(rule, &parsed, optional, &path, &mut errors);
    }
    errors
}

fn check_texts(rule: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let message = text(rule, "message");
    let at = child(path, "message");
    if !message.is_empty() && message.trim().is_empty() {
        let detail = "message must be non-empty if specified";
        errors.push(FieldError::invalid_text(at, message, detail));
    } else if message.trim().contains('\n') {
        errors.push(FieldError::invalid_text(at, message, "message must not contain line breaks"));
    } else if message.is_empty() && text(rule, "rule").trim().contains('\n') {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(at, detail));
    }
    let reason = text(rule, "reason");
    if !reason.is_empty() && !REASONS.contains(&reason) {
        let at = child(path, "reason");
        errors.push(FieldError::not_supported(at, &reason.into(), &REASONS));
    }
}

fn check_message_expression(
    rule: &Value,
    schema: &Schema,
    optional: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(written) = rule.get("messageExpression").and_then(Value::as_str) else { return };
    let at = child(path, "messageExpression");
    if written.is_empty() {
        return;
    }
    if written.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(at, detail));
        return;
    }
    let found = compile(written)
        .and_then(|compiled| infer::result(&compiled.expression, schema, optional, written));
    let detail = match found {
        Err(error) => format!("messageExpression compilation failed: {error}"),
        Ok("string" | "dyn") => return,
        Ok(_) => "messageExpression must evaluate to a string".to_owned(),
    };
    errors.push(FieldError::invalid_text(at, written, &detail));
}

fn check_field_path(rule: &Value, schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let written = text(rule, "fieldPath");
    if written.is_empty() {
        return;
    }
    let detail = if written.trim().is_empty() {
        "fieldPath must be non-empty if specified".to_owned()
    } else if written.contains('\n') {
        "fieldPath must not contain line breaks".to_owned()
    } else if let Err(error) = field_path(written, schema) {
        format!("fieldPath must be a valid path: {error}")
    } else {
        return;
    };
    errors.push(FieldError::invalid_text(child(path, "fieldPath"), written, &detail));
}

/// The field that a path (`.a.b['c']`) names, as errors show it.
///
/// # Errors
/// The path is malformed, or the schema has no such field.
pub(super) fn field_path(written: &str, schema: &Value) -> Result<String, String> {
    let (mut rest, mut schema, mut found) = (written.trim(), schema, String::new());
    while !rest.is_empty() {
        let (name, after) = if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            (&after[..end], &after[end..])
        } else if let Some(after) = rest.strip_prefix('[') {
            let quoted = after.strip_prefix('\'').and_then(|after| after.split_once("']"));
            quoted.ok_or_else(|| format!("expected single quoted string but got {after}"))?
        } else {
            return Err(format!("expected [ or . but got: {rest}"));
        };
        if name.is_empty() {
            return Err("unexpected end of JSON path".to_owned());
        }
        let property = schema.get("properties").filter(|all| all.is_object());
        let inner = match property {
            Some(all) => all.get(name),
            None => schema.get("additionalProperties").filter(|inner| inner.is_object()),
        };
        schema = inner.ok_or("does not refer to a valid field")?;
        found = match property {
            Some(_) => child(&found, name),
            None => crate::kinds::field::key(&found, name),
        };
        rest = after;
    }
    Ok(found)
}
