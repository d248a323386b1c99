//! The JSONPath of printer columns: `.a.b`, `['k']`, `[0]`, `[-1]`, `[*]`, `[?(@.type=="Ready")]`.

use serde_json::Value;

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Item(i64),
    All,
    /// Items whose value at the inner path equals (or not) the given one.
    Where {
        path: Vec<Self>,
        equal: bool,
        value: Value,
    },
}

/// How long a path may be: it is read for each object that is shown.
const LONGEST: usize = 4096;

/// The values at a path; none if it is malformed, too long, or leads nowhere.
///
/// Reading a path calls itself for the path inside a filter, and that ends after one step: what
/// stands before the first comparison holds no other.
pub(crate) fn find<'a>(object: &'a Value, path: &str) -> Vec<&'a Value> {
    if path.len() > LONGEST {
        return Vec::new();
    }
    let path = path.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    parse(path).map(|steps| follow(vec![object], &steps)).unwrap_or_default()
}

fn follow<'a>(mut values: Vec<&'a Value>, steps: &[Step]) -> Vec<&'a Value> {
    for step in steps {
        values = values.into_iter().flat_map(|value| take(value, step)).collect();
    }
    values
}

fn take<'a>(value: &'a Value, step: &Step) -> Vec<&'a Value> {
    let items = || value.as_array().into_iter().flatten();
    match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Item(position) => {
            let Some(list) = value.as_array() else { return Vec::new() };
            let position = usize::try_from(*position)
                .ok()
                .or_else(|| list.len().checked_sub(usize::try_from(position.unsigned_abs()).ok()?));
            position.and_then(|position| list.get(position)).into_iter().collect()
        }
        Step::All => match value {
            Value::Object(fields) => fields.values().collect(),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => items().collect(),
        },
        Step::Where { path, equal, value } => items()
            .filter(|item| {
                let found = follow(vec![item], path);
                found.first().is_some_and(|found| (*found == value) == *equal)
            })
            .collect(),
    }
}

fn parse(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (step, after) = if let Some(after) = rest.strip_prefix('.') {
            match after.strip_prefix('*') {
                Some(after) => (Step::All, after),
                None => field(after)?,
            }
        } else if let Some(after) = rest.strip_prefix('[') {
            bracket(after)?
        } else {
            field(rest)?
        };
        steps.push(step);
        rest = after;
    }
    Some(steps)
}

/// A plain name, up to the next dot or bracket that no backslash protects.
fn field(text: &str) -> Option<(Step, &str)> {
    let mut name = String::new();
    let mut protected = false;
    for (at, c) in text.char_indices() {
        match c {
            '\\' if !protected => protected = true,
            '.' | '[' if !protected => {
                return (!name.is_empty()).then_some((Step::Field(name), text.get(at..)?));
            }
            _ => {
                name.push(c);
                protected = false;
            }
        }
    }
    (!name.is_empty()).then_some((Step::Field(name), ""))
}

fn bracket(text: &str) -> Option<(Step, &str)> {
    let end = closing(text)?;
    let (inner, after) = (text.get(..end)?.trim(), text.get(end + 1..)?);
    let step = if inner == "*" {
        Step::All
    } else if let Some(filter) = inner.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        filtered(filter)?
    } else if let Some(name) = quoted(inner) {
        Step::Field(name.to_owned())
    } else {
        Step::Item(inner.parse().ok()?)
    };
    Some((step, after))
}

/// Where the bracket ends: quotes and inner brackets are skipped.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_u32, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) => quote = Some(open).filter(|open| *open != c),
            (None, '\'' | '"') => quote = Some(c),
            (None, '[' | '(') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']' | ')') => depth = depth.checked_sub(1)?,
            (None, _) => {}
        }
    }
    None
}

fn quoted(text: &str) -> Option<&str> {
    ['\'', '"'].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
}

fn filtered(filter: &str) -> Option<Step> {
    let (left, right, equal) = if let Some((left, right)) = filter.split_once("==") {
        (left, right, true)
    } else {
        let (left, right) = filter.split_once("!=")?;
        (left, right, false)
    };
    let path = parse(left.trim().strip_prefix('@')?)?;
    let right = right.trim();
    let value = match quoted(right) {
        Some(text) => Value::from(text),
        None => serde_json::from_str(right).ok()?,
    };
    Some(Step::Where { path, equal, value })
}
