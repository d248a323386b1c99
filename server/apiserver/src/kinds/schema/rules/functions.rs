//! The functions of expressions, and a function that ends an expression at its deadline.

use std::{cell::Cell, sync::LazyLock, time::Duration};

use kube_cel::{
    KubeCelExt,
    cel::{
        Context, ExecutionError, Value as Cel,
        common::ast::{CallExpr, Expr, IdedExpr},
    },
};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};

use super::TURN;

/// The clock is read once in so many turns.
const TURNS: u32 = 16;

/// The functions that expressions may call.
pub(super) static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut functions = Context::default().with_all();
    functions.add_function(TURN, turn);
    // the interpreter lacks these two
    functions.add_function("dyn", |value: Cel| -> Result<Cel, ExecutionError> { Ok(value) });
    functions.add_function("type", |value: Cel| -> Result<Cel, ExecutionError> {
        Ok(type_of(&value).into())
    });
    for name in TYPES {
        functions.add_variable_from_value(name, name);
    }
    functions
});

/// The types that expressions name.
pub(super) const TYPES: [&str; 9] =
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint"];

#[expect(clippy::wildcard_enum_match_arm, reason = "the others have no names")]
fn type_of(value: &Cel) -> &'static str {
    match value {
        Cel::Bool(_) => "bool",
        Cel::Bytes(_) => "bytes",
        Cel::Float(_) => "double",
        Cel::Int(_) => "int",
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Null => "null_type",
        Cel::String(_) => "string",
        Cel::UInt(_) => "uint",
        _ => "",
    }
}

thread_local! {
    /// When the expression that this thread evaluates has to end, and how many turns until it looks.
    static END: Cell<(Duration, u32)> = const { Cell::new((Duration::MAX, 0)) };
}

/// How long this thread has run.
pub(super) fn ran() -> Duration {
    #[cfg(target_os = "linux")]
    let who = UsageWho::RUSAGE_THREAD;
    #[cfg(not(target_os = "linux"))]
    let who = UsageWho::RUSAGE_SELF;
    let Ok(usage) = getrusage(who) else { return Duration::ZERO };
    let micros = usage.user_time() + usage.system_time();
    Duration::from_micros(u64::try_from(micros.num_microseconds()).unwrap_or(0))
}

/// The expression that this thread evaluates next ends when the thread has run for so long.
pub(super) fn ends_at(end: Duration) {
    END.set((end, TURNS));
}

fn turn() -> Result<bool, ExecutionError> {
    let (end, turns) = END.get();
    if turns > 0 {
        END.set((end, turns - 1));
        return Ok(true);
    }
    if ran() > end {
        return Err(ExecutionError::function_error(TURN, "out of time"));
    }
    END.set((end, TURNS));
    Ok(true)
}

/// The call of a function, as an expression.
pub(super) fn called(id: u64, function: &str, args: Vec<IdedExpr>) -> IdedExpr {
    let call = CallExpr { func_name: function.to_owned(), target: None, args };
    IdedExpr { id, expr: Expr::Call(call) }
}
