//! Rules of a definition that an object breaks, with kube-apiserver's messages.

use std::{collections::HashMap, sync::Arc, time::Duration};

use kube_cel::cel::{Context, ExecutionError, Value as Cel, objects::OptionalValue};
use serde_json::{Map, Value};

use super::{
    Compiled, Rule, convert,
    functions::{FUNCTIONS, ends_at, ran},
};
use crate::kinds::{
    field::{FieldError, FieldErrorKind, Path, SHOWN_PATH, child, render, shorten},
    schema::{ListType, Schema, validate::is_enough},
};

/// The time of a processor that one expression, and all of one object, may take: what kube-apiserver's limits of
/// cost stand for by its own words, measured, as the interpreter counts no cost.
const EXPRESSION: Duration = Duration::from_millis(100);
const OBJECT: Duration = Duration::from_secs(1);
/// The longest text that an expression may make for a message, in bytes.
const LONGEST_MESSAGE: usize = 5 << 10;

impl Schema {
    /// The errors of broken rules. `old` is the object before a change: an unchanged value breaks no rule, unless the
    /// rule compares it with the old value.
    pub(crate) fn broken_rules(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut walk = Walk { errors: Vec::new(), left: OBJECT, over: false };
        walk.value(self, object, old, false, Path::Root(""));
        walk.errors
    }
}

struct Walk {
    errors: Vec<FieldError>,
    left: Duration,
    /// No more is evaluated.
    over: bool,
}

