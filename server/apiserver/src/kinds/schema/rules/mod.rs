//! `x-kubernetes-validations`: the rules in CEL that a definition has for its objects.
//!
//! Rules are compiled where the schema is parsed, and checked ([`check`]) where the definition is written.
//! [`evaluate`] walks schema and object together.

mod check;
mod convert;
mod evaluate;
mod functions;
mod infer;

use std::{
    num::NonZeroUsize,
    sync::{Arc, LazyLock},
};

use kube_cel::cel::{
    Program,
    common::ast::{Expr, IdedExpr, operators},
};
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::Value;

pub(super) use self::check::check;
use self::functions::called;
use crate::kinds::field::FieldErrorKind;

/// The keyword.
pub(crate) const RULES: &str = "x-kubernetes-validations";

/// The function that each turn of a loop calls.
const TURN: &str = "@turn";
/// The longest expression that is read, in bytes, and the stack for it.
const LONGEST: usize = 4 << 10;
const STACK: usize = 64 << 20;
/// The deepest one: the interpreter calls itself for each level, on the stack of a worker.
const DEEPEST: usize = 48;

/// Expressions that were compiled, as they were written: a definition is read again at each of its writes.
static COMPILED: LazyLock<Mutex<LruCache<String, Arc<Compiled>>>> =
    LazyLock::new(|| Mutex::new(LruCache::new(KEPT)));
const KEPT: NonZeroUsize = NonZeroUsize::new(512).unwrap();

/// An expression whose loops end when its time is up.
#[derive(Debug)]
struct Compiled {
    expression: IdedExpr,
    uses_old: bool,
}

/// A rule for the values of a schema.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// None if it does not compile; such a rule is refused where the definition is written.
    compiled: Option<Arc<Compiled>>,
    /// The message of a failure, unless `message_expression` gives one.
    message: String,
    message_expression: Option<Arc<Compiled>>,
    reason: FieldErrorKind,
    /// The field that errors name, below the value.
    field: Option<String>,
    /// It is evaluated for new values, too, and its `oldSelf` is an optional value.
    optional_old: bool,
    text: String,
}

fn text<'a>(rule: &'a Value, name: &str) -> &'a str {
    rule.get(name).and_then(Value::as_str).unwrap_or_default()
}

impl Rule {
    /// The rules of a schema.
    pub(super) fn all(schema: &Value) -> Vec<Self> {
        let rules = schema.get(RULES).and_then(Value::as_array).into_iter().flatten();
        rules.map(|rule| Self::parse(rule, schema)).collect()
    }

    fn parse(rule: &Value, schema: &Value) -> Self {
        let written = text(rule, "rule").trim();
        let message = text(rule, "message").trim();
        let shown = if message.is_empty() { written } else { message };
        let expression = text(rule, "messageExpression");
        let field = rule.get("fieldPath").and_then(Value::as_str);
        Self {
            compiled: compile(text(rule, "rule")).ok(),
            message: if message.is_empty() {
                format!("failed rule: {written}")
            } else {
                message.to_owned()
            },
            message_expression: (!expression.is_empty())
                .then(|| compile(expression).ok())
                .flatten(),
            reason: match text(rule, "reason") {
                "FieldValueForbidden" => FieldErrorKind::Forbidden,
                "FieldValueRequired" => FieldErrorKind::Required,
                "FieldValueDuplicate" => FieldErrorKind::Duplicate,
                _ => FieldErrorKind::Invalid,
            },
            field: field.and_then(|path| check::field_path(path, schema).ok()),
            optional_old: rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false),
            text: shown.to_owned(),
        }
    }
}

/// Compiles an expression.
///
/// # Errors
/// It cannot be read, or not be evaluated on the stack of a worker.
fn compile(written: &str) -> Result<Arc<Compiled>, String> {
    if let Some(compiled) = COMPILED.lock().get(written) {
        return Ok(compiled.clone());
    }
    if written.len() > LONGEST {
        return Err(format!("expression has more than {LONGEST} bytes"));
    }
    // the parser calls itself for each level, and some texts have one for each byte
    let reader = std::thread::Builder::new().stack_size(STACK);
    let compiled = std::thread::scope(|scope| {
        let read =
            reader.spawn_scoped(scope, || read(written)).map_err(|error| error.to_string())?;
        read.join().unwrap_or_else(|_| Err("expression cannot be read".to_owned()))
    })?;
    let compiled = Arc::new(compiled);
    COMPILED.lock().put(written.to_owned(), compiled.clone());
    Ok(compiled)
}

fn read(written: &str) -> Result<Compiled, String> {
    let program = Program::compile(written).map_err(|error| error.to_string())?;
    let mut expression = program.expression().clone();
    bound(&mut expression, 0)?;
    let uses_old = program.references().has_variable("oldSelf");
    Ok(Compiled { expression, uses_old })
}

/// Makes each iteration of each loop check the deadline. Recursive, with a bound for the depth.
fn bound(expression: &mut IdedExpr, depth: usize) -> Result<(), String> {
    if depth > DEEPEST {
        return Err(format!("expression nests deeper than {DEEPEST} levels"));
    }
    if let Expr::Comprehension(comprehension) = &mut expression.expr {
        let id = comprehension.loop_cond.id;
        let inner = std::mem::take(&mut comprehension.loop_cond);
        let turn = called(id, TURN, Vec::new());
        comprehension.loop_cond = called(id, operators::LOGICAL_AND, vec![inner, turn]);
    }
    for child in children(&mut expression.expr)? {
        bound(child, depth + 1)?;
    }
    Ok(())
}

fn children(expression: &mut Expr) -> Result<Vec<&mut IdedExpr>, String> {
    Ok(match expression {
        Expr::Unspecified | Expr::Struct(_) => {
            return Err("messages cannot be made in an expression".to_owned());
        }
        Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
        Expr::Call(call) => call.target.as_deref_mut().into_iter().chain(&mut call.args).collect(),
        Expr::Comprehension(all) => vec![
            &mut all.iter_range,
            &mut all.accu_init,
            &mut all.loop_cond,
            &mut all.loop_step,
            &mut all.result,
        ],
        Expr::List(list) => list.elements.iter_mut().collect(),
        Expr::Map(map) => {
            use kube_cel::cel::common::ast::EntryExpr;
            let mut found = Vec::new();
            for entry in &mut map.entries {
                match &mut entry.expr {
                    EntryExpr::MapEntry(entry) => {
                        found.push(&mut entry.key);
                        found.push(&mut entry.value);
                    }
                    EntryExpr::StructField(_) => {
                        return Err("messages cannot be made in an expression".to_owned());
                    }
                }
            }
            found
        }
        Expr::Select(select) => vec![&mut *select.operand],
    })
}

#[cfg(test)]
mod tests;
