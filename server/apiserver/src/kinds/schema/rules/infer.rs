//! The type of an expression, as far as schemas tell it.

use kube_cel::cel::{
    ExecutionError,
    common::ast::{
        CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators,
    },
};

use super::{
    convert::escape,
    functions::{FUNCTIONS, TYPES, called},
};
use crate::kinds::schema::{Additional, JsonType, Schema};

/// The known type of a value.
#[derive(Clone, Copy, Debug)]
enum Type<'a> {
    Of(&'a Schema),
    Named(&'static str),
}

const DYN: Type<'static> = Type::Named("dyn");
const BOOL: Type<'static> = Type::Named("bool");

impl Type<'_> {
    /// Its name, and `dyn` for what may be of several types.
    fn name(self) -> &'static str {
        match self {
            Self::Named(name) => name,
            Self::Of(schema) if schema.int_or_string || schema.nullable => "dyn",
            Self::Of(schema) => match (schema.kind, schema.limits.format.as_deref()) {
                (Some(JsonType::Boolean), _) => "bool",
                (Some(JsonType::Integer), _) => "int",
                (Some(JsonType::Number), _) => "double",
                (Some(JsonType::String), None) => "string",
                (Some(JsonType::Array), _) => "list",
                (Some(JsonType::Object), _) => "map",
                _ => "dyn",
            },
        }
    }
}

struct Scope<'a> {
    names: Vec<(&'a str, Type<'a>)>,
    written: &'a str,
}

/// The type of what an expression of a schema comes to.
///
/// # Errors
/// The expression names an unknown field, or compares incomparable types.
pub(super) fn result(
    expression: &IdedExpr,
    schema: &Schema,
    optional: bool,
    written: &str,
) -> Result<&'static str, String> {
    let old = if optional { DYN } else { Type::Of(schema) };
    let mut scope = Scope { names: vec![("self", Type::Of(schema)), ("oldSelf", old)], written };
    scope.of(expression).map(Type::name)
}

impl<'a> Scope<'a> {
    fn fail<T>(&self, wanted: &str, message: &str) -> Result<T, String> {
        Err(place(self.written, wanted, message))
    }