impl Walk {
    /// Calls itself once for each level of the value, and of the schema: both are bounded where they are read.
    fn value(
        &mut self,
        schema: &Schema,
        value: &Value,
        old: Option<&Value>,
        unchanged: bool,
        path: Path<'_>,
    ) {
        if !schema.ruled || value.is_null() || self.over || is_enough(&mut self.errors, path) {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        let unchanged = unchanged || old == Some(value);
        self.rules(schema, value, old, unchanged, path);
        match value {
            Value::Array(items) => self.items(schema, items, old, unchanged, path),
            Value::Object(fields) => self.fields(schema, fields, old, unchanged, path),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn fields(
        &mut self,
        schema: &Schema,
        fields: &Map<String, Value>,
        old: Option<&Value>,
        unchanged: bool,
        path: Path<'_>,
    ) {
        for (name, value) in fields {
            let path = if schema.properties.contains_key(name) {
                Path::Child(&path, name)
            } else {
                Path::Key(&path, name)
            };
            if let Some(inner) = schema.property(name) {
                self.value(inner, value, old.and_then(|old| old.get(name)), unchanged, path);
            }
        }
    }

    /// Items have an old value if keys identify them.
    fn items(
        &mut self,
        schema: &Schema,
        items: &[Value],
        old: Option<&Value>,
        unchanged: bool,
        path: Path<'_>,
    ) {
        let Some(inner) = schema.items.as_deref().filter(|inner| inner.ruled) else { return };
        let keyed = matches!(schema.list_type, ListType::Map(_));
        let id = |item: &Value| schema.identity(item).map(|id| id.to_string());
        let olds = old.and_then(Value::as_array).filter(|_| keyed).into_iter().flatten();
        let olds: HashMap<_, _> = olds.filter_map(|item| Some((id(item)?, item))).collect();
        for (position, item) in items.iter().enumerate() {
            let old = if keyed { id(item).and_then(|id| olds.get(&id).copied()) } else { None };
            self.value(inner, item, old, unchanged, Path::Index(&path, position));
        }
    }

    fn rules(
        &mut self,
        schema: &Schema,
        value: &Value,
        old: Option<&Value>,
        unchanged: bool,
        path: Path<'_>,
    ) {
        let uses_old = |rule: &Rule| rule.compiled.as_ref().is_some_and(|one| one.uses_old);
        let due = |rule: &&Rule| match old {
            Some(_) => uses_old(rule) || !unchanged,
            None => (!uses_old(rule) || rule.optional_old) && !unchanged,
        };
        let mut due = schema.rules.iter().filter(due).peekable();
        if due.peek().is_none() {
            return;
        }
        let mut context = FUNCTIONS.new_inner_scope();
        context.add_variable_from_value("self", convert::value(value, Some(schema)));
        let old = old.map(|old| convert::value(old, Some(schema)));
        for rule in due {
            let mut context = context.new_inner_scope();
            if rule.optional_old {
                let old = old.clone().map_or_else(OptionalValue::none, OptionalValue::of);
                context.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(old)));
            } else if let Some(old) = old.clone().filter(|_| uses_old(rule)) {
                context.add_variable_from_value("oldSelf", old);
            }
            if let Some(error) = self.rule(rule, &context, value, path) {
                self.errors.push(error);
            }
            if self.over {
                return;
            }
        }
    }

    fn rule(
        &mut self,
        rule: &Rule,
        context: &Context<'_>,
        value: &Value,
        path: Path<'_>,
    ) -> Option<FieldError> {
        let shown = match value {
            Value::Object(_) | Value::Array(_) => String::new(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => render(value),
        };
        let invalid = |detail: &str| Some(FieldError::invalid_shown(path.text(), &shown, detail));
        let Some(compiled) = &rule.compiled else {
            return invalid(&format!("rule compile error: {}", rule.text));
        };
        let result = self.evaluate(compiled, context);
        if self.over {
            let text = &rule.text;
            return invalid(&format!(
                "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: {text}"
            ));
        }
        match result {
            Ok(Cel::Bool(true)) => return None,
            Ok(Cel::Bool(false)) => {}
            Ok(_) | Err(ExecutionError::NoSuchOverload) => {
                let text = &rule.text;
                return invalid(&format!(
                    "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: {text}"
                ));
            }
            Err(error) => {
                return invalid(&format!("{} evaluating rule: {}", words(&error), rule.text));
            }
        }
        let detail = rule.message_expression.as_ref().and_then(|it| self.message(it, context));
        let detail = detail.as_ref().unwrap_or(&rule.message);
        let mut path = path.text();
        if let Some(field) = &rule.field {
            path = child(&path, field);
        }
        Some(match rule.reason {
            FieldErrorKind::Forbidden => FieldError::forbidden(path, detail),
            FieldErrorKind::Required => FieldError::required(path, detail),
            FieldErrorKind::Duplicate => FieldError::duplicate(path, value),
            FieldErrorKind::NotFound
            | FieldErrorKind::Invalid
            | FieldErrorKind::NotSupported
            | FieldErrorKind::TooLong
            | FieldErrorKind::TooMany
            | FieldErrorKind::TypeInvalid => FieldError::invalid_shown(path, &shown, detail),
        })
    }

    fn message(&mut self, expression: &Compiled, context: &Context<'_>) -> Option<String> {
        let Ok(Cel::String(text)) = self.evaluate(expression, context) else { return None };
        let text = text.trim();
        let fits = !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
        fits.then(|| text.to_owned())
    }

    fn evaluate(&mut self, one: &Compiled, context: &Context<'_>) -> Result<Cel, ExecutionError> {
        let began = ran();
        let end = began + EXPRESSION.min(self.left);
        ends_at(end);
        let result = context.resolve(&one.expression);
        let now = ran();
        self.left = self.left.saturating_sub(now.saturating_sub(began));
        self.over = now > end;
        result
    }
}

/// The error as Kubernetes words it. Values may be large, and are omitted.
#[expect(clippy::wildcard_enum_match_arm, reason = "the others say it themselves")]
fn words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => {
            format!("index out of bounds: {index}")
        }
        ExecutionError::FunctionError { message, .. } => shorten(message.clone(), SHOWN_PATH),
        _ => "no such overload".to_owned(),
    }
}
