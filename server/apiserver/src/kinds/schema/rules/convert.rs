//! From an object and its schema to what expressions see.

use std::{collections::HashMap, sync::Arc};

use kube_cel::cel::{
    Value as Cel,
    common::ast::{Expr, IdedExpr, LiteralValue},
    objects::{Key, Map},
};
use serde_json::Value;

use super::functions::{FUNCTIONS, called};
use crate::kinds::schema::{Additional, JsonType, Schema};

/// A value as expressions see it. Calls itself once for each level of the value, which are bounded where it is read.
pub(super) fn value(value: &Value, schema: Option<&Schema>) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => {
            let float = schema.is_some_and(|schema| schema.kind == Some(JsonType::Number));
            match number.as_i64().filter(|_| !float) {
                Some(number) => Cel::Int(number),
                None => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
            }
        }
        Value::String(text) => string(text, schema),
        Value::Array(list) => {
            let inner = schema.and_then(|schema| schema.items.as_deref());
            Cel::List(Arc::new(list.iter().map(|item| self::value(item, inner)).collect()))
        }
        Value::Object(fields) => {
            let is_map =
                schema.is_some_and(|schema| !matches!(schema.additional, Additional::None));
            let fields = fields.iter().map(|(name, inner)| {
                let schema = schema.and_then(|schema| schema.property(name));
                let name = if is_map { name.clone() } else { escape(name) };
                (Key::String(Arc::new(name)), self::value(inner, schema))
            });
            Cel::Map(Map { map: Arc::new(fields.collect::<HashMap<_, _>>()) })
        }
    }
}

fn string(text: &str, schema: Option<&Schema>) -> Cel {
    let format = schema.filter(|schema| !schema.int_or_string);
    let typed = match format.and_then(|schema| schema.limits.format.as_deref()) {
        Some("date-time" | "date") => call("timestamp", text),
        Some("duration") => call("duration", text),
        _ => None,
    };
    typed.unwrap_or_else(|| Cel::String(Arc::new(text.to_owned())))
}

/// Applies a function of the language to a text.
fn call(function: &str, text: &str) -> Option<Cel> {
    let argument = Expr::Literal(LiteralValue::String(text.into()));
    let args = vec![IdedExpr { id: 0, expr: argument }];
    FUNCTIONS.resolve(&called(0, function, args)).ok()
}

const KEYWORDS: [&str; 18] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
];

/// The name of a field as expressions write it.
pub(super) fn escape(name: &str) -> String {
    if KEYWORDS.contains(&name) {
        return format!("__{name}__");
    }
    let name = name.replace("__", "__underscores__");
    name.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}