    fn named(&self, name: &str) -> Option<Type<'a>> {
        self.names.iter().rev().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// Calls itself once for each level of the expression, which are bounded where it was compiled.
    fn of(&mut self, expression: &'a IdedExpr) -> Result<Type<'a>, String> {
        Ok(match &expression.expr {
            Expr::Literal(literal) => Type::Named(match literal {
                LiteralValue::Boolean(_) => "bool",
                LiteralValue::Int(_) => "int",
                LiteralValue::Double(_) => "double",
                LiteralValue::String(_) => "string",
                LiteralValue::Bytes(_) | LiteralValue::Null | LiteralValue::UInt(_) => "dyn",
            }),
            Expr::Ident(name) => match self.named(name) {
                Some(kind) => kind,
                // types are values, too
                None if TYPES.contains(&name.as_str()) => DYN,
                None => {
                    let message = format!("undeclared reference to '{name}' (in container '')");
                    return self.fail(name, &message);
                }
            },
            Expr::Select(select) => {
                let operand = self.of(&select.operand)?;
                let found = self.field(operand, &select.field)?;
                if select.test { BOOL } else { found }
            }
            Expr::List(list) => {
                for element in &list.elements {
                    self.of(element)?;
                }
                Type::Named("list")
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.of(&entry.key)?;
                        self.of(&entry.value)?;
                    }
                }
                Type::Named("map")
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension)?,
            Expr::Call(call) => self.call(call)?,
            Expr::Struct(_) | Expr::Unspecified => DYN,
        })
    }

    fn field(&self, operand: Type<'a>, name: &str) -> Result<Type<'a>, String> {
        let Type::Of(schema) = operand else { return Ok(DYN) };
        match &schema.additional {
            Additional::Matching(inner) => return Ok(Type::Of(inner)),
            Additional::Any => return Ok(DYN),
            Additional::None => {}
        }
        let wanted = format!(".{name}");
        match operand.name() {
            "map" => {}
            "dyn" => return Ok(DYN),
            scalar => {
                let message = format!("type '{scalar}' does not support field selection");
                return self.fail(&wanted, &message);
            }
        }
        let mut fields = schema.properties.iter();
        if let Some((_, inner)) = fields.find(|(known, _)| escape(known) == name) {
            return Ok(Type::Of(inner));
        }
        if schema.embedded || matches!(name, "apiVersion" | "kind" | "metadata") {
            return Ok(DYN);
        }
        self.fail(&wanted, &format!("undefined field '{name}'"))
    }

    fn comprehension(&mut self, all: &'a ComprehensionExpr) -> Result<Type<'a>, String> {
        let range = self.of(&all.iter_range)?;
        let item = match range {
            Type::Of(schema) if range.name() == "list" => {
                schema.items.as_deref().map_or(DYN, Type::Of)
            }
            Type::Of(_) if range.name() == "map" => Type::Named("string"),
            Type::Of(_) | Type::Named(_) => DYN,
        };
        let result = self.of(&all.accu_init)?;
        let names = self.names.len();
        self.names.push((&all.iter_var, item));
        self.names.push((&all.accu_var, result));
        for inner in [&all.loop_cond, &all.loop_step] {
            self.of(inner)?;
        }
        let result = self.of(&all.result)?;
        self.names.truncate(names);
        Ok(result)
    }

    fn call(&mut self, call: &'a CallExpr) -> Result<Type<'a>, String> {
        let mut arguments = Vec::new();
        let package =
            call.target.as_deref().and_then(ident).filter(|name| self.named(name).is_none());
        if package.is_none() {
            if let Some(target) = &call.target {
                self.of(target)?;
            }
            self.check_function(&call.func_name)?;
        }
        for argument in &call.args {
            arguments.push(self.of(argument)?);
        }
        let name = call.func_name.as_str();
        let names: Vec<&str> = arguments.iter().map(|kind| kind.name()).collect();
        if COMPARISONS.contains(&name)
            && let [left, right] = names.as_slice()
            && left != right
            && ![left, right].contains(&&"dyn")
        {
            let operator = name.trim_matches('_');
            let message =
                format!("found no matching overload for '{name}' applied to '({left}, {right})'");
            return self.fail(&format!(" {operator} "), &message);
        }
        Ok(match (name, arguments.as_slice()) {
            (operators::CONDITIONAL, [_, yes, _]) => *yes,
            (operators::INDEX, [Type::Of(schema), _]) => match &schema.additional {
                Additional::Matching(inner) => Type::Of(inner),
                Additional::Any => DYN,
                Additional::None => schema.items.as_deref().map_or(DYN, Type::Of),
            },
            (operators::ADD | operators::SUBSTRACT | operators::MULTIPLY, [left, _]) => {
                Type::Named(left.name())
            }
            ("size" | "int", _) => Type::Named("int"),
            ("string", _) => Type::Named("string"),
            (
                operators::LOGICAL_NOT
                | operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::IN
                | "startsWith"
                | "endsWith"
                | "contains"
                | "matches",
                _,
            ) => BOOL,
            (name, _) if COMPARISONS.contains(&name) => BOOL,
            _ => DYN,
        })
    }

    /// A function that is not known says so, whatever it is given.
    fn check_function(&self, name: &str) -> Result<(), String> {
        if name.contains(['_', '@']) {
            return Ok(());
        }
        match FUNCTIONS.resolve(&called(0, name, Vec::new())) {
            Err(ExecutionError::UndeclaredReference(_)) => {
                let message = format!("undeclared reference to '{name}' (in container '')");
                self.fail(&format!("{name}("), &message)
            }
            _ => Ok(()),
        }
    }
}

const COMPARISONS: [&str; 6] = [
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::LESS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
];

/// Where in an expression a text stands: what the expression is made of does not say it.
fn place(written: &str, wanted: &str, message: &str) -> String {
    let at = written.find(wanted).unwrap_or(0);
    let before = &written[..at];
    let line = before.matches('\n').count();
    let column = before.chars().rev().take_while(|c| *c != '\n').count();
    let text = written.lines().nth(line).unwrap_or_default();
    let dots = ".".repeat(column);
    format!("ERROR: <input>:{}:{}: {message}\n | {text}\n | {dots}^", line + 1, column + 1)
}

/// Whether an expression is a name.
fn ident(expression: &IdedExpr) -> Option<&str> {
    if let Expr::Ident(name) = &expression.expr { Some(name) } else { None }
}
